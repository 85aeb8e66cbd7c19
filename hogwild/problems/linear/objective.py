"""The objective that judges a linear model: ``weighted mean loss + l2/2 ||w||^2 + l1 ||w||_1``, intercept unpenalised.

The objective is computed in float64 from the rows themselves, by compiled loops that share with the kernels that
train the formulas of losses alone (``data/rows/margins_kernel.py``, ``objective_kernel.py``). So the reported objective
is not the optimiser's own word; the tests have another, in NumPy. One pass computes the margins,
the losses and the task's metrics, at half the speed of memory or more, off the training clock. Sums are taken over
chunks of rows in order, so they are the same on any number of threads.

With K > 2 classes, K binary models are trained at once (one-versus-rest) and the loss of a row is the sum of their K
losses; ``softmax`` is the cross-entropy of all classes together. Where a row may have several labels, or none, each
label is such a binary model; accuracy is then the share of rows whose labels are all right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hogwild.data.mapped import outgrows_memory
from hogwild.data.parallel import map_cuts
from hogwild.data.rows.container import CHUNK_NONZEROS, EMPTY, Rows, chunks, readonly
from hogwild.data.rows.labels import NO_SETS
from hogwild.data.rows.margins import Margins, row_scales
from hogwild.errors import UsageError
from hogwild.kernels.losses import COUNTS, LOSSES
from hogwild.problems.linear.objective_kernel import losses
from hogwild.problems.linear.rows import numbered, pairs_of
from hogwild.problems.protocol import Sums

SMALLER = 8  # chunks of a sample are so much smaller, since rows may lie in order


@np.errstate(all="ignore")
def loss_values(loss: str, margins: np.ndarray, targets: np.ndarray, param: float = 0.0) -> np.ndarray:
    """Loss of each row, float64.

    Parameters
    ----------
    loss : str
        A key of ``LOSSES``.
    margins : array, shape (n,) or (n, K)
    targets : array, shape (n,) or (n, K)
        For one margin -1 and +1, real numbers or counts; for K margins the classes from 0 on, or -1 and +1 for each.
    param : float
        Huber's delta, or epsilon.
    """
    p, y = (np.ascontiguousarray(array, dtype=np.float64) for array in (margins, targets))
    if p.ndim == 2 and loss == "softmax":
        above = p - p.max(axis=1, keepdims=True)
        return np.asarray(np.log(np.exp(above).sum(axis=1)) - above[np.arange(len(p)), y.astype(np.int64)])
    if p.ndim == 2:
        signs = signs_of(y, p.shape[1]) if y.ndim == 1 else y
        return loss_values(loss, p.ravel(), signs.ravel(), param).reshape(p.shape).sum(axis=1)
    values = np.empty(len(p))
    losses(LOSSES["log" if loss == "softmax" else loss].code)(p, readonly(y), float(param), values)
    return values


def signs_of(classes: np.ndarray, count: int) -> np.ndarray:
    """Whether rows are of each of ``count`` classes, (n, K) of -1 and +1, from the number of their class, (n,)."""
    return np.where(classes[:, np.newaxis] == np.arange(count), 1.0, -1.0)


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
    normalize : {"none", "l2"}
    labels : sequence of float
        The user's labels, in the order of the classes; of two, the second is the positive one. Empty for real targets.
    multilabel : bool
        Whether a row may have several of the labels, or none.
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
        If the normalisation is unknown.
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
        multilabel: bool = False,
        weights: np.ndarray | None = None,
        width: int | None = None,
        auc: bool = False,
        threads: int | None = None,
    ) -> None:
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
        self.multilabel = multilabel
        self.targets, self.sets = rows.targets, NO_SETS
        self.beyond_memory = outgrows_memory(rows)
        self.unknown = 0  # pairs of a row and a label that is not among the labels
        if self.labels:
            targets, self.sets = numbered(rows, self.labels, multilabel)
            self.targets = readonly(targets)
        if multilabel:
            self.unknown = pairs_of(rows) - self.sets.pairs(targets)

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
            (None if undefined), or of several labels a row ``f1_micro`` and ``f1_macro``; else ``rmse`` and ``mae`` of
            the predicted mean. Parameters that are not finite give numbers that are not finite.
        """
        return self.facts(coef, [self.sums(coef, intercept)])

    def sums(self, coef: Any, intercept: Any, every: int = 1) -> Sums:
        """What :meth:`facts` needs of these rows, or of one of ``every`` so many chunks of them."""
        margins = self.margins(coef, intercept, self.normalize)
        if margins.width != self.width:
            raise UsageError(f"coef has {margins.width} features, the objective was made for {self.width}")
        ranked = self.auc and len(self.labels) == 2 and margins.columns == 1
        scores = np.empty(len(self.rows), dtype=np.float32) if ranked else None

        @np.errstate(all="ignore")
        def part(first: int, last: int) -> np.ndarray:
            """Weights, weighted losses, then correct rows and 0, or squared and absolute errors; then hits by label."""
            if self.beyond_memory:
                self.rows.fetch(first, last)
            p = margins.between(self.rows, first, last, self.scales)
            y = self.targets[first:last]
            if scores is not None:
                scores[first:last] = p
            if self.multilabel:
                y = self.sets.signs(y)
            elif self.labels and p.ndim == 1:
                y = 2.0 * y - 1.0
            if self.labels:
                metrics = right_rows(p, y).sum(), 0
            else:
                error = (np.exp(p) if LOSSES[self.loss].targets == COUNTS else p) - y
                metrics = np.square(error).sum(), np.abs(error).sum()
            hits = hits_of(p, y) if self.multilabel else ()
            weights = self.weights[first:last] if len(self.weights) else np.ones(last - first, np.float32)
            lost = weights * loss_values(self.loss, p, y, self.loss_param)
            return np.array([weights.sum(dtype=np.float64), lost.sum(), *metrics, *hits])

        size = CHUNK_NONZEROS if every == 1 else CHUNK_NONZEROS // SMALLER
        cuts = list(chunks(self.rows, size, columns=margins.columns))[::every]
        with np.errstate(all="ignore"):
            sums = sum(map_cuts(cuts, part, self.threads), np.zeros(4 + 2 * len(self.labels) * self.multilabel))
        count = sum(last - first for first, last in cuts)
        return Sums(sums, count, None if scores is None else (scores, self.targets > 0))

    def facts(self, coef: Any, parts: list[Sums]) -> dict[str, float | None]:
        """Result of :meth:`evaluate`, from sums over these rows, or over those of several machines."""
        sums = np.sum([part.totals for part in parts], axis=0)
        with np.errstate(all="ignore"):
            loss = float(np.divide(sums[1], sums[0]))
            first, second = (float(value) for value in np.divide(sums[2:4], sum(part.rows for part in parts)))
        facts: dict[str, float | None] = {"objective": loss + self.penalty(coef), "loss": loss}
        if not self.labels:
            return facts | {"rmse": math.sqrt(first), "mae": second}
        facts["accuracy"] = first
        if self.multilabel:
            return facts | f1_of(sums[4:], self.unknown)
        if self.auc:
            ranked = parts[0].ranked if len(parts) == 1 else None
            facts["auc"] = None if ranked is None else auc(*ranked)
        return facts

    def penalty(self, coef: Any) -> float:
        """Return ``l2/2 ||w||^2 + l1 ||w||_1`` in float64.

        The sums are over the weights that are not zero: features that no row holds do not change them.
        """
        if not (self.l1 or self.l2):
            return 0.0
        w = np.ravel(coef if self.rows.inverse is None else coef * self.rows.inverse, "K")  # of scaled columns
        w = w[w != 0]
        with np.errstate(all="ignore"):
            squares = float(np.einsum("i,i->", w, w, dtype=np.float64)) if self.l2 else 0.0
            sizes = float(np.abs(w).sum(dtype=np.float64)) if self.l1 else 0.0
            return self.l2 / 2 * squares + self.l1 * sizes


def right_rows(margins: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Whether rows are predicted right, (n,) bool; none is where a margin is NaN.

    Targets of a margin, (n,), are above zero where it is to be; of several, (n, L), so are those of labels, which must
    all be right; else they are the number of a class, (n,).
    """
    if margins.ndim == 1:
        return ((margins > 0) == (targets > 0)) & ~np.isnan(margins)
    if targets.ndim == 1:
        right = margins.argmax(axis=1) == targets
    else:
        right = ((margins > 0) == (targets > 0)).all(axis=1)
    return right & ~np.isnan(margins).any(axis=1)


def hits_of(margins: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """Rows that have a label and are predicted to, by label, and then those that have it plus those predicted to."""
    there, predicted = signs > 0, margins > 0
    return np.concatenate(((there & predicted).sum(axis=0), there.sum(axis=0) + predicted.sum(axis=0)))


def f1_by_label(hits: np.ndarray) -> np.ndarray:
    """F1 of each label, (L,), from sums of :func:`hits_of`; zero of one that is neither there nor predicted."""
    right, both = hits.reshape(2, -1)
    return np.asarray(2.0 * right / np.maximum(both, 1))


def f1_of(hits: np.ndarray, unknown: int = 0) -> dict[str, float]:
    """F1 from sums of :func:`hits_of`: of all pairs of row and label together, and the mean over the labels.

    ``unknown`` pairs of labels that the model does not know are missed.
    """
    right, both = hits.reshape(2, -1)
    micro = float(2.0 * right.sum() / max(both.sum() + unknown, 1))
    return {"f1_micro": micro, "f1_macro": float(np.mean(f1_by_label(hits)))}


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
