"""Matrix completion on a CUDA device: Triton kernels whose programs visit a few ratings at a time.

A visit is that of ``problems/completion/kernel.py`` with squared errors: rows ``p_u`` and ``q_i`` are read, each moves
along the other's old value, and the penalty divides. It reads two rows, writes two and computes almost nothing, so only
memory matters. A program is one warp and holds ``GROUP`` ratings at a time as a tile (GROUP, TILE), whose rows are read
and written 16 bytes a thread. It looks up 32 ratings together, one a thread, and hands them out by integer sums, so
that a turn waits for memory once. Rows are read past the L1 cache (``.cg``), which does not see other programs' writes.

``ATOMIC``: the change (new - old, as read) is added by relaxed
vector atomics, and none is lost. Otherwise the new row is stored, and of several in flight at the same time the last
one stays: between programs, but also among the ratings that a program holds together, which may share a user or an
item. With one rating in flight both ways give the same numbers, up to rounding.

Factors lie along a tile's columns: those from ``WIDTH`` on (the rank in whole sectors of 32 bytes) are neither read
nor written, since they stay zero. Ratings lie in random order, so that neighbours can be visited together (``block``):
reading a rating's 12 bytes at random places takes 96 bytes of memory traffic, compared with 1,024 for rows of 64.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="misc"

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from hogwild.cuda.backend import Backend
from hogwild.cuda.order import VISITS, visit_at
from hogwild.cuda.streams import Launcher, Visits
from hogwild.errors import InputError
from hogwild.problems.completion.problem import CompletionProblem

SECTOR = 8  # float32 in the smallest unit of memory reads
TILE, MOST = 512, 16  # float32 of a program's tile, 16 a thread; most ratings in it
RESIDENT = 2  # 1 / RESIDENT of the programs that fit on a device run at once: each has 128 registers
REGISTERS = 128
RATINGS, RATES = ("users", "items", "values"), ("user_rates", "item_rates")  # arrays of ratings; of users, items

AHEAD = tl.constexpr(32)  # ratings that a program looks up together: one a thread


@triton.jit
def place(factors, numbers, STRIDE: tl.constexpr, TILE: tl.constexpr):
    """Pointers to the rows of these users or items, (GROUP, TILE)."""
    return factors + numbers.to(tl.int64)[:, None] * STRIDE + tl.arange(0, TILE)[None, :]


@triton.jit
def read(at, columns, WHOLE: tl.constexpr):
    """Read the current rows."""
    if WHOLE:
        return tl.load(at, cache_modifier=".cg")
    return tl.load(at, mask=columns, other=0.0, cache_modifier=".cg")


@triton.jit
def read_bias(biases, numbers, BIASED: tl.constexpr):
    """Read the current biases, zeros if there are none."""
    if BIASED:
        return tl.load(biases + numbers, cache_modifier=".cg")
    return tl.zeros(numbers.shape, tl.float32)


@triton.jit
def write(at, old, new, mask, ATOMIC: tl.constexpr):
    """Replace rows that were read as ``old`` (see the module's docstring)."""
    if ATOMIC:
        tl.atomic_add(at, new - old, mask=mask, sem="relaxed")
    else:
        tl.store(at, new, mask=mask)


@triton.jit
def moved(row, along, move, shrink):
    """``shrink * (row - move * along)``, one rating per line."""
    return (row - move[:, None] * along) * shrink[:, None]


@triton.jit
def shrinkage(rates, numbers, step, l2, RATED: tl.constexpr):
    """Factors by which the penalty shrinks rows."""
    if RATED:
        return 1.0 / (1.0 + step * tl.load(rates + numbers) * l2)
    return 1.0 / (1.0 + step * l2)


@triton.jit
def ahead(at, hop, count, GROUP: tl.constexpr):
    """The visits of a program's next turns, AHEAD in all; past the end the last one, which is not written."""
    k = tl.arange(0, AHEAD)
    return tl.minimum(at + k // GROUP * hop + k % GROUP, count - 1)


@triton.jit
def pick(numbers, turn, GROUP: tl.constexpr):
    """The GROUP numbers of a turn, of AHEAD: a sum over the warp of integers, which may be a float's bits."""
    bits = numbers.to(tl.int32, bitcast=True) if numbers.dtype == tl.float32 else numbers
    here = tl.arange(0, AHEAD // GROUP)[:, None] == turn
    bits = tl.sum(tl.where(here, tl.reshape(bits, (AHEAD // GROUP, GROUP)), 0), 0)
    return bits.to(tl.float32, bitcast=True) if numbers.dtype == tl.float32 else bits


@triton.jit(do_not_specialize=VISITS, do_not_specialize_on_alignment=RATINGS)
def visit_ratings(
    p,
    q,
    b_u,
    b_i,  # float32: factors of users and items, biases
    users,
    items,
    values,  # of the part's ratings: int32, int32, float32
    user_rates,
    item_rates,  # float32, if RATED
    l2,
    start: tl.int32,
    count: tl.int32,
    n: tl.int32,
    bits: tl.int32,
    key: tl.uint32,
    scale,
    since,
    power,  # see order.py
    STRIDE: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    GROUP: tl.constexpr,
    RATED: tl.constexpr,
    BIASED: tl.constexpr,
    ATOMIC: tl.constexpr,
    SHUFFLED: tl.constexpr,
    TOGETHER: tl.constexpr,
):
    """Visit ``count`` ratings: program k takes GROUP ratings at k * GROUP, then the same one grid further on."""
    WHOLE: tl.constexpr = WIDTH == TILE
    lanes, columns = tl.arange(0, GROUP), tl.arange(0, TILE)[None, :] < WIDTH
    at, hop = tl.program_id(0) * GROUP, tl.num_programs(0) * GROUP
    while at < count:
        v = start + ahead(at, hop, count, GROUP)
        row, ahead_step = visit_at(v, n, bits, key, scale, since, power, SHUFFLED, TOGETHER)
        ahead_u, ahead_i, ahead_r = tl.load(users + row), tl.load(items + row), tl.load(values + row)
        turn = 0
        while (turn < AHEAD // GROUP) & (at < count):
            u = pick(ahead_u, turn, GROUP)
            i = pick(ahead_i, turn, GROUP)
            step = pick(ahead_step, turn, GROUP)
            here = at + lanes < count
            inside = here[:, None] & columns
            at_p, at_q = place(p, u, STRIDE, TILE), place(q, i, STRIDE, TILE)
            old_p, old_q = read(at_p, columns, WHOLE), read(at_q, columns, WHOLE)
            old_u, old_i = read_bias(b_u, u, BIASED), read_bias(b_i, i, BIASED)
            shrink_u = shrinkage(user_rates, u, step, l2, RATED)
            shrink_i = shrinkage(item_rates, i, step, l2, RATED)
            move = step * (tl.sum(old_p * old_q, 1) - pick(ahead_r, turn, GROUP) + (old_u + old_i))
            write(at_q, old_q, moved(old_q, old_p, move, shrink_i), inside, ATOMIC)
            write(at_p, old_p, moved(old_p, old_q, move, shrink_u), inside, ATOMIC)
            if BIASED:
                write(b_i + i, old_i, (old_i - move) * shrink_i, here, ATOMIC)
                write(b_u + u, old_u, (old_u - move) * shrink_u, here, ATOMIC)
            at += hop
            turn += 1


class CompletionLauncher(Launcher):
    """See :class:`hogwild.cuda.streams.Launcher`.

    Parameters
    ----------
    problem : CompletionProblem
    arrays : mapping
        ``users``, ``items`` and ``values`` (in the problem's units) of all ratings; ``user_rates`` and ``item_rates``
        if the penalty is smoothed, otherwise empty.
    backend : Backend
    """

    block = 32
    problem: CompletionProblem

    def __init__(self, problem: CompletionProblem, arrays: Mapping[str, np.ndarray], backend: Backend) -> None:
        if problem.loss != "squared-error":
            raise InputError(f"device cuda: loss {problem.loss} has no form for a GPU: train on the CPU")
        super().__init__(problem, backend)
        self._ratings = {name: arrays[name] for name in RATINGS}
        self.data = self.upload(self._ratings)
        self.rates = [torch.tensor(arrays[name], device=backend.device) for name in RATES]
        self.parameters: Any = problem.parameters(self.flat)  # views of it

    def longest_step(self) -> float:
        """In the problem's units the mean loss is about as curved in a bias as the share of ratings that have it."""
        ratings = self._ratings["users"], self._ratings["items"]
        return len(ratings[0]) / max(int(np.bincount(numbers).max()) for numbers in ratings)

    def room(self) -> int:
        """Ratings in flight when the device is full and none waits for another's end."""
        group, programs = self.grid(1 << 30)[0], self.backend.programs() // RESIDENT
        return group * max(programs if self._tile()[2] else programs // 2, 1)

    def constants(self) -> dict[str, Any]:
        """Constants that kernels are compiled for, except the number of ratings per program."""
        problem, (width, tile, fitting) = self.problem, self._tile()
        # products and sums are fused, whatever Triton's default, and no program waits for another's registers
        return {
            "STRIDE": problem.stride,
            "WIDTH": width,
            "TILE": tile,
            "BIASED": problem.biases,
            "RATED": problem.rated,
            "ATOMIC": problem.discipline == "atomic",
            "num_warps": 1,
            "enable_fp_fusion": True,
            "maxnreg": REGISTERS if fitting else None,
        }

    def _tile(self) -> tuple[int, int, int]:
        """Floats read of a row, in whole sectors; the next power of two; and how many such rows a tile has room for."""
        width = -(-self.problem.rank // SECTOR) * SECTOR
        tile = 1 << (width - 1).bit_length()
        return width, tile, TILE // tile

    def grid(self, in_flight: int) -> tuple[int, int]:
        """Ratings per program, and programs, for ``in_flight`` ratings in total.

        Ratings per program are as many as fit, a power of two, or one: a kernel for each number between would be
        compiled on the clock.
        """
        most = min(max(self._tile()[2], 1), MOST)
        group = 1 << (most.bit_length() - 1)
        return (group, in_flight // group) if in_flight >= group else (1, in_flight)

    def visit(self, visits: Visits, in_flight: int) -> None:
        """Launch the programs, which visit the ratings on the current stream."""
        group, programs = self.grid(in_flight)
        visit_ratings[(min(programs, -(-visits.size // group)),)](
            *self.parameters,
            *(self.data[name] for name in RATINGS),
            *self.rates,
            self.problem.l2,
            *visits.arguments,
            GROUP=group,
            **self.constants(),
            **visits.constants,
        )
