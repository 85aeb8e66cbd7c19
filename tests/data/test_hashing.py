"""Hashed features: any index becomes a bucket, the same from text, matrix, store and model, and collisions are told."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import hogwild
from hogwild.data.rows.container import Rows
from hogwild.data.rows.source import convert, open_data
from hogwild.data.rows.store import open_store, save_store
from hogwild.data.text import hashing
from hogwild.data.text.svmlight import Svmlight, write_text
from hogwild.errors import HogwildWarning, InputError, UsageError
from hogwild.metrics import evaluate
from hogwild.problems.linear.model import LinearModel
from tests.reference import bucket
from tests.runs import QUIET, entries, equal, toy

BITS = 20
TEXT = "1 1:0.5 3:2\n-1 5:-1 2:1 5:3\n1\n-1 8:1\n"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "x.svm"
    path.write_text(TEXT)
    return path


def parsed(text: str, bits: int = BITS, **options) -> Rows:
    return open_data(io.BytesIO(text.encode()), hash_bits=bits, **options)


# -- the hash ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [0, 31, 2.5, "20"])
def test_bits_out_of_range(bits, text):
    with pytest.raises(UsageError, match=r"hash_bits=.*: expected 1 to 30 \(indices are int32"):
        open_data(text, hash_bits=bits)


# -- rows -------------------------------------------------------------------------------------------------------------


def test_huge_indices_are_legal_only_if_hashed():
    for index in (2**31, 2**62, 2**63, 2**64 - 1):
        assert entries(parsed(f"1 {index}:1\n")) == [{bucket(index - 1, BITS): 1.0}]
        assert entries(parsed(f"1 {index}:1\n", zero_based=True)) == [{bucket(index, BITS): 1.0}]
        with pytest.raises(InputError, match=r"index .* is beyond the largest, 2147483647 \(--hash-bits takes any"):
            open_data(io.BytesIO(f"1 {index}:1\n".encode()))
    for index in (2**64, 10**20, 10**39):
        with pytest.raises(InputError, match=rf":2: index '{index}' is beyond the largest, 18446744073709551615$"):
            parsed(f"1 1:1\n1 {index}:1\n")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("1 00000000000000000000:1", "index 0, but indices count from 1"),
        ("1 3:3e38 3:3e38", "the sum of one bucket's values is beyond float32"),
    ],
)
def test_what_is_said_of_wrong_text(line, said):
    with pytest.raises(InputError, match=f"stream:3: {said}|<stdin>:3: {said}"):
        parsed(f"1 1:1\n# c\n{line}\n1 x\n")


def test_sums_of_collisions():
    first = next(i for i in range(1, 100) if bucket(i, 4) == bucket(0, 4))
    rows = parsed(f"1 0:0.25 {first}:2\n1 1:1\n" + "1 " + " ".join(f"{i}:1" for i in range(30)), 4, zero_based=True)
    assert entries(rows)[0] == {bucket(0, 4): 2.25}
    assert sum(entries(rows)[2].values()) == 30
    summary = Svmlight(zero_based=True, hash_bits=BITS)
    list(summary.read(io.BytesIO(b"1 0:1 0:2\n1 1:1")))
    assert (summary.repairs["duplicate_rows"], summary.nnz, summary.width) == (0, 2, 2**BITS)


def test_rows_in_memory(text, monkeypatch):
    raw = Rows.from_scipy(np.eye(5, 40, dtype=np.float32), np.arange(5), weights=np.ones(5))
    hashed = hashing.hash_rows(raw, BITS)
    assert entries(hashed) == [{bucket(i, BITS): 1.0} for i in range(5)]
    assert hashed.weights.tolist() == [1] * 5
    assert raw.hash_bits is None
    parts = [hashed.select([0, 2]), hashed.block(1, 3), hashed.compact(), *hashed.split(0.4)]
    assert [part.hash_bits for part in parts] == [BITS] * 5
    assert [part.width for part in parts] == [2**BITS] * 5
    with pytest.raises(InputError, match=r"the features are hashed to 2\^20 already"):
        hashing.hash_rows(hashed, 8)
    monkeypatch.setattr(hashing, "PIECE", 2)
    assert equal(hashing.hash_rows(raw, BITS), hashed)
    assert len(list(hashing.hashed_pieces(raw, BITS))) > 1
    with pytest.raises(InputError, match=r"width 40: expected 2\^20 features"):
        Rows([0, 1], [1], [1.0], [1.0], 40, hash_bits=BITS)
    huge = Rows.from_scipy(np.array([[3e38, 3e38, 3e38, 3e38]]), [1])
    with pytest.raises(InputError, match="share a bucket is beyond float32"):
        hashing.hash_rows(huge, 1)


# -- every way in -----------------------------------------------------------------------------------------------------


def test_every_kind_of_data_is_hashed_alike(tmp_path, text):
    with pytest.warns(HogwildWarning, match="repeated"):
        raw = open_data(text)
    expected = open_data(text, hash_bits=BITS)
    save_store(raw, tmp_path / "store")
    for number, name in enumerate(("x.svm", "store")):
        made = tmp_path / f"made{number}"
        meta = convert(tmp_path / name, made, hash_bits=np.int64(BITS))
        assert equal(open_store(made), expected)
        assert (meta["hash_bits"], meta["width"]) == (BITS, 2**BITS)
        assert equal(open_data(made, hash_bits=np.int64(BITS)), expected)
    libffm = hogwild.Rows.from_scipy(np.eye(3), [1, 0, 1], fields=[0, 1, 2])
    convert(save_store(libffm, tmp_path / "ffm"), tmp_path / "made", hash_bits=BITS)
    assert open_store(tmp_path / "made").fields is None  # the numbers were of other features
    convert(tmp_path / "made0", tmp_path / "again", hash_bits=BITS)  # hashed alike already: a copy
    assert equal(open_store(tmp_path / "again"), expected)
    assert convert(tmp_path / "made0", tmp_path / "again", overwrite=True)["hash_bits"] == BITS


def test_what_does_not_go_together(tmp_path, text):
    store = tmp_path / "s9"
    convert(text, store, hash_bits=9)
    with pytest.warns(HogwildWarning, match="repeated"):
        convert(text, tmp_path / "plain")
    for call in (open_data, lambda *a, **o: convert(*a, tmp_path / "out", **o)):
        with pytest.raises(
            InputError, match=r"s9: the features are hashed to 2\^9, expected them hashed to 2\^10: conv"
        ):
            call(store, hash_bits=10)
        with pytest.raises(InputError, match=r"s9: hashed to 2\^9 = 512 features, so there cannot be 100"):
            call(store, width=100)
        with pytest.raises(UsageError, match=r"width=100: hash_bits=9 makes it 512: give one of them"):
            call(text, hash_bits=9, width=100)
    with pytest.raises(InputError, match=r"plain: the features are not hashed, expected them hashed to 2\^9: conv"):
        open_data(tmp_path / "plain", hash_bits=9)
    assert open_data(text, hash_bits=9, width=512, beyond="ignore").hash_bits == 9
    assert not (tmp_path / "out").exists()


# -- how many bits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("load", [0.05, 2.0])
def test_bits_are_enough_for_as_many_features_as_were_counted(load):
    """The least number of bits that leaves four of five of the features that were drawn alone (Whang et al. 1990)."""
    m, bits = 1 << 14, 14
    n = int(load * m)
    ids = np.unique(np.random.default_rng(7).integers(0, 2**63, 2 * n))[:n]
    used = len({bucket(i, bits) for i in ids.tolist()})
    alone = (np.exp(-(n - 1) / 2.0**b) for b in range(30))
    assert hashing.enough_bits(used, bits, 1, 30) == next(b for b, share in enumerate(alone) if share >= 0.8)
    assert hashing.enough_bits(m, bits, 1, 16) == 16


# -- models -----------------------------------------------------------------------------------------------------------


def trained(rows: Rows, **options) -> LinearModel:
    return hogwild.train(rows, epochs=2, **QUIET | options).finish()


def test_from_text_to_predictions_and_from_memory_it_is_one_model(tmp_path):
    raw = toy(400)
    X, y = raw.to_scipy()
    path = tmp_path / "x.svm"
    with path.open("wb") as file:
        write_text(raw, file)
    convert(path, tmp_path / "store", hash_bits=BITS)
    model = trained(open_data(tmp_path / "store"))
    other = trained(hashing.hash_rows(raw, BITS))
    assert model.coef_.tobytes() == other.coef_.tobytes()
    assert model.hash_bits == other.hash_bits == BITS
    model.save(tmp_path / "m")
    loaded = hogwild.load(tmp_path / "m")
    assert loaded.hash_bits == BITS
    expected = loaded.decision_function(open_data(path, hash_bits=BITS))
    wider = scipy.sparse.csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], 2**31 - 1))
    for given in (X.toarray(), raw, open_data(tmp_path / "store"), wider):
        np.testing.assert_array_equal(loaded.decision_function(given), expected)
    weights = {u: loaded.coef_[0, bucket(u, BITS)] for u in np.unique(raw.indices).tolist()}  # the slow way
    slow = [sum(x * float(weights[u]) for u, x in row.items()) + float(loaded.intercept_[0]) for row in entries(raw)]
    np.testing.assert_allclose(expected, slow, atol=1e-5)
    assert np.mean(loaded.predict(X) == y) > 0.9


def test_models_and_rows_hashed_otherwise():
    raw = toy(200)
    plain, hashed = trained(raw), trained(hashing.hash_rows(raw, BITS))
    assert plain.hash_bits is None
    with pytest.raises(
        InputError, match=r"the rows: the features are hashed to 2\^20, those of the model not hashed: convert"
    ):
        plain.predict(hashing.hash_rows(raw, BITS))
    with pytest.raises(
        InputError, match=r"the rows: the features are hashed to 2\^12, those of the model hashed to 2\^20: conv"
    ):
        hashed.predict(hashing.hash_rows(raw, 12))
    with pytest.raises(InputError, match=r"the rows: the features are not hashed, those of the model hashed to 2\^20"):
        evaluate(hashed, raw)  # walks the rows itself
    with pytest.raises(InputError, match=r"the test rows: the features are not hashed, training's hashed to 2\^20"):
        hogwild.train(hashing.hash_rows(raw, BITS), raw, **QUIET)
    with pytest.raises(InputError, match=r"coef has 8 features, expected 2\^4 of a hashed model"):
        LinearModel(np.zeros(8), [0], "log", labels=[0, 1], hash_bits=4)
    with pytest.raises(UsageError, match="hash_bits=40"):
        LinearModel(np.zeros(8), [0], "log", labels=[0, 1], hash_bits=40)
