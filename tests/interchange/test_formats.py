"""What holds for every format: predictions survive the way out and back, and what cannot be held is refused."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

from hogwild.errors import HogwildError, InputError, OutputError, UsageError
from hogwild.interchange import FORMATS, export_model, import_model
from hogwild.problems.completion.model import CompletionModel
from hogwild.problems.linear.model import LinearModel
from tests.interchange.bad_files import BAD_FILES
from tests.interchange.models import KINDS, LABELS, made, rows

PACKAGES = {"sklearn": ["skops"], "onnx": ["skl2onnx", "onnx"]}
WRITTEN_AND_READ = ("liblinear", "npz", "sklearn", "onnx")  # vw reads another text than it is given: test_vw.py
# what a format cannot hold: (format, loss or normalize)
LACKING = {("liblinear", "poisson"), ("liblinear", "l2"), ("liblinear", "max"), ("onnx", "max")}


def need(name: str) -> None:
    for package in PACKAGES.get(name, []):
        pytest.importorskip(package, reason=f"{package} is not installed")


@pytest.mark.parametrize("name", WRITTEN_AND_READ)
@pytest.mark.parametrize("normalize", ["none", "l2", "max"])
def test_predictions_survive_the_way_out_and_back(name: str, normalize: str, tmp_path: Path) -> None:
    need(name)
    X, path = rows(), tmp_path / "file"
    regression = [("squared-error", 2), ("huber", 3)]  # losses of classifiers too, as in scikit-learn
    for loss, classes in KINDS + regression if normalize == "none" else [("log", 2), ("hinge", 3), ("huber", 1)]:
        for bias in (True, False):
            model = made(loss, classes, normalize, bias)
            if {(name, loss), (name, normalize)} & LACKING:
                with pytest.raises(InputError, match=r"^the model: .*: take .*npz"):
                    export_model(model, path, name)
                assert not path.exists()
                continue
            export_model(model, path, name)
            back = import_model(path, name)
            path.unlink()
            assert (back.labels, back.normalize) == (model.labels, normalize)
            if name == "npz" or (name != "liblinear" and (loss, classes) != ("softmax", 2)):
                assert back.loss == loss
            tolerance = 1e-6 if (name, loss) == ("liblinear", "softmax") else 1e-12
            np.testing.assert_allclose(
                back.decision_function(X), model.decision_function(X), rtol=tolerance, atol=tolerance
            )
            np.testing.assert_allclose(back.predict(X), model.predict(X), rtol=1e-12)
            if loss == "log":
                np.testing.assert_allclose(back.predict_proba(X), model.predict_proba(X), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "npz"])
def test_hashed_features_are_refused_or_left_out(name: str, tmp_path: Path) -> None:
    need(name)
    model = LinearModel(np.ones(8), [0.5], "log", 0.0, [0, 1], "l2", hash_bits=3)
    with pytest.raises(InputError, match=r"^m: features are hashed to 2\^3, .* add --bare$"):
        export_model(model, tmp_path / "file", name, name="m")
    export_model(model, tmp_path / "file", name, bare=True)
    if name != "vw":
        back = import_model(tmp_path / "file", name)
        assert (back.hash_bits, back.normalize, back.width) == (None, "none", 8)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "npz"])
def test_what_no_other_program_reads_is_refused(name: str, tmp_path: Path) -> None:
    need(name)
    path = tmp_path / "file"
    with pytest.raises(InputError, match="^the model: weights: not all are finite"):
        export_model(LinearModel([1.0, np.nan], [0.0], "log", labels=[0, 1]), path, name)
    factors = CompletionModel(np.ones((2, 1)), np.ones((3, 1)), np.zeros(2), np.zeros(3))
    with pytest.raises(UsageError, match="^the model: is no linear model, and only --to npz holds another$"):
        export_model(factors, path, name)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("name", ["liblinear", "onnx"])
def test_labels_that_are_no_whole_numbers(name: str, tmp_path: Path) -> None:
    need(name)
    for label, shown in ((0.5, "0.5"), (1e30, "1e+30"), (-(2.0**70), "-1.1805")):
        with pytest.raises(InputError, match=rf"^the model: label {re.escape(shown)}.* has whole numbers of \d\d bits"):
            export_model(LinearModel(np.ones(3), [0.0], "log", labels=[label, 1]), tmp_path / "file", name)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model, path: export_model(model, path, "lib-linear"), "--to lib-linear: .*: did you mean liblinear?"),
        (lambda model, path: import_model(path, "onxn"), r"--from onxn: .*: did you mean onnx\?"),
        (lambda model, path: export_model(model, path, "qqqq"), "--to qqqq: expected one of sklearn, .*, onnx$"),
        (lambda model, path: export_model(model, path, "npz", bare=True), "--bare means nothing to --to npz"),
        (lambda model, path: export_model(model, path, "onnx", zero_based=True), "--zero-based means nothing"),
        (lambda model, path: import_model(path, "liblinear", loss="log"), "--loss means nothing to --from liblinear"),
        (lambda model, path: import_model(path, "vw", loss="logistic"), "loss 'logistic': .*: did you mean log?"),
    ],
)
def test_wrong_options_name_the_nearest(call: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        call(made("log", 2), tmp_path / "file")  # type: ignore[operator]
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("name", ["liblinear", "npz", "vw"])
def test_a_file_is_complete_or_left_as_it_was(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(OutputError):
        export_model(made("log", 2), tmp_path / "nowhere" / "file", name)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left"):
        export_model(made("log", 2), path, name)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("name", list(FORMATS))
@pytest.mark.parametrize(
    "content", [b"", b"\x00\xff" * 50, b"\x80\x04\x95", b"solver_type L2R_LR\n", b"PK\x03\x04rubbish", b"Version 9\n"]
)
def test_files_of_something_else_are_one_line(name: str, content: bytes, tmp_path: Path) -> None:
    need(name)
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(HogwildError) as caught:
        import_model(path, name)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    assert caught.value.exit_status == 1


@pytest.mark.parametrize(("name", "content", "message"), BAD_FILES)
def test_bad_files_are_one_line(name: str, content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        import_model(path, name)
    assert str(caught.value).startswith(f"{path}{message}")


@pytest.mark.parametrize("name", list(FORMATS))
def test_a_missing_file_is_one_line(name: str, tmp_path: Path) -> None:
    need(name)
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(InputError, match="cannot be read|not an ONNX"):
            import_model(path, name)


@pytest.mark.parametrize("name", ["liblinear", "npz", "sklearn", "onnx"])
def test_any_prefix_and_any_flipped_byte_is_an_answer_or_one_line(name: str, tmp_path: Path) -> None:
    need(name)
    path = tmp_path / "file"
    export_model(made("log", 3), path, name)
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    damaged = [whole[:cut] for cut in rng.integers(0, len(whole), 40)]
    for at in rng.integers(0, len(whole), 60):
        damaged.append(whole[:at] + bytes([whole[at] ^ int(rng.integers(1, 256))]) + whole[at + 1 :])
    refused = 0
    for content in damaged:
        path.write_bytes(content)
        try:
            assert isinstance(import_model(path, name), LinearModel)
        except InputError as error:
            refused += 1
            assert str(error).startswith(str(path)), error
            assert "\n" not in str(error)
    assert refused > 20


def test_estimators_are_taken_for_their_models(tmp_path: Path) -> None:
    from hogwild.estimators import HogwildClassifier, HogwildFactorizer

    X, path = rows(), tmp_path / "file"
    estimator = HogwildClassifier(random_state=0).fit(X, made("hinge", 3).predict(X))
    export_model(estimator, path, "npz")
    np.testing.assert_array_equal(import_model(path, "npz").predict(X), estimator.predict(X))
    with pytest.raises(UsageError, match="the model: is a HogwildFactorizer: expected a model of hogwild"):
        export_model(HogwildFactorizer(), path, "npz")


def test_labels_come_back_in_ascending_order(tmp_path: Path) -> None:
    path = tmp_path / "file.npz"
    coef, X = np.array([[1.0, 0], [0, 1], [-1, -1]]), np.array([[2.0, 1], [1, 2], [-2, -2]])
    np.savez(path, coef_=coef, intercept_=np.zeros(3), classes_=[7, 3, 5])
    model = import_model(path, "npz")
    assert model.labels == [3.0, 5.0, 7.0]
    assert model.predict(X).tolist() == [7.0, 3.0, 5.0]
    np.savez(path, coef_=[1.0, 0], intercept_=[0.5], classes_=[4, 2])  # positive: the second of the file's classes
    model = import_model(path, "npz", loss="log")
    assert model.labels == [2.0, 4.0]
    assert model.predict(X).tolist() == [2.0, 2.0, 4.0]
    assert LABELS[2] == import_model(_binary(tmp_path), "npz", loss="hinge").labels


def _binary(folder: Path) -> Path:
    np.savez(folder / "binary.npz", coef=[1.0], intercept=[0.0])
    return folder / "binary.npz"
