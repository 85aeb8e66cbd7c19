"""Tiers of the discipline ``tiered``: how often each is merged, and how much of a worker's delta is added.

*A coordinate is synchronised after a worker has updated it about m times, however popular it is*: features are ranked
by document frequency f and cut into tiers, in each of which f falls by half; a tier is merged every ``m / f`` rows. A
feature in fewer than ``RARE`` rows waits for the end of the epoch. m is chosen so that merges cost ``BUDGET`` of the
time of the rows between, at prices that were measured once (a timing in each run differed by less than it disturbed:
results then depended on how busy the machine was). Where a wide model is numbered by popularity, features in fewer than
``RARE`` rows are shared in place instead (``copied``).

**Why this is not enough: the cap.** Let a worker do rows i = 1..C between two merges of tier t. To first order its
private weights of the tier move by ``-S H e``, where e is their error, ``S = sum_i step * c_i`` with c_i the loss's
curvature in the margin (``losses.bend``), and ``H = E[s x_t x_t']`` over rows restricted to the tier. W workers that
add W such deltas overshoot if an eigenvalue of ``W S H`` exceeds 2: on binary values, counts or with large steps they
diverge where one worker does not. For any positive v the spectral radius of a matrix is at most ``max_j (|H| v)_j /
v_j`` (Collatz and Wielandt), and if row j is multiplied by its own scale, so is row j's quotient. So, with the *rates*

    r_j = E[ s |x_j| (|x_t| . v) ] / v_j,    v_j = sqrt(E |x_j|),    x_j = S r_j

``W * scale_j * x_j <= const`` for all j keeps the sum from overshooting. This holds to first order only: a worker that
has done many rows has corrected its own error, by a share of ``1 - exp(-x_j)`` of it, less than ``x_j / (1 + x_j)``
times a constant near one, and then stops. So

    scale_j = min(1, (1 + x_j) / (W x_j))

keeps the sum of W deltas near the error, or less: plain sums (exact in the limit) for small x_j, the plain average,
which by convexity is stable where one worker is, for large ones. The cap rarely has to act,
because a tier is also merged as soon as ``(W - 1) x_j`` of its most sensitive coordinate reaches the tier's *patience*:
shorter intervals cost time but no progress, caps cost progress. The cost of merges falls as one over the patience, and
the cost of stale weights grows with it and shrinks with the rows to come, so patience is proportional to the root of
the cost of a merge times the rows a worker has, within ``PATIENCE``. The cap acts only if merges would otherwise come
more often than every ``QUANTUM`` rows, or would take ``HARDEST`` times as long as the rows themselves. As the curvature
is summed row by row, it is small once rows are fitted (a bound such as 1/4 is then far too careful), and large as soon
as they no longer are.

Coordinates of neighbouring tiers move together, so v and x_t span ``SPAN`` tiers at a time. The intercept is a
coordinate of the first tier.

**Whether copies pay at all** is what discipline ``auto`` decides. Under ``hogwild`` a row waits for weights on cache
lines that another core has written last, under ``tiered`` it bears its share of the copies that begin and end an epoch
(merges between take ``BUDGET``, which is less). Both are counted from the data and multiplied by a price. That of a
line is 10 to 25 ns where rows read many lines that are seldom written, and 50 to 70 ns where all write the same few. It
is taken in the middle: copies that were not needed cost a few per cent, and races for the same lines cost most of the
speed of the other workers.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from hogwild.data.rows.container import EMPTY, Rows
from hogwild.data.rows.degrees import by_popularity, frequencies
from hogwild.kernels.tiers import FLOATS, QUANTUM, Tiers, as_tiers

if TYPE_CHECKING:
    from hogwild.problems.linear.problem import LinearProblem

PATIENCE = (0.05, 0.5)  # least and most; with many rows the most is up to twice that
EAGER = 0.03  # patience of a worker of FEW_ROWS rows, over the root of a merge's price in rows
FEW_ROWS = 4096  # rows of a worker
GROWTH = 2.0  # of the interval from tier to tier
SPAN = 3  # neighbouring tiers whose features are taken to move together
RARE = 16  # rows that hold a feature, below which it is merged at the end of an epoch only, or not copied at all
NEVER = 1 << 60  # rows
LARGEST = 1e30  # largest rate: float32 must hold it
PER_EPOCH = 2  # fewest merges of every other tier
BUDGET = 0.05  # share of a worker's time, for merges
FEWEST, MOST = 16, 512  # updates between two merges, whatever their cost
HARDEST = 4.0  # times the rows' time: most that merges of a tier may take to avoid the cap
SAMPLED = 1 << 17  # nonzeros from which rates are estimated
OFTEN = 4  # occurrences in that sample from which a feature is judged by itself
NONZERO_SECONDS = 1.6e-9  # what one nonzero costs a worker
MISSES = 4  # times the price of a merge of weights that no cache holds
CACHED = 1 << 15  # lines

TRANSFER_SECONDS = 4e-8  # what a weight on a line that another core has written costs a row, for each worker
COPY_SECONDS = 2e-9  # what one weight costs when all are fetched or merged
FEW = 1.0  # weights of a row on such lines, below which replicas do not pay

TIER_SECONDS = 2.7e-7  # price of a merge, for each tier
FEATURE_SECONDS = 1.3e-9  # price of a merge, for each feature


def plan_tiers(problem: LinearProblem, rows: Rows, arrays: dict[str, np.ndarray], workers: int) -> Tiers:
    """Rank the features of the training rows, cut them into tiers, and find how often each is merged.

    Parameters
    ----------
    problem : LinearProblem
    rows : Rows
        Training rows; their degrees are exact, everything else comes from a sample of about 2^17 nonzeros.
    arrays : dict
        Result of ``problem.row_arrays(rows)``.
    workers : int
    """
    frequency, head = copied(problem, rows)
    features = by_popularity(rows) if head is None else EMPTY
    frequency = frequency[features] if head is None else frequency[:head]  # by rank
    falling = np.maximum.accumulate(frequency[::-1])[::-1]  # among popular features there may be rare ones
    bounds = _cut(falling)
    rates, intercept = _rates(problem, rows, arrays, features, frequency, bounds)
    rates = np.minimum(rates, LARGEST)
    tops = np.append(np.maximum.reduceat(rates, bounds[:-1]), intercept) if len(rates) else np.full(2, intercept)
    tops[0] = max(tops[0], intercept)
    highest = falling[bounds[:-1]] if len(falling) else np.ones(1)
    intervals, floors, patience = _intervals(problem, highest, np.diff(bounds), rows, workers)
    return as_tiers(features, bounds, intervals, floors, patience, rates, tops)


def choose(problem: LinearProblem, rows: Rows, arrays: dict[str, np.ndarray], workers: int) -> tuple[Tiers | None, str]:
    """Decide whether several workers use replicas: ``(tiers, why)``, or ``(None, why not)`` for plain ``hogwild``.

    The wait of a row under ``hogwild`` is compared with its share of the passes over private copies.
    """
    n = len(rows)
    frequency, head = copied(problem, rows)
    common = np.where(frequency * n < 1.5, 0.0, frequency)[:head]  # a feature of one row is nobody else's
    foreign = _foreign(common, problem.stride, workers)
    why = f"{foreign:.1f} of the {rows.nnz / n:.1f} weights of a row lie on cache lines that another worker wrote last"
    if foreign < FEW:
        return None, f"only {why}"
    waiting = foreign * max(problem.stride / FLOATS, 1) * workers * TRANSFER_SECONDS
    passes = 2 * len(common) * problem.stride * COPY_SECONDS * workers / n  # at the ends of the epoch
    if passes >= waiting:
        return None, f"{why}, but private copies would cost more"
    return plan_tiers(problem, rows, arrays, workers), f"{why}; private copies cost less"


def _foreign(common: np.ndarray, stride: int, workers: int) -> float:
    """Weights of a row on lines that another worker has written last, by the share of the rows that hold each feature.

    A line counts if it is among the ``CACHED`` most popular: others would come from memory in any case.
    """
    firsts = np.arange(0, len(common), max(FLOATS // stride, 1))  # of the features of each cache line
    lines = np.add.reduceat(common, firsts) if len(common) else common
    return float(np.sort(lines)[::-1][:CACHED].sum()) * (workers - 1) / workers


def copied(problem: LinearProblem, rows: Rows) -> tuple[np.ndarray, int | None]:
    """Which features workers copy.

    Returns
    -------
    array of float64
        Share of the rows that hold each feature that they may copy, at least one row.
    int or None
        How many are copied where features are numbered by popularity; None: all, in the user's numbering. Others share
        few cache lines with any other row: a copy of them would cost two passes over the whole model in each epoch, and
        save nothing.
    """
    popular = CACHED * FLOATS // problem.stride  # at most
    if problem.page == FLOATS or not rows.width:
        n, degree = frequencies(rows)
        return degree / n, None
    n, degree = frequencies(rows, most=popular + problem.page)  # what fills pages included
    often = np.flatnonzero(degree[:popular] / n * len(rows) >= RARE)
    last = int(often[-1]) + 1 if len(often) else 0  # among popular features there may be rare ones
    whole = problem.page // math.gcd(problem.page, problem.stride)  # features that fill pages
    return degree / n, min(max(-(-last // whole), 1) * whole, rows.width)


def _cut(frequency: np.ndarray) -> np.ndarray:
    """First ranks of the tiers, on cache lines, and the end; ``frequency`` falls with the rank."""
    bounds = [0] if len(frequency) else [0, 0]  # the intercept is merged with the first tier, even an empty one
    rising = -frequency
    while bounds[-1] < len(frequency):
        end = np.searchsorted(rising, rising[bounds[-1]] / GROWTH, side="right")
        bounds.append(min(max(-(-int(end) // FLOATS) * FLOATS, bounds[-1] + FLOATS), len(frequency)))
    return np.array(bounds, dtype=np.int64)


def _intervals(
    problem: LinearProblem,
    highest: np.ndarray,
    sizes: np.ndarray,
    rows: Rows,
    workers: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Most and fewest rows between merges, and patience, of each tier, from its highest frequency and its size."""
    if workers == 1:
        return np.full(len(sizes), NEVER), np.full(len(sizes), QUANTUM), np.full(len(sizes), PATIENCE[1])
    outgrown = sizes.sum() * problem.stride > CACHED * FLOATS
    cost = TIER_SECONDS + FEATURE_SECONDS * (MISSES if outgrown else 1) * sizes  # of a merge, in seconds
    working = max(rows.nnz / len(rows) * problem.stride * NONZERO_SECONDS, 1e-12)  # per row
    updates = np.clip(float(highest @ cost) / (BUDGET * working), FEWEST, MOST)
    longest = max(len(rows) / workers / PER_EPOCH, QUANTUM)
    wanted = np.where(highest * len(rows) < RARE, NEVER, np.clip(updates / highest, QUANTUM, longest))
    floors = np.clip(cost / (HARDEST * working), QUANTUM, wanted)
    plenty = len(rows) / workers / FEW_ROWS
    patience = EAGER * np.sqrt(cost / working * plenty)
    return wanted, floors, np.clip(patience, PATIENCE[0], PATIENCE[1] * np.clip(np.sqrt(plenty) / 2, 1.0, 2.0))


def _rates(
    problem: LinearProblem,
    rows: Rows,
    arrays: dict[str, np.ndarray],
    features: np.ndarray,
    frequency: np.ndarray,
    bounds: np.ndarray,
) -> tuple[np.ndarray, float]:
    """``(r, r of the intercept)`` of the module's docstring, by rank; float64."""
    width, groups = len(frequency), -(-(len(bounds) - 1) // SPAN) or 1
    if rows.totals is not None:  # what races here are this machine's rows, in which other features may be popular
        frequency = rows.degrees()[features] / len(rows)
    ids = rows.spread(SAMPLED)
    sample = rows.select(ids).compact()
    row = np.repeat(np.arange(len(ids)), sample.end - sample.begin)
    rank, size = sample.indices, np.abs(sample.values.astype(np.float64))
    if arrays["scales"].size:
        size *= arrays["scales"][ids][row]
    if len(features):
        rank_of = np.empty(width, dtype=np.int64)
        rank_of[features] = np.arange(width)
        rank = rank_of[rank]
    else:  # the others are not merged
        ours = rank < width
        rank = rank[ours]
        row = row[ours]
        size = size[ours]
    group = (np.searchsorted(bounds, rank, side="right") - 1) // SPAN
    weights = arrays["weights"][ids].astype(np.float64) if arrays["weights"].size else np.ones(len(ids))

    seen = np.bincount(rank, minlength=width)
    worth = frequency / np.maximum(seen, 1)  # of an occurrence: how many are in the sample is chance
    means = _smoothed(np.bincount(rank, weights=size, minlength=width) * worth, seen, frequency, bounds)
    v = np.sqrt(np.maximum(means, 1e-30))
    sums = np.bincount(row * groups + group, weights=size * v[rank], minlength=len(ids) * groups)
    moves = sums.astype(np.float64).reshape(len(ids), groups)  # |x_t| . v; bincount of an empty array gives integers
    moves[:, 0] += problem.intercept  # its |x| and v are both the root of its share of the step
    moves *= weights[:, None]
    rates = np.bincount(rank, weights=size * moves[row, group], minlength=width) * worth / v
    return _smoothed(rates, seen, frequency, bounds), float(moves[:, 0].mean()) if problem.intercept else 0.0


def _smoothed(means: np.ndarray, seen: np.ndarray, frequency: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Means per feature; for features rare in the sample at least the tier's mean, scaled to their frequency.

    The tier's mean is that of its features in the sample, each by its known degree: of the rarest most are not in it.
    """
    means, held = means.copy(), frequency * (seen > 0)
    for first, last in pairwise(bounds):
        part = slice(first, last)
        usual = means[part].sum() / max(held[part].sum(), 1e-30) * frequency[part]
        means[part] = np.where(seen[part] >= OFTEN, means[part], np.maximum(means[part], usual))
    return means
