"""The evaluator's sums over rows that are on the device: margins in float32, all else in float64, by torch.

It is a third implementation of the losses, so that rows between the first and the last need no pass of the CPU, which
would take longer than an epoch of the device. The last row is judged by the CPU (``problems/linear/objective.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn.functional import embedding_bag, relu, softplus

from hogwild.problems.linear.objective_kernel import POISSON_CAP
from hogwild.problems.linear.problem import LinearProblem

PIECE = 1 << 20  # margins at a time

Loss = Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]

#: Losses of margins p for targets y.
LOSSES: dict[str, Loss] = {
    "log": lambda p, y, _: softplus(-y * p, threshold=40.0),
    "hinge": lambda p, y, _: relu(1 - y * p),
    "squared-hinge": lambda p, y, _: relu(1 - y * p).square(),
    "modified-huber": lambda p, y, _: torch.where(y * p < -1, -4 * y * p, relu(1 - y * p).square()),
    "perceptron": lambda p, y, _: relu(-y * p),
    "squared-error": lambda p, y, _: (p - y).square() / 2,
    "huber": lambda p, y, d: (inner := (p - y).abs().clamp(max=d)) * ((p - y).abs() - inner / 2),
    "epsilon-insensitive": lambda p, y, e: relu((p - y).abs() - e),
    "squared-epsilon-insensitive": lambda p, y, e: relu((p - y).abs() - e).square(),
    "poisson": lambda p, y, _: (q := p.clamp(max=POISSON_CAP)).exp() * (1 + p - q) - y * p,
}


def sums(problem: LinearProblem, parameters: Any, data: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Sums over all rows, (4,) float64: weights, weighted losses, then correct rows and 0, or squared and absolute
    errors.
    """
    n, rows = len(data["begin"]), max(PIECE // problem.stride, 1)
    pieces = [_of_piece(problem, parameters, data, first, min(first + rows, n)) for first in range(0, n, rows)]
    return torch.stack(pieces).sum(0)


def _of_piece(
    problem: LinearProblem, parameters: Any, data: Mapping[str, torch.Tensor], first: int, last: int
) -> torch.Tensor:
    own, y = slice(first, last), data["targets"][first:last].double()
    p = _margins(problem, parameters, data, own)
    weights = data["weights"][own].double() if "weights" in data else torch.ones_like(y)
    right, off = torch.zeros_like(y), torch.zeros_like(y)
    if problem.classes > 1:
        label = y.long()[:, None]
        if problem.loss == "softmax":
            losses = p.logsumexp(1) - p.gather(1, label)[:, 0]
        else:
            sides = torch.full_like(p, -1.0).scatter_(1, label, 1.0)
            losses = LOSSES[problem.loss](p, sides, problem.loss_param).sum(1)
        right = (p.argmax(1, keepdim=True) == label)[:, 0] & ~p.isnan().any(1)
    else:
        losses = LOSSES[problem.loss](p[:, 0], y, problem.loss_param)
        if problem.labels:
            right = ((y > 0) == (p[:, 0] > 0)) & ~p[:, 0].isnan()
        else:
            off = (p[:, 0].exp() if problem.loss == "poisson" else p[:, 0]) - y
            right = off.square()
    return torch.stack((weights.sum(), (weights * losses).sum(), right.double().sum(), off.abs().sum()))


def _margins(problem: LinearProblem, parameters: Any, data: Mapping[str, torch.Tensor], own: slice) -> torch.Tensor:
    """Margins of these rows, (n, classes) float64."""
    begin, end = data["begin"][own], data["end"][own]
    base, stop = int(begin[0]), int(end[-1])
    values = data["values"][base:stop] if "values" in data else None
    table, indices = parameters.coef.view(-1, problem.stride), data["indices"][base:stop].to(begin.dtype)
    found = embedding_bag(indices, table, begin - base, mode="sum", per_sample_weights=values).double()
    if "scales" in data:
        found *= data["scales"][own, None]
    return (found + parameters.intercept)[:, : problem.classes]
