"""Margins ``scale * (x . w) + b`` of many rows, in float64, used by objectives and predictions.

A compiled loop (``margins_kernel.py``) that shares nothing with the kernels it judges processes chunk by chunk on a
pool of threads, at half the memory bandwidth or more. No rows are copied, not even those of a hold-out. Numba is
imported when margins are first asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from hogwild.data.rows.chunks import map_chunks
from hogwild.data.rows.container import EMPTY, Rows, readonly
from hogwild.data.rows.normalize import row_scales

Result = TypeVar("Result")


class Margins:
    """Computes margins of chosen chunks; the parameters are converted once to what the loop expects.

    Parameters
    ----------
    coef : array, shape (width,) or (K, width)
        float32 or float64; any other type is converted to float64.
    intercept : float or array, shape (), (1,) or (K,)
    normalize : {"none", "l2", "max"}
    """

    def __init__(self, coef: Any, intercept: Any, normalize: str = "none") -> None:
        coef = np.asarray(coef)
        self.width = coef.shape[-1]
        dtype = np.float32 if coef.dtype == np.float32 else np.float64
        self.coef = readonly(np.ascontiguousarray(coef.T, dtype=dtype))  # (width,) or (width, K)
        flat = np.ravel(np.asarray(intercept, dtype=np.float64))
        self.intercept = flat if coef.ndim == 2 else float(flat[0])
        self.normalize = normalize
        self._zero = not self.coef.any()  # as before the first epoch

    @property
    def columns(self) -> int:
        """Number of margins per row."""
        return 1 if self.coef.ndim == 1 else int(self.coef.shape[1])

    def between(self, rows: Rows, first: int, last: int, scales: np.ndarray | None = None) -> np.ndarray:
        """Margins of the rows ``first <= i < last``, (n,) or (n, K) float64; ``scales``: of all rows, if known."""
        from hogwild.data.rows.margins_kernel import margins, margins_of_classes

        out = np.empty((last - first, *self.coef.shape[1:]))
        if self._zero:
            out[:] = self.intercept
            return out
        if scales is not None:
            scales = scales[first:last]
        elif self.normalize != "none":
            scales = row_scales(rows.block(first, last), self.normalize, self.width, threads=1)
        loop = margins if self.coef.ndim == 1 else margins_of_classes
        scales = EMPTY if scales is None else readonly(scales)
        entries = rows.begin[first:last], rows.end[first:last], rows.indices, rows.values
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
