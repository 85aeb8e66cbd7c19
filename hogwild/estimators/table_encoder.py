"""``HogwildTableEncoder``: a frame's columns as hashed sparse features, for a pipeline of scikit-learn.

It makes the rows that ``open_table`` makes, without a label: the plan is made in ``fit``, and other frames are read by
it. Arrays are taken as frames whose columns are ``x0``, ``x1``, ...
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from hogwild.data.cache import build
from hogwild.data.rows.container import Rows
from hogwild.data.tables.files import framed, is_frame
from hogwild.data.tables.plan import AskedColumns
from hogwild.data.tables.source import stream_table, table_recipe
from hogwild.errors import InputError, reason_of

Columns = str | Iterable[str] | None


@dataclass(eq=False, repr=False)
class HogwildTableEncoder(TransformerMixin, BaseEstimator):
    """Turns frames of pandas, polars or pyarrow into sparse features: categories, numbers, text, dates and crosses.

    Parameters
    ----------
    categorical, numeric, text, date, bucket, cross, ignore : names, optional
        What columns are, as for :func:`hogwild.open_table`; by default their types tell.
    hash_bits : int, optional
        Features are hashed to ``2**hash_bits`` columns; by default 18 to 24, as many as the frame needs.

    Attributes
    ----------
    plan_ : dict
        The use of each column, with the facts of the frame it was fitted to.
    fields_ : array of int16, shape (2**hash_bits,)
        Number of the column that each feature is of, for ``HogwildFMClassifier(field_aware=True, fields=...)``.
    n_features_in_ : int
    feature_names_in_ : array of str

    See Also
    --------
    open_table : the same of files, for :func:`hogwild.train`.

    Examples
    --------
    >>> import pandas as pd
    >>> from hogwild import HogwildTableEncoder
    >>> frame = pd.DataFrame({"device": ["phone", "tv"], "site": ["a", "b"], "price": [1.5, 2.0]})
    >>> HogwildTableEncoder(cross="device*site", hash_bits=10).fit_transform(frame).shape
    (2, 1024)
    """

    _: KW_ONLY
    categorical: Columns = None
    numeric: Columns = None
    text: Columns = None
    date: Columns = None
    bucket: Columns = None
    cross: Columns = None
    ignore: Columns = None
    hash_bits: int | None = None

    def fit(self, X: Any, y: Any = None) -> Self:
        """Make the plan of a frame.

        Parameters
        ----------
        X : frame of pandas, polars or pyarrow, or array of shape (n, columns)
        y : ignored

        Raises
        ------
        InputError, UsageError
            One line that names the column, and the row if known.
        """
        self.fit_transform(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> scipy.sparse.csr_array:
        """Do :meth:`fit` and :meth:`transform`, in one pass less."""
        asked = self.get_params()
        bits = asked.pop("hash_bits")
        recipe = table_recipe(self._table(X, reset=True), AskedColumns.of(**asked), bits, labels=False)
        rows: Rows = build(None, recipe)[0]
        assert rows.table is not None
        assert rows.fields is not None
        self.plan_ = rows.table
        self.fields_ = np.maximum(rows.fields, 0)
        return rows.to_scipy()[0]

    def transform(self, X: Any) -> scipy.sparse.csr_array:
        """Return a frame's features, (n, 2**hash_bits) float32; it needs the columns of the one fitted to."""
        check_is_fitted(self)
        blocks = stream_table(self._table(X, reset=False), self.plan_, labels=False)
        parts = [block.to_scipy()[0] for block in blocks]
        return scipy.sparse.vstack(parts or [scipy.sparse.csr_array((0, len(self.fields_)), dtype=np.float32)], "csr")

    def _table(self, X: Any, reset: bool) -> Any:
        import pyarrow as pa

        if is_frame(X):
            X = framed(X)
            if reset:
                validate_data(self, X, reset=True, skip_check_array=True)
            return X
        array = validate_data(self, X, reset=reset, dtype=None, ensure_all_finite="allow-nan")
        columns = {}
        for k, column in enumerate(array.T):
            try:
                columns[f"x{k}"] = pa.array(column, from_pandas=True)
            except pa.ArrowException as error:
                raise InputError(f"X: column {k} needs values of one type: {reason_of(error)}") from None
        return pa.table(columns)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        tags.transformer_tags.preserves_dtype = []  # always float32
        return tags
