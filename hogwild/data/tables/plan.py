"""How a table's columns become features: the user's options, and the plan that a store and a model keep.

The plan is data in JSON types, made once from the training table and carried by its rows, its store and its model.
Tables read later, for testing or prediction, are read by the plan alone, so a column is never a number in one table and
a category in another.

A category is the feature ``column=value``, a missing one ``column=``; likewise a word of text and a pair of
neighbouring words. A number is the feature ``column``, its value divided by the standard deviation in the training
table; a missing number is 0, and the feature ``column=`` indicates it. All are hashed to ``2**hash_bits``: FNV-1a of
the UTF-8 bytes, 64 bits, then the hash of ``data/text/hashing.py``. A number in a categorical column is hashed as its
text.
"""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hogwild.data.bits import check_bits
from hogwild.errors import InputError, UsageError, nearest

ROLES = ("categorical", "numeric", "text")
NUMBERS = ("whole", "number")
#: Description of each kind of column, for messages.
KINDS = {
    "text": "text",
    "boolean": "booleans",
    "whole": "whole numbers",
    "number": "numbers",
    "category": "categories",
    "empty": "nothing",
    "date": "dates",
    "nested": "lists or values of another odd type",
    "binary": "bytes",
}
LABELS = ("text", "boolean", "whole", "number", "category", "empty")
TAKEN = {
    "categorical": (*LABELS, "date"),
    "numeric": ("boolean", "whole", "number", "empty"),
    "text": ("text", "category", "empty"),
}
BOOLEANS = ("false", "true")
SHOWN = 20  # names shown in a message
MOST_LABELS = 10_000


@dataclass(frozen=True)
class AskedColumns:
    """A user's options for a table's columns; lists may be comma-separated text, with quotes around commas.

    Attributes
    ----------
    label : str, optional
    categorical, numeric, text, ignore : tuple of str
    weight : str, optional
    """

    label: str | None = None
    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    weight: str | None = None

    @classmethod
    def of(cls, **given: Any) -> AskedColumns:
        lists = {name: _names(given.get(name)) for name in (*ROLES, "ignore")}
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
        return any(self.uses().values())

    def uses(self) -> dict[str, tuple[str, ...]]:
        """Return the names given for each use."""
        one = {"label": self.label, "weight": self.weight}
        return {word: () if name is None else (name,) for word, name in one.items()} | {
            word: getattr(self, word) for word in (*ROLES, "ignore")
        }


def _names(names: str | Iterable[str] | None) -> tuple[str, ...]:
    if names is None:
        return ()
    if isinstance(names, str):
        return tuple(name.strip() for name in next(csv.reader([names], skipinitialspace=True), []) if name.strip())
    return tuple(str(name) for name in names)


@dataclass(frozen=True)
class TableColumn:
    """One column of features. ``kind`` is its kind in the training table; numbers are divided by ``deviation``."""

    name: str
    role: str
    kind: str
    deviation: float = 1.0


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
    """

    columns: tuple[TableColumn, ...]
    label: str
    label_kind: str
    label_names: tuple[str, ...] = ()
    weight: str | None = None
    ignored: tuple[str, ...] = ()
    hash_bits: int = 0
    separator: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the plan in JSON types, as rows, stores and models hold it."""
        facts: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))  # tuples become lists
        return {name: fact for name, fact in facts.items() if name != "separator" or fact is not None}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> TablePlan:
        """Return the plan that :meth:`to_json` wrote; raise ValueError, KeyError or TypeError for anything else."""
        columns = tuple(
            TableColumn(str(c["name"]), c["role"], c["kind"], float(c["deviation"])) for c in facts["columns"]
        )
        for column in columns:
            if column.role not in ROLES or column.kind not in KINDS or not 0 < column.deviation < float("inf"):
                raise ValueError(f"column {column.name} of role {column.role!r}, kind {column.kind!r}")
        names, kind = tuple(map(str, facts["label_names"])), facts["label_kind"]
        if kind not in ("number", "boolean", "text"):
            raise ValueError(f"labels of kind {kind!r}")
        weight = None if facts["weight"] is None else str(facts["weight"])
        ignored = tuple(map(str, facts["ignored"]))
        bits = check_bits(facts["hash_bits"])
        return cls(columns, str(facts["label"]), kind, names, weight, ignored, bits, facts.get("separator"))

    def of_role(self, role: str) -> list[TableColumn]:
        return [column for column in self.columns if column.role == role]

    def lines(self) -> Iterable[str]:
        """Yield lines for people that describe the choice of columns."""
        for role in ROLES:
            names = [
                f"{column.name} (numbers)" if role != "numeric" and column.kind in NUMBERS else column.name
                for column in self.of_role(role)
            ]
            if names:
                yield f"{role}: {', '.join(names)}"
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
                expected = "numbers" if kinds_of_role == TAKEN["numeric"] else "text"
                raise InputError(f"{name}: column {column} holds {KINDS[kinds[column]]}, expected {expected}")


def draft(name: str, kinds: Mapping[str, str], options: AskedColumns, hints: Mapping[str, str]) -> TablePlan:
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

    Raises
    ------
    InputError
        For a missing column, one that cannot have the use asked for, or dates and nested values.
    """
    _check_asked(name, kinds, options)
    assert options.label is not None
    uses = {column: use for use, names in options.uses().items() for column in names}
    columns, ignored = [], []
    for column, kind in kinds.items():
        use = uses.get(column)
        if use in ("label", "weight"):
            continue
        if use == "ignore" or (use is None and (kind == "empty" or not column)):
            ignored.append(column or "(without a name)")
            continue
        role = use or hints.get(column) or ("numeric" if kind in NUMBERS else "categorical")
        if kind not in TAKEN[role] or (kind == "date" and use is None):
            raise InputError(f"{name}: column {column} holds {KINDS[kind]}, {_remedy(column, kind, use)}")
        columns.append(TableColumn(column, role, kind))
    if not columns:
        raise InputError(f"{name}: no column is left to learn from beside {options.label}")
    label = kinds[options.label]
    if label not in LABELS:
        raise InputError(f"{name}: column {options.label} holds {KINDS[label]}, which are no labels")
    kind = "number" if label in NUMBERS else "boolean" if label == "boolean" else "text"
    return TablePlan(tuple(columns), options.label, kind, (), options.weight, tuple(ignored))


def _remedy(column: str, kind: str, use: str | None) -> str:
    if use is not None:
        return f"which cannot be {use}"
    each = f"make each of them a category with --categorical {column}, or " if kind == "date" else ""
    return f"which are not taken: {each}leave it out with --ignore {column}"


def _check_asked(name: str, kinds: Mapping[str, str], options: AskedColumns) -> None:
    if options.label is None:
        raise UsageError(
            f"{name}: a table needs its label named: --label COLUMN, or open_table(..., label=){has(kinds)}"
        )
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
