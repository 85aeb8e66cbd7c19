"""Stores of ratings: what is written is what is mapped back; damage is found; the cache makes them once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hogwild.data.cache import Cache
from hogwild.data.ratings.container import RATINGS, Ids, Ratings
from hogwild.data.ratings.source import convert_ratings, open_ratings
from hogwild.data.rows.store import open_store, read_meta, save_store
from hogwild.data.text.delimited import TextLayout
from hogwild.errors import InputError
from tests.runs import equal


def save_ratings(ratings, path, meta=None):
    return save_store(ratings, path, meta, kind=RATINGS)


def open_ratings_store(path):
    return open_store(path, RATINGS)


def make(times=True, named=True):
    random = np.random.default_rng(0)
    users, items = random.integers(0, 6, 40), random.integers(0, 5, 40)
    ids = (Ids([3, 5, 8, 13, 21, 2**40]), Ids(["a", "b", "ü", "dd", "e e"])) if named else (None, None)
    return Ratings(users, items, random.random(40), (6, 5), random.integers(0, 9, 40) if times else None, *ids)


@pytest.mark.parametrize(("times", "named"), [(False, True), (True, False)])
def test_there_and_back(tmp_path, times, named):
    ratings = make(times, named)
    path = save_ratings(ratings, tmp_path / "store", {"source": "here"})
    again = open_ratings_store(path)
    assert equal(again, ratings)
    assert again.store == path
    assert again.split(0.5)[0].store is None
    assert not again.users.flags.writeable
    assert equal(open_ratings(path), ratings)
    meta = read_meta(path)
    assert (meta["kind"], meta["source"], meta["users"], meta["items"], meta["rows"]) == ("ratings", "here", 6, 5, 40)
    assert np.array_equal(np.load(path / "indices.npy"), ratings.items)  # plain arrays that anyone can read


@pytest.mark.parametrize("name", ["users", "indices"])
def test_numbers_that_send_a_kernel_out_of_its_arrays(tmp_path, name):
    path = save_ratings(make(), tmp_path / "store")
    array = np.load(path / f"{name}.npy", mmap_mode="r+")
    array[0], array[3] = 0, 6
    array.flush()
    with pytest.raises(InputError, match=r"damaged store: (users|items) run from 0 to 6, expected 0 to"):
        open_ratings_store(path)


def test_unknown_users_cannot_be_kept(tmp_path):
    with pytest.raises(InputError, match="unknown users cannot be kept"):
        save_ratings(Ratings([-1], [0], [1], (1, 1)), tmp_path / "other")


def test_a_store_of_version_1():
    assert equal(open_ratings_store(Path(__file__).parents[1] / "fixtures" / "stores" / "ratings"), make())


def test_meta_data_that_do_not_fit(tmp_path):
    path = save_ratings(make(), tmp_path / "store")
    for changes, message in (
        ({"rows": 41}, "expected 41 of"),
        ({"users": 7}, "6 names for 7 users"),
        ({"kind": "rows"}, "a store of rows, expected one of ratings"),
    ):
        before = (path / "meta.json").read_text()
        (path / "meta.json").write_text(json.dumps(json.loads(before) | changes))
        with pytest.raises(InputError, match=message):
            open_ratings_store(path)
        (path / "meta.json").write_text(before)


def test_conversion(tmp_path):
    (tmp_path / "r.csv").write_text("user,item,rating\n1,x,3\n2,y,4\n")
    meta = convert_ratings(tmp_path / "r.csv", tmp_path / "store")
    assert (meta["rows"], meta["kind"], meta["source"]) == (2, "ratings", str(tmp_path / "r.csv"))
    assert equal(open_ratings(tmp_path / "store"), open_ratings(tmp_path / "r.csv"))
    assert (
        convert_ratings("synthetic:ratings?ratings=500", tmp_path / "two")["source"] == "synthetic:ratings?ratings=500"
    )


def test_other_options_and_contents_are_other_entries(tmp_path):
    path, cache = tmp_path / "r.csv", Cache(tmp_path / "cache")
    path.write_text("1,2,3\n4,5,6\n")
    first = open_ratings(path, cache=cache)
    assert equal(first, open_ratings(path))
    assert open_ratings(path, cache=cache).store == first.store
    open_ratings(path, cache=cache, values="optional")
    open_ratings(path, cache=cache, repeats="keep")
    open_ratings(path, cache=cache, layout=TextLayout("item,user,rating"))
    open_ratings(path, cache=cache, users=Ids([1, 4]))  # matched afterwards
    assert len(cache.entries()) == 4
    path.write_text("1,2,3\n4,5,7\n")
    assert open_ratings(path, cache=cache).values.tolist() == [3, 7]
    assert len(cache.entries()) == 5
