"""Plain arrays: every problem's model, anyone's arrays, and nobody's code."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from hogwild.data.ratings.container import Ids
from hogwild.errors import InputError, UsageError
from hogwild.interchange import export_model, import_model
from hogwild.problems.completion.model import CompletionModel
from hogwild.problems.cuts.model import Segmentation
from hogwild.problems.linear.model import LinearModel
from hogwild.problems.module.model import ModuleModel

RNG = np.random.default_rng(0)
HISTORY = [{"epoch": 1, "objective": float("nan")}]
LINEAR = LinearModel(
    RNG.normal(size=(1, 8)), [0.5], "log", 0.0, [3, 4], "max", config={"l2": 0.1}, fingerprint="abc", history=HISTORY
)
COMPLETION = CompletionModel(
    RNG.normal(size=(3, 2)),
    RNG.normal(size=(2, 2)),
    np.zeros(3),
    np.ones(2),
    3.5,
    user_ids=Ids([10, 20, 30]),
    item_ids=Ids(["ä", "b"]),
)
MODELS = {
    "linear": LINEAR,
    "completion": COMPLETION,
    "cuts": Segmentation(np.array([[1.0, 0], [0, 1]]), 1.0, 2.0),
    "module": ModuleModel({"layer.weight": np.ones((2, 2), np.float32)}, names=["layer.weight"]),
}


@pytest.mark.parametrize("problem", list(MODELS))
def test_models_of_all_problems_come_back_whole(problem: str, tmp_path: Path) -> None:
    model, path = MODELS[problem], tmp_path / "file.npz"
    assert export_model(model, path, "npz") == []
    back = import_model(path, "npz")
    (arrays, header), (before, facts) = back.to_file(), model.to_file()
    assert type(back) is type(model)
    assert set(arrays) == set(before)
    for name, array in before.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype
    assert header == (facts | {"history": [{"epoch": 1, "objective": None}]} if problem == "linear" else facts)
    again = tmp_path / "again.npz"
    export_model(model, again, "npz")
    assert again.read_bytes() == path.read_bytes()


def test_numpy_reads_it_and_the_header_says_what_it_is(tmp_path: Path) -> None:
    export_model(LINEAR, tmp_path / "file.npz", "npz")
    with np.load(tmp_path / "file.npz") as file:  # allow_pickle is off
        header = json.loads(str(file["hogwild"]))
        np.testing.assert_array_equal(file["coef"], LINEAR.coef_)
    assert (header["problem"], header["loss"], header["labels"]) == ("linear", "log", [3.0, 4.0])


def test_attributes_of_any_estimator(tmp_path: Path) -> None:
    from sklearn.linear_model import LinearRegression, LogisticRegression

    path, X = tmp_path / "file.npz", RNG.normal(size=(50, 4))
    y = np.where(X[:, 0] > 0, 1, -1)
    theirs = LogisticRegression().fit(X, y)
    np.savez(path, coef_=theirs.coef_, intercept_=theirs.intercept_, classes_=theirs.classes_)
    np.testing.assert_array_equal(import_model(path, "npz").predict(X), theirs.predict(X))
    log = import_model(path, "npz", loss="log")
    np.testing.assert_allclose(log.predict_proba(X), theirs.predict_proba(X), rtol=0, atol=1e-6)
    swapped = import_model(path, "npz", loss="log", labels=[7, 5])  # 5 belongs to positive margins
    assert swapped.labels == [5.0, 7.0]
    np.testing.assert_array_equal(swapped.predict(X), np.where(theirs.predict(X) == 1, 5, 7))
    line = LinearRegression(fit_intercept=False).fit(X, y)
    np.savez(path, coef_=line.coef_)
    np.testing.assert_allclose(import_model(path, "npz").predict(X), line.predict(X), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"coef": np.array([{}], object)}, "not an npz archive: Object arrays cannot be loaded"),
        ({"coef": [1.0, 1e39]}, "not all weights are finite in float32"),
        ({"coef": [1.0], "intercept": [0.0, 1.0]}, "coef of shape"),
        ({"coef": [[1.0], [2.0], [3.0]], "classes": [1, 2]}, "coef has 3 rows for 2 labels"),
        ({"coef": [1.0], "classes": ["a", "b"]}, "could not convert string to float"),
        ({"coef": [1.0], "weight": [1.0]}, "expected the arrays coef, intercept, classes; got coef, weight"),
        ({"intercept": [1.0]}, "expected the arrays coef, intercept, classes; got intercept"),
        ({"hogwild": "{", "coef": [1.0]}, "not an npz archive: Expecting property name"),
        ({"hogwild": '{"problem": "os"}'}, "its header is not one of format 1"),
        ({"hogwild": '{"problem": "linear", "schema": 2}'}, "its header is not one of format 1"),
        ({"hogwild": '{"problem": "linear", "schema": 1}'}, "not a usable hogwild model: no 'coef'"),
    ],
)
def test_wrong_archives_are_one_line(arrays: dict[str, object], message: str, tmp_path: Path) -> None:
    path = tmp_path / "file.npz"
    np.savez(path, **{name: np.asarray(array) for name, array in arrays.items()}, allow_pickle=True)
    with pytest.raises(InputError, match=message) as caught:
        import_model(path, "npz")
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_damaged_and_missing_files_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "file.npz"
    export_model(LINEAR, path, "npz")
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for content in (
        b"",
        b"\x80\x04\x95",
        b"PK\x03\x04rubbish",
        *(whole[:cut] for cut in rng.integers(0, len(whole), 20)),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match="not an npz archive") as caught:
            import_model(path, "npz")
        assert "\n" not in str(caught.value)
    for missing in (tmp_path / "none", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            import_model(missing, "npz")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda path: export_model(LINEAR, path, "onxn"), r"--to onxn: expected one of npz, .*: did you mean onnx\?"),
        (lambda path: export_model(COMPLETION, path, "onnx"), "holds a linear model; got a CompletionModel: take npz"),
        (lambda path: import_model(path, "onnx"), "--from onnx: expected one of npz, sklearn"),
        (lambda path: import_model(path, "npz", loss="logistic"), "loss 'logistic': .*: did you mean log?"),
    ],
)
def test_wrong_options_name_the_choices(call: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        call(tmp_path / "file")  # type: ignore[operator]
    assert not os.listdir(tmp_path)


def test_what_the_file_says_is_not_said_twice(tmp_path: Path) -> None:
    path = tmp_path / "file.npz"
    export_model(LINEAR, path, "npz")
    with pytest.raises(UsageError, match="says itself what its loss and labels are"):
        import_model(path, "npz", loss="hinge")
    np.savez(path, coef=[1.0], classes=[0, 1])
    with pytest.raises(InputError, match="has classes: expected a loss of log"):
        import_model(path, "npz", loss="huber")
