"""The objective during a fit, on a fixed sample of the training rows.

With one margin a row, the evaluator's loops are called one after the other, into memory that is kept: on a few hundred
rows the calls are the cost, and ``Objective`` itself, which streams rows through threads and counts what else a table
of results shows, takes ten times as long. Unlike scikit-learn's running loss, the objective includes the penalty, and
it is evaluated at the current weights, not at those before each row. On small data the sample is all rows.
"""

from __future__ import annotations

from copy import copy
from functools import partial

import numpy as np

from hogwild.data.rows.container import EMPTY, Rows, drawn, readonly
from hogwild.data.rows.margins_kernel import margins
from hogwild.kernels.losses import LABELS, LOSSES
from hogwild.problems.linear.objective_kernel import many_margins, sum_of_squares, tally, tally_log
from hogwild.problems.linear.problem import LinearProblem

SHARE = 4  # the sample is one row in this many
WHOLE = 20  # all rows are taken if their entries are at most one in this many of those allowed


def mean_weight(rows: Rows) -> float:
    """Mean weight of a row; one if there are no weights."""
    return 1.0 if rows.weights is None else float(rows.weights.mean(dtype=np.float64))


class Gauge:
    """The objective of flat parameters on some rows: mean weighted loss plus penalties, float64.

    Parameters
    ----------
    problem : LinearProblem
    rows : Rows
        Contiguous rows with kernel targets.
    """

    def __init__(self, problem: LinearProblem, rows: Rows) -> None:
        self.rows = rows
        self._weights = EMPTY if rows.weights is None else rows.weights
        self.weight = mean_weight(rows)
        self._parts: dict[int, Gauge] = {}
        self._pose(problem, rows.targets)

    def _pose(self, problem: LinearProblem, targets: np.ndarray) -> None:
        self.problem = problem
        self._last: np.ndarray | None = None
        if problem.classes > 1:
            row = np.empty(problem.stride, np.float32)
            self._loss = partial(many_margins(LOSSES[problem.loss].code, problem.lanes), row, problem.classes)
        else:
            self._margins = np.empty(len(self.rows))
            if LOSSES[problem.loss].targets == LABELS:  # the evaluator's classes are 0 and 1
                targets = readonly((targets > 0).astype(np.float32))
        self._targets = targets

    def of(self, problem: LinearProblem, part: slice) -> Gauge:
        """The objective for some classes of one-versus-rest, which are those of ``problem``."""
        if part.start not in self._parts:
            self._parts[part.start] = own = copy(self)
            own._pose(problem, readonly(self.rows.targets - np.float32(part.start)))
        return self._parts[part.start]

    def __call__(self, flat: np.ndarray) -> float:
        p = self.problem
        if self._last is not flat:
            self._last, self._views = flat, p.parameters(flat)
            self._coef = readonly(self._views.coef)
        value, coef, inverse = self._lost() / len(self.rows), self._coef, self.rows.inverse
        if inverse is not None and (p.l1 or p.l2):
            coef = readonly((coef.reshape(p.width, -1) * inverse[:, None]).astype(np.float32).ravel())
        if p.l2:
            value += p.l2 / 2 * sum_of_squares(coef)
        if p.l1:
            value += p.l1 * float(np.abs(coef).sum(dtype=np.float64))
        return value

    def _lost(self) -> float:
        """Sum of the weighted losses."""
        p, r, intercept = self.problem, self.rows, self._views.intercept
        entries = r.begin, r.end, r.indices, r.values
        if p.classes > 1:
            return float(self._loss(*entries, self._targets, self._weights, self._coef, intercept, p.loss_param))
        sums, known = np.zeros(4), (self._margins, self._targets, self._weights)
        margins(*entries, self._coef, float(intercept[0]), EMPTY, self._margins)
        if p.loss == "log":
            tally_log(*known, sums)
        else:
            tally(*LOSSES[p.loss][:2], *known, p.loss_param, sums)
        return float(sums[1])


def sample(rows: Rows, entries: int, fewest: int, margins: int, seed: int) -> Rows:
    """A random quarter of the rows, or fewer, such that their nonzeros times ``margins`` are at most ``entries``.

    The sample has at least ``fewest`` rows. It is all rows if there are no more, or so few that drawing takes longer.
    """
    per_row = max(rows.nnz / max(len(rows), 1), 1.0) * margins
    count = max(fewest, min(len(rows) // SHARE, int(entries / per_row)))
    if count >= len(rows) or per_row * len(rows) <= entries / WHOLE:
        return rows if rows.contiguous else rows.compact()
    return drawn(rows, count, seed)
