"""Options of linear models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from hogwild.config import (
    GOAL,
    LARGEST_FLOAT32,
    MACHINES,
    PARALLEL,
    STEPS,
    TrainConfig,
    inherited,
    option,
)
from hogwild.errors import UsageError
from hogwild.kernels import losses
from hogwild.methods import (
    CLASS_WEIGHT,
    DEFAULT_PARAM,
    LABEL_LOSSES,
    LOSSES,
    NORMALIZE,
    SCHEDULES,
)

L2_PATH = tuple(float(f"{10 ** (k / 2 - 8):.2g}") for k in range(16))  # of "auto"
FEW_LABELS = 32  # of several a row, that stand for all where steps and penalties are chosen


@dataclass(frozen=True)
class LinearConfig(TrainConfig):
    """Options of linear models, besides those of :class:`hogwild.TrainConfig`.

    Attributes
    ----------
    loss : str, default log
        Loss of an example: log, hinge, squared-hinge, modified-huber, perceptron, softmax, squared-error, huber,
        epsilon-insensitive, squared-epsilon-insensitive, quantile, poisson, tweedie, gamma. ``softmax`` is the
        cross-entropy over all classes; the other label losses train one-versus-rest when there are more than two
        labels. The last three are for counts and amounts, whose mean is the exponential of the margin.
    schedule : str, default auto
        How the step falls: constant, epoch, round, rows, inverse, optimal, adaptive, root. ``auto`` is ``rows`` if an
        epoch has more than 100,000 rows, else ``epoch``.
    loss_param : float or None, default the loss's own
        Huber's threshold, the half-width of an insensitive tube, the quantile, or tweedie's power.
    l1 : float, default 0.0
        L1 penalty.
    l2 : float, default 1e-05
        L2 penalty; 'auto' chooses it by rows held out, and 1e-6,1e-5 among these. The objective is ``mean loss + l2/2
        ||w||^2 + l1 ||w||_1``. ``auto``, for linear models, is the best of 16 values from 1e-08 to 0.3, times a
        typical row's squared length, by the loss on rows held out of the training rows; with the one that is chosen a
        model is trained on all of them. See the manual, *Choosing l2*.
    l2_path : tuple[float, ...] or None, default None
        Values among which l2 is chosen. ``l2`` may be given as 'auto' or such values instead.
    normalize : str, default auto
        Scale each row: auto, none, l2. The scale is kept in the model and applied by predict. ``auto`` is ``none``,
        but where ``l2`` is 'auto' too, rows of counts are scaled as by ``l2`` if the loss on rows held out is lower
        then.
    class_weight : str or None, default all rows alike
        Weigh the classes equally: balanced. A row weighs ``n / (classes * rows of the class)``.
    intercept : bool, default True
        Fit an unpenalised intercept.
    scale_columns : bool, default True
        Train in scaled and centred columns where theirs differ. The objective and the model are those of the columns
        as they are.
    adagrad : bool, default False
        A step of its own for each feature (AdaGrad). It is divided by the root of the coordinate's sum of squared
        gradients, without locks.
    renumber : str, default auto
        Number the features by popularity while workers train: auto, always, never. Popular weights then share cache
        lines: a model that outgrows the cache trains up to twice as fast, to the same bits with one worker. It takes
        4 bytes more for each nonzero. ``auto`` does so where the weights outgrow the cache and the passes over the
        data are worth it.
    own_rows : bool, default False
        Each machine has rows of its own: another file or store on each. Their counts are summed at the start, and the
        sums of losses at every evaluation, so the objective is that of all rows. If all open the same data, each
        keeps a range of it.
    """

    on_gpu: ClassVar[tuple[str, ...]] = ("atomic", "hogwild")
    distributed: ClassVar[bool] = True

    loss: str = inherited(
        "loss",
        "log",
        choices=LOSSES,
    )
    loss_param: float | None = option(
        None,
        "Huber's threshold, the half-width of an insensitive tube, the quantile, or tweedie's power.",
        GOAL,
        least=0,
        usual="the loss's own",
        rare=True,
    )
    l1: float = option(0.0, "L1 penalty.", GOAL, least=0, most=LARGEST_FLOAT32)
    l2: float = option(
        1e-5,
        "L2 penalty; 'auto' chooses it by rows held out, and 1e-6,1e-5 among these.",
        GOAL,
        least=0,
        most=LARGEST_FLOAT32,
        metavar="NUMBER",
    )
    l2_path: tuple[float, ...] | None = option(
        None,
        "Values among which l2 is chosen.",
    )
    schedule: str = inherited(
        "schedule",
        "auto",
        choices=SCHEDULES,
    )
    normalize: str = option(
        "auto",
        "Scale each row",
        GOAL,
        choices=("auto", *NORMALIZE),
    )
    class_weight: str | None = option(
        None,
        "Weigh the classes equally",
        GOAL,
        choices=CLASS_WEIGHT,
        usual="all rows alike",
    )
    intercept: bool = option(True, "Fit an unpenalised intercept.", GOAL, without="Fit no intercept.")
    scale_columns: bool = option(
        True,
        "Train in scaled and centred columns where theirs differ.",
        STEPS,
        without="Train in the columns as they are, however their scales differ.",
        rare=True,
    )
    adagrad: bool = option(
        False,
        "A step of its own for each feature (AdaGrad).",
        STEPS,
    )
    renumber: str = option(
        "auto",
        "Number the features by popularity while workers train",
        PARALLEL,
        choices=("auto", "always", "never"),
        rare=True,
    )
    own_rows: bool = option(
        False,
        "Each machine has rows of its own: another file or store on each.",
        MACHINES,
        rare=True,
    )

    def __post_init__(self) -> None:
        if not isinstance(self.l2, float | int | None) and not hasattr(self.l2, "dtype"):
            self._set("l2_path", self.l2)
            self._set("l2", None)
        if self.l2_path is not None:
            self._set("l2_path", path_of(self.l2_path))
        super().__post_init__()
        if self.normalize == "auto" and self.l2_path != L2_PATH:
            self._set("normalize", "none")

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        if self.schedule == "optimal" and 0 in (self.l2, *(self.l2_path or ())):
            yield "schedule='optimal' divides by l2: give l2 > 0, or another schedule"
        if self.schedule == "optimal" and self.step is not None:
            yield "schedule='optimal' sets its own step: leave step out"
        if self.l2_path and (self.machines > 1 or self.own_rows):
            yield "l2='auto' is chosen on one machine: give l2 as a number to several"
        if self.own_rows and self.machines == 1:
            yield "own_rows is for several machines: give machines too, or all rows to one"
        yield from wrong_param(self.loss, self.loss_param)
        if self.class_weight is not None and self.loss not in LABEL_LOSSES:
            yield f"class_weight is for classes, and loss {self.loss!r} has real targets"
        if self.renumber == "always" and (reason := why_not_renumber(self)):
            yield f"renumber='always': {reason}: leave renumber out"
        if self.adagrad and self.schedule not in ("auto", "constant", "epoch", "round"):
            yield f"adagrad goes with schedule constant, epoch or round, not {self.schedule!r}"
        if self.adagrad and self.discipline == "tiered":
            yield "adagrad keeps sums of squares in one array, and 'tiered' has copies: choose discipline 'hogwild'"
        if self.adagrad and self.exchange != "none":
            yield f"exchange={self.exchange!r}: sums of squares cannot be averaged: leave adagrad out"


def wrong_param(loss: str, param: float | None) -> Iterator[str]:
    """Say why a loss cannot have this parameter, if so."""
    if param is None:
        return
    low, high = losses.LOSSES[loss].range
    if loss not in DEFAULT_PARAM or low == high:
        yield f"loss_param belongs to other losses (huber, quantile, tweedie, ...); got {loss!r}"
    elif not low <= param <= high:
        yield f"loss_param of loss {loss!r} is from {low:g} to {high:g}; got {param:g}"


#: Disciplines whose workers may number the features by popularity.
RENUMBERED = ("auto", "serial", "hogwild", "atomic", "locked", "tiered")


def why_not_renumber(config: Any) -> str:
    """Why workers cannot number the features by popularity, if so."""
    if config.discipline not in RENUMBERED:
        return f"discipline={config.discipline!r} goes by the order of a row's features"
    if config.exchange != "none" or config.machines > 1:
        return "replicas trade weights in the user's numbering"
    if config.device != "cpu" or config.host == "simulator":
        return "it is for the caches of real workers on a CPU"
    return ""


def path_of(given: Any) -> tuple[float, ...]:
    """The penalties that "auto", a text such as "1e-6,1e-5", or a sequence stands for, ascending.

    Raises
    ------
    UsageError
        Unless they are finite numbers of at least 0, and two or more.
    """
    if isinstance(given, str) and given == "auto":
        return L2_PATH
    try:
        values = (
            given.split(",")
            if isinstance(given, str)
            else [each.item() if hasattr(each, "item") else each for each in given]
        )
        path = [] if any(isinstance(each, bool) for each in values) else sorted({float(each) for each in values})
    except (TypeError, ValueError):
        path = []
    if len(path) < 2 or not 0 <= path[0] <= path[-1] <= LARGEST_FLOAT32:
        raise UsageError(f"l2={given!r}: expected a number of at least 0, two or more as '1e-6,1e-5', or 'auto'")
    return tuple(path)
