"""The objective that judges a linear model: ``weighted mean loss + l2/2 ||w||^2 + l1 ||w||_1``, intercept unpenalised.

The objective is computed in float64 from the rows themselves, by compiled loops that share with the kernels that
train the formulas of losses alone (``data/rows/margins_kernel.py``, ``objective_kernel.py``). So the reported objective
is not the optimiser's own word; the tests have another, in NumPy. One pass computes the margins,
the losses and the task's metrics, at half the speed of memory or more, off the training clock. Sums are taken over
chunks of rows in order, so they are the same on any number of threads.

With K > 2 classes, K binary models are trained at once (one-versus-rest) and the loss of a row is the sum of their K
losses; ``softmax`` is the cross-entropy of all classes together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hogwild.data.parallel import pieces
from hogwild.data.rows.container import EMPTY, Rows, map_chunks, readonly
from hogwild.data.rows.margins import Margins, row_scales
from hogwild.errors import UsageError, expected_one_of
from hogwild.kernels.losses import LOSSES
from hogwild.problems.linear.coordinates import Numbering
from hogwild.problems.linear.objective_kernel import loss_values as values_of
from hogwild.problems.linear.objective_kernel import (
    losses_of_classes,
    tally,
    tally_classes,
    tally_log,
)
from hogwild.problems.linear.rows import class_numbers
from hogwild.problems.protocol import Sums, in_all

PIECE = 1 << 16  # weights converted to float64 at a time


def loss_values(loss: str, margins: np.ndarray, targets: np.ndarray, param: float = 0.0) -> np.ndarray:
    """Loss of each row, float64.

    Parameters
    ----------
    loss : str
        A key of ``LOSSES``.
    margins : array, shape (n,) or (n, K)
    targets : array, shape (n,)
        For one margin -1 and +1, real numbers or counts; for K margins the classes from 0 on.
    param : float
        Huber's delta, or epsilon.
    """
    losses = np.empty(len(margins))
    p, y = (readonly(np.ascontiguousarray(array, dtype=np.float64)) for array in (margins, targets))
    (values_of if p.ndim == 1 else losses_of_classes)(LOSSES[loss].code, p, y, float(param), losses)
    return losses


class Objective:
    """The objective of a linear model on given rows, for any parameters.

    Parameters
    ----------
    rows : Rows
        The rows are streamed, so they may be larger than memory. Features beyond the parameters' width are left out.
    loss : str
        A key of ``LOSSES``.
    loss_param : float, optional
        Huber's delta (default 1) or epsilon (0.1).
    l1, l2 : float
    normalize : {"none", "l2", "max"}
    labels : sequence of float
        The user's labels, in the order of the classes; of two, the second is the positive one. Empty for real targets.
    weights : array of shape (n,), optional
        Weights of the rows in the mean loss; default: the rows' own, else equal. Other metrics are never weighted.
    width : int, optional
        Width of the parameters; default: that of the rows.
    auc : bool
        Whether to compute the area under the ROC curve (two labels) too, which keeps the margins of all rows, as
        float32, and sorts them.
    threads : int, optional
        Number of threads; default: the cores this process may use.

    Raises
    ------
    UsageError
        If the loss or the normalisation is unknown.
    InputError
        If a target is none of the labels.
    """

    margins: Callable[..., Margins] = Margins  # of a solution

    def __init__(
        self,
        rows: Rows,
        loss: str,
        loss_param: float | None = None,
        *,
        l1: float = 0.0,
        l2: float = 0.0,
        normalize: str = "none",
        labels: Sequence[float] = (),
        weights: np.ndarray | None = None,
        width: int | None = None,
        auc: bool = False,
        threads: int | None = None,
    ) -> None:
        if loss not in LOSSES:
            raise UsageError(f"loss {loss!r}: {expected_one_of(LOSSES, loss)}")
        self.rows = rows
        self.loss = loss
        self.l1 = float(l1)
        self.l2 = float(l2)
        self.normalize = normalize
        self.loss_param = float((LOSSES[loss].param or 0.0) if loss_param is None else loss_param)
        weights = rows.weights if weights is None else np.asarray(weights, dtype=np.float32)
        self.weights = EMPTY if weights is None else readonly(weights)
        self.width = rows.width if width is None else int(width)
        self.threads, self.auc = threads, auc
        self.scales = row_scales(rows, normalize, self.width, threads)
        self.labels = list(labels)
        self.targets = readonly(class_numbers(rows.targets, self.labels)) if self.labels else rows.targets

    def evaluate(self, coef: Any, intercept: Any) -> dict[str, float | None]:
        """Return the objective and the task's metrics.

        Parameters
        ----------
        coef : array, shape (width,) or (K, width)
            Weights; every sum is float64.
        intercept : float or array of shape (K,)

        Returns
        -------
        dict
            ``objective``; ``loss``, without the penalties; ``accuracy`` if there are labels, and ``auc`` if requested
            (None if undefined); else ``rmse`` and ``mae`` of the predicted mean. Parameters that are not finite give
            numbers that are not finite.
        """
        return self.facts(coef, self.sums(coef, intercept))

    def sums(self, coef: Any, intercept: Any) -> Sums:
        """What :meth:`facts` needs of these rows."""
        margins = self.margins(coef, intercept, self.normalize)
        if margins.width != self.width:
            raise UsageError(f"coef has {margins.width} features, the objective was made for {self.width}")
        scores = self.scores(margins)

        def part(first: int, last: int) -> np.ndarray:
            return self.tally(margins.between(self.rows, first, last, self.scales), first, last, scores)

        with np.errstate(all="ignore"):
            sums = sum(map_chunks(self.rows, part, self.threads, margins.columns), np.zeros(4))
        return self.summed(sums, scores)

    def scores(self, margins: Margins) -> np.ndarray | None:
        """Array for the margins of all rows if the area is to be computed, else None."""
        wanted = self.auc and len(self.labels) == 2 and margins.columns == 1
        return np.empty(len(self.rows), dtype=np.float32) if wanted else None

    def summed(self, sums: np.ndarray, scores: np.ndarray | None) -> Sums:
        return Sums(sums, len(self.rows), scores, None if scores is None else self.targets > 0)

    def facts(self, coef: Any, found: Sums) -> dict[str, float | None]:
        """Result of :meth:`evaluate`, from sums over these rows or more."""
        sums = found.totals
        with np.errstate(all="ignore"):
            loss = float(np.divide(sums[1], sums[0]))
            first, second = (float(value) for value in np.divide(sums[2:], found.rows))
        facts: dict[str, float | None] = {"objective": loss + self.penalty(coef), "loss": loss}
        if not self.labels:
            return facts | {"rmse": math.sqrt(first), "mae": second}
        facts["accuracy"] = first
        if self.auc:
            scores, positive = found.scores, found.positive
            facts["auc"] = None if scores is None or positive is None else auc(scores, positive)
        return facts

    def penalty(self, coef: Any) -> float:
        """Return ``l2/2 ||w||^2 + l1 ||w||_1`` in float64.

        The sums are over the weights that are not zero: features that no row holds do not change them.
        """
        if not (self.l1 or self.l2):
            return 0.0
        squares, sizes = 0.0, 0.0
        w = np.ravel(coef if self.rows.inverse is None else coef * self.rows.inverse, "K")  # of scaled columns
        w = w[w != 0]
        with np.errstate(all="ignore"):
            for first, last in pieces(len(w), PIECE):
                part = w[first:last].astype(np.float64)
                # no BLAS: its threads would continue to spin on the cores that the workers need next
                squares += float(np.einsum("i,i->", part, part)) if self.l2 else 0.0
                sizes += float(np.abs(part).sum()) if self.l1 else 0.0
            return self.l2 / 2 * squares + self.l1 * sizes

    def tally(self, p: np.ndarray, first: int, last: int, scores: np.ndarray | None) -> np.ndarray:
        """Sums for margins ``p``: weights, weighted losses, then correct rows and 0, or squared and absolute errors."""
        sums = np.zeros(4)
        targets = self.targets[first:last]
        weights = self.weights[first:last]
        loss = LOSSES[self.loss]
        if p.ndim == 2:
            tally_classes(loss.code, p, targets, weights, self.loss_param, sums)
        elif self.loss in ("log", "softmax"):
            tally_log(p, targets, weights, sums)
        else:
            tally(loss.code, loss.targets, p, targets, weights, self.loss_param, sums)
        if scores is not None:
            with np.errstate(over="ignore"):
                scores[first:last] = p
        return sums


class Evaluator:
    """The objective on the training rows and the metrics on other rows, if any, with the names in rows of a run.

    Held-out rows lie among the others, so both sets are read in one pass over all rows: a pass over either alone would
    fetch most of the other. Solutions are the user's; where training numbers features by popularity, so do the rows
    that are read here, which takes half the time.

    Parameters
    ----------
    rows, test : Rows
        Training and test rows; ``test`` may be None.
    numbering : Numbering, optional
        That of training.
    held : Rows, optional
        Rows held out of ``rows``, if they are not the test rows.
    loss, loss_param : str, float
    l1, l2, weights
        Parameters of the objective on the training rows, as in :class:`Objective`.
    **same
        Other keywords of :class:`Objective`, for both.
    """

    objective: type[Objective] = Objective

    def __init__(
        self,
        rows: Rows,
        test: Rows | None,
        loss: str,
        loss_param: float | None,
        *,
        l1: float = 0.0,
        l2: float = 0.0,
        weights: np.ndarray | None = None,
        held: Rows | None = None,
        numbering: Numbering | None = None,
        **same: Any,
    ) -> None:
        self._numbering = numbering
        read = rows if numbering is None else numbering.rows(rows)
        same["width"] = read.width
        self.train = self.objective(read, loss, loss_param, l1=l1, l2=l2, weights=weights, **same)
        others = {name: each for name, each in (("held_out", held), ("test", test)) if each is not None}
        self.others = {
            name: self.objective(
                each if numbering is None else numbering.rows(each), loss, loss_param, auc=True, **same
            )
            for name, each in others.items()
        }
        self._both: _Both | None = None
        if others and rows.split_from is not None and rows.split_from[1] is next(iter(others.values())):
            whole, _, ids = rows.split_from
            whole = whole if numbering is None else numbering.rows(whole)
            self._both = _Both(whole, ids, self.train, next(iter(self.others.values())))

    def __call__(self, coef: Any, intercept: Any) -> dict[str, float | None]:
        """Return ``objective``, ``train_loss``, ..., ``test_loss``, ..."""
        return self.facts(coef, [self.sums(coef, intercept)])

    def sums(self, coef: Any, intercept: Any) -> list[Sums]:
        """Sums over the training rows and, if there are any, the held-out and the test rows."""
        if self._numbering is not None:
            coef, intercept = self._numbering.inward(coef, intercept)
        found = [] if self._both is None else self._both.sums(coef, intercept)
        rest = (self.train, *self.others.values())[len(found) :]
        return [*found, *(each.sums(coef, intercept) for each in rest)]

    def facts(self, coef: Any, parts: list[list[Sums]]) -> dict[str, float | None]:
        """The result of a call, from what :meth:`sums` returns here and elsewhere."""
        found = self.train.facts(coef, in_all([part[0] for part in parts]))
        named = {name if name == "objective" else f"train_{name}": value for name, value in found.items()}
        for k, (kind, other) in enumerate(self.others.items(), 1):
            sums = [part[k] for part in parts if len(part) > k]
            facts = other.facts(coef, in_all(sums)) if sums else {}
            named |= {f"{kind}_{name}": value for name, value in facts.items() if name != "objective"}
        return named


class _Both:
    """Two objectives of one model: ``test`` on the rows ``ids`` of ``whole``, ascending, ``train`` on the others."""

    def __init__(self, whole: Rows, ids: np.ndarray, train: Objective, test: Objective) -> None:
        self.rows = whole
        self.ids = ids
        self.train = train
        self.test = test
        self.scales: np.ndarray | None = None
        if train.scales is not None and test.scales is not None:
            self.scales = np.insert(train.scales, ids - np.arange(len(ids)), test.scales)

    def sums(self, coef: Any, intercept: Any) -> list[Sums]:
        """The sums of both objectives, with each chunk's margins computed once."""
        margins = self.train.margins(coef, intercept, self.train.normalize)
        scores = self.test.scores(margins)

        def part(first: int, last: int) -> np.ndarray:
            p = margins.between(self.rows, first, last, self.scales)
            a, b = (int(k) for k in np.searchsorted(self.ids, (first, last)))
            held = self.ids[a:b] - first
            tested = self.test.tally(p[held], a, b, scores)
            return np.stack((self.train.tally(np.delete(p, held, axis=0), first - a, last - b, None), tested))

        with np.errstate(all="ignore"):
            sums = sum(map_chunks(self.rows, part, self.train.threads, margins.columns), np.zeros((2, 4)))
        return [self.train.summed(sums[0], None), self.test.summed(sums[1], scores)]


def auc(scores: np.ndarray, positive: np.ndarray) -> float | None:
    """Share of pairs of a positive and a negative row in which the positive score is larger; ties count half.

    Parameters
    ----------
    scores : array of float32, shape (n,)
    positive : array of bool, shape (n,)

    Returns
    -------
    float, or None
        None if a score is not finite, or all rows are of one kind. This takes about 60 ns a row.
    """
    below, above = np.sort(scores[~positive]), np.sort(scores[positive])
    if not (np.isfinite(scores).all() and len(below) and len(above)):
        return None
    twice = np.searchsorted(below, above, "left") + np.searchsorted(below, above, "right")
    return float(twice.sum()) / 2 / len(below) / len(above)
