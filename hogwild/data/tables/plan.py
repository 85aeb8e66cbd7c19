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
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hogwild.data.bits import check_bits
from hogwild.errors import InputError, UsageError, nearest

ROLES = ("categorical", "numeric", "text", "date", "bucket")
NUMBERS = ("whole", "number")
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
TAKEN = {
    "categorical": (*LABELS, "day", "date", "clock"),
    "numeric": ("boolean", "whole", "number", "empty"),
    "text": ("text", "category", "empty"),
    "date": ("day", "date", "text", "category", "empty", *NUMBERS),
    "bucket": ("boolean", "whole", "number", "empty"),
}
DATE_PARTS = ("hour", "weekday", "month")
MOST_BUCKETS = 10_000
MOST_CROSSED = 10  # columns whose pairs "all" crosses
LATER = ("edges", "latest", "zone", "separator", "crosses")  # facts that plans of old lack, written where they are set
BOOLEANS = ("false", "true")
SHOWN = 20  # names shown in a message
MOST_LABELS = 10_000


@dataclass(frozen=True)
class AskedColumns:
    """A user's options for a table's columns; lists may be comma-separated text, with quotes around commas.

    Attributes
    ----------
    label : str, optional
    categorical, numeric, text, date, ignore : tuple of str
    bucket : tuple of str
        Columns and the number of their buckets, such as ``price:20``.
    cross : tuple of str
        Such as ``device*country``; or ``all``, every pair of categorical columns.
    weight : str, optional
    """

    label: str | None = None
    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    date: tuple[str, ...] = ()
    bucket: tuple[str, ...] = ()
    cross: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    weight: str | None = None

    @classmethod
    def of(cls, **given: Any) -> AskedColumns:
        lists = {name: _names(given.get(name)) for name in (*ROLES, "ignore", "cross")}
        asked = cls(given.get("label"), weight=given.get("weight"), **lists)
        seen: dict[str, str] = {}
        for use, names in asked.uses().items():
            for name in names:
                if name in seen:
                    where = f"twice in {use}" if seen[name] == use else f"in {seen[name]} and in {use}"
                    raise UsageError(f"column {name} is named {where}: expected one place")
                seen[name] = use
        return asked

    def __bool__(self) -> bool:
        return any(dataclasses.astuple(self))

    def uses(self) -> dict[str, tuple[str, ...]]:
        """Return the names given for each use."""
        one = {"label": self.label, "weight": self.weight}
        lists = {word: getattr(self, word) for word in (*ROLES, "ignore")} | {"bucket": tuple(self.buckets())}
        return {word: () if name is None else (name,) for word, name in one.items()} | lists

    def buckets(self) -> dict[str, int]:
        """Return the number of buckets by column."""
        pairs = [each.rpartition(":") for each in self.bucket]
        for (name, _, count), each in zip(pairs, self.bucket):
            if not name or not count.isdecimal() or not 2 <= int(count) <= MOST_BUCKETS:
                raise UsageError(f"bucket {each}: expected COLUMN:COUNT of 2 to {MOST_BUCKETS:,}, such as price:20")
        return {name: int(count) for name, _, count in pairs}


def _names(names: str | Iterable[str] | None) -> tuple[str, ...]:
    if names is None:
        return ()
    if isinstance(names, str):
        return tuple(name.strip() for name in next(csv.reader([names], skipinitialspace=True), []) if name.strip())
    return tuple(str(name) for name in names)


@dataclass(frozen=True)
class TableColumn:
    """One column. ``kind`` is its kind in the training table.

    Numbers, and the ages of dates, are divided by ``deviation``. ``edges`` are the limits of buckets; ``latest`` is the
    latest date in training, in days since 1970, and ``zone`` the one in which hours are told, by default UTC.
    """

    name: str
    role: str
    kind: str
    deviation: float = 1.0
    edges: tuple[float, ...] = ()
    latest: float = 0.0
    zone: str | None = None


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
        for column in columns:
            if column.role not in ROLES or column.kind not in KINDS or not 0 < column.deviation < float("inf"):
                raise ValueError(f"column {column.name} of role {column.role!r}, kind {column.kind!r}")
        lists = {name: tuple(facts.get(name, ())) for name in ("label_names", "ignored", "crosses")}
        plan = cls(**{**facts, **lists, "columns": columns})
        check_bits(plan.hash_bits)
        if plan.label_kind not in ("number", "boolean", "text"):
            raise ValueError(f"labels of kind {plan.label_kind!r}")
        categories = {column.name for column in plan.of_role("categorical")}
        if not categories.issuperset(part for cross in plan.crosses for part in cross.split("*")):
            raise ValueError(f"crosses {plan.crosses}")
        return plan

    def features(self) -> list[TableColumn]:
        """Return the columns of features, which are categorical, numeric or text, in the order of their fields."""
        made = []
        for column in self.columns:
            if column.role == "date":
                parts = DATE_PARTS[column.kind == "day" :]
                made += [TableColumn(f"{column.name}.{part}", "categorical", column.kind) for part in parts]
                made.append(dataclasses.replace(column, name=f"{column.name}.age", role="numeric"))
            elif column.role == "bucket":
                made.append(TableColumn(column.name, "categorical", "text"))
            else:
                made.append(column)
        return made + [TableColumn(cross, "categorical", "text") for cross in self.crosses]

    def of_role(self, role: str) -> list[TableColumn]:
        """Return the columns of features of a role."""
        return [column for column in self.features() if column.role == role]

    def lines(self) -> Iterable[str]:
        """Yield lines for people that describe the choice of columns."""
        for role in ROLES:
            names = [
                f"{column.name} (numbers)" if role == "categorical" and column.kind in NUMBERS else column.name
                for column in self.columns
                if column.role == role
            ]
            if names:
                yield f"{role}: {', '.join(names)}"
        if self.crosses:
            yield f"cross: {', '.join(self.crosses)}"
        if self.ignored:
            yield f"left out: {', '.join(self.ignored)}"

    def check(self, name: str, kinds: Mapping[str, str], labels: bool) -> None:
        """Refuse a table that lacks a column of the plan, or whose column has another kind.

        Raises
        ------
        InputError
        """
        wanted = {column.name: TAKEN[column.role] for column in self.columns}
        if labels:
            wanted[self.label] = TAKEN["numeric"] if self.label_kind == "number" else LABELS
        missing = [column for column in wanted if column not in kinds]
        if missing:
            raise InputError(f"{name}: no column {shown(missing)}, which the model was trained with{has(kinds)}")
        for column, kinds_of_role in wanted.items():
            if kinds[column] not in kinds_of_role:
                expected = {TAKEN["numeric"]: "numbers", TAKEN["date"]: "dates"}.get(kinds_of_role, "text")
                raise InputError(f"{name}: column {column} holds {KINDS[kinds[column]]}, expected {expected}")


def draft(
    name: str, kinds: Mapping[str, str], options: AskedColumns, hints: Mapping[str, str], labels: bool = True
) -> TablePlan:
    """Sort columns by what was asked and by their kinds, in the order of the table.

    Parameters
    ----------
    name : str
        Name of the table, for messages.
    kinds : mapping
        Kind of each column, one of ``KINDS``.
    options : AskedColumns
    hints : mapping
        Roles that the first values suggest for some columns, rather than their type.
    labels : bool
        Whether there must be a label.

    Raises
    ------
    InputError
        For a missing column, one that cannot have the use asked for, or nested values.
    """
    if labels and options.label is None:
        raise UsageError(
            f"{name}: a table needs its label named: --label COLUMN, or open_table(..., label=){has(kinds)}"
        )
    _check_asked(name, kinds, options)
    uses = {column: use for use, names in options.uses().items() for column in names}
    columns, ignored = [], []
    for column, kind in kinds.items():
        use = uses.get(column)
        if use in ("label", "weight"):
            continue
        if use == "ignore" or (use is None and (kind == "empty" or not column)):
            ignored.append(column or "(without a name)")
            continue
        usual = {"whole": "numeric", "number": "numeric", "day": "date", "date": "date"}.get(kind, "categorical")
        role = use or hints.get(column) or usual
        if use is not None and kind not in TAKEN[role]:
            raise InputError(f"{name}: column {column} holds {KINDS[kind]}, which cannot be {use}")
        if use is None and kind in ("clock", "nested", "binary"):
            each = f"make each of them a category with --categorical {column}, or " if kind == "clock" else ""
            raise InputError(
                f"{name}: column {column} holds {KINDS[kind]}, which are not taken: {each}leave it out with "
                f"--ignore {column}"
            )
        columns.append(TableColumn(column, role, kind))
    if not columns:
        beside = "" if options.label is None else f" beside {options.label}"
        raise InputError(f"{name}: no column is left to learn from{beside}")
    label = "number" if options.label is None else kinds[options.label]
    if label not in LABELS:
        raise InputError(f"{name}: column {options.label} holds {KINDS[label]}, which are no labels")
    kind = "number" if label in NUMBERS else "boolean" if label == "boolean" else "text"
    plan = TablePlan(tuple(columns), options.label or "", kind, (), options.weight, tuple(ignored))
    plan = dataclasses.replace(plan, crosses=_crosses(name, plan, options.cross, kinds))
    times = Counter(column.name for column in plan.features())
    for own in (column.name for column in plan.columns):
        if times[own] > 1:
            remedy = f"rename it or --ignore {own}"
            raise InputError(f"{name}: column {own} has the name of a date's part or a cross: {remedy}")
    return plan


def _crosses(name: str, plan: TablePlan, asked: Sequence[str], kinds: Mapping[str, str]) -> tuple[str, ...]:
    categories = [column.name for column in plan.of_role("categorical")]
    if [*asked] == ["all"]:
        if len(categories) > MOST_CROSSED:
            raise UsageError(
                f"{name}: cross all is for up to {MOST_CROSSED} categorical columns; got {len(categories)}: name pairs"
            )
        return tuple(map("*".join, itertools.combinations(categories, 2)))
    roles = {column.name: column.role for column in plan.columns}
    for cross in asked:
        if "*" not in cross:
            raise UsageError(f"cross {cross}: expected columns joined by *, such as device*country")
        for part in cross.split("*"):
            if part in kinds and part not in roles:
                raise InputError(f"{name}: cross {cross}: column {part} is the label, the weight or left out")
            if part not in {*categories, *roles}:
                raise InputError(f"{name}: no column {part} (--cross {cross}){nearest(part, kinds) or has(kinds)}")
            if part not in categories:
                remedy = {"date": f"cross {part}.hour or {part}.weekday", "numeric": f"--bucket {part}:20 makes it so"}
                what = remedy.get(roles[part], f"--categorical {part} makes it so")
                raise InputError(f"{name}: cross {cross}: column {part} is not categorical: {what}")
    return tuple(dict.fromkeys(asked))


def _check_asked(name: str, kinds: Mapping[str, str], options: AskedColumns) -> None:
    for use, names in options.uses().items():
        for column in names:
            if column not in kinds:
                raise InputError(f"{name}: no column {column} (--{use}){nearest(column, kinds) or has(kinds)}")
    if options.weight is not None and kinds[options.weight] not in TAKEN["numeric"]:
        raise InputError(f"{name}: column {options.weight} holds {KINDS[kinds[options.weight]]}, expected weights")


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
