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
(``seconds_replace``), at doubling numbers of passes: all points cost twice the last. Every run begins by copying the
data to LIBLINEAR's own format, a cost that no other method has on the clock; it is measured once (``untimed``).

Cornac's matrix factorisation gets the ratings in the units of our own kernel (mean 0, deviation 1), our initial factors
and the step of our schedule for each epoch, so both minimise one objective from one start. ``MF`` continues from
parameters it is given, so one call can be one epoch; copying the values at every call is timed once (``untimed``). No
seed is set, because with a seed it uses one thread. It processes the ratings in the order of the data in every epoch,
since it has no other order.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import shutil
import tempfile
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hogwild.config import TrainConfig
from hogwild.data.ratings.container import Ratings
from hogwild.data.rows.container import Rows
from hogwild.data.rows.margins import scaled
from hogwild.errors import UsageError
from hogwild.machine import worker_counts
from hogwild.methods import SGD_LOSSES
from hogwild.problems.linear.problem import LinearProblem
from hogwild.problems.linear.rows import row_weights
from hogwild.training.schedule import make_schedule

LIBLINEAR_LOSSES = ("log", "hinge", "squared-hinge", "epsilon-insensitive", "squared-epsilon-insensitive")
SCHEDULES = ("auto", "constant", "epoch", "round")  # those with a constant step within an epoch
INDEX_LIMIT = 2**31  # most nonzeros that scikit-learn's solvers can count
VW_CONSTANT = 11650396  # the index of VW's intercept
SHORTEST = 1e-6  # seconds: what is subtracted from the clock varies by more, and zero has no logarithm
COPIES = 5  # the fastest is ``untimed``, which no run can undercut


class Solver(Protocol):
    """Another program's solver on given data.

    Attributes
    ----------
    seconds_replace : bool
        The seconds of the last ``advance`` alone are those of all epochs so far; otherwise those of all calls are
        added.
    untimed : float
        Seconds of every ``advance`` that are not training, to be subtracted from the clock.
    """

    seconds_replace: bool
    untimed: float

    def advance(self, epoch: int) -> None:
        """Train until ``epoch`` passes over the data are done in total."""

    def solution(self) -> tuple[np.ndarray, ...]:
        """Return the problem's arrays after the last ``advance``: for the linear problem ``(coef, intercept)``,
        (width,) and (1,), or (K, width) and (K,); for completion factors and biases, in the user's units.
        """


@dataclass(frozen=True)
class Outside:
    """One program: a row of the table ``OUTSIDE``.

    Attributes
    ----------
    name, package : str
        Name of the method; its package on PyPI.
    make : class of a Solver, of (rows, config)
        It is made at its start, with the data in its own form; off the clock.
    refuse : function of (config, rows)
        Returns what it cannot do of this, in one sentence; None if it can. The step is ignored.
    order : str
        The order in which it takes the rows.
    steps : bool
        Whether it has a step size.
    """

    name: str
    package: str
    make: type[Any]
    refuse: Callable[[TrainConfig, Any], str | None]
    order: str
    steps: bool = True

    @property
    def version(self) -> str | None:
        """Return its version; None if it is not installed."""
        return installed(self.package)

    def refusal(self, config: TrainConfig, rows: Any) -> str | None:
        """Return why it cannot take part, in one sentence; None if it can."""
        if self.version is None:
            return f"{self.name} is not installed (pip install {self.package})"
        return self.refuse(config, rows)

    def epochs(self, most: int) -> Sequence[int]:
        """Return the epochs at which it is sampled; few if it trains from scratch each time."""
        return worker_counts(most) if self.make.seconds_replace else range(1, most + 1)


def timed(solver: Solver, epoch: int) -> float:
    """Let the solver advance; return the seconds that count."""
    began = time.perf_counter()
    solver.advance(epoch)
    return max(time.perf_counter() - began - solver.untimed, SHORTEST)


def installed(package: str) -> str | None:
    """Return the version of a package; None if it is not installed."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


# ---- scikit-learn's SGD


class SklearnSGD:
    """``SGDClassifier`` (for more than two classes: one against the rest) or ``SGDRegressor``, in float32."""

    seconds_replace, untimed = False, 0.0

    def __init__(self, rows: Rows, config: TrainConfig) -> None:
        from sklearn.linear_model import SGDClassifier, SGDRegressor

        if config.step is None:
            raise UsageError("sklearn-sgd has no rule for its first step here: give a step")
        self.problem = LinearProblem.of(config, rows, "serial")
        self.schedule = make_schedule(config.schedule, config.step, decay=config.decay)
        self.X, self.y, self.weights = _matrix(rows, config, np.float32)
        alpha = config.l1 + config.l2
        self.epoch = 0
        kind = SGDClassifier if self.problem.labels else SGDRegressor
        self.solver: Any = kind(
            loss=SGD_LOSSES[config.loss],
            penalty="elasticnet" if config.l1 else "l2" if config.l2 else None,
            alpha=alpha,
            l1_ratio=config.l1 / alpha if config.l1 else 0.0,
            fit_intercept=config.intercept,
            epsilon=self.problem.loss_param,
            shuffle=config.order == "shuffled",
            learning_rate="constant",
            eta0=config.step,
            random_state=np.random.RandomState(np.random.MT19937(config.seed)),
        )
        self.classes = {"classes": np.array(self.problem.labels, np.float32)} if self.problem.labels else {}
        self.overflown = False

    def advance(self, epoch: int) -> None:
        import sklearn

        with sklearn.config_context(assume_finite=True, skip_parameter_validation=True):
            while self.epoch < epoch and not self.overflown:
                self.solver.eta0 = self.schedule.plan(self.epoch)[0]
                try:
                    self.solver.partial_fit(self.X, self.y, sample_weight=self.weights, **self.classes)
                except ValueError as error:
                    if "overflow" not in str(error):
                        raise
                    self.overflown = True  # the parameters show it, as for all methods that diverge
                self.epoch += 1

    def solution(self) -> tuple[np.ndarray, np.ndarray]:
        K = self.problem.classes
        shape = (self.problem.width,) if K == 1 else (K, self.problem.width)
        if self.overflown:
            return np.full(shape, np.nan), np.full(K, np.nan)
        if self.epoch == 0:
            return np.zeros(shape), np.zeros(K)
        return self.solver.coef_.reshape(shape).copy(), np.array(self.solver.intercept_).reshape(K)


def _refuse_sgd(config: TrainConfig, rows: Rows) -> str | None:
    if config.loss not in SGD_LOSSES:
        return f"scikit-learn's SGD has no loss {config.loss}"
    if config.adagrad:
        return "scikit-learn's SGD has no adagrad"
    return _unknown_steps("scikit-learn's SGD", config) or _too_many(rows)


# ---- LIBLINEAR


class Liblinear:
    """scikit-learn's bundled LIBLINEAR, dual coordinate descent; the intercept is the weight of a feature of ones.

    This weight is penalised like all others, which moves the optimum by ``l2/2 b^2`` at most: 1e-5 or less at the usual
    l2. A larger value of the feature would be penalised less, but dual coordinate descent then hardly moves: after 100
    passes over 20,000 rows of text it is at 0.0416 with ones and at 0.32 with tens (optimum: 0.0416).
    """

    seconds_replace = True

    def __init__(self, rows: Rows, config: TrainConfig) -> None:
        self.problem = LinearProblem.of(config, rows, "serial")
        self.X, self.y, self.weights = _matrix(rows, config, np.float64)
        self.model = self.kind(config)(
            C=1.0 / (config.l2 * len(rows)),
            fit_intercept=config.intercept,
            intercept_scaling=1.0,
            dual=True,
            tol=1e-300,
            random_state=config.seed % 2**32,
        )
        self.passes = 0
        self.untimed = 0.0
        self.untimed = min(self._seconds(0) for _ in range(COPIES))

    def advance(self, epoch: int) -> None:
        import sklearn

        self.passes = epoch
        self.model.max_iter = epoch
        with warnings.catch_warnings(), sklearn.config_context(assume_finite=True, skip_parameter_validation=True):
            warnings.simplefilter("ignore")  # not converged, as requested
            self.model.fit(self.X, self.y, sample_weight=self.weights)

    def solution(self) -> tuple[np.ndarray, np.ndarray]:
        if self.passes == 0:
            return np.zeros(self.problem.width), np.zeros(1)
        return np.ravel(self.model.coef_).copy(), np.array(self.model.intercept_, dtype=np.float64).reshape(1)

    def _seconds(self, passes: int) -> float:
        """Processor time, which other programs do not stretch: what is taken off a fit must not exceed it."""
        start = time.thread_time()
        self.advance(passes)
        return time.thread_time() - start

    def kind(self, config: TrainConfig) -> Callable[..., Any]:
        """Return the estimator of scikit-learn that minimises this loss by LIBLINEAR."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.svm import LinearSVC, LinearSVR

        loss = config.loss.replace("-", "_")
        if loss == "log":
            return functools.partial(LogisticRegression, solver="liblinear")
        if self.problem.labels:
            return functools.partial(LinearSVC, loss=loss)
        return functools.partial(LinearSVR, loss=loss, epsilon=self.problem.loss_param)


def _refuse_liblinear(config: TrainConfig, rows: Rows) -> str | None:
    if config.loss not in LIBLINEAR_LOSSES:
        return f"LIBLINEAR has no loss {config.loss}"
    if config.l1 > 0 or config.l2 == 0:
        return "LIBLINEAR's dual coordinate descent needs l2 > 0, and has no l1 penalty"
    if config.loss in ("log", "hinge", "squared-hinge") and len(np.unique(rows.targets)) > 2:
        return (
            "LIBLINEAR solves one class after the other, so with more than two there is no state after so many passes"
        )
    return _too_many(rows)


# ---- Snap ML and Vowpal Wabbit


class SnapML:
    """IBM's Snap ML, with one thread; every call trains from scratch."""

    seconds_replace, untimed = True, 0.0

    def __init__(self, rows: Rows, config: TrainConfig) -> None:
        import scipy.sparse

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # it asks NumPy's old address whether there is AVX2
            import snapml

        X, y = rows.to_scipy()
        self._data = scipy.sparse.csr_matrix(X), y.astype(np.float64)  # it does not know csr_array
        self._kind = snapml.LogisticRegression if config.loss == "log" else snapml.SupportVectorMachine
        self._options: dict[str, Any] = {} if config.loss == "log" else {"loss": "hinge"}
        self._options |= {"regularizer": config.l2 * len(rows), "n_jobs": 1, "tol": 1e-12}
        self._options["fit_intercept"] = config.intercept

    def advance(self, epoch: int) -> None:
        self._model = self._kind(max_iter=epoch, **self._options)
        self._model.fit(*self._data)

    def solution(self) -> tuple[np.ndarray, np.ndarray]:
        return np.ravel(self._model.coef_), np.ravel(self._model.intercept_)


class VowpalWabbit:
    """VW with its defaults, from its binary cache; the text is written and cached off the clock.

    VW has no call that trains without reading, so reading the cache is on the clock. Every call trains from scratch.
    """

    seconds_replace, untimed = True, 0.0

    def __init__(self, rows: Rows, config: TrainConfig) -> None:
        self._width = rows.width
        self._bits = max(18, rows.width.bit_length())
        loss = {"log": "logistic", "hinge": "hinge"}[config.loss]
        path = vw_text(rows)
        self._options = (
            f"--quiet --holdout_off -b {self._bits} --loss_function {loss} --l2 {config.l2} -l {config.step}"
            f" -d {path} --cache_file {path}.{loss}.bin"
        )
        self.advance(1)  # makes the cache
        self.solution()

    def advance(self, epoch: int) -> None:
        from vowpalwabbit import Workspace

        self._solver = Workspace(f"{self._options} --passes {epoch}")

    def solution(self) -> tuple[np.ndarray, np.ndarray]:
        coef = np.array([self._solver.get_weight(feature) for feature in range(self._width)])
        intercept = self._solver.get_weight(VW_CONSTANT & (2**self._bits - 1))
        # By l2, which it applies when it predicts and not to the weights.
        shrunk = self._solver.predict("| ") / intercept if intercept else 1.0
        self._solver.finish()
        return shrunk * coef, np.array([shrunk * intercept])


@functools.lru_cache(2)
def vw_text(rows: Rows) -> Path:
    """Write the rows as VW reads them; the file goes with the rows."""
    folder = tempfile.mkdtemp(prefix="hogwild-vw-")
    weakref.finalize(rows, shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder, "rows.vw")
    highest = rows.targets.max()
    with path.open("w") as file:
        for i, j, y in zip(rows.begin, rows.end, rows.targets):
            pairs = zip(rows.indices[i:j].tolist(), rows.values[i:j].tolist())
            file.write(f"{1 if y == highest else -1} | " + " ".join(f"{u}:{x:.7g}" for u, x in pairs) + "\n")
    return path


def _refuse_plain(config: TrainConfig, rows: Rows) -> str | None:
    """Refuse all but two classes, unweighted and unscaled, with the log or the hinge loss and l2."""
    if config.loss not in ("log", "hinge") or config.l1 or not config.l2 or len(np.unique(rows.targets)) != 2:
        return "it is given two classes, the log or the hinge loss, and l2"
    if config.normalize != "none" or row_weights(rows, config.class_weight) is not None:
        return "it is given rows as they are: without weights and normalize"
    return None


# ---- cornac


class CornacMF:
    """``cornac.models.MF`` on its CPU backend."""

    seconds_replace, untimed = False, 0.0

    def __init__(self, ratings: Ratings, config: TrainConfig) -> None:
        from cornac.data import Dataset
        from cornac.models import MF

        from hogwild.problems.completion.case import CompletionCase

        alone = dataclasses.replace(config, workers=1, discipline="serial")
        self.problem = CompletionCase(alone, ratings, None).problem
        self.make = MF
        self.schedule = make_schedule(config.schedule, config.step or 0.0, decay=config.decay)
        self.options: dict[str, Any] = {
            "k": config.rank,
            "lambda_reg": config.l2,
            "use_bias": config.biases,
            "num_threads": config.workers or 1,
            "seed": None,
            "backend": "cpu",
            "verbose": False,
        }
        values = self.problem.encode(ratings.values)
        triples = ratings.users.astype(np.int64), ratings.items.astype(np.int64), values
        self.data = Dataset(*ratings.shape, {}, {}, triples)
        self.data.global_mean = 0.0  # exact up to rounding; our mean is left out of the values
        flat = np.zeros(self.problem.size, np.float32)  # the start is that of our own methods
        self.problem.start(flat, config.seed)
        users, items = (np.ascontiguousarray(part) for part in self.problem.factors(flat))
        views = self.problem.parameters(flat)
        self.parameters = {"U": users, "V": items, "Bu": views.user_bias.copy(), "Bi": views.item_bias.copy()}
        self.epoch = 0
        self.untimed = min(self._fit(0, 1.0) for _ in range(COPIES))

    def advance(self, epoch: int) -> None:
        while self.epoch < epoch:
            self._fit(1, self.schedule.plan(self.epoch)[0])
            self.epoch += 1

    def solution(self) -> tuple[np.ndarray, ...]:
        scale = self.problem.scale
        powers = {"U": 0.5, "V": 0.5, "Bu": 1.0, "Bi": 1.0}
        return tuple(scale**power * self.parameters[name] for name, power in powers.items())

    def _fit(self, epochs: int, step: float) -> float:
        """Run ``epochs`` epochs in place; return the seconds they took."""
        model = self.make(max_iter=epochs, learning_rate=step, init_params=self.parameters, **self.options)
        began = time.perf_counter()
        model.fit(self.data)
        return time.perf_counter() - began


def _refuse_cornac(config: TrainConfig, ratings: Ratings) -> str | None:
    if config.loss != "squared-error" or config.penalty != "per-rating":
        return "cornac's matrix factorisation has loss squared-error and penalty per-rating"
    return _unknown_steps("cornac", config)


# ---- common parts


def _matrix(rows: Rows, config: TrainConfig, dtype: Any) -> tuple[Any, np.ndarray, np.ndarray | None]:
    """Return ``(X, y, weights)``: CSR with rows scaled, targets unchanged, combined weights of mean one or None."""
    X, y = rows.to_scipy()
    if config.normalize != "none" or X.dtype != dtype:
        values = scaled(X.data, rows, config.normalize, dtype)
        X = type(X)((values, X.indices, X.indptr), shape=X.shape, copy=False)
    weights = row_weights(rows, config.class_weight)
    return X, y.astype(np.float64 if dtype == np.float64 else np.float32), weights


def _unknown_steps(program: str, config: TrainConfig) -> str | None:
    if config.schedule in SCHEDULES:
        return None
    return f"{program} is given the step of an epoch, and schedule {config.schedule} is not known before it"


def _too_many(rows: Rows) -> str | None:
    if rows.nnz >= INDEX_LIMIT:
        return f"scikit-learn's solvers take fewer than {INDEX_LIMIT:,} nonzeros, and the data have {rows.nnz:,}"
    return None


OUTSIDE: dict[str, Outside] = {
    entry.name: entry
    for entry in (
        Outside("sklearn-sgd", "scikit-learn", SklearnSGD, _refuse_sgd, "shuffled"),
        Outside("liblinear", "scikit-learn", Liblinear, _refuse_liblinear, "its own", steps=False),
        Outside("snapml", "snapml", SnapML, _refuse_plain, "its own", steps=False),
        Outside("vowpal-wabbit", "vowpalwabbit", VowpalWabbit, _refuse_plain, "file"),
        Outside("cornac", "cornac", CornacMF, _refuse_cornac, "file"),
    )
}
