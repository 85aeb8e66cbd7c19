"""What a machine must know of all rows when every machine has rows of its own: counts, summed once at the start.

With them the problem is that of one machine that has all the rows: the same classes and features, the same weights of
rows, and the same share of the penalty for each row of a feature. Only the order of the rows differs.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hogwild.data.rows.container import Rows, readonly
from hogwild.data.rows.degrees import degrees


@dataclass(frozen=True)
class Totals:
    """Counts over the rows of all machines.

    Attributes
    ----------
    each : tuple of int
        Rows of each machine.
    prints : tuple of str
        Fingerprint of each machine's rows.
    labels : array of float32, shape (K,)
        The classes, ascending; empty for real targets.
    counts : array of int64, shape (K,)
        Rows of each class; of all rows if there are none.
    weights : array of float64, shape (K,)
        Sum of the weights of these rows.
    weighted : bool
        Whether any machine's rows have weights.
    intercept : float
        Share of the step that the intercept takes: the mean of the machines' shares, weighted by their rows.
    degrees : array of int64, shape (width,)
        Rows that hold each feature.
    """

    each: tuple[int, ...]
    prints: tuple[str, ...]
    labels: np.ndarray
    counts: np.ndarray
    weights: np.ndarray
    weighted: bool
    intercept: float
    degrees: np.ndarray

    @property
    def rows(self) -> int:
        return sum(self.each)

    @property
    def fingerprint(self) -> list[str]:
        """What tells these rows from others, whichever machine but machine 0 has which part."""
        return [self.prints[0], *sorted(self.prints[1:])]

    @classmethod
    def of(cls, facts: Sequence[dict[str, Any]], degrees: np.ndarray) -> Totals:
        """Sum what :func:`facts_of` says of each machine's rows; ``degrees`` are summed already."""
        labels = np.unique(np.concatenate([np.asarray(fact["labels"], np.float32) for fact in facts]))
        counts, weights = np.zeros(max(len(labels), 1), np.int64), np.zeros(max(len(labels), 1))
        for fact in facts:
            places = np.searchsorted(labels, np.asarray(fact["labels"], np.float32)) if len(labels) else slice(None)
            counts[places] += fact["counts"]
            weights[places] += fact["weights"]
        each = tuple(int(fact["rows"]) for fact in facts)
        intercept = sum(n * fact["intercept"] for n, fact in zip(each, facts)) / sum(each)
        prints, weighted = tuple(fact["print"] for fact in facts), any(fact["weighted"] for fact in facts)
        return cls(each, prints, labels, counts, weights, weighted, intercept, degrees)

    @classmethod
    def from_json(cls, given: dict[str, Any], degrees: np.ndarray) -> Totals:
        """Return what :meth:`to_json` describes."""
        labels, counts = np.array(given["labels"], np.float32), np.array(given["counts"], np.int64)
        about = labels, counts, np.array(given["weights"], float), given["weighted"], given["intercept"]
        return cls(tuple(given["each"]), tuple(given["prints"]), *about, degrees)

    def to_json(self) -> dict[str, Any]:
        """Return all but the degrees."""
        arrays = {name: array.tolist() for name, array in vars(self).items() if name in ("labels", "counts", "weights")}
        others = {name: vars(self)[name] for name in ("each", "prints", "weighted", "intercept")}
        return arrays | others

    def given_to(self, rows: Rows) -> Rows:
        """Return a machine's rows with these totals and with the features of all."""
        known = degrees(rows)
        given = copy.copy(rows)
        given.width, given.totals = len(self.degrees), self
        given.known_degrees = readonly(np.concatenate((known, np.zeros(given.width - rows.width, known.dtype))))
        return given


def facts_of(rows: Rows, labels: np.ndarray, intercept: float, print_of_rows: str) -> dict[str, Any]:
    """Return as JSON what :class:`Totals` sums, but for the degrees; ``labels``: the classes of these rows, if any."""
    codes = np.searchsorted(labels, rows.targets) if len(labels) else np.zeros(len(rows), np.int64)
    counts = np.bincount(codes, minlength=max(len(labels), 1))
    weights = counts if rows.weights is None else np.bincount(codes, rows.weights, max(len(labels), 1))
    return {
        "rows": len(rows),
        "width": rows.width,
        "print": print_of_rows,
        "labels": labels.tolist(),
        "counts": counts.tolist(),
        "weights": weights.astype(float).tolist(),
        "weighted": rows.weights is not None,
        "intercept": intercept,
    }


def alone(rows: Rows) -> Rows:
    """Return the same rows as if there were no others."""
    given = copy.copy(rows)
    given.totals = None
    return given
