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
from hogwild.cuda.work import Launcher, Segment
from hogwild.data.rows.container import Rows
from hogwild.problems.linear.objective import Objective
from hogwild.problems.linear.problem import LinearProblem
from hogwild.problems.linear.rows import SHARE_NONZEROS, SHARE_ROWS

INT32 = 2**31 - 2**10  # kernels look a little beyond a row's end


class LinearLauncher(Launcher):
    """See :class:`hogwild.cuda.work.Launcher`; ``arrays`` are the arguments of ``LinearProblem.data``."""

    problem: LinearProblem

    def __init__(self, problem: LinearProblem, arrays: Mapping[str, np.ndarray], backend: Backend) -> None:
        self.flat = torch.zeros(problem.size, device=backend.device)
        self.rates = torch.from_numpy(np.array(arrays["rates"])).to(backend.device)  # (width,) or empty
        self.problem, self._backend = problem, backend
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
        if not self.problem.unit:
            found["values"] = rows.values[entries]
        for name, array in (("weights", self._weights), ("scales", self._scales)):
            if len(array):
                found[name] = array[first:last]
        return found

    def bytes_of(self, first: int, last: int) -> int:
        nonzeros = int((self._rows.end[first:last] - self._rows.begin[first:last]).sum())
        row = 2 * np.dtype(self._offsets(nonzeros)).itemsize + 4 * (
            1 + bool(len(self._weights)) + bool(len(self._scales))
        )
        return row * (last - first) + (4 if self.problem.unit else 8) * nonzeros

    def room(self) -> int:
        return self._backend.programs()  # a row each

    def sums(self, data: Mapping[str, torch.Tensor]) -> np.ndarray | None:
        found: np.ndarray = sums(self.problem, self._parameters, data).cpu().numpy()
        return found

    def replica(self, number: int, stream: DeviceStream, in_flight: int) -> Callable[[Segment], None]:
        kernels, problem, parameters = self._backend.kernels("linear"), self.problem, self._parameters
        block = kernels.block_of(problem, self._rows.nnz / max(len(self._rows), 1))

        def launch(segment: Segment) -> None:
            kernels.visit(problem, parameters, self.rates, segment.data, segment.visits, in_flight, block)

        return launch

    @property
    def _parameters(self) -> Any:
        """Views of the flat array, as tensors."""
        return self.problem.parameters(self.flat)

    @staticmethod
    def _offsets(nonzeros: int) -> type[np.signedinteger[Any]]:
        return np.int32 if nonzeros < INT32 else np.int64

    @cached_property
    def objective(self) -> Objective:
        p, ids = self.problem, self._rows.spread(SHARE_NONZEROS, SHARE_ROWS)
        labels = (-1.0, 1.0) if p.classes == 1 else tuple(map(float, range(p.classes)))
        weights = self._weights[ids] if len(self._weights) else None
        return Objective(
            self._rows.select(ids).compact(), p.loss, p.loss_param, l1=p.l1, l2=p.l2, normalize=p.normalize,
            labels=labels if p.labels else (), weights=weights, width=p.width,
        )  # fmt: skip
