"""Replicas of one flat array, in memory that the workers share.

They lie in shared memory and not in the workers, so that the replacement of a dead worker can continue its replica, a
checkpoint can hold it, and the parent can read all of them when the workers stand still.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from hogwild.exchanges.trade import Arrays, Spec

LINE_FLOATS = 16  # float32 in a cache line: every replica starts on one
PIECE = 1 << 15  # weights averaged at a time, to stay in the cache


def spec(size: int, replicas: int) -> Spec:
    """Replicas, the rows each has done since they were equal, whether its worker has begun, and how many of its changes
    were left out in this task; initially zero.
    """
    return {
        "replicas": ((replicas, -(-size // LINE_FLOATS) * LINE_FLOATS), np.float32),
        "rows": ((replicas,), np.int64),
        "begun": ((replicas,), np.int64),
        "left_out": ((replicas,), np.int64),
    }


def take(flat: np.ndarray, arrays: Arrays, replica: int, step: float = 0.0) -> np.ndarray:
    """Return a replica, (size,) float32; it is first set to ``flat`` if no worker has begun it in this task. A scheme
    that has an array ``step`` finds there the ``step`` with which the task begins.
    """
    if "step" in arrays:
        arrays["step"][replica] = step
    mine: np.ndarray = arrays["replicas"][replica, : len(flat)]
    if not arrays["begun"][replica]:
        mine[:] = flat
        if "base" in arrays:
            arrays["base"][replica, : len(flat)] = flat
        if "sums" in arrays:  # the replica's own
            mine[len(flat) // 2 :] = arrays["sums"][replica]
        arrays["begun"][replica] = 1  # last: a worker that dies before this has not begun
    return mine


def left_out(mine: np.ndarray, arrays: Arrays, replica: int) -> bool:
    """Whether a replica (n,) float32 is not finite, so that the others leave its change out, which is counted. With one
    replica nobody would be spared.
    """
    if len(arrays["rows"]) == 1 or np.isfinite(mine).all():
        return False
    arrays["left_out"][replica] += 1
    return True


def all_left_out(arrays: Arrays, rows: np.ndarray) -> bool:
    """Whether each replica that has done ``rows`` (replicas,) in this task has been left out: the run has diverged."""
    counts = arrays["left_out"][rows > 0]
    return bool(len(counts) and counts.all())


def keep_sign(new: np.ndarray, old: np.ndarray, mine: np.ndarray, now: np.ndarray) -> None:
    """Set to zero what is ``new`` (n,) on the other side of zero than ``old``, though neither ``mine`` nor the others'
    value ``now`` is: with an l1 penalty each of them has shrunk it (as ``merged`` of ``kernels/tiers.py``).
    """
    with np.errstate(all="ignore"):
        new[(mine * old >= 0) & (now * old >= 0) & (new * old < 0)] = 0


def subtract(mine: np.ndarray, where: np.ndarray | slice, change: np.ndarray) -> None:
    """Subtract a change from a replica in place, one weight after another: workers that race on it lose next to
    nothing by it, as they would if it was computed elsewhere and written back.
    """
    if isinstance(where, slice):
        np.subtract(mine[where], change, out=mine[where])
    else:
        np.subtract.at(mine, where.astype(np.intp, copy=False), change)


def weighted_mean(out: np.ndarray, parts: list[np.ndarray], weights: np.ndarray) -> None:
    """Set ``out`` (size,) float32 to the mean of ``parts`` (size,), with positive ``weights``, summed in float64."""
    total = weights.sum()
    with np.errstate(all="ignore"):  # the evaluation detects divergence
        for first in range(0, len(out), PIECE):
            piece = out[first : first + PIECE]
            shares = ((part[first : first + len(piece)], weight / total) for part, weight in zip(parts, weights))
            mean = np.multiply(*next(shares), dtype=np.float64)
            for part, share in shares:
                mean += np.multiply(part, share, dtype=np.float64)
            piece[:] = mean


def partial_mean(out: np.ndarray, parts: Sequence[np.ndarray], weights: Sequence[int | np.ndarray]) -> None:
    """Set each coordinate of ``out`` (n,) float32 to its mean over some of ``parts`` (n,), in float64.

    A number as weight counts for the coordinates in which the part differs from ``out``; an array (n,) is a weight for
    each coordinate. A coordinate of which no part has a weight stays as it is.
    """
    with np.errstate(all="ignore"):
        for first in range(0, len(out), PIECE):
            piece = out[first : first + PIECE]
            mean, total = np.zeros((2, len(piece)))
            for part, weight in zip(parts, weights):
                here = part[first : first + len(piece)]
                if isinstance(weight, np.ndarray):
                    share = weight[first : first + len(piece)]
                else:
                    share = weight * (here != piece)
                mean += np.multiply(here, share, dtype=np.float64)
                total += share
            np.divide(mean, total, out=mean, where=total != 0)
            np.copyto(piece, mean, where=total != 0, casting="same_kind")


def cuts_of(size: int, parts: int) -> list[slice]:
    """Slices that begin on cache lines and whose lengths differ by at most one line."""
    ends = [min(-(-size // LINE_FLOATS) * k // parts * LINE_FLOATS, size) for k in range(parts + 1)]
    return [slice(first, last) for first, last in itertools.pairwise(ends)]
