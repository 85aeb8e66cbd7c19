"""The cache: made once, never stale, never in the way."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from time import sleep

import numpy as np
import pytest

from hogwild.data import cache as cache_module
from hogwild.data.cache import Cache, Pieces, Recipe, build, identity
from hogwild.data.rows.container import Rows
from hogwild.data.rows.store import Column, open_store, save_store
from hogwild.errors import HogwildWarning


def recipe(name: str = "a", rows: int = 10, **key: object) -> Recipe:
    """Makes ``rows`` rows; counts how often in ``recipe.made``."""

    def pieces() -> Pieces:
        made.append(name)
        yield Rows.of_lengths(np.ones(rows, int), np.arange(rows), np.ones(rows), np.ones(rows), width=rows)
        return {"width": rows + 1, "warnings": {"duplicate_rows": 2}}

    return Recipe(name, {"name": name, **key}, {"source": f"/data/{name}"}, pieces)


made: list[str] = []


@pytest.fixture(autouse=True)
def _none_made() -> None:
    made.clear()


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def test_made_once(cache):
    for _ in range(3):
        rows, meta = build(cache, recipe())
        assert len(rows) == 10
        assert rows.width == 11
        assert rows.store.parent == cache.directory
        assert meta["warnings"] == {"duplicate_rows": 2}  # remembered on the second run
        assert meta["source"] == "/data/a"
    assert made == ["a"]
    assert rows.store.name.startswith("a-")


def test_other_keys_are_other_entries(cache, monkeypatch):
    for variant in (recipe(), recipe(base=0), recipe(base=1), recipe(width=9), recipe("b")):
        build(cache, variant)
    assert len(made) == len(cache.entries()) == 5
    assert recipe(x=1, y=2).name == recipe(y=2, x=1).name
    before = recipe().name
    monkeypatch.setattr(cache_module, "VERSION", 99)
    assert recipe().name != before
    awkward = replace(recipe(), label="../ä b/*.svm?" * 20)
    assert len(awkward.name) < 100
    assert "/" not in awkward.name
    build(cache, awkward)
    assert len(cache.entries()) == 6


def test_identity_sees_path_size_and_times(tmp_path):
    path = tmp_path / "x"
    seen = []
    for content, time, name in [("aa", 5, "x"), ("aa", 6, "x"), ("aaa", 5, "x"), ("aa", 5, "y"), ("ab", 5, "x")]:
        (tmp_path / name).write_text(content)
        os.utime(tmp_path / name, ns=(time, time))  # of the last, the time of the change tells
        seen.append(str(identity(tmp_path / name)))
        sleep(0.02)
    assert len(set(seen)) == len(seen)
    assert identity(os.path.relpath(path)) == identity(path)


@pytest.mark.parametrize("file", ["values.npy", "meta.json"])
def test_a_damaged_entry_is_made_again(cache, file):
    path = build(cache, recipe())[0].store
    (path / file).write_text("")
    assert len(build(cache, recipe())[0]) == 10
    assert made == ["a", "a"]
    assert len(open_store(path)) == 10
    assert os.listdir(cache.directory) == [path.name]


@pytest.mark.parametrize("how", ["file in the way", "full while writing"])
def test_a_cache_that_cannot_be_written_costs_one_warning(tmp_path, monkeypatch, how):
    def full(self: Column, array: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file" if how == "file in the way" else tmp_path / "cache")
    if how == "full while writing":
        monkeypatch.setattr(Column, "write", full)
    with pytest.warns(HogwildWarning, match=r"\Ano cache \([^\n]*\): the data are kept in memory\Z") as caught:
        rows, meta = build(cache, recipe())
    assert len(caught) == 1
    assert len(rows) == 10
    assert rows.store is None
    assert meta["warnings"] == {"duplicate_rows": 2}
    monkeypatch.undo()
    assert not cache.directory.is_dir() or os.listdir(cache.directory) == []


def test_the_oldest_goes(cache):
    sizes = [file.stat().st_size for file in build(cache, recipe("a"))[0].store.iterdir()]
    cache.limit_bytes = 3 * sum(sizes)
    for time, name in enumerate("abc"):
        path = build(cache, recipe(name))[0].store
        os.utime(path / "meta.json", (time, time))
    rows, _ = build(cache, recipe("d"))  # three fit
    cache.trim()
    assert [path.name[0] for path in cache.entries()] == ["d", "c", "b"]
    cache.limit_bytes = 0
    build(cache, recipe("f"))
    assert [path.name[0] for path in cache.entries()] == ["f"]
    assert rows.indices.tolist() == list(range(10))  # what is mapped stays


def test_other_files_in_the_directory_are_left_alone(cache):
    build(cache, recipe())
    mine = save_store(open_store(cache.entries()[0]), cache.directory / "mine")
    (cache.directory / "notes.txt").write_text("")
    (cache.directory / ("x-" + "0" * 24)).mkdir()
    cache.limit_bytes = 0
    cache.trim()
    assert sorted(os.listdir(cache.directory)) == ["mine", "notes.txt", "x-" + "0" * 24]
    assert len(open_store(mine)) == 10


def test_the_slower_of_two_takes_what_the_faster_made(cache):
    fast = recipe()

    def pieces() -> Pieces:
        build(Cache(cache.directory), fast)
        return (yield from recipe().pieces())

    rows, _ = build(cache, replace(recipe(), pieces=pieces))
    assert len(rows) == 10
    assert made == ["a", "a"]
    assert os.listdir(cache.directory) == [rows.store.name]
