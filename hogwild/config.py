"""What a training run is asked to do: one frozen, checked dataclass, to and from JSON.

Every option has the same name here, on the command line (``--l2``) and as a keyword of ``hogwild.train``. Names and
ranges are checked on construction, from dict and tuple literals only, so a typing mistake is reported before torch or
any data are read. What depends on the data (is it binary? does the loss fit the labels?) is checked by the problem.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from dataclasses import dataclass
from typing import Any

from hogwild.errors import UsageError, expected_one_of, nearest

LOSSES = (
    "log", "hinge", "squared-hinge", "modified-huber", "perceptron", "softmax",
    "squared-error", "huber", "epsilon-insensitive", "squared-epsilon-insensitive", "poisson",
)  # fmt: skip
DISCIPLINES = ("serial", "hogwild", "tiered", "atomic", "aig", "locked", "round-robin")
EXCHANGES = ("none", "averaging", "one-shot-averaging")
LABEL_LOSSES = LOSSES[:6]
PARAM_LOSSES = ("huber", "epsilon-insensitive", "squared-epsilon-insensitive")
HOSTS = ("processes", "threads", "simulator")
REAL_HOSTS = HOSTS[:2]  # on which time means something
DEVICES = ("cpu", "cuda")
STREAMS = "streams"  # the host of workers on device cuda, and the only one there
MOST_STREAMS = 32  # different ones that torch has
LAUNCHES = ("graphs", "eager", "vmap")  # how a module's steps reach a GPU
#: The simulator's delay laws, and their numbers: (default, least, most). See hosts/delays.py.
DELAYS: dict[str, dict[str, tuple[float, float, float]]] = {
    "round-robin": {},
    "constant": {"delay": (1, 0, 1023)},
    "random": {"shape": (1.0, 0.01, 1e6)},
    "straggler": {"alpha": (1.5, 1.01, 1e6), "slow": (0, 0, 1024), "factor": (10.0, 1.0, 1e6)},
}
TIMING: dict[str, tuple[float, float, float]] = {"window": (0.1, 0.0, 1.0), "quantum": (1, 1, 1_000_000)}  # of any law
COUNTED = ("delay", "slow", "quantum")  # whole numbers
ORDERS = ("shuffled", "file", "blocks")
SCHEDULES = ("constant", "epoch", "round", "inverse", "optimal", "adaptive")
NORMALIZE = ("none", "l2", "max")
CLASS_WEIGHT = (None, "balanced")

PENALTIES = ("per-rating", "per-row")
OPTIMIZERS = ("sgd", "momentum", "adagrad", "adam")
STATES = ("local", "shared")  # of a module's optimiser
L2_PER_ROW = 2e-5  # the default under the latter: it counts once a row, not once a rating

#: What each problem can be asked, what it takes where nothing is asked, its decay under schedule "epoch", and ("cuda")
#: the disciplines of its kernels on a GPU, the usual one first.
PROBLEMS: dict[str, dict[str, Any]] = {
    "linear": {
        "loss": LOSSES, "order": ORDERS[:2], "discipline": DISCIPLINES, "schedule": SCHEDULES,
        "defaults": {"loss": "log", "l2": 1e-5, "schedule": "epoch", "epochs": 20}, "cuda": ("atomic", "hogwild"),
    },
    "completion": {
        "loss": ("squared-error", "log", "bpr"), "order": ORDERS, "discipline": DISCIPLINES,
        "schedule": ("constant", "epoch", "round", "inverse", "adaptive"),
        "defaults": {
            "loss": "squared-error", "l2": 0.05, "step": 0.05, "schedule": "epoch", "epochs": 20, "rank": 32,
            "penalty": "per-rating", "negatives": 1,
        }, "cuda": ("atomic", "hogwild"),
    },
    "cuts": {
        "loss": ("cut",), "order": ORDERS[:2], "discipline": DISCIPLINES,
        "schedule": ("constant", "epoch", "round", "inverse", "adaptive"),
        "defaults": {"loss": "cut", "l2": 0.0, "step": 1.0, "schedule": "epoch", "epochs": 100}, "decay": 0.95,
    },
    "module": {  # through hogwild.train_module only, which has the module
        "loss": ("custom", "cross-entropy", "mse", "bce"), "order": ORDERS[:2],
        "discipline": ("serial", "hogwild", "atomic", "locked"),
        "schedule": ("constant", "epoch", "round", "inverse", "adaptive"),
        "defaults": {
            "loss": "custom", "l2": 0.0, "schedule": "constant", "epochs": 10, "optimizer": "sgd", "state": "local",
            "batch": 64, "momentum": 0.9, "betas": (0.9, 0.999), "launch": "graphs",
        }, "cuda": ("hogwild", "locked", "serial"),
    },
}  # fmt: skip
#: Options that not all problems have, and those that have them.
OWNERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("loss_param", "l1", "adagrad", "intercept", "normalize", "class_weight"), ("linear",)),
    **dict.fromkeys(("rank", "penalty", "nonnegative", "biases", "negatives"), ("completion",)),
    **dict.fromkeys(("optimizer", "state", "batch", "momentum", "betas", "launch"), ("module",)),
    "l2": ("linear", "completion"),
}

LARGEST = sys.float_info.max
LARGEST_FLOAT32 = (2 - 2**-23) * 2.0**127  # what the kernels count in
#: What ``--resume`` may change: nothing that alters the sequence of updates already made or promised.
RESUMABLE = ("epochs", "workers", "oversubscribe", "host", "in_flight", "evaluate_every")
MOST_A_CORE = 8  # workers, unless more are asked for twice


@dataclass(frozen=True)
class TrainConfig:
    """Options of one training run. Those that are None take the problem's own value, from ``PROBLEMS``.

    Attributes
    ----------
    problem : str
        One of ``PROBLEMS``: sparse linear models, matrix completion, graph cuts.
    loss : str
        One of the problem's. Of the linear problem's ``LOSSES``, ``softmax`` is the cross-entropy over all classes; the
        other label losses train one-versus-rest when there are more than two labels. Of completion's,
        ``squared-error`` is for ratings, ``log`` and ``bpr`` for implicit feedback: whoever is in the data has chosen.
    loss_param : float or None
        Huber's threshold, or the width of an epsilon-insensitive tube; None takes the loss's default.
    l1, l2 : float
        Penalties of ``mean loss + l2/2 ||w||^2 + l1 ||w||_1``.
    step : float or None
        Step size on the raw gradient of one example; None ("auto") probes for one before the first epoch.
    schedule : str
        One of ``SCHEDULES``: how the step falls. ``decay`` and ``power`` are its numbers; None takes its defaults.
    adagrad : bool
        Divide each coordinate's step by the root of its sum of squared gradients (lock-free form).
    discipline : str
        One of ``DISCIPLINES`` or "auto": ``serial`` for one worker; for more, ``tiered`` where the data make workers
        contend for cache lines, else ``hogwild``.
    workers : int or None
        None takes the physical cores this process may use.
    oversubscribe : bool
        Allow more than ``MOST_A_CORE`` workers a core; of ``hogwild compare``, also locks on more workers than cores.
    exchange : str
        One of ``EXCHANGES``. With ``averaging`` every worker trains a replica of its own, with the serial kernel, and
        at the end of an epoch the replicas are replaced by their mean; ``one-shot-averaging`` averages once, at the
        end, and before that only for the measurements. See ``exchanges/averaging.py``.
    gradient_delay : float
        Seconds, up to 1, that computing one gradient costs extra (the paper's artificial delay); for experiments.
    host : str
        ``processes`` or ``threads``; ``auto``: processes, but one worker works in this process, which needs no torch;
        ``simulator``: all workers are virtual, one after another in this thread.
    delay : str
        The simulator's delay law, one of ``DELAYS`` with its numbers (``straggler:alpha=1.2,window=0.5``): see
        :func:`parse_delay`.
    device : str
        ``cpu``, or ``cuda``: the workers are ``workers`` streams (1 unless asked) of the first GPU, and the parameters
        lie in its memory; the host is ``streams`` then. Needs a CUDA build of torch.
    in_flight : int or None
        Device ``cuda``: examples in hand at the same time, over all streams; a step is taken from weights that so many
        others change meanwhile. None: as many as the step allows, or the device holds.
    order : str
        ``shuffled`` (fresh each epoch, without replacement) or ``file``; of completion also ``blocks``: no two workers
        ever share a user or an item.
    evaluate_every : int
        Epochs from one row of measurements to the next; on a GPU small data are passed over so often in one launch.
    epochs : int
        Passes over the data in total, also when a run is resumed.
    average : bool
        The model is the tail mean of the parameters at the ends of epochs, kept outside the racing array.
    intercept : bool
        Fit an unpenalised intercept.
    normalize : str
        ``none``, ``l2`` or ``max``: scale of each row; kept in the model and applied by predict.
    class_weight : {None, "balanced"}
        Weigh rows by ``n / (classes * rows of the class)``.
    patience, tol : int or None, float
        Stop when the objective has not fallen by ``tol`` (relative) for ``patience`` epochs.
    target : float or None
        Stop when the objective is at or below it.
    seed : int
        Of the order and of the first parameters. One worker and one seed are bitwise reproducible; more are not.
    rank : int
        Completion: numbers in the factor of a user or item, 1 to 1024.
    penalty : str
        Completion: ``per-rating``, l2/2 of the squares of both factors for every rating (weighted lambda); or
        ``per-row``, l2/2 of the squares of all factors (the paper's, which a rating pays divided by the degree).
    nonnegative : bool
        Completion: factors are kept at or above zero.
    biases : bool
        Completion: a number for each user and item beside the factors.
    negatives : int
        Completion, losses ``log`` and ``bpr``: items drawn for each rating that the user has not chosen.
    optimizer, state, batch, momentum, betas, launch :
        Modules: see :func:`hogwild.train_module`.
    """

    problem: str = "linear"
    loss: str = None  # type: ignore[assignment]  # this and others: filled in from PROBLEMS
    loss_param: float | None = None
    l1: float = 0.0
    l2: float = None  # type: ignore[assignment]
    step: float | None = None
    schedule: str = None  # type: ignore[assignment]
    decay: float | None = None
    power: float | None = None
    adagrad: bool = False
    discipline: str = "auto"
    exchange: str = "none"
    gradient_delay: float = 0.0
    workers: int | None = None
    oversubscribe: bool = False
    host: str = "processes"
    delay: str = "round-robin"
    device: str = "cpu"
    in_flight: int | None = None
    order: str = "shuffled"
    evaluate_every: int = 1
    epochs: int = None  # type: ignore[assignment]
    average: bool = False
    intercept: bool = True
    normalize: str = "none"
    class_weight: str | None = None
    patience: int | None = None
    tol: float = 1e-3
    target: float | None = None
    seed: int = 0
    rank: int | None = None
    penalty: str | None = None
    nonnegative: bool = False
    biases: bool = True
    negatives: int | None = None
    optimizer: str | None = None
    state: str | None = None
    batch: int | None = None
    momentum: float | None = None
    betas: tuple[float, float] | None = None
    launch: str | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # NumPy's numbers become Python's, which JSON can hold
            value = getattr(self, field.name)
            if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
                object.__setattr__(self, field.name, value.item())
        if self.step == "auto":  # as on the command line
            object.__setattr__(self, "step", None)
        _choice("problem", self.problem, tuple(PROBLEMS))
        self._check_owners()
        if self.problem == "completion" and self.penalty == "per-row" and self.l2 is None:
            object.__setattr__(self, "l2", L2_PER_ROW)
        for name, value in PROBLEMS[self.problem]["defaults"].items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        _choice("loss", self.loss, PROBLEMS[self.problem]["loss"])
        _choice("discipline", self.discipline, ("auto", *PROBLEMS[self.problem]["discipline"]))
        _choice("exchange", self.exchange, EXCHANGES)
        _choice("device", self.device, DEVICES)
        if self.device == "cuda" and self.host in ("auto", *REAL_HOSTS):
            object.__setattr__(self, "host", STREAMS)
        _choice("host", self.host, ("auto", *HOSTS, STREAMS) if self.device == "cuda" else ("auto", *HOSTS))
        law, numbers = parse_delay(self.delay)
        _choice("order", self.order, PROBLEMS[self.problem]["order"])
        _choice("schedule", self.schedule, PROBLEMS[self.problem]["schedule"])
        _choice("normalize", self.normalize, NORMALIZE)
        _choice("class_weight", self.class_weight, CLASS_WEIGHT)
        _number("l1", self.l1, 0, LARGEST_FLOAT32)
        _number("l2", self.l2, 0, LARGEST_FLOAT32)
        _number("tol", self.tol, 0)
        _number("gradient_delay", self.gradient_delay, 0, 1)
        _number("step", self.step, 0, LARGEST_FLOAT32, optional=True, strict=True)
        _number("loss_param", self.loss_param, 0, optional=True)
        _number("decay", self.decay, 0, 1, optional=True, strict=True)
        _number("power", self.power, 0, optional=True, strict=True)
        _number("target", self.target, -math.inf, optional=True)
        _whole("workers", self.workers, 1, 1024, optional=True)
        _whole("in_flight", self.in_flight, 1, 2**31 - 1, optional=True)
        _whole("evaluate_every", self.evaluate_every, 1)
        _whole("epochs", self.epochs, 1)
        _whole("patience", self.patience, 1, optional=True)
        _whole("seed", self.seed, 0, 2**63 - 1)
        if self.problem == "completion":
            _whole("rank", self.rank, 1, 1024)
            _choice("penalty", self.penalty, PENALTIES)
            _whole("negatives", self.negatives, 1, 64)
        if self.problem == "module":
            self._check_module()
        for name in ("adagrad", "average", "intercept", "nonnegative", "biases", "oversubscribe"):
            if not isinstance(getattr(self, name), bool):
                raise UsageError(f"{name}={getattr(self, name)!r}: expected True or False")
        self._check_together()
        self._check_exchange()
        self._check_delay(law, numbers)
        self._check_device()

    def _check_together(self) -> None:
        if self.schedule == "optimal" and self.l2 == 0:
            raise UsageError("schedule='optimal' divides by l2: give l2 > 0, or another schedule")
        if self.schedule == "optimal" and self.step is not None:
            raise UsageError("schedule='optimal' sets its own step: leave step out")
        if self.decay is not None and self.schedule not in ("epoch", "round"):
            raise UsageError(f"decay belongs to schedule epoch or round, not to {self.schedule!r}")
        if self.power is not None and self.schedule != "inverse":
            raise UsageError(f"power belongs to schedule inverse, not to {self.schedule!r}")
        if self.loss_param is not None and self.loss not in PARAM_LOSSES:
            raise UsageError(f"loss_param belongs to loss {', '.join(PARAM_LOSSES)}, not to {self.loss!r}")
        if self.class_weight is not None and self.loss not in LABEL_LOSSES:
            raise UsageError(f"class_weight is for classes, and loss {self.loss!r} has real targets")
        if self.problem != "linear" and self.host == "simulator":
            raise UsageError(
                f"host='simulator' plays the linear problem, not {self.problem!r}: choose {' or '.join(REAL_HOSTS)}"
            )
        if self.discipline == "serial" and (self.workers or 1) > 1 and self.exchange == "none":
            raise UsageError(
                f"discipline='serial' has one worker, got workers={self.workers}: choose {DISCIPLINES[1:]}"
            )
        if self.adagrad and self.schedule not in ("constant", "epoch", "round"):
            raise UsageError(f"adagrad goes with schedule constant, epoch or round, not {self.schedule!r}")

    def _check_module(self) -> None:
        _choice("optimizer", self.optimizer, OPTIMIZERS)
        _choice("state", self.state, STATES)
        _choice("launch", self.launch, LAUNCHES)
        _whole("batch", self.batch, 1, 2**31 - 1)
        _number("momentum", self.momentum, 0, 1)
        if not isinstance(self.betas, tuple | list) or len(self.betas) != 2:
            raise UsageError(f"betas={self.betas!r}: expected two numbers")
        object.__setattr__(self, "betas", tuple(self.betas))  # JSON has lists only
        for beta in self.betas:
            _number("betas", beta, 0, 1)
            if beta == 1:
                raise UsageError(f"betas={self.betas!r}: expected numbers below 1")
        if self.exchange != "none":
            raise UsageError(f"exchange={self.exchange!r}: a module's workers share one array: leave exchange out")

    def _check_owners(self) -> None:
        """Refuse options of another problem; those that a config of another problem filled in are not options."""
        for name, owners in OWNERS.items():
            value, usual = getattr(self, name), _FIELDS[name].default
            if self.problem in owners or value is None or value == usual:
                continue
            if value == PROBLEMS[self.problem]["defaults"].get(name, usual):
                continue
            raise UsageError(f"{name} belongs to problem {' or '.join(owners)}, not to {self.problem!r}")

    def _check_exchange(self) -> None:
        """What an exchange does not go with: the one table of refusals."""
        refused = (
            (self.adagrad, "adagrad keeps sums of squares, which cannot be averaged: leave adagrad out"),
            (
                self.discipline not in ("auto", "serial"),
                f"every worker has a replica to itself, so discipline={self.discipline!r} has nothing to settle: leave "
                "discipline out",
            ),
            (self.host == "simulator", f"host='simulator' has no exchanges: choose host {' or '.join(REAL_HOSTS)}"),
        )
        for applies, why in refused:
            if applies and self.exchange != "none":
                raise UsageError(f"exchange={self.exchange!r}: {why}")

    def _check_device(self) -> None:
        """What a GPU does not go with."""
        if self.device == "cpu":
            if self.in_flight is not None:
                raise UsageError("in_flight is for device='cuda': on the CPU as many examples are in hand as workers")
            if self.launch not in (None, LAUNCHES[0]):
                raise UsageError(f"launch={self.launch!r} is for device='cuda'")
            return
        kernels = PROBLEMS[self.problem].get("cuda", ())
        if not kernels:
            raise UsageError(f"problem {self.problem!r} has no kernels for device='cuda': leave device out")
        if self.discipline == "auto":
            object.__setattr__(self, "discipline", kernels[0])
        refused = (
            (self.discipline not in kernels, f"has disciplines {', '.join(kernels)}, not {self.discipline!r}"),
            (self.host != STREAMS, f"has no host {self.host!r}: leave host out"),
            (self.exchange != "none", f"has no exchange {self.exchange!r}: leave exchange out"),
            (self.order == "blocks", "has no order 'blocks': leave order out"),
            (bool(self.gradient_delay), "has no gradient_delay: leave it out"),
            ((self.workers or 1) > MOST_STREAMS, f"has {MOST_STREAMS} streams at most, got workers={self.workers}"),
            (self.problem == "module" and self.in_flight is not None,
             "takes in_flight for other problems: a module has a minibatch in hand a worker"),
        )  # fmt: skip
        for applies, why in refused:
            if applies:
                raise UsageError(f"device='cuda' {why}")

    def _check_delay(self, law: str, numbers: dict[str, float]) -> None:
        if self.delay != "round-robin" and self.host != "simulator":
            raise UsageError(f"delay={self.delay!r} is for host='simulator' (hogwild simulate), not {self.host!r}")
        if self.gradient_delay and self.host == "simulator":
            raise UsageError(
                f"gradient_delay={self.gradient_delay!r} is real time, which host='simulator' has none of: choose host "
                f"{' or '.join(REAL_HOSTS)}"
            )
        if law != "round-robin" and self.discipline == "round-robin":
            raise UsageError(f"delay={self.delay!r}: discipline 'round-robin' has turns of its own: leave delay out")
        if self.workers is not None and numbers.get("delay", 0) > self.workers - 1:
            raise UsageError(
                f"delay={self.delay!r} needs workers={int(numbers['delay']) + 1} or more, got workers={self.workers}"
            )

    def to_json(self) -> dict[str, Any]:
        """A plain dict that ``from_json`` turns back into an equal config."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> TrainConfig:
        """A config from keywords; unknown names are a UsageError that lists the valid ones."""
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(fields) - set(known))
        if unknown:
            close = nearest(unknown[0], known)
            raise UsageError(f"unknown option {', '.join(unknown)}: expected some of {', '.join(known)}{close}")
        return cls(**fields)

    def check_crowd(self, cores: int) -> None:
        """Raise UsageError for so many workers a core that a typing mistake is likelier than a wish."""
        workers, most = self.workers or 1, MOST_A_CORE * cores
        real = self.device == "cpu" and self.host != "simulator"
        if real and workers > most and not self.oversubscribe:
            raise UsageError(
                f"{workers} workers on {cores} core{'s' * (cores > 1)}: at most {most} run, {MOST_A_CORE} a core, "
                "unless --oversubscribe (oversubscribe=True) is given"
            )

    def differences(self, other: TrainConfig) -> list[str]:
        """Names of the options that differ and that ``--resume`` may not change."""
        mine, theirs = self.to_json(), other.to_json()
        return [name for name in mine if name not in RESUMABLE and mine[name] != theirs[name]]


_FIELDS = {field.name: field for field in dataclasses.fields(TrainConfig)}


def usual_host(host: str, workers: int) -> str:
    """The host itself, where "auto" is asked for."""
    if host != "auto":
        return host
    return "threads" if workers == 1 else "processes"


def parse_delay(text: str) -> tuple[str, dict[str, float]]:
    """Name and numbers, defaults filled in, of a delay law such as ``straggler:alpha=1.2,window=0.5``.

    Raises
    ------
    UsageError
        That lists the laws, or the numbers of this one.
    """
    name, _, rest = text.partition(":") if isinstance(text, str) else (text, "", "")
    if name not in DELAYS:
        close = nearest(name, DELAYS)
        laws = ", ".join(DELAYS)
        raise UsageError(f"delay={text!r}: expected one of {laws}, with numbers as in straggler:alpha=1.2{close}")
    ranges = DELAYS[name] | TIMING
    numbers = {key: default for key, (default, _, _) in ranges.items()}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        if key not in ranges:
            raise UsageError(
                f"delay={text!r}: cannot read {part!r}: {name} has {', '.join(ranges)}{nearest(key, ranges)}"
            )
        _, low, high = ranges[key]
        try:
            numbers[key] = float(value)
        except ValueError:
            numbers[key] = math.nan
        if not low <= numbers[key] <= high or (key in COUNTED and numbers[key] % 1):
            kind = "whole number" if key in COUNTED else "number"
            raise UsageError(f"delay={text!r}: {key}={value}: expected a {kind} from {low:g} to {high:g}")
    return name, numbers


def _choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    if value not in choices:
        raise UsageError(f"{name}={value!r}: {expected_one_of(choices, value)}")


def _number(
    name: str, value: Any, low: float, high: float = math.inf, optional: bool = False, strict: bool = False
) -> None:
    if value is None and optional:
        return
    ok = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST
    if not ok or not low <= value <= high or (strict and value == low):
        raise UsageError(f"{name}={value!r}: expected a finite number {'above' if strict else 'of at least'} {low:g}"
                         + (f" and at most {high:g}" if high < math.inf else "")
                         + (", or None" if optional else ""))  # fmt: skip


def _whole(name: str, value: Any, low: int, high: int | None = None, optional: bool = False) -> None:
    if value is None and optional:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < low or (high is not None and value > high):
        raise UsageError(f"{name}={value!r}: expected a whole number from {low}" + (f" to {high}" if high else "")
                         + (", or None" if optional else ""))  # fmt: skip
