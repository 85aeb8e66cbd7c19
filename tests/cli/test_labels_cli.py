"""Rows with several labels each on the command line: from scikit-learn's text to predictions and F1."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

import hogwild as package
from hogwild.metrics import evaluate


def test_from_text_to_f1(hogwild: Callable, refused: Callable, tmp_path: Path) -> None:
    X = np.random.default_rng(0).integers(0, 2, (150, 6))
    X[:, 5] = 1  # a row without labels and features would be a blank line
    Y = np.transpose([X[:, 0], X[:, 1], X[:, 2] & X[:, 3]])
    names = np.array(["3", "7", "20"])
    lines = [",".join(names[y == 1]) + "".join(f" {u + 1}:1" for u in np.flatnonzero(x)) + "\n" for x, y in zip(X, Y)]
    text, single, strange, store, model = (
        tmp_path / name for name in ("text.svm", "single", "strange", "store", "model")
    )
    text.write_text("".join(lines))
    single.write_text("".join(line for line in lines if "," not in line))
    strange.write_text("-1 1:1\n")
    hogwild(f"convert {text} {store} -q").shown()
    assert "7: " in hogwild(f"info {text}").shown()
    quick = "--l2 1e-4 --epochs 5 --workers 1"
    assert "micro F1" in hogwild(f"train {text} --test {store} {quick} --out {model}").shown()
    trained = package.load(model)
    assert (trained.labels, trained.multilabel) == ([3.0, 7.0, 20.0], True)
    predicted = hogwild(f"predict {model} {store}").shown().split("\n")[:-1]
    found = [[name in line.split(",") for name in names] for line in predicted]
    np.testing.assert_array_equal(found, trained.predict(package.open_data(text)).toarray())
    facts = hogwild(f"evaluate {model} {single} --json").facts()
    expected = evaluate(trained, package.open_data(single, labels="several"))
    assert (facts["f1_micro"], facts["f1_macro"]) == (expected["f1_micro"], expected["f1_macro"])
    assert "f1 micro" in hogwild(f"evaluate {model} {single}").shown()
    shown = hogwild(f"train {store} --test {single} {quick}").shown()
    assert f"test f1 micro {facts['f1_micro']:.6g}" in shown
    assert "large for 7" in hogwild(f"inspect {model}").shown()
    assert "strange:1: label -1 where rows have several" in refused(f"train {store} --test {strange}")
    assert "DST" in refused(f"convert {text} {text} --overwrite")
    assert "no label before" in refused(f"train {single}")
    text.write_text("1 1:1\n2 2:1\n" * 10)
    assert "the test rows: row 1 has label -1: the model knows 1, 2" in refused(f"train {text} --test {strange}")
