"""`export` and `import`: a model through another program's file predicts the same, and mistakes are one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hogwild.data.rows.source import open_data
from hogwild.problems.linear.model import LinearModel


@pytest.fixture
def model(svm: Path, tmp_path: Path) -> Path:
    width = open_data(svm).width
    LinearModel(np.linspace(-1, 1, width), [0.1], "log", labels=[1, 2]).save(tmp_path / "model")
    return tmp_path / "model"


def test_a_model_goes_out_and_comes_back(hogwild: Callable, svm: Path, model: Path, tmp_path: Path) -> None:
    file, back = tmp_path / "file", tmp_path / "back"
    result = hogwild(f"export {model} --to npz -o {file}")
    assert (result.status, result.out, result.err) == (0, f"{file}: {model} for npz\n", "")
    shown = hogwild(f"import {file} --from npz -o {back}").shown()
    assert shown.startswith(f"{back}: <LinearModel: log loss, 2 labels, {open_data(svm).width} features")
    assert hogwild(f"predict {back} {svm} --proba").out == hogwild(f"predict {model} {svm} --proba").out
    assert hogwild(f"export {model} --to npz -o {file} -q").out == ""


def test_plain_arrays_take_their_labels_and_loss_from_options(hogwild: Callable, tmp_path: Path) -> None:
    np.savez(tmp_path / "plain.npz", coef_=[1.0, -1.0])
    words = f"import {tmp_path / 'plain.npz'} --from npz --loss log --labels 3,4"
    hogwild(f"{words} -o {tmp_path / 'back'}").shown()
    (tmp_path / "rows").write_text("0 1:2\n")
    assert hogwild(f"predict {tmp_path / 'back'} {tmp_path / 'rows'}").out == "4\n"
