"""Degrees: how many rows hold each feature, counted on all cores.

Each thread counts a share of the rows into its own array, at about 1 ns a nonzero; with very many features one thread
counts alone. Known degrees are not counted again: a store has its degrees beside it, and those of the rows that a
hold-out leaves are the store's minus the held-out rows'. ``Rows.degrees`` is the slow twin.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from hogwild.data.parallel import map_pieces
from hogwild.data.rows.container import Rows, readonly
from hogwild.data.rows.counts_kernel import count_features, put_back, sort_by_degree

OWN_BYTES = 64 << 20  # for all threads' arrays together
MANY = 1 << 16  # rows; features in fewer are sorted by counting, ten times as fast as NumPy sorts
PIECE = 1 << 20  # features put back at a time


def frequencies(rows: Rows, threads: int | None = None, most: int | None = None) -> tuple[int, np.ndarray]:
    """Number of rows, and of those that hold each feature, (width,), at least 1: on all machines, if others have more.

    A feature that is common here may be rare elsewhere; every machine must have the same numbers. ``most``: of so many
    features, the first ones.
    """
    if rows.totals is not None:
        return rows.totals.rows, np.maximum(rows.totals.degrees[:most], 1)
    return len(rows), np.maximum(degrees(rows, threads)[:most], 1)


def degrees(rows: Rows, threads: int | None = None) -> np.ndarray:
    """Number of rows that hold each feature, (width,) int32: the paper's ``d_u`` (Recht et al. 2011, section 2.2).

    Parameters
    ----------
    rows : Rows
        Streamed, so they may be larger than memory.
    threads : int, optional
        Default: the cores available to this process.
    """
    if rows.known_degrees is None:
        rows.known_degrees = readonly(_count(rows, threads))
    return rows.known_degrees


def _count(rows: Rows, threads: int | None) -> np.ndarray:
    """Count on several threads, or take the held-out rows' from the whole's."""
    if rows.left_by is not None and rows.left_by[0].known_degrees is not None:
        return rows.left_by[0].known_degrees - degrees(rows.left_by[1], threads)
    threads = threads or len(os.sched_getaffinity(0))
    threads = max(1, min(threads, len(rows), OWN_BYTES // max(4 * rows.width, 1)))
    cuts = np.linspace(0, len(rows), threads + 1).astype(np.int64)

    def count(part: int) -> np.ndarray:
        total = np.zeros(rows.width, dtype=np.int32)
        first, last = cuts[part], cuts[part + 1]
        count_features(rows.begin[first:last], rows.end[first:last], rows.indices, total)
        return total

    if threads == 1:
        return count(0)
    with ThreadPoolExecutor(threads, thread_name_prefix="hogwild-degrees") as pool:
        first, *others = pool.map(count, range(threads))
    for other in others:
        first += other
    return first


def by_popularity(rows: Rows) -> np.ndarray:
    """Features from the one in most rows to the rarest, (width,) int32; of equal ones the lower number comes first."""
    return by_degree(degrees(rows) if rows.totals is None else rows.totals.degrees)


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
