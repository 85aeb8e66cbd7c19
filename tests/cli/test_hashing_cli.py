"""`--hash-bits` from the text to the predictions: recorded in store and model, and refused where it does not fit."""

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
from hogwild.data.rows.store import read_meta, save_store

QUICK = ("--host", "threads", "--workers", 1, "--epochs", 3, "--step", 1)
LINE = "65,536 = 2^16 buckets (16 of them occur)"


def train(hogwild: Callable, data: object, out: Path, *options: object) -> str:
    return str(hogwild("train", data, "--out", out, *QUICK, *options).shown())


@pytest.fixture
def store(hogwild: Callable, svm: Path, tmp_path: Path) -> Path:
    hogwild(f"convert {svm} {tmp_path / 'store'} --hash-bits 16 -q").shown()
    return tmp_path / "store"


def test_convert_and_info(hogwild: Callable, svm: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shown = hogwild(f"convert {svm} {store} --hash-bits 16").shown()
    assert shown == f"{store}: 200 rows x 65,536 features, 400 nonzeros\n"
    assert read_meta(store)["hash_bits"] == 16
    assert LINE in " ".join(hogwild(f"info {store}").out.split())
    assert LINE in " ".join(hogwild(f"info {svm} --hash-bits 16").out.split())
    assert hogwild(f"info {store} --json").facts()["hash_bits"] == 16
    assert hogwild(f"info {svm} --json").facts()["hash_bits"] is None


def test_text_store_and_library_train_the_same_model(
    hogwild: Callable, svm: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = train(hogwild, svm, tmp_path / "a", "--hash-bits", 16)
    assert "hash_bits=16" in said
    assert "hash_bits=16" in train(hogwild, store, tmp_path / "b")
    assert "hash_bits" not in train(hogwild, svm, tmp_path / "plain")
    assert f"{'hash bits':<21}16\n" in hogwild(f"inspect {tmp_path / 'a'}").out
    assert "hash" not in hogwild(f"info {tmp_path / 'plain'}").out
    a, b = (package.load(tmp_path / name) for name in "ab")
    assert a.coef_.tobytes() == b.coef_.tobytes()

    raw = open_data(svm)
    expected = a.decision_function(raw).astype(np.float32)
    for data in (svm, store):
        result = hogwild(f"predict {tmp_path / 'a'} {data} --decision")
        assert result.err == ""
        np.testing.assert_array_equal(np.loadtxt(io.StringIO(result.out), dtype=np.float32), expected)
        assert hogwild(f"evaluate {tmp_path / 'b'} {data} --json").facts()["accuracy"] == 1.0
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(svm.read_bytes())))
    streamed = hogwild(f"predict {tmp_path / 'a'} - --decision").out
    np.testing.assert_array_equal(np.loadtxt(io.StringIO(streamed), dtype=np.float32), expected)


def test_refusals(hogwild: Callable, refused: Callable, svm: Path, store: Path, tmp_path: Path) -> None:
    train(hogwild, svm, tmp_path / "plain")
    train(hogwild, svm, tmp_path / "hashed", "--hash-bits", 12)
    save_store(open_data(svm), tmp_path / "raw")
    raw = tmp_path / "raw"
    hashed, not_hashed = "the features are hashed to 2^16", "the features are not hashed"
    for command, said in (
        (("predict", tmp_path / "hashed", store), f"{store}: {hashed}, expected them hashed to 2^12: convert the"),
        (("predict", tmp_path / "hashed", raw), f"{raw}: {not_hashed}, expected them hashed to 2^12: hogwild"),
        (("predict", tmp_path / "plain", store), f"{store}: {hashed}, those of the model not hashed: give the data"),
        (("train", svm, "--hash-bits", 31), "'--hash-bits'"),
    ):
        assert said in refused(*command)
