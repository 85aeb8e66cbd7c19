"""The linear problem on a CUDA device: the arrays copied there, and the margins that the evaluator judges."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch.nn.functional import embedding_bag

from hogwild.cuda.backend import Backend
from hogwild.cuda.work import Launcher
from hogwild.data.parallel import map_pieces
from hogwild.data.rows.container import Rows
from hogwild.problems.linear.objective import Objective
from hogwild.problems.linear.problem import LinearProblem
from hogwild.problems.linear.rows import SHARE_NONZEROS, SHARE_ROWS

PIECE = 1 << 22  # margins at a time


class LinearLauncher(Launcher):
    """See :class:`hogwild.cuda.work.Launcher`; ``arrays`` are the arguments of ``LinearProblem.data``."""

    name = "linear"
    problem: LinearProblem
    rows: Rows

    def __init__(self, problem: LinearProblem, arrays: Mapping[str, np.ndarray], backend: Backend) -> None:
        self.flat = torch.zeros(problem.size, device=backend.device)
        self.rates = torch.from_numpy(np.array(arrays["rates"])).to(backend.device)  # (width,) or empty
        self.problem, self.backend = problem, backend
        self.parameters: Any = problem.parameters(self.flat)  # views of it
        self.arrays = {name: arrays[name] for name in ("targets", "weights", "scales") if len(arrays[name])}
        ends, targets = (arrays["begin"], arrays["end"]), arrays["targets"]
        self.rows = Rows(ends, arrays["indices"], arrays["values"], targets, problem.width, check=False)
        self.unit, self.mean = problem.unit, self.rows.nnz / max(len(self.rows), 1)  # nonzeros of a row

    def room(self) -> int:
        return self.backend.programs()  # a row each

    def sums(self, data: Mapping[str, torch.Tensor]) -> np.ndarray | None:
        """Sums by the evaluator's own losses, of margins in float32 that the device computes by torch."""
        p, judge, (coef, intercept, *_) = self.problem, self._judge, self.parameters
        table = coef.view(-1, p.stride)

        def of_piece(first: int, last: int) -> np.ndarray:
            begin = data["begin"][first:last]
            entries = slice(int(begin[0]), int(data["end"][last - 1]))
            indices = data["indices"][entries].to(begin.dtype)
            values = data["values"][entries] if "values" in data else None
            found = embedding_bag(indices, table, begin - begin[0], mode="sum", per_sample_weights=values).double()
            if "scales" in data:
                found *= data["scales"][first:last, None]
            margins = (found + intercept)[:, : p.classes].contiguous().cpu().numpy()
            return judge.tally(margins[:, 0] if p.classes == 1 else margins, first, last, None)

        return sum(map_pieces(len(self.rows), max(PIECE // p.stride, 1), of_piece), np.zeros(4))

    @cached_property
    def objective(self) -> Objective:
        ids, weights = self.rows.spread(SHARE_NONZEROS, SHARE_ROWS), self.arrays.get("weights")
        weights = None if weights is None else weights[ids]
        return self._objective(self.rows.select(ids).compact(), weights, self.problem.normalize)

    @cached_property
    def _judge(self) -> Objective:
        return self._objective(self.rows, self.arrays.get("weights"), "none")

    def _objective(self, rows: Rows, weights: np.ndarray | None, normalize: str) -> Objective:
        p = self.problem
        labels = (-1.0, 1.0) if p.classes == 1 else tuple(map(float, range(p.classes)))
        return Objective(
            rows,
            p.loss,
            p.loss_param,
            l1=p.l1,
            l2=p.l2,
            normalize=normalize,
            labels=labels if p.labels else (),
            weights=weights,
            width=p.width,
        )
