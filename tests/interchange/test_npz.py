"""Plain arrays: every problem's model, anyone's arrays, and nobody's code."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from hogwild import machine
from hogwild.data.ratings.container import Ids
from hogwild.errors import InputError, UsageError
from hogwild.interchange import export_model, import_model
from hogwild.problems.completion.model import CompletionModel
from hogwild.problems.cuts.model import Segmentation
from hogwild.problems.linear.model import LinearModel
from hogwild.problems.module.model import ModuleModel
from tests.interchange.models import made, rows

RNG = np.random.default_rng(0)
MODELS = {
    "linear": LinearModel(
        RNG.standard_normal((1, 8)),
        [0.5],
        "huber",
        0.25,
        [],
        "max",
        {"l2": 0.1},
        "abc",
        [{"epoch": 1, "objective": float("nan")}],
        hash_bits=3,
    ),
    "completion": CompletionModel(
        RNG.standard_normal((3, 2)),
        RNG.standard_normal((2, 2)),
        np.zeros(3),
        np.ones(2),
        3.5,
        user_ids=Ids([10, 20, 30]),
        item_ids=Ids(["ä", "b"]),
    ),
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
    expected = facts | {"history": [{"epoch": 1, "objective": None}]} if problem == "linear" else facts
    assert header == expected
    back.save(tmp_path / "model")  # a model like any other
    again = tmp_path / "again.npz"
    export_model(model, again, "npz")
    assert again.read_bytes() == path.read_bytes()


def test_numpy_reads_it_and_the_header_says_what_it_is(tmp_path: Path) -> None:
    model, X = made("log", 3), rows()
    export_model(model, tmp_path / "file.npz", "npz")
    with np.load(tmp_path / "file.npz") as file:  # allow_pickle is off
        header = json.loads(str(file["hogwild"]))
        margins = X @ file["coef"].T + file["intercept"]
    np.testing.assert_allclose(margins, model.decision_function(X), rtol=1e-5, atol=1e-5)
    assert (header["problem"], header["loss"], header["labels"]) == ("linear", "log", model.labels)


def test_attributes_of_any_estimator(tmp_path: Path) -> None:
    from sklearn.linear_model import LinearRegression, LogisticRegression

    X, path = rows(), tmp_path / "file.npz"
    y = made("log", 2).predict(X)
    theirs = LogisticRegression().fit(X, y)
    np.savez(path, coef_=theirs.coef_, intercept_=theirs.intercept_, classes_=theirs.classes_)
    np.testing.assert_array_equal(import_model(path, "npz").predict(X), theirs.predict(X))
    log = import_model(path, "npz", loss="log")
    np.testing.assert_allclose(log.predict_proba(X), theirs.predict_proba(X), rtol=0, atol=1e-6)
    line = LinearRegression(fit_intercept=False).fit(X, y)
    np.savez(path, coef_=line.coef_)
    np.testing.assert_allclose(import_model(path, "npz").predict(X), line.predict(X), rtol=1e-6, atol=1e-6)


def crafted(path: Path, **members: object) -> Path:
    """An archive of arrays, or of raw bytes."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            if not isinstance(content, bytes):
                buffer = io.BytesIO()
                np.save(buffer, np.asarray(content), allow_pickle=True)
                content = buffer.getvalue()
            archive.writestr(f"{name}.npy", content)
    return path


def huge(shape: tuple[int, ...]) -> bytes:
    """An array's header that promises more than there is."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return buffer.getvalue() + b"\0" * 16


HEADER = json.dumps(made("log", 2).to_file()[1] | {"schema": 1})


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"coef": huge((10**12,)), "intercept": [0.0]}, "coef: an array of shape .* is 4,000,000,000,000 bytes"),
        ({"coef": huge((-2, -2)), "intercept": [0.0]}, "coef: an array of shape "),
        ({"coef": np.array([{}], object), "intercept": [0.0]}, "coef: holds Python objects, which could run code"),
        ({"coef": b"rubbish", "intercept": [0.0]}, "coef: not a NumPy array"),
        ({"coef": b"\x93NUMPY\x01\0\x06\0{'a':\n"}, "coef: not a NumPy array: .*EOF in multi-line statement"),
        ({"coef": [1.0, np.nan]}, "weight of feature 2 is not a finite float32"),
        ({"coef": [1.0, 1e39]}, "weight of feature 2 is not a finite float32"),
        ({"coef": [[1.0], [2.0]], "intercept": [1.0, np.inf], "classes": [0, 1]}, "intercept of class 2 is not"),
        ({"coef": [1.0], "intercept": [0.0, 1.0]}, "coef of shape"),
        ({"coef": [[1.0], [2.0], [3.0]], "classes": [1, 2]}, "coef has 3 rows for 2 labels"),
        ({"coef": [1.0], "classes": [1, 1]}, "label 1 stands for more than one class"),
        ({"coef": [1.0], "classes": [16777216, 16777217]}, r"label 1.6777216e\+07 stands for more than one class"),
        ({"coef": [1.0], "classes": [1]}, "one class, 1: expected two or more"),
        ({"coef": [1.0], "classes": ["a", "b"]}, "classes, <U1 of shape"),
        ({"coef": [1.0], "coef_": [1.0]}, "coef_, float64 of shape .1,.: expected coef, intercept and classes"),
        ({"coef": [1.0 + 2.0j]}, "coef, complex128"),
        ({"intercept": [1.0]}, "no coef: expected it"),
        ({"hogwild": "{", "coef": [1.0]}, "hogwild is no JSON"),
        ({"hogwild": "[]", "coef": [1.0]}, "hogwild is not the header of a model"),
        ({"hogwild": '{"problem": "os"}', "coef": [1.0]}, "hogwild is not the header of a model"),
        ({"hogwild": '{"problem": "linear", "schema": 2}', "coef": [1.0]}, "of another format than 1"),
        ({"hogwild": HEADER, "coef": np.ones((1, 30), "f4")}, "not a usable hogwild model: no 'intercept'"),
        ({"hogwild": HEADER, "coef": np.ones((1, 29), "f4"), "intercept": [1.0]}, "damaged: holds 29 features"),
        ({"hogwild": HEADER, "coef": np.full((1, 30), np.inf), "intercept": [1.0]}, "weight of feature 1 is not"),
        (
            {"hogwild": HEADER.replace('"loss": "log"', '"loss": "os"'), "coef": np.ones((1, 30)), "intercept": [1.0]},
            "loss 'os': expected one of log, ",
        ),
        *[
            ({"hogwild": HEADER.replace(old, new), "coef": np.ones((1, 30), "f4"), "intercept": [1.0]}, message)
            for old, new, message in (
                ('"linear"', "[]", "hogwild is not the header of a model"),
                ('"width": 30', '"width": 1e999', "not a usable hogwild model: cannot convert float infinity"),
                ('"labels": [-1.0, 1.0]', '"labels": [NaN, 1.0]', "a label or loss_param is nan"),
                ('"labels": [-1.0, 1.0]', '"labels": []', "loss log without labels"),
                ('"loss": "log"', '"loss": "poisson"', "loss poisson with labels"),
                ('"loss_param": 0.0', '"loss_param": 1e999', "a label or loss_param is inf"),
            )
        ],
        ({"hogwild": "[" * 100_000, "coef": [1.0]}, "hogwild is no JSON"),
        ({"hogwild": HEADER, "coef": np.full((1, 30), "1"), "intercept": [1.0]}, "coef of type <U1: expected real"),
        ({"hogwild": HEADER, "coef": np.full((1, 30), 1j), "intercept": [1.0]}, "coef of type complex128: expected"),
    ],
)
def test_hostile_archives_are_one_line(members: dict[str, object], message: str, tmp_path: Path) -> None:
    path = crafted(tmp_path / "file.npz", **members)
    with pytest.raises(InputError, match=message) as caught:
        import_model(path, "npz")
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_more_than_memory_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("coef.npy", b"\0" * (1 << 24))
    assert path.stat().st_size < 1 << 16
    monkeypatch.setattr(machine, "memory", lambda: (1 << 24, 1 << 24))
    with pytest.raises(InputError, match="0.0 GiB when unpacked, and 0.0 GiB are available"):
        import_model(path, "npz")


def test_one_name_twice(tmp_path: Path) -> None:
    path = crafted(tmp_path / "file.npz", coef=[1.0])
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("coef.npy", archive.read("coef.npy"))
    with pytest.raises(InputError, match="an archive of 2 members, 1 of them different"):
        import_model(path, "npz")


def test_what_the_file_says_is_not_said_twice(tmp_path: Path) -> None:
    path = tmp_path / "file.npz"
    export_model(made("log", 2), path, "npz")
    with pytest.raises(UsageError, match="says itself what its loss and labels are"):
        import_model(path, "npz", loss="hinge")
    crafted(path, coef=[1.0], classes=[0, 1])
    with pytest.raises(UsageError, match="has classes: expected a loss of log"):
        import_model(path, "npz", loss="huber")
