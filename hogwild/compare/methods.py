"""The methods that can be compared: one row of a table each.

A method is a cell problem x discipline x order x exchange x host. What it may not do is said in one sentence, here, and
the sentence stands in the results where its figures would: nothing that was asked for is dropped. Those whose workers
are replicas on a GPU are rows like others, so a GPU is measured by the same clock, objective and tuning as the cores.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hogwild.compare.outside import OUTSIDE
from hogwild.compare.subjects import SUBJECTS
from hogwild.config import PROBLEMS, TrainConfig
from hogwild.errors import InputError, UsageError, nearest

if TYPE_CHECKING:
    from hogwild.cuda.backend import Backend


@dataclass(frozen=True)
class Method:
    """One row of the table.

    Attributes
    ----------
    kind : str
        One of ``summary.KINDS``: what the report groups by.
    discipline, exchange, order : str
        As in :class:`hogwild.config.TrainConfig`; an order of None is that of the comparison.
    parallel : bool
        Whether it is run for every number of workers; else for one.
    tuned : tuple of str
        Parameters that are tuned: the step, or nothing.
    problems : tuple of str
        Those it is for; none: all.
    cost : float
        Guess of the seconds of its epoch over those of a serial epoch, for the estimate of a comparison's time only.
    device : str
        As in :class:`hogwild.config.TrainConfig`: workers of "cuda" are replicas on streams of the first GPU.
    launch : str or None
        Likewise; None: the problem's usual way.
    together : bool
        Whether one replica takes the minibatches of all workers as one.
    """

    name: str
    kind: str
    discipline: str = "serial"
    exchange: str = "none"
    order: str | None = None
    parallel: bool = True
    tuned: tuple[str, ...] = ("step",)
    cost: float = 1.0
    problems: tuple[str, ...] = ()
    device: str = "cpu"
    launch: str | None = None
    together: bool = False

    @property
    def outside(self) -> bool:
        """Whether it is another program's solver."""
        return self.kind == "outside"

    def config(
        self, base: TrainConfig, workers: int, step: float | None, seed: int, in_flight: int | None = None
    ) -> TrainConfig:
        """The options of one run, whose own workers are fewer where one replica does what so many would.

        Raises
        ------
        UsageError
            If they contradict each other.
        """
        order = base.order if self.order is None else self.order
        about: dict[str, Any] = {"discipline": self.discipline, "exchange": self.exchange, "order": order}
        if self.device != "cpu":
            about |= {"device": self.device, "in_flight": in_flight}
        if self.launch is not None:
            about["launch"] = self.launch
        if self.together:
            about["batch"], workers = (base.batch or 1) * workers, 1
        return dataclasses.replace(base, workers=workers, step=step, seed=seed, **about)

    def refusal(
        self, base: TrainConfig, rows: Any, workers: int, cores: int, in_flight: int | None = None
    ) -> str | None:  # fmt: skip
        """Why it cannot be compared here, in one sentence; None if it can."""
        if self.problems and base.problem not in self.problems:
            return f"{self.name} is for problem {' or '.join(self.problems)}, not for {base.problem}"
        if self.outside:
            return OUTSIDE[self.name].refuse(base, rows)
        if workers > len(rows):
            return f"{workers} workers for {len(rows)} rows"
        spinning = self.kind == "locks" and self.device == "cpu" and base.host != "simulator"
        if spinning and workers > cores and not base.oversubscribe:
            return (
                f"{workers} workers on {cores} cores would spin for locks whose holders do not run "
                "(--oversubscribe measures it all the same)"
            )
        if self.together and workers * (base.batch or 1) > len(rows):
            return f"a minibatch of {workers} x {base.batch} examples is more than the {len(rows)} there are"
        try:
            config = self.config(base, workers, 1.0 if base.schedule != "optimal" else None, 0, in_flight)
            config.check_crowd(cores)
            if self.device != "cpu":
                gpu()
        except (UsageError, InputError) as error:
            return str(error)
        return SUBJECTS[base.problem].refusal(config, rows)


def gpu() -> Backend:
    """The device that methods of device "cuda" run on.

    Raises
    ------
    InputError
        If there is none, with the reason.
    """
    from hogwild.cuda import streams

    return streams.connect()


def _table(*methods: Method) -> dict[str, Method]:
    return {method.name: method for method in methods}


SPARSE, MODULE = ("linear", "completion"), ("module",)

METHODS = _table(
    Method("serial", "serial", parallel=False),
    Method("hogwild", "lock-free", "hogwild", cost=1.2),
    Method("tiered", "lock-free", "tiered"),
    Method("atomic", "lock-free", "atomic", cost=3.0),
    Method("aig", "locks", "aig", cost=4.0),
    Method("locked", "locks", "locked", cost=1.3),
    Method("round-robin", "locks", "round-robin", cost=3.5),
    Method("blocks", "blocks", "hogwild", order="blocks", problems=("completion",)),
    Method("averaging", "exchange", exchange="averaging"),
    Method("one-shot-averaging", "exchange", exchange="one-shot-averaging"),
    Method("sklearn-sgd", "outside", parallel=False, cost=5.0, problems=("linear",)),
    Method("liblinear", "outside", parallel=False, tuned=(), cost=4.0, problems=("linear",)),
    # cornac's threads share one model, unlocked
    Method("cornac", "outside", "hogwild", cost=4.0, problems=("completion",)),
    Method("cuda-atomic", "lock-free", "atomic", cost=0.1, problems=SPARSE, device="cuda"),
    Method("cuda-hogwild", "lock-free", "hogwild", cost=0.2, problems=SPARSE + MODULE, device="cuda"),
    Method("cuda-locked", "locks", "locked", cost=0.5, problems=MODULE, device="cuda"),
    # What one would do with a GPU otherwise: everything in step, or one minibatch after the other.
    Method("cuda-synchronous", "in step", cost=0.2, problems=MODULE, device="cuda", together=True),
    Method("cuda-vmap", "in step", "hogwild", cost=0.2, problems=MODULE, device="cuda", launch="vmap"),
    Method("cuda-one-stream", "in step", parallel=False, cost=0.5, problems=MODULE, device="cuda"),
    Method("cuda-eager", "in step", parallel=False, cost=2.0, problems=MODULE, device="cuda", launch="eager"),
)


def usual(problem: str, device: str = "cpu") -> list[str]:
    """Names of the methods of a problem on a device, of which other programs only if they are there to be run.

    On "cuda" that is also ``serial``, by which the others are measured.
    """
    if device != "cpu":
        return [name for name, method in METHODS.items() if method.device == device and problem in method.problems]
    known = PROBLEMS[problem]["discipline"]
    return [
        name for name, method in METHODS.items()
        if method.device == device and (not method.problems or problem in method.problems)
        and not (method.outside and OUTSIDE[name].version is None)
        and method.discipline in known and not (problem == "module" and method.exchange != "none")
    ]  # fmt: skip


def chosen(names: list[str]) -> list[Method]:
    """The methods of these names, in the table's order; ``serial``, by which the others are measured, always first.

    Raises
    ------
    UsageError
        For a name that is not in the table.
    """
    if unknown := [name for name in names if name not in METHODS]:
        close = nearest(unknown[0], METHODS)
        raise UsageError(f"method {unknown[0]!r}: expected some of {', '.join(METHODS)}{close}")
    return [method for name, method in METHODS.items() if name == "serial" or name in names]
