"""The objective a linear model is judged by: ``weighted mean loss + l2/2 ||w||^2 + l1 ||w||_1``, intercept unpenalised.

The one decision: it is computed in float64 from the rows themselves, by compiled loops that share nothing with the
kernels, not even the losses (``kernels/margins.py``, ``kernels/objective.py``). Two implementations that agree are the
proof that what is reported is what was optimised; a third, in NumPy, stands in the tests. One pass has the margins, the
losses and the task's metrics, at half the speed of memory or more, off the training clock. Sums are taken over chunks
of rows in order, so they are the same on any number of threads.

With K > 2 classes, K binary models are trained at once (one-versus-rest) and the loss of a row is the sum of their K
losses; ``softmax`` is the cross-entropy of all classes together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hogwild.data.auc import auc as area_of
from hogwild.data.chunks import chunks
from hogwild.data.examples import EMPTY, Rows, readonly, shortest
from hogwild.data.margins import Margins
from hogwild.data.normalize import row_scales
from hogwild.data.pieces import map_cuts, pieces
from hogwild.errors import InputError, UsageError, expected_one_of
from hogwild.kernels.objective import CODES, tally, tally_classes, tally_log
from hogwild.kernels.objective import class_numbers as number_classes
from hogwild.kernels.objective import loss_values as values_of

PIECE = 1 << 16  # weights that are taken to float64 at a time
LABEL_LOSSES = frozenset({"log", "hinge", "squared-hinge", "modified-huber", "perceptron", "softmax"})
DEFAULT_PARAM = {"huber": 1.0, "epsilon-insensitive": 0.1, "squared-epsilon-insensitive": 0.1}


def loss_values(loss: str, margins: np.ndarray, targets: np.ndarray, param: float = 0.0) -> np.ndarray:
    """Loss of each row, float64.

    Parameters
    ----------
    loss : str
        A key of ``CODES`` other than "softmax".
    margins, targets : arrays, shape (n,)
        Targets are -1 and +1, real or counts.
    param : float
        Huber's delta, or epsilon.
    """
    found = np.empty(len(margins))
    p, y = (readonly(np.ascontiguousarray(array, dtype=np.float64)) for array in (margins, targets))
    values_of(CODES[loss], p, y, float(param), found)
    return found


def class_numbers(targets: np.ndarray, labels: Sequence[float], before: int = 0) -> np.ndarray:
    """Position of each target in ``labels``, (n,) float32; labels are compared as float32, as rows hold them.

    ``before`` rows came before these ones, for the message.

    Raises
    ------
    InputError
        Naming the first target that is no label.
    """
    known = np.asarray(labels, dtype=np.float32)
    numbers = np.empty(len(targets), dtype=np.float32)
    wanted = readonly(np.ascontiguousarray(targets, dtype=np.float32))
    row = number_classes(wanted, readonly(known), readonly(np.argsort(known, kind="stable")), numbers)
    if row >= 0:
        shown = ", ".join(shortest(label) for label in labels[:10]) + (", ..." if len(labels) > 10 else "")
        raise InputError(f"row {before + row + 1} has label {shortest(targets[row])}: the model knows {shown}")
    return numbers


class Objective:
    """The objective of a linear model on given rows, for the parameters of any moment.

    Parameters
    ----------
    rows : Rows
        Streamed, so they may be larger than memory. Features beyond the parameters' width are left out.
    loss : str
        A key of ``CODES``.
    loss_param : float, optional
        Huber's delta (default 1) or epsilon (0.1).
    l1, l2 : float
    normalize : {"none", "l2", "max"}
    labels : sequence of float
        The user's labels, in the order of the classes; of two, the second is the positive one. Empty for real targets.
    weights : array of shape (n,), optional
        Of the rows in the mean loss; default: the rows' own, else equal. Other metrics are never weighted.
    width : int, optional
        Of the parameters; default: that of the rows.
    auc : bool
        Also compute the area under the ROC curve (two labels), which keeps the margins of all rows, as
        float32, and sorts them.
    threads : int, optional
        Default: the cores this process may use.

    Raises
    ------
    UsageError
        For an unknown loss or normalisation.
    InputError
        For a target that is none of the labels.
    """

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
        if loss not in CODES:
            raise UsageError(f"loss {loss!r}: {expected_one_of(CODES, loss)}")
        self.rows, self.loss, self.l1, self.l2, self.normalize = rows, loss, float(l1), float(l2), normalize
        self.loss_param = DEFAULT_PARAM.get(loss, 0.0) if loss_param is None else float(loss_param)
        weights = rows.weights if weights is None else np.asarray(weights, dtype=np.float32)
        self.weights = EMPTY if weights is None else readonly(weights)
        self.width = rows.width if width is None else int(width)
        self.threads, self.auc = threads, auc
        self.scales = row_scales(rows, normalize, self.width, threads)
        self.labels = list(labels)
        self.targets = readonly(class_numbers(rows.targets, self.labels)) if self.labels else rows.targets
        self._cuts: dict[int, list[tuple[int, int]]] = {}  # by the number of margins a row

    def evaluate(self, coef: Any, intercept: Any) -> dict[str, float | None]:
        """The objective and the task's metrics.

        Parameters
        ----------
        coef : array, shape (width,) or (K, width)
            Every sum is float64.
        intercept : float or array of shape (K,)

        Returns
        -------
        dict
            ``objective``; ``loss``, without the penalties; ``accuracy`` where there are labels, and ``auc`` where it
            was asked for (None where it is undefined); else ``rmse`` and ``mae`` of the predicted mean. Parameters
            that are not finite give numbers that are not finite.
        """
        margins = Margins(coef, intercept, self.normalize)
        if margins.width != self.width:
            raise UsageError(f"coef has {margins.width} features, the objective was made for {self.width}")
        wanted = self.auc and len(self.labels) == 2 and margins.columns == 1
        scores = np.empty(len(self.rows), dtype=np.float32) if wanted else None
        if margins.columns not in self._cuts:
            self._cuts[margins.columns] = list(chunks(self.rows, columns=margins.columns))

        def part(first: int, last: int) -> np.ndarray:
            return self._chunk(margins, first, last, scores)

        sums = np.zeros(4)
        with np.errstate(all="ignore"):
            for found in map_cuts(self._cuts[margins.columns], part, self.threads):
                sums += found
            loss = float(np.divide(sums[1], sums[0]))
            first, second = (float(value) for value in np.divide(sums[2:], len(self.rows)))
        facts: dict[str, float | None] = {"objective": loss + self.penalty(coef), "loss": loss}
        if not self.labels:
            return facts | {"rmse": math.sqrt(first), "mae": second}
        facts["accuracy"] = first
        if self.auc:
            facts["auc"] = None if scores is None else area_of(scores, self.targets > 0)
        return facts

    def penalty(self, coef: Any) -> float:
        """``l2/2 ||w||^2 + l1 ||w||_1`` in float64."""
        w, squares, sizes = np.ravel(coef), 0.0, 0.0
        with np.errstate(all="ignore"):
            for first, last in pieces(len(w), PIECE) if self.l1 or self.l2 else ():
                part = w[first:last].astype(np.float64)
                # no BLAS: its threads go on spinning on the cores that the workers need next
                squares += float(np.einsum("i,i->", part, part)) if self.l2 else 0.0
                sizes += float(np.abs(part).sum()) if self.l1 else 0.0
            return self.l2 / 2 * squares + self.l1 * sizes

    def _chunk(self, margins: Margins, first: int, last: int, scores: np.ndarray | None) -> np.ndarray:
        """Sums over a chunk: weights, weighted losses, then correct rows and 0, or squared and absolute errors."""
        p, sums = margins.between(self.rows, first, last, self.scales), np.zeros(4)
        targets, weights = self.targets[first:last], self.weights[first:last]
        if p.ndim == 2:
            tally_classes(CODES[self.loss], p, targets, weights, self.loss_param, sums)
        elif self.loss in ("log", "softmax"):
            tally_log(p, targets, weights, sums)
        else:
            tally(CODES[self.loss], p, targets, weights, self.loss_param, sums)
        if scores is not None:
            with np.errstate(over="ignore"):
                scores[first:last] = p
        return sums


class Evaluator:
    """The objective on the training rows and the metrics on test rows, if there are such, named as in rows of a run.

    Parameters
    ----------
    rows, test : Rows
        The latter may be None.
    loss, loss_param : str, float
    l1, l2, weights
        Of the objective on the training rows, as for :class:`Objective`.
    **same
        Other keywords of :class:`Objective`, for both.
    """

    def __init__(
        self, rows: Rows, test: Rows | None, loss: str, loss_param: float | None, *, l1: float = 0.0, l2: float = 0.0,
        weights: np.ndarray | None = None, **same: Any,
    ) -> None:  # fmt: skip
        self.train = Objective(rows, loss, loss_param, l1=l1, l2=l2, weights=weights, **same)
        self.test = None if test is None else Objective(test, loss, loss_param, auc=True, **same)

    def __call__(self, coef: Any, intercept: Any) -> dict[str, float | None]:
        """``objective``, ``train_loss``, ..., ``test_loss``, ..."""
        found = self.train.evaluate(coef, intercept)
        named = {name if name == "objective" else f"train_{name}": value for name, value in found.items()}
        if self.test is not None:
            tested = self.test.evaluate(coef, intercept)
            named |= {f"test_{name}": value for name, value in tested.items() if name != "objective"}
        return named
