"""Margins ``scale * (x . w) + b`` of many rows, in float64: what objectives are made of and models predict with.

The one decision: scipy's sparse product, which releases the GIL, chunk by chunk over a pool of threads. A chunk's
float64 copy is 2 MB a thread whatever the size of the data. Costs 1.5 to 2.5 ns a nonzero and core.

This is the evaluator's arithmetic: it shares nothing with the kernels it judges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from hogwild.data.chunks import known_part, map_chunks
from hogwild.data.examples import Rows
from hogwild.data.normalize import chunk_scales

Result = TypeVar("Result")


class Margins:
    """``margins`` of chosen chunks: parameters in float64, and the layout scipy wants, made once.

    Parameters
    ----------
    coef : array, shape (width,) or (K, width)
    intercept : float or array, shape (), (1,) or (K,)
    normalize : {"none", "l2", "max"}
    """

    def __init__(self, coef: Any, intercept: Any, normalize: str = "none") -> None:
        coef = np.asarray(coef)
        self.width = coef.shape[-1]
        self.coef = np.ascontiguousarray(coef.T, dtype=np.float64)  # (width,) or (width, K)
        flat = np.ravel(np.asarray(intercept, dtype=np.float64))
        self.intercept = flat if coef.ndim == 2 else flat[0]
        self.normalize = normalize

    @property
    def columns(self) -> int:
        """Margins of a row."""
        return 1 if self.coef.ndim == 1 else int(self.coef.shape[1])

    def of(self, part: Rows, scales: np.ndarray | None = None) -> np.ndarray:
        """Margins of rows that fit in memory, (n,) or (n, K) float64; ``scales`` if they are known already."""
        import scipy.sparse

        if not self.coef.any():  # before the first epoch
            return np.zeros((len(part), *self.coef.shape[1:])) + self.intercept
        part = known_part(part, self.width)
        low, high = (int(part.begin[0]), int(part.end[-1])) if len(part) else (0, 0)
        offsets = np.zeros(len(part) + 1, dtype=np.int32 if high - low < 2**31 else np.int64)
        offsets[1:] = part.end - low
        values = part.values[low:high].astype(np.float64)  # else scipy would convert, and the indices to int64 with it
        X = scipy.sparse.csr_array((len(part), self.width), dtype=np.float64)
        X.data, X.indices, X.indptr = values, part.indices[low:high], offsets  # the constructor would copy the slice
        with np.errstate(all="ignore"):  # a diverged model has margins inf and NaN, and that is the answer
            margins = X @ self.coef
            if scales is None and self.normalize != "none":
                scales = chunk_scales(part, self.normalize)
            if scales is not None:
                margins *= scales if margins.ndim == 1 else scales[:, None]
            margins += self.intercept
        return margins

    def each(
        self, rows: Rows, function: Callable[[np.ndarray], Result], threads: int | None = None
    ) -> Iterator[Result]:
        """``function(margins)`` of each chunk of ``rows``, in order."""
        return map_chunks(rows, lambda first, last: function(self.of(rows.block(first, last))), threads, self.columns)


def margins(rows: Rows, coef: Any, intercept: Any, normalize: str = "none", threads: int | None = None) -> np.ndarray:
    """Margins of all rows, float64: ``(n,)`` for ``coef`` of shape (width,), ``(n, K)`` for (K, width).

    Rows may be narrower than the model, and features beyond its width are left out. Parameters that are not finite
    give margins that are not, without a warning.
    """
    parts = Margins(coef, intercept, normalize)
    found = list(parts.each(rows, lambda part: part, threads))
    return np.concatenate(found) if found else np.empty((0, *parts.coef.shape[1:]))
