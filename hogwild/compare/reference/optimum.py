"""The lowest value of the objective on given rows, the reference for every method of a comparison.

Several independent solvers look for it, and the evaluator of all runs decides: f* is the lowest value of
``Objective.evaluate`` at their solutions. A serial run comes first, and L-BFGS in float64 continues from its end.
Losses with a kink go to LIBLINEAR, whose penalised intercept is then corrected, and through smoothed losses, whose
minima also bound f* from below. This takes the time of a few hundred epochs, once: the value is cached in a directory,
under a hash of everything it depends on.

If a float64 copy of the data does not fit in memory, there is only the serial run, and ``how`` says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from hogwild import machine
from hogwild.compare.reference.gradient import KINKED, Smooth
from hogwild.compare.reference.newton import Newton
from hogwild.compare.reference.outside import liblinear_model
from hogwild.config import TrainConfig
from hogwild.data.rows.container import Rows
from hogwild.errors import HogwildWarning, OutputError, TrainingError
from hogwild.hosts.pool import Pool
from hogwild.model_file import write_atomically
from hogwild.problems.linear.exact.ending import ending_of
from hogwild.problems.linear.exact.improve import improved
from hogwild.problems.linear.objective import Objective
from hogwild.problems.linear.problem import LinearProblem
from hogwild.problems.linear.rows import row_weights
from hogwild.training.checkpoint import fingerprint
from hogwild.training.train import train

VERSION = 1  # version of the cached files
EPOCHS, ALONE = 31, 229  # serial ones, with and without a solver to follow: ends of rounds of the schedule
STALLED = 1e-4  # the serial run ends if a third of the epochs gained less than this share of the way so far
SHARE = 4  # at most one part in this many of the free memory is used
CORRECTIONS, OTHER_VECTORS = (30, 5), 16  # most and fewest pairs that L-BFGS keeps; its other vectors
ITERATIONS = (100, 3000)  # fewest and most of L-BFGS,
SECONDS = 120.0  # within about this time; also for Newton's method
PRECISION, PROVED = 1e-10, 1e-7  # share of the way from the start at which L-BFGS and Newton's method end
ROUNDINGS = (1e-2, 1e-3, 1e-4, 1e-5)  # of kinks for L-BFGS, as shares of the objective at the start
SMOOTHINGS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7)  # and for Newton's method
PASSES = (50, 2_000)  # fewest and most of LIBLINEAR,
WORK = 1 << 33  # entries that exact steps may visit
VISITS = 1e9  # with about this many nonzeros in all: it cannot be interrupted


@dataclass(frozen=True)
class Optimum:
    """The optimum of an objective on some rows.

    Attributes
    ----------
    objective, start : float
        Values at the optimum (None: unknown), and at the parameters that a run starts from.
    how : str
        How it was found, in words.
    coef, intercept : array, shape (width,) or (K, width), and (1,) or (K,), float64
        The solution; None if the optimum was read from the cache.
    seconds : float
        Time it took.
    gap : float or None
        The true minimum is lower by at most about this; None if that is unknown.
    """

    objective: float | None
    start: float
    how: str
    coef: np.ndarray | None
    intercept: np.ndarray | None
    seconds: float
    gap: float | None


def unknown(start: float, why: str) -> Optimum:
    """Return a replacement for an unknown optimum: the lowest objective that any run reaches is used for it."""
    return Optimum(None, start, f"best seen: {why}", None, None, 0.0, None)


def find_optimum(
    rows: Rows,
    config: TrainConfig,
    cache: Path | None = None,
    pool: Pool | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> Optimum:
    """Find the optimum of the objective that ``config`` defines on these rows.

    Parameters
    ----------
    rows : Rows
    config : TrainConfig
        Only the objective counts: loss, penalties, intercept, normalisation and class weights.
    cache : path, optional
        Directory in which optima are cached.
    pool : Pool, optional
        Pool of one worker for the serial run; by default a thread.
    note : callable
        Called with the current step.

    Raises
    ------
    InputError
        If the loss does not fit the targets.
    """
    problem = LinearProblem.of(config, rows, "serial")
    key = _key(rows, config, problem)
    path = None if cache is None else Path(cache) / f"optimum-{_hash(key)}.json"
    if path is not None and (known := _read(path, key)) is not None:
        return known
    began = time.perf_counter()
    search = _Search(rows, config, problem, note)
    with threadpool_limits(1, "blas"):  # for vectors of this size several threads are slower
        search.run(pool)
    found = search.found(time.perf_counter() - began)
    if path is not None:
        _write(path, key, found)
    return found


class _Search:
    """Collects solutions of the solvers and keeps the best."""

    def __init__(self, rows: Rows, config: TrainConfig, problem: LinearProblem, note: Callable[[str], None]) -> None:
        self.rows, self.config, self.problem, self.note = rows, config, problem, note
        self.weights = row_weights(rows, config.class_weight)
        self.objective = Objective(
            rows,
            config.loss,
            problem.loss_param,
            l1=config.l1,
            l2=config.l2,
            normalize=config.normalize,
            labels=problem.labels,
            weights=self.weights,
            width=problem.width,
        )
        self.start = self.best = math.inf
        self.how, self.remarks = "", []  # type: str, list[str]
        self.lower = -math.inf  # lower bound
        self.begun = "zero weights"  # where L-BFGS starts
        shape = () if problem.classes == 1 else (problem.classes,)
        self.coef, self.intercept = np.zeros((*shape, problem.width)), np.zeros(problem.classes)
        self.accuracy: float | None = None
        self.start = self.offer(self.coef, self.intercept, "zero weights")

    def offer(self, coef: np.ndarray, intercept: np.ndarray, how: str) -> float:
        """Record a solution; return its objective."""
        found = self.objective.evaluate(coef, intercept)
        value = found["objective"]
        assert value is not None
        if value < self.best:
            self.best, self.how, self.accuracy = value, how, found.get("accuracy")
            self.coef, self.intercept = np.asarray(coef, np.float64), np.asarray(intercept, np.float64)
        return value

    def found(self, seconds: float) -> Optimum:
        """Return what is known at the end."""
        how = "; ".join([self.how, *self.remarks])
        gap = None if self.lower == -math.inf else max(self.best - self.lower, 0.0)
        return Optimum(self.best, self.start, how, self.coef, self.intercept, seconds, gap)

    def run(self, pool: Pool | None) -> None:
        """Run every solver that suits the problem."""
        if self.config.loss == "perceptron":  # zero weights have its smallest loss, 0
            self.lower = 0.0
            return
        corrections, reason = self._corrections()
        self.serial(pool, ALONE if corrections is None else EPOCHS)
        if corrections is None:
            self.remarks.append(reason)
            return
        self.exact()
        smooth = Smooth(self.rows, self.problem, self.weights, self.config.intercept)
        if self.config.loss in KINKED:
            self.kinked(smooth, corrections)
        else:
            flat, about = self.descend(smooth, corrections, self.iterations(smooth))
            self.offer(*smooth.solution(smooth.settle(flat)), f"L-BFGS from {self.begun} ({about})")
        c = self.config
        if not c.l1 and not c.l2 and self.accuracy == 1.0 and c.loss in ("log", "softmax"):
            self.remarks.append("not attained: the classes are separable and nothing bounds the weights")

    # ---- the solvers

    def serial(self, pool: Pool | None, epochs: int) -> None:
        """Run our own trainer until it stops improving."""
        c = self.config
        pool = pool if pool is not None and pool.workers == 1 else None
        same = ("loss", "loss_param", "l1", "l2", "intercept", "normalize", "class_weight")
        options = {name: getattr(c, name) for name in same} | {"schedule": "round", "epochs": epochs, "workers": 1}
        asked = TrainConfig(discipline="serial", host="threads" if pool is None else pool.host, **options)
        best: list[float] = []
        with train(self.rows, config=asked, pool=pool) as run, contextlib.suppress(TrainingError):  # it diverged
            for row in run:
                self.note(f"serial epoch {row['epoch']} of at most {epochs}")
                if row["objective"] < self.best:
                    self.begun = f"{row['epoch']} serial epochs"
                    self.offer(
                        run.model.coef_[0] if self.coef.ndim == 1 else run.model.coef_, run.model.intercept_, self.begun
                    )
                best.append(self.best)
                t = len(best) - 1
                if t >= 6 and best[t // 3] - best[t] <= STALLED * (self.start - self.best):
                    break

    def exact(self) -> None:
        """Take the exact steps of our own fits from the best solution: they suit columns of very different scales."""
        if self.config.l1 == 0.0:
            ending = ending_of(self.objective, self.objective.rows, self.problem.classes, self.config.intercept)
            found, left = improved(ending, self.coef, self.intercept, self.best, WORK)
            before, how = self.best, f"exact steps from {self.begun}"
            value = self.offer(*found, how)
            self.begun = how if value < before else self.begun
            self.lower = max(self.lower, value * (1.0 - left)) if left else self.lower

    def kinked(self, smooth: Smooth, corrections: int) -> None:
        """Solve hinge and epsilon-insensitive: LIBLINEAR and Newton's method if the only penalty is l2, else L-BFGS."""
        if self.config.l1 == 0.0 and self.config.l2 > 0.0:
            self.dual(smooth)
            self.newton(smooth)
            return
        for share in ROUNDINGS:
            smooth.mu = share * self.start
            flat, about = self.descend(smooth, corrections, self.iterations(smooth) // len(ROUNDINGS))
            smooth.mu = 0.0
            how = f"L-BFGS from {self.begun}, kinks smoothed by {share:g} ({about})"
            self.offer(*smooth.solution(smooth.settle(flat)), how)

    def dual(self, smooth: Smooth) -> None:
        """Run LIBLINEAR, one class against the others; then find the exact intercept, which LIBLINEAR penalises."""
        from sklearn.exceptions import ConvergenceWarning

        self.note("LIBLINEAR")
        c, X, flat = self.config, smooth.X, np.zeros(smooth.size)
        W, passes = flat[: smooth.weights].reshape(smooth.classes, -1), 0
        most = int(np.clip(VISITS / max(X.nnz, 1), *PASSES))
        model = liblinear_model(c.loss, self.problem.loss_param, c.l2, len(self.rows), c.intercept)
        model.set_params(max_iter=most, tol=1e-9)
        for k, y in enumerate(smooth.labels):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.fit(X, y, sample_weight=self.weights)
            W[k] = np.ravel(model.coef_)
            if c.intercept:
                flat[smooth.weights + k] = np.ravel(model.intercept_)[0]
            passes = max(passes, int(np.max(model.n_iter_)))
        before = self.best
        if self.offer(*smooth.solution(smooth.settle(flat)), f"LIBLINEAR ({passes} passes), intercept exact") < before:
            self.begun = f"LIBLINEAR ({passes} passes)"

    def newton(self, smooth: Smooth) -> None:
        """Run Newton's method on kinks with less and less smoothing; its slopes bound f* from below."""
        c, flat = self.config, smooth.flat(self.coef, self.intercept)
        W, K = flat[: smooth.weights].reshape(smooth.classes, -1), smooth.classes
        b = flat[smooth.weights :] if c.intercept else np.zeros(K)
        bounds, deadline = np.full(K, -np.inf), time.monotonic() + SECONDS
        solvers = [Newton(smooth, k) for k in range(K)]
        for share in SMOOTHINGS:
            self.note(f"Newton's method, kinks smoothed by {share:g}")
            mu = share * self.start / K
            for k, solver in enumerate(solvers):
                enough = max(mu * 1e-3, PRECISION * self.start / K)
                W[k], b[k], lower = solver.descend(W[k], float(b[k]), mu, enough, deadline)
                bounds[k] = max(bounds[k], lower)
            how = f"Newton's method from {self.begun}, kinks smoothed by {share:g}"
            self.offer(*smooth.solution(smooth.settle(flat)), how)
            self.lower = max(self.lower, float(bounds.sum()))
            if self.best - self.lower <= PROVED * (self.start - self.best):
                break

    def descend(self, smooth: Smooth, corrections: int, most: int) -> tuple[np.ndarray, str]:
        """Run L-BFGS from the best solution, bounding f* if l2 > 0; return ``(flat parameters, how it went)``."""
        from scipy.optimize import Bounds, minimize

        l1, l2, m = self.config.l1, self.config.l2, smooth.weights
        flat = smooth.flat(self.coef, self.intercept)
        if l1:
            flat = np.concatenate((np.maximum(flat[:m], 0), np.maximum(-flat[:m], 0), flat[m:]))
        last = np.zeros(smooth.size)  # gradient of the smooth part

        def joined(x: np.ndarray) -> np.ndarray:
            return np.concatenate((x[:m] - x[m : 2 * m], x[2 * m :])) if l1 else x

        def value(x: np.ndarray) -> tuple[float, np.ndarray]:
            found, last[:] = smooth(joined(x))
            if not l1:
                return found, last.copy()
            up, down = last[:m] + l1, l1 - last[:m]
            return found + l1 * float(x[: 2 * m].sum()), np.concatenate((up, down, last[m:]))

        count = 0

        def look(intermediate_result: Any) -> None:
            nonlocal count
            count += 1
            if count % 10 == 0:
                self.note(f"L-BFGS, iteration {count} of at most {most}")
            way = PRECISION * (self.start - intermediate_result.fun)
            if l2 and _squares(_subgradient(joined(intermediate_result.x), last, m, l1)) <= 2 * l2 * way:
                raise StopIteration

        bounds = Bounds(np.where(np.arange(len(flat)) < 2 * m, 0.0, -np.inf), np.inf) if l1 else None  # w = p - q
        options = {"maxcor": corrections, "maxiter": most, "maxfun": 3 * most, "ftol": 1e-16, "gtol": 1e-11}
        result = minimize(value, flat, jac=True, method="L-BFGS-B", bounds=bounds, options=options, callback=look)
        x = smooth.settle(joined(result.x))
        found, gradient = smooth(x)
        slope = _subgradient(x, gradient, m, l1)
        if l2:
            self.lower = max(self.lower, found + l1 * float(np.abs(x[:m]).sum()) - _squares(slope) / (2 * l2))
        about = f"{count} iterations, gradient {math.sqrt(_squares(slope)):.0e}"
        return x, about + (", stopped there" if count >= most else "")

    # ---- limits of memory and time

    def _corrections(self) -> tuple[int | None, str]:
        """Return how many vector pairs L-BFGS can keep, or None, and why not."""
        n, K = len(self.rows), self.problem.classes
        free = machine.memory()[1]
        if free is None:
            return CORRECTIONS[0], ""
        size = K * min(self.problem.width, self.rows.nnz) + K
        vectors = size * (2 if self.config.l1 else 1)
        data = 28 * self.rows.nnz + 40 * n * K  # the matrix and temporaries: margins and slopes
        most, least = CORRECTIONS
        fits = int(((free / SHARE - data) / (8 * vectors) - OTHER_VECTORS) / 2)
        if fits >= least:
            return min(fits, most), ""
        need = (data + 8 * vectors * (2 * least + OTHER_VECTORS)) / 1e9
        return None, f"no L-BFGS: it needs {need:.1f} GB, over a quarter of the {free / 1e9:.1f} GB free"

    def iterations(self, smooth: Smooth) -> int:
        """Return how many iterations of L-BFGS the time allows."""
        seconds = 6e-9 * smooth.X.nnz * smooth.classes + 60e-9 * smooth.size + 50e-9 * len(self.rows) * smooth.classes
        return int(np.clip(SECONDS / seconds, *ITERATIONS))


def _subgradient(flat: np.ndarray, gradient: np.ndarray, m: int, l1: float) -> np.ndarray:
    """Return the shortest subgradient of ``smooth part + l1 ||w||_1``, w being the first m parameters."""
    if not l1:
        return gradient
    w, g = flat[:m], gradient[:m]
    at_zero = np.sign(g) * np.maximum(np.abs(g) - l1, 0.0)
    return np.concatenate((np.where(w == 0.0, at_zero, g + l1 * np.sign(w)), gradient[m:]))


def _squares(x: np.ndarray) -> float:
    return float(np.einsum("i,i->", x, x))


# ---- the cache


def _key(rows: Rows, config: TrainConfig, problem: LinearProblem) -> dict[str, Any]:
    """Return everything the optimum depends on: all targets and weights, and a sample of the features."""
    digest = hashlib.blake2b(digest_size=16)
    for array in (rows.targets, rows.weights):
        if array is not None:
            digest.update(np.ascontiguousarray(array).data)
    same = ("loss", "l1", "l2", "intercept", "normalize", "class_weight")
    about = {name: getattr(config, name) for name in same} | {"loss_param": problem.loss_param}
    return about | {"fingerprint": fingerprint(rows), "targets": digest.hexdigest(), "version": VERSION}


def _hash(key: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(key, sort_keys=True).encode(), digest_size=12).hexdigest()


def _read(path: Path, key: dict[str, Any]) -> Optimum | None:
    """Return the cached optimum; None if it is missing or damaged."""
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        numbers = {name: float(saved[name]) for name in ("objective", "start", "seconds")}
        gap = None if saved["gap"] is None else float(saved["gap"])
        whole = saved["key"] == key and all(map(math.isfinite, (*numbers.values(), gap or 0.0)))
        return Optimum(how=str(saved["how"]), coef=None, intercept=None, gap=gap, **numbers) if whole else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write(path: Path, key: dict[str, Any], found: Optimum) -> None:
    kept = {name: getattr(found, name) for name in ("objective", "start", "how", "seconds", "gap")}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps({"key": key} | kept, indent=1).encode() + b"\n")
    except (OSError, OutputError) as error:
        warnings.warn(f"the optimum is not kept for the next time ({error})", HogwildWarning, stacklevel=3)
