"""MatrixMarket files beside scipy's reader and a slow twin, and what is said of those that are wrong."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from hogwild.data.ratings.source import open_ratings
from hogwild.data.rows.source import open_data
from hogwild.data.text import matrix_market
from hogwild.data.text.matrix_market import read_matrix_market
from hogwild.errors import InputError
from tests.readers import matrix

GENERAL = "%%MatrixMarket matrix coordinate real general\n"
PACK: dict[str, Any] = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def dense(matrix: Any) -> np.ndarray:
    return np.float32(matrix.toarray() if scipy.sparse.issparse(matrix) else matrix)


def matrices() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    A = scipy.sparse.random_array((70, 50), density=0.2, rng=rng).tocoo()
    square = scipy.sparse.random_array((40, 40), density=0.1, rng=rng)
    whole, pattern = (A * 1e4).astype(int), scipy.sparse.coo_array((np.ones(3), ([4, 0, 2], [1, 1, 0])), (5, 2))
    found = {"real": A, "integer": whole, "pattern": pattern, "symmetric": square + square.T, "skew": square - square.T}
    found |= {f"dense {name}": matrix.toarray() for name, matrix in found.items()}
    return found | {"empty": scipy.sparse.coo_array((3, 4)), "nothing": np.zeros((1, 1))}


@pytest.mark.parametrize("name", matrices())
def test_as_scipy_reads_it(tmp_path: Path, name: str) -> None:
    scipy.io.mmwrite(tmp_path / "x.mtx", matrices()[name], comment="of a test\n and its comment")
    expected = scipy.io.mmread(tmp_path / "x.mtx")
    for suffix, pack in PACK.items():
        path = tmp_path / f"packed.mtx{suffix}"
        path.write_bytes(pack((tmp_path / "x.mtx").read_bytes()))
        found = read_matrix_market(path)
        assert scipy.sparse.issparse(found) == scipy.sparse.issparse(expected)
        assert found.shape == expected.shape
        np.testing.assert_array_equal(dense(found), dense(expected))


def test_more_rows_than_memory_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix_market.machine, "memory", lambda: (2**34, 2**34))
    (tmp_path / "x.mtx").write_text(GENERAL + "2000000000 5 1\n1 1 1\n")
    said = r"x.mtx: 2,000,000,000 rows need 52.2 GiB of memory or more, and 16.0 GiB are available$"
    with pytest.raises(InputError, match=said):
        open_data(tmp_path / "x.mtx", labels="optional")
    with pytest.raises(InputError, match=said):
        open_ratings(tmp_path / "x.mtx")


def test_pattern_and_repeats_and_odd_blanks(tmp_path: Path) -> None:
    (tmp_path / "x.mtx").write_text(
        "%%matrixmarket MATRIX Coordinate pattern General\r\n%\n\n 3\t2  3 \r\n1 1\n%\n\n2 1\n2 1"
    )
    assert dense(read_matrix_market(tmp_path / "x.mtx")).tolist() == [[1, 0], [2, 0], [0, 0]]
    np.save(tmp_path / "x.npy", np.ones(3))
    assert open_data(tmp_path / "x.mtx").values.tolist() == [1, 2]


@pytest.mark.parametrize("chunk", [60, 200, 1000])
@pytest.mark.parametrize("workers", [1, 3])
def test_any_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, workers: int) -> None:
    monkeypatch.setattr(matrix_market, "CHUNK_BYTES", chunk)
    path, X = tmp_path / "x.mtx", matrices()["real"]
    scipy.io.mmwrite(path, X, comment="a comment that is longer than the smallest of the chunks, and a bit more\n" * 3)
    seen: list[tuple[int, int | None]] = []
    found = read_matrix_market(path, workers, lambda *done: seen.append(done))
    np.testing.assert_array_equal(dense(found), dense(X))
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:400], "1 x 1", *lines[401:]]))
    with pytest.raises(InputError, match=r"x.mtx:401: bad column 'x'"):
        read_matrix_market(path, workers)
    path.write_text("\n".join([*lines, "1 1 1"]))
    with pytest.raises(InputError, match=rf"x.mtx:{len(lines) + 1}: more than the 700 entries"):
        read_matrix_market(path, workers)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ":1: an empty file, expected %%MatrixMarket matrix"),
        ("hello", ":1: 'hello', expected %%MatrixMarket matrix coordinate real general"),
        ("%%MatrixMarket vector coordinate real general\n", ":1: .*, expected %%MatrixMarket matrix"),
        ("%%MatrixMarket matrix coordinate real\n", ":1: 4 words in"),
        ("%%MatrixMarket matrix coordinate real 6E-1\n" + "1 1 1\n" * 60, ":1: symmetry '6e-1': expected"),
        ("%%MatrixMarket matrix coordinate complex general\n", ":1: field 'complex': expected one of real, integer"),
        ("%%MatrixMarket matrix coordinate real hermitian\n", ":1: symmetry 'hermitian'"),
        ("%%MatrixMarket matrix array pattern general\n", ":1: an array of pattern has no values"),
        (GENERAL, ":1: no size line"),
        (GENERAL + "% more\n\n3 4\n", r":4: a size line '3 4', expected rows, columns and entries"),
        (GENERAL + "3 4 -1\n", ":2: a size line"),
        (GENERAL + "3 4 1e3\n", ":2: a size line"),
        (GENERAL + "3 4 9999999999999999999\n", ":2: sizes .* are too large"),
        (GENERAL + "3 2147483648 1\n", ":2: .* at most 2147483647"),
        (GENERAL.replace("general", "symmetric") + "3 4 1\n", ":2: 3 rows and 4 columns: a symmetric matrix is square"),
        (GENERAL + "3 4 999999999999999999\n1 1 1\n", ":3: the file ends after 1 entries, but .* cut short"),
        (GENERAL + "3 4 1\n1 1 1\n\n1 2 2\n", ":5: more than the 1 entries that the size line tells of"),
        (GENERAL + "3 4 1\n0 1 1\n", ":3: row 0, but they count from 1"),
        (GENERAL + "3 4 1\n4 1 1\n", ":3: row '4' is beyond the 3 of the size line"),
        (GENERAL + "3 4 1\n18446744073709551617 1 1\n", ":3: row '18446744073709551617' is beyond the 3"),
        (GENERAL + "3 4 1\n-1 1 1\n", ":3: bad row '-1': expected a whole number"),
        (GENERAL + "3 4 1\n1 5 1\n", ":3: column '5' is beyond the 4"),
        (GENERAL + "3 4 1\n1\n", ":3: no column, expected: row column value"),
        (GENERAL + "3 4 1\n1 1\n", ":3: no value, expected: row column value"),
        (GENERAL + "3 4 1\n1 1 nan\n", ":3: bad value 'nan': expected a finite number"),
        (GENERAL + "3 4 1\n1 1 1e39\n", ":3: bad value '1e39': beyond float32"),
        (GENERAL + "3 4 1\n1 1 1.5x\n", ":3: bad value '1.5x': expected a number"),
        (GENERAL + "3 4 1\n1 1 1 2\n", ":3: '2' is one too many, expected: row column value"),
        (GENERAL + "3 4 1\n1 1 \0\n", r":3: bad value '\\x00'"),
        (GENERAL.replace("real", "integer") + "3 4 1\n1 1 1.5\n", ":3: bad value '1.5': expected a whole number"),
        (GENERAL.replace("real", "pattern") + "3 4 1\n1 1 1\n", ":3: '1' is one too many, expected: row column$"),
        (GENERAL.replace("coordinate", "array") + "2 1\n1\n2 3\n", ":4: '3' is one too many, expected: value"),
        (GENERAL.replace("coordinate", "array") + "2000000000 2000000000\n1\n", ":3: the file ends after 1 entries"),
    ],
)
def test_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    """Also where no targets are needed, and for ratings, which are read alike."""
    path = tmp_path / "x.mtx"
    path.write_bytes(text.encode())
    for call in (read_matrix_market, lambda path: open_data(path, labels="optional"), open_ratings):
        with pytest.raises(InputError, match=rf"x.mtx{said}") as caught:
            call(path)
        assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{path}:{matrix(text.encode())}: ")


def test_targets_that_do_not_fit_are_found_before_memory_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "x.mtx").write_text(GENERAL + "2147483647 1 1\n1 1 1\n")
    np.save(tmp_path / "x.npy", np.ones(3))
    with pytest.raises(InputError, match=r"expected one per row \(2147483647\), got an array of shape \(3,\)"):
        open_data(tmp_path / "x.mtx")
