"""How a table's columns become features: the user's options, and the plan that a store and a model keep.

The plan is data in JSON types, made once from the training table and carried by its rows, its store and its model.
Tables read later, for testing or prediction, are read by the plan alone, so a column is never a number in one table and
a category in another.

A category is the feature ``column=value``, a missing one ``column=``; likewise a word of text and a pair of
neighbouring words. A number is the feature ``column``, its value divided by the standard deviation in the training
table; a missing number is 0, and the feature ``column=`` indicates it. All are hashed to ``2**hash_bits``: FNV-1a of
the UTF-8 bytes, 64 bits, then the hash of ``data/text/hashing.py``. A number in a categorical column is hashed as its
text.

Other columns of features are made from the table's: a date's ``time.hour``, ``time.weekday`` and ``time.month`` are
categories, its ``time.age`` a number, in days before the latest date of training. A bucket is a category named by its
limits, ``price=10..12.5``; a cross is one of its parts' values, ``device*country=phone,DE``.
"""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hogwild.data.bits import check_bits
from hogwild.data.tables.column import NUMERIC, TableColumn, bucket_of
from hogwild.errors import InputError, UsageError, nearest

ROLES = ("categorical", "numeric", "text", "date", "bucket")
#: Description of each kind of column, for messages.
KINDS = {
    "text": "text",
    "boolean": "booleans",
    "whole": "whole numbers",
    "number": "numbers",
    "category": "categories",
    "empty": "nothing",
    "day": "dates",
    "date": "times",
    "clock": "times of day or durations",
    "nested": "lists or values of another odd type",
    "binary": "bytes",
}
LABELS = ("text", "boolean", "whole", "number", "category", "empty")
AMOUNTS = ("boolean", "whole", "number", "empty")
#: Kinds of columns that each use takes.
TAKEN = {
    "categorical": (*LABELS, "day", "date", "clock"),
    "numeric": AMOUNTS,
    "text": ("text", "category", "empty"),
    "date": ("day", "date", "text", "category", "empty", *NUMERIC),
    "bucket": AMOUNTS,
    "label": LABELS,
    "weight": AMOUNTS,
    "ignore": tuple(KINDS),
}
MOST_BUCKETS = 10_000
LATER = ("edges", "latest", "zone", "separator", "crosses")  # facts that plans of old lack, written where they are set
MOST_CROSSED = 10  # categories whose pairs "all" crosses
SHOWN = 20  # names shown in a message
MOST_LABELS = 10_000


@dataclass(frozen=True)
class AskedColumns:
    """A user's options for a table's columns.

    Attributes
    ----------
    label : str, optional
    weight : str, optional
    uses : dict
        The use of each column that was named, one of ``TAKEN``.
    buckets : dict
        Number of buckets by column.
    crosses : tuple of str
        Such as ``device*country``; or ``all``, every pair of categories.
    """

    label: str | None = None
    weight: str | None = None
    uses: dict[str, str] = field(default_factory=dict)
    buckets: dict[str, int] = field(default_factory=dict)
    crosses: tuple[str, ...] = ()

    @classmethod
    def of(cls, label: str | None = None, weight: str | None = None, cross: Any = None, **lists: Any) -> AskedColumns:
        """Return the options; lists of names may be comma-separated text, with quotes around commas."""
        asked = cls(label, weight, crosses=tuple(dict.fromkeys(_names(cross))))
        for cross in asked.crosses:
            parts = [part.strip() for part in cross.split("*")]
            if (len(parts) < 2 or "" in parts or len({*parts}) < len(parts)) and asked.crosses != ("all",):
                raise UsageError(f"cross {cross}: expected columns joined by *, such as device*country")
        one = {"label": label and [label], "weight": weight and [weight]}
        for use, name in [(use, name) for use, names in (one | lists).items() for name in _names(names)]:
            if use == "bucket":
                each = name
                name, _, count = each.rpartition(":")
                if not name or not count.isdecimal() or not 2 <= int(count) <= MOST_BUCKETS:
                    raise UsageError(f"bucket {each}: expected COLUMN:COUNT of 2 to {MOST_BUCKETS:,}, such as price:20")
                asked.buckets[name] = int(count)
            if name in asked.uses:
                raise UsageError(f"column {name} is named in {asked.uses[name]} and in {use}: expected one place")
            asked.uses[name] = use
        return asked

    def __bool__(self) -> bool:
        return any(vars(self).values())


def _names(names: str | Iterable[str] | None) -> list[str]:
    if isinstance(names, str):
        names = [name.strip() for name in next(csv.reader([names], skipinitialspace=True), []) if name.strip()]
    try:
        return [str(name) for name in names or ()]
    except TypeError:
        raise UsageError(f"columns {names!r:.40}: expected a list of names, or text with commas between them") from None


@dataclass(frozen=True)
class TablePlan:
    """The use of each column.

    Attributes
    ----------
    columns : tuple of TableColumn
    label : str
    label_kind : {"number", "boolean", "text"}
    label_names : tuple of str
        The labels as text, in the order of the targets 0, 1, ...; empty for numbers, which are their own targets.
    weight : str, optional
    ignored : tuple of str
    hash_bits : int
        0 if not chosen yet.
    separator : str, optional
        Of the training table's columns, if it was given: other text is read with it, too.
    crosses : tuple of str
        Categorical columns of features joined by ``*``.
    """

    columns: tuple[TableColumn, ...]
    label: str
    label_kind: str
    label_names: tuple[str, ...] = ()
    weight: str | None = None
    ignored: tuple[str, ...] = ()
    hash_bits: int = 0
    separator: str | None = None
    crosses: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the plan in JSON types, as rows, stores and models hold it."""
        facts = dataclasses.asdict(self, dict_factory=lambda pairs: {k: v for k, v in pairs if v or k not in LATER})
        return dict(json.loads(json.dumps(facts)))  # tuples become lists

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> TablePlan:
        """Return the plan that :meth:`to_json` wrote; raise ValueError, KeyError or TypeError for anything else."""
        columns = tuple(TableColumn(**{**c, "edges": tuple(c.get("edges", ()))}) for c in facts["columns"])
        lists = {name: tuple(facts.get(name, ())) for name in ("label_names", "ignored", "crosses")}
        plan = cls(**{**facts, **lists, "columns": columns})
        check_bits(plan.hash_bits)
        return plan

    def unlabelled(self) -> TablePlan:
        """Return the plan that reads neither labels nor weights."""
        return dataclasses.replace(self, label="", weight=None)

    def features(self) -> list[TableColumn]:
        """Return the columns of features, which are categorical, numeric or text, in the order of their fields."""
        crosses = [TableColumn(cross, "categorical", "text") for cross in self.crosses]
        return [feature for column in self.columns for feature in column.features] + crosses

    def known_names(self) -> dict[int, list[str]]:
        """Return the names known without the table, by bucket: those of numbers and of missing values."""
        names: dict[int, list[str]] = {}
        for column in self.features():
            for end in {"numeric": ("", "="), "categorical": ("=",), "text": ()}[column.role]:
                names.setdefault(bucket_of(column.name + end, self.hash_bits), []).append(column.name + end)
        return names

    def lines(self) -> Iterable[str]:
        """Yield lines for people that describe the choice of columns."""
        uses: dict[str, list[str]] = {role: [] for role in ROLES}
        for column in self.columns:
            numbers = column.role == "categorical" and column.kind in NUMERIC
            uses[column.role].append(f"{column.name} (numbers)" if numbers else column.name)
        uses |= {"cross": [*self.crosses], "left out": [*self.ignored]}
        yield from (f"{use}: {shown(names)}" for use, names in uses.items() if names)


def draft(
    name: str, kinds: Mapping[str, str], asked: AskedColumns, hints: Mapping[str, str], labels: bool = True
) -> TablePlan:
    """Sort columns by what was asked and by their kinds, in the order of the table.

    Parameters
    ----------
    name : str
        Name of the table, for messages.
    kinds : mapping
        Kind of each column, one of ``KINDS``.
    asked : AskedColumns
    hints : mapping
        Roles that the first values suggest for some columns, rather than their type.
    labels : bool
        Whether there must be a label.

    Raises
    ------
    InputError
        For a missing column, one that cannot have the use asked for, or nested values.
    """
    if labels and asked.label is None:
        raise UsageError(f"{name}: a table needs --label COLUMN, in Python label={has(kinds)}")
    for column, use in asked.uses.items():
        if column not in kinds:
            raise InputError(f"{name}: no column {column} (--{use}){nearest(column, kinds) or has(kinds)}")
        if kinds[column] not in TAKEN[use]:
            raise InputError(f"{name}: column {column} holds {KINDS[kinds[column]]}, which cannot be {use}")
    columns, ignored = [], []
    for column, kind in kinds.items():
        named = asked.uses.get(column) or ("ignore" if kind == "empty" or not column else None)
        if named == "ignore":
            ignored.append(column or "(without a name)")
        elif named is None and kind in ("clock", "nested", "binary"):
            each = f"make each of them a category with --categorical {column}, or " if kind == "clock" else ""
            raise InputError(
                f"{name}: column {column} holds {KINDS[kind]}, which are not taken: {each}leave it out with "
                f"--ignore {column}"
            )
        elif named not in ("label", "weight"):
            usual = {"whole": "numeric", "number": "numeric", "day": "date", "date": "date"}.get(kind, "categorical")
            columns.append(TableColumn(column, named or hints.get(column) or usual, kind))
    if not columns:
        beside = "" if asked.label is None else f" beside {asked.label}"
        raise InputError(f"{name}: no column is left to learn from{beside}")
    label = "number" if asked.label is None else kinds[asked.label]
    label_kind = "number" if label in NUMERIC else "boolean" if label == "boolean" else "text"
    plan = TablePlan(tuple(columns), asked.label or "", label_kind, (), asked.weight, tuple(ignored))
    categories = [feature.name for feature in plan.features() if feature.role == "categorical"]
    crosses = asked.crosses
    if crosses == ("all",):
        if len(categories) > MOST_CROSSED:
            raise UsageError(
                f"{name}: cross all takes up to {MOST_CROSSED} categories; got {len(categories)}: name pairs"
            )
        crosses = tuple(map("*".join, itertools.combinations(categories, 2)))
    for cross in crosses:
        for part in cross.split("*"):
            if part not in categories:
                near = (part not in kinds and nearest(part, categories)) or f": the categories are {shown(categories)}"
                raise InputError(f"{name}: cross {cross}: {part} is no categorical column{near}")
    return dataclasses.replace(plan, crosses=crosses)


def has(names: Iterable[str]) -> str:
    """Return ``; its columns are a, b, c``."""
    return f"; its columns are {shown(columns)}" if (columns := list(names)) else "; it has no columns"


def shown(names: Sequence[str]) -> str:
    """Return the first names of a list as text."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def check_plan(plan: Any, expected: Any, name: str) -> None:
    """Refuse rows made by another plan than expected, or by none; None means that the rows are not from a table.

    Raises
    ------
    InputError
        One line with ``name`` and what to give instead.
    """
    if plan == expected:
        return
    if expected is None:
        raise InputError(f"{name}: a table, but the model's features are none of its columns")
    columns = shown([column["name"] for column in expected["columns"]])
    if plan is None:
        raise InputError(f"{name}: expected a table with the model's columns: {columns}")
    raise InputError(f"{name}: its columns were prepared for another model: give the table itself")
