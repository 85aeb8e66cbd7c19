"""svmlight text against a slow reference and scikit-learn, cut and damaged anywhere, and what is said of wrong text."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import signal
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hogwild.data.text import lines as text_module
from hogwild.data.text.svmlight import Svmlight
from hogwild.errors import InputError
from tests.readers import reference
from tests.runs import line_of, living

PACK: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}
TEXT = b"""# a comment
+1 1:0.5 3:2 # and another
-1 2:-1e-3\t4:.25

  0.5
-1 2:0 4:16777217
"""


def parse(text: bytes | Any, **options: Any) -> tuple[list[tuple[float, list[tuple[int, float]]]], Svmlight]:
    """Rows as (target, [(index, value), ...]) and what is known of the text."""
    summary = Svmlight(**options)
    pieces = summary.read(io.BytesIO(text) if isinstance(text, bytes) else text)
    blocks = [(rows.end - rows.begin, rows.indices, rows.values, rows.targets) for rows in pieces]
    lengths, indices, values, targets = (np.concatenate(parts) for parts in zip(*blocks))
    assert [a.dtype for a in (lengths, indices, values, targets)] == [np.int64, np.int32, np.float32, np.float32]
    assert (summary.rows, summary.nnz) == (len(lengths), len(indices))
    ends = np.cumsum(lengths)
    pairs = list(zip(indices.tolist(), values.tolist()))
    rows = [pairs[end - length : end] for end, length in zip(ends, lengths)]
    return list(zip(targets.tolist(), rows)), summary


def outcome(text: bytes, **options: Any) -> Any:
    """As ``reference``: the rows, or the line of the error."""
    message = ""
    try:
        return parse(text, **options)[0]
    except InputError as error:
        message = str(error)
    found = re.fullmatch(r"<stdin>:([0-9]+): \S.*", message)
    assert found, message
    return int(found.group(1))


def error_of(text: bytes, **options: Any) -> str:
    return line_of(InputError, parse, text, **options)


# -- what is read -----------------------------------------------------------------------------------------------------

ROWS = [
    (1.0, [(0, 0.5), (2, 2.0)]),
    (-1.0, [(1, float(np.float32(-1e-3))), (3, 0.25)]),
    (0.5, []),
    (-1.0, [(1, 0.0), (3, 16777216.0)]),
]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: text[:-1],
        lambda text: b"\xef\xbb\xbf" + text,
        lambda text: text.replace(b" ", b" \t  "),
        lambda text: text + b"\n\n# end",
        lambda text: text + b"  \t ",
        lambda text: text.replace(b" # and", b"# caf\xc3\xa9 \x00 \xff"),
        lambda text: text.replace(b"1:0.5", b"001:5.0e-1"),
        lambda text: gzip.compress(text) + bytes(512),
    ],
    ids=[
        "windows",
        "no-final-newline",
        "bom",
        "blanks",
        "comment-last",
        "blanks-last",
        "any-comment",
        "zeros",
        "padded",
    ],
)
def test_same_rows(change: Callable[[bytes], bytes]) -> None:
    assert parse(change(TEXT), chunk_bytes=16, workers=2)[0] == ROWS


def test_largest_index() -> None:
    assert "index '2147483647' is beyond the largest, 2147483646" in error_of(b"1 2147483647:1", zero_based=True)
    assert parse(b"1 2147483647:1")[1].width == 2**31 - 1
    assert parse(b"1 2147483646:1", zero_based=True)[1].width == 2**31 - 1


def test_unsorted_and_repeated() -> None:
    rows, summary = parse(b"1 1:1 2:2\n2 3:1 1:2\n3 1:1 1:2\n4 5:1 2:1 5:0.5 2:-1\n5\n")
    assert rows[1:4] == [(2.0, [(0, 2.0), (2, 1.0)]), (3.0, [(0, 3.0)]), (4.0, [(1, 0.0), (4, 1.5)])]
    assert (summary.repairs["duplicate_rows"], summary.nnz, summary.rows) == (2, 7, 5)


def test_width() -> None:
    text = b"1 1:1 3:3\n2 4:1 2:1\n3 9:1 8:1e-3"
    assert "<stdin>:2: index 4 is beyond the given width of 3" in error_of(text, width=3)
    assert parse(text, width=100)[1].width == 100


def test_optional_labels() -> None:
    text = b"1:0.5 2:1\n-1 1:2\n7\n # c\n 3:1#x:y\n"
    rows, _ = parse(text, labels="optional")
    assert [target for target, _ in rows] == [0, -1, 7, 0]
    assert [len(entries) for _, entries in rows] == [2, 1, 0, 1]
    assert error_of(b"1 1:1\n1:0.5 2:1") == "<stdin>:2: no label before '1:0.5', expected: label index:value ..."
    assert "bad feature 'a:1'" in error_of(b"a:1", labels="optional")


def test_many_numbers_left_to_python() -> None:
    ties = [b"%d.00000000000000000000000001" % (16777217 + 2 * i) for i in range(200)]
    text = b"\n".join(tie + b" " + b" ".join(b"%d:-%s" % (i + 1, tie) for i, tie in enumerate(ties)) for tie in ties)
    assert parse(text)[0] == reference(text)
    assert "beyond float32" in error_of(b"1 1:1\n3.4028235677973366e38 1:1 1:x")
    assert error_of(b"1 1:1\n1 7:3.4028235677973366e38 1:x").startswith("<stdin>:2: bad value in '7:3.4")


# -- against others ---------------------------------------------------------------------------------------------------


number_text = st.from_regex(
    re.compile(r"[+-]?([0-9]{1,20}(\.[0-9]{0,20})?|\.[0-9]{1,9})([eE][+-]?[0-9]{1,2})?", re.A), fullmatch=True
)
blank = st.sampled_from([" ", "\t", "  ", " \r", "\x0b"])
feature = st.tuples(blank, st.integers(1, 30), number_text).map(lambda parts: f"{parts[0]}{parts[1]}:{parts[2]}")
line = st.tuples(
    st.sampled_from(["", " ", "\t"]),
    number_text,
    st.lists(feature, max_size=6).map("".join),
    st.sampled_from(["", " ", "\r", " # note: 1:2", "#"]),
).map("".join)
texts = st.tuples(
    st.lists(st.one_of(line, st.sampled_from(["", "#", " "])), max_size=8).map("\n".join), st.sampled_from(["", "\n"])
)
texts_bytes = texts.map(lambda parts: "".join(parts).encode())


mutation = st.tuples(
    st.integers(0, 10_000),
    st.integers(0, 3),
    st.one_of(st.sampled_from(list(b" :\n#.e-+0\x00,q")), st.integers(0, 255)),
)


@given(texts_bytes, st.lists(mutation, max_size=6), st.integers(16, 80), st.booleans(), st.integers(1, 3))
@settings(max_examples=150, deadline=None)
def test_text_beside_its_slow_twin(
    text: bytes, mutations: list[tuple[int, int, int]], chunk: int, zero_based: bool, workers: int
) -> None:
    """Any bytes either parse as the reference does or end in the error of the same line."""
    damaged = bytearray(text)
    for place, removed, byte in mutations:
        at = place % (len(damaged) + 1)
        damaged[at : at + removed] = bytes([byte])
    data = bytes(damaged)
    if data[:2] == b"\x1f\x8b" or data[:3] == b"BZh":
        return
    found = outcome(data, chunk_bytes=chunk, zero_based=zero_based, workers=workers)
    expected = reference(data, 0 if zero_based else 1)
    if isinstance(found, int) and isinstance(expected, int) and b"\0" in data:
        return  # binary data is reported where it is noticed
    assert found == expected


# -- what is refused --------------------------------------------------------------------------------------------------

WRONG = {
    b"abc 1:1": "bad label 'abc': expected a number",
    b"nan 1:1": "bad label 'nan': expected a finite number",
    b"1e39 1:1": "bad label '1e39': beyond float32",
    b"1_0 1:1": "bad label '1_0': expected a plain decimal number",
    b"1:1 2:1": "no label before '1:1', expected: label index:value ...",
    b"1 x:1": "bad feature 'x:1': expected index:value",
    b"1 -1:1": "bad feature '-1:1': expected index:value",
    b"1 :1": "bad feature ':1': expected index:value",
    b"1 0:1": "index 0, but indices count from 1 unless the file is read as zero-based (--zero-based)",
    b"1 2147483648:1": "index '2147483648' is beyond the largest, 2147483647 (--hash-bits takes any below 2^64)",
    b"1 " + b"9" * 5000 + b":1": f"index '{'9' * 40}'... is beyond the largest, 2147483647",
    b"1 1:nan": "bad value in '1:nan': expected a finite number",
    b"1 1:3.5e38": "bad value in '1:3.5e38': beyond float32",
    b"1 1:3e38 1:3e38": "the sum of a repeated feature's values is beyond float32",
    b"1 1:0x1": "bad value in '1:0x1': expected a number",
    b"1 1 2:1": "bad feature '1': expected index:value",
    b"1 1: 2": "bad value in '1:': expected a number",
    b"1 qid:3 2:1": "bad feature 'qid:3': expected index:value",
    b"\x89PNG\x1a 1:1": "bad label '\\x89PNG\\x1a': expected a number",
    b"1 1:1\x00": "bad value in '1:1\\x00': expected a number",
}


@pytest.mark.parametrize("wrong", WRONG, ids=list(WRONG.values()))
def test_first_wrong_line(wrong: bytes) -> None:
    """The line is right in any chunk, and the first of several in the file is the one reported."""
    good = b"1 1:1 2:0.5 # fine\n\n"
    text = good * 50 + wrong + b"\n" + good * 20 + b"later 1:1\n0 0:0\n"
    for chunk_bytes, workers in ((16, 3), (1 << 20, 1)):
        assert error_of(text, chunk_bytes=chunk_bytes, workers=workers) == f"<stdin>:101: {WRONG[wrong]}"


def test_first_of_two_faults_in_a_chunk() -> None:
    assert "<stdin>:2: the sum" in error_of(b"1 1:1\n1 2:3e38 2:3e38\n1 x\n")
    assert "<stdin>:2: bad feature" in error_of(b"1 1:1\n1 2\n1 2:3e38 2:3e38\n")
    assert "<stdin>:4: the sum" in error_of(b"# c\n\n1 2:1 1:1\n1 2:3e38 2:3e38\n")


@pytest.mark.parametrize("text", [b"", b"# only\n# comments\n", b"  ", gzip.compress(b"", mtime=0)])
def test_no_rows(text: bytes) -> None:
    assert "no rows in it, expected svmlight text" in error_of(text)


def test_paths(tmp_path: Path) -> None:
    for path, what in ((tmp_path / "missing", "no such file"), (tmp_path, "is a directory, expected a text file")):
        with pytest.raises(InputError, match=re.escape(f"{path}: {what}")):
            parse(path)
    with pytest.raises(InputError, match="cannot be read"):
        parse("a\0b")
    with pytest.raises(InputError, match="binary stream"):
        parse(io.StringIO("1 1:1"))


@pytest.mark.parametrize("data", [b"\0" * 5000, b"1 1:1\n" + b"\0" * 5000])
def test_binary_data_without_line_ends(data: bytes) -> None:
    assert re.match(r"<stdin>:[12]: bad label '\\x00", error_of(data, chunk_bytes=64))


def test_long_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    long = b"1 " + b" ".join(b"%d:1" % i for i in range(1, 400))
    rows, _ = parse(b"1 1:1\n" * 3 + long + b"\n2 1:1\n", chunk_bytes=16)
    assert [len(entries) for _, entries in rows] == [1, 1, 1, 399, 1]
    monkeypatch.setattr(text_module, "LINE_BYTES", 1 << 10)
    assert error_of(b"1 1:1\n" * 3 + long + b"\n2 1:1\n", chunk_bytes=16).startswith("<stdin>:4: a line longer than")


# -- archives ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PACK)
def test_archives(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "no-suffix"
    path.write_bytes(PACK[kind](TEXT))
    assert parse(path)[0] == ROWS
    path.write_bytes(PACK[kind](TEXT) + PACK[kind](TEXT[12:]))  # two members make one file
    assert parse(path, chunk_bytes=16)[0] == ROWS * 2
    plain = tmp_path / f"plain.{kind}"
    plain.write_bytes(TEXT)
    assert parse(plain)[0] == ROWS


@pytest.mark.parametrize("kind", PACK)
def test_truncated_archive(kind: str) -> None:
    rng = np.random.default_rng(0)
    lines = b"".join(b"1 %d:%.5f\n" % (i + 1, v) for i, v in enumerate(rng.random(20_000)))
    packed = PACK[kind](lines)
    found = re.fullmatch(
        r"<stdin>:([0-9]+): the archive is (truncated|damaged.*)", error_of(packed[: len(packed) // 2])
    )
    assert found
    assert 1 <= int(found.group(1)) <= 20_001
    bad = lines.replace(b"\n", b"\nx\n", 1)
    assert error_of(PACK[kind](bad)[:-3]).startswith("<stdin>:2: bad label")  # what comes first is reported first


# -- streams, progress, threads ---------------------------------------------------------------------------------------


class Slow(io.RawIOBase):
    """A stream that gives a few bytes at a time, and calls ``then`` when it has given ``size``."""

    def __init__(self, data: bytes, size: int = -1, then: Callable[[], object] = int) -> None:
        self.data, self.at, self.size, self.then = data, 0, size, then

    def readable(self) -> bool:
        return True

    def readinto(self, view: Any) -> int:
        if 0 <= self.size <= self.at:
            self.then()
        part = self.data[self.at : self.at + min(len(view), 7)]
        view[: len(part)] = part
        self.at += len(part)
        return len(part)


def test_progress(tmp_path: Path) -> None:
    path, seen = tmp_path / "x", list[Any]()
    path.write_bytes(TEXT * 1000)
    parse(path, chunk_bytes=1000, progress=lambda *state: seen.append(state))
    assert seen == sorted(seen)
    assert (len(seen) > 50, seen[-1]) == (True, (len(TEXT) * 1000,) * 2)


def test_blocks_are_given_one_by_one_and_not_kept() -> None:
    text = io.BytesIO(TEXT * 100_000)
    tracemalloc.start()
    for rows in Svmlight(chunk_bytes=1 << 16, workers=2).read(text):
        assert len(rows.indices) == len(rows.values) == rows.nnz
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20  # of 7 MB of text and arrays of 9


def test_failing_read() -> None:
    def fail() -> None:
        raise OSError(5, "Input/output error")

    with pytest.raises(InputError, match=re.escape("<stdin>:2: cannot be read: Input/output error")):
        parse(Slow(b"1 1:1\n1 1:1\n", 6, fail))
    with pytest.raises(InputError, match="<stdin>:1: cannot be read"):
        parse(Slow(b"1 1:1\n", 0, fail))


def test_interrupts_and_whoever_reads_no_further_leave_no_thread() -> None:
    before = living()
    with pytest.raises(KeyboardInterrupt):
        parse(Slow(TEXT * 50, 3000, lambda: signal.raise_signal(signal.SIGINT)), chunk_bytes=64, workers=3)
    iterator = Svmlight(chunk_bytes=64).read(io.BytesIO(TEXT * 100))
    next(iterator)
    iterator.close()  # type: ignore[attr-defined]
    assert not living() - before
