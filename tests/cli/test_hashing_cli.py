"""`--hash-bits` from the text to the predictions: said, kept in store and model, refused where it does not fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

import hogwild as package
from hogwild.data.rows.source import open_data
from hogwild.data.rows.store import save_store

LINE = "65,536 = 2^16 buckets (16 of them occur)"


def test_from_text_to_predictions(hogwild: Callable, refused: Callable, svm: Path, tmp_path: Path) -> None:
    store, model = tmp_path / "store", tmp_path / "model"
    shown = hogwild(f"convert {svm} {store} --hash-bits 16").shown()
    assert shown == f"{store}: 200 rows x 65,536 features, 400 nonzeros\n"
    assert LINE in " ".join(hogwild(f"info {store}").out.split())
    assert hogwild(f"info {svm} --hash-bits 16 --json").facts()["hash_bits"] == 16
    quick = "--host threads --workers 1 --epochs 3 --step 1"
    assert "hash_bits=16" in hogwild(f"train {svm} --hash-bits 16 --out {model} {quick}").shown()
    assert f"{'hash bits':<21}16\n" in hogwild(f"inspect {model}").out
    of_text, of_store = (hogwild(f"predict {model} {data} --decision").shown() for data in (svm, store))
    assert of_text == of_store
    expected = package.load(model).decision_function(open_data(svm))
    np.testing.assert_array_equal(np.array(of_text.split(), np.float32), np.float32(expected))
    plain = save_store(open_data(svm), tmp_path / "raw")
    assert f"{plain}: the features are not hashed, expected" in refused(f"predict {model} {plain}")
