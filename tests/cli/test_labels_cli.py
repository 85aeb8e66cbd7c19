"""Rows with several labels each on the command line: from scikit-learn's text to predictions and F1."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.metrics import f1_score

import hogwild as package


def test_from_text_to_f1(hogwild: Callable, refused: Callable, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    X = random.integers(0, 2, (150, 6))
    X[:, 5] = 1  # a row without labels and features would be a blank line
    held = [X[:, 0] == 1, X[:, 1] == 1, X[:, 2] + X[:, 3] == 2]
    names = (3, 7, 20)
    lines = []
    for row in range(len(X)):
        labels = ",".join(str(name) for name, has in zip(names, held) if has[row])
        lines.append(f"{labels} " + " ".join(f"{u + 1}:1" for u in np.flatnonzero(X[row])) + "\n")
    text, model = tmp_path / "text.svm", tmp_path / "model"
    text.write_text("".join(lines))
    hogwild(f"convert {text} {tmp_path / 'store'} -q").shown()
    assert "7: " in hogwild(f"info {text}").shown()
    shown = hogwild(f"train {text} --test {tmp_path / 'store'} --l2 1e-4 --epochs 5 --workers 1 --out {model}").shown()
    assert "micro F1" in shown
    trained = package.load(model)
    assert (trained.labels, trained.multilabel) == ([3.0, 7.0, 20.0], True)
    hogwild(f"predict {model} {tmp_path / 'store'} --out {tmp_path / 'lines'}").shown()
    predicted = (tmp_path / "lines").read_text().split("\n")[:-1]
    found = np.array([[str(name) in line.split(",") for name in names] for line in predicted])
    np.testing.assert_array_equal(found, trained.predict(package.open_data(text)).toarray())
    text.write_text("".join(line if line.count(",") == 0 else "" for line in lines))  # no comma is left
    facts = json.loads(hogwild(f"evaluate {model} {text} --json").shown())
    few = np.array([line.count(",") == 0 for line in lines])
    truth = np.transpose(held)[few]
    np.testing.assert_allclose(facts["f1_micro"], f1_score(truth, found[few], average="micro"))
    np.testing.assert_allclose(facts["f1_macro"], f1_score(truth, found[few], average="macro"))
    assert "f1 micro" in hogwild(f"evaluate {model} {text}").shown()
    shown = hogwild(f"train {tmp_path / 'store'} --test {text} --l2 1e-4 --epochs 5 --workers 1").shown()
    assert f"test f1 micro {facts['f1_micro']:.6g}" in shown
    strange = tmp_path / "strange.svm"
    strange.write_text("-1 1:1\n")
    assert "strange.svm:1: label -1 where rows have several" in refused(f"train {tmp_path / 'store'} --test {strange}")
    plain = tmp_path / "plain.svm"
    plain.write_text("1 1:1\n2 2:1\n" * 10)
    assert "the test rows: row 1 has label -1: the model knows 1, 2" in refused(f"train {plain} --test {strange}")
    assert "DST" in refused(f"convert {text} {text} --overwrite")
    assert "large for 7" in hogwild(f"inspect {model}").shown()
    assert "no label before" in refused(f"train {text}")
