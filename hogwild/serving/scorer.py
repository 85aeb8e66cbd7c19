"""Answers for one row at a time, in some tens of microseconds and with NumPy alone: what ``predict_one`` does."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from hogwild.data.tables.plan import TablePlan
from hogwild.errors import InputError
from hogwild.serving.encoder import PlainRow, TableRow

LARGEST = float(np.finfo(np.float32).max)


class Scorer:
    """Answers of a linear model or factorization machine; threads may share it.

    Parameters
    ----------
    model : LinearModel
        Its ``row_margins`` gives the margins of a row's features.
    likely : bool
        Whether its loss has probabilities.
    """

    def __init__(self, model: Any, likely: bool) -> None:
        table = model.table
        self.model, self.likely = model, likely
        self.encode: TableRow | PlainRow = (
            PlainRow(model.width, model.hash_bits) if table is None else TableRow(TablePlan.from_json(table))
        )
        names = model.classes_.tolist()
        self.labels = [int(name) if isinstance(name, float) and name.is_integer() else name for name in names]

    def answer(self, row: Any) -> Any:
        """Return each label's probability, or the label, labels or value that is predicted."""
        if not isinstance(row, Mapping):
            raise InputError(f"expected a row as a dict of its columns, got {type(row).__name__}")
        entries = self.encode(row)
        indices = np.fromiter(entries, np.int64, len(entries))
        values = np.fromiter(entries.values(), np.float32, len(entries)).astype(np.float64)
        if self.model.normalize != "none":
            length = math.sqrt(values @ values)
            values *= np.float32(min(1.0 / length, LARGEST)) if length else 1.0
        margins = self.model.row_margins(indices, values)  # (1,) or (classes,)
        several = self.model.multilabel
        margins = margins if len(margins) == 1 and not several else margins[np.newaxis]
        if not self.labels:
            return float(self.model.decide(margins)[0])
        if self.likely:
            return dict(zip(self.labels, self.model.probabilities(margins)[0].tolist()))
        if several:
            return [self.labels[place] for place in np.flatnonzero(margins[0] > 0)]
        return self.labels[int(self.model.decide_classes(margins)[0])]


def each_row(answer: Any, rows: Any) -> list[Any]:
    """Return the answers to several rows; an error names the row, counted from 1."""
    if not isinstance(rows, Iterable) or hasattr(rows, "columns") or isinstance(rows, Mapping | str):
        raise InputError(f"expected a list of dicts, got {type(rows).__name__}: a table goes to model.predict")
    answers = []
    for number, row in enumerate(rows, 1):
        try:
            answers.append(answer(row))
        except InputError as error:
            raise InputError(f"row {number:,}: {error}") from None
    return answers
