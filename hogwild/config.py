"""Options of a training run: one frozen, checked dataclass, converted to and from JSON.

Every option has the same name here, on the command line (``--l2``) and as a keyword of ``hogwild.train``. What is to be
known of it stands beside its field, once: the command line's options, the reference and the checks are made from that.
Names and ranges are checked on construction against dict and tuple literals only, so a typing error is reported before
torch or any data are read. The problem checks what depends on the data (is it binary? does the loss fit the labels?).
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hogwild.checks import Option, check_field, choice, entry, number, option
from hogwild.errors import UsageError, nearest
from hogwild.methods import (
    CLASS_WEIGHT,
    CPU_HOSTS,
    DELAYS,
    DEVICES,
    EXCHANGES,
    L2_PER_ROW,
    LINK,
    NORMALIZE,
    OPTIMIZERS,
    PENALTIES,
    PROBLEMS,
    REAL_HOSTS,
    STREAMS,
    listed,
    parse_exchange,
    parse_link,
)
from hogwild.refusals import refuse

LARGEST_FLOAT32 = (2 - 2**-23) * 2.0**127  # what the kernels count in
#: What ``--resume`` may change: nothing that alters the sequence of updates already made or promised.
RESUMABLE = ("epochs", "machines", "workers", "oversubscribe", "host", "in_flight", "evaluate_every", "renumber")
#: What each machine of a run chooses for itself, besides.
LOCAL = ("discipline",)
KEEPS = ("best", "last")
L2_PATH = tuple(float(f"{10 ** (k / 2 - 8):.2g}") for k in range(16))  # of "auto"
MOST_A_CORE = 8  # workers, unless "oversubscribe" is given
GOAL, STEPS, PARALLEL, STOPPING = "What is minimised", "Steps", "Workers", "When to stop"
COMPLETION, MODULE, MACHINES = "Matrix completion", "Torch modules", "Several machines"
LINEAR, RATINGS, OF_MODULES = ("linear",), ("completion",), ("module",)  # owners


@dataclass(frozen=True)
class TrainConfig:
    """Options of one training run. An option that is None takes the problem's default from ``PROBLEMS``."""

    problem: str = option(
        "linear",
        "What is trained",
        GOAL,
        choices=tuple(PROBLEMS),
        more="Sparse linear models, matrix completion and graph cuts; modules by :func:`hogwild.train_module`.",
    )
    loss: str = option(
        None,
        "Loss of an example",
        GOAL,
        more="``softmax`` is the cross-entropy over all classes; the other label losses train one-versus-rest when "
        "there are more than two labels. For completion, ``squared-error`` is for ratings, ``log`` and ``bpr`` for "
        "implicit feedback, where every entry is a choice.",
    )
    loss_param: float | None = option(
        None,
        "Huber's threshold or the half-width of an insensitive tube.",
        GOAL,
        least=0,
        usual="the loss's own",
        owners=LINEAR,
    )
    l1: float = option(0.0, "L1 penalty.", GOAL, least=0, most=LARGEST_FLOAT32, owners=LINEAR)
    l2: float = option(
        None,
        "L2 penalty; 'auto' chooses it by rows held out, and 1e-6,1e-5 among these.",
        GOAL,
        least=0,
        most=LARGEST_FLOAT32,
        owners=(*LINEAR, *RATINGS),
        metavar="NUMBER",
        more="The objective is ``mean loss + l2/2 ||w||^2 + l1 ||w||_1``. ``auto``, for linear models, is the best of "
        f"{len(L2_PATH)} values from {L2_PATH[0]:.0e} to {L2_PATH[-1]:.1g}, times a typical row's squared length, by "
        "the loss on rows held out of the training rows; with the one that is chosen a model is trained on all of "
        "them. See the manual, *Choosing l2*.",
    )
    l2_path: tuple[float, ...] | None = option(
        None,
        "Values among which l2 is chosen.",
        owners=LINEAR,
        more="``l2`` may be given as 'auto' or such values instead.",
    )
    step: float | None = option(
        None,
        "First step size; 'auto' probes for one.",
        STEPS,
        least=0,
        most=LARGEST_FLOAT32,
        strict=True,
        usual="auto",
        more="It is for the gradient of one example, or a minibatch's mean gradient; "
        "None is 'auto', which for a module is 0.1 for sgd, 0.01 for momentum and adagrad, 0.001 for adam.",
    )
    schedule: str = option(
        None,
        "How the step falls",
        STEPS,
        more="Linear: ``auto`` is ``rows`` if an epoch has more than 100,000 rows, else ``epoch``.",
    )
    decay: float | None = option(
        None, "Factor of schedule epoch or round.", STEPS, least=0, most=1, strict=True, usual="the schedule's own"
    )
    power: float | None = option(
        None, "Power of schedule inverse.", STEPS, least=0, strict=True, usual="the schedule's own"
    )
    adagrad: bool = option(
        False,
        "A step of its own for each feature (AdaGrad).",
        STEPS,
        owners=LINEAR,
        more="It is divided by the root of the coordinate's sum of squared gradients, without locks.",
    )
    discipline: str = option(
        "auto",
        "How an update reaches a shared weight",
        PARALLEL,
        usual="serial for one worker, else by the data",
        more="``auto`` is ``serial`` for one worker; for more, ``tiered`` if the data make workers contend for cache "
        "lines, else ``hogwild``.",
    )
    exchange: str = option(
        "none",
        f"How workers with a replica each trade: {', '.join(EXCHANGES)}; with numbers or "
        "names, as in averaging:period=1000,mean=rows (an unknown one lists them).",
        PARALLEL,
        metavar="NAME:KEY=VALUE",
        more="With ``averaging`` every worker trains its own replica with the serial kernel, and the mean of the "
        "replicas replaces them at the end of an epoch; with ``averaging:period=1000`` also after every 1000 rows of "
        "each. ``one-shot-averaging`` averages once, at the end, and before that only for the measurements. See the "
        "manual, *Exchanges*, for the others and for all numbers.",
    )
    machines: int = option(
        1,
        "Machines that train together, each a replica whose workers race.",
        MACHINES,
        least=1,
        most=1024,
        more="They trade by ``averaging``, unless ``exchange`` says how: by ``gossip`` or "
        "``server``, or by ``rotation`` of items (completion).",
    )
    own_rows: bool = option(
        False,
        "Each machine has rows of its own: another file or store on each.",
        MACHINES,
        owners=LINEAR,
        more="Their counts are summed at the start, and the sums of losses at every evaluation, so the "
        "objective is that of all rows. If all open the same data, each keeps a range of it.",
    )
    link: str = option(
        "",
        f"What virtual replicas (--exchange) trade over: {', '.join(LINK)}, as in "
        "latency=0.2ms,bandwidth=1Gbit,row=0.2us.",
        PARALLEL,
        metavar="LINK",
        usual="messages take no time, a virtual row 0.2us",
        more="``row`` is a virtual worker's mean time per row: see :func:`hogwild.methods.parse_link`.",
    )
    gradient_delay: float = option(
        0.0,
        "Extra seconds, up to 1, spent on computing each gradient (the paper's artificial delay); for experiments.",
        least=0,
        most=1,
    )
    workers: int | None = option(
        None,
        "Number of workers; on a GPU, of streams.",
        PARALLEL,
        least=1,
        most=1024,
        usual="physical cores; 1 on a GPU",
        names=("--workers", "--replicas", "-w"),
        more="None takes the physical cores that this process may use.",
    )
    oversubscribe: bool = option(
        False,
        f"Allow more than {MOST_A_CORE} workers a core.",
        PARALLEL,
        more="In ``hogwild compare`` it also allows locks on more workers than cores.",
    )
    host: str = option(
        "auto",
        "Who runs the workers",
        PARALLEL,
        choices=CPU_HOSTS,
        usual="processes; one worker works in the program itself",
        more="``auto`` is processes, but one worker runs in this process, which needs no torch; ``simulator``: all "
        "workers are virtual and run one after another in this thread.",
    )
    delay: str = option(
        "round-robin",
        f"How long rows take in the simulator: {listed(DELAYS)}; any with window=0.1 "
        "(part of a row's time in which hogwild may lose updates) and quantum=1 (rows at a time; locked, tiered).",
        PARALLEL,
        metavar="LAW",
        more="See :func:`hogwild.methods.parse_delay`.",
    )
    device: str = option(
        "cpu",
        "What they run on",
        PARALLEL,
        choices=DEVICES,
        more="On ``cuda`` the workers are ``workers`` streams of the first GPU, the parameters lie in its memory, and "
        "the host is ``streams``. It needs a CUDA build of torch.",
    )
    in_flight: int | None = option(
        None,
        "Examples in hand at the same time on a GPU.",
        PARALLEL,
        least=1,
        most=2**31 - 1,
        usual="as many as the step allows",
        more="They are those of all streams; each step is taken from weights that up to this many other steps change "
        "meanwhile. None: as many as the step allows and the device holds.",
    )
    order: str = option(
        "shuffled",
        "Order of the examples",
        STEPS,
        more="``shuffled`` is anew each epoch, without replacement; in ``blocks`` no two workers ever share a user or "
        "an item.",
    )
    evaluate_every: int = option(
        1,
        "Epochs from one row of measurements to the next.",
        STOPPING,
        least=1,
    )
    epochs: int = option(None, "Passes over the data in all.", STOPPING, least=1, more="Those before a resume count.")
    intercept: bool = option(True, "Fit an unpenalised intercept.", GOAL, without="Fit no intercept.", owners=LINEAR)
    scale_columns: bool = option(
        True,
        "Train in scaled and centred columns where theirs differ.",
        STEPS,
        owners=LINEAR,
        without="Train in the columns as they are, however their scales differ.",
        more="The objective and the model are those of the columns as they are.",
    )
    renumber: str = option(
        "auto",
        "Number the features by popularity while workers train",
        PARALLEL,
        choices=("auto", "always", "never"),
        owners=LINEAR,
        more="Popular weights then share cache lines: a model that outgrows the cache trains up to twice as fast, to "
        "the same bits with one worker. It takes 4 bytes more for each nonzero. ``auto`` does so where the weights "
        "outgrow the cache and the passes over the data are worth it.",
    )
    normalize: str = option(
        "none",
        "Scale each row",
        GOAL,
        choices=NORMALIZE,
        owners=LINEAR,
        more="The scale is kept in the model and applied by predict.",
    )
    class_weight: str | None = option(
        None,
        "Weigh the classes equally",
        GOAL,
        choices=CLASS_WEIGHT,
        owners=LINEAR,
        usual="all rows alike",
        more="A row weighs ``n / (classes * rows of the class)``.",
    )
    patience: int | None = option(
        None,
        "Stop after this many epochs without progress.",
        STOPPING,
        least=1,
        usual="never",
        more="Progress is of the loss on held-out rows, where there are some, else of the objective.",
    )
    tol: float = option(1e-3, "Relative fall that is progress.", STOPPING, least=0)
    keep: str | None = option(
        None,
        "Which parameters become the model",
        STOPPING,
        choices=KEEPS,
        usual="best with --holdout; else the better, by the objective, of the last and their tail mean",
        more="``best``: of the epoch whose held-out loss was lowest; ``last``: as the last epoch left them. None is "
        "``best`` if the test rows were held out of the training rows (``Rows.split``), else the better, by the "
        "objective, of the last ones and the tail mean of the ends of epochs.",
    )
    target: float | None = option(None, "Stop at or below this objective.", STOPPING, least=-math.inf, usual="never")
    seed: int = option(
        0,
        "Seed of the order, of the first parameters and of the hold-out.",
        STEPS,
        least=0,
        most=2**63 - 1,
        more="One worker and one seed are bitwise reproducible; more are not.",
    )
    rank: int | None = option(None, "Numbers in a factor.", COMPLETION, least=1, most=1024, owners=RATINGS)
    penalty: str | None = option(
        None,
        "L2 penalty",
        COMPLETION,
        choices=PENALTIES,
        owners=RATINGS,
        more="``per-rating`` is l2/2 of the squares of both factors for every rating (weighted lambda); ``per-row`` is "
        "l2/2 of the squares of all factors (the paper's; each rating pays its share, by the degree).",
    )
    nonnegative: bool = option(False, "Factors at or above zero.", COMPLETION, owners=RATINGS)
    biases: bool = option(
        True,
        "A bias for each user and item beside the factors.",
        COMPLETION,
        owners=RATINGS,
        without="No number for each user and item beside the factors.",
    )
    negatives: int | None = option(
        None,
        "Items drawn for each rating under loss log or bpr.",
        COMPLETION,
        least=1,
        most=64,
        owners=RATINGS,
        more="They are drawn among those that the user has not chosen.",
    )
    optimizer: str | None = option(
        None,
        "Rule of the updates",
        MODULE,
        choices=OPTIMIZERS,
        owners=OF_MODULES,
        more="As in ``torch.optim``. For a sparse gradient (``nn.EmbeddingBag(sparse=True)``) only the rows that a "
        "minibatch names are read and written; momentum then decays only with them, as in ``SparseAdam``.",
    )
    state: str | None = option(
        None, "Whether each worker has the optimizer's state to itself", choices=("local", "shared"), owners=OF_MODULES
    )
    batch: int | None = option(None, "Examples in a minibatch.", MODULE, least=1, most=2**31 - 1, owners=OF_MODULES)
    momentum: float | None = option(None, "Momentum of optimizer momentum.", MODULE, least=0, most=1, owners=OF_MODULES)
    betas: tuple[float, float] | None = option(
        None, "Decays of adam's mean gradient and mean square.", owners=OF_MODULES
    )

    def __post_init__(self) -> None:
        for name in FIELDS:  # NumPy scalars become Python numbers, which JSON can hold
            value = getattr(self, name)
            if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
                object.__setattr__(self, name, value.item())
        if self.step == "auto":  # as on the command line
            object.__setattr__(self, "step", None)
        if not isinstance(self.l2, float | int | None):
            self._take_path()
        if self.l2_path is not None:
            object.__setattr__(self, "l2_path", path_of(self.l2_path))  # JSON has only lists
        choice("problem", self.problem, tuple(PROBLEMS))
        self._check_owners()
        self._fill()
        for name, field in FIELDS.items():
            streams = (STREAMS,) if name == "host" and self.device == "cuda" else ()
            check_field(field, getattr(self, name), choices_of(name, self.problem) + streams)
        if self.betas is not None:
            self._check_betas()
        parse_exchange(self.exchange)
        parse_link(self.link)
        refuse(self)

    def _fill(self) -> None:
        """Put the problem's and the device's defaults where nothing is given."""
        if self.problem == "completion" and self.penalty == "per-row" and self.l2 is None:
            object.__setattr__(self, "l2", L2_PER_ROW)
        for name, value in PROBLEMS[self.problem]["defaults"].items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        if self.machines > 1 and self.exchange == "none":
            object.__setattr__(self, "exchange", "averaging")
        if self.device == "cuda" and self.host in ("auto", *REAL_HOSTS):
            object.__setattr__(self, "host", STREAMS)
        if self.device == "cuda" and self.discipline == "auto":
            object.__setattr__(self, "discipline", next(iter(PROBLEMS[self.problem].get("cuda", ())), "auto"))

    def _take_path(self) -> None:
        """Take ``l2`` for the values among which it is chosen."""
        if self.problem not in LINEAR:
            raise UsageError(f"l2={self.l2!r}: is chosen for linear models only, not for problem {self.problem!r}")
        object.__setattr__(self, "l2_path", path_of(self.l2))
        object.__setattr__(self, "l2", None)

    def _check_betas(self) -> None:
        if not isinstance(self.betas, tuple | list) or len(self.betas) != 2:
            raise UsageError(f"betas={self.betas!r}: expected two numbers")
        object.__setattr__(self, "betas", tuple(self.betas))  # JSON has only lists
        for beta in self.betas:
            number("betas", beta, 0, 1)
            if beta == 1:
                raise UsageError(f"betas={self.betas!r}: expected numbers below 1")

    def _check_owners(self) -> None:
        """Refuse options of another problem, unless a config of another problem filled them in."""
        for name, about in OPTIONS.items():
            value, usual = getattr(self, name), FIELDS[name].default
            if not about.owners or self.problem in about.owners or value is None or value == usual:
                continue
            if value == PROBLEMS[self.problem]["defaults"].get(name, usual):
                continue
            raise UsageError(f"{name} belongs to problem {' or '.join(about.owners)}, not to {self.problem!r}")

    def to_json(self) -> dict[str, Any]:
        """Return a plain dict that ``from_json`` turns back into an equal config."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> TrainConfig:
        """Return a config from keywords; unknown names raise a UsageError that lists the valid ones."""
        unknown = sorted(set(fields) - set(FIELDS))
        if unknown:
            close = nearest(unknown[0], FIELDS)
            raise UsageError(f"unknown option {', '.join(unknown)}: expected some of {', '.join(FIELDS)}{close}")
        return cls(**fields)

    def common(self) -> dict[str, Any]:
        """Return the options that must be the same on all machines of a run, as JSON."""
        common = {name: value for name, value in self.to_json().items() if name not in (*LOCAL, *RESUMABLE)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in common.items()}

    def check_crowd(self, cores: int) -> None:
        """Raise UsageError for so many workers per core that a typing error is likely."""
        workers, most = self.workers or 1, MOST_A_CORE * cores
        real = self.device == "cpu" and self.host != "simulator"
        if real and workers > most and not self.oversubscribe:
            raise UsageError(
                f"{workers} workers on {cores} core{'s' * (cores > 1)}: at most {most} run, {MOST_A_CORE} a core, "
                "unless --oversubscribe (oversubscribe=True) is given"
            )

    @property
    def between_workers(self) -> str:
        """The exchange between the workers of this machine; with several machines it is between those."""
        return self.exchange if self.machines == 1 else "none"

    @property
    def group(self) -> int:
        """Number of this machine's workers that race on one array: all of them without an exchange between them."""
        name, numbers = parse_exchange(self.between_workers)
        return (self.workers or 1) if name == "none" else int(numbers.get("group", 1))

    @property
    def replicas(self) -> int:
        """Number of replicas that trade; 1 without an exchange."""
        return self.machines if self.machines > 1 else max((self.workers or 1) // self.group, 1)

    @property
    def settles_schedule(self) -> bool:
        """Whether "auto" chooses steps that are constant within an epoch, because an option requires them or because
        the combination has not been measured.
        """
        return self.adagrad or self.decay is not None or self.exchange != "none" or self.device != "cpu"

    def differences(self, other: TrainConfig) -> list[str]:
        """Names of the options that differ although ``--resume`` may not change them."""
        mine, theirs = self.to_json(), other.to_json()
        free = (*RESUMABLE, *["exchange"] * (self.machines != other.machines))  # one machine has none
        return [name for name in mine if name not in free and mine[name] != theirs[name]]


FIELDS = {field.name: field for field in dataclasses.fields(TrainConfig)}
OPTIONS: dict[str, Option] = {name: field.metadata["option"] for name, field in FIELDS.items()}


def path_of(given: Any, name: str = "l2") -> tuple[float, ...]:
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
        wanted = "two or more different numbers of at least 0, such as '1e-6,1e-5'"
        other = "" if name == "alphas" else "a number of at least 0, 'auto', or "
        raise UsageError(f"{name}={given!r}: expected {other}{wanted}")
    return tuple(path)


def choices_of(name: str, problem: str) -> tuple[Any, ...]:
    """Return the choices of an option for a problem, without "auto"; () if it is none among a few."""
    return PROBLEMS[problem].get(name, ()) if name in PROBLEMS["linear"] else OPTIONS[name].choices


def help_of(name: str, problems: Sequence[str]) -> str:
    """Return an option's help text, with its choices for the problems."""
    first = choices_of(name, problems[0])
    if not first:
        return OPTIONS[name].help
    text = f"{OPTIONS[name].help}: {', '.join(each for each in first if each is not None)}"
    for problem in problems[1:]:
        own = choices_of(name, problem)
        if len(own) > 1 and not set(own) <= set(first):
            whole = not set(first) <= set(own)
            listed = [each for each in own if whole or each not in first]
            text += f"; of {problem} {'' if whole else 'also '}{', '.join(listed)}"
    return text + "."


def usual_of(name: str, problems: Sequence[str]) -> str:
    """Return what an option is if nothing is given, for those of the problems that have it; "" if its field says it."""
    owners = OPTIONS[name].owners or problems
    asked = [problem for problem in problems if problem in owners] or owners
    having = [problem for problem in asked if len(choices_of(name, problem)) != 1]
    values = [PROBLEMS[problem]["defaults"].get(name) for problem in having]
    if all(value is None for value in values):
        return OPTIONS[name].usual
    texts = [
        OPTIONS[name].usual if value is None else f"{value:g}" if isinstance(value, float) else str(value)
        for value in values
    ]
    others = [(problem, text) for problem, text in zip(having, texts) if text != texts[0]]
    if len(others) > 1 and len({text for _, text in others}) == 1:
        return f"{texts[0]}; for others {others[0][1]}"
    return "; ".join([texts[0], *(f"for {problem} {text}" for problem, text in others)])


def _attributes() -> str:
    """The section of the docstring that explains the options."""
    entries = []
    for name, about in OPTIONS.items():
        problems = about.owners or tuple(PROBLEMS)
        kind, usual = str(FIELDS[name].type).replace(" | ", " or "), usual_of(name, problems) or FIELDS[name].default
        entries.append(entry(name, kind, usual, f"{help_of(name, problems)} {about.more}"))
    return "\n\nAttributes\n----------\n" + "\n".join(entries)


TrainConfig.__doc__ = inspect.cleandoc(TrainConfig.__doc__ or "") + _attributes()


def usual_host(host: str, workers: int) -> str:
    """Return the host, resolving "auto"."""
    if host != "auto":
        return host
    return "threads" if workers == 1 else "processes"
