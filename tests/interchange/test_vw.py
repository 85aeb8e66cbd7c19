"""Vowpal Wabbit: examples that make it the model, and its readable models; against a short learner and VW itself."""

from __future__ import annotations

import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from hogwild.errors import HogwildWarning, InputError, UsageError
from hogwild.interchange import export_model, import_model
from hogwild.interchange.vw import CONSTANT
from hogwild.problems.linear.model import LinearModel
from tests.interchange.bad_files import vw_text
from tests.interchange.models import KINDS, WIDTH, made, rows, size


def learnt(path: Path, classes: int, bits: int = 18) -> np.ndarray:
    """Weights (classes, 2^bits) after a step ``w += (y - w.x) x`` on each example, the constant in all of them."""
    weights = np.zeros((classes, 1 << bits), np.float32)
    for line in path.read_text().splitlines():
        label, _, features = line.partition("|")
        y = np.array([word.rpartition(":")[2] for word in label.split()], np.float32)
        at, x = [CONSTANT % (1 << bits)], [1.0]
        for word in features.split():
            name, _, value = word.partition(":")
            at.append(int(name) % (1 << bits))
            x.append(float(value))
        error = y - weights[:, at] @ np.array(x, np.float32)
        for place, value in zip(at, x):
            weights[:, place] += error * np.float32(value)
    return weights if classes == 1 else -weights


@pytest.mark.parametrize(("loss", "classes"), KINDS)
def test_the_examples_make_the_model_exactly(loss: str, classes: int, tmp_path: Path) -> None:
    path, model = tmp_path / "file", made(loss, classes)
    notes = export_model(model, path, "vw")
    weights = learnt(path, len(model.coef_))
    np.testing.assert_array_equal(weights[:, 1 : WIDTH + 1], model.coef_)
    np.testing.assert_array_equal(weights[:, CONSTANT % (1 << 18)], model.intercept_)
    assert np.count_nonzero(weights) == np.count_nonzero(model.coef_) + len(model.intercept_)
    assert ("--csoaa" in notes[0]) == (len(model.coef_) > 1)
    export_model(model, path, "vw", zero_based=True)
    np.testing.assert_array_equal(learnt(path, len(model.coef_))[:, :WIDTH], model.coef_)


def test_the_constant_keeps_its_place_to_itself(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def bits(width: int, intercept: float, rows: int = 1) -> str:
        coef = scipy.sparse.csr_matrix(([1.0], ([0], [width - 1])), (rows, width)).toarray()
        labels = list(range(rows)) if rows > 1 else []
        command = export_model(
            LinearModel(coef, np.full(rows, intercept), "hinge" if labels else "huber", 1.0, labels), path, "vw"
        )[0]
        return command.partition("-b ")[2].partition(" --sgd")[0] + " --noconstant" * ("--noconstant" in command)

    place = CONSTANT % (1 << 18)
    assert bits(place - 1, 0.5) == "18"
    assert bits(place, 0.5) == "21"  # its last feature would be the constant, in 2^19 and 2^20 as well
    assert bits(place, 0.0) == "18 --noconstant"
    assert bits((1 << 18) - 1, 0.0) == "18 --noconstant"
    assert bits(1 << 18, 0.0) == "19 --noconstant"
    assert bits((1 << 16) - 1, 0.0, rows=3) == "18 --noconstant"  # four places a feature
    assert bits(1 << 16, 0.0, rows=3) == "19 --noconstant"
    with pytest.raises(InputError, match="an intercept, which VW keeps at feature 11,650,396"):
        bits(CONSTANT, 0.5)


# -- against VW -------------------------------------------------------------------------------------------------------


def vw(*words: object) -> None:
    pytest.importorskip("vowpalwabbit", reason="vowpalwabbit is not installed")
    command = [sys.executable, "-m", "vowpalwabbit", "--quiet", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def write_rows(path: Path, X: scipy.sparse.csr_matrix, labels: list[object] | None = None, base: int = 1) -> None:
    lines = []
    for row in range(X.shape[0]):
        entries = zip(X[row].indices.tolist(), X[row].data.tolist())
        lines.append(f"{labels[row] if labels else ''} | " + " ".join(f"{j + base}:{x:.9g}" for j, x in entries))
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("loss", "classes"), [("log", 2), ("hinge", 2), ("huber", 1), ("poisson", 1), ("log", 3), ("softmax", 5)]
)
def test_vw_predicts_the_same_and_its_readable_model_comes_back(loss: str, classes: int, tmp_path: Path) -> None:
    model, X = made(loss, classes), rows()
    path, readable, out = tmp_path / "a file", tmp_path / "readable", tmp_path / "out"
    write_rows(tmp_path / "rows", X)
    command = shlex.split(export_model(model, path, "vw")[0].removeprefix("make VW's model of it: "))
    vw(*command[1:])
    vw("-t", "-i", f"{path}.model", "-d", tmp_path / "rows", "-p", out, "--readable_model", readable)
    predicted, scale = np.loadtxt(out), size(model, X)
    if classes > 2:
        assert (np.array(model.labels)[predicted.astype(int) - 1] == model.predict(X)).all()
    elif loss == "log":
        np.testing.assert_allclose(predicted, model.predict_proba(X)[:, 1], rtol=0, atol=2e-6)
    elif loss == "poisson":
        assert (np.abs(predicted / model.predict(X) - 1) < 2e-6 * scale).all()
    else:
        assert (np.abs(predicted - model.decision_function(X)) < 1e-6 * scale).all()
    back = import_model(readable, "vw", labels=model.labels or None, loss=None if loss == "poisson" else loss)
    assert (back.loss, back.labels, back.width) == (loss, model.labels, WIDTH)
    error = np.abs(back.decision_function(X) - model.decision_function(X)).reshape(len(scale), -1).max(axis=1)
    assert (error < 5e-6 * scale).all()  # six digits
    np.testing.assert_array_equal(back.predict(X) if classes > 1 else [], model.predict(X) if classes > 1 else [])


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ("--loss_function logistic --link logistic", "sign"),
        ("--oaa 3 --loss_function logistic", "class"),
        ("--csoaa 3", "cost"),
        ("--noconstant --min_prediction -1e30 --max_prediction 1e30", "real"),
        ("--l2 0.01 --l1 0.003 --min_prediction -1e30 --max_prediction 1e30", "real"),
        ("--loss_function poisson --link poisson --min_prediction -1e30 --max_prediction 1e30", "count"),
    ],
)
def test_readable_models_of_vw(options: str, kind: str, tmp_path: Path) -> None:
    X, margins = rows(), made("hinge", 3).decision_function(rows())
    best = margins.argmax(axis=1) + 1
    labels = {
        "sign": np.where(margins[:, 0] > 0, 1, -1).tolist(),
        "class": best.tolist(),
        "cost": [" ".join(f"{k}:{int(k != wanted)}" for k in (1, 2, 3)) for wanted in best],
        "real": margins[:, 0].tolist(),
        "count": np.abs(margins[:, 0]).tolist(),
    }[kind]
    write_rows(tmp_path / "train", X, labels)
    write_rows(tmp_path / "rows", X)
    for text in ("--readable_model", "--invert_hash")[: 1 + (kind in ("sign", "class"))]:
        vw("-d", tmp_path / "train", "-f", tmp_path / "model", text, tmp_path / "text", *options.split())
        vw("-t", "-i", tmp_path / "model", "-d", tmp_path / "rows", "-p", tmp_path / "out")
        predicted, model = np.loadtxt(tmp_path / "out"), import_model(tmp_path / "text", "vw")
        if kind == "sign":
            assert model.labels == [-1.0, 1.0]
            np.testing.assert_allclose(model.predict_proba(X)[:, 1], predicted, rtol=0, atol=1e-5)
        elif kind in ("class", "cost"):
            np.testing.assert_array_equal(model.predict(X), predicted)
        else:
            known = X[:, : model.width]  # VW leaves out weights that l1 made zero
            error = np.abs(model.predict(known) - predicted)
            assert (error < 1e-5 * size(model, known) * (1 + np.abs(predicted))).all()


# -- files ------------------------------------------------------------------------------------------------------------


def test_a_readable_model_in_all_its_parts(tmp_path: Path) -> None:
    path = tmp_path / "file"
    state = "initial_t 0\nnorm normalizer 8\nt 3\nsd::oec.weighted_labeled_examples 2\nl1_state 0.25\nl2_state 0.5\n"
    path.write_text(vw_text("a^1:1:1.25 0.2 1\n4:-2.25 0.1 2\nConstant:116060:3.25 1 1\n", state=state))
    with pytest.warns(HogwildWarning, match="VW keeps predictions within -2 and 3, the labels it saw"):
        model = import_model(path, "vw")
    assert model.coef_.tolist() == [[0.5, 0.0, 0.0, -1.0]]
    assert (model.intercept_.tolist(), model.loss, model.labels) == ([1.5], "squared-error", [])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of labels, limits do not matter
        model = import_model(path, "vw", loss="hinge", zero_based=True)
    assert model.coef_.tolist() == [[0.0, 0.5, 0.0, 0.0, -1.0]]
    assert model.labels == [-1.0, 1.0]
    assert import_model(path, "vw", loss="log", labels=[1, 0]).labels == [0.0, 1.0]
    path.write_text(vw_text("1:1\n116059:2\n116060:0.5\n116062:3\n", "--link logistic"))
    model = import_model(path, "vw")
    assert model.coef_[0, 116059] == 0.5  # a feature at the constant's place shares its weight, as in VW
    assert (model.intercept_.tolist(), model.loss) == ([0.5], "log")
    path.write_text(vw_text("116060:0.5\n", "--noconstant --link logistic"))
    assert import_model(path, "vw").intercept_.tolist() == [0.0]
    path.write_text(vw_text("4:1\n5:2\n6:3\n8:-1\n", "--oaa 3"))
    assert import_model(path, "vw").coef_.tolist() == [[1.0, -1.0], [2.0, 0.0], [3.0, 0.0]]
    path.write_text(vw_text("4:1\n5:2\n6:3\n8:-1\n", "--csoaa 3"))
    assert import_model(path, "vw", labels=[7, 6, 5]).coef_.tolist() == [[-3.0, 0.0], [-2.0, 0.0], [-1.0, 1.0]]


def test_wide_files_ask_for_memory_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hogwild import machine

    path = tmp_path / "file"
    path.write_text(vw_text("200000000:1\n").replace("bits:18", "bits:30"))
    monkeypatch.setattr(machine, "memory", lambda: (1 << 32, 1 << 32))
    with pytest.raises(
        InputError, match="1 x 200,000,000 weights need 4.5 GiB of memory or more, and 4.0 GiB are available"
    ):
        import_model(path, "vw")


def test_loss_and_labels_go_together(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(vw_text("1:1\n"))
    for options, message in (
        ({"loss": "huber", "labels": [0, 1]}, "labels go with loss log"),
        ({"loss": "log", "labels": [0, 1, 2]}, "3 labels for a model of 2 classes"),
    ):
        with pytest.raises(UsageError, match=message):
            import_model(path, "vw", **options)  # type: ignore[arg-type]
