"""Matrix completion on the stand-in for a device: the visits of ``triton.py`` with torch alone, in batches.

All ratings of a batch read the same rows, and the sums of their changes are added at once (``index_add_``, which is
atomic): the worst case of a device with as many ratings in flight. A batch of one is the serial algorithm. All tensor
sizes are known beforehand, so nothing here waits for the device.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from hogwild.cuda.completion.launcher import CompletionLauncher, Tables
from hogwild.cuda.work import Segment
from hogwild.kernels import order
from hogwild.problems.completion.implicit_kernel import TRIES
from hogwild.problems.completion.problem import CompletionProblem
from tests.cuda import order_twin

# constants of splitmix64, in int64 with overflow
GOLDEN, MIX_1, MIX_2 = (int(k) - (1 << 64) for k in (order.GOLDEN, order.MIX_1, order.MIX_2))


def visit(launcher: CompletionLauncher, segment: Segment, in_flight: int) -> None:
    """Visit a segment's ratings as the launcher says, in batches of ``in_flight``."""
    problem, tables = launcher.problem, launcher.tables
    if problem.loss == "squared-error":
        squared_error(problem, tables, segment, in_flight)
    else:
        seen = seen_pairs(tables, problem.items)
        implicit(problem, tables, seen, segment, in_flight, launcher.salt(segment))


def squared_error(problem: CompletionProblem, tables: Tables, segment: Segment, batch: int) -> None:
    """Visit a segment's ratings, ``batch`` at a time."""
    for u, i, rows, step in _batches(segment, batch):
        p, q = _read(problem, tables.p, u), _read(problem, tables.q, i)
        e = (p * q).sum(1) - segment.data["values"][rows]
        old_u, old_i = tables.b_u[u], tables.b_i[i]
        if problem.biases:
            e = e + (old_u + old_i)
        move, shrink_u, shrink_i = step * e, *_shrinkages(problem, tables, u, i, step)
        _write(problem, tables.p, u, p, _moved(problem, p, q, move, shrink_u))
        _write(problem, tables.q, i, q, _moved(problem, q, p, move, shrink_i))
        if problem.biases:
            tables.b_u.index_add_(0, u, (old_u - move) * shrink_u - old_u)
            tables.b_i.index_add_(0, i, (old_i - move) * shrink_i - old_i)


def implicit(
    problem: CompletionProblem, tables: Tables, seen: torch.Tensor, segment: Segment, batch: int, salt: int
) -> None:
    """Visit a segment's ratings for the losses ``log`` and ``bpr``.

    Parameters
    ----------
    seen : torch.Tensor of int64
        The result of :func:`seen_pairs`.
    salt : int
        Below 2^64; the items drawn at a visit depend on it and on the visit's number in the segment.
    """
    visit = _bpr if problem.loss == "bpr" else _log
    first = 0
    for u, i, _, step in _batches(segment, batch):
        visits = torch.arange(first, first + len(u), device=u.device)
        drawn = [draw(seen, problem.items, salt, visits, t, u) for t in range(problem.negatives)]
        visit(problem, tables, u, i, drawn, step)
        first += batch


def _log(
    problem: CompletionProblem,
    tables: Tables,
    u: torch.Tensor,
    i: torch.Tensor,
    drawn: list[torch.Tensor],
    step: torch.Tensor,
) -> None:
    p, bias = _read(problem, tables.p, u), tables.b_u[u] * problem.biases
    new_p, new_bias = p, bias
    shrink_u, shrink_i = _shrinkages(problem, tables, u, i, step)
    for t, j in enumerate([i, *drawn]):
        found, item, sign = j >= 0, j.clamp(min=0), -1.0 if t == 0 else 1.0
        q, b = _read(problem, tables.q, item), tables.b_i[item] * problem.biases
        move = sign * step * torch.sigmoid(sign * ((new_p * q).sum(1) + (new_bias + b))) * found
        own = torch.where(found, shrink_u, 1.0)
        new_q = _moved(problem, q, new_p, move, shrink_i)
        new_p = _moved(problem, new_p, q, move, own)
        _write(problem, tables.q, item, q, torch.where(found[:, None], new_q, q))
        if problem.biases:
            new_bias = (new_bias - move) * own
            tables.b_i.index_add_(0, item, torch.where(found, (b - move) * shrink_i - b, 0.0))
        shrink_u = shrink_i = _of_drawn(problem, step)
    _write(problem, tables.p, u, p, new_p)
    if problem.biases:
        tables.b_u.index_add_(0, u, new_bias - bias)


def _bpr(
    problem: CompletionProblem,
    tables: Tables,
    u: torch.Tensor,
    i: torch.Tensor,
    drawn: list[torch.Tensor],
    step: torch.Tensor,
) -> None:
    p, q, b = _read(problem, tables.p, u), _read(problem, tables.q, i), tables.b_i[i] * problem.biases
    new_p, new_q, new_b, shrink = p, q, b, _of_drawn(problem, step)
    shrink_u, shrink_i = _shrinkages(problem, tables, u, i, step)
    for j in drawn:
        found, item = j >= 0, j.clamp(min=0)
        other, b_j = _read(problem, tables.q, item), tables.b_i[item] * problem.biases
        margin = (new_p * new_q).sum(1) - (new_p * other).sum(1) + (new_b - b_j)
        move = step * torch.sigmoid(-margin) * found  # of the drawn item's margin
        own_u, own_i = torch.where(found, shrink_u, 1.0), torch.where(found, shrink_i, 1.0)
        new_other = _moved(problem, other, new_p, move, shrink)
        _write(problem, tables.q, item, other, torch.where(found[:, None], new_other, other))
        new_p, new_q = (
            _moved(problem, new_p, other - new_q, move, own_u),
            _moved(problem, new_q, new_p, -move, own_i),
        )
        if problem.biases:
            tables.b_i.index_add_(0, item, torch.where(found, (b_j - move) * shrink - b_j, 0.0))
            new_b = (new_b + move) * own_i
        shrink_u, shrink_i = torch.where(found, shrink, shrink_u), torch.where(found, shrink, shrink_i)
    _write(problem, tables.p, u, p, new_p)
    _write(problem, tables.q, i, q, new_q)
    if problem.biases:
        tables.b_i.index_add_(0, i, new_b - b)


def seen_pairs(tables: Tables, items: int) -> torch.Tensor:
    """``user * items + item`` for all chosen pairs, ascending, (n,) int64."""
    begin = tables.seen_begin
    users = torch.arange(len(begin) - 1, device=begin.device).repeat_interleave(begin.diff())
    return users * items + tables.seen_items


def draw(seen: torch.Tensor, items: int, salt: int, visits: torch.Tensor, t: int, u: torch.Tensor) -> torch.Tensor:
    """The ``t``-th item drawn at each of these visits, or -1; the same items as ``implicit_kernel.draw``."""
    attempts = torch.arange(t * TRIES, (t + 1) * TRIES, device=u.device)
    state = _mix(visits + (salt - (1 << 64) if salt >> 63 else salt))[:, None] + attempts * GOLDEN
    candidates = _shift(_shift(_mix(state), 32) * items, 32)
    pairs = u[:, None] * items + candidates
    free = seen[torch.searchsorted(seen, pairs).clamp(max=len(seen) - 1)] != pairs
    first = candidates.gather(1, free.int().argmax(1, keepdim=True))[:, 0]
    return torch.where(free.any(1), first, -1)


def _batches(segment: Segment, batch: int) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield users, items, numbers of the ratings and steps of each batch; numbers are int64."""
    data = segment.data
    all_rows, steps = (torch.from_numpy(part(segment.visits)) for part in (order_twin.rows, order_twin.steps))
    for first in range(0, len(steps), batch):
        rows = all_rows[first : first + batch].long()
        step = steps[first : first + batch]
        yield data["users"][rows].long(), data["items"][rows].long(), rows, step


def _read(problem: CompletionProblem, factors: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    rows = factors[numbers]
    return rows.clamp_(min=0) if problem.nonnegative else rows


def _write(
    problem: CompletionProblem, factors: torch.Tensor, numbers: torch.Tensor, old: torch.Tensor, new: torch.Tensor
) -> None:
    factors.index_add_(0, numbers, new - old)
    if problem.nonnegative:  # the sum of several changes may be below zero
        where = numbers[:, None].expand_as(new)
        factors.scatter_reduce_(0, where, torch.zeros_like(new), "amax")


def _moved(
    problem: CompletionProblem, rows: torch.Tensor, along: torch.Tensor, move: torch.Tensor, shrink: torch.Tensor
) -> torch.Tensor:
    new = (rows - move[:, None] * along) * shrink[:, None]
    return new.clamp_(min=0) if problem.nonnegative else new


def _shrinkages(
    problem: CompletionProblem, tables: Tables, u: torch.Tensor, i: torch.Tensor, step: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Factors by which the penalty shrinks users and items."""
    if problem.penalty != "per-row":
        return (both := 1 / (1 + step * problem.l2)), both
    rates = tables.user_rates[u], tables.item_rates[i]
    return 1 / (1 + step * rates[0] * problem.l2), 1 / (1 + step * rates[1] * problem.l2)


def _of_drawn(problem: CompletionProblem, step: torch.Tensor) -> torch.Tensor:
    """Factors by which the penalty shrinks drawn items; a penalty per row does not count these visits."""
    return torch.ones_like(step) if problem.penalty == "per-row" else 1 / (1 + step * problem.l2)


def _mix(z: torch.Tensor) -> torch.Tensor:
    z = (z ^ _shift(z, 30)) * MIX_1
    z = (z ^ _shift(z, 27)) * MIX_2
    return z ^ _shift(z, 31)


def _shift(z: torch.Tensor, bits: int) -> torch.Tensor:
    """Logical right shift of int64."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)
