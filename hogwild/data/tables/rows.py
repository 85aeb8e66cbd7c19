"""Reads a table by its plan: pieces become blocks of rows on several threads, in order.

A table is read twice. The first pass finds what the plan must know about all rows: deviations of numbers, the labels'
names, and the number of features if the number of buckets is not given; the second makes the rows. Neither holds more
than a few pieces, so the table may be larger than memory; a pass over text costs about as much as parsing it.
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from hogwild.data.bits import MOST_BITS, check_bits
from hogwild.data.parallel import Result, in_order
from hogwild.data.tables.columns import (
    BEYOND,
    Categories,
    CellError,
    bucket_of,
    finite,
    known_names,
    numbers_of,
    scaled,
    words_in,
    words_of,
)
from hogwild.data.tables.files import Piece, TableSource
from hogwild.data.tables.plan import BOOLEANS, MOST_LABELS, NUMBERS, AskedColumns, TablePlan, draft, shown
from hogwild.data.text.hashing import ROOMY, collisions, sort_rows
from hogwild.errors import HogwildWarning, InputError

COUNTED_BITS = 24  # buckets used to count features: 2 MiB of marks
FEWEST_BITS, USUAL_BITS = 18, 24  # limits of the default
WORDY = 4.0  # mean words per value from which a column is text rather than categories
EXACT = 2**53  # larger whole numbers are taken as names, not amounts
ID_WORDS = {"id", "ids", "code", "zip", "zipcode"}  # last words of the names of columns whose numbers are names
SEEN_AGAIN = 1.1  # rows per value from which values repeat
FEWEST_IDS = 32  # values from which their spread tells
GAP = 100  # whole numbers for each value in its range
UNEVEN = 0.1  # most distance from an even spread, as Kolmogorov measures it
SHARED = 3  # names shown of a bucket
NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"


def plan_table(
    source: TableSource, asked: AskedColumns, hash_bits: int | None, workers: int | None = None
) -> TablePlan:
    """Make the plan of a training table: uses of columns, deviations, the labels' names, and the number of buckets.

    Raises
    ------
    InputError
        One line that names the table, and the column and line if known.
    """
    kinds, batch = source.kinds()
    plan = draft(source.name, kinds, asked, {} if batch is None else _hints(kinds, batch))
    for column in plan.of_role("categorical"):
        if batch is not None and column.kind == "text" and column.name not in asked.categorical:
            _warn_of_words(source, column.name, batch.column(column.name))
    plan = dataclasses.replace(plan, hash_bits=0 if hash_bits is None else check_bits(hash_bits))
    numeric = plan.of_role("numeric")
    if hash_bits is None or numeric or plan.label_kind != "number":
        plan = _Survey(plan, source).of(workers)
    if len(plan.label_names) == 1:
        only = plan.label_names[0]
        raise InputError(f"{source.name}: column {plan.label}: every label is {only!r}, expected two or more")
    return plan


def _hints(kinds: dict[str, str], batch: Any) -> dict[str, str]:
    """Return uses that the first values show better than the type: long texts, and whole numbers that are names.

    Whole numbers are names beyond ``EXACT``; or if they repeat and their column is called so, or they are few for
    their range and scattered evenly over it, as amounts are not.
    """
    import pyarrow.compute as pc

    roles = {}
    for name, kind in kinds.items():
        if kind == "text" and (values := batch.column(name)).null_count < len(values):
            words = pc.mean(pc.add(pc.count_substring(pc.utf8_trim_whitespace(values), " "), 1)).as_py()
            if words is not None and words >= WORDY:
                roles[name] = "text"
        elif kind in NUMBERS:  # whole numbers beyond 64 bits are inferred as decimals
            numbers = numbers_of(batch.column(name))
            numbers = numbers[~np.isnan(numbers)]
            if not len(numbers) or np.isinf(numbers).any() or (numbers != np.floor(numbers)).any():
                continue
            values = np.unique(numbers)
            spread = values[-1] - values[0]
            called = re.split(r"[\W_]+", re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower())[-1] in ID_WORDS
            scattered = FEWEST_IDS < len(values) < spread / GAP and (
                np.abs((values - values[0]) / spread - np.linspace(0, 1, len(values))).max() < UNEVEN
            )
            repeats = len(numbers) / len(values)
            if np.abs(values).max() > EXACT or repeats > (SEEN_AGAIN if called else 2.0 if scattered else np.inf):
                roles[name] = "categorical"
    return roles


def _warn_of_words(source: TableSource, name: str, values: Any) -> None:
    """Warn of the first value that is no number in a column where most are, and that makes it categorical."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow.csv import ConvertOptions

    if values.null_count == len(values):
        return
    missing = pc.is_in(values, pa.array(ConvertOptions().null_values, values.type))
    words = pc.invert(pc.or_(pc.match_substring_regex(values, NUMBER), missing)).fill_null(False)
    count = pc.sum(words).as_py()
    if 0 < 2 * count < len(values) - pc.sum(missing).as_py():
        row = pc.index(words, True).as_py()
        source.close()  # a text is read again for the line
        warnings.warn(
            f"{source.place(row)}: column {name}: {values[row].as_py()!r} is no number, though most are: "
            "the column is categorical",
            HogwildWarning,
            stacklevel=3,
        )


#: Lengths (n,) int64, indices and values (entries,), targets (n,) and weights (n,) of rows: what a sink appends.
Block = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]
#: Columns by number, and buckets of theirs that are not known to be theirs.
Found = list[tuple[int, np.ndarray]]


class Reader:
    """Makes rows from pieces by a plan; several threads use it at once.

    Parameters
    ----------
    plan : TablePlan
    source : TableSource
    labels : bool
        Whether labels and weights are read; if not, targets are 0.
    weighted : bool
        Whether weights are read, if the plan names a column of them.
    """

    def __init__(
        self,
        plan: TablePlan,
        source: TableSource,
        labels: bool = True,
        weighted: bool = True,
    ) -> None:
        self.plan = plan
        self.source = source
        self.labels = labels
        self.weight = plan.weight if labels and weighted else None
        bits = plan.hash_bits
        self.numbers = {column.name: number for number, column in enumerate(plan.columns)}
        #: The first column of each bucket's, (2^bits,) int16, or -1, as far as blocks are taken; empty: nobody asks.
        self.fields = np.empty(0, np.int16)
        self.categories = [Categories(column, bits) for column in plan.of_role("categorical")]
        self.numeric, self.texts = plan.of_role("numeric"), plan.of_role("text")
        self.own = np.array([bucket_of(c.name, bits) for c in self.numeric], np.int32)
        self.missing = np.array([bucket_of(f"{c.name}=", bits) for c in self.numeric], np.int32)

    def types(self) -> dict[str, str]:
        """Return the columns that are read, and whether their text is read as numbers."""
        types = {c.name: "number" if c.role == "numeric" else "text" for c in self.plan.columns}
        if self.labels:
            types[self.plan.label] = "number" if self.plan.label_kind == "number" else "text"
        if self.weight is not None:
            types[self.weight] = "number"
        return types

    def each(self, make: Callable[[Any], Result], workers: int | None) -> Iterator[Result]:
        """Yield ``make(batch)`` of the table's batches in order, made on several threads."""

        def load(piece: Piece) -> Result:
            try:
                return make(self.source.load(piece))
            except CellError as error:
                raise CellError(piece[1] + error.row, str(error)) from None

        pieces = self.source.pieces(self.types())
        try:
            yield from in_order(pieces, load, workers)
        except CellError as error:
            self.source.close()  # a text is read again for the line
            raise InputError(f"{self.source.place(error.row)}: {error}") from None

    def block(self, batch: Any, found: Found | None = None) -> Block:
        n, bits = batch.num_rows, self.plan.hash_bits
        targets = self.targets(batch)
        lengths, indices, values = self._entries(batch, found)
        indices, values, _, bad = sort_rows(lengths, indices, values, bits)
        if bad >= 0:
            raise CellError(bad, "the sum of values that share a bucket is beyond float32")
        weights = None if self.weight is None else self._weights(batch.column(self.weight))
        targets = np.zeros(n, np.float32) if targets is None else targets
        return lengths, indices, values, targets, weights

    def take(self, found: Found) -> None:
        """Take the columns of a block's buckets."""
        for column, buckets in found:
            known = self.fields[buckets]
            self.fields[buckets] = np.where(known < 0, column, np.minimum(known, column))

    def _entries(self, batch: Any, found: Found | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return row lengths and the entries, still unsorted; append to ``found`` what :meth:`take` takes."""
        from hogwild.data.tables.text_kernel import lay_rows, others

        def note(name: str, buckets: np.ndarray) -> None:
            if found is not None:
                column, out = self.numbers[name], np.empty_like(buckets)
                found.append((column, out[: others(self.fields, buckets, column, out)].copy()))

        n = batch.num_rows
        codes = np.empty((len(self.categories), n), np.int32)
        for out, column in zip(codes, self.categories):
            out[:] = column.of(batch.column(column.column.name))
            note(column.column.name, out)
        numbers = np.empty((len(self.numeric), n), np.float32)
        for out, number in zip(numbers, self.numeric):
            out[:] = scaled(batch.column(number.name), number)
        for number, *both in zip(self.numeric, self.own, self.missing):
            note(number.name, np.array(both, np.int32))
        starts, words = np.zeros((len(self.texts), n + 1), np.int64), [np.empty(0, np.int32)]
        for k, text in enumerate(self.texts):
            begins, codes_of_words = words_of(batch.column(text.name), text, self.plan.hash_bits)
            starts[k] = begins + sum(map(len, words))
            note(text.name, codes_of_words)
            words.append(codes_of_words)
        flat = np.concatenate(words)
        room = n * (len(codes) + len(numbers)) + len(flat)
        lengths = np.empty(n, np.int64)
        indices = np.empty(room, np.int32)
        values = np.empty(room, np.float32)
        used = lay_rows(codes, numbers, self.own, self.missing, starts, flat, lengths, indices, values)
        return lengths, indices[:used], values[:used]

    def targets(self, batch: Any) -> np.ndarray | None:
        """Return targets (n,) float32, or None if they are not read."""
        import pyarrow.compute as pc

        if not self.labels:
            return None
        plan, values = self.plan, batch.column(self.plan.label)
        if plan.label_kind == "number":
            numbers = finite(values, plan.label)
            _refuse(np.isnan(numbers), f"column {plan.label}: the label is missing")
            _refuse(np.abs(numbers) >= BEYOND, f"column {plan.label}: the label is beyond float32")
            return numbers.astype(np.float32)
        texts, names = written_labels(values), list(plan.label_names)
        if plan.label_kind == "boolean":
            texts, names = pc.utf8_lower(texts), list(BOOLEANS)
            for digit, name in zip("01", BOOLEANS):
                texts = pc.if_else(pc.equal(texts, digit), name, texts)
        _refuse(np.asarray(pc.equal(texts, "")), f"column {plan.label}: the label is missing")
        import pyarrow as pa

        places = pc.index_in(texts, pa.array(names, texts.type))
        unknown = np.asarray(places.is_null())
        if unknown.any():
            row = int(np.argmax(unknown))
            labels = shown(plan.label_names)
            raise CellError(row, f"column {plan.label}: label {texts[row].as_py()!r} is none of the known: {labels}")
        return np.asarray(places).astype(np.float32)

    def _weights(self, values: Any) -> np.ndarray:
        weights = finite(values, str(self.weight))
        _refuse(np.isnan(weights), f"column {self.weight}: the weight is missing")
        _refuse(weights < 0, f"column {self.weight}: the weight is negative")
        _refuse(weights >= BEYOND, f"column {self.weight}: the weight is beyond float32")
        return weights.astype(np.float32)


def _refuse(wrong: np.ndarray, what: str) -> None:
    if wrong.any():
        raise CellError(int(np.argmax(wrong)), what)


def written_labels(values: Any) -> Any:
    """Return labels as an array of text, with empty text for missing ones."""
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.cast(pa.large_string()).fill_null("")


class _Survey(Reader):
    """The first pass, which finds what a plan must know about all rows."""

    def __init__(self, plan: TablePlan, source: TableSource) -> None:
        self.asked = plan
        super().__init__(dataclasses.replace(plan, hash_bits=plan.hash_bits or COUNTED_BITS), source)
        self.weight = None
        self.counting = plan.hash_bits == 0

    def types(self) -> dict[str, str]:
        types = super().types()
        if not self.counting:
            needed = {self.plan.label, *(column.name for column in self.numeric)}
            types = {name: kind for name, kind in types.items() if name in needed}
        return types

    def of(self, workers: int | None) -> TablePlan:
        """Return the complete plan."""
        from hogwild.data.text.hashing import mark_buckets

        source = self.source
        seen, used = np.zeros(2**COUNTED_BITS >> 3, np.uint8), 0
        moments = [(0, 0.0, 0.0)] * len(self.numeric)
        names: set[str] = set()
        for sums, buckets, labels in self.each(self._facts, workers):
            moments = [_merged(*pair) for pair in zip(moments, sums)]
            used += mark_buckets(seen, buckets)
            names |= labels
            if len(names) > MOST_LABELS:
                raise InputError(
                    f"{source.name}: column {self.plan.label}: more than {MOST_LABELS:,} labels, such as {min(names)!r}"
                )
        bits = self.asked.hash_bits or _enough(collisions(COUNTED_BITS, used)["features"])
        deviations = {c.name: self._deviation(c.name, *moment) for c, moment in zip(self.numeric, moments)}
        columns = tuple(
            dataclasses.replace(column, deviation=deviations.get(column.name, 1.0)) for column in self.plan.columns
        )
        names_in_order = self._label_names(names)
        return dataclasses.replace(self.asked, columns=columns, label_names=names_in_order, hash_bits=bits)

    def _facts(self, batch: Any) -> tuple[list[tuple[int, float, float]], np.ndarray, set[str]]:
        moments = []
        for column in self.numeric:
            numbers = finite(batch.column(column.name), column.name)
            numbers = numbers[~np.isnan(numbers)]
            with np.errstate(over="ignore", invalid="ignore"):  # _deviation refuses the result
                mean = float(numbers.mean()) if len(numbers) else 0.0
                moments.append((len(numbers), mean, float(((numbers - mean) ** 2).sum())))
        labels: set[str] = set()
        if self.plan.label_kind != "number":
            labels = set(written_labels(batch.column(self.plan.label).unique()).to_pylist()) - {""}
        return moments, self._entries(batch)[1] if self.counting else np.empty(0, np.int32), labels

    def _label_names(self, names: set[str]) -> tuple[str, ...]:
        """Return the labels in the order of their targets; booleans as the table writes them."""
        if self.plan.label_kind == "number":
            return ()
        if self.plan.label_kind == "text":
            return tuple(sorted(names))
        spelling = {name.lower(): name for name in sorted(names)}
        return tuple(spelling.get(name, name) for name in BOOLEANS)

    def _deviation(self, column: str, count: int, mean: float, spread: float) -> float:
        deviation = float(np.sqrt(spread / count)) if count else 0.0
        if not np.isfinite(deviation):
            raise InputError(f"{self.source.name}: column {column}: the squares of its numbers are beyond float64")
        if deviation <= 1e-12 * abs(mean):  # constant up to rounding
            return abs(mean) or 1.0
        return deviation


def _merged(one: tuple[int, float, float], other: tuple[int, float, float]) -> tuple[int, float, float]:
    """Combine count, mean and sum of squares about the mean of two sets (Chan, Golub, LeVeque 1979)."""
    count = one[0] + other[0]
    if one[0] == 0 or other[0] == 0:
        return other if one[0] == 0 else one
    shift = other[1] - one[1]
    return count, one[1] + shift * other[0] / count, one[2] + other[2] + shift * shift * one[0] * other[0] / count


def _enough(features: int) -> int:
    """Return a number of bits, within the usual range, that leaves four of five features a bucket of their own."""
    bits = FEWEST_BITS
    while bits < min(USUAL_BITS, MOST_BITS) and 1.0 - np.exp(-features / 2**bits) > ROOMY:
        bits += 1
    return bits


def read_blocks(
    source: TableSource,
    plan: TablePlan,
    labels: bool = True,
    weighted: bool = True,
    workers: int | None = None,
) -> Iterator[Block]:
    """Yield the table's rows by its plan, in blocks.

    Raises
    ------
    InputError
        One line that names the table and the column, and the line if known.
    """
    reader = Reader(plan, source, labels, weighted)
    yield from reader.each(reader.block, workers)


def names_in(source: TableSource, plan: TablePlan, buckets: Iterable[int]) -> dict[int, list[str]]:
    """Return up to ``SHARED`` names, such as ``site=example.org``, of each bucket that the table's features have.

    Words and pairs are looked up where they first occur in a piece.
    """
    wanted = np.zeros(2**plan.hash_bits, np.bool_)
    wanted[list(buckets)] = True
    names = {bucket: texts for bucket, texts in known_names(plan).items() if wanted[bucket]}
    reader = Reader(plan, source, labels=False)

    def look(batch: Any) -> list[tuple[int, str]]:
        pairs = []
        for column in reader.categories:
            values, name = batch.column(column.column.name), column.column.name
            at = np.flatnonzero(wanted[column.of(values)])
            texts = [f"{name}={text}" for text in column.texts(values.take(at)).unique().to_pylist()]
            pairs += [(bucket_of(text, plan.hash_bits), text) for text in texts]
        for text in reader.texts:
            begins, codes = words_of(batch.column(text.name), text, plan.hash_bits)
            for code, at in zip(*np.unique(codes, return_index=True)):
                if wanted[code]:
                    row = int(np.searchsorted(begins, at, side="right")) - 1
                    word = words_in(batch.column(text.name)[row].as_py())[at - begins[row]]
                    pairs.append((int(code), f"{text.name}={word}"))
        return pairs

    for pairs in reader.each(look, None):
        for bucket, text in pairs:
            texts = names.setdefault(bucket, [])
            if text not in texts and len(texts) < SHARED:
                texts.append(text)
    return names
