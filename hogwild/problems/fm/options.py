"""Options of factorization machines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from hogwild.config import (
    GOAL,
    LARGEST_FLOAT32,
    TrainConfig,
    inherited,
    option,
)
from hogwild.methods import LOSSES
from hogwild.problems.linear.options import LinearConfig, why_not_renumber, wrong_param

#: Penalties among which ``l2_factors`` is chosen, times the number of training rows.
PATH = (0.3, 1.0, 3.0)
SCHEDULES = ("epoch", "root", "constant", "round", "inverse", "adaptive")
PLAIN = ("auto", "serial", "hogwild", "aig", "locked")  # disciplines by plain stores, in the user's numbering


def shared(name: str, **changes: Any) -> Any:
    """Return the field of an option that linear models have too."""
    default = changes.pop("default", LinearConfig.__dataclass_fields__[name].default)
    return inherited(name, default, LinearConfig, **changes)


@dataclass(frozen=True)
class FMConfig(TrainConfig):
    """Options of factorization machines, besides those of :class:`hogwild.TrainConfig`.

    Attributes
    ----------
    loss : str, default log
        Loss of an example: log, hinge, squared-hinge, modified-huber, perceptron, squared-error, huber,
        epsilon-insensitive, squared-epsilon-insensitive, quantile, poisson, tweedie, gamma.
    schedule : str, default epoch
        How the step falls: epoch, root, constant, round, inverse, adaptive. ``epoch`` multiplies it by 0.8 after each
        epoch, ``root`` divides it by the root of the epoch's number.
    patience : int or None, default 3
        Stop after this many epochs without progress of the held-out loss, or else of the objective; 0: never. Linear
        models and completion are long from 1e9 entries in all epochs. A run that has ended so goes on if it is
        resumed with more ``epochs``.
    tol : float, default 0.0
        Relative fall that is progress.
    loss_param : float or None, default the loss's own
        Huber's threshold, the half-width of an insensitive tube, the quantile, or tweedie's power.
    rank : int, default 8
        Numbers in a factor.
    l2 : float or None, default 0.15 or 0.3 over the number of training rows
        L2 penalty of the weights.
    l2_factors : float or None, default the best on rows held out
        L2 penalty of the factors. The objective is ``mean loss + l2/2 ||w||^2 + l2_factors/2 ||V||^2``. If it is not
        given, 0.3, 1, 3 over the number of training rows are tried on rows held out until the loss rises.
    normalize : str, default l2
        Scale each row: auto, none, l2. The scale is kept in the model and applied by predict. ``auto`` is ``none``,
        but where ``l2`` is 'auto' too, rows of counts are scaled as by ``l2`` if the loss on rows held out is lower
        then.
    intercept : bool, default True
        Fit an unpenalised intercept.
    adagrad : bool, default False
        A step of its own for each feature (AdaGrad). It is divided by the root of the coordinate's sum of squared
        gradients, without locks.
    renumber : str, default auto
        Number the features by popularity while workers train: auto, always, never. Popular weights then share cache
        lines: a model that outgrows the cache trains up to twice as fast, to the same bits with one worker. It takes
        4 bytes more for each nonzero. ``auto`` does so where the weights outgrow the cache and the passes over the
        data are worth it.
    """

    field_aware: ClassVar[bool] = False
    scale_columns: ClassVar[bool] = False
    class_weight: ClassVar[Any] = None
    usual_decay: ClassVar[float | None] = 0.8

    loss: str = inherited("loss", "log", choices=tuple(name for name in LOSSES if name != "softmax"))
    loss_param: float | None = shared("loss_param")
    rank: int = option(8, "Numbers in a factor.", GOAL, least=1, most=1024)
    l2: float | None = option(
        None,
        "L2 penalty of the weights.",
        GOAL,
        least=0,
        most=LARGEST_FLOAT32,
        usual="0.15 or 0.3 over the number of training rows",
    )
    l2_factors: float | None = option(
        None,
        "L2 penalty of the factors.",
        GOAL,
        least=0,
        most=LARGEST_FLOAT32,
        usual="the best on rows held out",
    )
    normalize: str = shared("normalize", default="l2")
    intercept: bool = shared("intercept")
    schedule: str = inherited("schedule", "epoch", choices=SCHEDULES)
    adagrad: bool = shared("adagrad")
    renumber: str = shared("renumber")
    patience: int | None = inherited("patience", 3, usual="3")
    tol: float = inherited("tol", 0.0)

    @property
    def l2_path(self) -> tuple[float, ...]:
        """What ``l2_factors`` is chosen from; empty if it was given."""
        return PATH if self.l2_factors is None else ()

    def __post_init__(self) -> None:
        if self.l2 == "auto":  # what linear models call what is usual here
            self._set("l2", None)
        super().__post_init__()

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        yield from wrong_param(self.loss, self.loss_param)
        if self.discipline not in PLAIN:
            some = ", ".join(PLAIN[1:])
            yield f"problem {self.problem!r} has the disciplines {some}; got {self.discipline!r}: leave discipline out"
        if self.renumber == "always" and (reason := why_not_renumber(self)):
            yield f"renumber='always': {reason}: leave renumber out"
        if self.adagrad and self.exchange != "none":
            yield f"exchange={self.exchange!r}: sums of squares cannot be averaged: leave adagrad out"


@dataclass(frozen=True)
class FFMConfig(FMConfig):
    __doc__ = (
        (FMConfig.__doc__ or "").replace("Options of f", "Options of field-aware f").replace("default 8", "default 4")
    )

    field_aware: ClassVar[bool] = True

    rank: int = inherited("rank", 4, FMConfig)
