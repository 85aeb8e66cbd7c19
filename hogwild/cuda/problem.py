"""A problem whose workers are on a device: its part in the host's memory, and where its kernels are.

Its ``Job`` holds the parameters, which are copied back on request, and the counts; there are no locks, blocks or tiers.
The device decides the order of an epoch (see ``streams.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hogwild.config import TrainConfig
from hogwild.cuda.backend import Backend
from hogwild.cuda.work import Launcher
from hogwild.hosts.job import Job
from hogwild.kernels.control import NEXT
from hogwild.methods import located

CHUNKS = 256  # of an epoch: where a run can be stopped and resumed
FEWEST = 1024  # examples in one, unless the run has fewer
MINIBATCHES = 8  # in one, where examples come in minibatches

_LAUNCHERS = {
    "LinearProblem": "hogwild.cuda.linear.launcher:LinearLauncher",
    "CompletionProblem": "hogwild.cuda.completion.launcher:CompletionLauncher",
    "ModuleProblem": "hogwild.cuda.module.launcher:ModuleLauncher",
}


@dataclass(frozen=True)
class DeviceOrder:
    """The division of ``n_rows`` examples into chunks; the device chooses their examples, by seed and epoch."""

    n_rows: int
    chunk: int
    shuffled: bool
    n_blocks: int = 0

    @property
    def n_chunks(self) -> int:
        return -(-self.n_rows // self.chunk)


@dataclass(frozen=True)
class OnDevice:
    """A problem in a job on a device, which needs a few methods of ``problems/protocol.Problem`` only."""

    problem: Any
    in_flight: int | None  # examples in flight; None: found by trial
    nonzeros: int = 0  # of all examples, for the measurements
    options: Mapping[str, Any] = field(default_factory=dict)  # further options for the launcher

    locks = 1

    @property
    def discipline(self) -> str:
        return str(self.problem.discipline)

    @property
    def size(self) -> int:
        return int(self.problem.size)

    def start(self, flat: np.ndarray, seed: int) -> None:
        self.problem.start(flat, seed)

    def shuffle(self, blocks: np.ndarray, order: DeviceOrder, seed: int, epoch: int) -> None:
        """Do nothing: the device shuffles."""

    def begin_epoch(self, control: np.ndarray, order: DeviceOrder, start: int) -> None:
        control[:] = 0
        control[NEXT] = start

    def position(self, control: np.ndarray, order: DeviceOrder) -> int:
        """Number of chunks done, over all epochs of a task."""
        return int(control[NEXT])

    def launcher(self, arrays: Mapping[str, np.ndarray], backend: Backend) -> Launcher:
        """Put the problem's kernels and arrays on a device."""
        kind = located(_LAUNCHERS[type(self.problem).__name__])
        made: Launcher = kind(self.problem, arrays, backend, **self.options)
        return made


def lay_out(
    config: TrainConfig, problem: Any, n_rows: int, arrays: dict[str, np.ndarray], nonzeros: int = 0, **options: Any
) -> Job:
    """Return the job of a run whose workers are on a device.

    ``arrays`` are those of all examples, as the launcher takes them, as are the ``options``; ``batch``: the examples of
    a minibatch, if the problem has them.
    """
    on_device: Any = OnDevice(problem, config.in_flight, nonzeros, options)
    chunk = max(-(-n_rows // CHUNKS), min(FEWEST, n_rows), 1)
    if "batch" in options:  # a segment, or one minibatch if replicas take turns at each
        chunk = options["batch"] * (1 if problem.discipline == "locked" else MINIBATCHES)
    order = DeviceOrder(n_rows, chunk, config.order == "shuffled")
    return Job.of(on_device, order, config.seed, config.workers or 1, arrays, shared=False)
