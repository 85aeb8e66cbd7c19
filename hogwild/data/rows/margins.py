"""Margins ``scale * (x . w) + b`` of many rows, in float64, used by objectives and predictions.

A compiled loop (``margins_kernel.py``) that shares nothing with the kernels it judges processes chunk by chunk on a
pool of threads, at half the memory bandwidth or more. No rows are copied, not even those of a hold-out. Numba is
imported when margins are first asked for.

Rows of another length are never rewritten to have length one. A row's scale is one number, and ``(scale * x) . w`` is
``scale * (x . w)``, so training and prediction multiply the margin: this takes 4 bytes a row instead of a second copy
of the data, and one store serves every normalisation. It costs one pass over the entries, at memory bandwidth.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from hogwild.data.rows.container import EMPTY, Rows, map_chunks, readonly

Result = TypeVar("Result")


class Margins:
    """Computes margins of chosen chunks; the parameters are converted once to what the loop expects.

    Parameters
    ----------
    coef : array, shape (width,) or (K, width)
        float32 or float64; any other type is converted to float64.
    intercept : float or array, shape (), (1,) or (K,)
    normalize : {"none", "l2"}
    check : function, optional
        Raises InputError for rows with other features than the parameters'.
    """

    def __init__(
        self, coef: Any, intercept: Any, normalize: str = "none", check: Callable[[Rows], None] | None = None
    ) -> None:
        coef = np.asarray(coef)
        self.width = coef.shape[-1]
        dtype = np.float32 if coef.dtype == np.float32 else np.float64
        self.coef = readonly(np.ascontiguousarray(coef.T, dtype=dtype))  # (width,) or (width, K)
        flat = np.ravel(np.asarray(intercept, dtype=np.float64))
        self.intercept = flat if coef.ndim == 2 else float(flat[0])
        self.normalize, self.check = normalize, check

    @property
    def columns(self) -> int:
        """Number of margins per row."""
        return 1 if self.coef.ndim == 1 else int(self.coef.shape[1])

    def between(self, rows: Rows, first: int, last: int, scales: np.ndarray | None = None) -> np.ndarray:
        """Margins of the rows ``first <= i < last``, (n,) or (n, K) float64; ``scales``: of all rows, if known."""
        if self.check is not None:
            self.check(rows)
        if scales is not None:
            scales = scales[first:last]
        elif self.normalize != "none":
            scales = row_scales(rows.block(first, last), self.normalize, self.width, threads=1)
        scales = EMPTY if scales is None else readonly(scales)
        return self._margins((rows.begin[first:last], rows.end[first:last], rows.indices, rows.values), scales)

    def _margins(self, entries: tuple[np.ndarray, ...], scales: np.ndarray) -> np.ndarray:
        from hogwild.data.rows.margins_kernel import margins, margins_of_classes

        out = np.empty((len(entries[0]), *self.coef.shape[1:]))
        loop = margins if self.coef.ndim == 1 else margins_of_classes
        loop(*entries, self.coef, self.intercept, scales, out)
        return out

    def of(self, part: Rows) -> np.ndarray:
        """Margins of rows, computed in the calling thread."""
        return self.between(part, 0, len(part))

    def each(
        self, rows: Rows, function: Callable[[np.ndarray], Result], threads: int | None = None
    ) -> Iterator[Result]:
        """Yield ``function(margins)`` of each chunk of ``rows``, in order."""
        return map_chunks(rows, lambda first, last: function(self.between(rows, first, last)), threads, self.columns)


def margins(rows: Rows, coef: Any, intercept: Any, normalize: str = "none", threads: int | None = None) -> np.ndarray:
    """Margins of all rows, float64: ``(n,)`` for ``coef`` of shape (width,), ``(n, K)`` for (K, width).

    Rows may be narrower than the model; features beyond its width are left out. Parameters that are not finite give
    margins that are not finite, without a warning.
    """
    parts = Margins(coef, intercept, normalize)
    found = list(parts.each(rows, lambda part: part, threads))
    return np.concatenate(found) if found else np.empty((0, *parts.coef.shape[1:]))


# -- rows of length one ------------------------------------------------------------------------------------------------


def row_scales(rows: Rows, kind: str, width: int | None = None, threads: int | None = None) -> np.ndarray | None:
    """Factor by which each row is multiplied.

    Parameters
    ----------
    rows : Rows
        Streamed in chunks, so they may be larger than memory.
    kind : {"none", "l2"}
    width : int, optional
        Features at or beyond it are left out of the length, as of the margin.
    threads : int, optional
        Default: the cores available to this process.

    Returns
    -------
    array of float32, shape (n,), or None for "none"
        One over the row's length; one for a row without a nonzero value, which stays zero.

    """
    if kind == "none":
        return None
    from hogwild.data.rows.margins_kernel import row_scales as fill

    limit = rows.width if width is None else width
    scales = np.empty(len(rows), dtype=np.float32)

    def part(first: int, last: int) -> None:
        entries = rows.begin[first:last], rows.end[first:last], rows.indices, rows.values
        fill(*entries, limit, scales[first:last])

    deque(map_chunks(rows, part, threads), 0)
    return scales


def scaled(values: np.ndarray, rows: Rows, kind: str, dtype: Any) -> np.ndarray:
    """Copy of these rows' ``values`` as ``dtype``, concatenated, each multiplied by its row's scale."""
    copy = values.astype(dtype)
    scales = row_scales(rows, kind)
    if scales is not None:
        copy *= np.repeat(scales.astype(dtype), rows.end - rows.begin)
    return copy
