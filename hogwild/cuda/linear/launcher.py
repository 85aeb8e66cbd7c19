"""The linear problem on a CUDA device: the arrays copied there, and how many rows may be in flight at the same time.

Rows may lie in any order, or be a part of larger arrays: offsets start from zero in each part of the data, and have
32 bits wherever that is enough. Values that are all one are not copied.

The important choice is the number of rows in flight. F rows that all see the same weights are a batch of F, with F
times the step of one. Near the optimum the loss is quadratic, and with curvature c an error v becomes

    v - step * c * sum_{i=1..F} x_i (x_i . v),

whose expected square falls while ``2 H - step * c * (E[|x|^2 x x'] + (F - 1) H H)`` is positive, with ``H = E[x x']``,
that is, if ``step * c * (beta + (F - 1) * lambda) < 2``, with lambda the largest eigenvalue of H and
``E[|x|^2 x x'] <= beta H``.
So the largest batch is

    F = 1 + (2 / (step * c) - beta) / lambda.

It is the critical batch of Ma, Bassily and Belkin (2018), "The power of interpolation"; without the features' values it
is the bound on parallel updates of Bradley, Kyrola, Bickson and Guestrin (2011), "Parallel coordinate descent for
L1-regularized loss minimization". Half of it is used, since updates also come late, and by more than one visit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch

from hogwild.cuda.backend import Backend, DeviceStream
from hogwild.cuda.work import Segment
from hogwild.data.rows.container import Rows
from hogwild.kernels.losses import LOSSES, dloss
from hogwild.problems.linear.problem import LinearProblem
from hogwild.problems.linear.rows import SHARE_NONZEROS, SHARE_ROWS

# Largest second derivative of a loss; for a kink, that of a kink spread over one unit
CURVATURE = {
    "log": 0.25, "softmax": 0.5, "squared-hinge": 2.0, "modified-huber": 2.0, "squared-epsilon-insensitive": 2.0,
}  # fmt: skip
CAUTION = 0.5
ITERATIONS = 30
INT32 = 2**31 - 2**10  # kernels look a little beyond a row's end


class LinearLauncher:
    """See :class:`hogwild.cuda.work.Launcher`; ``arrays`` are the arguments of ``LinearProblem.data``."""

    block = 1  # a row is long enough to be read alone

    def __init__(
        self, problem: LinearProblem, arrays: Mapping[str, np.ndarray], backend: Backend, replicas: int
    ) -> None:
        self.flat = torch.zeros(problem.size, device=backend.device)
        self.rates = torch.from_numpy(np.array(arrays["rates"])).to(backend.device)  # (width,) or empty
        self._problem, self._backend, self.streams = problem, backend, replicas
        self._weights, self._scales = arrays["weights"], arrays["scales"]
        ends = arrays["begin"], arrays["end"]
        self._rows = Rows(ends, arrays["indices"], arrays["values"], arrays["targets"], problem.width, check=False)
        self._contiguous = self._rows.contiguous

    def part(self, first: int, last: int) -> dict[str, np.ndarray]:
        """``begin end indices targets`` and, unless they are all one, ``values weights scales``.

        They are slices, except that entries of rows not stored consecutively are copied.
        """
        rows = self._rows.block(first, last)
        if self._contiguous and len(rows):
            base = int(rows.begin[0])
            entries = slice(base, int(rows.end[-1]))
        else:
            rows, base, entries = rows.compact(), 0, slice(None)
        offsets = self._offsets(rows.nnz)
        found = {
            "begin": (rows.begin - base).astype(offsets),
            "end": (rows.end - base).astype(offsets),
            "indices": rows.indices[entries],
            "targets": rows.targets,
        }
        if not self._problem.unit:
            found["values"] = rows.values[entries]
        for name, array in (("weights", self._weights), ("scales", self._scales)):
            if len(array):
                found[name] = array[first:last]
        return found

    def bytes_of(self, first: int, last: int) -> int:
        """Bytes of :meth:`part`."""
        nonzeros = int((self._rows.end[first:last] - self._rows.begin[first:last]).sum())
        row = 2 * np.dtype(self._offsets(nonzeros)).itemsize + 4 * (1 + sum(map(bool, map(len, self._per_row))))
        return row * (last - first) + (4 if self._problem.unit else 8) * nonzeros

    def granule(self) -> int:
        """Return 0: a launch visits any number of rows."""
        return 0

    def room(self) -> int:
        """One row per program."""
        return self._backend.programs()

    def in_flight(self, step: float) -> int:
        """Half the rows in flight at which a step this long diverges (see above), at most what the device holds."""
        most = self.room()
        beta, largest = self._spectrum
        bent = step * self._curvature
        if bent * largest <= 0.0:  # nothing moves, or there is nothing to move
            return most
        rows = CAUTION * (1.0 + (2.0 / bent - beta) / largest)
        return int(min(max(rows, 1.0), most))

    def replica(self, number: int, stream: DeviceStream, in_flight: int) -> Callable[[Segment], None]:
        """Return a function that visits a segment with ``in_flight`` programs."""
        kernels, problem, parameters = self._backend.kernels("linear"), self._problem, self._parameters
        mean = self._rows.nnz / max(len(self._rows), 1)
        block = kernels.block_of(problem, mean)

        def launch(segment: Segment) -> None:
            kernels.visit(problem, parameters, self.rates, segment.data, segment.rows, segment.steps, in_flight, block)

        return launch

    @property
    def _parameters(self) -> Any:
        """Views of the flat array, as tensors."""
        return self._problem.parameters(self.flat)

    @property
    def _per_row(self) -> tuple[np.ndarray, np.ndarray]:
        return self._weights, self._scales

    @staticmethod
    def _offsets(nonzeros: int) -> type[np.signedinteger[Any]]:
        return np.int32 if nonzeros < INT32 else np.int64

    @property
    def _curvature(self) -> float:
        if self._problem.loss == "poisson":  # exp(margin), which is the expected target if the model is right
            return max(float(self._rows.targets.mean()), 1.0)
        return CURVATURE.get(self._problem.loss, 1.0)

    @cached_property
    def _spectrum(self) -> tuple[float, float]:
        """``beta`` and ``lambda`` of rows with their scales, weights, and the intercept as a feature."""
        return spectrum(self._problem, self._rows, self._weights, self._scales)


def spectrum(problem: LinearProblem, rows: Rows, weights: np.ndarray, scales: np.ndarray) -> tuple[float, float]:
    """Mean of ``|x|^2``, weighted by the rows' squared norms, and the largest eigenvalue of ``E[x x']``.

    Both use evenly spaced rows: at most 2,048, with about 4 million nonzeros. The eigenvalue is by power iteration,
    from below. The intercept is a feature of value ``sqrt(share)``. With AdaGrad a feature's step is divided by the
    root of its sum of squared gradients: here the sum that one pass would leave if slopes stayed as at zero weights.

    Parameters
    ----------
    weights, scales : arrays of float32, shape (n,)
        May be empty.
    """
    ids = rows.spread(SHARE_NONZEROS, SHARE_ROWS)
    sample, n = rows.select(ids).compact(), len(ids)
    owner = np.repeat(np.arange(n), sample.end - sample.begin)
    columns, column = np.unique(sample.indices, return_inverse=True)
    x = sample.values.astype(np.float64) * (scales[ids][owner] if len(scales) else 1.0)
    weight = weights[ids].astype(np.float64) if len(weights) else np.ones(n)
    constant = np.sqrt(problem.intercept)
    if problem.adagrad:
        squared = len(rows) * _slope_squared(problem, sample.targets, weight)
        roots = squared * np.bincount(column, x * x, len(columns)) / n
        x = x / np.maximum(roots, 1e-30)[column] ** 0.25
        constant = constant / max(squared, 1e-30) ** 0.25
    sizes = np.bincount(owner, x * x, n) + constant**2

    def product(v: np.ndarray, b: float) -> tuple[np.ndarray, float]:
        margins = weight * (np.bincount(owner, x * v[column], n) + constant * b) / n
        return np.bincount(column, x * margins[owner], len(columns)), float(constant * margins.sum())

    v, b = np.random.default_rng(0).normal(size=len(columns)), 1.0
    largest = 0.0
    for _ in range(ITERATIONS):
        length = np.sqrt(np.einsum("i,i->", v, v) + b * b)  # without BLAS and its threads
        if length == 0.0:
            break
        v, b = product(v / length, b / length)
        largest = float(np.sqrt(np.einsum("i,i->", v, v) + b * b))
    total = float((weight * sizes).sum())
    return float((weight**2 * sizes**2).sum()) / total if total > 0 else 0.0, largest


def _slope_squared(problem: LinearProblem, targets: np.ndarray, weight: np.ndarray) -> float:
    """Mean squared slope at zero weights, also over classes."""
    own = np.arange(problem.classes) == targets[:, None]
    if problem.loss == "softmax":
        g = 1.0 / problem.classes - own
    else:
        slope = np.vectorize(lambda y: dloss(LOSSES[problem.loss], 0.0, y, problem.loss_param), otypes=[np.float64])
        g = slope(targets[:, None]) if problem.classes == 1 else np.where(own, *slope((1.0, -1.0)))
    return float((weight**2 * (g * g).mean(1)).mean())
