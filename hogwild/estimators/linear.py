"""What the classifier and the regressor have in common: fitting rows of kernel targets, and the attributes it leaves.

The one decision: ``coef_`` and ``intercept_`` are the model. Whatever else is kept between calls (degrees and steps of
``partial_fit``) is beside them, is checked against them, and is left behind when they are replaced.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from hogwild.data.examples import Rows
from hogwild.errors import InputError, TrainingError
from hogwild.estimators.crew import can_share_out
from hogwild.estimators.descent import Outcome, descend
from hogwild.estimators.options import Options, read_options
from hogwild.estimators.posing import rows_of
from hogwild.estimators.progress import shown
from hogwild.estimators.stream import Diverged, Stream
from hogwild.estimators.workers import drawn_seed, workers_for
from hogwild.model import LinearModel
from hogwild.problems.linear import LinearProblem, aligned

FLOATS = (np.float32, np.float64)  # float64 values are copied to float32 here, not their indices too by the check
_UNWEIGHED = "The sample weights for {} set are all zero, consider using a different random state."
FEATURES = "n_features_in_", "feature_names_in_"  # set when data are looked at, which is before they are learnt from


Method = TypeVar("Method", bound=Callable[..., Any])


def or_as_before(method: Method) -> Method:
    """A method that fits, and leaves the features' number and names as they were where it fails."""

    @functools.wraps(method)
    def run(self: Any, *args: Any, **options: Any) -> Any:
        before = {name: value for name, value in vars(self).items() if name in FEATURES}
        try:
            return method(self, *args, **options)
        except BaseException:
            for name in FEATURES:
                vars(self).pop(name, None)
            if hasattr(self, "coef_"):
                vars(self).update(before)
            raise

    return cast(Method, run)


class LinearEstimator(BaseEstimator):
    """The part of :class:`HogwildClassifier` and :class:`HogwildRegressor` that knows nothing of targets."""

    _kind = ""  # "classifier" or "regressor"
    coef_: Any
    intercept_: Any
    _stream: Stream | None

    def _margins(self, X: Any) -> np.ndarray:
        """Margins ``x . w + b``, (n,), or (n, classes) for more than two classes."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=FLOATS, reset=False)
        coef = self.coef_ if scipy.sparse.issparse(self.coef_) else np.atleast_2d(self.coef_)
        margins = X @ coef.T
        if scipy.sparse.issparse(margins):  # of a model made sparse
            margins = margins.toarray()
        margins = np.asarray(margins) + self.intercept_
        return margins.ravel() if margins.shape[1] == 1 else margins

    def sparsify(self) -> Any:
        """Make ``coef_`` a sparse CSR matrix, which saves memory where most weights are zero (penalty l1).

        Prediction goes on as before; :meth:`densify` comes before any more fitting by itself.
        """
        check_is_fitted(self)
        self.coef_ = scipy.sparse.csr_matrix(self.coef_)
        return self

    def densify(self) -> Any:
        """Make ``coef_`` an array again."""
        check_is_fitted(self)
        if scipy.sparse.issparse(self.coef_):
            dense = self.coef_.toarray()
            self.coef_ = dense if self._kind == "classifier" else dense.ravel()
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # ---- fitting

    def _validated(self, X: Any, y: Any, reset: bool, **how: Any) -> tuple[Any, Any]:
        return validate_data(self, X, y, accept_sparse="csr", dtype=FLOATS, order="C", reset=reset, **how)

    def _weights(
        self, sample_weight: Any, X: Any, class_weights: np.ndarray | None, batch: bool = False
    ) -> np.ndarray | None:
        """Sample times class weights, (n,) float32; None if there are none.

        Raises
        ------
        InputError
            If one is negative or not finite in float32, or all are zero, which class weights may make those of a batch.
        """
        if sample_weight is None and class_weights is None:
            return None
        if self.early_stopping and sample_weight is not None and not np.any(sample_weight):
            raise InputError(_UNWEIGHED.format("validation"))
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64)
        if weights.min() < 0:
            raise InputError(f"sample_weight: row {int(np.argmin(weights))} has a negative weight")
        if class_weights is not None:
            if class_weights.min() < 0:
                raise InputError(f"class_weight: {class_weights.min():g} is negative")
            weights = weights * class_weights
        with np.errstate(over="ignore"):
            weights = weights.astype(np.float32)
        if not np.isfinite(weights).all():
            row = int(np.argmin(np.isfinite(weights)))
            raise InputError(f"sample_weight and class_weight: the weight of row {row} is not finite in float32")
        if not (batch or weights.any()):
            raise InputError("sample_weight and class_weight: all rows have weight zero")
        return weights

    def _fit_rows(
        self, options: Options, X: Any, targets: np.ndarray, weights: np.ndarray | None, classes: int,
        start: Callable[[LinearProblem], np.ndarray | None], held: tuple[np.ndarray, np.ndarray] | None,
        judge: Callable[[np.ndarray, np.ndarray, np.ndarray | None], float],
    ) -> None:  # fmt: skip
        """Train and set the attributes; ``held`` are the numbers of rows to train on and to validate on."""
        seed, score = drawn_seed(self.random_state), None
        if held is not None:
            for name, ids in zip(("training", "validation"), held):
                if weights is not None and not weights[ids].any():
                    raise InputError(_UNWEIGHED.format(name))
            score = self._scorer(X, targets, weights, held[1], judge)
            X, targets = X[held[0]], targets[held[0]]
            weights = None if weights is None else weights[held[0]]
        rows = rows_of(X, targets, weights)
        workers = self._workers(options, rows, classes)
        with shown(type(self).__name__, options.max_iter, options.verbose) as report:
            found = descend(options, rows, classes, seed=seed, workers=workers, start=start, score=score, report=report)
        self._keep(found, len(rows), X.dtype)

    def _workers(self, options: Options, rows: Rows, classes: int, batch: bool = False) -> int:
        def apart(workers: int) -> bool:
            return not batch and can_share_out(options.loss, classes, workers, options.host)

        return workers_for(self.n_jobs, options.host, rows.nnz * (classes if classes > 2 else 1), len(rows), apart)

    def _scorer(self, X: Any, targets: Any, weights: Any, ids: np.ndarray, judge: Any) -> Any:
        X, targets = X[ids], targets[ids]
        weights = None if weights is None else weights[ids]

        def score(coef: np.ndarray, intercept: np.ndarray) -> float:
            return float(judge(np.asarray(X @ coef.T) + intercept, targets, weights))

        return score

    def _keep(self, found: Outcome, n: int, dtype: Any) -> None:
        coef = found.coef if self._kind == "regressor" else np.atleast_2d(found.coef)
        self.coef_, self.intercept_ = coef.astype(dtype, copy=False), found.intercept.astype(dtype, copy=False)
        self.n_iter_, self.t_ = found.epochs, 1.0 + found.epochs * n
        self.loss_curve_, self.validation_scores_ = found.curve, found.scores or None
        self._stream = None

    def _from(self, coef: Any, intercept: Any) -> Callable[[LinearProblem], np.ndarray] | None:
        """What makes flat parameters of weights to start from, if there are such: given ones, or (warm_start) ours."""
        if self.warm_start and hasattr(self, "coef_"):
            self.densify()
            coef = self.coef_ if coef is None else coef
            intercept = self.intercept_ if intercept is None else intercept
        if coef is None and intercept is None:
            return None
        return lambda problem: _flat_of(problem, coef, intercept)

    def _ours(self, problem: LinearProblem) -> np.ndarray:
        self.densify()
        return _flat_of(problem, self.coef_, self.intercept_)

    def _model(self, labels: list[float]) -> LinearModel:
        check_is_fitted(self)
        self.densify()
        options = read_options(self)
        loss = "log" if options.loss == "softmax" and len(labels) == 2 else options.loss
        return LinearModel(self.coef_, self.intercept_, loss, options.loss_param, labels)

    # ---- batch by batch

    def _learn(
        self, options: Options, rows: Rows, classes: int, first: Callable[[LinearProblem], np.ndarray | None]
    ) -> None:
        """Pass over a batch once, from ``coef_`` if there is one, else from what ``first`` makes of the problem."""
        stream, fresh = getattr(self, "_stream", None), not hasattr(self, "coef_")
        if fresh or stream is None or (stream.width, stream.classes) != (rows.width, classes):
            stream = self._stream = Stream(rows.width, classes, 0 if fresh else int(getattr(self, "t_", 1.0)) - 1)
        workers = self._workers(options, rows, classes, batch=True)
        if stream.seed is None:
            stream.seed = drawn_seed(self.random_state)
        own = not fresh and self._shows(stream)
        shared = own and stream.flat is not None  # the weights are those that are going to be moved
        problem = stream.take(options, rows)
        if not own:
            stream.begin(first(problem) if fresh else self._ours(problem))
        elif not shared:
            stream.restore(self._ours(problem))
        try:
            stream.learn(options, rows, workers)
        except Diverged as error:
            if not shared or stream.mean is not None:  # what coef_ shows was not touched
                self._stream = None
                raise
            for name in [name for name in vars(self) if name.endswith("_") or name == "_stream"]:
                delattr(self, name)
            raise TrainingError(f"{error}; the model is gone, begin again") from None
        self.coef_, self.intercept_ = stream.views()
        self.n_iter_, self.t_ = 1, 1.0 + stream.before + stream.seen

    def _shows(self, stream: Stream) -> bool:
        """Whether the weights are those that the stream left, and nobody has put others in their place."""
        return self.coef_ is stream.shown[0] and self.intercept_ is stream.shown[1]

    def __getstate__(self) -> dict[str, Any]:
        """With the answer of :meth:`_shows`: joblib, unlike pickle, makes two arrays of one."""
        state = dict(super().__getstate__())
        if hasattr(self, "coef_") and state.get("_stream") is not None:
            state["_shown"] = self._shows(state["_stream"])
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        shown = state.pop("_shown", False)
        super().__setstate__(state)
        if shown:
            self._stream.shown = self.coef_, self.intercept_  # type: ignore[union-attr]


def _flat_of(problem: LinearProblem, coef: Any, intercept: Any) -> np.ndarray:
    """Flat parameters of weights and intercepts; either may be None, for zeros."""
    flat = aligned(problem.size)
    parts, k = problem.parameters(flat), problem.classes
    for name, value, shape in (("coef", coef, (k, problem.width)), ("intercept", intercept, (k,))):
        with np.errstate(over="ignore"):
            given = np.zeros(shape, np.float32) if value is None else np.asarray(value, dtype=np.float32)
        if given.shape != shape and not (k == 1 and given.size == math.prod(shape)):  # of one margin scalars, (width,)
            raise InputError(
                f"Provided {name}_init does not match dataset: it has shape {given.shape}, and the data make it "
                f"{shape}; warm_start and partial_fit too go on with the same classes and features"
            )
        if not np.isfinite(given).all():
            raise InputError(f"{name} to start from is not finite in float32")
        if name == "coef":
            parts.coef.reshape(problem.width, problem.stride)[:, :k] = given.reshape(shape).T
        else:
            parts.intercept[:k] = given.ravel()
    return flat
