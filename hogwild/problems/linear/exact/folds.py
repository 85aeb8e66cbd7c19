"""Optima without each fold, for one penalty after the other: what cross-validation of few rows is judged by.

Each penalty begins where the one before has ended, so from strong to weak ones a few steps are enough. The rows that a
fold leaves out count nothing, but the penalty stays what it is on all rows: it then weighs as much against each row as
in the fit that follows on all of them, which it would not against a mean over fewer rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from hogwild.data.parallel import in_order
from hogwild.data.rows.container import Rows, readonly
from hogwild.data.rows.copies import narrowed
from hogwild.errors import NoChoice
from hogwild.kernels.lanes import DOUBLES
from hogwild.problems.linear.exact import folds_kernel as kernel
from hogwild.problems.linear.exact.ending import CODES, SMOOTH
from hogwild.problems.linear.exact.walk import rounded, walked, weakest_of
from hogwild.problems.linear.options import L2_PATH
from hogwild.problems.linear.problem import LinearProblem

MOST, MOST_STEPS = 30, 150  # Newton steps for a penalty, and conjugate gradients of each
SHARE = 1e-4  # of the objective: a step that gains less is the last
MOST_FOLDS, MOST_ROUNDS = 5, 5
ENTRIES, MARGINS = 500_000, 1 << 22  # up to which rows are few: nonzeros times classes, and margins of all fits
ROUND, ROWS = 40_000, 1000  # entries, times classes, and rows that are divided once; fewer more often, for chance


def are_few(rows: Rows, loss: str, l1: float, classes: int) -> bool:
    """Whether so many rows are judged by exact fits, which take some tenths of a second then."""
    few = rows.nnz * classes <= ENTRIES and len(rows) * MOST_FOLDS * classes <= MARGINS
    return few and l1 == 0.0 and loss in (*SMOOTH, "softmax")


def divisions(targets: np.ndarray, classes: int, entries: int, seed: int = 0) -> list[np.ndarray]:
    """The fold of each row, (n,) int32, in one division of the rows or, of few ``entries``, in several.

    Each class is spread evenly over the folds, which are as many as its rows if these are fewer. ``classes`` is zero
    for other targets. The seed of a run has no part in it, so that rows alone say what is chosen.

    Raises
    ------
    NoChoice
        If a class has one row.
    """
    random, found = np.random.default_rng(seed), []
    groups = (
        [np.flatnonzero(targets == label) for label in np.unique(targets)] if classes else [np.arange(len(targets))]
    )
    many = min(MOST_FOLDS, min(map(len, groups)))
    if many < 2:
        what = "a class has" if classes else "there is"
        raise NoChoice(f"l2='auto': {what} one row, which cannot be held out: give l2 as a number")
    for _ in range(int(np.clip(max(ROUND // max(entries, 1), ROWS // len(targets)), 1, MOST_ROUNDS))):
        fold_of = np.empty(len(targets), np.int32)
        for group in groups:
            fold_of[random.permutation(group)] = np.arange(len(group)) % many
        found.append(fold_of)
    return found


class Folds:
    """The fits that leave out a fold each, of one or more divisions of the rows.

    Parameters
    ----------
    rows : Rows
        In the columns that the model is trained in; their ``inverse`` are the penalties' factors.
    problem : LinearProblem
        Of a smooth loss, or "softmax".
    arrays : dict of arrays
        Its ``targets``, ``weights`` and ``scales`` (factors on the rows' values) as kernels read them.
    judging : array of shape (n,), optional
        Weights of the rows that are left out in their loss. None: equal.
    divisions : sequence of arrays of int32, shape (n,)
        The fold of each row; -1 of those that no fit leaves out.
    """

    def __init__(
        self,
        rows: Rows,
        problem: LinearProblem,
        arrays: Mapping[str, np.ndarray],
        judging: np.ndarray | None,
        divisions: Sequence[np.ndarray],
    ) -> None:
        self.columns, self.width, self._scaled = None, rows.width, rows
        if rows.width > len(rows):
            rows, self.columns = narrowed(rows if rows.contiguous else rows.compact())
        n, loss, classes, weights = len(rows), problem.loss, problem.classes, arrays["weights"]
        shares = (np.asarray(weights, dtype=np.float64) if len(weights) else np.ones(n)) / n
        self.judging = np.ones(n) if judging is None else np.asarray(judging, dtype=np.float64)
        self.classes = classes
        factors = np.ones(rows.width) if rows.inverse is None else np.square(rows.inverse, dtype=np.float64)
        code = kernel.SOFTMAX if loss == "softmax" and classes > 1 else CODES["log" if loss == "softmax" else loss]
        self.groups = []
        for fold_of in divisions:
            fits = int(fold_of.max()) + 1
            stride = -(-fits * classes // len(DOUBLES)) * len(DOUBLES)
            given = (
                rows.begin,
                rows.end,
                rows.indices,
                rows.values,
                readonly(arrays["scales"]),
                np.asarray(arrays["targets"], dtype=np.float64),
                shares,
                np.ascontiguousarray(fold_of, dtype=np.int32),
                np.append(factors, 0.0),
                code,
                float(problem.loss_param),
                classes,
                stride,
                int(problem.intercept > 0),
            )
            self.groups.append(_Group(kernel.Fits(*given), fits))

    @np.errstate(all="ignore")
    def fit(self, l2: float) -> list[float]:
        """Go to the optima with this penalty, and return the loss of each on the rows that it has left out."""
        losses: list[float] = []
        for found in in_order(self.groups, lambda group: group.fit(l2, self.judging)):
            losses += found.tolist()
        return losses

    def mean(self, losses: Sequence[float]) -> float:
        """The mean of :meth:`fit` over the rows whose weight is not zero; infinite if a fit has none that is finite."""
        found, sizes = np.array(losses)[self.sizes > 0], self.sizes[self.sizes > 0]
        return float(np.average(found, weights=sizes)) if len(found) and np.isfinite(found).all() else math.inf

    def walk(self, unit: float) -> dict[float, list[float]]:
        """What :meth:`fit` returns for the penalties of :func:`walked`, ascending, in these units."""
        losses: dict[float, list[float]] = {}

        def loss(l2: float) -> float:
            losses[l2] = self.fit(l2)
            return self.mean(losses[l2])

        tried = walked(loss, rounded(L2_PATH[-1] * unit), weakest_of(L2_PATH[0] * unit, self._scaled))
        return {l2: losses[l2] for l2 in tried}

    def solution(self, fit: int) -> tuple[np.ndarray, np.ndarray]:
        """Weights, (width,) or (K, width), and intercepts (K,) of a fit, float64."""
        group = self.groups[0]
        for group in self.groups:
            if fit < group.many:
                break
            fit -= group.many
        own = group.x.reshape(-1, group.fits.stride)[:, fit * self.classes : (fit + 1) * self.classes].T
        coef = np.zeros((self.classes, self.width))
        coef[:, slice(None) if self.columns is None else self.columns] = own[:, :-1]
        return (coef[0] if self.classes == 1 else coef), own[:, -1].copy()  # the next fit moves them

    @property
    def sizes(self) -> np.ndarray:
        """Weight of the rows that each fit leaves out."""
        each = [
            np.bincount(g.fits.left_out[g.fits.left_out >= 0], self.judging[g.fits.left_out >= 0], g.many)
            for g in self.groups
        ]
        return np.concatenate(each)


class _Group:
    """The fits of one division of the rows, and their memory."""

    def __init__(self, fits: kernel.Fits, many: int) -> None:
        self.fits, self.many = fits, many
        n, size = len(fits.begin), len(fits.penalties)
        self.x = np.zeros(size * fits.stride)
        lanes = [np.zeros(length * fits.stride) for length in (n, n, n, size, size, size, size, size)]
        self.room = kernel.Room._make([*lanes, np.zeros((kernel.FACTS, many)), np.zeros((3, fits.stride))])

    def fit(self, l2: float, judging: np.ndarray) -> np.ndarray:
        known, facts = (self.fits, l2, self.x, self.room), self.room.facts
        facts[kernel.GOING], facts[kernel.LENGTH] = 1.0, 0.0
        kernel.lost(self.fits, self.room, facts[kernel.LENGTH], facts[kernel.NOW])
        kernel.dot(self.fits, self.x, self.x, self.fits.penalties, self.room.row[0], facts[kernel.SQUARE])
        facts[kernel.NOW] += l2 / 2 * facts[kernel.SQUARE]
        for _ in range(MOST):
            if not facts[kernel.GOING].any():
                break
            kernel.derivatives(*known)
            kernel.newton_step(self.fits, l2, self.room, MOST_STEPS, SHARE / 10)
            kernel.take_step(*known, SHARE)
        out = np.empty(self.many)
        kernel.judged(self.fits, self.room, judging, out)
        return out
