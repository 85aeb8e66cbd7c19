"""The lowest value of the objective on given rows, the reference for every method of a comparison.

The optimum finder looks for it from zero weights with much work, and the evaluator of all runs decides. The tests hold
it against L-BFGS, LIBLINEAR and linear programs. The value is cached in a directory, under a hash of everything it
depends on.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.config import TrainConfig
from hogwild.data.rows.container import Rows, narrowed
from hogwild.errors import HogwildWarning, OutputError
from hogwild.model_file import write_atomically
from hogwild.problems.linear.objective import Objective
from hogwild.problems.linear.optimum.finder import FitProblem
from hogwild.problems.linear.problem import LinearProblem
from hogwild.problems.linear.rows import row_weights
from hogwild.training.checkpoint import fingerprint

VERSION = 2  # version of the cached files
WORK = 1 << 36  # entries that the finder may visit
ENOUGH = 1e-11, 2e-8  # share of the objective that its last step gains, and of losses with kinks that it may be above


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


def find_optimum(rows: Rows, config: TrainConfig, cache: Path | None = None) -> Optimum:
    """Find the optimum of the objective that ``config`` defines on these rows.

    Parameters
    ----------
    rows : Rows
    config : TrainConfig
        Only the objective counts: loss, penalties, intercept, normalisation and class weights.
    cache : path, optional
        Directory in which optima are cached.

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
    found = _found(rows, config, problem)
    if path is not None:
        _write(path, key, found)
    return found


def _found(rows: Rows, config: TrainConfig, problem: LinearProblem) -> Optimum:
    began, c, K = time.perf_counter(), config, problem.classes
    objective = Objective(
        rows,
        c.loss,
        problem.loss_param,
        l1=c.l1,
        l2=c.l2,
        normalize=c.normalize,
        labels=problem.labels,
        weights=row_weights(rows, c.class_weight),
        width=problem.width,
    )
    shape = (problem.width,) if K == 1 else (K, problem.width)
    start = objective.evaluate(np.zeros(shape), np.zeros(K))["objective"]
    assert start is not None
    if c.loss == "perceptron":
        return Optimum(start, start, "zero weights", np.zeros(shape), np.zeros(K), 0.0, 0.0)
    own, columns = narrowed(rows if rows.contiguous else rows.compact())
    posed = FitProblem.of(objective, own, K, c.intercept)
    found = posed.lowered(np.zeros((*shape[:-1], own.width)), np.zeros(K), WORK, ENOUGH[posed.kinked])
    coef = np.zeros(shape)
    coef[..., columns] = found.coef
    facts = objective.evaluate(coef, found.intercept)
    value = facts["objective"]
    gap: float | None = max(found.gap, 0.0)
    assert value is not None
    how = f"{found.steps} steps of the optimum finder"
    if not posed.kinked and c.l2 > 0.0:
        gap = posed.slope(found.coef, found.intercept) ** 2 / (2.0 * c.l2)  # a bound, since l2 makes it that convex
    if not c.l1 and not c.l2 and facts.get("accuracy") == 1.0 and c.loss in ("log", "softmax"):
        gap = None
        how += "; not attained: the classes are separable and nothing bounds the weights"
    return Optimum(value, start, how, coef, found.intercept, time.perf_counter() - began, gap)


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
