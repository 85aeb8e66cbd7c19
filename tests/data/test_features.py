"""Tables about users and items: features and titles from every kind of file, and a line for every mistake."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from hogwild.data.ids import Ids
from hogwild.data.ratings.features import read_features, read_titles
from hogwild.errors import InputError
from tests.runs import line_of

FILMS = Ids(["a", "b", "c"])


def columns_of(matrix: Any) -> set[tuple[int, ...]]:
    """Which rows have each feature."""
    return {tuple(np.flatnonzero(column).tolist()) for column in matrix.toarray().T}


def test_cells_become_features(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    path.write_text(
        "item,genre,title,new,year\n"
        "c,Comedy|Drama,C,0,1990\n"
        "a,Comedy,A,1,1990\n"
        "a,Crime,,,\n"  # a second row adds to the first
        "z,Drama|Crime,Z,1,2000\n"  # nobody rated it
        "y,Drama,Y,0,2000\n"
    )
    matrix, ids = read_features(path, FILMS, 3, "item")
    assert ids.names().tolist() == ["a", "b", "c", "y", "z"]
    assert matrix.shape == (5, 6)  # titles are not shared
    assert set(matrix.data.tolist()) == {1.0}
    of_genres = {(0, 2), (2, 3, 4), (0, 4)}  # Comedy, Drama, Crime
    assert columns_of(matrix) == of_genres | {(0, 4), (0, 2), (3, 4)}  # new; 1990, 2000


def test_numbers_that_are_none_say_nothing() -> None:
    """Ids of a column that once had a gap are whole numbers; NaN and infinities are no ranges."""
    values = [*range(40), np.nan, np.inf, -np.inf]
    frame = pd.DataFrame({"item": np.arange(43.0), "price": values})
    matrix, _ = read_features(frame, Ids(range(43)), 43, "item")
    assert matrix.sum(axis=0).tolist() == [4] * 10
    assert not matrix[[40, 41, 42]].nnz
    with pytest.raises(InputError, match="the table:41: the id is empty"):
        read_features(frame.assign(item=frame["price"]), None, 43, "item")


def test_many_numbers_become_ranges() -> None:
    frame = pd.DataFrame({"item": range(40), "price": np.random.default_rng(0).permutation(40) / 8})
    matrix, ids = read_features(frame, None, 40, "item")
    assert ids is None
    assert matrix.sum(axis=0).tolist() == [4] * 10
    assert matrix.sum(axis=1).tolist() == [1] * 40


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("items.csv", 'item,title\nb,"Alien, é"\n'),
        ("items.csv", 'item;title\nb;"Alien, é"\n'),
        ("items.tsv", "b\tAlien, é\n"),  # without a header
        ("u.item", "b|Alien, é|1979\na||1980\n"),
        ("movies.dat", "b::Alien, é::Horror\n"),
        ("items.tsv", "id\tyear\tTitle\nb\t1979\tAlien, é\nx\t1\tX\n"),
    ],
)
def test_titles_of_files_as_they_come(tmp_path: Path, name: str, text: str) -> None:
    for encoding in ("utf-8-sig", "latin-1"):
        (tmp_path / name).write_bytes(text.encode(encoding))
        assert read_titles(tmp_path / name, FILMS, 3) == {"a": "a", "b": "Alien, é", "c": "c"}
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    assert read_titles(str(tmp_path / f"{name}.gz"), FILMS, 3)["b"] == "Alien, é"


def test_tables_that_are_not_text(tmp_path: Path) -> None:
    frame = pd.DataFrame({"item": [7, 9, 8], "name": ["x", None, "y"], "genres": [["p", "q"], ["q"], ["p"]]})
    frame.to_parquet(tmp_path / "items.parquet")
    numbers = Ids([7, 9])
    for table in (frame, tmp_path / "items.parquet"):
        matrix, ids = read_features(table, numbers, 2, "item")
        assert ids == Ids([7, 9, 8])
        assert columns_of(matrix) == {(0, 2), (0, 1)}
        assert read_titles(table, numbers, 2) == {7: "x", 9: "9"}
    damaged = bytearray((tmp_path / "items.parquet").read_bytes())
    damaged[4:80] = bytes(76)  # the first page; the footer, which is read first, is whole
    (tmp_path / "items.parquet").write_bytes(damaged)
    with pytest.raises(InputError, match=r"items.parquet: cannot be read: [^\n]+$"):
        read_features(tmp_path / "items.parquet", numbers, 2, "item")
    dense = np.eye(3)[:, :2]
    for matrix in (dense, scipy.sparse.csr_matrix(dense)):
        assert read_features(matrix, FILMS, 3, "item")[0].toarray().tolist() == dense.tolist()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("item,genre\nx,p\ny,p\n", "items.csv: none of its items is in the ratings; the first is 'x'"),
        ("item,genre\na,p\n,p\n", "items.csv:3: the id is empty"),
        ("item,genre\na,p\nb,p,q\n", "items.csv:3: 3 fields, expected 2 separated by ','"),
        ("item genre\na p\n", "items.csv: one column, 'item genre'; expected an id and others"),
        ("item,genre\na,p\nb,q\n", "items.csv: no two items share a value"),
        ("item,genre\n", "items.csv: no rows in it"),
        ("", "items.csv: no rows in it"),
        ('item,genre\na,p\nb,"p\n', "items.csv:3: a quote in this row is never closed"),
        ('item,genre\na,"p" q\nb,p\n', "items.csv:2: a quote in this row ends before its value"),
        ("item,genre\na,p\nb,p\n".encode("utf-16").decode("latin-1"), "items.csv:1: binary data .a zero byte"),
    ],
)
def test_tables_that_say_nothing(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "items.csv"
    path.write_text(text, encoding="latin-1")
    assert re.search(message, line_of(InputError, read_features, path, FILMS, 3, "item"))


def test_what_cannot_be_matched(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing.csv: no such file"):
        read_features(tmp_path / "nothing.csv", FILMS, 3, "item")
    with pytest.raises(InputError, match="the table:2: item 3 is not among the 3 of the ratings"):
        read_features(pd.DataFrame({"item": [0, 3], "genre": ["p", "p"]}), None, 3, "item")
    with pytest.raises(InputError, match="user features need numbers for 3 users.*; got float64 of shape .2, 2"):
        read_features(np.eye(2), None, 3, "user")
    with pytest.raises(InputError, match="item features: a value is not finite"):
        read_features(np.full((3, 1), np.nan), None, 3, "item")
