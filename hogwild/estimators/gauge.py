"""The objective while a fit runs: on a fixed sample of the training rows, by loops that training has no part in.

It has the penalty in it, unlike scikit-learn's running loss, and is that of the weights as they are, not of those that
were before each row. On small data the sample is all rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from functools import partial

import numpy as np

from hogwild.data.examples import EMPTY, Rows, readonly
from hogwild.data.picked import drawn
from hogwild.kernels.gauge import many_margins, one_margin, sum_of_squares
from hogwild.kernels.losses import LOSSES
from hogwild.problems.linear import LinearProblem

SHARE = 4  # one row in so many
WHOLE = 20  # all rows, where their entries are one in so many of those allowed


def mean_weight(rows: Rows) -> float:
    """Of a row; one where there are no weights."""
    return 1.0 if rows.weights is None else float(rows.weights.mean(dtype=np.float64))


class Gauge:
    """The objective of flat parameters on some rows: mean weighted loss plus penalties, float64.

    Parameters
    ----------
    problem : LinearProblem
    rows : Rows
        Contiguous, with targets as kernels want them.
    """

    def __init__(self, problem: LinearProblem, rows: Rows) -> None:
        self.rows = rows
        self._weights = EMPTY if rows.weights is None else rows.weights
        self.weight = mean_weight(rows)
        self._parts: dict[int, Gauge] = {}
        self._pose(problem, rows.targets)

    def _pose(self, problem: LinearProblem, targets: np.ndarray) -> None:
        r, code = self.rows, LOSSES[problem.loss]
        self.problem = problem
        self._last: np.ndarray | None = None
        self._known = r.begin, r.end, r.indices, r.values, targets, self._weights
        self._loss: Callable[..., float] = one_margin(code)
        if problem.classes > 1:
            row = np.empty(problem.stride, np.float32)
            self._loss = partial(many_margins(code, problem.lanes), row, problem.classes)

    def of(self, problem: LinearProblem, part: slice) -> Gauge:
        """That of some of the classes of one-versus-rest, which are those of ``problem``."""
        if part.start not in self._parts:
            self._parts[part.start] = own = copy(self)
            own._pose(problem, readonly(self.rows.targets - np.float32(part.start)))
        return self._parts[part.start]

    def __call__(self, flat: np.ndarray) -> float:
        p = self.problem
        if self._last is not flat:
            self._last, self._views = flat, p.parameters(flat)
        w, b = self._views.coef, self._views.intercept
        value = float(self._loss(*self._known, w, b, p.loss_param)) / len(self.rows)
        if p.l2:
            squares = sum_of_squares(w)
            value += p.l2 / 2 * (squares if math.isfinite(squares) else float(np.square(w, dtype=np.float64).sum()))
        if p.l1:
            value += p.l1 * float(np.abs(w).sum(dtype=np.float64))
        return value


def sample(rows: Rows, entries: int, fewest: int, margins: int, seed: int) -> Rows:
    """A quarter of the rows, chosen at random, or so many that their nonzeros times ``margins`` are ``entries``.

    At least ``fewest``, and all of them if they are no more, or so few that choosing some would take longer.
    """
    per_row = max(rows.nnz / max(len(rows), 1), 1.0) * margins
    count = max(fewest, min(len(rows) // SHARE, int(entries / per_row)))
    if count >= len(rows) or per_row * len(rows) <= entries / WHOLE:
        return rows if rows.contiguous else rows.compact()
    return drawn(rows, count, seed)
