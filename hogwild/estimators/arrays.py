"""Conversion of scikit-learn's arrays to the linear problem: rows, kernel targets, degrees.

A float32 CSR matrix with int32 indices is used in place. Of a float64 one, only the values are copied. Zeros of a dense
array are dropped, so dense and sparse input of the same numbers train the same model; but a stored zero counts as an
occurrence where an l1 penalty asks how often a feature occurs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from hogwild import machine
from hogwild.config import LARGEST_FLOAT32
from hogwild.data.rows.container import EMPTY, INDEX_LIMIT, Rows
from hogwild.data.rows.labels import NO_SETS, LabelSets
from hogwild.data.tables.files import is_frame, open_source
from hogwild.data.tables.plan import AMOUNTS, KINDS
from hogwild.errors import InputError
from hogwild.estimators.options import FitConfig
from hogwild.kernels.steps import STEP_EVERY
from hogwild.methods import COUNT_LOSSES
from hogwild.problems.linear.problem import LinearProblem, aligned
from hogwild.problems.linear.rows import MAX_CLASSES, below_range, intercept_share, uneven
from hogwild.training.schedule import make_schedule

FAR = 1e4  # distance from zero, over the spread, from which float32 would keep little of the spread
LOOK = 500  # fewest rows between two looks at the objective: several epochs if they are shorter
ENOUGH = 200  # rows; with fewer, dividing each weight costs nothing, and steps may have any size
SUDDEN, APART = 0.5, 0.04  # largest penalty exponents: over rows with one step, over chunks worked on at once
DEEPEST = 60.0  # exponent that weights may shrink by before they are written out: float32 ends at exp(-87)
COLUMN = 40  # bytes that a fit takes for each column: weights, copies of them, degrees and sums
MEAN = 500  # rows that a mean is taken over

FLOATS = (np.float32, np.float64)  # float64 is converted here, since scikit-learn's check would copy indices too

Start = tuple[np.ndarray, np.ndarray]  # weights (k, width) and intercepts (k,) to start from, float64


def validated(estimator: Any, X: Any, *y: Any, **how: Any) -> Any:
    """Do scikit-learn's ``validate_data``; a frame's text and dates are refused in a line that says what takes them."""
    from sklearn.utils.validation import validate_data

    if y:
        how["order"] = "C"
    try:
        return validate_data(estimator, X, *y, accept_sparse="csr", dtype=FLOATS, **how)
    except (TypeError, ValueError):
        held: dict[str, str] = {}
        if is_frame(X):
            with contextlib.suppress(InputError):
                held = open_source(X).held()
        for column, kind in held.items():
            if kind not in AMOUNTS:
                takes = "make_pipeline(HogwildTableEncoder(), estimator) takes it"
                raise InputError(f"X: column {column} holds {KINDS[kind]}, expected numbers: {takes}") from None
        raise


def rows_of(X: Any, targets: np.ndarray, weights: np.ndarray | None, sets: LabelSets | None = None) -> Rows:
    """Rows of a validated CSR matrix or dense array and targets (n,) float32; data are copied only if necessary.

    ``sets`` are those of targets that stand for several labels.

    Raises
    ------
    InputError
        If values exceed float32, offsets or indices lie outside the matrix, or there are too many columns.
    """
    import scipy.sparse

    if not scipy.sparse.issparse(X):
        return Rows(*_entries(_narrow(X)), targets, X.shape[1], weights, check=False, labels=sets)
    if X.shape[1] > INDEX_LIMIT:
        raise InputError(f"X has {X.shape[1]} columns: at most {INDEX_LIMIT} are supported")
    total, _ = machine.memory()
    if total is not None and COLUMN * X.shape[1] > total:
        raise InputError(
            f"X has {X.shape[1]:,} columns: a fit takes {COLUMN} bytes for each, beyond the memory; hash the features"
        )
    _check_csr(X)
    X = scipy.sparse.csr_array(X)  # another one of the same arrays: flags may be older than these
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return Rows(X.indptr, X.indices, _narrow(X.data), targets, X.shape[1], weights, check=False, labels=sets)


def centred(array: np.ndarray) -> tuple[np.ndarray, Any]:
    """A float64 array less the means of its columns that lie ``FAR`` from zero, and these means; 0 without any."""
    if array.dtype != np.float64:
        return array, 0.0
    some = array[:: max(len(array) // 64, 1)]
    low, high = some.min(axis=0), some.max(axis=0)
    spread = high - low
    far = (np.minimum(np.abs(low), np.abs(high)) > FAR * spread) & (spread > 0)
    if not far.any():
        return array, 0.0
    means = np.where(far, array.mean(axis=0), 0.0)
    return array - means, means


def _entries(X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``(indptr, indices, values)`` of the nonzeros of a dense array."""
    n, width = X.shape
    columns = np.arange(width, dtype=np.int32)
    there = X != 0
    if there.all():
        return np.arange(n + 1) * width, np.tile(columns, n), np.ravel(X)
    counts = np.count_nonzero(there, axis=1)
    return np.append(0, np.cumsum(counts)), np.broadcast_to(columns, X.shape)[there], X[there]


def _narrow(X: np.ndarray) -> np.ndarray:
    """Values as float32."""
    if X.dtype == np.float32:
        return X
    with np.errstate(over="ignore"):
        X = X.astype(np.float32)
    if not np.isfinite(X).all():
        raise InputError("X: a value is too large for float32, which the weights are counted in: scale X")
    return X


def _check_csr(X: Any) -> None:
    """Refuse a damaged matrix, whose offsets or indices would lead compiled code out of the arrays."""
    indptr, stored = X.indptr, min(len(X.indices), len(X.data))
    if len(indptr) != X.shape[0] + 1:
        raise InputError(f"X: its indptr has {len(indptr)} offsets, and its {X.shape[0]} rows need one more")
    if indptr[0] != 0 or indptr[-1] > stored or np.any(indptr[1:] < indptr[:-1]):
        raise InputError(f"X: its indptr does not ascend from 0 to at most its {stored} indices and values")
    if stored and not (0 <= X.indices.min() and X.indices.max() < X.shape[1]):
        raise InputError(f"X: its indices lie outside its {X.shape[1]} columns")


def as_targets(codes: np.ndarray, classes: int) -> np.ndarray:
    """Class numbers (n,) as float32 for the kernels: -1 and +1 for two classes, else the number."""
    return (codes if classes > 2 else 2 * codes - 1).astype(np.float32)


def real_targets(y: np.ndarray, loss: str) -> np.ndarray:
    """Real targets as float32.

    Raises
    ------
    InputError
        If a target exceeds float32, or is below zero where counts are expected.
    """
    with np.errstate(over="ignore"):
        targets = np.asarray(y).astype(np.float32)
    if not np.isfinite(targets).all():
        raise InputError(f"y: target {int(np.argmin(np.isfinite(targets)))} is not finite in float32")
    if problem := below_range(loss, targets):
        raise InputError(f"y: {problem}")
    return targets


def start_of(coef: Any, intercept: Any, k: int, width: int) -> Start | None:
    """Weights and intercepts of ``k`` margins to start from, either or both None, for zeros; None if both are."""
    if coef is None and intercept is None:
        return None
    arrays = []
    for name, value, shape in (("coef", coef, (k, width)), ("intercept", intercept, (k,))):
        array = np.zeros(shape) if value is None else np.asarray(value, np.float64)
        if array.shape != shape and not (k == 1 and array.size == math.prod(shape)):  # one margin: also (width,), ()
            raise InputError(
                f"Provided {name}_init does not match dataset: shape {array.shape}, where the data need {shape}: "
                "keep its classes and features"
            )
        if not (np.abs(array) <= LARGEST_FLOAT32).all():
            raise InputError(f"{name} to start from is not finite in float32")
        arrays.append(array.reshape(shape))
    return arrays[0], arrays[1]


def flat_of(problem: LinearProblem, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    """Flat parameters of weights, (width,) or (K, width), and intercepts (K,); without last weights these are zero."""
    flat = aligned(problem.size)
    views = problem.parameters(flat)
    k = problem.classes
    weights = np.reshape(coef, (k, -1)).T
    views.coef.reshape(problem.width, problem.stride)[: len(weights), :k] = weights
    views.intercept[:k] = intercept
    return flat


def problem_of(config: FitConfig, rows: Rows, classes: int, whole: bool) -> LinearProblem:
    """The problem of these rows; ``classes`` is 0 for real targets. ``whole`` says that no other rows will follow."""
    if classes > MAX_CLASSES:
        raise InputError(f"y has {classes} classes: at most {MAX_CLASSES}; for real targets take HogwildRegressor")
    throws = config.schedule == "auto" and (config.loss in COUNT_LOSSES or uneven(rows, rows.weights))
    problem = LinearProblem.of_rows(
        config,
        rows,
        machine_cache(),
        discipline="serial",
        intercept=intercept_share(config, rows, MEAN),
        labels=tuple(map(float, range(classes))),
        tabulate=whole,
        passive="safe" if throws else config.passive,
    )
    alike = whole and rows.inverse is None  # all weights shrink by the same factor
    return dataclasses.replace(problem, scaled=alike and shrinks_gently(config, len(rows), problem.slope))


def shrinks_gently(config: FitConfig, rows: int, slope: Callable[[float], float]) -> bool:
    """Whether a scale can represent the l2 penalty in epochs of ``rows`` rows (``problems/linear/kernel.py``).

    ``slope`` is the derivative of the loss, as ``make_schedule`` takes it.
    """
    if config.l1 > 0 or config.l2 == 0 or rows < ENOUGH or (config.schedule == "inverse" and (config.power or 0.0) < 0):
        return False
    if config.schedule == "auto":  # falls as one over the penalty, and its first step is tried
        return True
    step = config.step or make_schedule("optimal", None, l2=config.alpha, dloss=slope).step
    if config.l2 * step * STEP_EVERY > SUDDEN:  # the step is constant for STEP_EVERY rows, even if it falls steeply
        return False
    return config.schedule == "optimal" or config.l2 * step * (rows + LOOK) <= DEEPEST


def shrinks_alike(config: FitConfig, rows: int, chunk: int) -> bool:
    """Whether the racing workers, each on another chunk of the rows, see about the same scale."""
    apart = chunk * (config.workers or 1)
    if config.step is None:  # the penalty of auto and optimal shrinks weights by less than e in an epoch
        return apart <= APART * rows
    return config.l2 * config.step * apart <= APART


@lru_cache(None)
def machine_cache() -> int:
    """Size of the L2 cache in bytes, looked up once."""
    return machine.l2_bytes()


def mean_weight(rows: Rows) -> float:
    """Mean weight of a row, the factor on the mean loss in the objective; one if there are no weights."""
    return 1.0 if rows.weights is None else float(rows.weights.mean(dtype=np.float64))


def converted(rows: Rows, rates: np.ndarray) -> dict[str, np.ndarray]:
    """Arrays that kernels read per row and per feature, for rows whose targets and weights are converted already."""
    sets = rows.labels or NO_SETS
    return {
        "targets": rows.targets,
        "label_indptr": sets.indptr,
        "label_indices": sets.indices,
        "weights": EMPTY if rows.weights is None else rows.weights,
        "scales": EMPTY,
        "rates": rates,
    }
