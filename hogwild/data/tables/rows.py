"""Reads a table by its plan: pieces become blocks of rows on several threads, in order.

A table is read twice. The first pass finds what the plan must know about all rows: deviations of numbers, the labels'
names, and the number of features if the number of buckets is not given; the second makes the rows. Neither holds more
than a few pieces, so the table may be larger than memory; a pass over text costs about as much as parsing it.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hogwild.data.bits import MOST_BITS, check_bits
from hogwild.data.parallel import Result, in_order
from hogwild.data.tables.columns import (
    BEYOND,
    Categories,
    CellError,
    bucket_of,
    bucketed,
    date_parts,
    dates_of,
    finite,
    missing_in,
    naming,
    numbers_of,
    scaled,
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
DATE = r"^\s*\d{4}-\d\d-\d\d([T ]\d\d.*)?$"  # the first value of a column of dates
SAMPLED = 1 << 20  # numbers of a column, at most, that its buckets are made from
SURVEYED = ("numeric", "date", "bucket")  # roles for which all rows are looked at before
SEEN_AGAIN = 1.1  # rows per value from which values repeat
FEWEST_IDS = 32  # values from which their spread tells
GAP = 100  # whole numbers for each value in its range
UNEVEN = 0.1  # most distance from an even spread, as Kolmogorov measures it
NO_FIELD = np.iinfo(np.int16).max
NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"


def plan_table(
    source: TableSource,
    asked: AskedColumns,
    hash_bits: int | None,
    workers: int | None = None,
    labels: bool = True,
) -> TablePlan:
    """Make the plan of a training table: uses of columns, deviations, the labels' names, and the number of buckets.

    Raises
    ------
    InputError
        One line that names the table, and the column and line if known.
    """
    kinds, batch = source.kinds()
    plan = draft(source.name, kinds, asked, {} if batch is None else _hints(kinds, batch), labels)
    columns = []
    for column in plan.columns:
        if column.role == "date":
            zone = getattr(source.schema.field(column.name).type, "tz", None)
            column = dataclasses.replace(column, zone=zone)
        if batch is not None and column.role == "bucket":  # until all rows are known
            numbers = numbers_of(batch.column(column.name))
            edges = _edges(numbers[np.isfinite(numbers)], asked.buckets()[column.name])
            column = dataclasses.replace(column, edges=edges)
        if batch is not None and column.role == "categorical" and column.kind == "text":
            if column.name not in asked.categorical:
                _warn_of_words(source, column.name, batch.column(column.name))
        columns.append(column)
    bits = 0 if hash_bits is None else check_bits(hash_bits)
    plan = dataclasses.replace(plan, columns=tuple(columns), hash_bits=bits)
    if hash_bits is None or plan.label_kind != "number" or any(column.role in SURVEYED for column in columns):
        plan = _surveyed(plan, source, asked.buckets(), labels and bool(plan.label), workers)
    if len(plan.label_names) == 1:
        only = plan.label_names[0]
        raise InputError(f"{source.name}: column {plan.label}: every label is {only!r}, expected two or more")
    return plan


def _hints(kinds: dict[str, str], batch: Any) -> dict[str, str]:
    """Return uses that the first values show better than the type: text of dates, long texts, numbers that are names.

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
            texts = values.drop_null()
            if pc.any(pc.match_substring_regex(texts.filter(pc.invert(missing_in(texts))).slice(0, 1), DATE)).as_py():
                roles[name] = "date"
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
    import pyarrow.compute as pc

    if values.null_count == len(values):
        return
    missing = missing_in(values)
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
        self.numbers = {column.name: number for number, column in enumerate(plan.features())}
        #: The first column of each bucket's, (2^bits,) int16, or NO_FIELD, as far as blocks are taken; empty: nobody
        #: asks.
        self.fields = np.empty(0, np.int16)
        self.categories = {column.name: Categories(column, bits) for column in plan.of_role("categorical")}
        self.numeric, self.texts = plan.of_role("numeric"), plan.of_role("text")
        self.own = np.array([bucket_of(c.name, bits) for c in self.numeric], np.int32)
        self.missing = np.array([bucket_of(f"{c.name}=", bits) for c in self.numeric], np.int32)

    def types(self) -> dict[str, str]:
        """Return the columns that are read, and whether their text is read as numbers."""
        numbers = ("numeric", "bucket")
        types = {
            c.name: "number" if c.role in numbers or (c.role == "date" and c.kind in NUMBERS) else "text"
            for c in self.plan.columns
        }
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
        targets = self.targets(batch) if self.labels else np.zeros(n, np.float32)
        lengths, indices, values = self.entries(self.values(batch), n, found)
        indices, values, _, bad = sort_rows(lengths, indices, values, bits)
        if bad >= 0:
            raise CellError(bad, "the sum of values that share a bucket is beyond float32")
        weights = None if self.weight is None else self._weights(batch.column(self.weight))
        return lengths, indices, values, targets, weights

    def take(self, found: Found) -> None:
        """Take the columns of a block's buckets."""
        for column, buckets in found:
            self.fields[buckets] = np.minimum(self.fields[buckets], column)

    def values(self, batch: Any) -> dict[str, Any]:
        """Return the columns of features of a batch by name, as pyarrow arrays."""
        import pyarrow as pa
        import pyarrow.compute as pc

        values = {column.name: batch.column(column.name) for column in self.plan.columns}
        for column in self.plan.columns:
            if column.role == "date":
                with naming(column.name, "a date"):
                    values |= date_parts(dates_of(values[column.name], column), column)
            elif column.role == "bucket":
                values[column.name] = bucketed(values[column.name], column)
        written = functools.cache(lambda name: self.categories[name].texts(values[name]).cast(pa.large_string()))
        for cross in self.plan.crosses:
            with naming(cross, "categorical"):
                parts = map(written, cross.split("*"))
                values[cross] = pc.binary_join_element_wise(*parts, pa.scalar(",", pa.large_string()))
        return values

    def entries(
        self, values: dict[str, Any], n: int, found: Found | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return row lengths and the entries, still unsorted; append to ``found`` what :meth:`take` takes."""
        from hogwild.data.tables.text_kernel import lay_rows, others

        def note(name: str, buckets: np.ndarray) -> None:
            if found is not None:
                column, out = self.numbers[name], np.empty_like(buckets)
                found.append((column, out[: others(self.fields, buckets, column, out)].copy()))

        codes = np.empty((len(self.categories), n), np.int32)
        for out, (name, categories) in zip(codes, self.categories.items()):
            out[:] = categories.of(values[name])
            note(name, out)
        numbers = np.empty((len(self.numeric), n), np.float32)
        for amounts, number, *both in zip(numbers, self.numeric, self.own, self.missing):
            amounts[:] = scaled(values[number.name], number)
            there = [np.nan_to_num(amounts).any(), np.isnan(amounts).any()]
            note(number.name, np.array(both, np.int32)[there])
        starts, words = np.zeros((len(self.texts), n + 1), np.int64), [np.empty(0, np.int32)]
        for k, text in enumerate(self.texts):
            begins, codes_of_words = words_of(values[text.name], text, self.plan.hash_bits)
            starts[k] = begins + sum(map(len, words))
            note(text.name, codes_of_words)
            words.append(codes_of_words)
        flat = np.concatenate(words)
        room = n * (len(codes) + len(numbers)) + len(flat)
        lengths = np.empty(n, np.int64)
        indices = np.empty(room, np.int32)
        entries = np.empty(room, np.float32)
        used = lay_rows(codes, numbers, self.own, self.missing, starts, flat, lengths, indices, entries)
        return lengths, indices[:used], entries[:used]

    def targets(self, batch: Any) -> np.ndarray:
        """Return targets (n,) float32."""
        import pyarrow.compute as pc

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


#: Count, mean, sum of squares about the mean, and least of some numbers.
Moments = tuple[int, float, float, float]


def _surveyed(
    plan: TablePlan, source: TableSource, buckets: dict[str, int], labels: bool, workers: int | None
) -> TablePlan:
    """Make the first pass, which finds what a plan must know about all rows; return the complete plan."""
    from hogwild.data.text.hashing import mark_buckets

    looked = dataclasses.replace(plan, hash_bits=plan.hash_bits or COUNTED_BITS)
    if plan.hash_bits:  # features need not be counted
        few = tuple(column for column in plan.columns if column.role in SURVEYED)
        looked = dataclasses.replace(looked, columns=few, crosses=())
    reader = Reader(looked, source, labels, weighted=False)

    def look(batch: Any) -> tuple[list[Moments], list[np.ndarray], np.ndarray, set[str]]:
        values, names = reader.values(batch), set[str]()
        if labels and plan.label_kind != "number":
            names = set(written_labels(batch.column(plan.label).unique()).to_pylist()) - {""}
        return (
            [_moments(finite(values[column.name], column.name)) for column in reader.numeric],
            [finite(batch.column(name), name) for name in buckets],
            np.empty(0, np.int32) if plan.hash_bits else reader.entries(values, batch.num_rows)[1],
            names,
        )

    seen, used = np.zeros(2**COUNTED_BITS >> 3, np.uint8), 0
    moments: list[Moments] = [(0, 0.0, 0.0, np.inf)] * len(reader.numeric)
    samples, rows, stride = [np.empty(0)] * len(buckets), 0, 1  # numbers of every stride-th row
    names: set[str] = set()
    for facts, numbers, codes, labels_there in reader.each(look, workers):
        moments = [_merged(*pair) for pair in zip(moments, facts)]
        samples = [np.append(sample, each[-rows % stride :: stride]) for sample, each in zip(samples, numbers)]
        if samples:
            rows += len(numbers[0])
            while len(samples[0]) > SAMPLED:
                samples, stride = [sample[::2] for sample in samples], 2 * stride
        used += mark_buckets(seen, codes)
        names |= labels_there
        if len(names) > MOST_LABELS:
            raise InputError(
                f"{source.name}: column {plan.label}: more than {MOST_LABELS:,} labels, such as {min(names)!r}"
            )
    known = dict(zip((column.name for column in reader.numeric), moments))
    sampled = dict(zip(buckets, samples))
    columns = []
    for column in plan.columns:
        if column.role == "bucket":
            column = dataclasses.replace(column, edges=_edges(sampled[column.name], buckets[column.name]))
        elif column.role in SURVEYED:
            age = column.role == "date"
            count, mean, spread, least = known[f"{column.name}.age" if age else column.name]
            deviation = _deviation(f"{source.name}: column {column.name}", count, mean, spread)
            column = dataclasses.replace(column, deviation=deviation, latest=-least if age and count else 0.0)
        columns.append(column)
    bits = plan.hash_bits or _enough(collisions(COUNTED_BITS, used)["features"])
    return dataclasses.replace(plan, columns=tuple(columns), label_names=_label_names(plan, names), hash_bits=bits)


def _label_names(plan: TablePlan, names: set[str]) -> tuple[str, ...]:
    """Return the labels in the order of their targets; booleans as the table writes them."""
    if plan.label_kind == "number":
        return ()
    if plan.label_kind == "text":
        return tuple(sorted(names))
    spelling = {name.lower(): name for name in sorted(names)}
    return tuple(spelling.get(name, name) for name in BOOLEANS)


def _edges(numbers: np.ndarray, count: int) -> tuple[float, ...]:
    """Return the limits between ``count`` buckets with about as many numbers each; fewer where numbers repeat."""
    numbers = numbers[~np.isnan(numbers)]
    if not len(numbers):
        return ()
    return tuple(np.unique(np.quantile(numbers, np.arange(1, count) / count, method="higher")).tolist())


def _deviation(column: str, count: int, mean: float, spread: float) -> float:
    deviation = float(np.sqrt(spread / count)) if count else 0.0
    if not np.isfinite(deviation):
        raise InputError(f"{column}: the squares of its numbers are beyond float64")
    if deviation <= 1e-12 * abs(mean):  # constant up to rounding
        return abs(mean) or 1.0
    return deviation


def _moments(numbers: np.ndarray) -> Moments:
    numbers = numbers[~np.isnan(numbers)]
    if not len(numbers):
        return 0, 0.0, 0.0, np.inf
    with np.errstate(over="ignore", invalid="ignore"):  # _deviation refuses the result
        mean = float(numbers.mean())
        return len(numbers), mean, float(((numbers - mean) ** 2).sum()), float(numbers.min())


def _merged(one: Moments, other: Moments) -> Moments:
    """Combine the moments of two sets (Chan, Golub, LeVeque 1979)."""
    count = one[0] + other[0]
    if one[0] == 0 or other[0] == 0:
        return other if one[0] == 0 else one
    shift = other[1] - one[1]
    spread = one[2] + other[2] + shift * shift * one[0] * other[0] / count
    return count, one[1] + shift * other[0] / count, spread, min(one[3], other[3])


def _enough(features: int) -> int:
    """Return a number of bits, within the usual range, that leaves four of five features a bucket of their own."""
    bits = FEWEST_BITS
    while bits < min(USUAL_BITS, MOST_BITS) and 1.0 - np.exp(-features / 2**bits) > ROOMY:
        bits += 1
    return bits
