"""Options of a training run: one frozen, checked dataclass a problem, converted to and from JSON.

:class:`TrainConfig` has what all problems share; each problem adds its own options in ``problems/NAME/options.py``. An
option has the same name here, on the command line (``--l2``) and as a keyword of ``hogwild.train``. What is to be known
of it stands beside its field: the command line's options and the checks are made from that, and a test compares the
docstring's sentences with it. Names
and ranges are checked on construction against literals only, so a typing error is reported before torch or any data are
read. The problem's case checks what depends on the data (is it binary? does the loss fit the labels?).
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypedDict, cast

from hogwild.errors import UsageError, expected_one_of, nearest
from hogwild.methods import (
    AMONG_MACHINES,
    BETWEEN_WORKERS,
    CPU_HOSTS,
    DEVICES,
    DISCIPLINES,
    EXCHANGES,
    LINK,
    MOST_STREAMS,
    PROBLEMS,
    REAL_HOSTS,
    SCHEDULES,
    STREAMS,
    located,
    parse_delay,
    parse_exchange,
    parse_link,
)

LARGEST_FLOAT32 = (2 - 2**-23) * 2.0**127  # what the kernels count in
#: Entries, about ten seconds of a worker: with fewer for each, workers of host "auto" are threads; a run with as many
#: in all ends by itself.
SHORT_RUN = 1e9
#: What ``--resume`` may change: nothing that alters the sequence of updates already made or promised.
RESUMABLE = (
    "epochs",
    "patience",
    "machines",
    "workers",
    "host",
    "in_flight",
    "evaluate_every",
    "renumber",
)
#: What each machine of a run chooses for itself, besides.
LOCAL = ("discipline",)
KEEPS = ("best", "last")
# Groups of options in the help.
GOAL = "What is minimised"
STEPS = "Steps"
PARALLEL = "Workers"
STOPPING = "When to stop"
COMPLETION = "Matrix completion"
MODULE = "Torch modules"
MACHINES = "Several machines"


LARGEST = sys.float_info.max


@dataclass(frozen=True)
class Option:
    """What ``--help``, the reference and the check of one option are made from."""

    help: str  # one sentence, without a full stop where choices follow
    panel: str = ""  # group of the command line's help; empty for an option that Python only has
    choices: tuple[Any, ...] = ()  # empty: any value
    least: float | None = None  # of a number; None: it is not checked
    most: float = math.inf
    strict: bool = False  # whether the least number itself is refused
    usual: str = ""  # what None, or "auto", means, for the help
    names: tuple[str, ...] = ()  # on the command line, if they are more than the field's with hyphens
    metavar: str | None = None
    rare: bool = False  # whether the help leaves it to the manual
    without: str = ""  # help of the flag --no-NAME, which turns off what is on by default
    kind: Any = str  # type and default of an option that is no field, whose range typer checks
    default: Any = None

    @property
    def text(self) -> str:
        """The help with its choices."""
        choices = ", ".join(str(each) for each in self.choices if each is not None)
        return f"{self.help}: {choices}." if choices else self.help


def option(default: Any, help: str, panel: str = "", **more: Any) -> Any:
    """Return a dataclass field with an :class:`Option`."""
    return dataclasses.field(default=default, metadata={"option": Option(help, panel, **more)})


def inherited(name: str, default: Any, of: Any = None, **changes: Any) -> Any:
    """Return a field with another default, choices or help than the config ``of`` (``TrainConfig``) has."""
    changed = dataclasses.replace((of or TrainConfig).__dataclass_fields__[name].metadata["option"], **changes)
    return dataclasses.field(default=default, metadata={"option": changed})


def check_field(field: dataclasses.Field[Any], value: Any, choices: tuple[Any, ...]) -> None:
    """Raise UsageError unless ``value`` has the field's type and is within its range, or among ``choices``, if any."""
    kind, _, rest = str(field.type).partition(" | ")
    described: Option = field.metadata["option"]
    if value is None and rest:
        return
    if choices:
        first = () if field.default is None or field.default in choices else (field.default,)
        choice(field.name, value, (*first, *choices))
    elif kind == "bool":
        if not isinstance(value, int) or value not in (0, 1):  # as scikit-learn does
            raise UsageError(f"{field.name}={value!r}: expected True or False")
    elif described.least is not None and kind in ("int", "float"):
        number(field.name, value, described.least, described.most, bool(rest), described.strict, whole=kind == "int")


def choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    if not (value is None or isinstance(value, str)) or value not in choices:
        raise UsageError(f"{name}={value!r}: {expected_one_of(choices, value)}")


def number(
    name: str,
    value: Any,
    low: float,
    high: float = math.inf,
    optional: bool = False,
    strict: bool = False,
    whole: bool = False,
) -> None:
    """Refuse a ``value`` that is not from ``low`` to ``high``, above ``low`` if ``strict``."""
    if value is None and optional:
        return
    kinds = int if whole else (int, float)
    ok = isinstance(value, kinds) and not isinstance(value, bool) and (whole or abs(value) <= LARGEST)
    if not ok or not low <= value <= high or (strict and value == low):
        shown = str if whole else "{:g}".format
        expected = f"a {'whole' if whole else 'finite'} number"
        if low > -math.inf:
            expected += f" {'from' if whole else 'above' if strict else 'of at least'} {shown(low)}"
        if high < math.inf:
            expected += f" {'to' if whole else 'and at most'} {shown(high)}"
        raise UsageError(f"{name}={value!r}: expected {expected}{', or None' if optional else ''}")


@dataclass(frozen=True)
class TrainConfig:
    """Options of one training run; None stands for the default of any. The config of a problem has its options too.

    Attributes
    ----------
    problem : str, default linear
        What is trained: linear, fm, ffm, completion, cuts, module. Each has options of its own besides, as in
        :class:`~hogwild.problems.linear.options.LinearConfig`; a call of ``TrainConfig`` returns the config of the
        problem.
    loss : str, default
        Loss of an example
    step : float or None, default auto
        First step size; 'auto' probes for one. It is for the gradient of one example, or a minibatch's mean gradient.
    schedule : str, default epoch
        How the step falls: constant, epoch, round, inverse, adaptive.
    decay : float or None, default the schedule's own
        Factor of schedule epoch or round.
    power : float or None, default the schedule's own
        Power of schedule inverse.
    order : str, default shuffled
        Order of the examples: shuffled, file. ``shuffled`` is anew each epoch, without replacement.
    seed : int, default 0
        Seed of the order, of the first parameters and of the hold-out. One worker and one seed are bitwise
        reproducible; more are not.
    discipline : str, default serial for one worker, else by the data
        How an update reaches a shared weight: serial, hogwild, tiered, atomic, aig, locked, round-robin. ``auto`` is
        ``serial`` for one worker; for more, ``tiered`` if the data make workers contend for cache lines, else
        ``hogwild``.
    exchange : str, default none
        How workers with a replica each trade: none, averaging, one-shot-averaging, gossip, consensus, server,
        rotation; with numbers or names, as in averaging:period=1000,mean=rows (an unknown one lists them). With
        ``averaging`` every worker trains its own replica with the serial kernel, and the mean of the replicas
        replaces them at the end of an epoch; with ``averaging:period=1000`` also after every 1000 rows of each.
        ``one-shot-averaging`` averages once, at the end, and before that only for the measurements. See the manual,
        *Exchanges*, for the others and for all numbers.
    workers : int or None, default physical cores; 1 on a GPU
        Number of workers; on a GPU, of streams. None takes the physical cores that this process may use.
    host : str, default threads for a short run, else processes
        Who runs the workers: processes, threads, simulator. ``auto`` is threads where a worker has fewer than 1e9
        entries in all epochs (some ten seconds), else processes, which take a second to start; ``simulator``: all
        workers are virtual and run one after another in this thread.
    device : str, default cpu
        What they run on: cpu, cuda. On ``cuda`` the workers are ``workers`` streams of the first GPU, the parameters
        lie in its memory, and the host is ``streams``. It needs a CUDA build of torch.
    in_flight : int or None, default as many as the step allows
        Examples in hand at the same time on a GPU. They are those of all streams; each step is taken from weights
        that up to this many other steps change meanwhile. None: as many as the step allows and the device holds.
    machines : int, default 1
        Machines that train together, each a replica whose workers race. They trade by ``averaging``, unless
        ``exchange`` says how: by ``gossip`` or ``server``, or by ``rotation`` of items (completion).
    link : str, default messages take no time, a virtual row 0.2us
        What virtual replicas (--exchange) trade over: latency, bandwidth, row, as in
        latency=0.2ms,bandwidth=1Gbit,row=0.2us. ``row`` is a virtual worker's mean time per row: see
        :func:`hogwild.methods.parse_link`.
    delay : str, default round-robin
        How long rows take in the simulator: round-robin, constant:delay=1, random:shape=1, straggler:alpha=1.5; any
        with window=0.1 (part of a row's time in which hogwild may lose updates) and quantum=1 (rows at a time;
        locked, tiered). See :func:`hogwild.methods.parse_delay`.
    evaluate_every : int, default 1
        Epochs from one row of measurements to the next.
    epochs : int, default 20
        Passes over the data in all. Those before a resume count.
    patience : int or None, default 2 if the run is long, else never
        Stop after this many epochs without progress of the held-out loss, or else of the objective; 0: never. Linear
        models and completion are long from 1e9 entries in all epochs. A run that has ended so goes on if it is
        resumed with more ``epochs``.
    tol : float, default 0.001
        Relative fall that is progress.
    keep : str or None, default best with --holdout; else the better, by the objective, of the last and their tail mean
        Which parameters become the model: best, last. ``best``: of the epoch whose held-out loss was lowest;
        ``last``: as the last epoch left them. None is ``best`` if the test rows were held out of the training rows
        (``Rows.split``), else the better, by the objective, of the last ones and the tail mean of the ends of epochs.
    target : float or None, default never
        Stop at or below this objective.

    See Also
    --------
    train : takes each of these as a keyword.

    Examples
    --------
    >>> import hogwild
    >>> hogwild.TrainConfig(loss="hinge", epochs=5).epochs
    5
    """

    # What a run asks of every problem; the config of a problem that has the option overrides it.
    l1 = 0.0
    l2 = cast("Any", 0.0)
    l2_path = cast("Any", None)
    adagrad = False
    own_rows = False
    normalize = "none"
    batch = 1
    #: Disciplines of the problem's kernels on a GPU, the usual one first.
    on_gpu: ClassVar[tuple[str, ...]] = ()
    distributed: ClassVar[bool] = False  # whether several machines can train it
    compiled: ClassVar[bool] = True  # whether steps are kernels, which threads run side by side
    rotates: ClassVar[bool] = False  # whether machines can pass blocks of items round
    sums: ClassVar[bool] = True  # whether parameters may leave the hull of all replicas
    usual_decay: ClassVar[float | None] = None  # of schedule "epoch"; None: the schedule's

    problem: str = option(
        "linear",
        "What is trained",
        GOAL,
        choices=tuple(PROBLEMS),
    )
    loss: str = option("", "Loss of an example", GOAL)
    step: float | None = option(
        None,
        "First step size; 'auto' probes for one.",
        STEPS,
        least=0,
        most=LARGEST_FLOAT32,
        strict=True,
        usual="auto",
    )
    schedule: str = option("epoch", "How the step falls", STEPS, choices=(*SCHEDULES[:3], "inverse", "adaptive"))
    decay: float | None = option(
        None,
        "Factor of schedule epoch or round.",
        STEPS,
        least=0,
        most=1,
        strict=True,
        usual="the schedule's own",
        rare=True,
    )
    power: float | None = option(
        None, "Power of schedule inverse.", STEPS, least=0, strict=True, usual="the schedule's own", rare=True
    )
    order: str = option(
        "shuffled",
        "Order of the examples",
        STEPS,
        choices=("shuffled", "file"),
    )
    seed: int = option(
        0,
        "Seed of the order, of the first parameters and of the hold-out.",
        STEPS,
        least=0,
        most=2**63 - 1,
    )
    discipline: str = option(
        "auto",
        "How an update reaches a shared weight",
        PARALLEL,
        choices=DISCIPLINES,
        usual="serial for one worker, else by the data",
    )
    exchange: str = option(
        "none",
        f"How workers with a replica each trade: {', '.join(EXCHANGES)}; with numbers or "
        "names, as in averaging:period=1000,mean=rows (an unknown one lists them).",
        PARALLEL,
        metavar="NAME:KEY=VALUE",
    )
    workers: int | None = option(
        None,
        "Number of workers; on a GPU, of streams.",
        PARALLEL,
        least=1,
        most=1024,
        usual="physical cores; 1 on a GPU",
        names=("--workers", "--replicas", "-w"),
    )
    host: str = option(
        "auto",
        "Who runs the workers",
        PARALLEL,
        choices=CPU_HOSTS,
        usual="threads for a short run, else processes",
    )
    device: str = option(
        "cpu",
        "What they run on",
        PARALLEL,
        choices=DEVICES,
    )
    in_flight: int | None = option(
        None,
        "Examples in hand at the same time on a GPU.",
        PARALLEL,
        least=1,
        most=2**31 - 1,
        usual="as many as the step allows",
        rare=True,
    )
    machines: int = option(
        1,
        "Machines that train together, each a replica whose workers race.",
        MACHINES,
        least=1,
        most=1024,
    )
    link: str = option(
        "",
        f"What virtual replicas (--exchange) trade over: {', '.join(LINK)}, as in "
        "latency=0.2ms,bandwidth=1Gbit,row=0.2us.",
        PARALLEL,
        metavar="LINK",
        usual="messages take no time, a virtual row 0.2us",
    )
    delay: str = option(
        "round-robin",
        "How long rows take in the simulator: round-robin, constant:delay=1, random:shape=1, straggler:alpha=1.5; any "
        "with window=0.1 "
        "(part of a row's time in which hogwild may lose updates) and quantum=1 (rows at a time; locked, tiered).",
        PARALLEL,
        metavar="LAW",
    )
    evaluate_every: int = option(1, "Epochs from one row of measurements to the next.", STOPPING, least=1, rare=True)
    epochs: int = option(
        20,
        "Passes over the data in all.",
        STOPPING,
        least=1,
    )
    patience: int | None = option(
        None,
        "Stop after this many epochs without progress of the held-out loss, or else of the objective; 0: never.",
        STOPPING,
        least=0,
        usual="2 if the run is long, else never",
    )
    tol: float = option(1e-3, "Relative fall that is progress.", STOPPING, least=0)
    keep: str | None = option(
        None,
        "Which parameters become the model",
        STOPPING,
        choices=KEEPS,
        usual="best with --holdout; else the better, by the objective, of the last and their tail mean",
    )
    target: float | None = option(None, "Stop at or below this objective.", STOPPING, least=-math.inf, usual="never")

    if TYPE_CHECKING:

        def __init__(self, **options: Any) -> None: ...

        def __getattr__(self, name: str) -> Any: ...  # an option of the problem

    def __new__(cls, **options: Any) -> TrainConfig:
        problem = options.get("problem") or "linear"
        choice("problem", problem, tuple(PROBLEMS))
        kind = config_class(problem) if cls is TrainConfig else cls
        names = fields_of(kind)
        if unknown := sorted(set(options) - set(names)):
            owners = [each for each in PROBLEMS if unknown[0] in fields_of(config_class(each))]
            hint = f"; it belongs to problem {' or '.join(owners)}" if owners else nearest(unknown[0], names)
            raise UsageError(f"unknown option {', '.join(unknown)} of problem {problem!r}{hint}")
        return object.__new__(kind)

    def __post_init__(self) -> None:
        fields = fields_of(type(self))
        for name, field in fields.items():
            value = getattr(self, name)
            if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
                value = value.item()  # a NumPy scalar becomes a Python number, which JSON can hold
            if value is None or (name == "step" and value == "auto"):  # as on the command line
                value = field.default
            self._set(name, value)
        if self.machines != 1 and self.exchange == "none":
            self._set("exchange", "averaging")
        if self.device == "cuda" and self.host in ("auto", *REAL_HOSTS):
            self._set("host", STREAMS)
        if self.device == "cuda" and self.discipline == "auto" and self.on_gpu:
            self._set("discipline", self.on_gpu[0])
        for name, field in fields.items():
            streams = (STREAMS,) if name == "host" and self.device == "cuda" else ()
            check_field(field, getattr(self, name), field.metadata["option"].choices + streams)
        parse_exchange(self.exchange)
        parse_link(self.link)
        for reason in self.conflicts():
            raise UsageError(reason)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def replace(self, **changes: Any) -> Self:
        """Return the config with other options, checked."""
        return dataclasses.replace(self, **changes)

    def settled(self, **choices: Any) -> Self:
        """Return the config with what a run has chosen itself, which is not checked again."""
        config: Self = object.__new__(type(self))
        vars(config).update(vars(self) | choices)
        return config

    def conflicts(self) -> Iterator[str]:
        """Yield why options cannot be combined, a sentence each."""
        yield from reasons(self)

    def to_json(self) -> dict[str, Any]:
        """Return a plain dict that ``from_json`` turns back into an equal config."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> TrainConfig:
        """Return the config that :meth:`to_json` described."""
        return cls(**fields)

    def common(self) -> dict[str, Any]:
        """Return the options that must be the same on all machines of a run, as JSON."""
        common = {name: value for name, value in self.to_json().items() if name not in (*LOCAL, *RESUMABLE)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in common.items()}

    @property
    def between_workers(self) -> str:
        """The exchange between the workers of this machine; with several machines it is between those."""
        return self.exchange if self.machines == 1 else "none"

    @property
    def falls_by(self) -> float | None:
        """The decay, or that of schedule "epoch" which is usual for the problem; None: the schedule's."""
        return self.usual_decay if self.decay is None and self.schedule == "epoch" else self.decay

    @property
    def replicas(self) -> int:
        """Number of replicas that trade; 1 without an exchange."""
        return self.machines if self.between_workers == "none" else self.workers or 1

    @property
    def settles_schedule(self) -> bool:
        """Whether "auto" chooses steps that are constant within an epoch, because an option requires them or because
        the combination has not been measured.
        """
        return self.adagrad or self.decay is not None or self.exchange != "none" or self.device != "cpu"

    def differences(self, other: TrainConfig) -> list[str]:
        """Names of the options that differ although ``--resume`` may not change them."""
        others = other.to_json()
        free = (*RESUMABLE, *["exchange"] * (self.machines != other.machines))  # one machine has none
        return [name for name, value in self.to_json().items() if name not in free and value != others.get(name)]


def config_class(problem: str) -> type[TrainConfig]:
    """Return the class of configs of a problem, one of ``methods.PROBLEMS``."""
    kind: type[TrainConfig] = located(PROBLEMS[problem].config)
    return kind


def options_of(problem: str) -> dict[str, dataclasses.Field[Any]]:
    """Return the fields of a problem's config by name."""
    return fields_of(config_class(problem))


def fields_of(kind: Any) -> dict[str, dataclasses.Field[Any]]:
    """Return the fields of a config by name, each with its :class:`Option`."""
    return {field.name: field for field in dataclasses.fields(kind)}


def usual_host(host: str, workers: int, entries: float = math.inf) -> str:
    """Return the host, resolving "auto": threads for a short run, since processes take a second to start.

    ``entries`` are those of all epochs. The rule counts and reads no clock, so that it is the same on any day.
    """
    if host != "auto":
        return host
    return "threads" if workers == 1 or entries < SHORT_RUN * workers else "processes"


# ---- which options cannot be combined, a sentence each; what depends on the data is refused by the problem's case


def reasons(config: TrainConfig) -> Iterator[str]:
    """Yield why options that all problems have cannot be combined."""
    c = config
    for name, schedules in (("decay", ("epoch", "round")), ("power", ("inverse",))):
        if getattr(c, name) is not None and c.schedule not in schedules and (name, c.schedule) != ("decay", "auto"):
            yield f"{name} belongs to schedule {' or '.join(schedules)}, not to {c.schedule!r}"
    if c.discipline == "serial" and (c.workers or 1) > 1 and c.exchange == "none":
        yield f"discipline='serial' has one worker, got workers={c.workers}: choose {DISCIPLINES[1:]}"
    for name, usual in (("link", ""), ("delay", "round-robin")):
        if getattr(c, name) != usual and c.host != "simulator":
            yield f"{name}={getattr(c, name)!r} needs host='simulator' (hogwild simulate); got host={c.host!r}"
    law, numbers = parse_delay(c.delay)
    if law != "round-robin" and c.discipline == "round-robin":
        yield f"delay={c.delay!r}: discipline 'round-robin' has turns of its own: leave delay out"
    if c.workers is not None and numbers.get("delay", 0) > c.workers - 1:
        yield f"delay={c.delay!r} needs workers={numbers['delay'] + 1:g} or more, got workers={c.workers}"
    if c.exchange != "none":
        yield from _of_replicas(c)
    if c.machines > 1:
        yield from _of_machines(c)
    if c.device == "cuda":
        yield from _on_gpu(c)
    elif c.in_flight is not None:
        yield "in_flight needs device='cuda': on the CPU as many examples are in hand as workers"


def _of_replicas(config: TrainConfig) -> Iterator[str]:
    """Reasons of an exchange between workers."""
    label = f"exchange={config.exchange!r}"
    name, numbers = parse_exchange(config.exchange, config.sums)
    if config.machines == 1 and name not in BETWEEN_WORKERS:
        yield f"{label} passes blocks of items between machines: give machines; on one machine order='blocks'"
    beyond = EXCHANGES[name].sums or numbers.get("outer", 1) > 1 or numbers.get("momentum", 0) > 0
    if not config.sums and (beyond or numbers.get("mean", "rows") != "rows"):
        yield f"{label} is no mean of whole replicas, so it leads out of a simplex: choose averaging with mean=rows"
    if name == "averaging":
        threshold, share = numbers["threshold"] > 0, numbers["share"] < 1
        if math.isinf(numbers["period"]) and (threshold or share):
            yield f"{label}: threshold and share are for rounds within an epoch: give a period"
        if threshold and (share or numbers["by"] != "direct"):
            yield f"{label}: with a threshold not all replicas begin a round: leave share and by out"
    if numbers.get("soft", 1) > 1 and numbers["rule"] != "soft":
        yield f"{label}: soft needs rule=soft; got rule={numbers['rule']}"
    if config.discipline not in ("auto", "serial") and config.machines == 1:
        yield f"{label}: workers with own replicas need no discipline={config.discipline!r}: leave discipline out"


def _of_machines(config: TrainConfig) -> Iterator[str]:
    """Reasons of what several machines cannot do."""
    label, machines = f"exchange={config.exchange!r}", f"machines={config.machines}"
    name, numbers = parse_exchange(config.exchange, config.sums)
    if name not in AMONG_MACHINES:
        yield f"{label}: machines trade by {', '.join(AMONG_MACHINES)}: choose one of these"
    if name == "rotation" and not config.rotates:
        yield f"{label} passes blocks of items round, of which problem {config.problem!r} has none: choose averaging"
    if name == "rotation" and config.order != "shuffled":
        yield f"{label} has an order of its own, in which blocks meet: leave order={config.order!r} out"
    row = EXCHANGES[name]
    for key, value in numbers.items():
        if value != row.numbers[key].default and {key, f"{key}={value}"} & {*row.local}:
            yield f"{label}: {key}={value} is for the workers of one machine: leave {key} out"
    if config.device != "cpu" or config.host not in ("auto", *REAL_HOSTS):
        yield f"{machines}: their workers are {' or '.join(REAL_HOSTS)}, not {config.host!r}"
    if not config.distributed:
        yield f"{machines}: problem {config.problem!r} is trained on one machine"
    if config.discipline in ("round-robin", "locked", "aig") or config.order == "blocks":
        yield f"{machines}: what makes workers wait for each other (round-robin, locked, aig, blocks) needs one machine"


def _on_gpu(config: TrainConfig) -> Iterator[str]:
    if config.discipline not in config.on_gpu:
        others = f"has disciplines {', '.join(config.on_gpu)}" if config.on_gpu else "has no kernels"
        yield f"device='cuda' of problem {config.problem!r} {others}; got {config.discipline!r}"
    for name, refused in (("host", config.host != STREAMS), ("exchange", config.exchange != "none")):
        if refused:
            yield f"device='cuda' has no {name} {getattr(config, name)!r}: leave {name} out"
    if config.order == "blocks":
        yield "device='cuda' has no order 'blocks': leave order out"
    if (config.workers or 1) > MOST_STREAMS:
        yield f"device='cuda' has {MOST_STREAMS} streams at most, got workers={config.workers}"


# ---- the options as types, so that a type checker rejects an unknown name before anything runs
#
# They are the fields above and those of the problems' configs; a test compares the two. A type checker reads types here
# and nowhere else, so they cannot be made from the fields.


class CommonOptions(TypedDict, total=False):
    step: float | None
    schedule: str
    decay: float | None
    power: float | None
    order: str
    seed: int
    discipline: str
    exchange: str
    workers: int | None
    host: str
    device: str
    in_flight: int | None
    machines: int
    link: str
    delay: str
    evaluate_every: int
    epochs: int
    patience: int | None
    tol: float
    keep: str | None
    target: float | None


class LinearOptions(CommonOptions, total=False):
    loss: str
    loss_param: float | None
    l1: float
    l2: float | str | tuple[float, ...]
    l2_path: tuple[float, ...] | None
    normalize: str
    class_weight: str | None
    intercept: bool
    scale_columns: bool
    adagrad: bool
    renumber: str
    own_rows: bool


class FMOptions(CommonOptions, total=False):
    loss: str
    loss_param: float | None
    rank: int
    l2: float | None
    l2_factors: float | None
    normalize: str
    intercept: bool
    adagrad: bool
    renumber: str


class CompletionOptions(CommonOptions, total=False):
    loss: str
    l2: float | str | tuple[float, ...]
    l2_path: tuple[float, ...] | None
    rank: int
    penalty: str
    biases: bool
    negatives: int


class CutsOptions(CommonOptions, total=False):
    loss: str


class ModuleOptions(CommonOptions, total=False):
    """Keywords of :func:`hogwild.train_module`, which receives its loss together with the module."""

    optimizer: str
    batch: int
    momentum: float
