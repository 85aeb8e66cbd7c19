"""Posing scikit-learn's arrays as the linear problem: rows, targets as kernels want them, degrees.

The one decision: CSR of float32 with int32 indices is used where it lies, of float64 only the values are copied, and
of a dense array the zeros are left out, so that dense and sparse input of the same numbers train the same model; but
a zero that is stored counts as met where an l1 penalty asks how often a feature is.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np

from hogwild import machine
from hogwild.config import TrainConfig
from hogwild.data.degrees import degrees
from hogwild.data.examples import EMPTY, INDEX_LIMIT, Rows
from hogwild.errors import InputError
from hogwild.estimators.options import Options
from hogwild.problems.linear import FAR, LinearProblem, slope, stride_of
from hogwild.problems.linear_rows import MAX_CLASSES, all_ones, intercept_share

MEAN = 500  # rows of a mean
RANKED = 2_000_000  # nonzeros that tell how popular features are
FEW = 1_000_000  # nonzeros that one thread counts as soon as several


def rows_of(X: Any, targets: np.ndarray, weights: np.ndarray | None) -> Rows:
    """Rows of a validated CSR matrix or dense array, and of targets (n,) float32; nothing is copied without need.

    Raises
    ------
    InputError
        For values beyond float32, offsets or indices that lie outside the matrix, or too many columns.
    """
    import scipy.sparse

    if not scipy.sparse.issparse(X):
        X = _finite(_narrow(X)) if X.dtype != np.float32 else X
        return _rows(*_entries(X), targets, X.shape[1], weights)
    if X.shape[1] > INDEX_LIMIT:
        raise InputError(f"X has {X.shape[1]} columns: at most {INDEX_LIMIT} are supported")
    _check_csr(X)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return _rows(X.indptr, X.indices, X.data, targets, X.shape[1], weights)


def _entries(X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``(indptr, indices, values)`` of what is not zero in a dense array."""
    n, width = X.shape
    columns = np.arange(width, dtype=np.int32)
    there = X != 0
    counts = np.count_nonzero(there, axis=1)
    if counts.sum() == X.size:
        return np.arange(n + 1) * width, np.tile(columns, n), np.ravel(X)
    return np.append(0, np.cumsum(counts)), np.broadcast_to(columns, X.shape)[there], X[there]


def _rows(indptr: Any, indices: Any, values: Any, targets: Any, width: int, weights: Any) -> Rows:
    if values.dtype != np.float32:
        values = _finite(_narrow(values))
    return Rows(indptr, indices, values, targets, width, weights, check=False)


def _finite(values: np.ndarray) -> np.ndarray:
    if not np.isfinite(values).all():
        raise InputError("X: a value is too large for float32, which the weights are counted in: scale X")
    return values


def _narrow(array: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # what is beyond float32 becomes inf, and is found by who asked
        return array.astype(np.float32)


def _check_csr(X: Any) -> None:
    """Refuse a damaged matrix, whose offsets or indices compiled code would follow out of the arrays."""
    indptr, stored = X.indptr, min(len(X.indices), len(X.data))
    if len(indptr) != X.shape[0] + 1:
        raise InputError(f"X: its indptr has {len(indptr)} offsets, and its {X.shape[0]} rows need one more")
    if indptr[0] != 0 or indptr[-1] > stored or np.any(indptr[1:] < indptr[:-1]):
        raise InputError(f"X: its indptr does not ascend from 0 to at most its {stored} indices and values")
    if stored and not (0 <= X.indices.min() and X.indices.max() < X.shape[1]):
        raise InputError(f"X: its indices lie outside its {X.shape[1]} columns")


def as_targets(codes: np.ndarray, classes: int) -> np.ndarray:
    """Class numbers (n,) as kernels want them, float32: -1 and +1 of two classes, else the number."""
    return (codes if classes > 2 else 2 * codes - 1).astype(np.float32)


def real_targets(y: np.ndarray, loss: str) -> np.ndarray:
    """Real targets as float32.

    Raises
    ------
    InputError
        For a target beyond float32, or below zero where counts are expected.
    """
    targets = _narrow(np.asarray(y))
    if not np.isfinite(targets).all():
        raise InputError(f"y: target {int(np.argmin(np.isfinite(targets)))} is not finite in float32")
    if loss == "poisson" and len(targets) and targets.min() < 0:
        raise InputError(f"y: loss 'poisson' is for counts, and target {int(np.argmin(targets))} is negative")
    return targets


def problem_of(options: Options, rows: Rows, classes: int, discipline: str, whole: bool) -> LinearProblem:
    """The problem of these rows; ``classes`` is 0 for real targets. ``whole``: there will be no others."""
    if classes > MAX_CLASSES:
        raise InputError(f"y has {classes} classes: at most {MAX_CLASSES}; for real targets take HogwildRegressor")
    loss = loss_here(options, classes)
    stride = stride_of(classes) if classes > 2 else 1
    share, cache = intercept_share(_plain(options.intercept), rows, MEAN), machine_cache()
    return LinearProblem(
        loss, options.loss_param, options.l1, options.l2, False, discipline, share, "none",
        tuple(map(float, range(classes))), rows.width, int((rows.end - rows.begin).max(initial=0)),
        options.learning_rate in ("optimal", "invscaling"),
        4 * rows.width * stride > FAR * cache, stride == 1 and all_ones(rows.values), tabulate=whole,
        scaled=whole and options.shrinks_gently(len(rows), partial(slope, loss, options.loss_param)),
        passive=options.passive,
    )  # fmt: skip


def loss_here(options: Options, classes: int) -> str:
    """The loss of so many classes: ``softmax`` of two is ``log``, with one margin."""
    return "log" if options.loss == "softmax" and classes <= 2 else options.loss


@lru_cache(None)
def machine_cache() -> int:
    """Bytes of the L2 cache, looked up once."""
    return machine.l2_bytes()


@lru_cache(None)
def _plain(intercept: bool) -> TrainConfig:
    return TrainConfig(intercept=intercept)


def row_arrays(problem: LinearProblem, rows: Rows, workers: int) -> dict[str, np.ndarray]:
    """What kernels read per row and per feature, as ``LinearProblem.row_arrays``, of targets that are ready."""
    rates = EMPTY
    if (problem.l1 > 0 or problem.l2 > 0) and not problem.scaled:
        threads = 1 if rows.nnz < FEW else workers
        rates = (len(rows) / np.maximum(degrees(rows, threads), 1)).astype(np.float32)
    weights = EMPTY if rows.weights is None else rows.weights
    return {"targets": rows.targets, "weights": weights, "scales": EMPTY, "rates": rates}


def about_rates(rows: Rows) -> np.ndarray:
    """``N / d_u`` for each feature, (width,) float32, from a sample: enough to rank features by."""
    ids = rows.spread(RANKED, len(rows))
    found = degrees(rows.select(ids), 1)
    return (len(ids) / np.maximum(found, len(ids) / len(rows))).astype(np.float32)
