"""The store: what is written is what is mapped, damage is one line, and nothing half-made is ever seen."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hogwild.data.rows import container, store
from hogwild.data.rows.container import Rows
from hogwild.data.rows.store import MemoryWriter, StoreWriter, open_store, pour, read_meta, save_store, verify
from hogwild.errors import InputError, OutputError
from tests.runs import equal, limited

FILES = ["indptr.npy", "indices.npy", "values.npy", "targets.npy", "weights.npy", "meta.json"]


def make_rows(n: int = 50, width: int = 40, seed: int = 0, weights: bool = True) -> Rows:
    random = np.random.default_rng(seed)
    picks = [np.sort(random.choice(width, random.integers(0, 9), replace=False)) for _ in range(n)]
    indptr = np.concatenate(([0], np.cumsum([len(pick) for pick in picks])))
    values = random.standard_normal(indptr[-1])
    sample_weights = random.random(n) if weights else None
    return Rows(indptr, np.concatenate(picks), values, random.choice([-1.0, 1.0], n), width, sample_weights)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return save_store(make_rows(), tmp_path / "s.hog", {"source": "here"})


@pytest.mark.parametrize("weights", [True, False])
def test_round_trip(tmp_path, weights):
    rows = make_rows(weights=weights)
    path = save_store(rows, tmp_path / "s.hog", {"source": "here", "options": {"zero_based": True}})
    opened = open_store(path)
    assert equal(opened, rows)
    assert opened.store == path
    assert opened.contiguous
    for array in (opened.begin, opened.end, opened.indices, opened.values, opened.targets):
        assert type(array) is np.ndarray
        assert not array.flags.writeable
    assert opened.values.__array_interface__["data"][0] % 64 == 0
    meta = read_meta(path)
    assert (meta["rows"], meta["width"], meta["nnz"], meta["source"]) == (50, 40, rows.nnz, "here")
    assert meta["options"] == {"zero_based": True}
    assert sorted(os.listdir(path)) == sorted(name for name in FILES if weights or name != "weights.npy")
    assert np.array_equal(np.load(path / "values.npy", mmap_mode="r"), rows.values)  # plain arrays
    assert np.array_equal(np.load(path / "indptr.npy"), np.append(rows.begin, rows.nnz))
    verify(path)


def test_a_store_of_version_1(tmp_path):
    path = Path(__file__).parents[1] / "fixtures" / "stores" / "rows"
    assert equal(open_store(path), make_rows())
    assert open_store(path).degrees().tolist() == counted(make_rows()).tolist()
    verify(path)


def test_how_rows_arrive_does_not_matter(tmp_path):
    rows = make_rows(90)
    memory = MemoryWriter()
    for step in (1, 7, 90):
        with StoreWriter(tmp_path / f"s{step}") as writer:
            for first in range(0, 90, step):
                pour(rows.block(first, min(first + step, 90)), writer)
            writer.close(width=rows.width)
    for name in FILES:
        whole = (tmp_path / "s90" / name).read_bytes()
        assert (tmp_path / "s1" / name).read_bytes() == (tmp_path / "s7" / name).read_bytes() == whole
    pour(rows, memory)
    assert equal(memory.close(width=rows.width), rows)
    assert len(MemoryWriter().close()) == 0
    part, _ = rows.split(0.5)
    assert equal(open_store(save_store(part, tmp_path / "part")), part)


def test_width_is_that_of_the_data_unless_given(tmp_path):
    for name in "ab":
        with StoreWriter(tmp_path / name) as writer:
            writer.append([2], [3, 8], [1, 2], [1])
            if name == "a":
                writer.close()
            else:
                with pytest.raises(InputError, match="width 8, but features up to 9"):
                    writer.close(width=8)
    opened = open_store(tmp_path / "a")
    assert opened.width == 9
    assert opened.degrees().tolist() == [0, 0, 0, 1, 0, 0, 0, 0, 1]
    assert os.listdir(tmp_path) == ["a"]


# ---- damage


def test_a_flipped_bit_is_found_by_its_checksum(saved):
    path = saved / "weights.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 0x10
    path.write_bytes(data)
    with pytest.raises(InputError, match="damaged store: weights.npy does not match its checksum; remove it"):
        verify(saved)


@pytest.mark.parametrize("name", ["values.npy", "meta.json"])
@pytest.mark.parametrize("change", ["shorter", "gone", "directory"])
def test_files_of_the_wrong_size_are_found(saved, name, change):
    path = saved / name
    if change == "shorter":
        os.truncate(path, path.stat().st_size - 4)
    else:
        path.unlink()
        if change == "directory":
            path.mkdir()
    with pytest.raises(InputError, match=rf"\A{saved}: [^\n]*\Z"):
        open_store(saved)


@pytest.mark.parametrize("name", ["indptr", "indices"])
@pytest.mark.parametrize("value", [-1, 9999])
@pytest.mark.parametrize("counting", [False, True])
def test_numbers_that_send_a_kernel_out_of_its_arrays(saved, name, value, counting, monkeypatch):
    monkeypatch.setattr(container, "READ", 10 if counting else container.READ)
    array = np.load(saved / f"{name}.npy", mmap_mode="r+")
    array[-1] = value
    array.flush()
    with pytest.raises(InputError, match=f"{name} (does not ascend|run from .*{value}.*, expected 0 to 39;)"):
        open_store(saved)


@pytest.mark.parametrize("change", ["swapped", "twice"])
def test_features_that_do_not_ascend_are_refused(saved, change):
    """Scaled columns were written beyond their array where one came twice."""
    array, begin = (np.load(saved / f"{name}.npy", mmap_mode="r+") for name in ("indices", "indptr"))
    first = begin[np.argmax(np.diff(begin) > 1)]
    array[first : first + 2] = array[first : first + 2][::-1] if change == "swapped" else array[first]
    array.flush()
    with pytest.raises(InputError, match="damaged store: indices do not ascend in each row; remove it"):
        open_store(saved)


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_whether_features_ascend_is_looked_up_piece_by_piece(piece, monkeypatch):
    monkeypatch.setattr(container, "PIECE", piece)
    indptr, indices = np.array([0, 0, 3, 3, 5, 9, 9]), np.array([1, 4, 6, 2, 9, 0, 1, 2, 3])
    assert container.ascending(indptr, indices)
    for place in (1, 2, 4, 6, 8):
        for feature in (indices[place - 1], -1):  # again, and below the one before
            wrong = indices.copy()
            wrong[place] = feature
            assert not container.ascending(indptr, wrong)


def test_another_header(saved):
    np.save(saved / "values.npy", np.load(saved / "values.npy").view(np.int32))
    with pytest.raises(InputError, match=r"values.npy holds .* of <i4, expected"):
        open_store(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 7}, "store of version 7, expected at most 2: "),
        ({"rows": 49}, "expected (49|50) of"),
        ({"arrays": 1}, "meta.json cannot be used"),
        ({"arrays": {}}, "meta.json cannot be used"),
        ({"hash_bits": "x"}, "meta.json cannot be used"),
        ({"hash_bits": 9}, "expected 2.9 features"),
        ({"warnings": 1}, "meta.json cannot be used"),
        ({"table": {"columns": [{"nome": "a"}]}}, "meta.json cannot be used"),
    ],
)
def test_facts_that_do_not_fit(saved, change, message):
    (saved / "meta.json").write_text(json.dumps(read_meta(saved) | change))
    with pytest.raises(InputError, match=rf"{message}.*convert the source again\Z"):
        open_store(saved)


@pytest.mark.parametrize("what", ["nothing", "file", "other meta.json", "broken meta.json"])
def test_what_is_no_store(tmp_path, what):
    path = tmp_path / "x"
    if what == "file":
        path.write_text("hello")
    elif what != "nothing":
        path.mkdir()
        if what == "other meta.json":
            (path / "meta.json").write_text("{}")
        elif what == "broken meta.json":
            (path / "meta.json").write_bytes(b'{"format": "hogwild-store", \xff')
    with pytest.raises(InputError, match=r"\A[^\n]*x: (no such file|not a hogwild store|damaged store)[^\n]*\Z"):
        open_store(path)


# ---- one name, complete or not at all


def test_what_exists_is_not_overwritten(tmp_path, saved):
    with pytest.raises(InputError, match="exists: choose another name, or give --overwrite"):
        save_store(make_rows(), saved)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    for name in ("file", "folder"):
        with pytest.raises(InputError, match="exists and is not a hogwild store"):
            save_store(make_rows(), tmp_path / name, overwrite=True)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder", "s.hog"]


def test_a_store_is_overwritten_on_request(saved):
    old, fresh = open_store(saved), make_rows(20, seed=1)
    save_store(fresh, saved, overwrite=True)
    assert equal(open_store(saved), fresh)
    assert equal(old, make_rows())  # who had it open keeps what it was
    with StoreWriter(saved, overwrite=True) as writer:  # and giving up leaves it
        pour(make_rows(9), writer)
    assert equal(open_store(saved), fresh)
    assert os.listdir(saved.parent) == ["s.hog"]


def test_a_writer_that_was_overtaken(tmp_path):
    with StoreWriter(tmp_path / "s") as slow:
        pour(make_rows(9), slow)
        save_store(make_rows(), tmp_path / "s")
        with pytest.raises(store.StoreExists):
            slow.close()
    assert equal(open_store(tmp_path / "s"), make_rows())
    assert os.listdir(tmp_path) == ["s"]


def test_full_disk(tmp_path):
    """A real limit on the size of files, met while rows are written."""
    big = Rows.from_scipy(np.ones((3000, 400)), np.ones(3000))  # > 1 MiB of values
    said = rf"{tmp_path}/s: cannot write the store: {os.strerror(errno.EFBIG)}"
    with limited(resource.RLIMIT_FSIZE, 8192), pytest.raises(OutputError, match=said):
        save_store(big, tmp_path / "s")
    assert os.listdir(tmp_path) == []


WRITE_AND_WAIT = """
import sys
from hogwild.data.rows.store import StoreWriter
with StoreWriter(sys.argv[1]) as writer:
    writer.append([1] * 1000, [1] * 1000, [1.0] * 1000, [1.0] * 1000)
    print("writing", flush=True)
    sys.stdin.read()
"""


def test_a_killed_writer_leaves_no_store_and_is_cleaned_up_after(tmp_path):
    command = [sys.executable, "-c", WRITE_AND_WAIT, str(tmp_path / "s")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "cwd": Path(__file__).parents[2]}
    with subprocess.Popen(command, **pipes) as other:
        assert other.stdout.readline() == b"writing\n"
        other.kill()
    with pytest.raises(InputError, match="no such file"):
        open_store(tmp_path / "s")
    (temporary,) = tmp_path.iterdir()
    save_store(make_rows(), tmp_path / "t")
    assert temporary.exists()  # its writer may live
    os.utime(temporary, (0, 0))
    save_store(make_rows(), tmp_path / "u")
    assert sorted(os.listdir(tmp_path)) == ["t", "u"]


def test_ctrl_c_just_after_the_folder_was_made_leaves_nothing(tmp_path, monkeypatch):
    made = Path.mkdir

    def interrupted(folder: Path) -> None:
        made(folder)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "mkdir", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_store(make_rows(), tmp_path / "s.hog")
    assert os.listdir(tmp_path) == []


# ---- degrees


def test_of_many_entries_the_pass_that_checks_them_counts(saved, monkeypatch):
    monkeypatch.setattr(container, "READ", 10)
    assert open_store(saved).known_degrees.tolist() == counted(make_rows()).tolist()


def test_a_sample_of_many_rows_is_runs_of_neighbours(monkeypatch):
    monkeypatch.setattr(container, "READ", 10)
    rows = make_rows(5000)
    ids = rows.spread(rows.nnz // 10)
    lengths = np.diff(np.flatnonzero(np.diff(ids, prepend=-9, append=9**9) != 1))
    assert set(lengths) == {500 // 64}
    assert (ids[0], ids[-1], len(lengths)) == (0, 4999, 500 // 7)


def test_degrees_are_counted_once(saved):
    rows = open_store(saved)
    assert rows.degrees() is rows.degrees()
    rest, held_out = rows.split(0.4, seed=1)
    for part in (rows, rest, held_out, rows.block(1, 5)):
        assert part.degrees().tolist() == part.degrees(threads=3).tolist() == counted(part).tolist()


def counted(rows: Rows) -> np.ndarray:
    """How many rows hold each feature, in NumPy."""
    return np.bincount(rows.compact().indices, minlength=rows.width)
