"""The objective a linear model is judged by: ``weighted mean loss + l2/2 ||w||^2 + l1 ||w||_1``, intercept unpenalised.

The one decision: this is float64 NumPy and scipy from the rows themselves, and shares no code with the kernels, not
even the losses. Two implementations that agree are the proof that what is reported is what was optimised. The price is
2 to 3 ns a nonzero and core, about that of a training epoch, off the training clock; and memory for a chunk a thread,
whatever the size of the data.

With K > 2 classes, K binary models are trained at once (one-versus-rest) and the loss of a row is the sum of their K
losses; ``softmax`` is the cross-entropy of all classes together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hogwild.data.chunks import map_chunks
from hogwild.data.examples import Rows, shortest
from hogwild.data.margins import Margins
from hogwild.data.normalize import row_scales
from hogwild.errors import InputError, UsageError, expected_one_of

POISSON_CAP = 60.0  # the loss goes on along its tangent beyond this margin; exp(60) is no count


def _log(p: np.ndarray, y: np.ndarray, param: float) -> np.ndarray:
    return np.logaddexp(0.0, -y * p)


def _hinge(p: np.ndarray, y: np.ndarray, param: float) -> np.ndarray:
    return np.maximum(0.0, 1.0 - y * p)


def _squared_hinge(p: np.ndarray, y: np.ndarray, param: float) -> np.ndarray:
    return np.maximum(0.0, 1.0 - y * p) ** 2


def _modified_huber(p: np.ndarray, y: np.ndarray, param: float) -> np.ndarray:
    z = y * p
    return np.where(z < -1.0, -4.0 * z, np.maximum(0.0, 1.0 - z) ** 2)


def _perceptron(p: np.ndarray, y: np.ndarray, param: float) -> np.ndarray:
    return np.maximum(0.0, -y * p)


def _squared_error(p: np.ndarray, y: np.ndarray, param: float) -> np.ndarray:
    return (p - y) ** 2 / 2


def _huber(p: np.ndarray, y: np.ndarray, param: float) -> np.ndarray:
    r = np.abs(p - y)
    inner = np.minimum(r, param)  # r^2/2 up to param, a straight line beyond
    return inner * (r - inner / 2)


def _epsilon_insensitive(p: np.ndarray, y: np.ndarray, param: float) -> np.ndarray:
    return np.maximum(0.0, np.abs(p - y) - param)


def _squared_epsilon_insensitive(p: np.ndarray, y: np.ndarray, param: float) -> np.ndarray:
    return np.maximum(0.0, np.abs(p - y) - param) ** 2


def _poisson(p: np.ndarray, y: np.ndarray, param: float) -> np.ndarray:
    inner = np.minimum(p, POISSON_CAP)
    top = np.exp(inner)
    return np.where(p > POISSON_CAP, top * (1.0 - inner) + (top - y) * p, top - y * p)


VALUES: dict[str, Callable[[np.ndarray, np.ndarray, float], np.ndarray]] = {
    "log": _log,
    "hinge": _hinge,
    "squared-hinge": _squared_hinge,
    "modified-huber": _modified_huber,
    "perceptron": _perceptron,
    "squared-error": _squared_error,
    "huber": _huber,
    "epsilon-insensitive": _epsilon_insensitive,
    "squared-epsilon-insensitive": _squared_epsilon_insensitive,
    "poisson": _poisson,
}
LABEL_LOSSES = frozenset({"log", "hinge", "squared-hinge", "modified-huber", "perceptron", "softmax"})
DEFAULT_PARAM = {"huber": 1.0, "epsilon-insensitive": 0.1, "squared-epsilon-insensitive": 0.1}


def loss_values(loss: str, margins: np.ndarray, targets: np.ndarray, param: float = 0.0) -> np.ndarray:
    """Loss of each row, float64, without any warning for margins that are not finite.

    Parameters
    ----------
    loss : str
        A key of ``VALUES``, or "softmax".
    margins : array, shape (n,), or (n, K) for several classes
    targets : array, shape (n,)
        For one column of margins: -1 and +1, a real target, or a count. For K columns: the class, 0 to K - 1; or, of
        one-versus-rest, shape (n, K): -1 and +1 for each class, and so are the losses.
    param : float
        Huber's delta, or epsilon.
    """
    with np.errstate(all="ignore"):
        if margins.ndim == 1 or targets.ndim == 2:
            return VALUES["log" if loss == "softmax" else loss](margins, targets, param)
        rows, classes = np.arange(len(margins)), targets.astype(np.int64)
        if loss == "softmax":
            top = margins.max(axis=1)
            return top + np.log(np.exp(margins - top[:, None]).sum(axis=1)) - margins[rows, classes]
        signs = np.full(margins.shape, -1.0)
        signs[rows, classes] = 1.0
        return VALUES[loss](margins, signs, param).sum(axis=1)


def class_numbers(targets: np.ndarray, labels: Sequence[float], before: int = 0) -> np.ndarray:
    """Position of each target in ``labels``, (n,) int64; labels are compared as float32, as rows hold them.

    ``before`` rows came before these ones, for the message.

    Raises
    ------
    InputError
        Naming the first target that is no label.
    """
    known = np.asarray(labels, dtype=np.float32)
    order = np.argsort(known, kind="stable")
    place = np.minimum(np.searchsorted(known, targets, sorter=order), len(known) - 1)
    found = order[place]
    wrong = known[found] != targets
    if wrong.any():
        row = int(np.argmax(wrong))
        shown = ", ".join(shortest(label) for label in labels[:10]) + (", ..." if len(labels) > 10 else "")
        raise InputError(f"row {before + row + 1} has label {shortest(targets[row])}: the model knows {shown}")
    return found


class Objective:
    """The objective of a linear model on given rows, for the parameters of any moment.

    Parameters
    ----------
    rows : Rows
        Streamed, so they may be larger than memory. Features beyond the parameters' width are left out.
    loss : str
        A key of ``VALUES``, or "softmax".
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
        Also compute the area under the ROC curve (two labels), which keeps the margins of all rows and sorts them.
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
        if loss != "softmax" and loss not in VALUES:
            raise UsageError(f"loss {loss!r}: {expected_one_of([*VALUES, 'softmax'], loss)}")
        self.rows, self.loss, self.l1, self.l2, self.normalize = rows, loss, float(l1), float(l2), normalize
        self.loss_param = DEFAULT_PARAM.get(loss, 0.0) if loss_param is None else float(loss_param)
        self.weights = rows.weights if weights is None else np.asarray(weights)
        self.width = rows.width if width is None else int(width)
        self.threads, self.auc = threads, auc
        self.scales = row_scales(rows, normalize, self.width, threads)
        self.labels = list(labels)
        # classes as small integers: 0 and 1 of two, so that they cost a byte or two a row
        small = np.uint8 if len(self.labels) <= 256 else np.int32
        self.classes = class_numbers(rows.targets, self.labels).astype(small) if self.labels else None

    def evaluate(self, coef: Any, intercept: Any) -> dict[str, float | None]:
        """The objective and the task's metrics.

        Parameters
        ----------
        coef : array, shape (width,) or (K, width)
            Taken to float64.
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
        keep = self.auc and len(self.labels) == 2 and margins.coef.ndim == 1

        def part_of(first: int, last: int) -> tuple[np.ndarray, np.ndarray | None]:
            return self._chunk(margins, first, last, keep)

        parts = list(map_chunks(self.rows, part_of, self.threads, margins.columns))
        with np.errstate(all="ignore"):
            sums = np.sum([part[0] for part in parts], axis=0) if parts else np.zeros(4)
            loss = float(np.divide(sums[1], sums[0]))
            found: dict[str, float | None] = {"objective": loss + self.penalty(coef), "loss": loss}
            first, second = (float(value) for value in np.divide(sums[2:], len(self.rows)))
        if self.labels:
            found["accuracy"] = first
            if self.auc:
                found["auc"] = self._auc([part[1] for part in parts]) if keep else None
        else:
            found["rmse"], found["mae"] = math.sqrt(first), second
        return found

    def penalty(self, coef: Any) -> float:
        """``l2/2 ||w||^2 + l1 ||w||_1`` in float64."""
        w = np.asarray(coef, dtype=np.float64)
        with np.errstate(all="ignore"):
            ridge = self.l2 / 2 * _dot(w.ravel(), w.ravel()) if self.l2 else 0.0
            return ridge + (self.l1 * float(np.abs(w).sum()) if self.l1 else 0.0)

    def _chunk(self, margins: Margins, first: int, last: int, keep: bool) -> tuple[np.ndarray, np.ndarray | None]:
        """Sums over a chunk: weights, weighted losses, then correct rows and 0, or squared and absolute errors."""
        block = self.rows.block(first, last)
        p = margins.of(block, None if self.scales is None else self.scales[first:last])
        with np.errstate(all="ignore"):
            if self.classes is None:
                y = block.targets.astype(np.float64)
                error = (np.exp(p) if self.loss == "poisson" else p) - y
                metrics = [_dot(error, error), float(np.abs(error).sum())]
            else:
                y = self.classes[first:last].astype(np.float64)
                metrics = [float(np.count_nonzero(_correct(p, y))), 0.0]
                y = 2.0 * y - 1.0 if p.ndim == 1 else y
            losses = loss_values(self.loss, p, y, self.loss_param)
            if self.weights is None:
                total, weighted = float(len(block)), float(losses.sum())
            else:
                w = self.weights[first:last].astype(np.float64)
                total, weighted = float(w.sum()), _dot(w, losses)
        return np.array([total, weighted, *metrics]), p if keep else None

    def _auc(self, kept: list[np.ndarray | None]) -> float | None:
        from sklearn.metrics import roc_auc_score

        scores = np.concatenate([part for part in kept if part is not None]) if kept else np.empty(0)
        assert self.classes is not None
        if not np.isfinite(scores).all() or len(np.unique(self.classes)) < 2:
            return None  # diverged, or a single class, for which it is not defined
        return float(roc_auc_score(self.classes, scores))


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


def _dot(a: np.ndarray, b: np.ndarray) -> float:
    """Inner product without BLAS, whose threads go on spinning on the cores that the workers need next."""
    return float(np.einsum("i,i->", a, b))


def _correct(margins: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Which rows are classified right, (n,) bool; a NaN margin never is."""
    if margins.ndim == 1:
        return np.where(classes > 0, margins > 0, margins <= 0)
    best = margins.argmax(axis=1)  # the first NaN, if there is one
    return (best == classes) & ~np.isnan(margins[np.arange(len(margins)), best])
