"""The epoch loop: workers run an epoch, meet, the parent evaluates, they go on.

``train`` returns a ``Run``, which yields one row of measurements an epoch and holds the model; nothing is printed. The
clock of ``train_seconds`` runs while workers work and while a step is probed for, never during evaluation, and it is
started and stopped in one place. A run can be stopped at any chunk and resumed there: with one worker the result is bit
for bit that of a run that was never stopped.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import time
import uuid
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hogwild import machine
from hogwild.config import TrainConfig
from hogwild.data.examples import Rows
from hogwild.data.order import Order
from hogwild.errors import HogwildWarning, InputError, TrainingError, UsageError
from hogwild.hosts.job import Job, Pool, Task
from hogwild.kernels.losses import LOSSES, dloss
from hogwild.model import LinearModel
from hogwild.model_file import has_checkpoint, load_checkpoint, save_checkpoint
from hogwild.probe import Probe
from hogwild.problems.linear import LinearProblem, row_weights
from hogwild.problems.objective import Objective
from hogwild.schedule import make_schedule

POLL = 0.1  # seconds between two looks at a pool that has nothing to say
DIVERGED = 100.0  # times the objective at the start
TAIL_POWER = 3  # of the weighted tail mean: see Run._average
KEPT_ROWS = 50  # rows of history in a model file


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


def start_pool(host: str, workers: int) -> Pool:
    """Started workers that ``train(..., pool=...)`` can use, one run after another."""
    if host == "threads":
        from hogwild.hosts.threads import Threads

        return Threads(workers)
    from hogwild.hosts.processes import Processes

    return Processes(workers)


def resolve(config: TrainConfig) -> TrainConfig:
    """The config with workers and discipline filled in."""
    workers = config.workers or (1 if config.discipline == "serial" else machine.physical_cores())
    discipline = config.discipline
    if discipline == "auto":
        discipline = "serial" if workers == 1 else "hogwild"
    return dataclasses.replace(config, workers=workers, discipline=discipline)


def train(
    rows: Rows | tuple[Any, Any],
    test: Rows | tuple[Any, Any] | None = None,
    *,
    config: TrainConfig | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    pool: Pool | None = None,
    data: str = "",
    **options: Any,
) -> Run:
    """Train a sparse linear model on all cores without locks.

    Parameters
    ----------
    rows : Rows or (X, y)
        Training data: ``Rows``, or a scipy sparse or dense matrix (n, width) and n targets.
    test : Rows or (X, y), optional
        Evaluated after every epoch; never trained on.
    config : TrainConfig, optional
        All options at once; else they are given as keywords (``loss="hinge", workers=4, ...``), where the default host
        is ``threads``, which needs no ``if __name__ == "__main__"``.
    checkpoint : path, optional
        Directory for a checkpoint at the end of every epoch and on stopping.
    resume : bool
        Go on from that checkpoint, if there is one. Only ``epochs``, ``workers`` and ``host`` may differ.
    pool : Pool, optional
        Workers from :func:`start_pool`; they are left running.
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
    rows, tests = _as_rows(rows), None if test is None else _as_rows(test)
    return Run(rows, tests, config, checkpoint, resume, pool, data)


class Run:
    """A training run: an iterator over rows of measurements that holds the model. Made by :func:`train`.

    Attributes
    ----------
    config : TrainConfig
        With workers, discipline and (once known) step filled in.
    history : list of dict
        All rows so far, also those from before a resume.
    """

    def __init__(
        self, rows: Rows, test: Rows | None, config: TrainConfig, checkpoint: str | Path | None, resume: bool,
        pool: Pool | None, data: str,
    ) -> None:  # fmt: skip
        self._began = time.perf_counter()
        self.asked, self.config = config, resolve(config)
        self.history: list[dict[str, Any]] = []
        self.checkpoint = None if checkpoint is None else Path(checkpoint)
        self._fresh, self._done, self._stopping, self._closed = True, False, False, False
        self._epoch = self._chunk = 0
        self._updates, self._epoch_seconds, self._epoch_nonzeros = 0, 0.0, 0
        self._setup: float | None = None
        self._identity = {"run": uuid.uuid4().hex[:12], "data": data or (str(rows.store) if rows.store else "memory")}
        workers = self.config.workers or 1
        if workers > len(rows):
            raise InputError(f"{workers} workers for {len(rows)} rows: give at most one worker a row (--workers)")
        if workers > machine.physical_cores():
            cores = machine.physical_cores()
            warnings.warn(f"{workers} workers share {cores} cores: expect no speed-up", HogwildWarning, stacklevel=4)
        self._rows = rows
        self.problem = LinearProblem.of(self.config, rows, self.config.discipline, _cache_bytes())
        row_bytes = 8 * rows.nnz / len(rows)
        shuffled = config.order == "shuffled"
        self._order = Order.of(len(rows), shuffled, row_bytes, from_disk=_outgrows_memory(rows))
        self._fingerprint = fingerprint(rows)
        saved = self._load() if resume else None
        self._make_objectives(rows, test)
        self._own_pool = pool is None
        self._pool = pool or start_pool(self.config.host, workers)
        try:
            self._open(rows)
            self._settle_step(saved)
            if saved is not None:
                self._restore(*saved)
        except BaseException:
            self.close()
            raise
        self._iterator = self._generate()

    # ---- what a user does with it

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        return next(self._iterator)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def model(self) -> LinearModel:
        """The model as of the last row.

        Raises
        ------
        RuntimeError
            Before the first row: iterate over the run, or call :meth:`finish`.
        """
        if not self.history:
            raise RuntimeError("nothing is trained yet: iterate over the run, or call run.finish()")
        coef, intercept = self._solution
        return LinearModel(
            coef, intercept, self.problem.loss, self.problem.loss_param, list(self.problem.labels),
            self.problem.normalize, self.config.to_json(), self._fingerprint, self.history[-KEPT_ROWS:],
        )  # fmt: skip

    def finish(self) -> LinearModel:
        """Train to the end and return the model."""
        for _ in self:
            pass
        return self.model

    def stop(self) -> None:
        """Ask the run to end at the next chunk; its last row has the status "interrupted". Safe in a signal handler."""
        self._stopping = True
        self._job.stop()

    def progress(self) -> Progress:
        """How far the run is."""
        rows, nonzeros = self._job.done()
        rows += self._chunk * self._order.chunk
        seconds = self._clock.seconds - self._epoch_began
        return Progress(self._epoch, min(rows, len(self._rows)), len(self._rows), nonzeros, seconds)

    def close(self) -> None:
        """End the workers. What was trained stays."""
        if not self._closed:
            self._closed = self._done = True
            if self._own_pool and hasattr(self, "_pool"):
                self._pool.close()

    # ---- setting up

    def _make_objectives(self, rows: Rows, test: Rows | None) -> None:
        c, p = self.config, self.problem
        self._weights = row_weights(rows, c.class_weight)
        same = {"normalize": c.normalize, "labels": p.labels, "width": p.width}
        self._objective = Objective(rows, c.loss, p.loss_param, l1=c.l1, l2=c.l2, weights=self._weights, **same)
        self._test = None if test is None else Objective(test, c.loss, p.loss_param, auc=True, **same)

    def _open(self, rows: Rows) -> None:
        """Lay out the memory and give it to the workers."""
        arrays = self.problem.row_arrays(rows, self.config.class_weight)
        workers, shared = self.config.workers or 1, self._pool.shared
        self._job = Job.of(self.problem, self._order, self.config.seed, workers, rows, arrays, shared)
        self._solution = self.problem.solution(self._job.flat)
        self._mean = None if not self.config.average else np.zeros(self.problem.size)
        self._clock, self._epoch_began = Clock(), 0.0
        self._pool.open(self._job)

    def _settle_step(self, saved: tuple[dict[str, np.ndarray], dict[str, Any]] | None) -> None:
        """Take the step that was asked for, or saved, or probe for one (on the clock), and make the schedule."""
        c, step = self.config, self.config.step
        if c.schedule != "optimal" and step is None:
            if saved is not None:
                step = saved[1]["step"]
            else:
                probe = Probe(c, self._rows, self._weights)
                with self._clock:
                    step = probe.search()
            self.config = dataclasses.replace(c, step=step)
        code, param = LOSSES[c.loss], self.problem.loss_param
        slope = (lambda p: 1.0) if c.loss == "softmax" else (lambda p: dloss(code, p, 1.0, param))
        self._schedule = make_schedule(
            c.schedule, step, decay=c.decay, power=c.power, l2=c.l2, dloss=slope, tol=c.tol
        )  # fmt: skip

    def _load(self) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """The checkpoint to resume from, checked against what is asked; None if there is none yet."""
        if self.checkpoint is None:
            raise UsageError("resume needs the checkpoint directory (--checkpoint DIR)")
        if not has_checkpoint(self.checkpoint):
            return None
        arrays, header = load_checkpoint(self.checkpoint)
        where = f"{self.checkpoint}: cannot resume"
        if header.get("problem") != "linear" or "flat" not in arrays:
            raise InputError(f"{where}: not a checkpoint of this problem")
        changed = self.asked.differences(TrainConfig.from_json(header["config"]))
        if changed:
            was = ", ".join(f"{name} was {header['config'][name]!r}" for name in changed)
            raise InputError(f"{where} with other options: {was} (only epochs, workers and host may change)")
        if header["fingerprint"] != self._fingerprint:
            raise InputError(f"{where}: the training data are not those of the checkpoint")
        if arrays["flat"].shape != (self.problem.size,):
            raise InputError(f"{where}: it holds {len(arrays['flat'])} parameters, expected {self.problem.size}")
        return arrays, header

    def _restore(self, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
        self._job.flat[:] = arrays["flat"]
        if self._mean is not None:
            self._mean[:] = arrays["mean"]
        self._epoch, self._chunk = header["epoch"], header["chunk"]
        self._updates = header["updates"]
        self._epoch_seconds, self._epoch_nonzeros = header["epoch_seconds"], header["epoch_nonzeros"]
        self._clock = Clock(header["train_seconds"])
        self._began -= header["wall_seconds"]
        self._setup = header["setup_seconds"]
        self._identity["run"] = header["run"]
        self._schedule.restore(header["schedule"])
        self.history = header["history"]
        self._solution = arrays["coef"], arrays["intercept"]
        self._fresh = False

    def _save(self) -> None:
        if self.checkpoint is None:
            return
        arrays = {"flat": self._job.flat, "coef": self._solution[0], "intercept": self._solution[1]}
        if self._mean is not None:
            arrays["mean"] = self._mean
        header = {
            "problem": "linear", "config": self.asked.to_json(), "step": self.config.step, "run": self._identity["run"],
            "fingerprint": self._fingerprint, "epoch": self._epoch, "chunk": self._chunk, "updates": self._updates,
            "epoch_seconds": self._epoch_seconds, "epoch_nonzeros": self._epoch_nonzeros,
            "train_seconds": self._clock.seconds, "wall_seconds": time.perf_counter() - self._began,
            "setup_seconds": self._setup, "schedule": self._schedule.state(), "history": self.history,
        }  # fmt: skip
        save_checkpoint(self.checkpoint, arrays, header)

    # ---- the loop

    def _generate(self) -> Iterator[dict[str, Any]]:
        try:
            if self._fresh:
                yield self._record(self._evaluate())
            while self._epoch < self.config.epochs and not self._done:
                interrupted = False
                try:
                    self._advance()
                except KeyboardInterrupt:
                    interrupted = True
                row = self._finish_epoch()
                yield row
                if row["status"] == "diverged":
                    raise self._divergence(row)
                if interrupted:
                    raise KeyboardInterrupt
        finally:
            self.close()

    def _advance(self) -> None:
        """Let the workers do the current epoch, or what is left of it, or less if the run is stopped."""
        task = Task(self._epoch, self._chunk, self._schedule.plan(self._epoch))
        if self._setup is None:
            self._setup = time.perf_counter() - self._began
        before = self._epoch_began = self._clock.seconds
        try:
            with self._clock:
                self._job.begin_epoch(task.epoch, task.start)
                if self._stopping:
                    self._job.stop()
                self._pool.begin(task)
                while not self._pool.wait(POLL):
                    pass
        except KeyboardInterrupt:  # of a library's user; the command line calls stop() instead
            self.stop()
            while not self._pool.wait(POLL):
                pass
            raise
        finally:
            rows, nonzeros = self._job.done()
            self._updates += rows
            self._epoch_nonzeros += nonzeros
            self._epoch_seconds += self._clock.seconds - before
            self._chunk = self.problem.position(self._job.control, self._order)

    def _finish_epoch(self) -> dict[str, Any]:
        """Evaluate, keep and judge what the workers did, complete epoch or not."""
        complete = self._chunk >= self._order.n_chunks
        if complete:
            self._epoch, self._chunk = self._epoch + 1, 0
            self._average()
        found = self._evaluate()
        objective = found["objective"]
        start = self.history[0]["objective"] if self.history else math.inf
        status = "ok" if complete else "interrupted"
        if not math.isfinite(objective) or objective > DIVERGED * max(abs(start or 0.0), 1e-3):
            status = "diverged"
        row = self._record(found, status)
        if status == "diverged":
            self._done, self._solution = True, self._previous
            return row
        if complete:
            self._schedule.observe(objective)
            self._epoch_seconds, self._epoch_nonzeros = 0.0, 0
        self._done = self._stopping or self._met(objective)
        self._save()
        return row

    def _divergence(self, row: dict[str, Any]) -> TrainingError:
        """What to say after a diverged row. The model stays that of the row before."""
        remedies = [] if self.config.normalize != "none" else ["rows scaled to one length (normalize l2)"]
        remedies += [] if self.config.adagrad else ["adagrad"]
        step = f"a step below {self.config.step:g}" if self.config.step else "another schedule"
        return TrainingError(
            f"diverged in epoch {row['epoch']}: the objective went to {row['objective']:.4g}; "
            f"try {', or '.join([step, *remedies])}. The model is that of the epoch before"
        )

    def _met(self, objective: float) -> bool:
        """Whether the target is reached, or patience is at an end."""
        c = self.config
        if c.target is not None and objective <= c.target:
            return True
        if c.patience is None:
            return False
        best, stalled = math.inf, 0
        for row in self.history:
            value = row["objective"]
            if row["status"] == "ok" and value < best - c.tol * abs(best if math.isfinite(best) else 0.0):
                best, stalled = value, 0
            else:
                stalled += 1
        return stalled >= c.patience

    def _average(self) -> None:
        """Move the tail mean: weight (q + 1) / (t + q) on the newest of t epochs, q = 3.

        Polynomial-decay averaging (Shamir and Zhang 2013, section 4): a mean of roughly the last quarter of the epochs
        at any time, so that a resumed run needs no knowledge of where it will end.
        """
        if self._mean is not None:
            share = (TAIL_POWER + 1) / (self._epoch + TAIL_POWER)
            self._mean += share * (self._job.flat - self._mean)

    def _evaluate(self) -> dict[str, Any]:
        """The objective and metrics of the parameters as they are; they become the model."""
        flat = self._job.flat if self._mean is None or self._epoch == 0 else self._mean.astype(np.float32)
        solution = self.problem.solution(flat)
        found = self._objective.evaluate(*solution)
        if self._test is not None:
            found |= {f"test_{name}": value for name, value in self._test.evaluate(*solution).items()}
            del found["test_objective"]
        self._previous, self._solution = self._solution, solution
        return {name if name == "objective" or name.startswith("test_") else f"train_{name}": value
                for name, value in found.items()}  # fmt: skip

    def _record(self, found: dict[str, Any], status: str = "ok") -> dict[str, Any]:
        c, epoch = self.config, self._epoch
        scale, offset, power = self._schedule.plan(max(epoch - 1, 0) if not self._chunk else epoch)
        seconds, before = self._clock.seconds, self._epoch_seconds
        row = self._identity | {
            "method": c.discipline, "problem": "linear", "loss": c.loss, "l1": c.l1, "l2": c.l2,
            "discipline": c.discipline, "order": c.order, "exchange": "none", "host": c.host, "device": "cpu",
            "workers": c.workers, "seed": c.seed, "step": scale * max(offset, 1.0) ** -power, "schedule": c.schedule,
            "epoch": epoch if not self._chunk else round(epoch + self._chunk / self._order.n_chunks, 4),
            "phase": "reported", "train_seconds": seconds, "wall_seconds": time.perf_counter() - self._began,
            "setup_seconds": self._setup, **found, "updates": self._updates,
            "nonzeros_per_second": self._epoch_nonzeros / before if before else None,
            "workers_lost": self._pool.lost, "status": status,
        }  # fmt: skip
        if not self.history:
            row |= machine.machine_fields()
        self.history.append(row)
        return row


def fingerprint(rows: Rows) -> str:
    """A hash of shape, targets and a sample of the entries: tells data apart without reading all of them."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(np.array([len(rows), rows.width, rows.nnz], dtype=np.int64).tobytes())
    picked = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), 4096)).astype(np.int64))
    sample = rows.select(picked).compact()
    for array in (sample.begin, sample.indices, sample.values, sample.targets):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _as_rows(data: Rows | tuple[Any, Any]) -> Rows:
    if isinstance(data, Rows):
        return data
    if isinstance(data, tuple) and len(data) == 2:
        return Rows.from_scipy(*data)
    raise UsageError(f"expected Rows or a pair (X, y), got {type(data).__name__}: read a file with hogwild.open_data")


def _cache_bytes() -> int:
    """Size of a core's L2 cache."""
    text = machine.caches().get("L2", "2048K")
    return int(text[:-1]) << 10 if text.endswith("K") and text[:-1].isdigit() else 2 << 20


def _outgrows_memory(rows: Rows) -> bool:
    total, _ = machine.memory()
    return rows.store is not None and total is not None and 8 * len(rows.indices) > total // 2
