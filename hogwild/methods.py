"""The registries: problems, losses, disciplines, hosts, exchanges, delay laws; and how names with numbers are read.

They are names and numbers only, so the command line, the configuration and the documentation read them in no time.
Where code belongs to a name, its row says the place, which is imported when it is needed.
"""

from __future__ import annotations

import importlib
import math
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hogwild.errors import UsageError, nearest
from hogwild.kernels import losses

LABEL_LOSSES, REAL_LOSSES, COUNT_LOSSES = (
    tuple(name for name, loss in losses.LOSSES.items() if loss.targets == kind)
    for kind in (losses.LABELS, losses.NUMBERS, losses.COUNTS)
)
LOSSES = tuple(losses.LOSSES)
#: Default parameter of the losses that take one.
DEFAULT_PARAM = {name: loss.param for name, loss in losses.LOSSES.items() if loss.param is not None}
DISCIPLINES = ("serial", "hogwild", "tiered", "atomic", "aig", "locked", "round-robin")
#: scikit-learn's names of the losses of its SGD.
SGD_LOSSES = {name: loss.sgd for name, loss in losses.LOSSES.items() if loss.sgd}
UNTIERED = tuple(name for name in DISCIPLINES if name != "tiered")  # where copies of what is popular do not pay
DEVICES = ("cpu", "cuda")
STREAMS = "streams"  # the host of workers on device cuda, and the only one there
MOST_STREAMS = 31  # for workers, of the 32 different ones that torch has: one is left to torch
ORDERS = ("shuffled", "file", "blocks")
SCHEDULES = ("constant", "epoch", "round", "rows", "inverse", "optimal", "adaptive", "root")
NORMALIZE = ("none", "l2")
CLASS_WEIGHT = (None, "balanced")

EXPORTS = ("npz", "python", "onnx")  # formats of other programs that models are written in: interchange.py
PENALTIES = ("per-rating", "smoothed")
OPTIMIZERS = ("sgd", "momentum", "adagrad", "adam")


@dataclass(frozen=True)
class Host:
    """Who runs the workers: see ``hosts/pool.py``."""

    place: str  # module:class, called with the number of workers, and with a delay law unless ``real``
    device: str = "cpu"
    real: bool = True  # whether its seconds mean something


HOSTS: dict[str, Host] = {
    "processes": Host("hogwild.hosts.processes:Processes"),
    "threads": Host("hogwild.hosts.threads:Threads"),
    "simulator": Host("hogwild.hosts.simulator:Simulator", real=False),
    STREAMS: Host("hogwild.cuda.streams:Streams", device="cuda"),
}
CPU_HOSTS = tuple(name for name, host in HOSTS.items() if host.device == "cpu")
REAL_HOSTS = tuple(name for name in CPU_HOSTS if HOSTS[name].real)


class Places(NamedTuple):
    """Places of what belongs to a problem: its options, its case, and its model."""

    config: str
    case: str
    model: str


PROBLEMS: dict[str, Places] = {
    "linear": Places(
        "hogwild.problems.linear.options:LinearConfig",
        "hogwild.problems.linear.case:LinearCase",
        "hogwild.problems.linear.model:LinearModel",
    ),
    "fm": Places(
        "hogwild.problems.fm.options:FMConfig",
        "hogwild.problems.fm.case:FMCase",
        "hogwild.problems.fm.model:FMModel",
    ),
    "ffm": Places(
        "hogwild.problems.fm.options:FFMConfig",
        "hogwild.problems.fm.case:FMCase",
        "hogwild.problems.fm.model:FMModel",
    ),
    "completion": Places(
        "hogwild.problems.completion.options:CompletionConfig",
        "hogwild.problems.completion.case:CompletionCase",
        "hogwild.problems.completion.model:CompletionModel",
    ),
    "cuts": Places(
        "hogwild.problems.cuts.options:CutsConfig",
        "hogwild.problems.cuts.case:CutsCase",
        "hogwild.problems.cuts.model:Segmentation",
    ),
    "module": Places(  # through hogwild.train_module only, which has the module
        "hogwild.problems.module.options:ModuleConfig",
        "hogwild.problems.module.case:ModuleCase",
        "hogwild.problems.module.model:ModuleModel",
    ),
}


class Number(NamedTuple):
    """A numeric parameter and its range."""

    default: float
    least: float
    most: float
    whole: bool = False
    part: bool = False  # a whole number of rows, or below one, a part of an epoch's rows of a replica
    units: Mapping[str, float] = {}  # with which the number is written


class Choice(NamedTuple):
    """A parameter that is one of several names."""

    default: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class ExchangeRow:
    """A scheme by which replicas trade: see ``exchanges/trade.py``."""

    place: str  # module:class, constructed with the numbers as keywords; "" if workers share one array
    numbers: Mapping[str, Number | Choice] = field(default_factory=dict)
    fixed: Mapping[str, object] = field(default_factory=dict)  # further keywords
    sums: bool = False  # whether it adds up the replicas' changes, which leads out of what a problem may be kept in
    between: tuple[str, ...] = ("workers",)  # and "machines"
    local: tuple[str, ...] = ()  # parameters, or values of them, that only the workers of one machine can have


EVERYWHERE = ("workers", "machines")
#: Schemes by which replicas trade.
EXCHANGES: dict[str, ExchangeRow] = {
    "none": ExchangeRow(""),
    "averaging": ExchangeRow(
        "hogwild.exchanges.averaging:Averaging",
        {
            "period": Number(math.inf, 1, 1 << 53, True, True),
            "mean": Choice("moved", ("moved", "rows")),
            "by": Choice("direct", ("direct", "tree", "butterfly", "ring")),
            "outer": Number(1, 1e-3, 1e3),
            "momentum": Number(0, 0, 0.999),
            "threshold": Number(0, 0, math.inf),
            "share": Number(1, 1e-3, 1),
        },
        between=EVERYWHERE,
        local=("by", "share", "threshold", "momentum"),
    ),
    "one-shot-averaging": ExchangeRow("hogwild.exchanges.averaging:Averaging", fixed={"one_shot": True}),
    "gossip": ExchangeRow(
        "hogwild.exchanges.gossip:Gossip",
        {
            "period": Number(250, 1, 1 << 53, True),
            "tau": Number(0, 0, 1e30),
            "home": Number(1, 0, 1, True),
        },
        sums=True,
        between=EVERYWHERE,
        local=("home",),
    ),
    "consensus": ExchangeRow(
        "hogwild.exchanges.consensus:Consensus",
        {"period": Number(math.inf, 1, 1 << 53, True), "pull": Number(0.5, 0, 1)},
        sums=True,
    ),
    "server": ExchangeRow(
        "hogwild.exchanges.server:Server",
        {
            "push": Number(1000, 1, 1 << 53, True),
            "fetch": Number(math.inf, 1, 1 << 53, True),
            "shards": Number(1, 1, 1024, True),
            "warm": Number(0, 0, 1 << 53, True),
            "bound": Number(math.inf, 0, 1 << 53, True),
            "rule": Choice("met", ("met", "sum", "scaled", "soft", "adagrad", "revision")),
            "soft": Number(1, 1, 1 << 20, True),
        },
        sums=True,
        between=EVERYWHERE,
        local=("bound", "warm", "rule=adagrad", "rule=revision"),
    ),
    "rotation": ExchangeRow("", between=("machines",)),  # a machine's workers share one array: machines/rotation.py
}
#: Those between the workers of a machine, and between machines.
BETWEEN_WORKERS, AMONG_MACHINES = (
    tuple(name for name, row in EXCHANGES.items() if where in row.between and name != "none") for where in EVERYWHERE
)
#: Parameters of every delay law.
TIMING = {"window": Number(0.1, 0.0, 1.0), "quantum": Number(1, 1, 1_000_000, True)}
#: The simulator's delay laws (hosts/simulator.py) with the further parameters of each.
DELAYS: dict[str, dict[str, Number]] = {
    "round-robin": {},
    "constant": {"delay": Number(1, 0, 1023, True)},
    "random": {"shape": Number(1.0, 0.01, 1e6)},
    "straggler": {"alpha": Number(1.5, 1.01, 1e6)},
}
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
BITS = {"bit": 1.0, "kbit": 1e3, "Mbit": 1e6, "Gbit": 1e9}  # per second
#: Parameters of a simulated link.
LINK = {
    "latency": Number(0, 0, math.inf, units=SECONDS),
    "bandwidth": Number(math.inf, 1e-3, math.inf, units=BITS),
    "row": Number(2e-7, 0, math.inf, units=SECONDS),
}


class Wire(NamedTuple):
    """A simulated link between replicas."""

    latency: float = 0.0  # seconds
    bandwidth: float = math.inf  # bytes per second, each way
    row: float = 2e-7  # mean seconds per row of a worker


def located(place: str) -> Any:
    """Return what a row names as ``module:name``; the module is imported."""
    module, name = place.split(":")
    return getattr(importlib.import_module(module), name)


def parse_exchange(text: str, sums: bool = True) -> tuple[str, dict[str, Any]]:
    """Parse an exchange such as ``averaging:period=1000`` into its name and parameters, with defaults filled in.

    Without ``sums``, as in ``PROBLEMS``, the default of ``mean`` is the one that stays where all replicas are.

    Raises
    ------
    UsageError
        If it is unknown; the message lists the exchanges, or the parameters of this one.
    """
    name, numbers = parse_named(
        "exchange", text, {name: row.numbers for name, row in EXCHANGES.items()}, "averaging:period=1000"
    )
    if not sums and "mean" in numbers and "mean=" not in text:
        numbers["mean"] = "rows"
    return name, numbers


def parse_delay(text: str) -> tuple[str, dict[str, float]]:
    """Parse a delay law such as ``straggler:alpha=1.2,window=0.5``, like :func:`parse_exchange`."""
    return parse_named(
        "delay", text, {name: numbers | TIMING for name, numbers in DELAYS.items()}, "straggler:alpha=1.2"
    )


def parse_named(
    option: str, text: str, tables: Mapping[str, Mapping[str, Number | Choice]], example: str
) -> tuple[str, dict[str, Any]]:
    """Parse ``name:key=value,...`` into name and parameters; ``tables`` lists the valid ones."""
    name, _, rest = text.partition(":") if isinstance(text, str) else (text, "", "")
    if name not in tables:
        near = nearest(str(name), tables)
        raise UsageError(f"{option}={text!r}: expected one of {', '.join(tables)}, with numbers as in {example}{near}")
    return name, _pairs(f"{option}={text!r}", name, rest, tables[name])


def _pairs(where: str, name: str, text: str, ranges: Mapping[str, Number | Choice]) -> dict[str, Any]:
    """The parameters that ``key=value,...`` gives, and the defaults of the others."""
    values: dict[str, Any] = {key: each.default for key, each in ranges.items()}
    for part in filter(None, text.split(",")):
        key, _, value = part.partition("=")
        if key not in ranges:
            has = ", ".join(ranges) or "no numbers"
            raise UsageError(f"{where}: cannot read {part!r}: {name} has {has}{nearest(key, ranges)}")
        try:
            values[key] = _parsed(value, ranges[key])
        except UsageError as error:
            raise UsageError(f"{where}: {key}={value}: {error}") from None
    return values


def _parsed(value: str, allowed: Number | Choice) -> float | str:
    """A parameter's value.

    Raises
    ------
    UsageError
        If it is none of the names, or not in the range.
    """
    if isinstance(allowed, Choice):
        if value not in allowed.names:
            raise UsageError(f"expected one of {', '.join(allowed.names)}{nearest(value, allowed.names)}")
        return value
    digits = value.rstrip(string.ascii_letters) if allowed.units else value
    try:
        number = float(digits) * (allowed.units[value[len(digits) :]] if allowed.units else 1)
    except (ValueError, KeyError):
        number = math.nan
    if allowed.part and 0 < number < 1:
        return number
    if not allowed.least <= number <= allowed.most or (allowed.whole and number % 1):
        unit = f"number and a unit ({', '.join(allowed.units)})"
        kind = unit if allowed.units else "whole number" if allowed.whole else "number"
        most = f" to {allowed.most:g}" if allowed.most < 1 << 53 else ""
        below = ", or a part of an epoch such as 0.25" * allowed.part
        raise UsageError(f"expected a {kind} from {allowed.least:g}{most}{below}")
    return number


def parse_link(text: str) -> Wire:
    """Parse a link such as ``latency=0.2ms,bandwidth=1Gbit,row=0.2us``; latency and bandwidth are free by default.

    Raises
    ------
    UsageError
        If it cannot be parsed; the message names the parameters and their units.
    """
    values = _pairs(f"link={text!r}", "it", str(text), LINK)
    return Wire(values["latency"], values["bandwidth"] / 8, values["row"])  # bits to bytes
