"""The engine of a run: it lays out the memory, starts the workers, has them do epochs, and keeps the clock.

The clock is the run's stopwatch: ``train_seconds`` counts the parts in which workers work and a step is searched for,
never evaluation. An engine can be stopped at any chunk and goes on there. What is measured, kept and
judged between epochs is the affair of ``run.py``.
"""

from __future__ import annotations

import math
import threading
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
TRAINING = ("l2", "step", "training")  # parts of a run's time that ``train_seconds`` counts
COUNTS = ("epoch", "chunk", "updates", "nonzeros", "seconds", "lost")  # of an engine, as a checkpoint holds them


@dataclass(frozen=True)
class EpochProgress:
    """How far a run is, readable at any time from any thread."""

    epoch: int  # complete ones
    rows_done: int  # of the current epoch
    rows_total: int
    nonzeros: int  # done by the workers in the current epoch
    seconds: float  # they have worked on it


def start_pool(host: str, workers: int, delay: str = "round-robin") -> Pool:
    """Started workers that ``train(..., pool=...)`` can use, one run after another; ``delay``: the simulator's law.

    Raises
    ------
    UsageError
        For a host, a number of workers or a law that there is not.

    See Also
    --------
    hogwild.train : starts workers of its own if it is given none.

    Examples
    --------
    >>> import hogwild
    >>> from hogwild.training.engine import start_pool
    >>> pool = start_pool("threads", 1)
    >>> data = "synthetic:uniform?rows=200&features=50&nnz=5"
    >>> [hogwild.train(data, l2=l2, epochs=2, pool=pool).finish().coef_.shape for l2 in (1e-5, 1e-4)]
    [(1, 50), (1, 50)]
    >>> pool.close()
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
        If the workers asked for are not those of the pool.
    """
    c = config
    workers = c.workers
    if workers is None and c.discipline == "serial" and c.between_workers == "none":
        workers = 1
    elif workers is None and pool is not None:
        workers = pool.workers
    elif workers is None:
        workers = 1 if c.device == "cuda" else min(machine.physical_cores(), max(n_rows, 1))
    alone = workers == 1 or c.between_workers != "none"
    host = usual_host(c.host, workers, entries * c.epochs) if pool is None else pool.host
    if pool is not None and (pool.workers != workers or (host == STREAMS) != (c.device == "cuda")):
        raise UsageError(f"the pool has {pool.workers} workers ({host}), expected {workers} on device {c.device!r}")
    return c.replace(
        workers=workers,
        discipline="serial" if c.discipline == "auto" and alone else c.discipline,
        host=host,
        delay=pool.delay if pool is not None and host == "simulator" else c.delay,
        schedule=usual_schedule(c.schedule, n_rows, settled=c.settles_schedule),
    )


class Engine:
    """The workers and the memory of one run, and where in its epochs it is.

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
        self._seconds_before = 0.0  # of training, before a resume
        self.sent = Counts()
        self.lost = 0
        self.stopping = False
        self._at = (0, 0, 0.0)  # epoch of the latest task, rows done of it before, and the clock at its start
        self._turning = threading.RLock()  # held while these change; a signal's handler may look meanwhile
        self.go_to(0)
        try:
            self.job = lay_out(pool.shared)
            self._n = examples or self.job.order.n_rows
            self.job.wire = wire or self.job.wire
            before = pool.lost
            with self._stopwatch("compiling"):
                pool.open(self.job)
            self.lost += pool.lost - before
        except BaseException:
            self.close()
            raise

    def go_to(self, epoch: int, chunk: int = 0) -> None:
        """Go on at a chunk of an epoch, and count its work anew."""
        self.epoch = epoch
        self.chunk = chunk
        self.updates = 0
        self.nonzeros = 0
        self.seconds = 0.0

    @property
    def ended(self) -> bool:
        """Whether the engine's own workers have been told to end, maybe by another thread."""
        return self._own and self.pool.closed

    @property
    def train_seconds(self) -> float:
        """Seconds in which workers have worked, or an l2 or a step was chosen, since the run began."""
        return self._seconds_before + self._stopwatch.spent(*TRAINING)

    def advance(self, step: Step) -> bool:
        """Do the current epoch, or what is left of it. Returns whether it is complete: it is not if one stops it."""
        pool = self.pool
        job = self.job
        lost = pool.lost
        if pool.job is not job:  # another run has used it in between
            pool.open(job)
        task = Task(self.epoch, self.chunk, step)
        before = self.train_seconds
        share = pool.share(task)
        with self._turning:
            job.begin_epoch(task.epoch, task.start, share)
            self._at = task.epoch, self.updates % self._n if self.chunk else 0, before
        if self.stopping:
            job.stop()
        try:
            with self._stopwatch("training"):
                try:
                    pool.begin(task)
                    job.read_ahead()
                    while not pool.wait(POLL):
                        job.read_ahead()
                finally:
                    job.meet()
        finally:
            rows, nonzeros = self._done()
            self.updates += rows
            self.nonzeros += nonzeros
            self.seconds += self.train_seconds - before
            done, self.chunk = divmod(int(job.position()), job.order.n_chunks)
            self.epoch += done
            self.lost += pool.lost - lost
            self.sent = self.sent.plus(pool.counts())
        return done > 0

    def _done(self) -> tuple[int, int]:
        """Rows and nonzeros done of the latest task, on all machines."""
        rows, nonzeros = self.job.done()
        more_rows, more_nonzeros = self.pool.elsewhere()
        return rows + more_rows, nonzeros + more_nonzeros

    def stop(self) -> None:
        """Ask the workers to end at the next chunk. Safe in a signal handler."""
        self.stopping = True
        self.job.stop()

    def progress(self) -> EpochProgress:
        """How far the run is."""
        with self._turning:
            epoch, before, began = self._at
            rows, nonzeros = self._done()
            return EpochProgress(epoch, min(before + rows, self._n), self._n, nonzeros, self.train_seconds - began)

    def state(self) -> dict[str, Any]:
        """What a checkpoint's header has to hold."""
        counts = {name: getattr(self, name) for name in COUNTS}
        return counts | {"sent": [*self.sent], "train_seconds": self.train_seconds} | self.pool.state()

    def restore(self, header: dict[str, Any]) -> None:
        """Go on from what :meth:`state` gave."""
        for name in COUNTS:
            setattr(self, name, header[name])
        self.sent = Counts(*header["sent"])
        self._seconds_before += header["train_seconds"] - self.train_seconds
        self._at = self.epoch, 0, self.train_seconds
        self.pool.restore(header)

    def close(self) -> None:
        """End the workers, or have those of somebody else's pool drop the job."""
        if self._own:
            self.pool.close()
        elif hasattr(self, "job"):
            self.pool.release(self.job)
