"""The epoch loop: workers run an epoch, meet, the parent evaluates, and they go on.

``train`` returns a ``Run``, which yields one row of measurements an epoch and holds the model; nothing is printed. A
run can be stopped at any chunk and resumed there: with one worker the result is bit for bit that of a run that was
never stopped. A run that is dropped ends its workers.
"""

from __future__ import annotations

import dataclasses
import math
import time
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from hogwild import machine
from hogwild.config import TrainConfig, usual_host
from hogwild.errors import HogwildError, HogwildWarning, InputError, UsageError
from hogwild.hosts.pool import Pool
from hogwild.methods import STREAMS, parse_link
from hogwild.model_file import HISTORY_ROWS, save_checkpoint
from hogwild.problems.protocol import Case, case_of, in_numbering, size_of
from hogwild.training.checkpoint import Saved, as_before, check_state, hold_directory, load_saved, resumable
from hogwild.training.engine import Engine, EpochProgress
from hogwild.training.keeping import LAST, Keeper, rest_of
from hogwild.training.schedule import make_schedule, usual_schedule
from hogwild.training.stopping import divergence, enough, has_diverged, held_back, is_whole
from hogwild.training.stopwatch import Stopwatch

if TYPE_CHECKING:
    from hogwild.machines.agreement import Leader

M = TypeVar("M")  # what a run trains
UNMEASURED = dict.fromkeys(("staleness_mean", "staleness_max", "lost_updates", "in_flight"))  # but by some hosts
TRADED = ("messages", "bytes_sent", "waited_seconds", "shards_torn", "deltas_left_out")  # of replicas


def resolve(config: TrainConfig, n_rows: int, pool: Pool | None = None, entries: float = math.inf) -> TrainConfig:
    """Return the config with workers, host and schedule filled in; "auto" for several workers depends on the data.

    ``entries`` are those of one epoch; unless they are few, workers are processes.

    Raises
    ------
    UsageError
        If the workers or delays asked for are not those of the pool.
    """
    usual = 1 if config.device == "cuda" else min(machine.physical_cores(), max(n_rows, 1))
    discipline, alone = config.discipline, config.between_workers == "none"
    usual = max(usual // config.group, 1) * config.group if pool is None else pool.workers
    workers = config.workers or (1 if discipline == "serial" and alone else usual)
    if discipline == "auto" and (workers == 1 or (config.group == 1 and not alone)):  # each has its own array
        discipline = "serial"
    if pool is not None and workers != pool.workers:
        raise UsageError(f"the pool has {pool.workers} workers, expected {workers} for discipline {discipline!r}")
    host = usual_host(config.host, workers, entries * config.epochs) if pool is None else pool.host
    delay = config.delay if pool is None or host != "simulator" else pool.delay  # given by the pool, like the host
    if config.delay not in ("round-robin", delay):
        raise UsageError(f"the pool simulates delay={delay!r}, expected {config.delay!r}: start another pool")
    if (host == STREAMS) != (config.device == "cuda"):
        raise UsageError(f"the pool's workers are {host}, and device={config.device!r}: start another pool")
    schedule = usual_schedule(config.schedule, n_rows, settled=config.settles_schedule)
    return dataclasses.replace(
        config, workers=workers, discipline=discipline, host=host, delay=delay, schedule=schedule
    )


class Run(Generic[M]):
    """A training run: an iterator over rows of measurements that holds the model. Made by :func:`hogwild.train`.

    Attributes
    ----------
    config : TrainConfig
        The config with workers, discipline and (once known) step filled in.
    history : list of dict
        All rows so far, including those from before a resume.
    reason, note, chosen : str, str, L2Choice or None
        Why "auto" chose this discipline; what else was chosen, such as columns to scale; and how ``l2="auto"`` ended.
    stopwatch : Stopwatch
        Where the time since the call of :func:`hogwild.train` went; whoever follows the run may measure parts of their
        own.
    """

    def __init__(
        self,
        examples: Any,
        test: Any,
        config: TrainConfig,
        checkpoint: str | Path | None,
        resume: bool,
        pool: Pool | None,
        data: str,
        judge: Case | None = None,
        leader: Leader | None = None,
        chosen: Any = None,
        held: Any = None,
    ) -> None:
        self.stopwatch, self.chosen = Stopwatch("set-up"), chosen
        self._began = time.perf_counter() - (chosen.seconds if chosen else 0.0)
        self.asked = config
        entries = examples.nnz if config.compiled else math.inf
        self.config = as_before(resolve(config, len(examples), pool, entries), checkpoint if resume else None)
        self.history: list[dict[str, Any]] = []
        self.checkpoint = None if checkpoint is None else Path(checkpoint)
        self._fresh, self._done, self._closed, self._leader, self._n = True, False, False, leader, len(examples)
        self._ending, self._setup = None, None  # type: BaseException | None, float | None  # raised after the last row
        self._found = dict(chosen.fields) if chosen else {}  # fields of the first row
        self._identity = {"run": uuid.uuid4().hex[:12], "data": data or str(examples.store or "memory")}
        self._check_workers()
        case = self._case = case_of(config.problem)(self.config, examples, test, *(() if held is None else (held,)))
        self.reason, self.note, self.problem, self._n = case.reason, case.note, case.problem, case.n
        self.config, self._held = case.config, self.checkpoint and hold_directory(self.checkpoint)
        self._engine: Engine | None = None
        try:
            saved = self._load() if resume else None
            if saved is not None:
                with resumable(self.checkpoint):
                    case.recut(saved[1])
            case.make_evaluator(judge)
            self._open(pool, leader)
            self.engine.clock.add(chosen.seconds if chosen else 0.0)
            self._keeper = Keeper(self.config, case, test is not None)
            self._settle_step(saved)
            if saved is not None:
                with resumable(self.checkpoint):
                    self._restore(in_numbering(case, saved[0]), saved[1])
        except BaseException:
            self.close()
            raise

    # ---- for users

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
                self._ending = KeyboardInterrupt()  # also if the run has just diverged: the row says so
                if row is not None and not self._done and row["status"] == "ok":  # it came while the row was saved
                    row["status"] = "interrupted"
        if row is None or self._done or self._ending is not None or self.engine.epoch >= self.config.epochs:
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
        """The model that ``keep`` asks for, as of the last row: a LinearModel, CompletionModel or Segmentation.

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
        return self.engine.pool.staleness

    def finish(self) -> M:
        """Train to the end and return the model."""
        for _ in self:
            pass
        return self.model

    def stop(self) -> None:
        """Ask the run to end at the next chunk; its last row has the status "interrupted". Safe in a signal handler."""
        self.engine.stop()

    @property
    def trained_seconds(self) -> float:
        """What the clock says, also in the middle of an epoch."""
        return self.engine.clock.seconds

    @property
    def engine(self) -> Engine:
        assert self._engine is not None
        return self._engine

    def progress(self) -> EpochProgress:
        """How far the run is."""
        return self.engine.progress()

    def close(self) -> None:
        """End the workers; the trained model stays."""
        if not self._closed:
            self._closed = self._done = True
            if self._held:
                self._held.close()
            if self._engine is not None:
                self._engine.close()

    # ---- setting up

    def _check_workers(self) -> None:
        workers, cores = self.config.workers or 1, machine.physical_cores()
        if workers > self._n > 0:
            raise InputError(f"{workers} workers for {self._n} rows: give at most one worker a row (--workers)")
        self.config.check_crowd(cores)
        if workers > cores and self.config.host not in ("simulator", STREAMS):
            warnings.warn(machine.crowded(workers, cores), HogwildWarning, stacklevel=5)

    def _load(self) -> Saved | None:
        case, replicas = self._case, self.config.replicas
        return load_saved(self.checkpoint, self.asked, case.fingerprint, size_of(case), replicas)

    def _open(self, pool: Pool | None, leader: Leader | None) -> None:
        """Lay out the memory and give it to the workers."""
        c, wire = self.config, parse_link(self.config.link)
        self._engine = Engine(
            self._case.lay_out,
            c.host,
            c.workers or 1,
            c.delay,
            pool,
            self.stopwatch,
            wire,
            None if leader is None else leader.around(self._case, self.asked),
            self._n if c.own_rows else None,
        )
        self._job = self._engine.job
        self._solution = self._newest = self._case.solution(self._job.export())

    def _settle_step(self, saved: Saved | None) -> None:
        """Use the step that is given, saved or chosen with l2, or search for one (on the clock); make the schedule."""
        c, step = self.config, self.config.step
        if c.schedule != "optimal" and step is None:
            step = saved[1]["step"] if saved else self.chosen.step if self.chosen else None
            if step is None:
                with self.stopwatch("step"):
                    step, tried = self.engine.search(self._case.search_step())
                self._found |= tried
            self.config = dataclasses.replace(c, step=step)
        decay = c.usual_decay if c.decay is None and c.schedule == "epoch" else c.decay
        self._schedule = make_schedule(
            c.schedule, step, decay=decay, power=c.power, l2=c.l2, dloss=self._case.slope(), tol=c.tol
        )

    def _restore(self, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
        self._keeper.restore(arrays, header)
        check_state(arrays, self._arrays())
        self._job.restore(arrays["flat"])
        for name, array in self._job.kept().items():
            array[...] = arrays[name]
        self.engine.restore(header)
        self._began -= header["wall_seconds"]
        self._setup = header["setup_seconds"]
        self._identity["run"] = header["run"]
        self._schedule.restore(header["schedule"])
        self.history = header["history"]
        self._solution = tuple(arrays[name] for name in self._case.names)
        self._fresh = False
        self._done = self.engine.epoch >= self.config.epochs or (
            not self.engine.chunk and enough(self.config, self._keeper.past(self.history), self._keeper.watched)
        )
        if self._done:
            self.close()
        for row in self.history[-1:] if not self._done else ():  # no longer the last row
            row.update(self._keeper.raw | dict.fromkeys((*rest_of(row), *LAST)))

    def _arrays(self) -> dict[str, np.ndarray]:
        """What a checkpoint holds, with flat parameters in the numbering of the problem."""
        arrays = {"flat": self._job.export(), **self._job.kept(), **dict(zip(self._case.names, self._solution))}
        return arrays if self._keeper.mean is None else arrays | {"mean": self._keeper.mean}

    def _save(self) -> None:
        if self.checkpoint is None:
            return
        header = {
            "problem": self.config.problem,
            "config": self.asked.to_json(),
            "step": self.config.step,
            "run": self._identity["run"],
            "fingerprint": self._case.fingerprint,
            **self.engine.state(),
            **self._case.cut(),
            "wall_seconds": time.perf_counter() - self._began,
            "setup_seconds": self._setup,
            "schedule": self._schedule.state(),
            "history": self.history,
            **self._keeper.state(),
        }
        save_checkpoint(self.checkpoint, in_numbering(self._case, self._arrays(), users=True), header)

    # ---- the loop

    def _next_row(self) -> dict[str, Any] | None:
        """The next row of measurements; None when there is none."""
        if self._done or self.engine.ended:
            return None
        if self._fresh:
            self._fresh = False
            return self._record(self._evaluate())
        try:
            while self._advance():
                pass
        except KeyboardInterrupt as interrupt:  # from the program's own handler, or raised by another thread
            self._ending = interrupt.with_traceback(None)
        return None if self._closed or self.engine.pool.closed else self._finish_epoch()

    def _take_ending(self) -> BaseException | None:
        ending, self._ending = self._ending, None
        return ending

    def _advance(self) -> bool:
        """Have the workers do the current epoch; whether there is more to do before the next row."""
        engine, c = self.engine, self.config
        if self._setup is None:
            self._setup = time.perf_counter() - self._began
        complete = engine.advance(self._schedule.plan(engine.epoch))
        if complete and self._keeper.mean is not None:
            self._keeper.follow(self._job.export(), engine.epoch)
        row_due = engine.epoch % c.evaluate_every == 0 or engine.epoch >= c.epochs
        return complete and not row_due and not engine.stopping

    def _finish_epoch(self) -> dict[str, Any]:
        """Evaluate, keep and judge what the workers did, complete epoch or not."""
        complete = self.engine.chunk == 0 and self.engine.epoch > self.history[-1]["epoch"]
        exact = not complete or self.engine.stopping or self.engine.epoch >= self.config.epochs
        sums = None if exact else self.engine.pool.sums()
        found = self._evaluate(sums)
        asked = self.engine.stopping or self._ending is not None  # read once: who asks later gets a row that says so
        rest, objective = rest_of(found), found["objective"]
        diverged = has_diverged(objective, [row["objective"] for row in self.history[:2]])
        row = self._record(found, "diverged" if diverged else "ok" if complete else "interrupted")
        if diverged:
            self._done, self._ending = True, divergence(self.config, row)
            row.update(rest | {"kept_epoch": self._keeper.kept})
            return row
        if self._keeper.takes(self.history):
            self._solution = self._newest
        if complete:
            before = max((row["epoch"] for row in self.history[:-1] if is_whole(row)), default=0)
            self._schedule.observe(objective, self.engine.epoch - before)
            self.engine.next_epoch()
        ended = self.engine.epoch >= self.config.epochs or enough(self.config, self.history, self._keeper.watched)
        if (asked or ended) and sums is not None:
            row.update((found := self._evaluate()) | dict.fromkeys(rest := rest_of(found)))
            ended = enough(self.config, self.history, self._keeper.watched)
        self._done = asked or ended
        if asked and not ended:  # even if an epoch is complete: others were left out
            row["status"] = "interrupted"
        if self._done:
            row.update(rest)
            with self.stopwatch("evaluation"):
                self._solution = self._keeper.finish(self._solution, self.history)
        try:
            with self.stopwatch("saving"):
                self._save()
        except HogwildError as error:  # a full disk: the row and the model are still valid
            self._done, self._ending = True, error
        return row

    def _evaluate(self, sums: Any = None) -> dict[str, Any]:
        """The objective and metrics of the parameters; workers may give their sums."""
        case, leader = self._case, self._leader
        with self.stopwatch("evaluation"):
            self._newest = solution = case.solution(self._job.export())
            if leader is not None:
                return leader.evaluate(case, solution)
            return case.evaluate(solution) if sums is None else case.evaluate(solution, sums)

    def _traded(self) -> dict[str, Any]:
        """What the replicas have sent since the run began, and the simulator's time; null where there is neither."""
        sent, virtual = self.engine.sent, self.config.host == "simulator"
        fields: dict[str, Any] = dict.fromkeys(("replicas", *TRADED))
        if self.config.exchange != "none":
            fields = {"replicas": self.config.replicas} | {name: getattr(sent, name) for name in TRADED}
        return fields | {"virtual_seconds": sent.virtual_seconds if virtual else None}

    def _record(self, found: dict[str, Any], status: str = "ok") -> dict[str, Any]:
        c, engine, epoch = self.config, self.engine, self.engine.epoch
        about = epoch if engine.chunk else max(epoch - 1, 0)  # the epoch this row tells of, from 0
        scale, offset, power = self._schedule.plan(about)
        step = scale * (max(offset, 1.0) + about * self._n) ** -power  # at its first row
        seconds, before = engine.clock.seconds, engine.seconds
        row = self._identity | {
            "method": c.discipline if c.exchange == "none" else c.exchange,
            "problem": c.problem,
            "loss": c.loss,
            "l1": c.l1,
            "l2": c.l2,
            "discipline": c.discipline,
            "order": c.order,
            "exchange": c.exchange,
            "host": c.host,
            "device": c.device,
            "workers": c.workers,
            "seed": c.seed,
            "step": step,
            "schedule": c.schedule,
            "epoch": epoch if not engine.chunk else round(epoch + engine.chunk / self._job.order.n_chunks, 4),
            "phase": "reported",
            "train_seconds": seconds,
            "wall_seconds": time.perf_counter() - self._began,
            "setup_seconds": self._setup,
            **found,
            **dict.fromkeys((*rest_of(found), *LAST)),
            "updates": engine.updates,
            **self._case.speed(engine.updates, engine.nonzeros, before),
            **UNMEASURED,
            **engine.pool.measured(),
            **self._traded(),
            "workers_lost": engine.lost,
            "status": status,
        }
        if not self.history:
            row |= machine.machine_fields() | engine.pool.about | self._found
        self.history.append(row)
        return row
