"""Other programs that minimise the same objective, behind one function each: fit from scratch, with given effort.

``effort`` is an epoch, an iteration or a pass, or for LIBLINEAR, which only takes a tolerance, a step down a ladder of
tolerances. The clock is around the program's own training call: turning our arrays into what a program reads is off it
for all alike, except that VW has no call that trains without reading, so its binary cache is read on the clock.
Whoever needs a step size gets the same number of trials.
"""

from __future__ import annotations

import shutil
import tempfile
import time
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hogwild.compare.outside import SGD_LOSSES, installed
from hogwild.data.examples import Rows

STEPS = (0.25, 0.5, 1.0, 2.0, 4.0)
VW_CONSTANT = 11650396  # where VW keeps its intercept


class Fitted(NamedTuple):
    """What came out, and what it took."""

    seconds: float
    coef: np.ndarray  # (width,)
    intercept: float


Fit = Callable[[int, float], Fitted]  # (effort, step) -> a model trained from scratch


@dataclass(frozen=True)
class Solver:
    """One row of the table below; ``make(rows, loss, l2)`` prepares the data and returns the fit."""

    name: str
    module: str  # whose presence decides
    package: str  # as pip knows it
    effort: str  # what it counts
    order: str  # in which it takes the rows
    make: Callable[[Rows, str, float], Fit]
    steps: tuple[float, ...] = (1.0,)  # tried; one where there is no such thing

    @property
    def version(self) -> str | None:
        """None if it is not installed."""
        return installed(self.module, self.package)


def hogwild(rows: Rows, loss: str, l2: float) -> Fit:
    """Ours, one worker, constant step."""
    from hogwild.training import train

    def fit(effort: int, step: float) -> Fitted:
        run = train(rows, loss=loss, l2=l2, step=step, schedule="constant", epochs=effort, workers=1)
        model = run.finish()
        return Fitted(run.history[-1]["train_seconds"], model.coef_.ravel(), float(np.ravel(model.intercept_)[0]))

    return fit


def sgd_classifier(rows: Rows, loss: str, l2: float) -> Fit:
    """scikit-learn's, with its shuffle."""
    from sklearn.linear_model import SGDClassifier

    X, y = rows.to_scipy()

    def fit(effort: int, step: float) -> Fitted:
        solver = SGDClassifier(
            loss=SGD_LOSSES[loss], alpha=l2, learning_rate="constant", eta0=step, max_iter=effort, tol=None,
            random_state=0,
        )  # fmt: skip
        return _timed(lambda: solver.fit(X, y), lambda: (solver.coef_, solver.intercept_))

    return fit


def liblinear(rows: Rows, loss: str, l2: float) -> Fit:
    """LIBLINEAR by its own Python face: dual coordinate descent, down a ladder of tolerances."""
    from liblinear.liblinear import parameter, problem
    from liblinear.liblinearutil import train

    X, y = _matrix(rows)
    data, kind = problem(y, X), {"log": 7, "hinge": 3}[loss]

    def fit(effort: int, step: float) -> Fitted:
        tolerance = 4.0 / 2**effort
        options = parameter(f"-s {kind} -c {1 / (l2 * len(rows)):.9g} -e {tolerance:.9g} -B 1 -q")
        start = time.perf_counter()
        model = train(data, options)
        seconds = time.perf_counter() - start
        coef, intercept = model.get_decfun()
        sign = float(model.get_labels()[0])  # the class that its weights speak for
        return Fitted(seconds, _padded(sign * np.asarray(coef), rows.width), sign * float(intercept))

    return fit


def snapml(rows: Rows, loss: str, l2: float) -> Fit:
    """IBM's Snap ML, one thread."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it asks NumPy's old address whether there is AVX2
        import snapml as snap

    X, y = _matrix(rows)

    def fit(effort: int, step: float) -> Fitted:
        options = {"max_iter": effort, "regularizer": l2 * len(rows), "n_jobs": 1, "tol": 1e-12, "fit_intercept": True}
        solver = snap.LogisticRegression(**options) if loss == "log" else snap.SupportVectorMachine(
            loss="hinge", **options)  # fmt: skip
        return _timed(lambda: solver.fit(X, y), lambda: (solver.coef_, solver.intercept_))

    return fit


def vowpal_wabbit(rows: Rows, loss: str, l2: float) -> Fit:
    """VW with its defaults, from its binary cache; the text is written and cached off the clock."""
    from vowpalwabbit import Workspace

    folder = tempfile.mkdtemp(prefix="hogwild-bench-")
    path = Path(folder, "rows.vw")
    with path.open("w") as file:
        for i, j, y in zip(rows.begin, rows.end, rows.targets):
            pairs = zip(rows.indices[i:j].tolist(), rows.values[i:j].tolist())
            file.write(f"{y:g} | " + " ".join(f"{u}:{x:.7g}" for u, x in pairs) + "\n")
    bits = max(18, rows.width.bit_length())
    names = {"log": "logistic", "hinge": "hinge"}
    usual = f"--quiet --holdout_off -b {bits} --loss_function {names[loss]} --l2 {l2} -d {path} --cache_file {path}.bin"
    Workspace(f"{usual} --passes 1").finish()

    def fit(effort: int, step: float) -> Fitted:
        start = time.perf_counter()
        solver = Workspace(f"{usual} --passes {effort} -l {step}")
        seconds = time.perf_counter() - start
        coef = np.array([solver.get_weight(feature) for feature in range(rows.width)])
        intercept = solver.get_weight(VW_CONSTANT & (2**bits - 1))
        solver.finish()
        return Fitted(seconds, coef, intercept)

    weakref.finalize(fit, shutil.rmtree, folder, ignore_errors=True)
    return fit


SOLVERS = (
    Solver("hogwild", "hogwild", "hogwild", "epochs", "shuffled", hogwild, STEPS),
    Solver("scikit-learn SGD", "sklearn", "scikit-learn", "epochs", "shuffled", sgd_classifier, STEPS),
    Solver("snapml", "snapml", "snapml", "iterations", "its own", snapml),
    Solver("LIBLINEAR", "liblinear", "liblinear-official", "halvings of the tolerance", "its own", liblinear),
    Solver("Vowpal Wabbit", "vowpalwabbit", "vowpalwabbit", "passes", "file", vowpal_wabbit, STEPS),
)


def _timed(train: Callable[[], object], result: Callable[[], tuple[Any, Any]]) -> Fitted:
    start = time.perf_counter()
    train()
    seconds = time.perf_counter() - start
    coef, intercept = result()
    return Fitted(seconds, np.ravel(coef).astype(np.float64), float(np.ravel(intercept)[0]))


def _matrix(rows: Rows) -> tuple[Any, np.ndarray]:
    """A ``csr_matrix``, which some know rather than ``csr_array``, and float64 labels."""
    import scipy.sparse

    X, y = rows.to_scipy()
    return scipy.sparse.csr_matrix(X), y.astype(np.float64)


def _padded(coef: np.ndarray, width: int) -> np.ndarray:
    """With zeros for the features past the last one that was seen."""
    return np.concatenate((coef[:width], np.zeros(max(0, width - len(coef)))))
