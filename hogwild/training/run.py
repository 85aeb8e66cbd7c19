"""``hogwild.train``, and the epoch loop: workers run an epoch, meet, the parent evaluates, and they go on.

``train`` returns a ``Run``, which yields one row of measurements an epoch and holds the model; nothing is printed. A
run can be stopped at any chunk and resumed there: with one worker the result is bit for bit that of a run that was
never stopped. A run that is dropped ends its workers.

Ctrl-C raises at once, as it does everywhere in Python; the model is then that of the last row. A program that wants the
epoch so far has its handler call :meth:`Run.stop`, as the command line does.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
import uuid
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Required, Self, TypedDict, TypeVar, Unpack, overload

import numpy as np

from hogwild import machine
from hogwild.config import SHORT_RUN, CompletionOptions, CutsOptions, FMOptions, LinearOptions, TrainConfig
from hogwild.errors import HogwildError, HogwildWarning, InputError, UsageError
from hogwild.hosts.pool import Pool
from hogwild.methods import STREAMS, parse_link
from hogwild.model_file import HISTORY_ROWS, save_checkpoint
from hogwild.problems.protocol import Case, case_of, in_numbering, size_of
from hogwild.training.checkpoint import check_data, hold_directory, load_saved
from hogwild.training.engine import Engine, EpochProgress, resolve, start_pool
from hogwild.training.keep import LAST, Keeper, Solution, divergence, has_diverged, is_whole
from hogwild.training.schedule import Schedule, make_schedule
from hogwild.training.stopwatch import Stopwatch

if TYPE_CHECKING:
    from hogwild.machines.agreement import Leader
    from hogwild.machines.cluster import Cluster
    from hogwild.problems.completion.model import CompletionModel
    from hogwild.problems.cuts.model import Segmentation
    from hogwild.problems.fm.model import FMModel
    from hogwild.problems.linear.model import LinearModel
    from hogwild.training.l2_choice import L2Choice

M = TypeVar("M")  # what a run trains
SPLIT = ("linear", "fm", "ffm", "completion")  # problems of whose data a part can be held out
FEWEST = 20  # examples below which none are held out by default
PROBLEM_OF = {"Ratings": "completion", "Graph": "cuts"}  # if nobody names one
PATIENCE = 2  # epochs of a long run without progress of what it watches; the step of schedule adaptive waits longer
#: Fields that a row takes from the config, and fields that only some hosts and exchanges measure.
CONFIGURED = "problem loss l1 l2 discipline order exchange host device workers seed".split()
UNMEASURED = dict.fromkeys(("staleness_mean", "staleness_max", "lost_updates", "in_flight"))
TRADED = ("messages", "bytes_sent", "waited_seconds", "shards_torn", "deltas_left_out")


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

    _done = False
    _ending: HogwildError | None = None  # raised after the last row
    _setup: float | None = None  # seconds before the first update

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
        stopwatch: Stopwatch | None = None,
    ) -> None:
        self.stopwatch = stopwatch or Stopwatch("set-up")
        self.chosen = chosen
        self._began = time.perf_counter() - sum(self.stopwatch.seconds.values())
        self.requested = config
        self.config = resolve(config, len(examples), pool, examples.nnz if config.compiled else math.inf)
        self.history: list[dict[str, Any]] = []
        self.checkpoint = None if checkpoint is None else Path(checkpoint)
        self._closing = contextlib.ExitStack()
        self._leader = leader
        self._first_fields = dict(chosen.fields) if chosen else {}
        self._identity = {"run": uuid.uuid4().hex[:12], "data": data or str(examples.store or "memory")}
        self._check_workers(len(examples))
        if self.checkpoint is not None:
            self._closing.callback(weakref.finalize(self, os.close, hold_directory(self.checkpoint)))
        try:
            arrays, header = load_saved(self.checkpoint, config) if resume else ({}, {})
            case = self._case = case_of(config.problem)(self.config, examples, test, *(() if held is None else (held,)))
            self.reason = case.reason
            self.note = case.note
            self.problem = case.problem
            c = self.config = case.config
            if header:
                check_data(self.checkpoint, arrays, header, case.fingerprint, size_of(case), c)
                case.recut(header)
            case.make_evaluator(judge)
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
            self._keeper = Keeper(c, case, test is not None)
            self._schedule = self._settle_step(header)
            if header:
                self._restore(in_numbering(case, arrays), header)
        except BaseException:
            self.close()
            raise

    # ---- for users

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        ending, self._ending = self._ending, None
        if ending is not None:
            raise ending
        try:
            row = self._next_row()
        except BaseException:
            self.close()
            raise
        if row is None or self._done:
            self.close()
        if row is None:
            raise StopIteration
        return row

    def __repr__(self) -> str:
        c, row = self.config, self.history[-1] if self.history else {}
        state = f"objective {row['objective']:.6g}, {row['status']}" if row else "not begun"
        workers = f"{c.discipline} on {c.workers} {c.host}"
        return f"<Run of {c.problem}, {c.loss}: {workers}, epoch {row.get('epoch', 0)} of {c.epochs}, {state}>"

    def __enter__(self) -> Self:
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
        model: M = self._case.model(self._keeper.solution, self.config, self.history[-HISTORY_ROWS:])
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
        """Ask the run to end at the next chunk; its last row has the status "interrupted". Safe in a signal handler:
        ``signal.signal(signal.SIGINT, lambda *_: run.stop())``.
        """
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
        if workers > cores and self.config.host not in ("simulator", STREAMS):
            warnings.warn(machine.crowded(workers, cores), HogwildWarning, stacklevel=5)

    def _settle_step(self, header: dict[str, Any]) -> Schedule:
        """The schedule, of the step that is given, saved or chosen with l2; else of one searched for, on the clock."""
        c = self.config
        step = c.step
        if c.schedule != "optimal" and step is None:
            step = header["step"] if header else self.chosen.step if self.chosen else None
            if step is None:
                search = self._case.search_step()
                with self.stopwatch("step"):
                    step, fields = search()
                self._first_fields |= fields
            self.config = c.settled(step=step)
        more = {"l2": c.l2, "dloss": self._case.slope(), "tol": c.tol}
        return make_schedule(c.schedule, step, decay=c.falls_by, power=c.power, **more)

    def _restore(self, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
        engine, keeper, epochs = self.engine, self._keeper, self.config.epochs
        self._job.restore(arrays["flat"])
        for name, array in self._job.kept().items():
            array[...] = arrays[name]
        engine.restore(header)
        self._schedule.restore(header["schedule"])
        keeper.restore(arrays, header)
        self._began -= header["wall_seconds"]
        self._setup = header["setup_seconds"]
        self._identity["run"] = header["run"]
        self.history = header["history"]
        if epochs > header["config"]["epochs"] and keeper.enough(self.history):
            keeper.start = engine.epoch
        if engine.epoch >= epochs or (not engine.chunk and keeper.enough(self.history)):
            self.history[-1] = header["last"]
            self.close()

    def _save(self, row: dict[str, Any]) -> None:
        """Save the run; ``row`` is the last one as it was before the model was chosen."""
        if self.checkpoint is None:
            return
        kept, arrays = self._keeper.state()
        header = {
            "config": self.requested.to_json(),
            "step": self.config.step,
            "run": self._identity["run"],
            "fingerprint": self._case.fingerprint,
            **self.engine.state(),
            **self._case.cut(),
            "wall_seconds": time.perf_counter() - self._began,
            "setup_seconds": self._setup,
            "schedule": self._schedule.state(),
            "history": [*self.history[:-1], row],
            "last": self.history[-1],
            **kept,
        }
        arrays |= {"flat": self._job.export(), **self._job.kept()}
        save_checkpoint(self.checkpoint, in_numbering(self._case, arrays, users=True), header)

    # ---- the loop

    def _next_row(self) -> dict[str, Any] | None:
        """The next row of measurements; None when there is none."""
        if self._done or self.engine.ended:
            return None
        if self.history:
            self._train()
            if self._done or self.engine.pool.closed:
                return None
        case, leader = self._case, self._leader
        with self.stopwatch("evaluation"):
            solution = case.solution(self._job.export())
            measures = self._keeper.measure(solution) if leader is None else leader.evaluate(case, solution)
        self.history.append(self._row(measures))
        if len(self.history) == 1:
            self._keeper.take(self.history, solution)
        else:
            self._judge(solution)
        return self.history[-1]

    def _train(self) -> None:
        """Have the workers do epochs until a row is due, or they are stopped."""
        engine, c = self.engine, self.config
        if self._setup is None:
            self._setup = time.perf_counter() - self._began
        while engine.advance(self._schedule.plan(engine.epoch)):
            if self._keeper.mean is not None:
                self._keeper.follow(self._job.export(), engine.epoch)
            if engine.epoch % c.evaluate_every == 0 or engine.epoch >= c.epochs or engine.stopping:
                return

    def _judge(self, solution: Solution) -> None:
        """Say what became of the epoch in its row, decide whether the run goes on, choose a model, and save both."""
        engine, keeper, history = self.engine, self._keeper, self.history
        stopping = engine.stopping  # read once: a later request gets a row that says so
        *past, row = history
        if has_diverged(row["objective"], [each["objective"] for each in past[:2]]):
            self._done = True
            self._ending = divergence(self.config, row)
            row.update(status="diverged", kept_epoch=keeper.kept)
            return
        keeper.take(history, solution)
        complete = engine.chunk == 0 and engine.epoch > past[-1]["epoch"]
        if complete:
            before = max((each["epoch"] for each in past if is_whole(each)), default=0)
            self._schedule.observe(row["objective"], engine.epoch - before)
            engine.go_to(engine.epoch)
        ended = engine.epoch >= self.config.epochs or keeper.enough(history)
        self._done = stopping or ended
        if not complete or (stopping and not ended):  # also after a whole epoch, if others were left out
            row["status"] = "interrupted"
        before_finish = dict(row)
        if self._done:
            with self.stopwatch("evaluation"):
                keeper.finish(history, solution)
        try:
            with self.stopwatch("saving"):
                self._save(before_finish)
        except HogwildError as error:  # a full disk: the row and the model are still valid
            self._done = True
            self._ending = error

    def _row(self, measures: dict[str, Any]) -> dict[str, Any]:
        """A row of measurements of what the workers have done since the last one."""
        c = self.config
        engine = self.engine
        epoch = engine.epoch
        begun = epoch if engine.chunk else max(epoch - 1, 0)  # the epoch that this row tells of, from 0
        scale, offset, power = self._schedule.plan(begun)
        traded: dict[str, Any] = dict.fromkeys(("replicas", *TRADED))
        if c.exchange != "none":
            traded = {"replicas": c.replicas} | {name: getattr(engine.sent, name) for name in TRADED}
        row = {
            **self._identity,
            "method": c.discipline if c.exchange == "none" else c.exchange,
            **{name: getattr(c, name) for name in CONFIGURED},
            "step": scale * (max(offset, 1.0) + begun * self._case.n) ** -power,  # at its first row
            "schedule": c.schedule,
            "epoch": epoch if not engine.chunk else round(epoch + engine.chunk / self._job.order.n_chunks, 4),
            "phase": "reported",
            "train_seconds": engine.train_seconds,
            "wall_seconds": time.perf_counter() - self._began,
            "setup_seconds": self._setup,
            **measures,
            **dict.fromkeys(LAST),
            "updates": engine.updates,
            **self._case.speed(engine.updates, engine.nonzeros, engine.seconds),
            **UNMEASURED,
            **engine.pool.measured(),
            **traded,
            "virtual_seconds": engine.sent.virtual_seconds if c.host == "simulator" else None,
            "workers_lost": engine.lost,
            "status": "ok",
        }
        if not self.history:
            row |= machine.machine_fields() | engine.pool.about | self._first_fields
        return row


class Member(Run[Any]):
    """A run's part on a machine that does not lead. It has no rows of measurements: those are machine 0's."""

    def __init__(
        self, examples: Any, test: Any, config: TrainConfig, cluster: Cluster, pool: Pool | None, data: str
    ) -> None:
        from hogwild.machines.agreement import confirm, discipline_for, spanning

        self.stopwatch = Stopwatch("set-up")
        self.cluster = cluster
        self.data = data
        self.history = []
        self._closing = contextlib.ExitStack()
        resolved = resolve(config, len(examples), pool)
        workers = resolved.workers or 1
        with self.stopwatch("waiting"):
            plan = cluster.next_note(0, ("plan",))
        totals = examples.totals if config.own_rows else None
        case: Any = case_of(config.problem)(
            resolved.settled(discipline=discipline_for(plan, workers)), examples, None if totals is None else test
        )
        if totals is None:
            case.recut(plan["cut"])
        else:
            case.make_evaluator()
        self._case = case
        self.config = case.config
        confirm(cluster, case, config, plan)
        inner = pool or start_pool(self.config.host, workers)
        everywhere = spanning(inner, cluster, self.config, case.n, totals=totals)
        self.engine = Engine(case.lay_out, everywhere, pool is None, self.stopwatch, examples=case.n)
        self._closing.callback(self.engine.close)

    @property
    def model(self) -> Any:
        """The model as of the last task; that of machine 0."""
        return self._case.model(self._solution(), self.config, [])

    def _solution(self) -> tuple[Any, ...]:
        return self._case.solution(self.engine.job.export())

    def _next_row(self) -> None:
        """Do what machine 0 says, until it says that the run has ended.

        Raises
        ------
        TrainingError
            If machine 0 is gone.
        """
        from hogwild.machines.own_rows import answer

        case: Any = self._case
        engine = self.engine
        pool: Any = engine.pool
        while not self._done:
            with self.stopwatch("waiting"):
                note = self.cluster.next_note(0, ("task", "evaluate", "end"), lambda: engine.stopping)
            if note["kind"] in ("end", "stopped"):
                pool.finish(note)
                self._done = True
            elif note["kind"] == "evaluate":
                with self.stopwatch("evaluation"):
                    answer(self.cluster, case, note, self._solution())
            else:
                task = pool.follow(note)
                engine.go_to(task.epoch, task.start)
                engine.advance(task.step)


class _Call(TypedDict, total=False):
    checkpoint: str | Path | None
    resume: bool
    pool: Pool | None
    data: str
    cluster: Cluster | None
    report: Callable[[str], None] | None
    holdout: Any  # a share, or rows or ratings


class _LinearCall(_Call, LinearOptions, total=False):
    problem: Literal["linear"]


class _FMCall(_Call, FMOptions, total=False):
    problem: Required[Literal["fm", "ffm"]]


class _CompletionCall(_Call, CompletionOptions, total=False):
    problem: Required[Literal["completion"]]


class _CutsCall(_Call, CutsOptions, total=False):
    problem: Required[Literal["cuts"]]


class _ConfigCall(_Call, total=False):
    config: Required[TrainConfig]


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
        ``workers``, ``host``, ``in_flight`` and ``renumber`` may differ.
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
        holdout = case_of(config.problem).usual_holdout(config, examples) or None
    if holdout is not None:
        examples, holdout = _held_out(examples, holdout, config)
        if test is None:
            test = holdout
        elif config.problem == "completion" or config.own_rows:
            raise UsageError("test and holdout at once are for rows, on one machine: give one of them")
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
    if config.patience is None and config.problem in SPLIT and config.host != "simulator":
        # a count decides, and no clock; short runs are noisy from epoch to epoch, and their epochs cost nothing
        if config.schedule != "adaptive" and examples.nnz * config.epochs >= SHORT_RUN:
            config = config.settled(patience=PATIENCE)
    leader = chosen = None
    stopwatch = Stopwatch("set-up")
    if cluster is not None:
        from hogwild.machines.agreement import Leader
        from hogwild.machines.own_rows import settle

        config = config.replace(machines=cluster.machines)
        if config.own_rows:
            examples, test = settle(cluster, examples, test, config)
        if not cluster.leads:
            return Member(examples, test, config, cluster, pool, data)
        leader = Leader(cluster, examples.totals if config.own_rows else None)
    elif config.machines > 1:
        raise UsageError(f"machines={config.machines}: machines meet first: give cluster=hogwild.gather(...)")
    elif config.l2_path:
        judges = test if held is None and test is examples.held_out else held
        kind: Any = case_of(config.problem)
        from hogwild.kernels import cache

        compiled = cache.compiling_seconds
        with stopwatch("l2"):
            config, chosen = kind.settle(config, examples, checkpoint if resume else None, judges, report)
        compiling = min(cache.compiling_seconds - compiled, stopwatch.spent("l2"))
        stopwatch.add({"compiling": compiling, "l2": -compiling})
        if chosen is not None:
            chosen = replace(chosen, seconds=stopwatch.spent("l2"))
    return Run(examples, test, config, checkpoint, resume, pool, data, None, leader, chosen, held, stopwatch)
