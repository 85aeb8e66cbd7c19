"""The epoch loop: workers run an epoch, meet, the parent evaluates, they go on.

``train`` returns a ``Run``, which yields one row of measurements an epoch and holds the model; nothing is printed. The
clock of ``train_seconds`` runs while workers work and while a step is probed for, never during evaluation, and it is
started and stopped in one place. A run can be stopped at any chunk and resumed there: with one worker the result is bit
for bit that of a run that was never stopped. A run that is dropped ends its workers.
"""

from __future__ import annotations

import dataclasses
import time
import uuid
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack, overload

import numpy as np

from hogwild import machine
from hogwild.cases import Case, case_of
from hogwild.config import PROBLEMS, STREAMS, TrainConfig, usual_host
from hogwild.errors import HogwildError, HogwildWarning, InputError, UsageError
from hogwild.hosts.job import Pool, Task
from hogwild.model_file import HISTORY_ROWS, save_checkpoint
from hogwild.resume import Saved, check_state, hold_directory, load_saved, resumable
from hogwild.schedule import make_schedule
from hogwild.stopping import divergence, enough, has_diverged, held_back, is_whole
from hogwild.stopwatch import Stopwatch

if TYPE_CHECKING:
    from hogwild.model import LinearModel
    from hogwild.options import TrainOptions
    from hogwild.recommender import CompletionModel
    from hogwild.segmentation import Segmentation

M = TypeVar("M")  # what a run trains
POLL = 0.1  # seconds between two looks at a pool that has nothing to say
UNMEASURED = dict.fromkeys(("staleness_mean", "staleness_max", "lost_updates", "in_flight"))  # but by some hosts
TAIL_POWER = 3  # of the weighted tail mean: see tail_share


@dataclass(frozen=True)
class Progress:
    """How far a run is, readable at any time from any thread."""

    epoch: int  # complete ones
    rows_done: int  # of the current epoch
    rows_total: int
    nonzeros: int  # done by the workers in the current epoch
    seconds: float  # they have worked on it


class Clock:
    """Accumulates the time spent inside ``with clock:``."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._before, self._since = seconds, None  # type: float, float | None

    def __enter__(self) -> None:
        self._since = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._before, self._since = self.seconds, None

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
    if host == STREAMS:
        TrainConfig(device="cuda", workers=workers)  # checks it
        from hogwild.cuda.streams import Streams

        return Streams(workers)
    TrainConfig(host=host, workers=workers, delay=delay)  # checks them
    host = usual_host(host, workers)
    if host == "simulator":
        from hogwild.hosts.simulator import Simulator

        return Simulator(workers, delay)
    if host == "threads":
        from hogwild.hosts.threads import Threads

        return Threads(workers)
    from hogwild.hosts.processes import Processes

    return Processes(workers)


def tail_share(t: int) -> float:
    """Weight of the newest of t models in their tail mean: ``(q + 1) / (t + q)``, q = 3.

    Polynomial-decay averaging (Shamir and Zhang 2013, section 4): a mean of roughly the last quarter at any time, so
    that a resumed run needs no knowledge of where it will end.
    """
    return (TAIL_POWER + 1) / (t + TAIL_POWER)


def resolve(config: TrainConfig, n_rows: int, pool: Pool | None = None) -> TrainConfig:
    """The config with workers and host filled in; of more than one worker, "auto" stays, to be settled by the data.

    Raises
    ------
    UsageError
        If the workers asked for, or their delays, are not those of the pool.
    """
    usual = 1 if config.device == "cuda" else min(machine.physical_cores(), max(n_rows, 1))
    usual = usual if pool is None else pool.workers
    discipline, alone = config.discipline, config.exchange == "none"
    workers = config.workers or (1 if discipline == "serial" and alone else usual)
    if discipline == "auto" and (workers == 1 or not alone):  # in a replica of its own a worker is alone
        discipline = "serial"
    if pool is not None and workers != pool.workers:
        raise UsageError(f"the pool has {pool.workers} workers, expected {workers} for discipline {discipline!r}")
    host = usual_host(config.host, workers) if pool is None else pool.host
    delay = getattr(pool, "delay", config.delay)  # like the host, the pool's
    if config.delay not in ("round-robin", delay):
        raise UsageError(f"the pool simulates delay={delay!r}, expected {config.delay!r}: start another pool")
    if (host == STREAMS) != (config.device == "cuda"):
        raise UsageError(f"the pool's workers are {host}, and device={config.device!r}: start another pool")
    return dataclasses.replace(config, workers=workers, discipline=discipline, host=host, delay=delay)


@overload
def train(
    rows: Any, test: Any = None, *, problem: Literal["linear"] = ..., checkpoint: str | Path | None = None,
    resume: bool = False, pool: Pool | None = None, data: str = "", **options: Unpack[TrainOptions],
) -> Run[LinearModel]: ...  # fmt: skip
@overload
def train(
    rows: Any, test: Any = None, *, problem: Literal["completion"], checkpoint: str | Path | None = None,
    resume: bool = False, pool: Pool | None = None, data: str = "", **options: Unpack[TrainOptions],
) -> Run[CompletionModel]: ...  # fmt: skip
@overload
def train(
    rows: Any, test: Any = None, *, problem: Literal["cuts"], checkpoint: str | Path | None = None,
    resume: bool = False, pool: Pool | None = None, data: str = "", **options: Unpack[TrainOptions],
) -> Run[Segmentation]: ...  # fmt: skip
@overload
def train(
    rows: Any, test: Any = None, *, config: TrainConfig, checkpoint: str | Path | None = None,
    resume: bool = False, pool: Pool | None = None, data: str = "",
) -> Run[Any]: ...  # fmt: skip
def train(
    rows: Any,
    test: Any = None,
    *,
    config: TrainConfig | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    pool: Pool | None = None,
    data: str = "",
    **options: Any,
) -> Run[Any]:
    """Train a sparse model on all cores without locks.

    Parameters
    ----------
    rows : Rows or (X, y); Ratings; Graph
        Training data of the problem asked for. Linear: ``Rows``, or a scipy sparse or dense matrix (n, width) and n
        targets. Completion: ``Ratings``, a scipy sparse matrix (users, items), or arrays (users, items, values).
        Cuts: ``Graph``.
    test : the same, optional
        Evaluated after every epoch; never trained on.
    config : TrainConfig, optional
        All options at once; else they are given as keywords (``loss="hinge", workers=4, ...``), where the default host
        is ``threads``, which needs no ``if __name__ == "__main__"``.
    checkpoint : path, optional
        Directory for a checkpoint at the end of every epoch and on stopping.
    resume : bool
        Go on from that checkpoint, if there is one. Only ``epochs``, ``evaluate_every``, ``workers``,
        ``oversubscribe``, ``host`` and ``in_flight`` may differ.
    pool : Pool, optional
        Workers from :func:`start_pool`; they are left running. One run after another, or in turns, can use them.
    data : str
        Name of the data in the rows of measurements.

    Returns
    -------
    Run
        Iterate over it for the rows of measurements, or call ``finish()`` for the model.

    Raises
    ------
    UsageError, InputError
        For options and data that do not go together, before anything is started.
    """
    if config is not None and options:
        raise UsageError(f"give options in config or as keywords, not both (got {', '.join(options)})")
    if config is None:
        config = TrainConfig.from_json({"host": "threads"} | options)
    take = case_of(config.problem).take
    return Run(take(rows), None if test is None else take(test), config, checkpoint, resume, pool, data)


class Run(Generic[M]):
    """A training run: an iterator over rows of measurements that holds the model. Made by :func:`train`.

    Attributes
    ----------
    config : TrainConfig
        With workers, discipline and (once known) step filled in.
    history : list of dict
        All rows so far, also those from before a resume.
    reason : str
        Why the discipline "auto" became what it is; empty if there was nothing to weigh.
    stopwatch : Stopwatch
        Where the time since the call of :func:`train` went; whoever follows the run may measure parts of their own.
    """

    def __init__(
        self, examples: Any, test: Any, config: TrainConfig, checkpoint: str | Path | None, resume: bool,
        pool: Pool | None, data: str, judge: Case | None = None,
    ) -> None:  # fmt: skip
        self._began = time.perf_counter()
        self.stopwatch = Stopwatch("set-up", self._began)
        self.asked, self.config = config, resolve(config, len(examples), pool)
        self.history: list[dict[str, Any]] = []
        self.checkpoint = None if checkpoint is None else Path(checkpoint)
        self._fresh, self._done, self._stopping, self._closed = True, False, False, False
        self._ending: BaseException | None = None  # raised after the last row
        self._epoch = self._chunk = self._lost = 0
        self._task = Task(0, 0, (0.0, 0.0, 0.0))  # what the workers do, or have done last
        self._epoch_updates, self._epoch_nonzeros, self._epoch_seconds = 0, 0, 0.0
        self._setup: float | None = None
        self._n, self._in_hand = len(examples), 0
        name = data or (str(examples.store) if examples.store else "memory")
        self._identity = {"run": uuid.uuid4().hex[:12], "data": name}
        self._check_workers()
        case = self._case = case_of(config.problem)(self.config, examples, test)
        self._n = case.n
        self.config, self.reason, self.problem = case.config, case.reason, case.problem
        self._held = None if self.checkpoint is None else hold_directory(self.checkpoint)
        self._own_pool = False
        try:
            saved = self._load() if resume else None
            if saved is not None:
                with resumable(self.checkpoint):
                    case.recut(saved[1])
            case.make_evaluator(judge)
            self._pool = pool or start_pool(self.config.host, self.config.workers or 1, self.config.delay)
            self._own_pool = pool is None
            self._open()
            self._settle_step(saved)
            if saved is not None:
                with resumable(self.checkpoint):
                    self._restore(*saved)
        except BaseException:
            self.close()
            raise

    # ---- what a user does with it

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        if (ending := self._take_ending()) is not None:
            raise ending
        with held_back(self.stop) as interrupted:
            try:
                row = self._next_row()
            except BaseException:
                self.close()
                raise
            if interrupted():
                self._ending = KeyboardInterrupt()  # also of a run that has just diverged: the row says so
                if row is not None and not self._done and row["status"] == "ok":  # it came while the row was saved
                    row["status"] = "interrupted"
        if row is None or self._done or self._ending is not None or self._epoch >= self.config.epochs:
            self.close()
        if row is None:
            raise self._take_ending() or StopIteration
        return row

    def __repr__(self) -> str:
        c, row = self.config, self.history[-1] if self.history else {}
        state = f"objective {row['objective']:.6g}, {row['status']}" if row else "not begun"
        crew = f"{c.discipline} on {c.workers} {c.host}"
        return f"<Run of {c.problem}, {c.loss}: {crew}, epoch {row.get('epoch', 0)} of {c.epochs}, {state}>"

    def __enter__(self) -> Run[M]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def model(self) -> M:
        """The model as of the last row: a LinearModel, CompletionModel or Segmentation.

        Raises
        ------
        RuntimeError
            Before the first row: iterate over the run, or call :meth:`finish`.
        """
        if not self.history:
            raise RuntimeError("nothing is trained yet: iterate over the run, or call run.finish()")
        found: M = self._case.model(self._solution, self.config, self.history[-HISTORY_ROWS:])
        return found

    @property
    def staleness(self) -> dict[int, int]:
        """How many of the last epoch's updates were how stale; empty unless the host is the simulator."""
        return dict(sorted(getattr(self._pool, "histogram", {}).items()))

    def finish(self) -> M:
        """Train to the end and return the model."""
        for _ in self:
            pass
        return self.model

    def stop(self) -> None:
        """Ask the run to end at the next chunk; its last row has the status "interrupted". Safe in a signal handler."""
        self._stopping = True
        self._job.stop()

    @property
    def trained_seconds(self) -> float:
        """What the clock says, also in the middle of an epoch."""
        return self._clock.seconds

    def progress(self) -> Progress:
        """How far the run is."""
        rows, nonzeros = self._job.done()
        rows += self._in_hand
        seconds = self._clock.seconds - self._epoch_began
        further = min(rows // max(self._n, 1), len(self._task.further))
        return Progress(self._task.epoch + further, min(rows - further * self._n, self._n), self._n, nonzeros, seconds)

    def close(self) -> None:
        """End the workers. What was trained stays."""
        if not self._closed:
            self._closed = self._done = True
            if self._held is not None:
                self._held.close()
            if self._own_pool:
                self._pool.close()
            elif hasattr(self, "_job"):
                self._pool.release(self._job)

    # ---- setting up

    def _check_workers(self) -> None:
        workers, cores = self.config.workers or 1, machine.physical_cores()
        if workers > self._n > 0:
            raise InputError(f"{workers} workers for {self._n} rows: give at most one worker a row (--workers)")
        self.config.check_crowd(cores)
        if workers > cores and self.config.host not in ("simulator", STREAMS):
            warnings.warn(machine.crowded(workers, cores), HogwildWarning, stacklevel=4)

    def _load(self) -> Saved | None:
        print_of_data, size = self._case.fingerprint, self.problem.size
        return load_saved(self.checkpoint, self.asked, print_of_data, size, self.config.workers or 1)

    def _open(self) -> None:
        """Lay out the memory and give it to the workers."""
        self._job = self._case.lay_out(self._pool.shared)
        self._order = self._job.order
        self._solution = self._case.solution(self._job.export())
        self._mean = None if not self.config.average else np.zeros(self.problem.size)
        self._clock, self._epoch_began = Clock(), 0.0
        before = self._pool.lost
        with self.stopwatch("compiling"):
            self._pool.open(self._job)
        self._lost += self._pool.lost - before

    def _settle_step(self, saved: Saved | None) -> None:
        """Take the step that was asked for, or saved, or probe for one (on the clock), and make the schedule."""
        c, step = self.config, self.config.step
        if c.schedule != "optimal" and step is None:
            if saved is not None:
                step = saved[1]["step"]
            else:
                with self.stopwatch("step"):
                    search = self._case.search_step()
                    with self._clock:
                        step = search()
            self.config = dataclasses.replace(c, step=step)
        decay = PROBLEMS[c.problem].get("decay") if c.decay is None and c.schedule == "epoch" else c.decay
        self._schedule = make_schedule(
            c.schedule, step, decay=decay, power=c.power, l2=c.l2, dloss=self._case.slope(), tol=c.tol
        )  # fmt: skip

    def _restore(self, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
        expected = {"flat": self._job.export(), **dict(zip(self._case.names, self._solution))}
        expected |= {} if self._mean is None else {"mean": self._mean}
        check_state(arrays, expected, header["chunk"], self._order.n_chunks)
        self._job.restore(arrays["flat"])
        if (replicas := self._job.replicas) is not None:
            replicas.restore(arrays)
        if self._mean is not None:
            self._mean[:] = arrays["mean"]
        self._epoch, self._chunk, self._lost = header["epoch"], header["chunk"], header["workers_lost"]
        self._epoch_updates, self._epoch_nonzeros = header["epoch_updates"], header["epoch_nonzeros"]
        self._epoch_seconds = header["epoch_seconds"]
        self._clock, self._epoch_began = Clock(header["train_seconds"]), header["train_seconds"]
        self._task = Task(self._epoch, self._chunk, self._task.step)
        self._began -= header["wall_seconds"]
        self._setup = header["setup_seconds"]
        self._identity["run"] = header["run"]
        self._schedule.restore(header["schedule"])
        self.history = header["history"]
        self._solution = tuple(arrays[name] for name in self._case.names)
        self._fresh = False
        self._done = self._epoch >= self.config.epochs or (not self._chunk and enough(self.config, self.history))
        if self._done:
            self.close()
        for row in self.history[-1:] if not self._done else ():  # it is the last no more
            row.update(dict.fromkeys(_rest(row)))

    def _save(self) -> None:
        if self.checkpoint is None:
            return
        arrays = {"flat": self._job.export(), **dict(zip(self._case.names, self._solution))}
        if self._mean is not None:
            arrays["mean"] = self._mean
        if (replicas := self._job.replicas) is not None:
            arrays |= replicas.state()
        header = {
            "problem": self.config.problem, "config": self.asked.to_json(), "step": self.config.step,
            "run": self._identity["run"], "fingerprint": self._case.fingerprint, "epoch": self._epoch,
            "chunk": self._chunk, **self._case.cut(),
            "workers_lost": self._lost,
            "epoch_updates": self._epoch_updates, "epoch_nonzeros": self._epoch_nonzeros,
            "epoch_seconds": self._epoch_seconds,
            "train_seconds": self._clock.seconds, "wall_seconds": time.perf_counter() - self._began,
            "setup_seconds": self._setup, "schedule": self._schedule.state(), "history": self.history,
        }  # fmt: skip
        save_checkpoint(self.checkpoint, arrays, header)

    # ---- the loop

    def _next_row(self) -> dict[str, Any] | None:
        """The next row of measurements; None when there is none."""
        if self._done or (self._own_pool and self._pool.closed):
            return None
        if self._fresh:
            self._fresh = False
            return self._record(self._evaluate())
        try:
            while self._advance():
                pass
        except KeyboardInterrupt as interrupt:  # from a handler of the program's own, or raised by another thread
            self._ending = interrupt.with_traceback(None)
        return None if self._closed or self._pool.closed else self._finish_epoch()

    def _take_ending(self) -> BaseException | None:
        ending, self._ending = self._ending, None
        return ending

    def _advance(self) -> bool:
        """Let the workers do the current epoch, or what is left of it, or less if the run is stopped, or more if they
        can join epochs; whether there is more to do before the next row.
        """
        pool, job, lost, c = self._pool, self._job, self._pool.lost, self.config
        if pool.job is not job:  # another run has used it in between
            pool.open(job)
        epochs = min(c.evaluate_every - self._epoch % c.evaluate_every, c.epochs - self._epoch)
        joined = epochs if getattr(pool, "joins_epochs", False) and self._mean is None else 1
        step, *further = (self._schedule.plan(self._epoch + k) for k in range(joined))
        task = Task(self._epoch, self._chunk, step, tuple(further))
        if self._setup is None:
            self._setup = time.perf_counter() - self._began
        before = self._clock.seconds
        job.begin_epoch(task.epoch, task.start)
        # only now, for who watches: the counts are at zero
        self._task, self._epoch_began = task, before
        self._in_hand = self._epoch_updates % self._n if self._chunk else 0
        if self._stopping:
            job.stop()
        try:
            with self.stopwatch("training"), self._clock:
                self._work(task)
        finally:
            rows, nonzeros = job.done()
            self._epoch_updates += rows
            self._epoch_nonzeros += nonzeros
            self._epoch_seconds += self._clock.seconds - before
            done, self._chunk = divmod(int(job.position()), self._order.n_chunks)
            self._epoch += done
            self._lost += pool.lost - lost
        if done:
            self._average()
        return epochs > done and self._chunk == 0 and done == joined and not self._stopping

    def _work(self, task: Task) -> None:
        """Set the workers going and wait until they stand still and have met."""
        pool = self._pool
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
            self._job.meet()

    def _finish_epoch(self) -> dict[str, Any]:
        """Evaluate, keep and judge what the workers did, complete epoch or not."""
        complete = self._chunk == 0 and self._epoch > self.history[-1]["epoch"]
        found = self._evaluate()
        asked = self._stopping or self._ending is not None  # read once: who asks later gets a row that says so
        rest, objective = _rest(found), found["objective"]
        diverged = has_diverged(objective, [row["objective"] for row in self.history[:2]])
        row = self._record(found, "diverged" if diverged else "ok" if complete else "interrupted")
        if diverged:
            self._done, self._solution = True, self._previous
            self._ending = divergence(self.config, row)
            row.update(rest)
            return row
        if complete:
            before = max((row["epoch"] for row in self.history[:-1] if is_whole(row)), default=0)
            self._schedule.observe(objective, self._epoch - before)
            self._epoch_updates, self._epoch_nonzeros, self._epoch_seconds = 0, 0, 0.0
        ended = self._epoch >= self.config.epochs or enough(self.config, self.history)
        self._done = asked or ended
        if self._done:
            row.update(rest)
        if asked and not ended:  # also where an epoch is complete: others were left out
            row["status"] = "interrupted"
        try:
            with self.stopwatch("saving"):
                self._save()
        except HogwildError as error:  # a full disk: the row and the model are still good
            self._done, self._ending = True, error
        return row

    def _average(self) -> None:
        """Move the tail mean over epochs."""
        if self._mean is not None:
            share = tail_share(self._epoch)
            self._mean += share * (self._job.export() - self._mean)

    def _evaluate(self) -> dict[str, Any]:
        """The objective and metrics of the parameters as they are; they become the model."""
        flat = self._job.export() if self._mean is None or self._epoch == 0 else self._mean.astype(np.float32)
        with self.stopwatch("evaluation"):
            solution = self._case.solution(flat)
            found = self._case.evaluate(solution)
        self._previous, self._solution = self._solution, solution
        return found

    def _record(self, found: dict[str, Any], status: str = "ok") -> dict[str, Any]:
        c, epoch = self.config, self._epoch
        about = epoch if self._chunk else max(epoch - 1, 0)  # the epoch this row tells of, from 0
        scale, offset, power = self._schedule.plan(about)
        step = scale * (max(offset, 1.0) + about * self._n) ** -power  # at its first row
        seconds, before = self._clock.seconds, self._epoch_seconds
        row = self._identity | {
            "method": c.discipline if c.exchange == "none" else c.exchange,
            "problem": c.problem, "loss": c.loss, "l1": c.l1, "l2": c.l2,
            "discipline": c.discipline, "order": c.order, "exchange": c.exchange, "host": c.host, "device": c.device,
            "workers": c.workers, "seed": c.seed, "step": step, "schedule": c.schedule,
            "epoch": epoch if not self._chunk else round(epoch + self._chunk / self._order.n_chunks, 4),
            "phase": "reported", "train_seconds": seconds, "wall_seconds": time.perf_counter() - self._began,
            "setup_seconds": self._setup, **found, **dict.fromkeys(_rest(found)), "updates": self._epoch_updates,
            **self._case.speed(self._epoch_updates, self._epoch_nonzeros, before), **UNMEASURED,
            **getattr(self._pool, "measured", dict)(), "workers_lost": self._lost, "status": status,
        }  # fmt: skip
        if not self.history:
            row |= machine.machine_fields() | getattr(self._pool, "about", {})
        self.history.append(row)
        return row


def _rest(found: dict[str, Any]) -> dict[str, Any]:
    """What was found of the training rows beside the loss: it stands in the last row only, and is null in others."""
    return {name: value for name, value in found.items() if name.startswith("train_") and name != "train_loss"}
