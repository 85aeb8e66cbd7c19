"""LIBLINEAR's models, against a reader of its format in ten lines and against LIBLINEAR itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hogwild.interchange import export_model, import_model
from tests.interchange.bad_files import HEADER
from tests.interchange.models import KINDS, WIDTH, made, rows

KINDS = [kind for kind in KINDS if kind[0] != "poisson"]


def predict(path: Path, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``(predictions, margins)`` as LIBLINEAR's README defines them."""
    head, _, text = path.read_text().partition("w\n")
    facts = {line.split()[0]: line.split()[1:] for line in head.splitlines()}
    weights, bias = np.array([line.split() for line in text.splitlines()], float), float(facts["bias"][0])
    margins = X @ weights[:WIDTH] + (bias * weights[WIDTH] if bias >= 0 else 0.0)
    if "label" not in facts:
        return margins[:, 0], margins
    labels = np.array(facts["label"], float)
    if margins.shape[1] == 1:
        return np.where(margins[:, 0] > 0, labels[0], labels[1]), margins
    return labels[margins.argmax(axis=1)], margins


@pytest.mark.parametrize(("loss", "classes"), KINDS)
def test_written_as_the_format_is_defined(loss: str, classes: int, tmp_path: Path) -> None:
    X = rows()
    for bias in (True, False):
        model = made(loss, classes, bias=bias)
        notes = export_model(model, tmp_path / "file", "liblinear")
        predicted, margins = predict(tmp_path / "file", X.toarray().astype(float))
        expected = model.decision_function(X).reshape(len(margins), -1)
        np.testing.assert_allclose(margins, expected, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(predicted, model.predict(X), rtol=1e-6, atol=1e-6)
        lost = loss == "modified-huber" or (loss, classes) in (("softmax", 3), ("softmax", 5))
        assert bool(notes) == lost


@pytest.mark.parametrize(("loss", "classes"), KINDS)
def test_liblinear_predicts_the_same(loss: str, classes: int, tmp_path: Path) -> None:
    tool = pytest.importorskip("liblinear.liblinearutil", reason="liblinear-official is not installed")
    X, model = rows(), made(loss, classes)
    export_model(model, tmp_path / "file", "liblinear")
    theirs = tool.load_model(str(tmp_path / "file"))
    predicted, _, margins = tool.predict([], X.astype(float), theirs, "-q")
    np.testing.assert_allclose(predicted, model.predict(X), rtol=1e-6, atol=1e-6)
    expected = model.decision_function(X).reshape(X.shape[0], -1)
    np.testing.assert_allclose(np.array(margins)[:, : expected.shape[1]], expected, rtol=1e-6, atol=1e-6)
    if loss == "log":
        order = np.argsort(theirs.get_labels())
        found = np.array(tool.predict([], X.astype(float), theirs, "-q -b 1")[2])[:, order]
        np.testing.assert_allclose(found, model.predict_proba(X), rtol=0, atol=1e-6)


@pytest.mark.parametrize("solver", [0, 1, 2, 3, 4, 5, 6, 7, 11, 12, 13])
def test_read_from_liblinear(solver: int, tmp_path: Path) -> None:
    tool = pytest.importorskip("liblinear.liblinearutil", reason="liblinear-official is not installed")
    X, true, path = rows(), made("hinge", 5), str(tmp_path / "file")
    X = X[1:]  # of an empty row without bias all margins are equal, and then the order of the labels decides
    margins = true.decision_function(X)
    targets = [margins[:, 0]] if solver > 10 else [2 - margins.argmax(axis=1), 1 - 2 * (margins[:, 0] > 0)]
    for y in targets:
        for bias in (-1, 1, 2.5):
            theirs = tool.train(y, X.astype(float), f"-s {solver} -B {bias} -q")
            tool.save_model(path, theirs)
            model = import_model(path, "liblinear")
            proba = solver in (0, 6, 7)
            predicted, _, values = tool.predict([], X.astype(float), theirs, "-q" + " -b 1" * proba)
            np.testing.assert_allclose(model.predict(X), predicted, rtol=1e-6, atol=1e-6)
            if proba:
                order = np.argsort(theirs.get_labels())
                np.testing.assert_allclose(model.predict_proba(X), np.array(values)[:, order], rtol=0, atol=1e-6)


def test_line_ends_and_spaces_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes((HEADER + "1 \n2 \n3 \n").replace("\n", "\r\n").encode())
    model = import_model(path, "liblinear")
    assert model.coef_.tolist() == [[1.0, 2.0]]
    assert (model.intercept_.tolist(), model.labels, model.loss) == ([3.0], [-1.0, 1.0], "log")
    path.write_text((HEADER.replace("1 -1", "-1 1") + "1\n2\n3").replace("bias 1", "bias 0.5"))
    model = import_model(path, "liblinear")
    assert model.coef_.tolist() == [[-1.0, -2.0]]  # the first label is the positive one
    assert model.intercept_.tolist() == [-1.5]
