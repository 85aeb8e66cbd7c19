"""Sparse linear models on the stand-in for a device: batches of rows that all see the same weights, with torch alone.

It is a reference for Triton's kernels too. The rows in flight are those of one batch. Rows are padded to the longest
of the data, because torch needs a shape and asking the device for one would wait for it; so batches are smaller if a
single row is very long. Values beyond a row's end are zero.

The penalty of a batch is one proximal step by the summed pulls of all visits to a feature, which is the exact proximal
step of the batch's objective; for one row it is the visit of ``problems/linear/kernel.py``. All shared arrays are
updated by ``index_add_``, atomic on a GPU, whatever the discipline, so other streams' updates are never lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from hogwild.cuda.linear.launcher import LinearLauncher
from hogwild.cuda.work import Segment
from hogwild.kernels.losses import POISSON_CAP
from hogwild.problems.linear.kernel import TINY as _TINY
from hogwild.problems.linear.problem import LinearProblem
from tests.cuda import order_twin

ENTRIES = 1 << 24  # weights read by a batch, padding included
TINY = float(_TINY)
EXP_CAP = 80.0


class Buffers(NamedTuple):
    """Sums by feature over a batch, zero between batches; empty without a penalty."""

    moves: torch.Tensor  # (width, stride)
    pulls: torch.Tensor  # (width, stride), or (width, 1) if all classes have the same step
    visits: torch.Tensor  # (width, 1)


def dloss(loss: str, p: torch.Tensor, y: torch.Tensor, param: float) -> torch.Tensor:
    """Derivative of a loss in the margins ``p`` for targets ``y``; NaN for a NaN margin."""
    zero, z, r = torch.zeros_like(p), y * p, p - y
    if loss == "log":
        return -y / (1 + torch.exp(z.clamp(max=EXP_CAP)))
    if loss == "hinge":
        return torch.where(z < 1, -y, torch.where(z >= 1, zero, z))
    if loss == "squared-hinge":
        return torch.where(z >= 1, zero, -2 * y * (1 - z))
    if loss == "modified-huber":
        return torch.where(z >= 1, zero, torch.where(z < -1, -4 * y, -2 * y * (1 - z)))
    if loss == "perceptron":
        return torch.where(z <= 0, -y, torch.where(z > 0, zero, z))
    if loss == "squared-error":
        return r
    if loss == "huber":
        return r.clamp(-param, param)
    if loss == "epsilon-insensitive":
        one = torch.ones_like(p)
        return torch.where(r > param, one, torch.where(r < -param, -one, torch.where(r.abs() <= param, zero, r)))
    if loss == "squared-epsilon-insensitive":
        return torch.where(r.abs() <= param, zero, 2 * (r - param * torch.sign(r)))
    if loss == "poisson":
        return torch.exp(p.clamp(max=POISSON_CAP)) - y
    raise ValueError(f"{loss} has no derivative in one margin alone")


def slopes(problem: LinearProblem, margins: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The loss's derivative in each margin, (n, classes)."""
    if problem.classes == 1 and problem.loss != "softmax":
        return dloss(problem.loss, margins, targets[:, None], problem.loss_param)
    own = torch.arange(problem.classes, device=margins.device) == targets[:, None]
    if problem.loss == "softmax":
        return torch.softmax(margins, 1) - own.to(margins.dtype)
    return dloss(problem.loss, margins, 2 * own.to(margins.dtype) - 1, problem.loss_param)


def visit(launcher: LinearLauncher, segment: Segment, in_flight: int) -> None:
    """Visit rows as ``triton.visit`` does, in batches of ``in_flight`` rows."""
    problem, parameters, data = launcher.problem, launcher.parameters, segment.data
    rows, steps = (torch.from_numpy(part(segment.visits)) for part in (order_twin.rows, order_twin.steps))
    longest = problem.longest if len(data["indices"]) else 0
    batch = max(min(in_flight, ENTRIES // max(longest * problem.stride, 1)), 1)
    coef = _by_class(parameters.coef, problem.stride)
    buffers = _buffers(problem, coef)
    for first in range(0, len(rows), batch):
        some = rows[first : first + batch].long()
        _batch(problem, parameters, buffers, launcher.rates, data, some, steps[first : first + batch], longest)


def _buffers(problem: LinearProblem, coef: torch.Tensor) -> Buffers:
    if not problem.l1 > 0 and not problem.l2 > 0:
        return Buffers(*[coef.new_empty(0)] * 3)
    one = coef.new_zeros(problem.width, 1)
    return Buffers(torch.zeros_like(coef), torch.zeros_like(coef if problem.adagrad else one), one)


def _batch(
    problem: LinearProblem,
    parameters: Any,
    buffers: Buffers,
    rates: torch.Tensor,
    data: Mapping[str, torch.Tensor],
    rows: torch.Tensor,
    steps: torch.Tensor,
    longest: int,
) -> None:
    stride = problem.stride
    coef, squares = (_by_class(part, stride) for part in (parameters.coef, parameters.coef_squares))
    u, x, inside = _entries(data, rows, longest)
    if "scales" in data:
        x = x * data["scales"][rows, None]
    margins = (coef[u] * x[:, :, None]).sum(1) + parameters.intercept
    g = slopes(problem, margins[:, : problem.classes], data["targets"][rows])
    if "weights" in data:
        g = g * data["weights"][rows, None]
    g = torch.nn.functional.pad(g, (0, stride - problem.classes))
    gradient, step, at = x[:, :, None] * g[:, None, :], steps[:, None, None], u.flatten()
    if problem.adagrad:
        squares.index_add_(0, at, gradient.square().flatten(0, 1))
        step = step / torch.sqrt(squares[u] + TINY)
    change = step * gradient
    if len(buffers.visits):
        change = _penalised(problem, coef, buffers, rates, u, inside[:, :, None], change, step)
    coef.index_add_(0, at, -change.flatten(0, 1))
    if problem.intercept > 0:
        _move_intercept(problem, parameters, g, steps[:, None])


def _by_class(part: torch.Tensor, stride: int) -> torch.Tensor:
    return part.view(len(part) // stride, stride)


def _entries(
    data: Mapping[str, torch.Tensor], rows: torch.Tensor, longest: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Features, values, and which are a row's own: (n, longest) each; the others belong to later rows."""
    begin = data["begin"][rows].long()[:, None]
    at = begin + torch.arange(longest, device=begin.device)
    inside = at < data["end"][rows].long()[:, None]
    at = at.clamp(max=len(data["indices"]) - 1)
    values = data["values"][at] if "values" in data else torch.ones(at.shape, device=at.device)
    return data["indices"][at].long(), torch.where(inside, values, 0.0), inside


def _penalised(
    problem: LinearProblem,
    coef: torch.Tensor,
    buffers: Buffers,
    rates: torch.Tensor,
    u: torch.Tensor,
    inside: torch.Tensor,
    change: torch.Tensor,
    step: torch.Tensor,
) -> torch.Tensor:
    """The amount each visit subtracts from its weights so that together they make the batch's proximal step."""
    at = u.flatten()
    pull = torch.where(inside, step * rates[u][:, :, None], 0.0)
    for total, each in zip(buffers, (change, pull, inside.to(change.dtype))):
        total.index_add_(0, at, each.flatten(0, 1))
    old, pulls = coef[u], buffers.pulls[u]
    new = old - buffers.moves[u]
    # not a maximum of floats, which could drop a NaN
    size = new.abs() - pulls * problem.l1
    new = torch.where(size <= 0, torch.zeros_like(new), torch.sign(new) * size) / (1 + pulls * problem.l2)
    found = torch.where(inside, (old - new) / buffers.visits[u], 0.0)
    for total in buffers:
        total.index_fill_(0, at, 0.0)
    return found


def _move_intercept(problem: LinearProblem, parameters: Any, g: torch.Tensor, steps: torch.Tensor) -> None:
    own = torch.zeros(1, dtype=torch.int64, device=g.device)
    both = parameters.intercept, parameters.intercept_squares
    intercept, squares = (_by_class(part, problem.stride) for part in both)
    step = problem.intercept * steps
    if problem.adagrad:
        squares.index_add_(0, own, g.square().sum(0, keepdim=True))
        step = step / torch.sqrt(squares + TINY)
    intercept.index_add_(0, own, -(step * g).sum(0, keepdim=True))


def block_of(problem: LinearProblem, mean: float) -> int:
    """One block per row: rows are taken whole."""
    return problem.longest
