"""The store: what is written is what is mapped, every damage is one line, and nothing half-made is ever seen."""

from __future__ import annotations

import errno
import gc
import json
import os
import re
import resource
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from hogwild.data import columns
from hogwild.data import locks as leases
from hogwild.data.columns import HEADER, header
from hogwild.data.rows import store
from hogwild.data.rows.container import Rows
from hogwild.data.rows.degrees import degrees
from hogwild.data.rows.store import MemoryWriter, StoreWriter, open_store, pour, read_meta, save_store
from hogwild.errors import InputError, OutputError

ARRAYS = ["indptr.npy", "indices.npy", "values.npy", "targets.npy", "weights.npy", "degrees.npy"]
FILES = [*ARRAYS, "checksums.npy", "meta.json"]


def make_rows(n: int = 50, width: int = 40, seed: int = 0, weights: bool = True) -> Rows:
    random = np.random.default_rng(seed)
    picks = [np.sort(random.choice(width, random.integers(0, 9), replace=False)) for _ in range(n)]
    indptr = np.concatenate(([0], np.cumsum([len(pick) for pick in picks])))
    values = random.standard_normal(indptr[-1])
    sample_weights = random.random(n) if weights else None
    return Rows(indptr, np.concatenate(picks), values, random.choice([-1.0, 1.0], n), width, sample_weights)


def same(a: Rows, b: Rows) -> bool:
    a, b = a.compact(), b.compact()
    pairs = [(getattr(a, name), getattr(b, name)) for name in ("begin", "end", "indices", "values", "targets")]
    equal = all(np.array_equal(x, y) for x, y in pairs) and a.width == b.width
    if a.weights is None or b.weights is None:
        return equal and a.weights is b.weights
    return equal and np.array_equal(a.weights, b.weights)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return save_store(make_rows(), tmp_path / "s.hog", {"source": "here"})


def flip(path: Path, at: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))


@pytest.mark.parametrize("weights", [True, False])
def test_round_trip(tmp_path, weights):
    rows = make_rows(weights=weights)
    path = save_store(rows, tmp_path / "s.hog", {"source": "here", "options": {"zero_based": True}})
    opened = open_store(path)
    assert same(opened, rows)
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


def test_the_arrays_are_plain_npy(saved):
    rows = make_rows()
    assert np.array_equal(np.load(saved / "values.npy", mmap_mode="r"), rows.values)
    assert np.array_equal(np.load(saved / "indptr.npy"), np.append(rows.begin, rows.nnz))
    assert np.load(saved / "checksums.npy").dtype == np.uint32


@pytest.mark.parametrize("indptr", [[0], [0, 0, 0]])
def test_no_entries(tmp_path, indptr):
    rows = Rows(indptr, [], [], np.ones(len(indptr) - 1), 7)
    assert same(open_store(save_store(rows, tmp_path / "s")), rows)


def test_how_rows_arrive_does_not_matter(tmp_path, monkeypatch):
    monkeypatch.setattr(columns, "BLOCK", 64)
    rows = make_rows(90)
    for step in (1, 7, 90):
        with StoreWriter(tmp_path / f"s{step}") as writer:
            for first in range(0, 90, step):
                pour(rows.block(first, min(first + step, 90)), writer)
            writer.close(rows.width)
    for name in FILES:
        whole = (tmp_path / "s90" / name).read_bytes()
        assert (tmp_path / "s1" / name).read_bytes() == (tmp_path / "s7" / name).read_bytes() == whole
    assert same(open_store(tmp_path / "s7"), rows)


def test_a_subset_is_saved_compactly(tmp_path):
    part, _ = make_rows().split(0.5)
    assert same(open_store(save_store(part, tmp_path / "s")), part)


def test_memory_writer_gives_the_same_rows():
    rows = make_rows()
    memory = MemoryWriter()
    pour(rows, memory)
    assert same(memory.close(rows.width), rows)
    assert len(MemoryWriter().close()) == 0


def test_width_is_that_of_the_data_unless_given(tmp_path):
    with StoreWriter(tmp_path / "a") as writer:
        writer.append([2], [3, 8], [1, 2], [1])
        writer.close()
    assert open_store(tmp_path / "a").width == 9
    with StoreWriter(tmp_path / "b") as writer:
        writer.append([2], [3, 8], [1, 2], [1])
        with pytest.raises(InputError, match="width 8, but features up to 9"):
            writer.close(8)
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("name", FILES)
def test_one_flipped_byte_anywhere_is_found(saved, name):
    size = (saved / name).stat().st_size
    for at in {0, 20, size // 2, size - 2, size - 1} & set(range(size)):
        flip(saved / name, at)
        with pytest.raises(InputError, match=r"\A[^\n]*\Z") as raised:
            open_store(saved)
        assert str(saved) in str(raised.value)
        flip(saved / name, at)
    assert same(open_store(saved), make_rows())


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("change", ["cut", "empty", "longer", "gone", "directory"])
def test_files_of_the_wrong_size_are_found(saved, name, change):
    path = saved / name
    if change in ("cut", "empty"):
        os.truncate(path, 0 if change == "empty" else path.stat().st_size - 1 - 20 * (name == "meta.json"))
    elif change == "longer":
        with open(path, "ab") as file:
            file.write(b"0000")
    else:
        path.unlink()
        if change == "directory":
            path.mkdir()
    with pytest.raises(InputError, match=r"\A[^\n]*\Z") as raised:
        open_store(saved)
    assert str(saved) in str(raised.value)


def test_truncation_says_how_much_is_missing(saved):
    os.truncate(saved / "values.npy", 200)
    with pytest.raises(InputError, match=r"damaged store: values.npy has 200 bytes, expected \d+; remove it"):
        open_store(saved)


def rewrite_meta(path: Path, **changes: object) -> None:
    meta = json.loads((path / "meta.json").read_text()) | changes
    meta["checksum"] = store._meta_checksum(meta)
    (path / "meta.json").write_text(json.dumps(meta))


def test_another_version(saved):
    rewrite_meta(saved, version=7)
    with pytest.raises(InputError, match="store of version 7, expected 1: convert the source again"):
        open_store(saved)


def test_meta_that_does_not_fit_the_arrays(saved):
    rewrite_meta(saved, rows=49)
    with pytest.raises(InputError, match="do not fit 49 rows"):
        open_store(saved)


@pytest.mark.parametrize("name", ["indptr", "indices"])
def test_forged_numbers_that_send_a_kernel_out_of_its_arrays(saved, name):
    for value in (-1, 41, 10**8):
        array = np.load(saved / f"{name}.npy")
        array[3] = value
        np.save(saved / f"{name}.npy", array)
        reseal(saved)
        with pytest.raises(InputError, match=f"{name}.npy (does not ascend|holds {value}, expected 0 to 39)"):
            open_store(saved)


@pytest.mark.parametrize(
    "change",
    [
        {"rows": None},
        {"nnz": -1},
        {"width": 1.5},
        {"arrays": 1},
        {"arrays": {"x": {}}},
        {"hash_bits": "x"},
        {"table": {}},
        {"warnings": 1},
        {"hashing": {"share": 1}},
    ],
)
def test_forged_facts(saved, change):
    rewrite_meta(saved, **change)
    with pytest.raises(InputError, match="damaged store: .*convert the source again"):
        open_store(saved)


def reseal(path):
    """Make the checksums right for what the arrays hold."""
    meta = json.loads((path / "meta.json").read_bytes())
    crcs = np.array([zlib.crc32((path / f"{name}.npy").read_bytes()[HEADER:]) for name in meta["arrays"]], "<u4")
    (path / "checksums.npy").write_bytes(header("<u4", len(crcs)) + crcs.tobytes())
    rewrite_meta(path, checksums=zlib.crc32(crcs.tobytes()))


@pytest.mark.parametrize("what", ["nothing", "file", "empty directory", "other meta.json", "broken meta.json"])
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


def test_large_stores_have_a_sample_of_blocks_checked(saved, monkeypatch):
    monkeypatch.setattr(columns, "BLOCK", 16)
    monkeypatch.setattr(columns, "SAMPLE", 1)
    monkeypatch.setattr(store, "CHECK_ALL_BELOW", 0)
    path = save_store(make_rows(), saved.parent / "t")
    size = (path / "values.npy").stat().st_size
    assert len(open_store(path)) == 50
    for at in (columns.HEADER, size - 1):  # the first and the last block are always in it
        flip(path / "values.npy", at)
        with pytest.raises(InputError, match=r"values.npy does not match its checksum at byte \d+"):
            open_store(path)
        flip(path / "values.npy", at)
    flip(path / "values.npy", size // 2)
    monkeypatch.setattr(store, "CHECK_ALL_BELOW", size * 100)
    with pytest.raises(InputError, match=r"values\.npy does not match"):
        open_store(path)


def test_offsets_are_checked_where_checksums_are_not(saved, monkeypatch):
    indptr = np.load(saved / "indptr.npy")
    indptr[20] = 1 << 40
    np.save(saved / "indptr.npy", indptr)
    monkeypatch.setattr(store, "check_blocks", lambda *args, **options: None)
    with pytest.raises(InputError, match=r"indptr.npy does not ascend from 0"):
        open_store(saved)


def test_what_exists_is_not_overwritten(tmp_path, saved):
    with pytest.raises(InputError, match="exists: choose another name, or give --overwrite"):
        save_store(make_rows(), saved)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    for name in ("file", "folder"):
        for overwrite in (False, True):
            with pytest.raises(InputError, match="exists and is not a hogwild store"):
                save_store(make_rows(), tmp_path / name, overwrite=overwrite)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder", "s.hog"]


def test_a_store_is_overwritten_on_request(saved):
    old, fresh = open_store(saved), make_rows(20, seed=1)
    save_store(fresh, saved, overwrite=True)
    assert same(open_store(saved), fresh)
    assert same(old, make_rows())  # who had it open keeps what it was
    assert os.listdir(saved.parent) == ["s.hog"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_nothing(tmp_path, error):
    def stop_half_way() -> None:
        with StoreWriter(tmp_path / "s") as writer:
            pour(make_rows(), writer)
            raise error

    with pytest.raises(error):
        stop_half_way()
    assert os.listdir(tmp_path) == []


def test_giving_up_while_overwriting_leaves_the_old_store(saved):
    with StoreWriter(saved, overwrite=True) as writer:
        pour(make_rows(9), writer)
    assert same(open_store(saved), make_rows())
    assert os.listdir(saved.parent) == ["s.hog"]


def test_a_writer_that_was_overtaken(tmp_path):
    with StoreWriter(tmp_path / "s") as slow:
        pour(make_rows(9), slow)
        save_store(make_rows(), tmp_path / "s")
        with pytest.raises(store.StoreExists):
            slow.close()
    assert same(open_store(tmp_path / "s"), make_rows())
    assert os.listdir(tmp_path) == ["s"]


@pytest.mark.parametrize("when", ["append", "close"])
def test_full_disk(tmp_path, when):
    """A real limit on the size of files, met while rows are written or when buffers are flushed at the end."""
    rows = make_rows(2000)
    big = Rows.from_scipy(np.ones((3000, 400)), np.ones(3000)) if when == "append" else rows  # > 1 MiB of values
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        with pytest.raises(OutputError, match=rf"{tmp_path}/s: cannot write the store: {os.strerror(errno.EFBIG)}"):
            save_store(big, tmp_path / "s")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("parent", ["missing", "file"])
def test_unwritable_destination(tmp_path, parent):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"\A[^\n]*/s: cannot write the store: [^\n]*\Z"):
        save_store(make_rows(), tmp_path / parent / "s")


def test_append_refuses_arrays_that_do_not_fit(tmp_path):
    with StoreWriter(tmp_path / "s") as writer:
        with pytest.raises(ValueError, match="1 rows of 2 entries"):
            writer.append([2], [1], [1.0], [1.0])
        writer.append([1], [1], [1.0], [1.0])
        with pytest.raises(ValueError, match="weights must be given for all rows or for none"):
            writer.append([1], [1], [1.0], [1.0], [1.0])


WRITE_AND_WAIT = """
import sys
from hogwild.data.rows.store import StoreWriter
with StoreWriter(sys.argv[1]) as writer:
    writer.append([1] * 1000, [1] * 1000, [1.0] * 1000, [1.0] * 1000)
    print("writing", flush=True)
    sys.stdin.read()
"""


def test_a_killed_writer_leaves_no_store_and_is_cleaned_up_after(tmp_path):
    path = tmp_path / "s"
    command = [sys.executable, "-c", WRITE_AND_WAIT, str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    ) as other:
        assert other.stdout.readline() == b"writing\n"
        (temporary,) = os.listdir(tmp_path)
        save_store(make_rows(), tmp_path / "t")
        assert sorted(os.listdir(tmp_path)) == [temporary, "t"]  # it lives: left alone
        other.kill()
    with pytest.raises(InputError, match="no such file"):
        open_store(path)
    save_store(make_rows(), path)
    assert sorted(os.listdir(tmp_path)) == ["s", "t"]


def test_only_old_temporaries_without_a_lock_file_are_swept(tmp_path):
    folder = leases.make_temporary(tmp_path / "s")
    leases.sweep(tmp_path)
    assert folder.exists()  # perhaps its writer has not got so far
    os.utime(folder, (0, 0))
    leases.sweep(tmp_path)
    assert not folder.exists()
    leases.sweep(tmp_path / "missing")


def test_what_is_open_is_not_removed(saved):
    rows = open_store(saved)
    part = rows.split(0.5)[0]
    assert not leases.remove_unused(saved)
    del rows
    assert not leases.remove_unused(saved)  # a part keeps the whole
    del part
    gc.collect()
    assert leases.remove_unused(saved)
    assert os.listdir(saved.parent) == []


def test_without_locks_nothing_is_removed(saved, monkeypatch):
    def refuse(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(leases.fcntl, "flock", refuse)
    save_store(make_rows(), saved.parent / "t")
    assert len(open_store(saved.parent / "t")) == 50
    assert not leases.remove_unused(saved)


def test_a_store_that_goes_while_it_is_opened(saved, monkeypatch):
    monkeypatch.setattr(columns, "still_named", lambda file, path: False)
    with pytest.raises(InputError, match="removed while it was being opened"):
        open_store(saved)


def test_headers_are_numpys_own(tmp_path):
    for length in (0, 1, 10**15):
        text = columns.header("<f4", length)
        assert len(text) == columns.HEADER
        assert re.search(rb"'shape': \(%d,\)" % length, text)
    np.save(tmp_path / "x.npy", np.arange(5, dtype="<i4"))
    assert (tmp_path / "x.npy").read_bytes()[: columns.HEADER] == columns.header("<i4", 5)


def test_degrees_are_kept_and_a_hold_out_takes_its_share(tmp_path, saved):
    """What training asks for first is read, not counted: hidden entries would be found out."""
    rows = open_store(saved)
    assert degrees(rows).tolist() == rows.degrees().tolist()
    assert degrees(rows) is rows.known_degrees
    rest, held_out = rows.split(0.4, seed=1)
    for part in (rest, held_out, rows.block(1, 5)):
        assert degrees(part).tolist() == part.degrees().tolist()
    rest.begin, rest.end = rest.end, rest.end  # no entries to count
    assert degrees(rest).tolist() == (rows.degrees() - held_out.degrees()).tolist()
    bigger = save_store(rows, tmp_path / "wider")
    assert degrees(open_store(bigger)).tolist() == rows.degrees().tolist()


def test_a_store_without_degrees_opens(tmp_path, monkeypatch):
    """As it is of one that was made before there were any, or of very many features for few entries."""
    rows = make_rows()
    monkeypatch.setattr(store, "FEW", 0)
    wide = Rows((rows.begin, rows.end), rows.indices, rows.values, rows.targets, 10**6, check=False)
    opened = open_store(save_store(wide, tmp_path / "store"))
    assert opened.known_degrees is None
    assert not (tmp_path / "store" / "degrees.npy").exists()
    assert degrees(opened).tolist() == rows.degrees().tolist() + [0] * (10**6 - rows.width)
    monkeypatch.setattr(columns, "MOST_COUNTED", 3)
    assert open_store(save_store(rows, tmp_path / "many")).known_degrees is None
