"""The engine of a run: it lays out the memory, starts the workers, has them do epochs, and keeps the clock.

The clock of ``train_seconds`` runs while workers work and while a step is searched for, never during evaluation, and it
is started and stopped here only. An engine can be stopped at any chunk and goes on there. What is measured, kept and
judged between epochs is the affair of ``run.py``.
"""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hogwild import machine
from hogwild.config import TrainConfig, usual_host
from hogwild.errors import UsageError
from hogwild.exchanges.trade import Counts
from hogwild.hosts.job import Job, Task
from hogwild.hosts.pool import Pool
from hogwild.methods import HOSTS, STREAMS, Wire, located
from hogwild.training.schedule import Step, usual_schedule
from hogwild.training.stopwatch import Stopwatch

POLL = 0.1  # seconds between two looks at a pool that has nothing to say


@dataclass(frozen=True)
class EpochProgress:
    """How far a run is, readable at any time from any thread."""

    epoch: int  # complete ones
    rows_done: int  # of the current epoch
    rows_total: int
    nonzeros: int  # done by the workers in the current epoch
    seconds: float  # they have worked on it


class Clock:
    """Accumulates the time spent inside ``with clock:``."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._before = seconds
        self._since: float | None = None

    def __enter__(self) -> None:
        self._since = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._before, self._since = self.seconds, None

    def add(self, seconds: float) -> None:
        """Count time that was spent before."""
        self._before += seconds

    @property
    def seconds(self) -> float:
        since = self._since
        return self._before + (0.0 if since is None else time.perf_counter() - since)


def start_pool(host: str, workers: int, delay: str = "round-robin") -> Pool:
    """Started workers that ``train(..., pool=...)`` can use, one run after another; ``delay``: the simulator's law.

    Raises
    ------
    UsageError
        For a host, a number of workers or a law that there is not.
    """
    row = HOSTS.get(host, HOSTS["processes"])  # an unknown name is refused by the config
    TrainConfig(host=host, device=row.device, workers=workers, delay=delay)
    host = usual_host(host, workers)
    pool: Pool = located(HOSTS[host].place)(workers, *(() if HOSTS[host].real else (delay,)))
    return pool


def resolve(config: TrainConfig, n_rows: int, pool: Pool | None = None, entries: float = math.inf) -> TrainConfig:
    """Return the config with workers, host and schedule filled in; "auto" for several workers depends on the data.

    ``entries`` are those of one epoch; unless they are few, workers are processes.

    Raises
    ------
    UsageError
        If the workers or delays asked for are not those of the pool.
    """
    workers = config.workers
    if workers is None and config.discipline == "serial" and config.between_workers == "none":
        workers = 1
    elif workers is None and pool is not None:
        workers = pool.workers
    elif workers is None:
        workers = 1 if config.device == "cuda" else min(machine.physical_cores(), max(n_rows, 1))
    discipline = config.discipline
    if discipline == "auto" and (workers == 1 or config.between_workers != "none"):
        discipline = "serial"
    delay = config.delay
    if pool is None:
        host = usual_host(config.host, workers, entries * config.epochs)
    else:
        host = pool.host
        if workers != pool.workers:
            raise UsageError(f"the pool has {pool.workers} workers, expected {workers} for discipline {discipline!r}")
        if host == "simulator":
            delay = pool.delay
    if config.delay not in ("round-robin", delay):
        raise UsageError(f"the pool simulates delay={delay!r}, expected {config.delay!r}: start another pool")
    if (host == STREAMS) != (config.device == "cuda"):
        raise UsageError(f"the pool's workers are {host}, and device={config.device!r}: start another pool")
    schedule = usual_schedule(config.schedule, n_rows, settled=config.settles_schedule)
    return dataclasses.replace(
        config, workers=workers, discipline=discipline, host=host, delay=delay, schedule=schedule
    )


class Engine:
    """The workers and the memory of one run.

    Attributes
    ----------
    job : Job
        What the workers have before them; ``job.export()`` copies the parameters.
    epoch, chunk : int
        Epochs that are complete, and chunks that are done of the next one.
    updates, nonzeros, seconds : int, int, float
        What the workers have done of the current epoch, and the time that it took.
    lost : int
        Workers that have died.
    sent : Counts
        What the replicas have sent since the run began.
    stopping : bool
        Whether the run was asked to stop.
    """

    def __init__(
        self,
        lay_out: Callable[[bool], Job],
        pool: Pool,
        own: bool = True,
        stopwatch: Stopwatch | None = None,
        wire: Wire | None = None,
        examples: int | None = None,
    ) -> None:
        """Give the workers what ``lay_out`` makes, in shared memory if asked.

        The engine ends the workers of its ``own`` pool. ``examples`` are those of an epoch on all machines.
        """
        self._own = own
        self.pool = pool
        self._stopwatch = stopwatch or Stopwatch("set-up")
        self._laid_out = False
        self.clock = Clock()
        self._began = 0.0
        self.sent = Counts()
        self.epoch = 0
        self.chunk = 0
        self.lost = 0
        self._in_hand = 0
        self.stopping = False
        self.next_epoch()
        self._task = Task(0, 0, (0.0, 0.0, 0.0))  # what the workers do, or have done last
        self._turning = threading.RLock()  # held while counts and task change; a signal's handler may look meanwhile
        try:
            self.job = lay_out(self.pool.shared)
            self._laid_out = True
            self._n = examples or self.job.order.n_rows
            self.job.wire = wire or self.job.wire
            before = self.pool.lost
            with self._stopwatch("compiling"):
                self.pool.open(self.job)
            self.lost += self.pool.lost - before
        except BaseException:
            self.close()
            raise

    @property
    def ended(self) -> bool:
        """Whether the engine's own workers have been told to end, maybe by another thread."""
        return self._own and self.pool.closed

    def advance(self, step: Step) -> bool:
        """Do the current epoch, or what is left of it. Returns whether it is complete: it is not if one stops it."""
        pool = self.pool
        job = self.job
        lost = pool.lost
        if pool.job is not job:  # another run has used it in between
            pool.open(job)
        task = Task(self.epoch, self.chunk, step)
        before = self.clock.seconds
        share = pool.share(task)
        with self._turning:
            job.begin_epoch(task.epoch, task.start, share)
            self._task, self._began = task, before
            self._in_hand = self.updates % self._n if self.chunk else 0
        if self.stopping:
            job.stop()
        try:
            with self._stopwatch("training"), self.clock:
                self._work(task)
        finally:
            rows, nonzeros = self._done()
            self.updates += rows
            self.nonzeros += nonzeros
            self.seconds += self.clock.seconds - before
            done, self.chunk = divmod(int(job.position()), job.order.n_chunks)
            self.epoch += done
            self.lost += pool.lost - lost
            self.sent = self.sent.plus(pool.counts())
        return done > 0

    def _work(self, task: Task) -> None:
        """Set the workers going and wait until they stand still and have met."""
        pool = self.pool
        try:
            pool.begin(task)
            while not pool.wait(POLL):
                pass
        except KeyboardInterrupt:
            self.stop()
            while not pool.wait(POLL):
                pass
            raise
        finally:
            self.job.meet()

    def _done(self) -> tuple[int, int]:
        """Rows and nonzeros done of the latest task, on all machines."""
        rows, nonzeros = self.job.done()
        more_rows, more_nonzeros = self.pool.elsewhere()
        return rows + more_rows, nonzeros + more_nonzeros

    def go_to(self, epoch: int, chunk: int = 0) -> None:
        """Go on at a chunk of an epoch, and count its work anew."""
        self.epoch = epoch
        self.chunk = chunk
        self.next_epoch()

    def next_epoch(self) -> None:
        """Begin to count the work of another epoch."""
        self.updates = 0
        self.nonzeros = 0
        self.seconds = 0.0

    def stop(self) -> None:
        """Ask the workers to end at the next chunk. Safe in a signal handler."""
        self.stopping = True
        self.job.stop()

    def progress(self) -> EpochProgress:
        """How far the run is."""
        with self._turning:
            rows, nonzeros = self._done()
            rows += self._in_hand
            seconds = self.clock.seconds - self._began
            return EpochProgress(self._task.epoch, min(rows, self._n), self._n, nonzeros, seconds)

    def state(self) -> dict[str, Any]:
        """What a checkpoint's header has to hold."""
        return {
            "epoch": self.epoch,
            "chunk": self.chunk,
            "workers_lost": self.lost,
            "epoch_updates": self.updates,
            "epoch_nonzeros": self.nonzeros,
            "epoch_seconds": self.seconds,
            "sent": [*self.sent],
            "train_seconds": self.clock.seconds,
        } | self.pool.state()

    def restore(self, header: dict[str, Any]) -> None:
        """Go on from what :meth:`state` gave."""
        self.go_to(header["epoch"], header["chunk"])
        self.lost = header["workers_lost"]
        self.updates = header["epoch_updates"]
        self.nonzeros = header["epoch_nonzeros"]
        self.seconds = header["epoch_seconds"]
        self.sent = Counts(*header.get("sent", ()))
        self._began = header["train_seconds"]
        self.clock = Clock(self._began)
        self._task = Task(self.epoch, self.chunk, self._task.step)
        self.pool.restore(header)

    def close(self) -> None:
        """End the workers, or have those of somebody else's pool drop the job."""
        if self._own:
            self.pool.close()
        elif self._laid_out:
            self.pool.release(self.job)
