"""The mean loss on all rows and its derivatives, in float64: what Newton's method asks of a problem.

LossSums are taken in a few parts, whatever the number of threads, so the last bit does not depend on the machine.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from hogwild.data.parallel import map_cuts
from hogwild.data.rows.container import EMPTY, Rows, readonly
from hogwild.data.rows.margins_kernel import margins_of_classes
from hogwild.kernels.losses import LOSSES
from hogwild.problems.linear.optimum import kernel

PARTS = 4  # parts of the rows that sums are taken in
FEW = 1_000_000  # entries below which one part is as fast, as it is if its sums are as many
WIDE = 1 << 22  # features above which one part is taken, since each has sums of its own


class LossSums:
    """LossSums over rows with one margin; parameters are (width + 1,), the intercept last.

    Parameters
    ----------
    rows : Rows
    loss, param : str, float
    targets, shares : array of float64, shape (n,)
        Shares are weights over the number of rows.
    scales : array of float32, shape (n,), optional
        Factors on the rows' values; an empty array is none.
    alone : bool
        Whether one thread takes all sums, since others are at work too.
    """

    def __init__(
        self,
        rows: Rows,
        loss: str,
        param: float,
        targets: np.ndarray,
        shares: np.ndarray,
        scales: np.ndarray | None,
        alone: bool = False,
    ) -> None:
        self.rows = rows
        self.code = LOSSES[loss].code
        self.param = param
        self.alone = alone
        self.targets, self.shares = targets, shares
        self._kept: dict[str, Any] = {}  # also of the same rows with another loss
        factors = EMPTY if scales is None else readonly(scales)
        self.entries = rows.begin, rows.end, rows.indices, rows.values, factors
        one = alone or rows.nnz < max(FEW, PARTS * rows.width) or rows.width > WIDE
        ends = np.linspace(0, len(rows), 2 if one else PARTS + 1).astype(np.int64).tolist()
        self.cuts = [(a, b) for a, b in itertools.pairwise(ends) if a < b]

    def bent(self) -> LossSums:
        """The same rows with parabolas for the kinks of their loss, which targets and parameter are then to place."""
        other = copy.copy(self)
        other.code = self.code + kernel.BENT
        return other

    @property
    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The rows by column: where columns start, and numbers and values of their rows."""
        if "columns" not in self._kept:
            X = self.rows.to_scipy()[0].tocsc()
            values = X.data * self.entries[4][X.indices] if len(self.entries[4]) else X.data
            self._kept["columns"] = X.indptr.astype(np.int64), X.indices.astype(np.int32), values.astype(np.float32)
        return self._kept["columns"]

    def part(self, first: int, last: int) -> tuple[np.ndarray, ...]:
        begin, end, indices, values, scales = self.entries
        return begin[first:last], end[first:last], indices, values, scales[first:last]

    def each(self, function: Callable[[int, int], Any]) -> list[Any]:
        if len(self.cuts) == 1:  # on few rows a generator takes as long as some passes
            return [function(*self.cuts[0])]
        return list(map_cuts(self.cuts, function))

    def margins(self, x: np.ndarray) -> np.ndarray:
        out = np.empty(len(self.rows))
        self.each(lambda a, b: kernel.margins(self.part(a, b), x, out[a:b]))
        return out

    def derive(self, p: np.ndarray, q: np.ndarray, t: float) -> tuple[float, float, float]:
        """Go to the margins ``p + t q``: keep them, and the slopes and curvatures of the rows' losses there.

        Return the mean loss along the direction ``q``, its slope and its curvature.
        """
        r = np.empty_like(p)
        slopes = np.empty_like(p)
        bends = np.empty_like(p)

        loop = kernel.derive if p.ndim == 1 else kernel.derive_classes

        def part(a: int, b: int) -> Any:
            loss = self.targets[a:b], self.shares[a:b], self.code, self.param
            return loop(p[a:b], q[a:b], t, *loss, r[a:b], slopes[a:b], bends[a:b])

        parts = self.each(part)
        self.p = r
        self.slopes = slopes
        self.bends = bends
        value, slope, curvature = (sum(each) for each in zip(*parts))
        return value, slope, curvature

    def gather(self, slopes: np.ndarray, squared: bool = False) -> np.ndarray:
        """The rows, or the squares of their values, times numbers (n,) or (n, K), like the parameters."""
        loop = kernel.gather if slopes.ndim == 1 else kernel.gather_classes
        return self._sum(lambda a, b, out: loop(self.part(a, b), slopes[a:b], squared, out))

    def product(self, x: np.ndarray) -> np.ndarray:
        """The Hessian times parameters."""
        return self._sum(lambda a, b, out: kernel.product(self.part(a, b), self.bends[a:b], x, out))

    def curvatures(self) -> np.ndarray:
        """The rows' curvatures, each class by itself."""
        return self.bends

    def _sum(self, function: Callable[[int, int, np.ndarray], Any]) -> np.ndarray:
        def part(a: int, b: int) -> np.ndarray:
            out = np.zeros((self.rows.width + 1, *self.p.shape[1:]))
            function(a, b, out)
            return out

        total, *others = self.each(part)
        for other in others:
            total += other
        return total


class Softmax(LossSums):
    """LossSums of the cross-entropy over all classes: margins are (n, K), parameters (width + 1, K)."""

    def margins(self, x: np.ndarray) -> np.ndarray:
        out, coef = np.empty((len(self.rows), x.shape[1])), readonly(x[:-1])
        self.each(lambda a, b: margins_of_classes(*self.part(a, b)[:4], coef, x[-1], self.part(a, b)[4], out[a:b]))
        return out

    def product(self, x: np.ndarray) -> np.ndarray:
        change = self.margins(x)
        self.each(lambda a, b: kernel.bend_classes(self.bends[a:b], self.shares[a:b], change[a:b]))
        return self.gather(change)

    def curvatures(self) -> np.ndarray:
        return self.shares[:, None] * self.bends * (1.0 - self.bends)
