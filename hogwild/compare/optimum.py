"""The lowest value that the objective has on given rows: what every method of a comparison is measured against.

The one decision: several solvers that share nothing look for it, and the evaluator of all runs has the last word: f* is
the lowest of what ``Objective.evaluate`` says at their solutions. A serial run comes first, L-BFGS in float64 goes on
from its end. Losses with a kink go to LIBLINEAR, whose penalised intercept is then set right, and through smoothed
losses, whose minima also bound f* from below. It takes the time of a few hundred epochs, once: the value is kept in a
directory, under a hash of everything it depends on.

Where the data do not fit in memory once more in float64, there is only the serial run, and ``how`` says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import secrets
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from hogwild import machine
from hogwild.compare.gradient import KINKED, Smooth
from hogwild.compare.newton import Newton
from hogwild.compare.outside import liblinear_model
from hogwild.config import TrainConfig
from hogwild.data.examples import Rows
from hogwild.errors import HogwildWarning, TrainingError
from hogwild.hosts.job import Pool
from hogwild.problems.linear import LinearProblem
from hogwild.problems.linear_rows import row_weights
from hogwild.problems.objective import Objective
from hogwild.resume import fingerprint
from hogwild.training import train

VERSION = 1  # of what is kept
EPOCHS, ALONE = 31, 229  # serial ones, with something to follow and without: ends of rounds of the schedule
STALLED = 1e-4  # of the way so far: less than that since a third of the epochs, and the serial run ends
SHARE = 4  # one part in so many of the free memory may be taken
CORRECTIONS, OTHER_VECTORS = (30, 5), 16  # pairs that L-BFGS keeps, at most and at least; and what it has beside them
ITERATIONS = (100, 3000)  # of L-BFGS, at least and at most,
SECONDS = 120.0  # and within about so many; likewise of Newton's method
PRECISION, PROVED = 1e-10, 1e-7  # of the way from the start, at which L-BFGS and Newton's method end
ROUNDINGS = (1e-2, 1e-3, 1e-4, 1e-5)  # of kinks for L-BFGS, as shares of the objective at the start
SMOOTHINGS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7)  # and for Newton's method
PASSES = (50, 2_000)  # of LIBLINEAR, at least and at most,
VISITS = 1e9  # and about so many nonzeros in all: it cannot be interrupted


@dataclass(frozen=True)
class Optimum:
    """The optimum of an objective on some rows.

    Attributes
    ----------
    objective, start : float
        At the optimum (None: nobody knows it), and of the parameters that a run starts from.
    how : str
        How it was found, in words.
    coef, intercept : array, shape (width,) or (K, width), and (1,) or (K,), float64
        Where it is; None if it was kept from an earlier time.
    seconds : float
        It took.
    gap : float or None
        The true minimum is about so much lower at most; None if that is unknown.
    """

    objective: float | None
    start: float
    how: str
    coef: np.ndarray | None
    intercept: np.ndarray | None
    seconds: float
    gap: float | None


def unknown(start: float, why: str) -> Optimum:
    """In place of an optimum that nobody can find: the lowest objective that any run reaches is taken for it."""
    return Optimum(None, start, f"best seen: {why}", None, None, 0.0, None)


def find_optimum(
    rows: Rows,
    config: TrainConfig,
    cache: Path | None = None,
    pool: Pool | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> Optimum:
    """The optimum of the objective that ``config`` poses on these rows.

    Parameters
    ----------
    rows : Rows
    config : TrainConfig
        Only what is minimised counts: loss, penalties, intercept, normalisation and class weights.
    cache : path, optional
        Directory in which optima are kept from one time to the next.
    pool : Pool, optional
        Of one worker, for the serial run; else that has a thread.
    note : callable
        Is told what is being done.

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
    with threadpool_limits(1, "blas"):  # vectors of this size are slower on several threads
        search.run(pool)
    found = search.found(time.perf_counter() - began)
    if path is not None:
        _write(path, key, found)
    return found


class _Search:
    """Solvers offer what they find, the lowest is kept."""

    def __init__(self, rows: Rows, config: TrainConfig, problem: LinearProblem, note: Callable[[str], None]) -> None:
        self.rows, self.config, self.problem, self.note = rows, config, problem, note
        self.weights = row_weights(rows, config.class_weight)
        self.objective = Objective(
            rows, config.loss, problem.loss_param, l1=config.l1, l2=config.l2, normalize=config.normalize,
            labels=problem.labels, weights=self.weights, width=problem.width,
        )  # fmt: skip
        self.start = self.best = math.inf
        self.how, self.remarks = "", []  # type: str, list[str]
        self.lower = -math.inf  # bound
        self.begun = "zero weights"  # what L-BFGS goes on from
        shape = () if problem.classes == 1 else (problem.classes,)
        self.coef, self.intercept = np.zeros((*shape, problem.width)), np.zeros(problem.classes)
        self.accuracy: float | None = None
        self.start = self.offer(self.coef, self.intercept, "zero weights")

    def offer(self, coef: np.ndarray, intercept: np.ndarray, how: str) -> float:
        """Take note of a solution; returns its objective."""
        found = self.objective.evaluate(coef, intercept)
        value = found["objective"]
        assert value is not None
        if value < self.best:
            self.best, self.how, self.accuracy = value, how, found.get("accuracy")
            self.coef, self.intercept = np.asarray(coef, np.float64), np.asarray(intercept, np.float64)
        return value

    def found(self, seconds: float) -> Optimum:
        """What is known at the end."""
        how = "; ".join([self.how, *self.remarks])
        gap = None if self.lower == -math.inf else max(self.best - self.lower, 0.0)
        return Optimum(self.best, self.start, how, self.coef, self.intercept, seconds, gap)

    def run(self, pool: Pool | None) -> None:
        """Everything that makes sense for the problem."""
        if self.config.loss == "perceptron":  # its loss is never below 0, and zero weights have it
            self.lower = 0.0
            return
        corrections, reason = self._corrections()
        self.serial(pool, ALONE if corrections is None else EPOCHS)
        if corrections is None:
            self.remarks.append(reason)
            return
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
        """A run of our own trainer until it gets nowhere any more."""
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
                    self.offer(run.model.coef_[0] if self.coef.ndim == 1 else run.model.coef_, run.model.intercept_,
                               self.begun)  # fmt: skip
                best.append(self.best)
                t = len(best) - 1
                if t >= 6 and best[t // 3] - best[t] <= STALLED * (self.start - self.best):
                    break

    def kinked(self, smooth: Smooth, corrections: int) -> None:
        """Hinge and epsilon-insensitive: LIBLINEAR and Newton's method where l2 alone is the penalty, else L-BFGS."""
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
        """LIBLINEAR, one class against the others; then the exact intercept, which LIBLINEAR penalises."""
        from sklearn.exceptions import ConvergenceWarning

        self.note("LIBLINEAR")
        c, X, flat = self.config, smooth.X, np.zeros(smooth.size)
        W, passes = flat[: smooth.weights].reshape(smooth.classes, -1), 0
        most = int(np.clip(VISITS / max(X.nnz, 1), *PASSES))
        model = liblinear_model(c.loss, self.problem.loss_param, c.l2, len(self.rows), c.intercept)
        model.set_params(max_iter=most, tol=1e-9)
        for k, y in enumerate(np.reshape(smooth.y.T, (smooth.classes, -1))):
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
        """Newton's method on kinks that are smoothed less and less; its slopes bound f* from below."""
        c, flat = self.config, smooth.flat(self.coef, self.intercept)
        W, K = flat[: smooth.weights].reshape(smooth.classes, -1), smooth.classes
        b = flat[smooth.weights :] if c.intercept else np.zeros(K)
        bounds, deadline = np.full(K, -np.inf), time.monotonic() + SECONDS
        solvers = [Newton(smooth.X, y, smooth.shares, c.loss, self.problem.loss_param, c.l2, c.intercept)
                   for y in np.reshape(smooth.y.T, (K, -1))]  # fmt: skip
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
        """L-BFGS from the best so far; ``(flat parameters, how it went)``. Bounds f* from below where l2 does."""
        from scipy.optimize import Bounds, minimize

        l1, l2, m = self.config.l1, self.config.l2, smooth.weights
        flat = smooth.flat(self.coef, self.intercept)
        if l1:
            flat = np.concatenate((np.maximum(flat[:m], 0), np.maximum(-flat[:m], 0), flat[m:]))
        last = np.zeros(smooth.size)  # the gradient, of the smooth part

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

    # ---- what there is room and time for

    def _corrections(self) -> tuple[int | None, str]:
        """How many vector pairs L-BFGS can keep, or None, and why not."""
        n, K = len(self.rows), self.problem.classes
        free = machine.memory()[1]
        if free is None:
            return CORRECTIONS[0], ""
        size = K * min(self.problem.width, self.rows.nnz) + K
        vectors = size * (2 if self.config.l1 else 1)
        data = 28 * self.rows.nnz + 40 * n * K  # the matrix and what is made on the way, margins and slopes
        most, least = CORRECTIONS
        fits = int(((free / SHARE - data) / (8 * vectors) - OTHER_VECTORS) / 2)
        if fits >= least:
            return min(fits, most), ""
        need = (data + 8 * vectors * (2 * least + OTHER_VECTORS)) / 1e9
        return None, f"no L-BFGS: it needs {need:.1f} GB, over a quarter of the {free / 1e9:.1f} GB free"

    def iterations(self, smooth: Smooth) -> int:
        """How many iterations of L-BFGS there is time for."""
        seconds = 6e-9 * smooth.X.nnz * smooth.classes + 60e-9 * smooth.size + 50e-9 * len(self.rows) * smooth.classes
        return int(np.clip(SECONDS / seconds, *ITERATIONS))


def _subgradient(flat: np.ndarray, gradient: np.ndarray, m: int, l1: float) -> np.ndarray:
    """The shortest subgradient of ``smooth part + l1 ||w||_1``, w being the first m parameters."""
    if not l1:
        return gradient
    w, g = flat[:m], gradient[:m]
    at_zero = np.sign(g) * np.maximum(np.abs(g) - l1, 0.0)
    return np.concatenate((np.where(w == 0.0, at_zero, g + l1 * np.sign(w)), gradient[m:]))


def _squares(x: np.ndarray) -> float:
    return float(np.einsum("i,i->", x, x))


# ---- what is kept


def _key(rows: Rows, config: TrainConfig, problem: LinearProblem) -> dict[str, Any]:
    """Everything the optimum depends on; all targets and weights count, of the features a sample."""
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
    """What is kept there; None if that is nothing, or damaged."""
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
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_text(json.dumps({"key": key} | kept, indent=1) + "\n", encoding="utf-8")
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        reason = f"{path.parent}: {error.strerror or error}"
        warnings.warn(f"the optimum is not kept for the next time ({reason})", HogwildWarning, stacklevel=3)
