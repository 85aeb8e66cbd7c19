"""Options of the estimators: scikit-learn's names for losses, penalties and step sizes, and what they mean here.

The one decision: a parameter that ``SGDClassifier`` has keeps its name, meaning and range; our own names of losses are
taken as well. Everything is checked in ``fit``, as scikit-learn asks, and a mistake is one line with the choices.
"""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hogwild.config import LARGEST_FLOAT32, PARAM_LOSSES
from hogwild.errors import UsageError, expected_one_of
from hogwild.kernels.losses import PASSIVE
from hogwild.kernels.steps import STEP_EVERY
from hogwild.schedule import Optimal

#: scikit-learn's names of losses, and ours.
LOSSES = {
    "hinge": "hinge",
    "log_loss": "log",
    "modified_huber": "modified-huber",
    "squared_hinge": "squared-hinge",
    "perceptron": "perceptron",
    "squared_error": "squared-error",
    "huber": "huber",
    "epsilon_insensitive": "epsilon-insensitive",
    "squared_epsilon_insensitive": "squared-epsilon-insensitive",
}
OWN_LOSSES = {"classifier": ("softmax",), "regressor": ("poisson",)}
REAL_LOSSES = (*PARAM_LOSSES, "squared-error", "poisson")  # for real targets
EPSILON = 0.1
PENALTIES = ("l2", "l1", "elasticnet", None)
LEARNING_RATES = ("auto", "optimal", "constant", "invscaling", "adaptive", "pa1", "pa2")
PASSIVE_LOSS = {"classifier": "hinge", "regressor": "epsilon_insensitive"}
HOSTS = ("threads", "processes")
LOOK = 500  # rows from one look at the objective to the next, at least: several epochs where they are fewer
PATIENT = 20  # looks without progress, of so many rows each, that are enough to wait for
ENOUGH = 200  # rows; of fewer, dividing each weight costs nothing, and steps may be anything
SUDDEN, APART = 0.5, 0.04  # exponents of the penalty: of rows with one step, of chunks in hand at the same time
DEEPEST = 60.0  # exponent that weights may shrink by before they are written out: float32 ends at exp(-87)
FLAGS = ("fit_intercept", "shuffle", "early_stopping", "warm_start")
TINY = 2.0**-24  # share of the penalty that float32 cannot tell from none


@dataclass(frozen=True)
class Options:
    """Checked parameters, in the trainer's terms."""

    loss: str
    loss_param: float
    l1: float
    l2: float
    intercept: bool
    learning_rate: str
    alpha: float
    eta0: float
    power_t: float
    max_iter: int
    tol: float  # -inf: never stop for it
    patience: int
    shuffle: bool
    host: str
    verbose: int
    average: int  # rows after which averaging begins; 0: none

    @property
    def passive(self) -> str:
        """The passive-aggressive steps, as ``LinearProblem.passive``."""
        return self.learning_rate if self.learning_rate in PASSIVE else "none"

    def shrinks_gently(self, rows: int, slope: Callable[[float], float]) -> bool:
        """Whether a scale can stand for the l2 penalty in epochs of so many rows: ``kernels/linear.py``, PENALTIES.

        ``slope``: the loss's, as ``schedule.Optimal`` takes it.
        """
        if self.l1 > 0 or self.l2 == 0 or rows < ENOUGH or (self.learning_rate == "invscaling" and self.power_t < 0):
            return False
        if self.learning_rate == "auto":  # falls as one over the penalty, and its first step is tried
            return True
        step = Optimal(self.alpha, slope).step if self.learning_rate == "optimal" else self.eta0
        if self.l2 * step * STEP_EVERY > SUDDEN:  # for so many rows it stays as it is, even where it falls steeply
            return False
        return self.learning_rate == "optimal" or self.l2 * step * (rows + LOOK) <= DEEPEST

    def shrinks_alike(self, rows: int, chunk: int, workers: int) -> bool:
        """Whether so many racing workers, each with another chunk of the rows in hand, see about the same scale."""
        apart = chunk * workers
        if self.learning_rate in ("auto", "optimal"):  # whose penalty shrinks weights by less than e in an epoch
            return apart <= APART * rows
        return self.l2 * self.eta0 * apart <= APART


def loss_functions(kind: str) -> dict[str, tuple[Any, ...]]:
    """scikit-learn's losses by its names: our name, and the usual epsilon of those that have one."""
    known = {theirs: ours for theirs, ours in LOSSES.items() if kind == "classifier" or ours in REAL_LOSSES}
    return {theirs: (ours, EPSILON) if ours in PARAM_LOSSES else (ours,) for theirs, ours in known.items()}


def read_options(estimator: Any, batch: bool = False) -> Options:
    """The parameters of a classifier or regressor, checked; ``batch``: for ``partial_fit``.

    Raises
    ------
    UsageError
        One line that names the parameter, its value and what is expected.
    """
    p = vars(estimator)  # get_params looks at signatures, a fifth of a millisecond
    loss = loss_of(p["loss"], estimator._kind)
    one_of("penalty", p["penalty"], PENALTIES)
    one_of("learning_rate", p["learning_rate"], LEARNING_RATES)
    one_of("host", p["host"], HOSTS)
    for name in FLAGS:
        flag(name, p[name])
    number("alpha", p["alpha"], 0, LARGEST_FLOAT32)
    number("eta0", p["eta0"], 0, LARGEST_FLOAT32, strict=p["learning_rate"] not in ("auto", "optimal"))
    number("power_t", p["power_t"], -math.inf)
    if p["power_t"] < 0:
        said = "Negative values for `power_t` are deprecated, as in scikit-learn: steps would grow; give 0 or more"
        warnings.warn(said, FutureWarning, stacklevel=4)  # the line that calls fit
    number("epsilon", p["epsilon"], 0)
    number("validation_fraction", p["validation_fraction"], 0, 1, strict=True)
    whole("max_iter", p["max_iter"], 1)
    whole("n_iter_no_change", p["n_iter_no_change"], 1)
    whole("verbose", p["verbose"], 0)
    if p["tol"] is not None:
        number("tol", p["tol"], 0)
    if p["penalty"] == "elasticnet":
        if p["l1_ratio"] is None:
            raise UsageError("l1_ratio must be set when penalty is 'elasticnet': a number from 0 to 1, and it is None")
        number("l1_ratio", p["l1_ratio"], 0, 1)
    if batch and p["early_stopping"]:
        raise UsageError("early_stopping should be False with partial_fit, which holds no rows of a batch out")
    average = p["average"]
    if not isinstance(average, bool | np.bool_):  # the latter from the grid of a search
        whole("average", average, 0)
    alpha = float(p["alpha"])
    fitting = PASSIVE_LOSS[estimator._kind]
    if p["learning_rate"] in PASSIVE and loss != LOSSES[fitting]:
        raise UsageError(f"learning_rate={p['learning_rate']!r} goes with loss={fitting!r} only, not {p['loss']!r}")
    if p["learning_rate"] == "optimal" and alpha == 0:
        raise UsageError("learning_rate='optimal' divides by alpha: give alpha > 0, or another learning_rate")
    share = {"l2": 0.0, "l1": 1.0, "elasticnet": p["l1_ratio"], None: None}[p["penalty"]]
    if share is not None and not TINY < share < 1 - TINY:
        share = round(share)
    l1, l2 = (0.0, 0.0) if share is None else (alpha * share, alpha * (1.0 - share))
    return Options(
        loss, float(p["epsilon"]) if loss in PARAM_LOSSES else 0.0, l1, l2, bool(p["fit_intercept"]),
        p["learning_rate"], alpha, float(p["eta0"]), float(p["power_t"]), int(p["max_iter"]),
        -math.inf if p["tol"] is None else float(p["tol"]), int(p["n_iter_no_change"]), bool(p["shuffle"]), p["host"],
        int(p["verbose"]), int(average),
    )  # fmt: skip


def loss_of(name: Any, kind: str) -> str:
    """Our name of a loss, whosever name was given; ``kind`` is "classifier" or "regressor"."""
    known = LOSSES | {own: own for own in (*LOSSES.values(), *OWN_LOSSES[kind])}
    if kind == "regressor":
        known = {theirs: ours for theirs, ours in known.items() if ours in REAL_LOSSES}
    if not isinstance(name, str) or name not in known:
        raise UsageError(f"loss={name!r}: {expected_one_of(known, name)}")
    return known[name]


def one_of(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    if not (value is None or isinstance(value, str)) or value not in choices:
        raise UsageError(f"{name}={value!r}: {expected_one_of(map(repr, choices), value)}")


def flag(name: str, value: Any) -> None:
    if not isinstance(value, bool | np.bool_ | numbers.Integral) or value not in (0, 1):
        raise UsageError(f"{name}={value!r}: expected True or False")


def number(name: str, value: Any, low: float, high: float = math.inf, *, strict: bool = False) -> None:
    good = isinstance(value, numbers.Real) and not isinstance(value, bool) and not math.isnan(value)
    if good and low <= value <= high and math.isfinite(value) and not (strict and value in (low, high)):
        return
    bounds = "a finite number" if value in (math.inf, -math.inf) else "a number"
    if low > -math.inf:
        bounds += f" {'above' if strict else 'of at least'} {low:g}"
    if high not in (math.inf, LARGEST_FLOAT32):
        bounds += f" and {'below' if strict else 'at most'} {high:g}"
    raise UsageError(f"{name}={value!r}: expected {bounds}")


def whole(name: str, value: Any, low: int) -> None:
    if not isinstance(value, numbers.Integral) or value < low:
        raise UsageError(f"{name}={value!r}: expected a whole number of at least {low}")
