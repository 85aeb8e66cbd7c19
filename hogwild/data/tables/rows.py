"""Reads a table by its plan: batches become blocks of rows on several threads, in order.

A table is read twice. The first pass finds what the plan must know about all rows: deviations of numbers, the labels'
names, and the number of features if the number of buckets is not given; the second makes the rows. Neither holds more
than a few batches, so the table may be larger than memory; a pass over text costs about as much as parsing it.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hogwild.data.bits import check_bits
from hogwild.data.parallel import Result, in_order
from hogwild.data.tables.arrays import (
    CellError,
    buckets_of,
    feature_arrays,
    finite,
    missing_in,
    naming,
    numbers_of,
    plain,
    refuse,
    scaled,
    texts_of,
    words_of,
)
from hogwild.data.tables.column import BEYOND, NUMERIC, TableColumn, bucket_of
from hogwild.data.tables.files import Place, TableSource, check_names
from hogwild.data.tables.plan import MOST_LABELS, AskedColumns, TablePlan, draft, shown
from hogwild.data.text.hashing import enough_bits, sort_rows
from hogwild.errors import HogwildWarning, InputError

COUNTED_BITS = 24  # buckets used to count features
USUAL_BITS = 18, 24  # limits of the default
WORDY = 4.0  # mean words per value from which a column is text rather than categories
EXACT = 2**53  # larger whole numbers are taken as names, not amounts
ID_WORDS = {"id", "ids", "code", "zip", "zipcode"}  # last words of the names of columns whose numbers are names
DATE = r"^\s*\d{4}-\d\d-\d\d([T ]\d\d.*)?$"  # the first value of a column of dates
OTHER_DATE = r"\s*(\d{1,2}([./])\d{1,2}\2\d{4}|\d{4}/\d{1,2}/\d{1,2})([ T]|$)"  # not ISO 8601's
SAMPLED = 1 << 23  # numbers, at most, that deviations and buckets are made from
SURVEYED = ("numeric", "date", "bucket")  # roles for which all rows are looked at before
SEEN_AGAIN = 1.1  # rows per value from which values repeat
FEWEST_IDS = 32  # values from which their spread tells
GAP = 100  # whole numbers for each value in its range
UNEVEN = 0.1  # most distance from an even spread, as Kolmogorov measures it
NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"
BOOLEANS = ("false", "true")

#: Lengths (n,) int64, indices and values (entries,), targets (n,) and weights (n,) of rows: what a sink appends.
Block = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]


class Reader:
    """Makes rows from batches by a plan; several threads use it at once. Without a label in it, targets are 0."""

    def __init__(self, plan: TablePlan) -> None:
        self.plan = plan
        self.features = plan.features()
        #: The first column of each bucket's, (2^bits,) uint16, as far as blocks are taken, or 65,535; empty: unused.
        self.fields = np.empty(0, np.uint16)

    def each(self, source: TableSource, make: Callable[[Any], Result]) -> Iterator[Result]:
        """Yield ``make(batch)`` of the table's batches in order, made on several threads."""
        plan = self.plan
        amounts = ("numeric", "bucket")
        numbers = {c.name: c.role in amounts or (c.role == "date" and c.kind in NUMERIC) for c in plan.columns}
        if plan.label:
            numbers[plan.label] = plan.label_kind == "number"
        if plan.weight is not None:
            numbers[plan.weight] = True

        def work(piece: tuple[Any, Place]) -> Result:
            batch, place = piece
            try:
                source.check(batch)
                return make(batch)
            except CellError as error:
                raise InputError(f"{place(error.row)}: {error}") from None

        return in_order(source.batches(numbers), work)

    def block(self, batch: Any) -> tuple[Block, np.ndarray]:
        """Return the rows of a batch, and the buckets and columns (fresh, 2) that are to be noted in ``fields``."""
        n = batch.num_rows
        targets = self.targets(batch) if self.plan.label else np.zeros(n, np.float32)
        lengths, indices, values, fresh = self.entries(self.arrays(batch), n)
        indices, values, _, bad = sort_rows(lengths, indices, values, self.plan.hash_bits)
        if bad >= 0:
            raise CellError(bad, "the sum of values that share a bucket is beyond float32")
        weights, name = None, self.plan.weight
        if name is not None:
            weights = self._amounts(batch, name, "weight")
            refuse(weights < 0, f"column {name}: the weight is negative")
        return (lengths, indices, values, targets, weights), fresh

    def arrays(self, batch: Any) -> dict[str, Any]:
        """Return the columns of features of a batch by name, as pyarrow arrays."""
        import pyarrow as pa
        import pyarrow.compute as pc

        arrays: dict[str, Any] = {}
        for column in self.plan.columns:
            arrays |= feature_arrays(batch.column(column.name), column)
        features = {feature.name: feature for feature in self.features}
        texts = functools.cache(lambda name: texts_of(arrays[name], features[name]))
        for cross in self.plan.crosses:
            with naming(cross, "categorical"):
                parts = map(texts, cross.split("*"))
                arrays[cross] = pc.binary_join_element_wise(*parts, pa.scalar(",", pa.large_string()))
        return arrays

    def entries(self, arrays: dict[str, Any], n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return row lengths, unsorted entries, and buckets whose column is before theirs in ``fields``."""
        from hogwild.data.tables.text_kernel import WORDS, lay_rows

        bits, shape = self.plan.hash_bits, (len(self.features), n)
        codes, amounts = np.full(shape, WORDS, np.int32), np.ones(shape, np.float32)
        starts, words = np.zeros((shape[0], n + 1), np.int64), [np.empty(0, np.int32)]
        for k, column in enumerate(self.features):
            values = arrays[column.name]
            if column.role == "categorical":
                codes[k] = buckets_of(values, column, bits)
            elif column.role == "numeric":
                numbers = scaled(values, column)
                missing = np.isnan(numbers)
                own = np.where(numbers == 0, -1, bucket_of(column.name, bits))
                codes[k] = np.where(missing, bucket_of(f"{column.name}=", bits), own)
                amounts[k] = np.where(missing, np.float32(1.0), numbers)
            else:
                begins, each = words_of(values, column, bits)
                starts[k] = begins + sum(map(len, words))
                words.append(each)
        room = codes.size + int(starts[:, -1].max(initial=0))
        lengths, indices, entries = np.empty(n, np.int64), np.empty(room, np.int32), np.empty(room, np.float32)
        fresh = np.empty((room if len(self.fields) else 0, 2), np.int32)
        flat = np.concatenate(words)
        used, news = lay_rows(codes, amounts, starts, flat, self.fields, lengths, indices, entries, fresh)
        return lengths, indices[:used], entries[:used], fresh[:news].copy()

    def targets(self, batch: Any) -> np.ndarray:
        """Return targets (n,) float32."""
        import pyarrow as pa
        import pyarrow.compute as pc

        plan = self.plan
        if plan.label_kind == "number":
            return self._amounts(batch, plan.label, "label")
        texts, names = self.label_texts(batch), plan.label_names
        if plan.label_kind == "boolean":
            texts, names = pc.utf8_lower(texts), (*BOOLEANS, "0", "1")
        refuse(np.asarray(pc.equal(texts, "")), f"column {plan.label}: the label is missing")
        places = pc.index_in(texts, pa.array(names, texts.type))
        if places.null_count:
            unknown = np.asarray(places.is_null())
            label = texts[int(np.argmax(unknown))].as_py()
            refuse(unknown, f"column {plan.label}: label {label!r} is none of the known: {shown(plan.label_names)}")
        return (np.asarray(places) % len(plan.label_names)).astype(np.float32)

    def label_texts(self, batch: Any) -> Any:
        """Return labels as large strings, empty where they are missing."""
        return texts_of(batch.column(self.plan.label), TableColumn(self.plan.label, "label", "text"))

    def _amounts(self, batch: Any, name: str, what: str) -> np.ndarray:
        numbers = finite(plain(batch.column(name)), name)
        refuse(np.isnan(numbers), f"column {name}: the {what} is missing")
        refuse(np.abs(numbers) >= BEYOND, f"column {name}: the {what} is beyond float32")
        return numbers.astype(np.float32)


# -- the plan of a training table -------------------------------------------------------------------------------------


def plan_table(source: TableSource, asked: AskedColumns, hash_bits: int | None, labels: bool = True) -> TablePlan:
    """Make the plan of a training table: uses of columns, deviations, the labels' names, and the number of buckets.

    Raises
    ------
    InputError
        One line that names the table, and the column and line if known.
    """
    kinds, piece = source.kinds()
    batch, place = piece or (None, str)
    values = {} if batch is None else dict(zip(batch.schema.names, batch.columns))
    hints = {name: role for name in values if (role := _hint(name, kinds[name], values[name]))}
    plan = draft(source.name, kinds, asked, hints, labels)
    check_names([feature.name for feature in plan.features()], source.name)  # parts of dates and crosses, too
    columns = []
    for column in plan.columns:
        if column.role == "date":
            column = dataclasses.replace(column, zone=getattr(source.schema.field(column.name).type, "tz", None))
        if column.role == "bucket" and values:  # until all rows are known
            column = _fitted(column, numbers_of(plain(values[column.name])), asked.buckets, source.name)
        if column.role == "categorical" and column.kind == "text" and column.name not in asked.uses and values:
            _warn_of_words(column.name, values[column.name].cast("large_string"), place)
        columns.append(column)
    bits = 0 if hash_bits is None else check_bits(hash_bits)
    plan = dataclasses.replace(plan, columns=tuple(columns), hash_bits=bits)
    if hash_bits is None or plan.label_kind != "number" or any(column.role in SURVEYED for column in columns):
        plan = _surveyed(plan, source, asked.buckets)
    if len(plan.label_names) == 1:
        only = plan.label_names[0]
        raise InputError(f"{source.name}: column {plan.label}: every label is {only!r}, expected two or more")
    return plan


def _hint(name: str, kind: str, values: Any) -> str | None:
    """Return the use that the first values show better than the type: text of dates, long texts, numbers for names.

    Whole numbers are names beyond ``EXACT``; or if they repeat and their column is called so, or they are few for
    their range and scattered evenly over it, as amounts are not.
    """
    import pyarrow.compute as pc

    if kind == "text":
        texts = plain(values).cast("large_string").drop_null()
        words = pc.mean(pc.count_substring(pc.utf8_trim_whitespace(texts), " ")).as_py()
        first = texts.filter(pc.invert(missing_in(texts))).slice(0, 1)
        if pc.any(pc.match_substring_regex(first, DATE)).as_py():
            return "date"
        return "text" if words is not None and words + 1 >= WORDY else None
    if kind not in NUMERIC:  # whole numbers beyond 64 bits are inferred as decimals
        return None
    numbers = numbers_of(values)
    numbers = numbers[~np.isnan(numbers)]
    if not len(numbers) or np.isinf(numbers).any() or (numbers != np.floor(numbers)).any():
        return None
    different = np.unique(numbers)
    spread = different[-1] - different[0]
    called = re.split(r"[\W_]+", re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower())[-1] in ID_WORDS
    scattered = FEWEST_IDS < len(different) < spread / GAP and (
        np.abs((different - different[0]) / spread - np.linspace(0, 1, len(different))).max() < UNEVEN
    )
    repeats = len(numbers) / len(different)
    known = np.abs(different).max() > EXACT or repeats > (SEEN_AGAIN if called else 2.0 if scattered else np.inf)
    return "categorical" if known else None


def _warn_of_words(name: str, texts: Any, place: Place) -> None:
    """Warn of the first value that makes a column categorical where most are numbers, or where it is another's date."""
    import pyarrow.compute as pc

    missing = missing_in(texts)
    words = pc.invert(pc.or_(pc.match_substring_regex(texts, NUMBER), missing)).fill_null(False)
    count = pc.sum(words).as_py()
    if not count:
        return
    row = pc.index(words, True).as_py()
    value = texts[row].as_py()
    if 2 * count < len(texts) - pc.sum(missing).as_py():
        what = "is no number, though most are"
    elif re.match(OTHER_DATE, value):
        what = "is no date such as 2005-09-06 17:30"
    else:
        return
    message = f"{place(row)}: column {name}: {value!r:.40} {what}: the column is categorical"
    warnings.warn(message, HogwildWarning, stacklevel=3)


def _surveyed(plan: TablePlan, source: TableSource, buckets: dict[str, int]) -> TablePlan:
    """Make the first pass, which finds what a plan must know about all rows; return the complete plan."""
    from hogwild.data.text.hashing_kernel import mark

    looked = dataclasses.replace(plan, hash_bits=plan.hash_bits or COUNTED_BITS, weight=None)
    if plan.hash_bits:  # features need not be counted
        few = tuple(column for column in plan.columns if column.role in SURVEYED)
        looked = dataclasses.replace(looked, columns=few, crosses=())
    reader = Reader(looked)
    surveyed = [column for column in plan.columns if column.role in SURVEYED]
    seen = np.zeros(2**COUNTED_BITS, bool)  # buckets that occur

    def look(batch: Any) -> tuple[np.ndarray, set[str]]:
        arrays, names, numbers = reader.arrays(batch), set[str](), np.empty((len(surveyed), batch.num_rows))
        if plan.label_kind != "number":
            names = {*reader.label_texts(batch).unique().to_pylist()} - {""}
        if not plan.hash_bits:
            mark(seen, reader.entries(arrays, batch.num_rows)[1])
        for k, column in enumerate(surveyed):
            date = column.role == "date"
            numbers[k] = finite(arrays[f"{column.name}.age"] if date else plain(batch.column(column.name)), column.name)
        return numbers, names

    sample, rows, stride = np.empty((len(surveyed), 0)), 0, 1  # numbers of every stride-th row
    names: set[str] = set()
    for numbers, labels_there in reader.each(source, look):
        sample = np.append(sample, numbers[:, -rows % stride :: stride], axis=1)
        rows += numbers.shape[1]
        while sample.size > SAMPLED:
            sample, stride = sample[:, ::2], 2 * stride
        names |= labels_there
        if len(names) > MOST_LABELS:
            raise InputError(
                f"{source.name}: column {plan.label}: more than {MOST_LABELS:,} labels, such as {min(names)!r}"
            )
    facts = {c.name: _fitted(c, numbers, buckets, source.name) for c, numbers in zip(surveyed, sample)}
    columns = tuple(facts.get(column.name, column) for column in plan.columns)
    labels = sorted(names)
    if plan.label_kind == "boolean":
        spelling = {name.lower(): name for name in labels}  # as the table writes them
        labels = [spelling.get(name, name) for name in BOOLEANS]
    bits = plan.hash_bits or enough_bits(int(np.count_nonzero(seen)), COUNTED_BITS, *USUAL_BITS)
    return dataclasses.replace(plan, columns=columns, label_names=tuple(labels), hash_bits=bits)


def _fitted(column: TableColumn, numbers: np.ndarray, buckets: dict[str, int], name: str) -> TableColumn:
    """Return a column with the facts of its numbers, which for a date are its ages at ``latest`` 0."""
    numbers = numbers[np.isfinite(numbers)]
    if column.role == "bucket":  # about as many numbers each; fewer buckets where numbers repeat
        shares = np.arange(1, buckets[column.name]) / buckets[column.name]
        edges = np.unique(np.quantile(numbers, shares, method="higher")) if len(numbers) else numbers
        return dataclasses.replace(column, edges=tuple(edges.tolist()))
    mean, deviation = (float(numbers.mean()), float(numbers.std())) if len(numbers) else (0.0, 0.0)
    if not np.isfinite(deviation):
        raise InputError(f"{name}: column {column.name}: the squares of its numbers are beyond float64")
    if deviation <= 1e-12 * abs(mean):  # constant up to rounding
        deviation = abs(mean) or 1.0
    latest = float(-numbers.min()) if column.role == "date" and len(numbers) else 0.0
    return dataclasses.replace(column, deviation=deviation, latest=latest)
