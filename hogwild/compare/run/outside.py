"""Other programs as methods of a comparison: solvers driven from one evaluation to the next.

A solver does only its own work in ``advance``, which is what the clock measures, and is judged by its parameters alone,
like our own methods. If it cannot minimise the same objective, or do the same work, it refuses in one sentence, which
appears in the results.

scikit-learn's SGD is ``partial_fit``, one epoch per call, with our schedule and its own shuffle (a *generator* as
random state: a number would give every epoch the same order). Input checks are off, because they are not training. Its
l1 penalty is lazy, and at the end of a call it forgets the penalty owed by features since they were last seen: rare
ones are shrunk too little, which costs less than the remaining step does (sub-optimality 0.0056 after 40 epochs where
ours is at 0.0026).

LIBLINEAR cannot continue: it trains from zero for a given number of passes. With tolerance 0 and one seed a run of 2k
passes goes through the state that k passes leave, so each point on its curve is a separate run with its own time
(``restarts``), at doubling numbers of passes: all points cost twice the last. Every run begins by copying the data to
LIBLINEAR's own format, a cost that no other method has on the clock of training; it is measured once (``idle``).

LIBMF is a command that reads the ratings' text anew for each point. Its objective is ours with loss squared-error,
penalty per-rating and no biases, on ratings of mean 0 and deviation 1: its lambda counts at each visit of a rating, as
our l2 does. The step is only its first; later ones fall by a rule of its own, and its first epoch trains eight numbers
of each factor. It prints a line when training begins and one an epoch, so reading and writing are not on that clock.

implicit's BPR is ours but for the items that it sets beside a chosen one: it draws them by popularity, where ours are
uniform. That is another objective (``own_objective``), so its distance is not shown; its metric and seconds are.

Cornac's matrix factorisation gets the ratings in the units of our own kernel (mean 0, deviation 1), our initial factors
and the step of our schedule for each epoch, so both minimise one objective from one start. ``MF`` continues from
parameters it is given, so one call can be one epoch; copying the values at every call is timed once (``idle``). No
seed is set, because with a seed it uses one thread. It processes the ratings in the order of the data in every epoch,
since it has no other order.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import timeit
import warnings
import weakref
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.config import TrainConfig
from hogwild.data.ratings.container import Ratings
from hogwild.data.rows.container import Rows
from hogwild.data.rows.margins import scaled
from hogwild.errors import TrainingError
from hogwild.machine import memory_of, worker_counts
from hogwild.methods import SGD_LOSSES
from hogwild.problems.completion.problem import CompletionProblem
from hogwild.problems.completion.training import posed
from hogwild.problems.linear.problem import LinearProblem
from hogwild.problems.linear.rows import row_weights
from hogwild.training.schedule import make_schedule

LIBLINEAR_LOSSES = ("log", "hinge", "squared-hinge", "epsilon-insensitive", "squared-epsilon-insensitive")
SCHEDULES = ("auto", "constant", "epoch", "round")  # those with a constant step within an epoch
VW_CONSTANT = 11650396  # the index of VW's intercept
COPIES = 5  # the fastest is ``untimed``, which no run can undercut


class Program:
    """Another program's solver on given data. It is made off the clock, with the data in its own form.

    Attributes
    ----------
    name, package : str
        Name of the method; its package on PyPI, or, of a command on the PATH, where its source is.
    command : str
        The command, if it is one.
    problem : str
        The problem that it solves.
    threads : bool
        Whether it can have several, which share one model.
    steps : bool
        Whether it has a step size.
    restarts : bool
        Every ``advance`` trains from the start, so its seconds alone are those of all epochs so far.
    own_objective : str
        Why its distance from the optimum means nothing, in a sentence; empty if it minimises what we minimise.
    untimed : float
        Seconds of every ``advance`` that are not training, to be subtracted from the clock of training.
    limit : float
        Seconds of silence after which a command is ended, as it must not keep the others waiting; it prints a line when
        its data are read, and one an epoch.
    peak : float, optional
        The most memory, in MB, of the process that it runs in, if that is its own.
    """

    name: str
    package: str = "scikit-learn"
    command: str = ""
    problem: str = "linear"
    threads: bool = False
    steps: bool = True
    restarts: bool = False
    own_objective: str = ""
    untimed: float = 0.0
    limit: float = 600.0
    peak: float | None = None

    write: Callable[[Any, Path], None] | None = None  # writes the data as it reads them, if it reads them itself

    def __init__(self, rows: Any, config: TrainConfig) -> None: ...

    @staticmethod
    def refuse(config: TrainConfig, rows: Any) -> str | None:
        """Return what it cannot do of this, in one sentence; None if it can. The step is ignored."""
        raise NotImplementedError

    @classmethod
    def text(cls, rows: Any) -> Path | None:
        """Return the file that it reads, which is written off every clock: its users have their data like that."""
        return cls.write and _written(rows, cls.write)

    def idle(self) -> float:
        """Measure, before the first ``advance``, how many seconds of each are not training: processor time, which other
        programs do not stretch, as what is taken off must not exceed it.
        """
        return min(timeit.repeat(self.do_nothing, timer=time.thread_time, repeat=COPIES, number=1))

    def do_nothing(self) -> None:
        """Do what every ``advance`` does besides training."""

    def advance(self, epoch: int) -> None:
        """Train until ``epoch`` passes over the data are done in total."""
        raise NotImplementedError

    def solution(self) -> tuple[np.ndarray, ...]:
        """Return the problem's arrays after the last ``advance``: for the linear problem ``(coef, intercept)``,
        (width,) and (1,), or (K, width) and (K,); for completion factors and biases, in the user's units.
        """
        raise NotImplementedError

    @classmethod
    def version(cls) -> str | None:
        """Return its version, or the place of a command; None if it is not installed."""
        if cls.command:
            return shutil.which(cls.command)
        try:
            return metadata.version(cls.package)
        except metadata.PackageNotFoundError:
            return None

    @classmethod
    def refusal(cls, config: TrainConfig, rows: Any) -> str | None:
        """Return why it cannot take part, in one sentence; None if it can."""
        if cls.version() is None:
            there = f"{cls.command} on the PATH: build" if cls.command else "to be installed: pip install"
            return f"{cls.name} needs {there} {cls.package}"
        if any(getattr(rows, name, None) is not None for name in ("labels", "features")):
            return f"{cls.name} is given one label a row, and no side features"
        return cls.refuse(config, rows)

    @classmethod
    def epochs(cls, most: int) -> Sequence[int]:
        """Return the epochs at which it is sampled; few if it trains from scratch each time."""
        return worker_counts(most) if cls.restarts else range(1, most + 1)


class Stepped(Program):
    """A program that is given the step of each epoch."""

    def __init__(self, data: Any, config: TrainConfig) -> None:
        self.schedule = make_schedule(config.schedule, config.step, decay=config.decay)
        self.done = 0  # epochs

    def train(self, step: float) -> None:
        """Train an epoch."""
        raise NotImplementedError

    def advance(self, epoch: int) -> None:
        for done in range(self.done, epoch):
            self.train(self.schedule.plan(done)[0])
        self.done = epoch


class SklearnSGD(Stepped):
    """``SGDClassifier`` (for more than two classes: one against the rest) or ``SGDRegressor``, in float32."""

    name = "sklearn-sgd"

    def __init__(self, rows: Rows, config: TrainConfig) -> None:
        super().__init__(rows, config)
        from sklearn.linear_model import SGDClassifier, SGDRegressor

        problem = LinearProblem.of(config, rows, "serial")
        self.shape = (problem.classes, problem.width) if problem.classes > 1 else (problem.width,)
        self.data = _matrix(rows, config, np.float32)
        self.classes = {"classes": np.array(problem.labels, np.float32)} if problem.labels else {}
        alpha = config.l1 + config.l2
        self.solver: Any = (SGDClassifier if problem.labels else SGDRegressor)(
            loss=SGD_LOSSES[config.loss],
            penalty="elasticnet" if config.l1 else "l2" if config.l2 else None,
            alpha=alpha,
            l1_ratio=config.l1 / alpha if config.l1 else 0.0,
            fit_intercept=config.intercept,
            epsilon=problem.loss_param,
            shuffle=config.order == "shuffled",
            learning_rate="constant",
            random_state=np.random.RandomState(np.random.MT19937(config.seed)),
        )

    @staticmethod
    def refuse(config: TrainConfig, rows: Rows) -> str | None:
        if config.loss not in SGD_LOSSES:
            return f"scikit-learn's SGD has no loss {config.loss}"
        if config.adagrad:
            return "scikit-learn's SGD has no adagrad"
        return _unknown_steps("scikit-learn's SGD", config)

    def train(self, step: float) -> None:
        import sklearn

        X, y, weights = self.data
        self.solver.eta0 = step
        with sklearn.config_context(assume_finite=True, skip_parameter_validation=True):
            self.solver.partial_fit(X, y, sample_weight=weights, **self.classes)

    def solution(self) -> tuple[np.ndarray, np.ndarray]:
        return self.solver.coef_.reshape(self.shape).copy(), np.ravel(self.solver.intercept_).copy()


class Liblinear(Program):
    """scikit-learn's bundled LIBLINEAR, dual coordinate descent; the intercept is the weight of a feature of ones.

    This weight is penalised like all others, which moves the optimum by ``l2/2 b^2`` at most: 1e-5 or less at the usual
    l2. A larger value of the feature would be penalised less, but dual coordinate descent then hardly moves: after 100
    passes over 20,000 rows of text it is at 0.0416 with ones and at 0.32 with tens (optimum: 0.0416).
    """

    name, steps, restarts = "liblinear", False, True

    def __init__(self, rows: Rows, config: TrainConfig) -> None:
        from sklearn.linear_model import LogisticRegression
        from sklearn.svm import LinearSVC, LinearSVR

        problem = LinearProblem.of(config, rows, "serial")
        self.data = _matrix(rows, config, np.float64)
        kind: Callable[..., Any] = functools.partial(LinearSVC, loss=config.loss.replace("-", "_"))
        if config.loss == "log":
            kind = functools.partial(LogisticRegression, solver="liblinear")
        elif not problem.labels:
            kind = functools.partial(LinearSVR, loss=config.loss.replace("-", "_"), epsilon=problem.loss_param)
        self.model = kind(
            C=1.0 / (config.l2 * len(rows)),
            fit_intercept=config.intercept,
            intercept_scaling=1.0,
            dual=True,
            tol=1e-300,
            random_state=config.seed % 2**32,
        )

    @staticmethod
    def refuse(config: TrainConfig, rows: Rows) -> str | None:
        if config.loss not in LIBLINEAR_LOSSES:
            return f"LIBLINEAR has no loss {config.loss}"
        if config.l1 > 0 or config.l2 == 0:
            return "LIBLINEAR's dual coordinate descent needs l2 > 0, and has no l1 penalty"
        if config.loss in ("log", "hinge", "squared-hinge") and len(np.unique(rows.targets)) > 2:
            return "LIBLINEAR solves one class after the other: with more than two there is no state after some passes"
        return None

    def advance(self, epoch: int) -> None:
        import sklearn

        X, y, weights = self.data
        self.model.max_iter = epoch
        with warnings.catch_warnings(), sklearn.config_context(assume_finite=True, skip_parameter_validation=True):
            warnings.simplefilter("ignore")  # not converged, as requested
            self.model.fit(X, y, sample_weight=weights)

    def do_nothing(self) -> None:
        self.advance(0)

    def solution(self) -> tuple[np.ndarray, np.ndarray]:
        return np.ravel(self.model.coef_).copy(), np.ravel(self.model.intercept_).astype(np.float64)


class VowpalWabbit(Program):
    """VW with its defaults, from its binary cache; the text is written and cached off the clock.

    VW has no call that trains without reading, so reading the cache is on the clock.
    """

    name, package, restarts = "vowpal-wabbit", "vowpalwabbit", True

    def __init__(self, rows: Rows, config: TrainConfig) -> None:
        self.width = rows.width
        self.bits = max(18, rows.width.bit_length())
        loss = {"log": "logistic", "hinge": "hinge"}[config.loss]
        path = self.text(rows)
        self.options = (
            f"--quiet --holdout_off -b {self.bits} --loss_function {loss} --l2 {config.l2} -l {config.step}"
            f" -d {path} --cache_file {path}.{loss}.bin"
        )
        self.advance(1)  # makes the cache
        self.solver.finish()

    @staticmethod
    def write(rows: Rows, path: Path) -> None:
        highest = rows.targets.max()
        with path.open("w") as file:
            for i, j, y in zip(rows.begin, rows.end, rows.targets):
                pairs = zip(rows.indices[i:j].tolist(), rows.values[i:j].tolist())
                file.write(f"{1 if y == highest else -1} | " + " ".join(f"{u}:{x:.7g}" for u, x in pairs) + "\n")

    @staticmethod
    def refuse(config: TrainConfig, rows: Rows) -> str | None:
        if config.loss not in ("log", "hinge") or config.l1 or not config.l2 or len(np.unique(rows.targets)) != 2:
            return "it is given two classes, the log or the hinge loss, and l2"
        if config.normalize != "none" or row_weights(rows, config.class_weight) is not None:
            return "it is given rows as they are: without weights and normalize"
        return None

    def advance(self, epoch: int) -> None:
        from vowpalwabbit import Workspace

        self.solver = Workspace(f"{self.options} --passes {epoch}")

    def solution(self) -> tuple[np.ndarray, np.ndarray]:
        coef = np.array([self.solver.get_weight(feature) for feature in range(self.width)])
        intercept = self.solver.get_weight(VW_CONSTANT & (2**self.bits - 1))
        # By l2, which it applies when it predicts and not to the weights.
        shrunk = self.solver.predict("| ") / intercept if intercept else 1.0
        self.solver.finish()
        return shrunk * coef, np.array([shrunk * intercept])


class SnapML(Program):
    """IBM's Snap ML, with one thread."""

    name, package, steps, restarts = "snapml", "snapml", False, True
    refuse = VowpalWabbit.refuse

    def __init__(self, rows: Rows, config: TrainConfig) -> None:
        import scipy.sparse

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # it asks NumPy's old address whether there is AVX2
            import snapml

        X, y = rows.to_scipy()
        self.data = scipy.sparse.csr_matrix(X), y.astype(np.float64)  # it does not know csr_array
        self.options = {"regularizer": config.l2 * len(rows), "n_jobs": 1, "tol": 1e-12}
        self.options["fit_intercept"] = config.intercept
        svm = functools.partial(snapml.SupportVectorMachine, loss="hinge")
        self.kind = snapml.LogisticRegression if config.loss == "log" else svm

    def advance(self, epoch: int) -> None:
        self.model = self.kind(max_iter=epoch, **self.options)
        self.model.fit(*self.data)

    solution = Liblinear.solution


class CornacMF(Stepped):
    """``cornac.models.MF`` on its CPU backend."""

    name, package, problem, threads = "cornac", "cornac", "completion", True

    def __init__(self, ratings: Ratings, config: TrainConfig) -> None:
        from cornac.data import Dataset
        from cornac.models import MF

        super().__init__(ratings, config)
        self.completion, self.parameters = _start(ratings, config)
        triples = ratings.users.astype(np.int64), ratings.items.astype(np.int64), self.completion.encode(ratings.values)
        self.data = Dataset(*ratings.shape, {}, {}, triples)
        self.data.global_mean = 0.0  # exact up to rounding; our mean is left out of the values
        self.make = functools.partial(
            MF,
            k=config.rank,
            lambda_reg=config.l2,
            use_bias=config.biases,
            num_threads=config.workers or 1,
            init_params=dict(zip(("U", "V", "Bu", "Bi"), self.parameters)),
            seed=None,
            backend="cpu",
            verbose=False,
        )

    @staticmethod
    def refuse(config: TrainConfig, ratings: Ratings) -> str | None:
        if config.loss != "squared-error" or config.penalty != "per-rating":
            return "cornac has loss squared-error and penalty per-rating"
        return _unknown_steps("cornac", config)

    def train(self, step: float, epochs: int = 1) -> None:
        self.make(max_iter=epochs, learning_rate=step).fit(self.data)

    def do_nothing(self) -> None:
        self.train(1.0, 0)

    def solution(self) -> tuple[np.ndarray, ...]:
        return self.completion.in_units(self.parameters)


class Libmf(Program):
    """LIBMF's ``mf-train``."""

    name, package, command = "libmf", "https://github.com/cjlin1/libmf", "mf-train"
    problem, threads, restarts = "completion", True, True

    def __init__(self, ratings: Ratings, config: TrainConfig) -> None:
        self.completion = posed(config, ratings, "serial")
        self.users, self.rank = int(ratings.users.max()) + 1, config.rank  # it has none beyond the last that is rated
        path = self.text(ratings)
        options = {"k": config.rank, "l2": config.l2, "r": config.step, "s": config.workers or 1}
        words = [word for name, value in options.items() for word in (f"-{name}", f"{value:.9g}")]
        self.call = ["stdbuf", "-oL", self.command, *words]  # else it keeps its lines until it ends
        self.files = [str(path), f"{path}.model"]

    @staticmethod
    def write(ratings: Ratings, path: Path) -> None:
        import pyarrow
        from pyarrow import csv

        values = CompletionProblem.of(ratings, "serial").encode(ratings.values)
        table = pyarrow.table({"user": ratings.users, "item": ratings.items, "value": values})
        csv.write_csv(table, path, csv.WriteOptions(include_header=False, delimiter=" "))

    @staticmethod
    def refuse(config: TrainConfig, ratings: Ratings) -> str | None:
        if config.loss != "squared-error" or config.penalty != "per-rating" or config.biases:
            return "libmf has loss squared-error, penalty per-rating and no biases (--no-biases)"
        return None

    def advance(self, epoch: int) -> None:
        began = time.perf_counter()
        self.peak, lines = 0.0, [(began, "no output")]  # a heading follows, and a line an epoch
        call = [*self.call, "-t", f"{epoch}", *self.files]
        with subprocess.Popen(call, stdout=subprocess.PIPE, bufsize=0, process_group=0) as run:
            assert run.stdout is not None
            try:
                while select.select([run.stdout], [], [], min(self.limit, threading.TIMEOUT_MAX))[0]:
                    if not (line := run.stdout.readline()):
                        break
                    lines.append((time.perf_counter(), line.decode().strip()))
                    self.peak = max(self.peak, memory_of(run.pid, "status", "VmHWM"))
                else:
                    raise TimeoutError
                run.wait()
            finally:  # Ctrl-C ends it too, and what it has started, if it is a script
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(run.pid, signal.SIGKILL)
        ended, last = lines[-1]
        learned = re.match(r"\d+\s+[\d.]+", last)  # epoch and RMSE, which may be nan: then it writes zeros
        if run.returncode or not learned or not Path(self.files[1]).exists():
            raise TrainingError(f"{self.command} ended with status {run.returncode} and no model: {last}")
        self.untimed = time.perf_counter() - began - (ended - lines[1][0])

    def solution(self) -> tuple[np.ndarray, ...]:
        factors = np.loadtxt(self.files[1], np.float32, skiprows=5, usecols=range(2, 2 + self.rank), ndmin=2)
        sides = [np.zeros((n, self.rank), np.float32) for n in self.completion.rows]
        for side, part in zip(sides, (factors[: self.users], factors[self.users :])):
            side[: len(part)] = part
        return self.completion.in_units([*sides, *(np.zeros(len(side), np.float32) for side in sides)])


class ImplicitBPR(Stepped):
    """``implicit``'s Bayesian personalised ranking; an epoch is as many passes as there are negatives."""

    name, package, problem, threads = "implicit", "implicit", "completion", True
    own_objective = (
        "implicit draws the items beside a chosen one by popularity, ours are uniform: its metric can be compared, not "
        "its distance from the best"
    )

    def __init__(self, ratings: Ratings, config: TrainConfig) -> None:
        import scipy.sparse
        from implicit.cpu.bpr import BayesianPersonalizedRanking

        super().__init__(ratings, config)
        _, (users, items, user_bias, item_bias) = _start(ratings, config)
        pairs = np.ones(len(ratings), np.float32), (ratings.users, ratings.items)
        self.data = scipy.sparse.csr_matrix(pairs, shape=ratings.shape)
        self.model = BayesianPersonalizedRanking(
            factors=config.rank,
            regularization=config.l2,
            iterations=config.negatives,
            num_threads=config.workers or 1,
            random_state=np.random.default_rng(config.seed),  # a number would draw the same in every epoch
        )
        self.model.user_factors = np.column_stack([users, np.ones_like(user_bias)])
        self.model.item_factors = np.column_stack([items, item_bias])

    @staticmethod
    def refuse(config: TrainConfig, ratings: Ratings) -> str | None:
        if config.loss != "bpr" or config.penalty != "per-rating" or not config.biases:
            return "implicit has loss bpr, penalty per-rating and biases of items"
        return _unknown_steps("implicit", config)

    def train(self, step: float) -> None:
        self.model.learning_rate = step
        self.model.fit(self.data, show_progress=False)

    def solution(self) -> tuple[np.ndarray, ...]:
        users, items = self.model.user_factors, self.model.item_factors
        return users[:, :-1].copy(), items[:, :-1].copy(), np.zeros(len(users), np.float32), items[:, -1].copy()


# ---- common parts


@functools.lru_cache(2)
def _written(data: Any, write: Callable[[Any, Path], None]) -> Path:
    """Have the data written to a file that goes with them."""
    folder = tempfile.mkdtemp(prefix="hogwild-outside-")
    weakref.finalize(data, shutil.rmtree, folder, ignore_errors=True)
    write(data, Path(folder, "data"))
    return Path(folder, "data")


def _start(ratings: Ratings, config: TrainConfig) -> tuple[CompletionProblem, list[np.ndarray]]:
    """Return the problem, and the factors and biases that our own methods start from, in its units."""
    problem = posed(config, ratings, "serial")
    flat = np.zeros(problem.size, np.float32)
    problem.start(flat, config.seed)
    return problem, [np.array(part, order="C") for part in problem.views(flat)]


def _matrix(rows: Rows, config: TrainConfig, dtype: Any) -> tuple[Any, np.ndarray, np.ndarray | None]:
    """Return ``(X, y, weights)``: CSR with rows scaled, targets unchanged, combined weights of mean one or None."""
    X, y = rows.to_scipy()
    if config.normalize != "none" or X.dtype != dtype:
        values = scaled(X.data, rows, config.normalize, dtype)
        X = type(X)((values, X.indices, X.indptr), shape=X.shape, copy=False)
    return X, y.astype(dtype), row_weights(rows, config.class_weight)


def _unknown_steps(program: str, config: TrainConfig) -> str | None:
    if config.schedule in SCHEDULES:
        return None
    return f"{program} is given the step of an epoch, and schedule {config.schedule} is not known before it"


OUTSIDE: dict[str, type[Program]] = {
    program.name: program for program in (SklearnSGD, Liblinear, SnapML, VowpalWabbit, CornacMF, Libmf, ImplicitBPR)
}
