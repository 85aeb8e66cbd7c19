"""`--hash-bits` from the text to the predictions: said, kept in store and model, refused where it does not fit."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import hogwild as package
from hogwild.data.rows.source import open_data
from hogwild.data.rows.store import save_store

LINE = "65,536 = 2^16 buckets (16 of them occur)"


def test_from_text_to_predictions(
    hogwild: Callable, refused: Callable, svm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, model = tmp_path / "store", tmp_path / "model"
    shown = hogwild(f"convert {svm} {store} --hash-bits 16").shown()
    assert shown == f"{store}: 200 rows x 65,536 features, 400 nonzeros\n"
    assert LINE in " ".join(hogwild(f"info {store}").out.split())
    assert hogwild(f"info {svm} --hash-bits 16 --json").facts()["hash_bits"] == 16
    quick = "--host threads --workers 1 --epochs 3 --step 1"
    assert "hash_bits=16" in hogwild(f"train {svm} --hash-bits 16 --out {model} {quick}").shown()
    assert f"{'hash bits':<21}16\n" in hogwild(f"inspect {model}").out
    raw = open_data(svm)
    expected = package.load(model).decision_function(raw).astype(np.float32)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(svm.read_bytes())))
    for data in (svm, store, "-"):
        result = hogwild(f"predict {model} {data} --decision").shown()
        np.testing.assert_array_equal(np.loadtxt(io.StringIO(result), dtype=np.float32), expected)
    plain = save_store(raw, tmp_path / "raw")
    assert f"{plain}: the features are not hashed, expected" in refused(f"predict {model} {plain}")
