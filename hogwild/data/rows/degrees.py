"""Features by the number of rows that hold them, on this machine and on several.

Where every machine has rows of its own, it must know counts of all rows (:class:`Totals`), summed once at the start.
With them the problem is that of one machine that has all the rows: the same classes and features, the same weights of
rows, and the same share of the penalty for each row of a feature. Only the order of the rows differs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hogwild.data.parallel import map_pieces
from hogwild.data.rows.container import Rows, readonly
from hogwild.data.rows.counts_kernel import put_back, sort_by_degree

MANY = 1 << 16  # rows; features in fewer are sorted by counting, ten times as fast as NumPy sorts
PIECE = 1 << 20  # features put back at a time


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
        return cls(
            each=tuple(given["each"]),
            prints=tuple(given["prints"]),
            labels=np.array(given["labels"], np.float32),
            counts=np.array(given["counts"], np.int64),
            weights=np.array(given["weights"], float),
            weighted=given["weighted"],
            intercept=given["intercept"],
            degrees=degrees,
        )

    def to_json(self) -> dict[str, Any]:
        """Return all but the degrees."""
        facts = {name: value for name, value in vars(self).items() if name != "degrees"}
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in facts.items()}

    def given_to(self, rows: Rows) -> Rows:
        """Return a machine's rows with these totals and with the features of all."""
        degrees = rows.degrees()
        width = len(self.degrees)
        widened = readonly(np.concatenate((degrees, np.zeros(width - rows.width, degrees.dtype))))
        return rows.replace(width=width, totals=self, known_degrees=widened)


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
    return rows.replace(totals=None)
