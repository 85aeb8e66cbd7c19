"""The methods that can be compared: one row of a table each.

A method is a combination of problem, discipline, order, exchange and host. Why a method cannot run is said here in one
sentence, which appears in the results in place of its figures, so no method asked for is dropped silently. Methods
whose workers are replicas on a GPU are rows like others, so a GPU is measured by the same clock, objective and tuning
as the cores.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hogwild.compare.run.outside import OUTSIDE
from hogwild.config import TrainConfig, config_class, fields_of
from hogwild.errors import UsageError, nearest
from hogwild.methods import BETWEEN_WORKERS, parse_exchange

if TYPE_CHECKING:
    from hogwild.cuda.backend import Backend


@dataclass(frozen=True)
class Method:
    """One row of the table.

    Attributes
    ----------
    kind : str
        One of ``KINDS`` in ``compare/report/results.py``, by which the report groups methods.
    discipline, exchange, order : str
        As in :class:`hogwild.config.TrainConfig`; with an order of None, that of the comparison is used.
    parallel : bool
        Whether it runs with every number of workers; otherwise with one.
    problems : tuple of str
        Problems it supports; empty: all.
    device : str
        As in :class:`hogwild.config.TrainConfig`: workers of "cuda" are replicas on streams of the first GPU.
    together : bool
        Whether one replica processes the minibatches of all workers as one.
    """

    name: str
    kind: str
    discipline: str = "serial"
    exchange: str = "none"
    order: str | None = None
    parallel: bool = True
    problems: tuple[str, ...] = ()
    device: str = "cpu"
    together: bool = False

    @property
    def outside(self) -> bool:
        """Whether it is another program's solver."""
        return self.kind == "outside"

    @property
    def tuned(self) -> bool:
        """Whether it has a step, which is tuned."""
        return not self.outside or OUTSIDE[self.name].steps

    def config(
        self,
        base: TrainConfig,
        workers: int,
        step: float | None,
        seed: int,
        in_flight: int | None = None,
    ) -> TrainConfig:
        """Return the options of one run; it has fewer workers of its own if one replica does the work of several.

        Raises
        ------
        UsageError
            If the options contradict each other.
        """
        order = base.order if self.order is None else self.order
        options: dict[str, Any] = {"discipline": self.discipline, "exchange": self.exchange, "order": order}
        if self.device != "cpu":
            options |= {"device": self.device, "in_flight": in_flight}
        if self.together:
            options["batch"] = (base.batch or 1) * workers
            workers = 1
        return dataclasses.replace(base, workers=workers, step=step, seed=seed, **options)

    def refusal(self, base: TrainConfig, rows: Any, workers: int, cores: int) -> str | None:
        """Return why it cannot be compared here, in one sentence; None if it can, as far as its run does not refuse."""
        if self.problems and base.problem not in self.problems:
            return f"{self.name} is for problem {' or '.join(self.problems)}, not for {base.problem}"
        if self.outside:
            return OUTSIDE[self.name].refusal(base, rows)
        spinning = self.kind == "locks" and self.device == "cpu" and base.host != "simulator"
        if spinning and workers > cores:
            return f"{workers} workers on {cores} cores would spin for locks whose holders do not run"
        if self.together and workers * (base.batch or 1) > len(rows):
            return f"a minibatch of {workers} x {base.batch} examples is more than the {len(rows)} there are"
        return None


def gpu() -> Backend:
    """Return the device that methods of device "cuda" run on.

    Raises
    ------
    InputError
        If there is none; the message says why.
    """
    from hogwild.cuda import streams

    return streams.connect()


def _table(*methods: Method) -> dict[str, Method]:
    return {method.name: method for method in methods}


SPARSE, MODULE = ("linear", "completion"), ("module",)

METHODS = _table(
    Method("serial", "serial", parallel=False),
    Method("hogwild", "lock-free", "hogwild"),
    Method("tiered", "lock-free", "tiered"),
    Method("atomic", "lock-free", "atomic"),
    Method("aig", "locks", "aig"),
    Method("locked", "locks", "locked"),
    Method("round-robin", "locks", "round-robin"),
    Method("blocks", "blocks", "hogwild", order="blocks", problems=("completion",)),
    *(Method(name, "exchange", exchange=name) for name in BETWEEN_WORKERS),
    *(
        Method(
            name, "outside", "hogwild" if each.threads else "serial", parallel=each.threads, problems=(each.problem,)
        )
        for name, each in OUTSIDE.items()
    ),
    Method("cuda-atomic", "lock-free", "atomic", problems=SPARSE, device="cuda"),
    Method("cuda-hogwild", "lock-free", "hogwild", problems=SPARSE + MODULE, device="cuda"),
    Method("cuda-locked", "locks", "locked", problems=MODULE, device="cuda"),
    # The alternatives on a GPU: everything in step, or one minibatch after another.
    Method("cuda-synchronous", "in step", problems=MODULE, device="cuda", together=True),
    Method("cuda-one-stream", "in step", parallel=False, problems=MODULE, device="cuda"),
)


#: Exchanges that are compared unless methods are named; the others are for links that take time.
USUAL_EXCHANGES = ("none", "averaging", "one-shot-averaging")


def find(name: str) -> Method:
    """Return the method of this name; an exchange may have parameters, as in ``averaging:period=1000``.

    Raises
    ------
    UsageError
        For a name that is not in the table, or wrong parameters.
    """
    if name in METHODS:
        return METHODS[name]
    scheme, parameters, _ = name.partition(":")
    if not parameters or METHODS.get(scheme) is None or METHODS[scheme].exchange != scheme:
        raise UsageError(
            f"no method {name!r}{nearest(scheme, METHODS) or ': expected some as in serial,hogwild,locked'}"
        )
    parse_exchange(name)
    return dataclasses.replace(METHODS[scheme], name=name, exchange=name)


def listed(text: str) -> list[str]:
    """Split a list such as ``serial,averaging:period=100,mean=rows,hogwild`` into names with their parameters."""
    return [part.strip() for part in re.split(r",(?!\s*\w+=)", text)]


def usual(problem: str, device: str = "cpu") -> list[str]:
    """Names of the methods of a problem on a device; other programs are included only if they are installed.

    On "cuda" this includes ``serial``, the reference for the others.
    """
    if device != "cpu":
        return [name for name, method in METHODS.items() if method.device == device and problem in method.problems]
    disciplines = fields_of(config_class(problem))["discipline"].metadata["option"].choices
    return [
        name
        for name, method in METHODS.items()
        if method.device == device
        and (not method.problems or problem in method.problems)
        and not (method.outside and OUTSIDE[name].version() is None)
        and method.discipline in disciplines
        and method.exchange in USUAL_EXCHANGES
    ]


def chosen(names: list[str]) -> list[Method]:
    """Return the methods with these names in the table's order, always with ``serial``, the reference, first.

    Raises
    ------
    UsageError
        For a name that is not in the table.
    """
    order = {name: place for place, name in enumerate(METHODS)}
    table = {name: find(name) for name in ("serial", *names)}
    return sorted(table.values(), key=lambda method: order[method.name.partition(":")[0]])
