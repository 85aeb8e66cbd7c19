"""Programs that minimise the same objective, as solvers of ``compare/reference/outside.py``, trained from scratch.

``effort`` is a number of epochs, iterations or passes. The clock covers the program's own training call: converting our
arrays to a program's input is off the clock for all, except that VW has no call that trains without reading, so reading
its binary cache is on the clock. Programs that need a step size get equally many trials.
"""

from __future__ import annotations

import dataclasses
import functools
import shutil
import tempfile
import time
import warnings
import weakref
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hogwild.bench.plan import L2
from hogwild.compare.reference.outside import OUTSIDE, Outside
from hogwild.config import TrainConfig
from hogwild.data.rows.container import Rows

STEPS = (0.25, 0.5, 1.0, 2.0, 4.0)
VW_CONSTANT = 11650396  # the index of VW's intercept


class SolverFit(NamedTuple):
    """The result of a fit, and its cost."""

    seconds: float
    coef: np.ndarray  # (width,)
    intercept: float


class Fits:
    """Fits of one program on the same rows, each from scratch."""

    def __init__(self, program: Outside, rows: Rows, loss: str, l2: float = L2) -> None:
        self._make, self._rows = program.make, rows
        self._options: dict[str, Any] = {
            "loss": loss,
            "l2": l2,
            "schedule": "constant",
            "workers": 1,
            "host": "threads",
        }
        self._kept: Any = None  # a solver whose every call trains from scratch

    def __call__(self, effort: int, step: float) -> SolverFit:
        """Train with this effort and step."""
        solver = self._kept or self._make(self._rows, TrainConfig(**self._options, step=step, epochs=effort))
        self._kept = solver if solver.seconds_replace else None
        start = time.perf_counter()
        solver.advance(effort)
        seconds = time.perf_counter() - start - solver.untimed
        coef, intercept = solver.solution()
        return SolverFit(seconds, np.ravel(coef).astype(np.float64), float(np.ravel(intercept)[0]))


class Ours:
    """One worker; what is not on a run's own clock is ``untimed``."""

    seconds_replace, untimed = False, 0.0

    def __init__(self, rows: Rows, config: TrainConfig) -> None:
        self._rows, self._config = rows, config

    def advance(self, epoch: int) -> None:
        from hogwild.training.train import train

        start = time.perf_counter()
        run = train(self._rows, config=self._config)
        self._model = run.finish()
        self.untimed = time.perf_counter() - start - run.history[-1]["train_seconds"]

    def solution(self) -> tuple[np.ndarray, np.ndarray]:
        return self._model.coef_, self._model.intercept_


class SnapML:
    """IBM's Snap ML, with one thread."""

    seconds_replace, untimed = True, 0.0

    def __init__(self, rows: Rows, config: TrainConfig) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # it asks NumPy's old address whether there is AVX2
            import snapml

        self._X, self._y = _matrix(rows)
        self._kind = snapml.LogisticRegression if config.loss == "log" else snapml.SupportVectorMachine
        self._options: dict[str, Any] = {} if config.loss == "log" else {"loss": "hinge"}
        self._options |= {"regularizer": config.l2 * len(rows), "n_jobs": 1, "tol": 1e-12, "fit_intercept": True}

    def advance(self, epoch: int) -> None:
        self._model = self._kind(max_iter=epoch, **self._options)
        self._model.fit(self._X, self._y)

    def solution(self) -> tuple[np.ndarray, np.ndarray]:
        return self._model.coef_, self._model.intercept_


class VowpalWabbit:
    """VW with its defaults, from its binary cache; the text is written and cached off the clock."""

    seconds_replace, untimed = False, 0.0

    def __init__(self, rows: Rows, config: TrainConfig) -> None:
        self._width, self._bits = rows.width, max(18, rows.width.bit_length())
        loss = {"log": "logistic", "hinge": "hinge"}[config.loss]
        self._options = (
            f"--quiet --holdout_off -b {self._bits} --loss_function {loss} --l2 {config.l2} -l {config.step}"
        )
        self._options += f" -d {(path := vw_text(rows))} --cache_file {path}.{loss}.bin"
        self.advance(1)  # makes the cache
        self.solution()

    def advance(self, epoch: int) -> None:
        from vowpalwabbit import Workspace

        self._solver = Workspace(f"{self._options} --passes {epoch}")

    def solution(self) -> tuple[np.ndarray, np.ndarray]:
        coef = np.array([self._solver.get_weight(feature) for feature in range(self._width)])
        intercept = self._solver.get_weight(VW_CONSTANT & (2**self._bits - 1))
        self._solver.finish()
        return coef, np.array([intercept])


SOLVERS = (
    Outside("hogwild", "hogwild", "hogwild", Ours, "shuffled"),
    dataclasses.replace(OUTSIDE["sklearn-sgd"], name="scikit-learn SGD"),
    Outside("snapml", "snapml", "snapml", SnapML, "its own", effort="iterations", steps=False),
    dataclasses.replace(OUTSIDE["liblinear"], name="LIBLINEAR", effort="passes", steps=False),
    Outside("Vowpal Wabbit", "vowpalwabbit", "vowpalwabbit", VowpalWabbit, "file", effort="passes"),
)


@functools.lru_cache(2)
def vw_text(rows: Rows) -> Path:
    """Write the rows as VW reads them; the file goes with the rows."""
    folder = tempfile.mkdtemp(prefix="hogwild-bench-")
    weakref.finalize(rows, shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder, "rows.vw")
    with path.open("w") as file:
        for i, j, y in zip(rows.begin, rows.end, rows.targets):
            pairs = zip(rows.indices[i:j].tolist(), rows.values[i:j].tolist())
            file.write(f"{y:g} | " + " ".join(f"{u}:{x:.7g}" for u, x in pairs) + "\n")
    return path


def _matrix(rows: Rows) -> tuple[Any, np.ndarray]:
    """Return a ``csr_matrix``, since some programs do not know ``csr_array``, and float64 labels."""
    import scipy.sparse

    X, y = rows.to_scipy()
    return scipy.sparse.csr_matrix(X), y.astype(np.float64)
