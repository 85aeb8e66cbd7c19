"""How a table's columns become features: what a user may ask for, and the plan that a store and a model keep of it.

The decision that matters: the plan is data in JSON's types, made once from the training table and carried by its rows,
its store and its model. Whatever is read later, to test on or to predict, is read by the plan and by nothing else, so a
column is never a number here and a category there.

A category is the feature ``column=value``, a missing one ``column=``; a word of text and a pair of neighbouring words
likewise. A number is the feature ``column``, its value divided by the standard deviation of the training table; a
missing one is 0, and the feature ``column=`` says so. All are hashed to ``2**hash_bits``: FNV-1a of the UTF-8 bytes, 64
bits, then the hash of ``data/hashing.py``. A number in the place of a category is the text it is written as.
"""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hogwild.data.hashing import check_bits
from hogwild.errors import InputError, UsageError, nearest

ROLES = ("categorical", "numeric", "text")
NUMBERS = ("whole", "number")
#: What the type of a column tells of it, to people.
KINDS = {
    "text": "text", "boolean": "booleans", "whole": "whole numbers", "number": "numbers", "category": "categories",
    "empty": "nothing", "date": "dates", "nested": "lists or other nested values", "binary": "bytes",
}  # fmt: skip
LABELS = ("text", "boolean", "whole", "number", "category", "empty")
TAKEN = {"categorical": (*LABELS, "date"), "numeric": ("boolean", "whole", "number", "empty"),
         "text": ("text", "category", "empty")}  # fmt: skip
BOOLEANS = ("false", "true")
SHOWN = 20  # names in a message
MOST_LABELS = 10_000


@dataclass(frozen=True)
class Asked:
    """What a user says about the columns of a table; lists may be text with commas, quoted where a name has one.

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
    def of(cls, **given: Any) -> Asked:
        lists = {name: _names(given.get(name)) for name in (*ROLES, "ignore")}
        asked = cls(given.get("label"), weight=given.get("weight"), **lists)
        seen: dict[str, str] = {}
        for use, names in asked.uses().items():
            for name in names:
                if name in seen:
                    raise UsageError(f"column {name} is named in {seen[name]} and in {use}: expected one of them")
                seen[name] = use
        return asked

    def __bool__(self) -> bool:
        return any(self.uses().values())

    def uses(self) -> dict[str, tuple[str, ...]]:
        """The names under each word."""
        one = {"label": self.label, "weight": self.weight}
        return {word: () if name is None else (name,) for word, name in one.items()} | {
            word: getattr(self, word) for word in (*ROLES, "ignore")
        }


def _names(given: str | Iterable[str] | None) -> tuple[str, ...]:
    if given is None:
        return ()
    if isinstance(given, str):
        return tuple(name.strip() for name in next(csv.reader([given], skipinitialspace=True), []) if name.strip())
    return tuple(str(name) for name in given)


@dataclass(frozen=True)
class Column:
    """One column of features. ``kind`` is what the training table held in it, ``deviation`` what divides numbers."""

    name: str
    role: str
    kind: str
    deviation: float = 1.0


@dataclass(frozen=True)
class TablePlan:
    """What becomes of each column.

    Attributes
    ----------
    columns : tuple of Column
    label : str
    label_kind : {"number", "boolean", "text"}
    label_names : tuple of str
        The labels' own text, in the order of the targets 0, 1, ...; empty for numbers, which are their own targets.
    weight : str, optional
    ignored : tuple of str
    hash_bits : int
        0 where it is still to be chosen.
    """

    columns: tuple[Column, ...]
    label: str
    label_kind: str
    label_names: tuple[str, ...] = ()
    weight: str | None = None
    ignored: tuple[str, ...] = ()
    hash_bits: int = 0

    def to_json(self) -> dict[str, Any]:
        """The plan in JSON's types: what rows, stores and models hold."""
        return {
            "columns": [dataclasses.asdict(column) for column in self.columns],
            "label": self.label, "label_kind": self.label_kind, "label_names": list(self.label_names),
            "weight": self.weight, "ignored": list(self.ignored), "hash_bits": self.hash_bits,
        }  # fmt: skip

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> TablePlan:
        """The plan of which :meth:`to_json` made these; raises ValueError, KeyError or TypeError if there is none."""
        columns = tuple(Column(str(c["name"]), c["role"], c["kind"], float(c["deviation"])) for c in facts["columns"])
        for column in columns:
            if column.role not in ROLES or column.kind not in KINDS or not 0 < column.deviation < float("inf"):
                raise ValueError(f"column {column.name} of role {column.role!r}, kind {column.kind!r}")
        names, kind = tuple(map(str, facts["label_names"])), facts["label_kind"]
        if kind not in ("number", "boolean", "text"):
            raise ValueError(f"labels of kind {kind!r}")
        weight = None if facts["weight"] is None else str(facts["weight"])
        ignored = tuple(map(str, facts["ignored"]))
        return cls(columns, str(facts["label"]), kind, names, weight, ignored, check_bits(facts["hash_bits"]))

    def of_role(self, role: str) -> list[Column]:
        return [column for column in self.columns if column.role == role]

    def lines(self) -> Iterable[str]:
        """The choice of columns, for people."""
        for role in ROLES:
            if found := self.of_role(role):
                yield f"{role}: {', '.join(column.name for column in found)}"
        if self.ignored:
            yield f"left out: {', '.join(self.ignored)}"

    def check(self, name: str, kinds: Mapping[str, str], labels: bool) -> None:
        """Refuse a table that lacks a column of the plan, or holds something else in it.

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
        for column, taken in wanted.items():
            if kinds[column] not in taken:
                expected = "numbers" if taken == TAKEN["numeric"] else "text"
                raise InputError(f"{name}: column {column} holds {KINDS[kinds[column]]}, expected {expected}")


def draft(name: str, kinds: Mapping[str, str], asked: Asked, hints: Mapping[str, str]) -> TablePlan:
    """Sort columns by what was asked and by their kinds, in the order of the table.

    Parameters
    ----------
    name : str
        Of the table, for messages.
    kinds : mapping
        Of each column, one of ``KINDS``.
    asked : Asked
    hints : mapping
        Roles that the first values suggest for some columns, rather than their type.

    Raises
    ------
    InputError
        For a column that there is not, or that cannot be what was asked of it, or dates and nested values.
    """
    _check_asked(name, kinds, asked)
    assert asked.label is not None
    uses = {column: use for use, names in asked.uses().items() for column in names}
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
        columns.append(Column(column, role, kind))
    if not columns:
        raise InputError(f"{name}: no column is left to learn from beside {asked.label}")
    label = kinds[asked.label]
    if label not in LABELS:
        raise InputError(f"{name}: column {asked.label} holds {KINDS[label]}, which are no labels")
    kind = "number" if label in NUMBERS else "boolean" if label == "boolean" else "text"
    return TablePlan(tuple(columns), asked.label, kind, (), asked.weight, tuple(ignored))


def _remedy(column: str, kind: str, use: str | None) -> str:
    if use is not None:
        return f"which cannot be {use}"
    each = f"make each of them a category with --categorical {column}, or " if kind == "date" else ""
    return f"which are not taken: {each}leave it out with --ignore {column}"


def _check_asked(name: str, kinds: Mapping[str, str], asked: Asked) -> None:
    if asked.label is None:
        from hogwild.data.looks import of_columns

        hint = of_columns(list(kinds))
        raise UsageError(f"{name}: a table needs its label named: --label COLUMN{has(kinds)}{hint}")
    for use, names in asked.uses().items():
        for column in names:
            if column not in kinds:
                raise InputError(f"{name}: no column {column} (--{use}){nearest(column, kinds) or has(kinds)}")
    if asked.weight is not None and kinds[asked.weight] not in TAKEN["numeric"]:
        raise InputError(f"{name}: column {asked.weight} holds {KINDS[kinds[asked.weight]]}, expected weights")


def has(names: Iterable[str]) -> str:
    """``; its columns are a, b, c``."""
    return f"; its columns are {shown(list(names))}"


def shown(names: Sequence[str]) -> str:
    """The first names of a list."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def check_plan(found: Any, expected: Any, name: str) -> None:
    """Refuse rows that were made by another plan, or by none, than is expected; None is no table.

    Raises
    ------
    InputError
        One line: ``name``, and what to give instead.
    """
    if found == expected:
        return
    if expected is None:
        raise InputError(f"{name}: a table, but the model's features are none of its columns")
    columns = shown([column["name"] for column in expected["columns"]])
    if found is None:
        raise InputError(f"{name}: expected a table with the model's columns: {columns}")
    raise InputError(f"{name}: its columns were prepared for another model: give the table itself")
