"""Averaging: every worker trains a replica of its own, and the model is the replicas' mean, weighted by rows done.

``averaging`` (iterative parameter mixing): at the start of an epoch each worker copies the shared array, trains the
copy on the chunks it claims, and at the end of the epoch the mean of the copies becomes the shared array. The chunks
are dealt out as to all workers, so the parts of an epoch are disjoint, random, and other ones each time; a plain mean
would favour the rows of a slow worker, hence the weights.

``one-shot-averaging``: the replicas start alike once and never hear of each other. For the measurements of an epoch the
shared array is set to their mean, which does not flow back. With one epoch this is SimuParallelSGD (Zinkevich, Weimer,
Smola, Li 2010): one communication. More epochs are an extension of it: a worker goes on with other rows than before, so
that in time it sees every row, as Niu et al. (2011) let every thread in their figure 5(b).

The one decision: replicas lie in shared memory, not in the workers, so that one whose worker dies is continued by the
next one, a checkpoint can hold them, and a mean costs no message. It takes ``W`` times the model in memory, and per
epoch a copy by every worker and a mean by the parent (a nanosecond a weight and worker), both on the clock. A mean is
zero only where all replicas are, so ``l1`` leaves fewer exact zeros than one worker does. Sums of squares (AdaGrad)
cannot be averaged, and ``config`` refuses them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

LINE = 16  # float32 in a cache line: every replica starts on one
PIECE = 1 << 15  # weights averaged at a time, which stay in the cache


@dataclass(frozen=True)
class Replicas:
    """The workers' own copies of one flat array; what a job of several workers makes of it when they meet."""

    flat: np.ndarray  # (size,) float32, shared
    replicas: np.ndarray  # (workers, size rounded up to cache lines) float32
    rows: np.ndarray  # (workers,) int64: rows done since the replicas were alike
    begun: np.ndarray  # (workers,) int64: whether a worker has its copy
    one_shot: bool  # never make them alike again

    @staticmethod
    def spec(size: int, workers: int) -> dict[str, Any]:
        """Shapes and types of the arrays between ``flat`` and ``one_shot``, which have to be zero at first."""
        return {
            "replicas": ((workers, -(-size // LINE) * LINE), np.float32),
            "rows": ((workers,), np.int64),
            "begun": ((workers,), np.int64),
        }

    def begin(self) -> None:
        """Start a task (the workers stand still): what they have is out of date."""
        if not self.one_shot:
            self.rows[:], self.begun[:] = 0, 0

    def take(self, worker: int) -> np.ndarray:
        """A worker's replica, (size,) float32; a copy of the shared array if nobody has worked on it in this task."""
        replica: np.ndarray = self.replicas[worker, : len(self.flat)]
        if not self.begun[worker]:
            replica[:] = self.flat
            self.begun[worker] = 1  # last: a worker that dies before has not begun
        return replica

    def meet(self, rows: np.ndarray) -> None:
        """End a task, in which the workers did so many ``rows`` (workers,) each: the shared array becomes the mean."""
        for worker in np.flatnonzero(self.begun == 0) if self.one_shot else ():  # dead, for one, before they began
            self.take(int(worker))
        self.rows[:] += rows
        if not (total := self.rows.sum()):
            return
        workers = np.flatnonzero(self.rows)
        with np.errstate(all="ignore"):  # what has diverged is found out by who evaluates it
            for first in range(0, len(self.flat), PIECE):
                piece = self.flat[first : first + PIECE]
                parts = self.replicas[:, first : first + len(piece)]
                shares = ((parts[worker], self.rows[worker] / total) for worker in workers)
                mean = np.multiply(*next(shares), dtype=np.float64)
                for part, share in shares:
                    mean += np.multiply(part, share, dtype=np.float64)
                piece[:] = mean

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint must hold beside the shared array."""
        return {"replicas": self.replicas[:, : len(self.flat)], "replica_rows": self.rows} if self.one_shot else {}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Go on from what :meth:`state` gave, of as many workers."""
        if self.one_shot:
            self.replicas[:, : len(self.flat)] = state["replicas"]
            self.rows[:], self.begun[:] = state["replica_rows"], 1
