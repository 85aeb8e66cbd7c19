"""Reads svmlight (LIBSVM) text, plain or compressed, into arrays, and writes it: ``label index:value ... [# comment]``.

A row may have several labels, whole numbers with commas between them (``1,5,7 1:0.5``), if one in the first megabyte
has; then a row that begins with its first feature has none. The kernel leaves labels with commas to Python, which takes
some 2 us for each.

libffm's ``label field:index:value ...`` is known by its first feature. A feature has one field, so the fields are an
array by feature; a feature that comes in another field (of hashed data, by chance) stays in its first one.

This thread reads, and several threads parse chunks of a megabyte, each into at most six bytes of arrays for a byte of
text. So decompression overlaps with parsing, and the first wrong line of the file is the one that is reported. Line
numbers cost nothing until one is needed: a chunk knows how many lines it has.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import os
import re
from collections.abc import Iterator
from typing import IO, BinaryIO, NamedTuple

import numpy as np

from hogwild.data.parallel import BytesRead, in_order
from hogwild.data.rows.container import INDEX_LIMIT, MOST_FIELDS, Rows, shortest
from hogwild.data.rows.container import chunks as row_chunks
from hogwild.data.rows.labels import EXACT, LabelSets, tabulated, target_of
from hogwild.data.text.hashing import LARGEST, sort_rows
from hogwild.data.text.lines import ReadError, Source, bad_number, chunks, count_of, quoted
from hogwild.errors import InputError

CHUNK_BYTES = 1 << 20  # of text: with its arrays it stays in a core's second-level cache
STREAM_BYTES = 4 << 20  # metrics of a block take milliseconds, whatever its size
MOST_WORKERS = 8  # a single thread reads, and could not supply more
TOKEN = re.compile(rb"[^ \t\n\v\f\r#]*")
SEVERAL = re.compile(rb"^[ \t]*\d{1,8}(,\d{1,8})+(?=\s|$)", re.MULTILINE)
MOST_LABELS = 1 << 16  # different ones that are listed; a model takes fewer
FEATURES = re.compile(rb"^[^#\n]*:[^\n]*", re.MULTILINE)  # a row that has some
FIELDED = re.compile(rb"\s*(?:[^\s:]+\s+)?\d+:\d+:")

#: Lengths (n,) int64, indices (nnz,) int32, values (nnz,) float32 and targets (n,) float32 of some rows.
Block = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class Fault(Exception):
    """What is wrong in a chunk, and the line of the chunk."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line


class Chunk(NamedTuple):
    """What a chunk of text holds; lines are those of the chunk."""

    block: Block
    lines: int
    width: int
    repeats: int  # rows with repeated features
    noted: tuple[np.ndarray, np.ndarray] | None  # arguments of ``_note``
    several: list[tuple[int, tuple[int, ...]]]  # row and labels of those with a comma, whose target is NaN
    names: np.ndarray  # (k,) float32 labels of rows with one, where rows have several
    fault: Fault | None  # the first thing that is wrong


class Svmlight:
    """A text that is read once, and what it holds, known of the rows so far.

    Parameters
    ----------
    zero_based : bool
        Indices count from 0 rather than 1. Those of the rows count from 0 either way.
    width : int, optional
        Number of features; one at or beyond it is an error.
    labels : "required", "optional" or "several"
        Whether a row may begin with its first feature; its target is then 0. Blank lines are not rows either way.
        "several": rows have any number of labels; with "required", a row of the first chunk that has several says so.
    hash_bits : int, optional
        Hash indices, which may then be any below 2^64, to ``2**hash_bits`` features (see ``data/text/hashing.py``).
    workers : int, optional
        Threads that parse; by default one for each core available to this process, up to 8.
    streamed : bool
        Whether each block of rows has its own sets of labels, and more text.
    chunk_bytes : int, optional
        Text that one thread takes at a time (1 MiB, or 4); a longer line gets a larger chunk, up to 20 MiB.
    progress : callable, optional
        Called from this thread with (bytes of the source done, their total or None for a stream).

    Attributes
    ----------
    rows, nnz : int
    width : int
        The given or hashed one, else the largest index + 1.
    repairs : dict
        Numbers of ``duplicate_rows``, with a repeated feature, whose values were summed (not counted if hashed), and of
        ``moved_entries``, in another field than the feature's before, which is ignored.
    fields : array, shape (features so far,) int16, or None
        Where features are written field:feature:value.
    """

    def __init__(
        self,
        *,
        zero_based: bool = False,
        width: int | None = None,
        labels: str = "required",
        hash_bits: int | None = None,
        workers: int | None = None,
        streamed: bool = False,
        chunk_bytes: int | None = None,
        progress: BytesRead | None = None,
    ) -> None:
        self.pinned = width if hash_bits is None else 1 << hash_bits
        self.limit = INDEX_LIMIT if self.pinned is None else self.pinned
        self.base = 0 if zero_based else 1
        self.labels, self.hash_bits, self.progress = labels, hash_bits, progress
        self.workers = workers or min(len(os.sched_getaffinity(0)), MOST_WORKERS)
        self.streamed = streamed
        self.chunk = max(chunk_bytes or (STREAM_BYTES if streamed else CHUNK_BYTES), 16)
        self.fielded = False
        self.rows = self.nnz = 0
        self.repairs = {"duplicate_rows": 0, "moved_entries": 0}
        self.width = self.pinned or 0
        self.fields: np.ndarray | None = None
        self.several = labels == "several"
        self._names = np.empty(0, np.float32)
        self._sets: dict[tuple[int, ...], int] = {}

    def sets(self) -> LabelSets | None:
        """Return the sets of labels that targets stand for, of rows since the last call; None: each row has one label.

        Raises
        ------
        InputError
            If there are too many.
        """
        if not self.several:
            return None
        sets = tabulated(self._sets, np.union1d(self._names, list(itertools.chain.from_iterable(self._sets))))
        self._sets = {}
        return sets

    def read(self, path: str | os.PathLike[str] | BinaryIO) -> Iterator[Rows]:
        """Yield the rows in file order, a chunk at a time.

        Parameters
        ----------
        path : path or binary stream
            Text, plain or compressed by gzip, bzip2 or xz. A stream is read to its end and left open.

        Raises
        ------
        InputError
            ``name:line: what`` for the first wrong line, a damaged archive or a file without rows; ``name: what`` for a
            path that cannot be opened.
        """
        self.parse(bytearray(b"0\n"), 2)  # compiles the kernel in this thread, where Ctrl-C is noticed
        line = 0
        with contextlib.closing(Source(path, self.progress)) as source:

            def pieces() -> Iterator[tuple[bytearray, int, str]]:
                try:
                    for number, (text, size) in enumerate(chunks(source, self.chunk)):
                        if number == 0 and (row := FEATURES.search(text, 0, size)):
                            self.fielded = FIELDED.match(row.group()) is not None
                        if number == 0 and self.labels == "required" and text.find(b",", 0, size) >= 0:
                            self.several = SEVERAL.search(text, 0, size) is not None  # which takes 10 ms
                        yield text, size, ""
                except ReadError as error:
                    yield bytearray(), 0, str(error)

            def work(piece: tuple[bytearray, int, str]) -> Chunk:
                text, size, failure = piece
                if failure:
                    raise Fault(1, failure)
                return self.parse(text, size)

            try:
                for chunk in in_order(pieces(), work, self.workers):
                    if chunk.fault is not None:
                        raise chunk.fault
                    if self.several:
                        self._number(chunk)
                    line += chunk.lines
                    self.rows += len(chunk.block[0])
                    self.nnz += len(chunk.block[1])
                    self.repairs["duplicate_rows"] += chunk.repeats
                    if self.pinned is None:
                        self.width = max(self.width, chunk.width)
                    if chunk.noted is not None:
                        self._note(*chunk.noted)
                    sets = self.sets() if self.streamed else None
                    yield Rows.of_lengths(*chunk.block, width=self.width, hash_bits=self.hash_bits, labels=sets)
            except Fault as fault:
                raise InputError(f"{source.label}:{line + fault.line}: {fault}") from None
            if self.rows == 0:
                raise InputError(f"{source.label}:{max(line, 1)}: no rows in it, expected svmlight text")

    def parse(self, text: bytearray, size: int) -> Chunk:
        """Return what the whole lines in ``text[:size]`` hold."""
        from hogwild.data.text import parse_kernel as parse

        colons, lines = (count_of(text, mark, size) for mark in (b":", b"\n"))  # most features and rows there can be
        lengths, targets = np.empty(lines, np.int64), np.zeros(lines, np.float32)
        indices, values = np.empty(colons, np.int32), np.empty(colons, np.float32)
        fields = np.empty(colons if self.fielded else 0, np.int16)
        doubtful = np.empty((lines + colons + 1, 2), np.int64)
        options = self.base, self.limit, self.hash_bits or 0
        with np.errstate(over="ignore"):  # the hash wraps, which is only visible with the JIT off
            rows, width, falls, doubts = parse.parse_rows(
                text, size, *options, lengths, indices, values, targets, fields, doubtful
            )
        fault, lists = None, self.several or self.labels == "optional"
        several: list[tuple[int, tuple[int, ...]]] = []
        for place, start in doubtful[:doubts].tolist():
            token = bytes(TOKEN.match(text, start).group())  # type: ignore[union-attr]  # at least an empty one
            listed = place < 0 and lists and SEVERAL.fullmatch(token)
            if listed and max(found := {*map(int, token.split(b","))}) < EXACT:
                several.append((-1 - place, tuple(sorted(found))))
                targets[-1 - place] = math.nan
                continue
            if what := self._complaint(token, label=place < 0):
                fault = Fault(text.count(b"\n", 0, start) + 1, what)
                break
            number = float(token.rpartition(b":")[2])
            if place < 0:
                targets[-1 - place] = number
            else:
                values[place] = number
        labels = targets[: rows + (fault is not None)]  # with that of a row which a fault may have ended
        wrong, names = np.isnan(labels), np.empty(0, np.float32)  # those without a label, or with several
        if self.several:
            names = np.unique(labels[~wrong])
            wrong = ~wrong & ~((labels >= 0) & (labels < EXACT) & (np.floor(labels) == labels))
        if self.labels == "optional":
            labels[wrong] = 0.0
        elif wrong.any():
            line = line_of(text[:size], row := int(np.argmax(wrong)))
            if fault is None or line <= fault.line:
                label = TOKEN.match(text[:size].split(b"\n")[line - 1].lstrip())
                what = f"label {shortest(labels[row])} where rows have several: expected whole numbers from 0"
                if not self.several:
                    what = self._complaint(bytes(label.group()), label=True)  # type: ignore[union-attr]
                fault = Fault(line, what)
        lengths, targets = lengths[:rows], targets[:rows]
        nnz, repeats = int(lengths.sum()), 0
        noted = (indices[:nnz].copy(), fields[:nnz]) if self.fielded else None
        indices, values = indices[:nnz], values[:nnz]
        if self.hash_bits or falls:
            indices, values, repeats, bad = sort_rows(lengths, indices, values, self.hash_bits or width.bit_length())
            if bad >= 0 and (fault is None or line_of(text[:size], bad) < fault.line):
                whose = "one bucket's" if self.hash_bits else "a repeated feature's"
                fault = Fault(line_of(text[:size], bad), f"the sum of {whose} values is beyond float32")
        repeats = 0 if self.hash_bits else repeats
        block = lengths, indices, values, targets
        return Chunk(block, lines, width, repeats, noted, several, names, fault)

    def _number(self, chunk: Chunk) -> None:
        """Note the labels of a chunk, and set its targets."""
        targets = chunk.block[3]
        if len(self._names) < MOST_LABELS:
            self._names = np.union1d(self._names, chunk.names)
        for row, members in chunk.several:
            targets[row] = target_of(members, self._sets)
        if (bare := np.isnan(targets)).any():
            targets[bare] = target_of((), self._sets)

    def _note(self, features: np.ndarray, fields: np.ndarray) -> None:
        """Take the fields of some features, as they stand in the text: of each the first one counts."""
        known = np.empty(0, np.int16) if self.fields is None else self.fields
        top = int(features.max(initial=-1)) + 1
        if top > len(known):
            known = np.append(known, np.full(max(top, 2 * len(known)) - len(known), -1, np.int16))
        new = known[features] < 0
        known[features[new][::-1]] = fields[new][::-1]
        self.repairs["moved_entries"] += int(np.count_nonzero(known[features] != fields))
        self.fields = known

    def _complaint(self, token: bytes, label: bool) -> str:
        """Return what is wrong with a token that the kernel doubts; nothing if only its rounding is in doubt."""
        value = token
        if self.fielded and not label:
            field, _, value = token.partition(b":")
            if not (field.isdigit() and int(field[-9:]) < MOST_FIELDS and b":" in value):
                return f"bad field in {quoted(token)}: expected field:feature:value with a field below {MOST_FIELDS}"
        if label and b":" in token:
            return f"no label before {quoted(token)}, expected: label index:value ..."
        if not label:
            index, colon, value = value.partition(b":")
            if not (colon and index.isdigit()):
                return f"bad feature {quoted(token)}: expected index:value"
            feature = int(index[-400:])
            largest, digits = (LARGEST, 20) if self.hash_bits else (INDEX_LIMIT - 1 + self.base, 18)
            if len(index) > digits or feature > largest:
                hint = " (--hash-bits takes any below 2^64)" if largest < feature <= LARGEST else ""
                return f"index {quoted(index)} is beyond the largest, {largest}{hint}"
            if feature < self.base:
                return "index 0, but indices count from 1 unless the file is read as zero-based (--zero-based)"
            if not self.hash_bits and feature - self.base >= self.limit:
                return f"index {feature} is beyond the given width of {self.pinned} features"
        if label and b"," in token:
            several = "several labels need whole numbers with commas, and one such row in the first megabyte"
            return f"bad label {quoted(token)}: {several}"
        wrong = bad_number(value)
        return wrong and f"bad {'label' if label else 'value in'} {quoted(token)}: {wrong}"


def line_of(text: bytearray, row: int) -> int:
    """Return the line of a chunk, from 1, that holds its row ``row``; it is for errors, so in plain Python."""
    lines = (number for number, line in enumerate(io.BytesIO(text), 1) if line.strip()[:1] not in b"#")
    return next(itertools.islice(lines, row, None))


def write_text(rows: Rows, file: IO[bytes], fields: bool = False) -> None:
    """Write rows as svmlight text, or as libffm's with ``fields``; features count from 1.

    What is read from it are the same rows, up to features beyond the last that occurs.

    Raises
    ------
    InputError
        If text cannot hold the rows: they have weights, features without a field, or neither labels nor features.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if rows.weights is not None:
        raise InputError("text has no weights of rows: convert to a store instead")
    if fields and (rows.fields is None or (len(rows.indices) and rows.fields[rows.indices].min() < 0)):
        raise InputError("libffm's text needs a field of each feature: convert a table, or name DST .svm")
    for first, last in row_chunks(rows):
        indptr, indices, values = rows.block(first, last).flat()
        parts = [indices.astype(np.int64) + 1, values]
        if fields and rows.fields is not None:
            parts.insert(0, rows.fields[indices])
        texts = [pc.cast(pa.array(part), pa.string()) for part in parts]
        entries = pc.binary_join_element_wise(*texts, ":")
        joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(indptr, pa.int32()), entries), " ")
        labels = pa.array([shortest(target) for target in rows.targets[first:last]])
        if rows.labels is not None:
            counts, members = rows.labels.flat(rows.targets[first:last])
            if (bare := (counts == 0) & (indptr[1:] == indptr[:-1])).any():
                raise InputError(f"text cannot hold row {first + np.argmax(bare)}, without labels and features")
            ends = pa.array(np.append(0, np.cumsum(counts)), pa.int32())
            labels = pc.binary_join(pa.ListArray.from_arrays(ends, pc.cast(pa.array(members), pa.string())), ",")
        lines = pc.binary_join_element_wise(labels, joined, " ")
        file.writelines(line.rstrip().encode() + b"\n" for line in lines.to_pylist())
