"""The linear problem on a CUDA device: the arrays copied there, and the launches of its kernels.

Rows may lie in any order, or be a part of larger arrays: offsets start from zero in each part of the data, and have
32 bits wherever that is enough. Values that are all one are not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch

from hogwild.cuda.backend import Backend, DeviceStream
from hogwild.cuda.linear.sums import sums
from hogwild.cuda.work import Segment
from hogwild.data.rows.container import Rows
from hogwild.problems.linear.objective import Objective
from hogwild.problems.linear.problem import LinearProblem
from hogwild.problems.linear.rows import SHARE_NONZEROS, SHARE_ROWS

INT32 = 2**31 - 2**10  # kernels look a little beyond a row's end


class LinearLauncher:
    """See :class:`hogwild.cuda.work.Launcher`; ``arrays`` are the arguments of ``LinearProblem.data``."""

    block = 1  # a row is long enough to be read alone
    trials = 1

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
        row = 2 * np.dtype(self._offsets(nonzeros)).itemsize + 4 * (
            1 + bool(len(self._weights)) + bool(len(self._scales))
        )
        return row * (last - first) + (4 if self._problem.unit else 8) * nonzeros

    def granule(self) -> int:
        """Return 0: a launch visits any number of rows."""
        return 0

    def room(self) -> int:
        """One row per program."""
        return self._backend.programs()

    def judge(self, flat: np.ndarray) -> float:
        """Return the objective on evenly spaced rows."""
        return float(self._objective.evaluate(*self._problem.solution(flat))["objective"] or 0.0)

    def sums(self, data: Mapping[str, torch.Tensor]) -> np.ndarray | None:
        """Sums over all rows, as the evaluator's."""
        found: np.ndarray = sums(self._problem, self._parameters, data).cpu().numpy()
        return found

    def replica(self, number: int, stream: DeviceStream, in_flight: int) -> Callable[[Segment], None]:
        """Return a function that visits a segment with ``in_flight`` programs."""
        kernels, problem, parameters = self._backend.kernels("linear"), self._problem, self._parameters
        mean = self._rows.nnz / max(len(self._rows), 1)
        block = kernels.block_of(problem, mean)

        def launch(segment: Segment) -> None:
            kernels.visit(problem, parameters, self.rates, segment.data, segment.visits, in_flight, block)

        return launch

    @property
    def _parameters(self) -> Any:
        """Views of the flat array, as tensors."""
        return self._problem.parameters(self.flat)

    @staticmethod
    def _offsets(nonzeros: int) -> type[np.signedinteger[Any]]:
        return np.int32 if nonzeros < INT32 else np.int64

    @cached_property
    def _objective(self) -> Objective:
        p, ids = self._problem, self._rows.spread(SHARE_NONZEROS, SHARE_ROWS)
        labels = (-1.0, 1.0) if p.classes == 1 else tuple(map(float, range(p.classes)))
        weights = self._weights[ids] if len(self._weights) else None
        return Objective(
            self._rows.select(ids).compact(), p.loss, p.loss_param, l1=p.l1, l2=p.l2, normalize=p.normalize,
            labels=labels if p.labels else (), weights=weights, width=p.width,
        )  # fmt: skip
