"""Parameters of the estimators: scikit-learn's names, ranges and meanings, and what they are called in a config.

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
import textwrap
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from sklearn.utils import check_random_state

from hogwild import machine
from hogwild.config import LARGEST_FLOAT32, Option, check_field, fields_of, number, option
from hogwild.errors import UsageError, expected_one_of
from hogwild.kernels.losses import PASSIVE
from hogwild.methods import COUNT_LOSSES, DEFAULT_PARAM, LABEL_LOSSES, SGD_LOSSES
from hogwild.problems.completion.options import CompletionConfig
from hogwild.problems.linear.options import LinearConfig

#: scikit-learn's loss names, and ours.
LOSSES = {name: loss for loss, name in SGD_LOSSES.items()}
OWN_LOSSES = {"classifier": ("softmax",), "regressor": ("quantile", *COUNT_LOSSES)}
PENALTIES = ("l2", "l1", "elasticnet", None)
#: Learning rates, and what they are called as a schedule.
SCHEDULES = {
    "auto": "auto",
    "optimal": "optimal",
    "constant": "constant",
    "invscaling": "inverse",
    "adaptive": "adaptive",
    "pa1": "constant",
    "pa2": "constant",
}
#: Parameters that are options of ``FitConfig`` by another name, or by their own.
RENAMED = {
    "fit_intercept": "intercept",
    "max_iter": "epochs",
    "n_iter_no_change": "patience",
    "power_t": "power",
    "host": "host",
}
PASSIVE_LOSS = {"classifier": "hinge", "regressor": "epsilon_insensitive"}
HOSTS = ("threads", "processes")
RACE = 4_000_000  # nonzeros (times eighths of classes) of an epoch below which more workers cost more than they save
TINY = 2.0**-24  # share of the penalty that float32 cannot tell from none


@dataclass(frozen=True)
class FitConfig(LinearConfig):
    """Options of a fit: those of linear models, and what only estimators have."""

    alpha: float = option(0.0, "")  # strength of the penalty, whatever its kind
    average: int = option(0, "")  # rows after which averaging begins; 0: no averaging
    passive: str = option("none", "")  # a key of ``losses.PASSIVE``


@lru_cache(None)
def _usual() -> FitConfig:
    return FitConfig(normalize="none", workers=1)


def parameter(default: Any, help: str = "", like: str = "", **more: Any) -> Any:
    """Return a field of an estimator; what is not given is that of the option ``like`` of ``TrainConfig``."""
    fields = fields_of(CompletionConfig) | fields_of(LinearConfig)
    described = fields[like].metadata["option"] if like else Option("")
    described = dataclasses.replace(described, help=help or described.help, **({"choices": ()} | more))
    return dataclasses.field(default=default, metadata={"option": described})


Estimator = TypeVar("Estimator", bound=type)


def entry(name: str, kind: str, usual: Any, text: str) -> str:
    """Return what a docstring says of an option, in NumPy's style."""
    text = textwrap.fill(text, 110, break_on_hyphens=False, break_long_words=False).replace("\n", "\n    ")
    return f"{name} : {kind}, default {usual}\n    {text}".rstrip()


def documented(cls: Estimator) -> Estimator:
    """Describe the parameters of an estimator in its docstring, before the attributes."""
    entries = []
    for field in dataclasses.fields(cls):
        described: Option = field.metadata["option"]
        kind = str(field.type).replace(" | ", " or ")
        if described.choices:
            kind = f"{{{', '.join(map(repr, described.choices))}}}"
        entries.append(entry(field.name, kind.replace("'", '"'), repr(getattr(cls, field.name)), described.help))
    before, _, after = inspect.cleandoc(cls.__doc__ or "").partition("Attributes\n----------\n")
    cls.__doc__ = "\n".join([f"{before}Parameters\n----------", *entries, "\nAttributes\n----------", after])
    return cls


@lru_cache(None)
def _defaults(cls: Any) -> dict[str, Any]:
    return {field.name: field.default for field in dataclasses.fields(cls)}


def checked(estimator: Any) -> dict[str, Any]:
    """Check every parameter whose field states a range or choices; return all of them.

    Numbers of NumPy, which a grid of parameters may give, become Python's.

    Raises
    ------
    UsageError
        One line with the parameter, its value and what is expected.
    """
    # get_params inspects signatures, which takes a fifth of a millisecond
    given = {name: value.item() if isinstance(value, np.generic) else value for name, value in vars(estimator).items()}
    defaults: dict[str, Any] = _defaults(type(estimator))  # type: ignore[arg-type]  # a class is hashable
    for name in [name for name, default in defaults.items() if given[name] is not default]:
        field, value = estimator.__dataclass_fields__[name], given[name]
        if field.type != "float | str":
            check_field(field, value, field.metadata["option"].choices)
        elif value != "auto":
            number(name, value, 0, LARGEST_FLOAT32)
    return given


def config_of(estimator: Any, batch: bool = False) -> FitConfig:
    """Check the parameters of a classifier or regressor, and return what they are in a config.

    ``batch`` means for ``partial_fit``.

    Raises
    ------
    UsageError
        One line with the parameter, its value and what is expected.
    """
    loss = loss_of(estimator.loss, estimator._kind)
    p = checked(estimator)
    rate = p["learning_rate"]
    own_step = rate not in ("auto", "optimal")
    number("eta0", p["eta0"], 0, LARGEST_FLOAT32, strict=own_step)
    number("power_t", p["power_t"], -math.inf)
    if p["power_t"] < 0:
        warning = "Negative values for `power_t` are deprecated, as in scikit-learn: steps would grow; give 0 or more"
        warnings.warn(warning, FutureWarning, stacklevel=3)  # the line that calls fit
    number("validation_fraction", p["validation_fraction"], 0, 0.999, strict=True)
    if p["penalty"] == "elasticnet" and p["l1_ratio"] is None:
        raise UsageError("l1_ratio must be set when penalty is 'elasticnet': give a number from 0 to 1")
    number("l1_ratio", p["l1_ratio"], 0, 1, optional=True)
    if batch and p["early_stopping"]:
        raise UsageError("early_stopping should be False with partial_fit, which holds no rows of a batch out")
    if not isinstance(p["average"], bool):
        number("average", p["average"], 0, whole=True)
    if batch and p["alpha"] == "auto":
        raise UsageError("alpha='auto' is chosen by fit, on all rows: give partial_fit a number")
    alpha = 1.0 if p["alpha"] == "auto" else float(p["alpha"])
    fitting = PASSIVE_LOSS[estimator._kind]
    if rate in PASSIVE and loss != LOSSES[fitting]:
        raise UsageError(f"learning_rate={rate!r} goes with loss={fitting!r} only, not {p['loss']!r}")
    if rate == "optimal" and alpha == 0:
        raise UsageError("learning_rate='optimal' divides by alpha: give alpha > 0, or another learning_rate")
    share = {"l2": 0.0, "l1": 1.0, "elasticnet": p["l1_ratio"], None: 0.0}[p["penalty"]]
    if not TINY < share < 1 - TINY:
        share = round(share)
    strength = alpha if p["penalty"] else 0.0
    return _usual().settled(
        **{name: p[ours] for ours, name in RENAMED.items()},
        loss=loss,
        loss_param=param_of(loss, p["epsilon"], p.get("loss_param")),
        l1=strength * share,
        l2=strength * (1.0 - share),
        alpha=alpha,
        step=float(p["eta0"]) if own_step else None,
        schedule=SCHEDULES[rate],
        passive=rate if rate in PASSIVE else "none",
        tol=-math.inf if p["tol"] is None else float(p["tol"]),  # -inf: never stop early
        order="shuffled" if p["shuffle"] else "file",
        scale_columns=bool(p["scale_columns"]) and rate == "auto",
        average=int(p["average"]),
    )


def param_of(loss: str, epsilon: float, loss_param: float | None) -> float:
    """The parameter of a loss: ``epsilon`` where scikit-learn's SGD has it, else ``loss_param`` or the loss's own."""
    if loss in SGD_LOSSES and loss in DEFAULT_PARAM:
        if loss_param is not None:
            raise UsageError(f"loss_param={loss_param!r}: the parameter of loss {loss!r} is epsilon")
        return float(epsilon)
    if loss_param is not None:
        return LinearConfig(loss=loss, loss_param=loss_param).loss_param or 0.0
    return DEFAULT_PARAM.get(loss, 0.0)


def workers_of(n_jobs: Any, rows: int = 1024, entries: float = math.inf) -> int:
    """Workers for a value of ``n_jobs``: None is 1 (or what ``joblib.parallel_config`` says), -1 all physical cores.

    There are no more than ``rows``. Within other parallel work, such as a grid search on all cores, there is one
    whatever ``n_jobs`` is, because the cores are taken: the nesting level of joblib's backend shows that. So is there
    if an epoch has so few ``entries`` (nonzeros, times the eighths of classes) that workers would slow each other down.

    Raises
    ------
    UsageError
        For 0, or anything but a whole number.
    """
    if n_jobs is not None and (not isinstance(n_jobs, numbers.Integral) or n_jobs == 0):
        raise UsageError(f"n_jobs={n_jobs!r}: expected a whole number other than 0, or None")
    if entries < RACE:  # asking joblib would take as long as an epoch
        return 1
    import joblib
    from joblib.parallel import get_active_backend

    backend, _ = get_active_backend()
    if getattr(backend, "nesting_level", 0):
        return 1
    jobs = int(joblib.effective_n_jobs(None) if n_jobs is None else n_jobs)
    return max(1, min(machine.physical_cores() + 1 + jobs if jobs < 0 else jobs, rows, 1024))


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
