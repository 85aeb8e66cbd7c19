"""Options of the estimators: scikit-learn's names for losses, penalties and step sizes, and their meaning here.

A parameter of ``SGDClassifier`` keeps its name, meaning and range; hogwild's own loss names are accepted as well.
Everything is checked in ``fit``, as scikit-learn requires, and an error is one line that lists the choices. The field
of a parameter carries what is to be known of it, as those of ``TrainConfig`` do: checks and documentation are made from
that, and what is an option of ``TrainConfig`` too has its range, and where nothing else is to be said its help.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import numbers
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from sklearn.utils import check_random_state

from hogwild import machine
from hogwild.config import LARGEST_FLOAT32, Option, check_field, entry, fields_of, flag, number
from hogwild.errors import HogwildWarning, UsageError, expected_one_of
from hogwild.kernels.losses import PASSIVE
from hogwild.kernels.steps import STEP_EVERY
from hogwild.methods import COUNT_LOSSES, DEFAULT_PARAM, LABEL_LOSSES, SGD_LOSSES
from hogwild.problems.completion.options import CompletionConfig
from hogwild.problems.linear.options import LinearConfig
from hogwild.training.schedule import make_schedule

#: scikit-learn's loss names, and ours.
LOSSES = {name: loss for loss, name in SGD_LOSSES.items()}
OWN_LOSSES = {"classifier": ("softmax",), "regressor": COUNT_LOSSES}
EPSILON = 0.1
PENALTIES = ("l2", "l1", "elasticnet", None)
LEARNING_RATES = ("auto", "optimal", "constant", "invscaling", "adaptive", "pa1", "pa2")
PASSIVE_LOSS = {"classifier": "hinge", "regressor": "epsilon_insensitive"}
HOSTS = ("threads", "processes")
LOOK = 500  # fewest rows between two looks at the objective: several epochs if they are shorter
PATIENT = 20  # looks without progress, LOOK rows each, after which waiting longer is useless
RACE = 4_000_000  # nonzeros (times eighths of classes) of an epoch below which more workers cost more than they save
ENOUGH = 200  # rows; with fewer, dividing each weight costs nothing, and steps may have any size
SUDDEN, APART = 0.5, 0.04  # largest penalty exponents: over rows with one step, over chunks worked on at once
DEEPEST = 60.0  # exponent that weights may shrink by before they are written out: float32 ends at exp(-87)
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
    tol: float  # -inf: never stop early
    patience: int
    shuffle: bool
    host: str
    verbose: int
    average: int  # rows after which averaging begins; 0: no averaging
    scale_columns: bool

    @property
    def passive(self) -> str:
        """The passive-aggressive steps, as ``LinearProblem.passive``."""
        return self.learning_rate if self.learning_rate in PASSIVE else "none"

    def shrinks_gently(self, rows: int, slope: Callable[[float], float]) -> bool:
        """Whether a scale can represent the l2 penalty in epochs of ``rows`` rows (``problems/linear/kernel.py``).

        ``slope`` is the derivative of the loss, as ``make_schedule`` takes it.
        """
        if self.l1 > 0 or self.l2 == 0 or rows < ENOUGH or (self.learning_rate == "invscaling" and self.power_t < 0):
            return False
        if self.learning_rate == "auto":  # falls as one over the penalty, and its first step is tried
            return True
        step = make_schedule(self.learning_rate, self.eta0, l2=self.alpha, dloss=slope).step
        if self.l2 * step * STEP_EVERY > SUDDEN:  # the step is constant for STEP_EVERY rows, even if it falls steeply
            return False
        return self.learning_rate == "optimal" or self.l2 * step * (rows + LOOK) <= DEEPEST

    def shrinks_alike(self, rows: int, chunk: int, workers: int) -> bool:
        """Whether ``workers`` racing workers, each on another chunk of the rows, see about the same scale."""
        apart = chunk * workers
        if self.learning_rate in ("auto", "optimal"):  # their penalty shrinks weights by less than e in an epoch
            return apart <= APART * rows
        return self.l2 * self.eta0 * apart <= APART


def parameter(default: Any, help: str = "", like: str = "", **more: Any) -> Any:
    """Return a field of an estimator; what is not given is that of the option ``like`` of ``TrainConfig``."""
    fields = fields_of(CompletionConfig) | fields_of(LinearConfig)
    option = fields[like].metadata["option"] if like else Option("")
    option = dataclasses.replace(option, help=help or option.help, **({"choices": ()} | more))
    return dataclasses.field(default=default, metadata={"option": option})


Estimator = TypeVar("Estimator", bound=type)


def documented(cls: Estimator) -> Estimator:
    """Describe the parameters of an estimator in its docstring, before the attributes."""
    entries = []
    for field in dataclasses.fields(cls):
        option: Option = field.metadata["option"]
        kind = str(field.type).replace(" | ", " or ")
        if option.choices:
            kind = f"{{{', '.join(map(repr, option.choices))}}}"
        entries.append(entry(field.name, kind.replace("'", '"'), repr(getattr(cls, field.name)), option.help))
    before, _, after = inspect.cleandoc(cls.__doc__ or "").partition("Attributes\n----------\n")
    cls.__doc__ = "\n".join([f"{before}Parameters\n----------", *entries, "\nAttributes\n----------", after])
    return cls


@lru_cache(None)
def _defaults(cls: Any) -> dict[str, Any]:
    return {field.name: field.default for field in dataclasses.fields(cls)}


def check_parameters(estimator: Any, given: Mapping[str, Any]) -> None:
    """Check every parameter whose field states a range or choices.

    Raises
    ------
    UsageError
        One line with the parameter, its value and what is expected.
    """
    defaults = _defaults(type(estimator))  # type: ignore[arg-type]  # a class is hashable
    chooses = given["alpha"] == "auto" and "penalty" in defaults
    for name in [name for name, default in defaults.items() if given[name] is not default]:
        if name == "alpha" and chooses:
            continue
        if name == "alpha":
            number(name, given[name], 0, LARGEST_FLOAT32)
        field, value = estimator.__dataclass_fields__[name], given[name]
        if field.type == "bool":
            flag(field.name, value)  # 0 and 1 too, as scikit-learn does
        else:
            check_field(field, value, field.metadata["option"].choices)


def loss_functions(kind: str) -> dict[str, tuple[Any, ...]]:
    """scikit-learn's losses by name: our name, and the default epsilon of those that have one."""
    return {
        name: (loss, EPSILON) if loss in DEFAULT_PARAM else (loss,)
        for name, loss in LOSSES.items()
        if kind == "classifier" or loss not in LABEL_LOSSES
    }


def read_options(estimator: Any, batch: bool = False) -> Options:
    """Read and check the parameters of a classifier or regressor; ``batch`` means for ``partial_fit``.

    Raises
    ------
    UsageError
        One line with the parameter, its value and what is expected.
    """
    p = plain(vars(estimator))  # get_params inspects signatures, which takes a fifth of a millisecond
    loss = loss_of(p["loss"], estimator._kind)
    check_parameters(estimator, p)
    number("eta0", p["eta0"], 0, LARGEST_FLOAT32, strict=p["learning_rate"] not in ("auto", "optimal"))
    number("power_t", p["power_t"], -math.inf)
    if p["power_t"] < 0:
        warning = "Negative values for `power_t` are deprecated, as in scikit-learn: steps would grow; give 0 or more"
        warnings.warn(warning, FutureWarning, stacklevel=4)  # the line that calls fit
    number("validation_fraction", p["validation_fraction"], 0, strict=True, below=1)
    if p["penalty"] == "elasticnet" and p["l1_ratio"] is None:
        raise UsageError("l1_ratio must be set when penalty is 'elasticnet': give a number from 0 to 1")
    number("l1_ratio", p["l1_ratio"], 0, 1, optional=True)
    if batch and p["early_stopping"]:
        raise UsageError("early_stopping should be False with partial_fit, which holds no rows of a batch out")
    average = p["average"]
    if not isinstance(average, bool):
        number("average", average, 0, whole=True)
    auto = p["alpha"] == "auto"
    if batch and auto:
        raise UsageError("alpha='auto' is chosen by fit, on all rows: give partial_fit a number")
    alpha = 1.0 if auto else float(p["alpha"])
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
        loss,
        float(p["epsilon"]) if loss in DEFAULT_PARAM else 0.0,
        l1,
        l2,
        bool(p["fit_intercept"]),
        p["learning_rate"],
        alpha,
        float(p["eta0"]),
        float(p["power_t"]),
        int(p["max_iter"]),
        -math.inf if p["tol"] is None else float(p["tol"]),
        int(p["n_iter_no_change"]),
        bool(p["shuffle"]),
        p["host"],
        int(p["verbose"]),
        int(average),
        bool(p["scale_columns"]) and p["learning_rate"] == "auto",
    )


def check_jobs(n_jobs: Any) -> None:
    """Refuse any value that :func:`workers_of` would."""
    if n_jobs is not None and (not isinstance(n_jobs, numbers.Integral) or n_jobs == 0):
        raise UsageError(f"n_jobs={n_jobs!r}: expected a whole number other than 0, or None")


def workers_of(n_jobs: Any) -> int:
    """Workers for a value of ``n_jobs``: None is 1 (or what ``joblib.parallel_config`` says), -1 all physical cores.

    Within other parallel work, such as a grid search on all cores, it is 1 whatever ``n_jobs`` is, because the cores
    are taken; the nesting level of joblib's backend shows whether it runs within joblib's workers.

    Raises
    ------
    UsageError
        For 0, or anything but a whole number.
    """
    import joblib
    from joblib.parallel import get_active_backend

    check_jobs(n_jobs)
    backend, _ = get_active_backend()
    if getattr(backend, "nesting_level", 0):
        return 1
    if n_jobs is None:
        n_jobs = joblib.effective_n_jobs(None)
    if n_jobs < 0:
        return max(1, machine.physical_cores() + 1 + int(n_jobs))
    return min(int(n_jobs), 1024)


def workers_for(n_jobs: Any, host: str, entries: int, rows: int) -> int:
    """Workers of a fit: as ``n_jobs`` says, or one if an epoch is so short that more would slow each other down.

    Parameters
    ----------
    n_jobs, host
        The estimator's parameters.
    entries : int
        Nonzeros of an epoch, times the eighths of classes.
    rows : int

    Raises
    ------
    UsageError
        As in :func:`workers_of`.
    """
    check_jobs(n_jobs)
    if host == "threads" and entries < RACE:  # asking joblib would take as long as an epoch
        return 1
    workers = max(1, min(workers_of(n_jobs), rows))
    cores = machine.physical_cores()
    if workers > cores:
        warnings.warn(f"n_jobs={n_jobs}: {machine.crowded(workers, cores)}", HogwildWarning, stacklevel=6)  # of fit
    return workers


def drawn_seed(random_state: Any) -> int:
    """The seed of a fit; a whole number is used as it is, since to make a generator takes as long as some epochs."""
    if isinstance(random_state, numbers.Integral) and 0 <= int(random_state) < 2**32:
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def loss_of(name: Any, kind: str) -> str:
    """Our name of a loss, given by either name; ``kind`` is "classifier" or "regressor"."""
    losses = LOSSES | {loss: loss for loss in (*LOSSES.values(), *OWN_LOSSES[kind])}
    if kind == "regressor":
        losses = {key: loss for key, loss in losses.items() if loss not in LABEL_LOSSES}
    if not isinstance(name, str) or name not in losses:
        raise UsageError(f"loss={name!r}: {expected_one_of(losses, name)}")
    return losses[name]


def plain(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters with Python's numbers in place of NumPy's, which a grid of parameters may give."""
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in parameters.items()}
