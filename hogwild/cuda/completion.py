"""Matrix completion on a CUDA device: Triton kernels whose programs visit a few ratings at a time.

A visit is that of ``problems/completion/kernel.py``: rows ``p_u`` and ``q_i`` are read, each moves along the other's
old value, and the penalty divides. It reads two rows, writes two and computes almost nothing, so only memory matters. A
program is one warp and holds ``GROUP`` ratings at a time as a tile (GROUP, TILE), whose rows are read and written 16
bytes a thread. It looks up 32 ratings together, one a thread, and hands them out by integer sums, so that a turn waits
for memory once. Rows are read past the L1 cache (``.cg``), which does not see other programs' writes.

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
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

from hogwild.cuda.backend import Backend
from hogwild.cuda.order import VISITS, visit_at
from hogwild.cuda.streams import Launcher, Visits
from hogwild.kernels import order
from hogwild.problems.completion import kernel as on_cpu
from hogwild.problems.completion.problem import CompletionProblem

SECTOR = 8  # float32 in the smallest unit of memory reads
TILE, MOST = 512, 16  # float32 of a program's tile, 16 a thread; most ratings in it
RESIDENT = 2  # 1 / RESIDENT of the programs that fit on a device run at once: each has 128 registers
REGISTERS = 128
EVALUATED = 1 << 26  # numbers of factors gathered at a time, of users and of items

# constants of splitmix64, so that device and host draw the same items
GOLDEN, MIX_1, MIX_2 = (tl.constexpr(int(k)) for k in (order.GOLDEN, order.MIX_1, order.MIX_2))
TRIES = tl.constexpr(on_cpu.TRIES)
AHEAD = tl.constexpr(32)  # ratings that a program looks up together: one a thread
LEAP = tl.constexpr(on_cpu.TRIES * int(order.GOLDEN) % 2**64)


@triton.jit
def mix(z):
    """Output function of splitmix64, uint64 -> uint64."""
    z = (z ^ (z >> 30)) * MIX_1
    z = (z ^ (z >> 27)) * MIX_2
    return z ^ (z >> 31)


@triton.jit
def chosen(seen_begin, seen_items, u, j):
    """Whether users ``u`` have chosen items ``j``: parallel binary searches, until the longest has ended."""
    low = tl.load(seen_begin + u)
    count = tl.load(seen_begin + u + 1) - low
    while tl.max(count, 0) > 1:
        half = count // 2  # 0 once the search has ended
        before = tl.load(seen_items + low + half - 1, mask=half > 0, other=0) < j
        low += tl.where((half > 0) & before, half, 0)
        count -= half
    return (count == 1) & (tl.load(seen_items + low, mask=count == 1, other=-1) == j)


@triton.jit
def draw(seen_begin, seen_items, state, u, n_items):
    """Items that users ``u`` have not chosen, or -1 after too many tries: ``kernel.draw``, vectorised.

    ``state``: uint64, ``mix(salt + visit)``, plus ``LEAP * t`` for the t-th item drawn at a visit.
    """
    drawn = tl.full(u.shape, -1, tl.int32)
    tries = 0
    while (tl.min(drawn, 0) < 0) & (tries < TRIES):
        j = (((mix(state) >> 32) * n_items.to(tl.uint64)) >> 32).to(tl.int32)
        drawn = tl.where((drawn < 0) & (chosen(seen_begin, seen_items, u, j) == 0), j, drawn)
        state += GOLDEN
        tries += 1
    return drawn


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


# only a launch's constants select another kernel, which would be compiled while the clock runs
RATINGS, NUMBERS = ("users", "items", "values"), ("salt", "n_items", "negatives", *VISITS)


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=RATINGS)
def visit_ratings(
    p,
    q,
    b_u,
    b_i,  # float32: factors of users and items, biases
    users,
    items,
    values,  # of the part's ratings: int32, int32, float32 (of squared errors)
    user_rates,
    item_rates,  # float32, if RATED
    seen_begin,
    seen_items,  # int64, int32: items of each user, ascending
    salt: tl.uint64,
    n_items: tl.int64,
    negatives: tl.int32,
    l2,
    start: tl.int32,
    count: tl.int32,
    n: tl.int32,
    bits: tl.int32,
    key: tl.uint32,
    scale,
    since,
    power,  # see order.py
    LOSS: tl.constexpr,
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
    """Visit ``count`` ratings: program k takes GROUP ratings at k * GROUP, then the same one grid further on.

    With the losses ``log`` and ``bpr`` ratings are choices, visited against drawn items: the user's row, and with
    ``bpr`` the chosen item's, is read once, moved for each drawn item and written once. A drawn item is written at
    once, so that drawing it again for the same rating sees the change.
    """
    WHOLE: tl.constexpr = WIDTH == TILE
    lanes, columns = tl.arange(0, GROUP), tl.arange(0, TILE)[None, :] < WIDTH
    at, hop = tl.program_id(0) * GROUP, tl.num_programs(0) * GROUP
    while at < count:
        v = start + ahead(at, hop, count, GROUP)
        row, ahead_step = visit_at(v, n, bits, key, scale, since, power, SHUFFLED, TOGETHER)
        ahead_u, ahead_i = tl.load(users + row), tl.load(items + row)
        if LOSS == "squared-error":
            ahead_r = tl.load(values + row)
        turn = 0
        while (turn < AHEAD // GROUP) & (at < count):
            u = pick(ahead_u, turn, GROUP)
            i = pick(ahead_i, turn, GROUP)
            step = pick(ahead_step, turn, GROUP)
            here, visit = at + lanes < count, tl.minimum(at + lanes, count - 1)
            at_p, at_q = place(p, u, STRIDE, TILE), place(q, i, STRIDE, TILE)
            raw_p, raw_q = read(at_p, columns, WHOLE), read(at_q, columns, WHOLE)
            new_p, new_q = raw_p, raw_q
            old_u, old_i = read_bias(b_u, u, BIASED), read_bias(b_i, i, BIASED)
            new_u, new_i = old_u, old_i
            inside = here[:, None] & columns
            first_u = shrinkage(user_rates, u, step, l2, RATED)
            first_i = shrinkage(item_rates, i, step, l2, RATED)
            if LOSS != "bpr":
                if LOSS == "squared-error":
                    move = step * (tl.sum(new_p * new_q, 1) - pick(ahead_r, turn, GROUP) + (new_u + new_i))
                else:
                    move = -step / (1.0 + tl.exp(tl.sum(new_p * new_q, 1) + (new_u + new_i)))
                was = new_p
                new_p = moved(new_p, new_q, move, first_u)
                new_q = moved(new_q, was, move, first_i)
                write(at_q, raw_q, new_q, inside, ATOMIC)
                if BIASED:
                    new_u, new_i = (old_u - move) * first_u, (old_i - move) * first_i
                    write(b_i + i, old_i, new_i, here, ATOMIC)

            if LOSS != "squared-error":
                state, t = mix(salt + visit.to(tl.uint64)), 0
                while t < negatives:
                    j = draw(seen_begin, seen_items, state, u, n_items)
                    state += LEAP
                    free = j >= 0
                    j = tl.maximum(j, 0)
                    at_d = place(q, j, STRIDE, TILE)
                    old_d, old_j = read(at_d, columns, WHOLE), read_bias(b_i, j, BIASED)
                    was = new_p
                    if LOSS == "bpr":
                        margin = tl.sum(new_p * new_q, 1) - tl.sum(new_p * old_d, 1) + (new_i - old_j)
                        move = tl.where(free, step / (1.0 + tl.exp(margin)), 0.0)  # of the drawn item's margin
                        shrink = tl.where(free, first_u, 1.0)
                        new_p = moved(new_p, old_d - new_q, move, shrink)
                        new_q = moved(new_q, was, -move, shrink)
                        if BIASED:
                            new_i = (new_i + move) * shrink
                    else:
                        margin = tl.sum(new_p * old_d, 1) + (new_u + old_j)
                        move = tl.where(free, step / (1.0 + tl.exp(-margin)), 0.0)
                        shrink = tl.where(free, first_u, 1.0)
                        new_p = moved(new_p, old_d, move, shrink)
                        if BIASED:
                            new_u = (new_u - move) * shrink
                    drawn = here & free
                    new_d = moved(old_d, was, move, first_u)
                    write(at_d, old_d, new_d, drawn[:, None] & columns, ATOMIC)
                    if BIASED:
                        write(b_i + j, old_j, (old_j - move) * first_u, drawn, ATOMIC)
                    t += 1

            write(at_p, raw_p, new_p, inside, ATOMIC)
            if LOSS == "bpr":
                write(at_q, raw_q, new_q, inside, ATOMIC)
                if BIASED:
                    write(b_i + i, old_i, new_i, here, ATOMIC)
            elif BIASED:
                write(b_u + u, old_u, new_u, here, ATOMIC)
            at += hop
            turn += 1


class Tables(NamedTuple):
    """Parameters, as views of the flat tensor, and arrays of users and items; unused ones are empty."""

    p: torch.Tensor  # (users, stride) float32
    q: torch.Tensor  # (items, stride) float32
    b_u: torch.Tensor  # (users,) float32
    b_i: torch.Tensor  # (items,) float32
    user_rates: torch.Tensor  # (users,) float32
    item_rates: torch.Tensor  # (items,) float32
    seen_begin: torch.Tensor  # (users + 1,) int64
    seen_items: torch.Tensor  # (n,) int32


class CompletionLauncher(Launcher):
    """See :class:`hogwild.cuda.streams.Launcher`.

    Parameters
    ----------
    problem : CompletionProblem
    arrays : mapping
        ``users``, ``items`` and ``values`` (in the problem's units) of all ratings; ``user_rates`` and ``item_rates``
        if the penalty is smoothed, ``seen_begin`` and ``seen_items`` for implicit losses, otherwise empty.
    backend : Backend
    seed : int
        Seed of the drawn negative items. Each visit draws anew: the number of visits before it since the run began is
        mixed in.
    """

    block = 32
    problem: CompletionProblem

    def __init__(
        self, problem: CompletionProblem, arrays: Mapping[str, np.ndarray], backend: Backend, seed: int = 0
    ) -> None:
        super().__init__(problem, backend)
        self._seed = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
        names = ("users", "items", *(("values",) if problem.loss == "squared-error" else ()))
        self._ratings = {name: arrays[name] for name in names}
        self.data = self.upload(self._ratings)
        tables = [torch.from_numpy(np.array(arrays[name])).to(backend.device) for name in Tables._fields[4:]]
        views: Any = problem.parameters(self.flat)
        self.tables = Tables(*(part.view(-1, problem.stride) for part in views[:2]), *views[2:], *tables)

    def sums(self) -> np.ndarray | None:
        """Sums of squared and absolute errors in the user's units; only the CPU has the evaluator's negatives."""
        if self.problem.loss != "squared-error":
            return None
        p, q, b_u, b_i = self.tables[:4]
        sums, rows = torch.zeros(2, dtype=torch.float64, device=p.device), max(EVALUATED // self.problem.stride, 1)
        for u, i, values in zip(*(self.data[name].split(rows) for name in ("users", "items", "values"))):
            e = ((p[u] * q[i]).sum(1).double() + b_u[u] + b_i[i] - values) * self.problem.scale
            sums += torch.stack((e.square().sum(), e.abs().sum()))
        return sums.cpu().numpy()

    def longest_step(self) -> float:
        """In the problem's units the mean loss is about as curved in a bias as the share of ratings that have it."""
        ratings = self._ratings["users"], self._ratings["items"]
        return len(ratings[0]) / max(int(np.bincount(numbers).max()) for numbers in ratings)

    def room(self) -> int:
        """Ratings in flight when the device is full and none waits for another's end."""
        group, programs = self.grid(1 << 30)[0], self.backend.programs() // RESIDENT
        return group * max(programs if self._tile()[2] else programs // 2, 1)

    def salt(self, visits: Visits) -> int:
        """Seed of the draws of the first visit, uint64; each later visit adds one."""
        return (self._seed + visits.visited + visits.first) % 2**64

    def constants(self) -> dict[str, Any]:
        """Constants that kernels are compiled for, except the number of ratings per program."""
        problem, (width, tile, fitting) = self.problem, self._tile()
        # products and sums are fused, whatever Triton's default, and no program waits for another's registers
        return {
            "LOSS": problem.loss,
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
        problem = self.problem
        width = -(-problem.rank // SECTOR) * SECTOR
        tile = 1 << (width - 1).bit_length()
        crowded = problem.loss != "squared-error"
        return width, tile, TILE // (2 if crowded else 1) // tile  # a third row, or the old one, is in registers

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
        problem = self.problem
        tables = self.tables
        data = self.data
        group, programs = self.grid(in_flight)
        visit_ratings[(min(programs, -(-visits.size // group)),)](
            *tables[:4],
            data["users"],
            data["items"],
            data.get("values", tables.p),
            *tables[4:],
            self.salt(visits),
            problem.items,
            problem.negatives,
            problem.l2,
            *visits.arguments,
            GROUP=group,
            **self.constants(),
            **visits.constants,
        )
