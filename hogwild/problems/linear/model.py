"""A trained linear model: what ``hogwild.load`` returns and ``run.model`` holds.

The model is immutable and consists of plain arrays and facts that do not depend on how it was trained, so it opens
without torch or numba. It holds everything that must be the same at prediction as in training: row normalisation, how
features were hashed, the original values of the labels, and the loss, which decides what a margin means. Predictions
are made in float64, on all cores, a chunk of rows at a time: 2 to 3 ns a nonzero and core.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.data.bits import check_bits
from hogwild.data.rows.container import CHUNK_NONZEROS, Rows, count_unknown, shortest
from hogwild.data.rows.margins import Margins
from hogwild.data.tables.plan import TablePlan, check_plan
from hogwild.data.text.hashing import check_same, hashed_pieces
from hogwild.errors import HogwildWarning, InputError, UsageError, expected_one_of
from hogwild.kernels.losses import LOSSES
from hogwild.methods import NORMALIZE
from hogwild.model_file import outcome, usable
from hogwild.problems.trained import TrainedModel, origin_in
from hogwild.serving.scorer import PROBABILITIES, Scorer, expected_values, label_values, likeliest, probabilities


@dataclass(frozen=True, eq=False)
class LinearModel(TrainedModel):
    """Parameters of a linear model and their meaning.

    Attributes
    ----------
    coef_ : array of float32, shape (1, width), or (K, width) for K classes
    intercept_ : array of float32, shape (1,) or (K,)
    loss : str
    loss_param : float
        Huber's delta, or epsilon.
    labels : list of float
        The user's labels in the order of the classes; of two labels, the second belongs to positive margins. Empty for
        real targets and counts.
    normalize : {"none", "l2"}
        Normalisation of each row before prediction.
    hash_bits : int, optional
        Features are hashed to ``2**hash_bits``, the width, before anything else; if None, they are not hashed.
    table : dict, optional
        The plan of the training table, by which other tables are read (``data/tables/plan.py``).
    multilabel : bool
        Whether a row may have several of the labels, or none; each has a margin of its own.
    config, fingerprint, history, version :
        As in :class:`hogwild.problems.trained.TrainedModel`.

    See Also
    --------
    load : reads a model file.

    Examples
    --------
    >>> import hogwild
    >>> rows = hogwild.open_data("synthetic:rcv1?rows=1000&features=200&nnz=10", cache=None)
    >>> model = hogwild.train(rows, l2=1e-4, epochs=3, workers=1).finish()
    >>> model.predict_proba(rows).shape, model.coef_.shape
    ((1000, 2), (1, 200))
    """

    coef_: np.ndarray
    intercept_: np.ndarray
    loss: str
    loss_param: float = 0.0
    labels: list[float] = field(default_factory=list)
    normalize: str = "none"
    hash_bits: int | None = None
    table: dict[str, Any] | None = field(default=None, repr=False)
    multilabel: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        coef = np.array(self.coef_, dtype=np.float32, ndmin=2, order="C")  # a copy: the shared array keeps changing
        intercept = np.array(self.intercept_, dtype=np.float32).reshape(-1)
        labels = [float(label) for label in self.labels]
        if coef.ndim != 2 or intercept.shape != coef.shape[:1]:
            raise InputError(f"coef of shape {coef.shape} does not go with intercept of shape {intercept.shape}")
        if len(coef) != max(len(labels), 1) and not (len(coef) == 1 and len(labels) == 2 and not self.multilabel):
            raise InputError(f"coef has {len(coef)} rows for {len(labels)} labels")
        if len(labels) == 1 or len(set(labels)) != len(labels):
            raise InputError(f"labels {labels}: expected none, or two or more different ones")
        if self.normalize not in NORMALIZE:
            raise InputError(f"normalize {self.normalize!r}: {expected_one_of(NORMALIZE, self.normalize)}")
        if self.hash_bits is not None and coef.shape[1] != 1 << check_bits(self.hash_bits):
            raise InputError(f"coef has {coef.shape[1]} features, expected 2^{self.hash_bits} of a hashed model")
        if self.table is not None:
            plan = TablePlan.from_json(self.table)
            if plan.hash_bits != self.hash_bits or len(plan.label_names) < len(labels) * (plan.label_kind != "number"):
                raise InputError(f"the table's plan, of {plan.hash_bits} bits, does not go with the model")
        for array in (coef, intercept):
            array.flags.writeable = False
        known = LOSSES.get(self.loss)
        param = known.param if known and self.loss_param == 0.0 < known.range[0] else self.loss_param
        for name, value in {"coef_": coef, "intercept_": intercept, "labels": labels, "loss_param": param}.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        labels = f"{len(self.labels)} labels" if self.labels else "real targets"
        weights = f"{np.count_nonzero(self.coef_):,} of {self.coef_.size:,} weights not zero"
        return f"<LinearModel: {self.loss} loss, {labels}, {self.width:,} features, {weights}{outcome(self.history)}>"

    @property
    def width(self) -> int:
        """Number of features."""
        return int(self.coef_.shape[1])

    @property
    def classes_(self) -> np.ndarray:
        """The labels as in scikit-learn, (K,) float64; those of a table as it has them: text, booleans or int64."""
        return label_values(self.labels, self.table)

    @property
    def label_texts(self) -> list[str]:
        """The labels as written in the data."""
        names = [] if self.table is None else self.table["label_names"]
        return [names[int(label)] if names else shortest(label) for label in self.labels]

    def decision_function(self, X: Any, threads: int | None = None) -> np.ndarray:
        """Return the margins ``x . w + b``.

        Parameters
        ----------
        X : Rows, scipy sparse matrix, or array of shape (n, features); table or frame
            A model of a table takes tables: the path of one, or a frame of pandas, polars or pyarrow. Rows may be
            narrower than the model; features beyond its width are ignored, and counted in a warning. If the model has
            ``hash_bits``, columns are hashed by their number, counted from 0, whatever the width; ``Rows`` that are
            hashed already are used as they are.
        threads : int, optional
            Number of threads; default: the cores this process may use.

        Returns
        -------
        array of float64, shape (n,), or (n, K) for K > 2 classes and for K labels of which a row may have several

        Raises
        ------
        InputError
            If ``X`` is not numbers in two dimensions, not finite in float32, or not hashed as the model is.
        """
        return self._apply(X, lambda margins: margins, threads)

    def predict(self, X: Any, threads: int | None = None) -> np.ndarray:
        """Predict the user's labels, or real values (the expected count or amount), (n,) float64; else as above.

        Where a row may have several labels, the result is a matrix of zeros and ones, (n, K) int64 CSR, with a column
        for each label in the order of ``labels``.
        """
        return self._apply(X, self.decide, threads)

    def predict_proba(self, X: Any, threads: int | None = None) -> np.ndarray:
        """Probabilities of the labels in the order of ``labels``, (n, K) float64, computed as in scikit-learn.

        For log, these are the logistic function, normalised to sum to one over several classes; for modified-huber, the
        clipped margin (Zhang 2004); for softmax, softmax. Where a row may have several labels, each probability is by
        itself.

        Raises
        ------
        UsageError
            If the loss has no probabilities.
        """
        self.check_probabilities()
        return self._apply(X, self.probabilities, threads)

    def predict_one(self, row: Any) -> Any:
        """Answer for one row, a dict, in some tens of microseconds; several threads may ask at once.

        Parameters
        ----------
        row : dict
            For a model of a table, its columns by name, all of them, with None for a missing value; other columns are
            passed over. Else values by the number of their feature, counted from 1 as in svmlight's text.

        Returns
        -------
        dict, label or float
            The probability of each label, as from :meth:`predict_proba`; if the loss has none, what :meth:`predict`
            returns.

        Raises
        ------
        InputError
            One line that names the column: not there, text where a number belongs, no date.

        Examples
        --------
        >>> import hogwild
        >>> table = {"device": ["phone", "desk"] * 50, "click": ["yes", "no"] * 50}
        >>> rows = hogwild.open_table(__import__("pyarrow").table(table), label="click")
        >>> model = hogwild.train(rows, l2=0.01, workers=1).finish()
        >>> answer = model.predict_one({"device": "phone"})
        >>> list(answer), answer["yes"] > 0.6
        (['no', 'yes'], True)
        """
        return self._scorer.predict_one(row)

    def predict_many(self, rows: Any) -> list[Any]:
        """Answer for each of several rows as :meth:`predict_one` does; an error names the row."""
        return self._scorer.predict_many(rows)

    @cached_property
    def _scorer(self) -> Scorer:
        return Scorer(*self.to_file())

    def to_sklearn(self) -> Any:
        """Return a fitted estimator of scikit-learn that predicts what this model does, and needs no hogwild.

        It is an ``SGDClassifier``, ``LogisticRegression`` (softmax), ``SGDRegressor`` or ``PoissonRegressor``; where
        rows are scaled to length one, a ``Pipeline`` with a ``Normalizer``.

        Raises
        ------
        InputError
            If features are hashed, or a weight is not finite.
        """
        from hogwild.interchange import to_sklearn

        return to_sklearn(self)

    def to_file(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and JSON header of the model file."""
        header = {
            "problem": "linear",
            "loss": self.loss,
            "loss_param": self.loss_param,
            "labels": self.labels,
            "width": self.width,
            "normalize": self.normalize,
        } | self.origin()
        more = {"hash_bits": self.hash_bits, "table": self.table, "multilabel": self.multilabel or None}
        header |= {name: value for name, value in more.items() if value is not None}
        return {"coef": self.coef_, "intercept": self.intercept_}, header

    @classmethod
    def from_file(cls, arrays: dict[str, np.ndarray], header: dict[str, Any], where: str | Path) -> LinearModel:
        """Restore the model that :meth:`to_file` converted.

        Raises
        ------
        InputError
            If anything does not fit; one line that begins with ``where``.
        """
        with usable(where):
            model = cls(
                coef_=arrays["coef"],
                intercept_=arrays["intercept"],
                loss=str(header["loss"]),
                loss_param=float(header["loss_param"]),
                labels=list(header["labels"]),
                normalize=str(header["normalize"]),
                hash_bits=header.get("hash_bits"),  # absent in files older than hashing
                table=header.get("table"),
                multilabel=bool(header.get("multilabel", False)),
                **origin_in(header),
            )
            width = int(header["width"])
        if len(arrays) > 2 or model.width != width:
            raise InputError(f"{where}: damaged: holds {model.width} features, its header says {width}")
        return model

    def check_probabilities(self) -> None:
        """Raise the UsageError of :meth:`predict_proba` if the loss has no probabilities."""
        if self.loss not in PROBABILITIES:
            raise UsageError(
                f"loss {self.loss} has no probabilities: train with {', '.join(PROBABILITIES)}, or ask for the decision"
            )

    def decide(self, margins: np.ndarray) -> Any:
        """Predictions for margins, (n,) float64: labels, or real values; of several labels a row (n, K) CSR."""
        if self.multilabel:
            return indicator(margins)
        if not self.labels:
            return expected_values(self.loss, margins)
        return self.classes_[likeliest(margins)]

    def probabilities(self, margins: np.ndarray) -> np.ndarray:
        """Probabilities from margins, (n, K) float64."""
        return probabilities(self.loss, margins, self.multilabel)

    def margins_of(self) -> Margins:
        """The margins of this model, for callers that iterate over rows themselves: hashed, if it has ``hash_bits``."""
        binary = len(self.coef_) == 1 and not self.multilabel
        coef, intercept = (self.coef_[0], self.intercept_[0]) if binary else (self.coef_, self.intercept_)
        return Margins(coef, intercept, self.normalize, self.check_features)

    def check_features(self, rows: Rows) -> None:
        """Raise InputError if the rows' features are not those of the model."""
        check_plan(rows.table, self.table, "the rows")
        check_same(rows.hash_bits, self.hash_bits, "the rows", "those of the model")

    def warn_unknown(self, count: int, stacklevel: int = 4) -> None:
        """Warn if ``count``, the entries beyond the width, is not 0; ``stacklevel`` points at the user's call."""
        if count:
            warnings.warn(
                f"{count:,} values of features beyond the model's {self.width:,} were ignored",
                HogwildWarning,
                stacklevel=stacklevel,
            )

    def _apply(self, X: Any, function: Callable[[np.ndarray], Any], threads: int | None) -> Any:
        margins, unknown = self.margins_of(), 0
        pieces: list[Any] = []
        for rows in self._hashed(X):
            unknown += count_unknown(rows, self.width, threads)
            pieces += margins.each(rows, function, threads)
        self.warn_unknown(unknown)
        if not pieces:
            return function(np.empty((0, *margins.coef.shape[1:])))
        return stacked(pieces)

    def _hashed(self, X: Any) -> Iterator[Rows]:
        """``X`` as rows of the model's features."""
        if self.table is not None and not isinstance(X, Rows):
            from hogwild.data.tables.source import stream_table

            yield from stream_table(X, self.table, labels=False)
            return
        for rows in as_rows(X):
            if self.hash_bits is not None and rows.hash_bits is None:
                yield from hashed_pieces(rows, self.hash_bits)
            else:
                yield rows


def indicator(margins: np.ndarray) -> Any:
    """A one for each margin (n, L) above zero: (n, L) int64 CSR."""
    import scipy.sparse

    return scipy.sparse.csr_array((margins > 0).astype(np.int64))


def stacked(pieces: list[Any]) -> Any:
    """Arrays, or CSR matrices, one below the other."""
    if isinstance(pieces[0], np.ndarray):
        return np.concatenate(pieces)
    import scipy.sparse

    return scipy.sparse.vstack(pieces, format="csr")


def as_rows(X: Any) -> Iterator[Rows]:
    """``X`` as one or more ``Rows`` with zero targets; a dense array is split into few rows each, to bound memory."""
    import scipy.sparse

    if isinstance(X, Rows):
        yield X
        return
    if scipy.sparse.issparse(X):
        yield Rows.from_scipy(X, np.zeros(X.shape[0], dtype=np.float32))
        return
    dense = np.asarray(X)
    if dense.ndim != 2 or dense.dtype.kind not in "biuf":
        raise InputError(f"X: expected real numbers in two dimensions, got shape {dense.shape}, dtype {dense.dtype}")
    batch = max(1, CHUNK_NONZEROS // max(1, dense.shape[1]))
    for first in range(0, len(dense), batch):
        part = dense[first : first + batch]
        yield Rows.from_scipy(part, np.zeros(len(part), dtype=np.float32))
