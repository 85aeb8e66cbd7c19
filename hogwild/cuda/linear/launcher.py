"""The linear problem on a CUDA device: the arrays copied there, and the launches of its kernels."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch

from hogwild.cuda.backend import Backend
from hogwild.cuda.linear.sums import sums
from hogwild.cuda.rows import bytes_of, part_of
from hogwild.cuda.work import Launcher
from hogwild.data.rows.container import Rows
from hogwild.problems.linear.objective import Objective
from hogwild.problems.linear.problem import LinearProblem
from hogwild.problems.linear.rows import SHARE_NONZEROS, SHARE_ROWS


class LinearLauncher(Launcher):
    """See :class:`hogwild.cuda.work.Launcher`; ``arrays`` are the arguments of ``LinearProblem.data``."""

    name = "linear"
    problem: LinearProblem

    def __init__(self, problem: LinearProblem, arrays: Mapping[str, np.ndarray], backend: Backend) -> None:
        self.flat = torch.zeros(problem.size, device=backend.device)
        self.rates = torch.from_numpy(np.array(arrays["rates"])).to(backend.device)  # (width,) or empty
        self.problem, self.backend = problem, backend
        self.parameters: Any = problem.parameters(self.flat)  # views of it
        self._per_row = {name: arrays[name] for name in ("weights", "scales") if len(arrays[name])}
        ends = arrays["begin"], arrays["end"]
        self._rows = Rows(ends, arrays["indices"], arrays["values"], arrays["targets"], problem.width, check=False)

    def part(self, first: int, last: int) -> dict[str, np.ndarray]:
        """``begin end indices targets`` and, unless they are all one, ``values weights scales``."""
        found = part_of(self._rows, first, last) | {"targets": self._rows.targets[first:last]}
        if self.problem.unit:
            del found["values"]
        return found | {name: array[first:last] for name, array in self._per_row.items()}

    def bytes_of(self, first: int, last: int) -> int:
        entries = bytes_of(self._rows, first, last, self.problem.unit)
        return entries + 4 * (1 + len(self._per_row)) * (last - first)

    def room(self) -> int:
        return self.backend.programs()  # a row each

    def sums(self, data: Mapping[str, torch.Tensor]) -> np.ndarray | None:
        found: np.ndarray = sums(self.problem, self.parameters, data).cpu().numpy()
        return found

    @property
    def mean(self) -> float:
        """Mean number of a row's nonzeros."""
        return self._rows.nnz / max(len(self._rows), 1)

    @cached_property
    def objective(self) -> Objective:
        p, ids = self.problem, self._rows.spread(SHARE_NONZEROS, SHARE_ROWS)
        labels = (-1.0, 1.0) if p.classes == 1 else tuple(map(float, range(p.classes)))
        weights = self._per_row["weights"][ids] if "weights" in self._per_row else None
        return Objective(
            self._rows.select(ids).compact(), p.loss, p.loss_param, l1=p.l1, l2=p.l2, normalize=p.normalize,
            labels=labels if p.labels else (), weights=weights, width=p.width,
        )  # fmt: skip
