"""``hogwild.train``, and the epoch loop: workers run an epoch, meet, the parent evaluates, and they go on.

``train`` returns a ``Run``, which yields one row of measurements an epoch and holds the model; nothing is printed. A
run can be stopped at any chunk and resumed there: with one worker the result is bit for bit that of a run that was
never stopped. A run that is dropped ends its workers.

Ctrl-C does not raise in the middle of an epoch. While the caller waits for the next row, the first one asks the workers
to end at the next chunk, the row is finished and saved, and ``KeyboardInterrupt`` follows it; only the second raises at
once. This applies only where Ctrl-C has Python's own handler, so a program with a handler of its own keeps it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import signal
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Required, TypedDict, TypeVar, Unpack, overload

import numpy as np

from hogwild import machine
from hogwild.config import SHORT_RUN, CompletionOptions, CutsOptions, FMOptions, LinearOptions, TrainConfig
from hogwild.errors import HogwildError, HogwildWarning, InputError, UsageError
from hogwild.hosts.pool import Pool
from hogwild.methods import STREAMS, parse_link
from hogwild.model_file import HISTORY_ROWS, save_checkpoint
from hogwild.problems.protocol import Case, case_of, in_numbering, size_of
from hogwild.training.checkpoint import Saved, as_before, check_data, check_state, hold_directory, load_saved, resumable
from hogwild.training.engine import Engine, EpochProgress, resolve, start_pool
from hogwild.training.keep import LAST, Keeper, divergence, has_diverged, is_whole, other_metrics
from hogwild.training.schedule import make_schedule
from hogwild.training.stopwatch import Stopwatch

if TYPE_CHECKING:
    from hogwild.data.ratings.container import Ratings
    from hogwild.data.rows.container import Rows
    from hogwild.machines.agreement import Leader
    from hogwild.machines.cluster import Cluster
    from hogwild.problems.completion.model import CompletionModel
    from hogwild.problems.cuts.model import Segmentation
    from hogwild.problems.fm.model import FMModel
    from hogwild.problems.linear.model import LinearModel
    from hogwild.training.l2_choice import L2Choice

M = TypeVar("M")  # what a run trains
SPLIT = ("linear", "fm", "ffm", "completion")  # problems of whose data a part can be held out
FEWEST = 20  # examples, below which none are held out unasked
PROBLEM_OF = {"Ratings": "completion", "Graph": "cuts"}  # if nobody names one
PATIENCE = 2  # epochs of a long run without progress of what it watches; the step of schedule adaptive waits longer
UNMEASURED = dict.fromkeys(("staleness_mean", "staleness_max", "lost_updates", "in_flight"))  # but by some hosts
TRADED = ("messages", "bytes_sent", "waited_seconds", "shards_torn", "deltas_left_out")  # of replicas


@contextlib.contextmanager
def held_back(stop: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Within this block the first Ctrl-C calls ``stop`` and does not raise; yields whether one came, as a function."""
    signals: list[int] = []

    def handle(number: int, frame: Any) -> None:
        if signals:
            signal.default_int_handler(number, frame)
        signals.append(number)
        stop()

    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not usual or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: bool(signals)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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

    See Also
    --------
    train : starts one.

    Examples
    --------
    >>> import hogwild
    >>> run = hogwild.train("synthetic:rcv1?rows=500&features=200&nnz=10", epochs=3, workers=1, l2=1e-4)
    >>> row = next(run)  # of the start
    >>> row["epoch"], round(row["objective"], 4)
    (0, 0.6931)
    >>> model = run.finish()
    >>> run.history[-1]["epoch"]
    3
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
        chosen: L2Choice | None = None,
        held: Any = None,
    ) -> None:
        self.stopwatch = Stopwatch("set-up")
        self.chosen = chosen
        self._began = time.perf_counter() - (chosen.seconds if chosen else 0.0)
        self.requested = config
        entries = examples.nnz if config.compiled else math.inf
        self.config = resolve(config, len(examples), pool, entries)
        self.history: list[dict[str, Any]] = []
        self.checkpoint = None if checkpoint is None else Path(checkpoint)
        self._done = False
        self._closing = contextlib.ExitStack()
        self._leader = leader
        self._ending: BaseException | None = None  # raised after the last row
        self._setup: float | None = None
        self._first_fields = dict(chosen.fields) if chosen else {}
        self._identity = {"run": uuid.uuid4().hex[:12], "data": data or str(examples.store or "memory")}
        self._check_workers(len(examples))
        if self.checkpoint is not None:
            self._closing.enter_context(contextlib.closing(hold_directory(self.checkpoint)))
        try:
            saved = load_saved(self.checkpoint, config) if resume else None
            if saved is not None:
                self.config = as_before(self.config, saved)
            case = self._case = case_of(config.problem)(self.config, examples, test, *(() if held is None else (held,)))
            self.reason = case.reason
            self.note = case.note
            self.problem = case.problem
            self.config = case.config
            if saved is not None:
                check_data(self.checkpoint, saved, case.fingerprint, size_of(case), self.config)
                with resumable(self.checkpoint):
                    case.recut(saved[1])
            case.make_evaluator(judge)
            c = self.config
            own = pool is None
            pool = pool or start_pool(c.host, c.workers or 1, c.delay)
            if leader is not None:
                pool = leader.around(case, pool)
            n = case.n if c.own_rows else None
            self.engine = Engine(case.lay_out, pool, own, self.stopwatch, parse_link(c.link), n)
            self._closing.callback(self.engine.close)
            if leader is not None:
                leader.agree(case, config)
            self._job = self.engine.job
            self._solution = self._newest = case.solution(self._job.export())
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
        if self._ending is not None:
            raise self._take_ending()
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
            raise self._take_ending()
        return row

    def __repr__(self) -> str:
        c, row = self.config, self.history[-1] if self.history else {}
        state = f"objective {row['objective']:.6g}, {row['status']}" if row else "not begun"
        workers = f"{c.discipline} on {c.workers} {c.host}"
        return f"<Run of {c.problem}, {c.loss}: {workers}, epoch {row.get('epoch', 0)} of {c.epochs}, {state}>"

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
        model: M = self._case.model(self._solution, self.config, self.history[-HISTORY_ROWS:])
        return model

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

    def progress(self) -> EpochProgress:
        """How far the run is."""
        return self.engine.progress()

    def close(self) -> None:
        """End the workers; the trained model stays."""
        self._done = True
        self._closing.close()

    # ---- setting up

    def _check_workers(self, rows: int) -> None:
        workers = self.config.workers or 1
        cores = machine.physical_cores()
        if workers > rows > 0:
            raise InputError(f"{workers} workers for {rows} rows: give at most one worker a row (--workers)")
        self.config.check_crowd(cores)
        if workers > cores and self.config.host not in ("simulator", STREAMS):
            warnings.warn(machine.crowded(workers, cores), HogwildWarning, stacklevel=5)

    def _settle_step(self, saved: Saved | None) -> None:
        """Use the step that is given, saved or chosen with l2, or search for one (on the clock); make the schedule."""
        c = self.config
        step = c.step
        if c.schedule != "optimal" and step is None:
            step = saved[1]["step"] if saved else self.chosen.step if self.chosen else None
            if step is None:
                with self.stopwatch("step"):
                    search = self._case.search_step()
                    with self.engine.clock:
                        step, fields = search()
                self._first_fields |= fields
            self.config = c.settled(step=step)
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
        past = self._keeper.past(self.history)
        if self.config.epochs > header["config"]["epochs"] and self._keeper.enough(past):
            self._keeper.start = self.engine.epoch
        self._done = self.engine.epoch >= self.config.epochs or (not self.engine.chunk and self._keeper.enough(past))
        if self._done:
            self.close()
        for row in self.history[-1:] if not self._done else ():  # no longer the last row
            row.update(self._keeper.raw | dict.fromkeys((*other_metrics(row), *LAST)))

    def _arrays(self) -> dict[str, np.ndarray]:
        """What a checkpoint holds, with flat parameters in the numbering of the problem."""
        arrays = {"flat": self._job.export(), **self._job.kept(), **dict(zip(self._case.names, self._solution))}
        return arrays if self._keeper.mean is None else arrays | {"mean": self._keeper.mean}

    def _save(self) -> None:
        if self.checkpoint is None:
            return
        header = {
            "problem": self.config.problem,
            "config": self.requested.to_json(),
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
        if not self.history:
            return self._record(self._evaluate())
        try:
            while self._advance():
                pass
        except KeyboardInterrupt as interrupt:  # from the program's own handler, or raised by another thread
            self._ending = interrupt.with_traceback(None)
        return None if self._done or self.engine.pool.closed else self._finish_epoch()

    def _take_ending(self) -> BaseException:
        ending = self._ending
        self._ending = None
        return StopIteration() if ending is None else ending

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
        engine = self.engine
        complete = engine.chunk == 0 and engine.epoch > self.history[-1]["epoch"]
        measures = self._evaluate()
        stopping = engine.stopping or self._ending is not None  # read once: a later request gets a row that says so
        objective = measures["objective"]
        diverged = has_diverged(objective, [row["objective"] for row in self.history[:2]])
        row = self._record(measures, "diverged" if diverged else "ok" if complete else "interrupted")
        if diverged:
            self._done = True
            self._ending = divergence(self.config, row)
            row.update(other_metrics(measures) | {"kept_epoch": self._keeper.kept})
            return row
        if self._keeper.takes(self.history):
            self._solution = self._newest
        if complete:
            before = max((row["epoch"] for row in self.history[:-1] if is_whole(row)), default=0)
            self._schedule.observe(objective, engine.epoch - before)
            engine.next_epoch()
        ended = engine.epoch >= self.config.epochs or self._keeper.enough(self.history)
        self._done = stopping or ended
        if stopping and not ended:  # even if an epoch is complete: others were left out
            row["status"] = "interrupted"
        if self._done:
            row.update(other_metrics(measures))
            with self.stopwatch("evaluation"):
                self._solution = self._keeper.finish(self._solution, self.history)
        try:
            with self.stopwatch("saving"):
                self._save()
        except HogwildError as error:  # a full disk: the row and the model are still valid
            self._done = True
            self._ending = error
        return row

    def _evaluate(self) -> dict[str, Any]:
        """The objective and metrics of the parameters."""
        case, leader = self._case, self._leader
        with self.stopwatch("evaluation"):
            self._newest = solution = case.solution(self._job.export())
            if leader is not None:
                return leader.evaluate(case, solution)
            return case.evaluate(solution)

    def _record(self, measures: dict[str, Any], status: str = "ok") -> dict[str, Any]:
        c = self.config
        engine = self.engine
        epoch = engine.epoch
        begun = epoch if engine.chunk else max(epoch - 1, 0)  # the epoch that this row tells of, from 0
        scale, offset, power = self._schedule.plan(begun)
        traded: dict[str, Any] = dict.fromkeys(("replicas", *TRADED))
        if c.exchange != "none":
            traded = {"replicas": c.replicas} | {name: getattr(engine.sent, name) for name in TRADED}
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
            "step": scale * (max(offset, 1.0) + begun * self._case.n) ** -power,  # at its first row
            "schedule": c.schedule,
            "epoch": epoch if not engine.chunk else round(epoch + engine.chunk / self._job.order.n_chunks, 4),
            "phase": "reported",
            "train_seconds": engine.clock.seconds,
            "wall_seconds": time.perf_counter() - self._began,
            "setup_seconds": self._setup,
            **measures,
            **dict.fromkeys((*other_metrics(measures), *LAST)),
            "updates": engine.updates,
            **self._case.speed(engine.updates, engine.nonzeros, engine.seconds),
            **UNMEASURED,
            **engine.pool.measured(),
            **traded,
            "virtual_seconds": engine.sent.virtual_seconds if c.host == "simulator" else None,
            "workers_lost": engine.lost,
            "status": status,
        }
        if not self.history:
            row |= machine.machine_fields() | engine.pool.about | self._first_fields
        self.history.append(row)
        return row


class _Call(TypedDict, total=False):
    checkpoint: str | Path | None
    resume: bool
    pool: Pool | None
    data: str
    cluster: Cluster | None
    report: Callable[[str], None] | None


class _LinearCall(_Call, LinearOptions, total=False):
    problem: Literal["linear"]
    holdout: float | Rows | None


class _FMCall(_Call, FMOptions, total=False):
    problem: Required[Literal["fm", "ffm"]]
    holdout: float | Rows | None


class _CompletionCall(_Call, CompletionOptions, total=False):
    problem: Required[Literal["completion"]]
    holdout: float | Ratings | None


class _CutsCall(_Call, CutsOptions, total=False):
    problem: Required[Literal["cuts"]]


class _ConfigCall(_Call, total=False):
    config: Required[TrainConfig]
    holdout: float | Rows | Ratings | None


@overload
def train(rows: Any, test: Any = None, **options: Unpack[_LinearCall]) -> Run[LinearModel]: ...
@overload
def train(rows: Any, test: Any = None, **options: Unpack[_FMCall]) -> Run[FMModel]: ...
@overload
def train(rows: Any, test: Any = None, **options: Unpack[_CompletionCall]) -> Run[CompletionModel]: ...
@overload
def train(rows: Any, test: Any = None, **options: Unpack[_CutsCall]) -> Run[Segmentation]: ...
@overload
def train(rows: Any, test: Any = None, **options: Unpack[_ConfigCall]) -> Run[Any]: ...
def train(
    rows: Any,
    test: Any = None,
    *,
    config: TrainConfig | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    pool: Pool | None = None,
    data: str = "",
    cluster: Cluster | None = None,
    holdout: Any = None,
    report: Callable[[str], None] | None = None,
    **options: Any,
) -> Run[Any]:
    """Train a sparse model on all cores without locks.

    Parameters
    ----------
    rows : path; Rows or (X, y); Ratings; Graph
        Training data, or where they lie; ``Ratings`` imply problem completion, a ``Graph`` cuts. Linear and fm:
        ``Rows``, or a scipy sparse or dense matrix (n, width) and n targets. Completion: ``Ratings``, a scipy sparse
        matrix (users, items), or arrays (users, items, values). Cuts: ``Graph``.
    test : the same, optional
        Evaluated after every epoch; never trained on. If it was held out of ``rows`` by their ``split`` it chooses, as
        ``holdout`` does.
    config : TrainConfig, optional
        All options at once; else they are given as keywords (``loss="hinge", workers=4, ...``), where the default host
        is ``threads``, which needs no ``if __name__ == "__main__"``.
    checkpoint : path, optional
        Directory for a checkpoint at the end of every epoch and on stopping.
    resume : bool
        Go on from that checkpoint, if there is one. Only ``epochs``, ``patience``, ``evaluate_every``, ``machines``,
        ``workers``, ``oversubscribe``, ``host``, ``in_flight`` and ``renumber`` may differ.
    pool : Pool, optional
        Workers from :func:`hogwild.training.engine.start_pool`; they are left running. One run after another, or in
        turns, can use them.
    data : str
        Name of the data in the rows of measurements.
    cluster : Cluster, optional
        Machines that have met (:func:`hogwild.gather`) and train together; each makes this call, with the same options
        and data. With ``own_rows=True`` the data are each machine's own, and so are the test data, which machine 0 must
        have if another one has; all metrics are of all of them. Rows and checkpoints are machine 0's; on the others the
        run yields none, and ``finish()`` returns the same model.
    holdout : float or what ``rows.split`` held out, optional
        Data that choose, and are not trained on: the model is that of the epoch with the lowest loss on them (option
        ``keep``), ``patience`` watches that loss, and ``l2="auto"`` is chosen by it. A float holds that share of
        ``rows`` out. ``test`` then only judges, and the rows of the run have ``held_out_loss`` beside ``test_loss``;
        without ``test`` they have it as ``test_loss``. For both at once the data must be rows. Of problem fm a tenth
        is held out unless ``keep="last"``.

        Without ``holdout``, ``l2="auto"`` holds a fifth of ``rows`` out to choose by (of ratings a tenth), and the
        model is then trained on all of them. ``run.chosen`` says what was chosen.
    report : callable, optional
        Takes a line of text about the progress of a long choice.

    Returns
    -------
    Run
        Iterate over it for the rows of measurements, or call ``finish()`` for the model.

    Raises
    ------
    UsageError, InputError
        For options and data that do not go together, before anything is started.

    See Also
    --------
    open_data, open_table, open_ratings, open_graph : read files, data sets and generated data.
    TrainConfig : all options.
    HogwildClassifier : the same as a scikit-learn estimator.

    Examples
    --------
    >>> import hogwild, numpy as np, scipy.sparse
    >>> X = scipy.sparse.random_array((500, 40), density=0.2, rng=np.random.default_rng(0))
    >>> y = X.sum(axis=1) > 4
    >>> run = hogwild.train((X, y), loss="log", epochs=5, workers=1)
    >>> [row["epoch"] for row in run]
    [0, 1, 2, 3, 4, 5]
    >>> run.model.predict(X[:2]).shape
    (2,)
    """
    if config is not None and options:
        raise UsageError(f"give options in config or as keywords, not both (got {', '.join(options)})")
    if config is None:
        met = {} if cluster is None else {"machines": cluster.machines}
        implied = {"problem": PROBLEM_OF.get(type(rows).__name__, "linear")}
        config = TrainConfig.from_json({"host": "threads"} | implied | options | met)
    take = case_of(config.problem).take
    examples = take(rows)
    held = None
    if test is not None:
        test = take(test)
    if holdout is None and cluster is None and config.keep != "last" and len(examples) >= FEWEST:
        holdout = config.usual_holdout or None
    if holdout is not None:
        examples, holdout = _held_out(examples, holdout, config)
        if test is None:
            test = holdout
        elif config.problem == "completion":
            raise UsageError(f"test and holdout at once are for rows, not for problem {config.problem!r}")
        elif config.own_rows:
            raise UsageError(
                "test and holdout at once are for one set of rows, not for machines with rows of their own"
            )
        else:
            held = holdout
    return begin(examples, test, held, config, checkpoint, resume, pool, data, cluster, report)


def _held_out(examples: Any, holdout: Any, config: TrainConfig) -> tuple[Any, Any]:
    """Return the examples to train on and those that choose."""
    if config.problem not in SPLIT:
        raise UsageError(f"holdout={holdout!r}: of problem {config.problem!r} nothing can be held out")
    if isinstance(holdout, Real):
        return examples.split(float(holdout), config.seed)
    if holdout is not examples.held_out:
        raise UsageError("holdout: expected a fraction, or what rows.split(fraction) has held out of these rows")
    return examples, holdout


def _ends_itself(config: TrainConfig, examples: Any) -> bool:
    """Whether a run ends when it makes no progress, though nobody asked for it: if it is long, and nobody compares it.

    A count decides, and no clock. Short runs are noisy from epoch to epoch, and their epochs cost nothing.
    """
    known = config.problem in SPLIT and config.host != "simulator" and config.schedule != "adaptive"
    return known and examples.nnz * config.epochs >= SHORT_RUN


def begin(
    examples: Any,
    test: Any,
    held: Any,
    config: TrainConfig,
    checkpoint: str | Path | None,
    resume: bool,
    pool: Pool | None,
    data: str,
    cluster: Cluster | None,
    report: Callable[[str], None] | None = None,
) -> Run[Any]:
    """Return the run, or this machine's part in that of a cluster."""
    if config.patience is None and _ends_itself(config, examples):
        config = config.settled(patience=PATIENCE)
    if cluster is None:
        if config.machines > 1:
            raise UsageError(f"machines={config.machines}: machines meet first: give cluster=hogwild.gather(...)")
        chosen = None
        if config.l2_path:
            judges = test if held is None and test is examples.held_out else held
            kind: Any = case_of(config.problem)
            config, chosen = kind.settle(config, examples, checkpoint if resume else None, judges, report)
        run: Run[Any] = Run(examples, test, config, checkpoint, resume, pool, data, chosen=chosen, held=held)
        run.stopwatch.add({} if chosen is None else {"l2": chosen.seconds})
        return run
    if config.machines != cluster.machines:
        config = dataclasses.replace(config, machines=cluster.machines)
    if config.own_rows:
        from hogwild.machines.own_rows import settle

        examples, test = settle(cluster, examples, test, config)
    if cluster.leads:
        from hogwild.machines.agreement import Leader

        leader = Leader(cluster, examples.totals if config.own_rows else None)
        return Run(examples, test, config, checkpoint, resume, pool, data, leader=leader, held=held)
    from hogwild.training.member import Member

    member: Any = Member(examples, test, config, cluster, pool, data)
    return member
