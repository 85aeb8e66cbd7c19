"""Features by the number of rows that hold them, on this machine and on several.

Where every machine has rows of its own, it must know counts of all rows (:class:`Totals`), summed once at the start.
With them the problem is that of one machine that has all the rows: the same classes and features, the same weights of
rows, and the same share of the penalty for each row of a feature. Only the order of the rows differs.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from hogwild.data.parallel import map_pieces
from hogwild.data.rows.container import Rows
from hogwild.data.rows.counts_kernel import put_back, sort_by_degree

MANY = 1 << 16  # rows; features in fewer are sorted by counting, ten times as fast as NumPy sorts
PIECE = 1 << 20  # features put back at a time
FACTS = ("rows", "print", "labels", "counts", "weights", "weighted", "intercept")  # of a machine's rows


def frequencies(rows: Rows, threads: int | None = None, most: int | None = None) -> tuple[int, np.ndarray]:
    """Number of rows, and of those that hold each feature, (width,), at least 1: on all machines, if others have more.

    A feature that is common here may be rare elsewhere; every machine must have the same numbers. ``most``: of so many
    features, the first ones.
    """
    if rows.totals is not None:
        return rows.totals.rows, np.maximum(rows.totals.degrees[:most], 1)
    return len(rows), np.maximum(rows.degrees(threads)[:most], 1)


def by_popularity(rows: Rows) -> np.ndarray:
    """Features from the one in most rows to the rarest, (width,) int32; of equal ones the lower number comes first."""
    return by_degree(rows.degrees() if rows.totals is None else rows.totals.degrees)


def by_degree(degree: np.ndarray) -> np.ndarray:
    """Features by falling degree, (width,) int32; of equal ones the lower number comes first."""
    first, features = np.zeros(MANY + 1, dtype=np.int64), np.empty(len(degree), dtype=np.int32)
    sort_by_degree(degree, first, features)
    hot = features[: first[MANY]]
    hot[:] = hot[np.argsort(-degree[hot], kind="stable")]
    return features


def unranked(ranked: np.ndarray, features: np.ndarray, own: np.ndarray) -> None:
    """Copy row r of ``ranked`` (width, stride) to row ``features[r]`` of ``own``."""
    deque(map_pieces(len(features), PIECE, lambda low, high: put_back(ranked[low:high], features[low:high], own)), 0)


# -- rows of several machines ------------------------------------------------------------------------------------------


class Totals:
    """Counts over the rows of all machines.

    Attributes
    ----------
    facts : list of dict
        What :func:`facts_of` says of each machine's rows, in JSON types.
    degrees : array of int64, shape (width,)
        Rows that hold each feature.
    labels : array of float32, shape (K,)
        The classes, ascending; empty for real targets.
    counts : array of int64, shape (K,)
        Rows of each class; of all rows if there are none.
    weights : array of float64, shape (K,)
        Sum of the weights of these rows.
    """

    def __init__(self, facts: list[dict[str, Any]], degrees: np.ndarray) -> None:
        self.facts, self.degrees = [{name: fact[name] for name in FACTS} for fact in facts], degrees
        each = [np.asarray(fact["labels"], np.float32) for fact in facts]
        self.labels = np.unique(np.concatenate(each))
        self.counts = np.zeros(max(len(self.labels), 1), np.int64)
        self.weights = np.zeros(len(self.counts))
        for fact, labels in zip(facts, each):
            places = np.searchsorted(self.labels, labels) if len(labels) else slice(None)
            self.counts[places] += fact["counts"]
            self.weights[places] += fact["weights"]

    @property
    def each(self) -> tuple[int, ...]:
        """Rows of each machine."""
        return tuple(fact["rows"] for fact in self.facts)

    @property
    def rows(self) -> int:
        return sum(self.each)

    @property
    def weighted(self) -> bool:
        """Whether any machine's rows have weights."""
        return any(fact["weighted"] for fact in self.facts)

    @property
    def intercept(self) -> float:
        """Share of the step that the intercept takes: the mean of the machines' shares, weighted by their rows."""
        return sum(fact["rows"] * fact["intercept"] for fact in self.facts) / self.rows

    @property
    def prints(self) -> list[str]:
        """Fingerprint of each machine's rows."""
        return [fact["print"] for fact in self.facts]

    @property
    def fingerprint(self) -> list[str]:
        """What tells these rows from others, whichever machine but machine 0 has which part."""
        return [self.prints[0], *sorted(self.prints[1:])]

    def given_to(self, rows: Rows) -> Rows:
        """Return a machine's rows with these totals and with the features of all."""
        width = len(self.degrees)
        degrees = np.append(rows.degrees(), np.zeros(width - rows.width, np.int32))
        return rows.replace(width=width, totals=self, known_degrees=degrees)


def facts_of(rows: Rows, labels: np.ndarray, intercept: float, print_of_rows: str) -> dict[str, Any]:
    """Return as JSON what :class:`Totals` sums, but for the degrees; ``labels``: the classes of these rows, if any."""
    codes = np.searchsorted(labels, rows.targets) if len(labels) else np.zeros(len(rows), np.int64)
    size = max(len(labels), 1)
    counts = np.bincount(codes, minlength=size)
    weights = counts if rows.weights is None else np.bincount(codes, rows.weights, size)
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
