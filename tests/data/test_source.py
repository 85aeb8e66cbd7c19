"""Opening data by name: every kind, every way to get it wrong, and what is remembered in the cache."""

from __future__ import annotations

import io
import os
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from hogwild.data.cache import Cache
from hogwild.data.rows.container import Rows
from hogwild.data.rows.source import convert, open_data
from hogwild.data.rows.store import open_store, save_store
from hogwild.errors import HogwildWarning, InputError, OutputError, UsageError
from tests.runs import line_of

TEXT = "1 1:0.5 3:2\n-1 2:1\n1 1:1 2:-1 4:0.25\n"
DENSE = np.array([[0.5, 0, 2, 0], [0, 1, 0, 0], [1, -1, 0, 0.25]], dtype=np.float32)
TARGETS = np.array([1, -1, 1], dtype=np.float32)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "x.svm"
    path.write_text(TEXT)
    return path


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def dense(rows: Rows) -> np.ndarray:
    assert np.array_equal(rows.targets, TARGETS)
    return rows.to_scipy()[0].toarray()


def test_streams_and_pipes(tmp_path, cache):
    """What can be read only once is not kept; the writer of a pipe is heard to the end."""
    assert np.array_equal(dense(open_data(io.BytesIO(TEXT.encode()))), DENSE)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer, seen = threading.Thread(target=pipe.write_text, args=(TEXT * 10_000,), daemon=True), list[Any]()
    writer.start()
    assert len(open_data(pipe, cache=cache, progress=lambda *state: seen.append(state))) == 30_000
    writer.join()
    assert seen[-1] == (len(TEXT) * 10_000, None)
    assert cache.entries() == []


OPTIONS = [{}, {"zero_based": True}, {"width": 9}, {"labels": "optional"}, {"hash_bits": 10}, {"hash_bits": 11}]


def test_every_option_has_its_own_entry(text, cache):
    text.write_text(TEXT)
    widths = [open_data(text, cache=cache, **options).width for options in OPTIONS]
    assert widths == [4, 5, 9, 4, 1024, 2048]
    assert len(cache.entries()) == len(OPTIONS)
    assert [open_data(text, cache=cache, **options).width for options in OPTIONS] == widths
    assert len(cache.entries()) == len(OPTIONS)


def test_a_changed_file_is_read_again(text, cache):
    open_data(text, cache=cache)
    text.write_text(TEXT.replace("0.5", "0.7"))
    assert open_data(text, cache=cache).values[0] == np.float32(0.7)


def test_a_file_that_changes_while_it_is_read(text, cache):
    with pytest.raises(InputError, match="changed while it was being read"):
        open_data(text, cache=cache, progress=lambda done, total: text.write_text(TEXT * 2))
    assert cache.entries() == []


@pytest.mark.parametrize("cached", [True, False])
def test_repairs_are_said_every_time(text, cache, cached):
    text.write_text("1 3:1 1:2\n1 2:1 2:2\n1 1:1\n")
    for _ in range(2):
        with pytest.warns(HogwildWarning, match=r"x.svm: 1 rows with repeated") as caught:
            rows = open_data(text, cache=cache if cached else None)
        assert len(caught) == 1
        assert rows.values.tolist() == [2, 1, 3, 1]


@pytest.mark.parametrize("kind", ["cached text", "store"])
def test_a_test_set_wider_than_the_model(tmp_path, text, cache, kind):
    name = {"store": "s"}.get(kind, "x.svm")
    if kind == "store":
        save_store(open_data(text), tmp_path / name)
    options = {"cache": cache}
    for _ in range(2):
        with pytest.warns(
            HogwildWarning, match=rf"2 entries of features beyond the model's 2 were ignored in .*{name}"
        ):
            rows = open_data(tmp_path / name, width=2, beyond="ignore", **options)
        assert np.array_equal(dense(rows), DENSE[:, :2])
        assert rows.width == 2
        rows.compact()._check()
    with pytest.raises(InputError, match=r"x.svm:1: |row 1: feature beyond the 2 allowed \(2 such entries\)"):
        open_data(tmp_path / name, width=2, **options)


def test_a_narrower_set_takes_the_models_width(tmp_path, text):
    save_store(open_data(text), tmp_path / "s")
    for name in ("s", "x.svm"):
        for beyond in ("error", "ignore"):
            rows = open_data(tmp_path / name, width=7, beyond=beyond)
            assert rows.shape == (3, 7)
            assert rows.store == (tmp_path / "s" if name == "s" else None)  # a store is mapped, not copied
            assert rows.contiguous
    wide = Rows([0, 1], [1], [1.0], [1.0], 50)
    save_store(wide, tmp_path / "w")
    rows = open_data(tmp_path / "w", width=2)  # nothing lies beyond: nothing to say
    assert rows.width == 2
    assert rows.contiguous


@pytest.mark.parametrize("kind", ["text", "synthetic", "store"])
def test_convert(tmp_path, text, kind):
    name = {
        "text": str(text),
        "synthetic": "synthetic:rcv1?rows=30&features=50&nnz=4",
        "store": str(tmp_path / "s"),
    }[kind]
    if kind == "store":
        save_store(open_data(text), name)
    meta = convert(name, tmp_path / "out", width=50)
    rows = open_store(tmp_path / "out")
    assert rows.shape == (meta["rows"], meta["width"]) == (30 if kind == "synthetic" else 3, 50)
    if kind != "synthetic":
        assert np.array_equal(dense(rows)[:, :4], DENSE)
        assert meta["source"] == name
    with pytest.raises(InputError, match="out exists"):
        convert(name, tmp_path / "out")
    assert convert(name, tmp_path / "out", overwrite=True)["rows"] == len(rows)


def test_convert_that_fails_leaves_nothing(tmp_path, text):
    text.write_text(TEXT + "1 x\n")
    with pytest.raises(InputError, match=r"x\.svm:4: "):
        convert(text, tmp_path / "out")
    with pytest.raises(OutputError, match="cannot write the store"):
        convert("synthetic:rcv1?rows=5", tmp_path / "no" / "out")
    assert sorted(os.listdir(tmp_path)) == ["x.svm"]


def bad_files(folder: Path) -> None:
    (folder / "folder").mkdir()
    (folder / "x.mtx").write_text("%%MatrixMarket matrix array real general\n1 1\n2\n")
    (folder / "empty.svm").write_bytes(b"")
    scipy.sparse.save_npz(folder / "whole.npz", scipy.sparse.csr_array(DENSE))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing.svm", r"nothing.svm: no such file \(generated data are named like synthetic:rcv1\)"),
        ("folder", "folder: a directory, but no store; expected a file"),
        ("empty.svm/x", "cannot be read: Not a directory"),
        ("whole.npz", "whole.npz: a zip archive; of a scipy matrix, train on"),
        ("x.mtx", "x.mtx:1: .*svmlight text was expected"),
    ],
)
def test_what_cannot_be_opened(tmp_path, name, said):
    bad_files(tmp_path)
    assert re.search(said, line_of(InputError, open_data, tmp_path / name))


def test_other_mistakes(tmp_path, text):
    with pytest.raises(InputError, match="no such synthetic rows; there are synthetic:rcv1"):
        open_data("synthetic:rcv2")
    with pytest.raises(UsageError, match="expected one of error, ignore"):
        open_data(text, beyond="drop")
    with pytest.raises(UsageError, match="expected one of required, optional"):
        open_data(text, labels="none")
    with pytest.raises(UsageError, match="width=0"):
        open_data(text, width=0, beyond="ignore")
    text.write_text("1 0:1\n")
    with pytest.raises(InputError, match=r"x\.svm:1: "):
        open_data(text)


@pytest.mark.parametrize("name", [None, 5, b"text.svm"])
def test_what_is_neither_a_name_nor_a_stream(name):
    with pytest.raises(UsageError, match="expected the name of data or a binary stream, got"):
        open_data(name)
