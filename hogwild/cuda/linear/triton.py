"""Sparse linear models on a CUDA device: Triton kernels in which a program is one warp with one row in flight.

A visit is that of ``problems/linear/kernel.py``. Its limit is not
arithmetic but latency: only a limited number of rows may be in flight (see ``trial.py``), so rows
per second are those in flight over the time for one. That time has three dependent waits for memory: where a row
it lies, what is in it, and its weights. Nobody writes to what the first two read, so a program computes and looks up 32
rows together, one a thread, and requests a row's entries while it works on the row before; only the weights are waited
for. Threads exchange what they looked up by integer sums over the warp, which are one instruction.

Programs take every F-th row of the sequence. A warp needs no barrier, its sums are shuffles, and atomics are
``relaxed``: the default would empty the L1 cache at each. Weights are read past that cache (``.cg``), which does not
see other programs' writes.

``ATOMIC``: the change is added, so nothing is lost. With a penalty it is the change that the proximal step makes to the
value that was read, so where many visit a feature at once l1 may take it past zero, until the next visit. Otherwise
the weight is read again and stored, and of several concurrent stores the last one stays. The intercept is in every row
and always added to; since all programs contend for it, each adds up its changes over ``HELD`` rows, and itself works
with those at once.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="misc"

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from hogwild.cuda.losses import dloss
from hogwild.cuda.order import VISITS, visit_at
from hogwild.cuda.work import Segment
from hogwild.problems.linear import kernel as on_cpu
from hogwild.problems.linear.problem import LinearProblem

TINY = tl.constexpr(float(on_cpu.TINY))
AHEAD = tl.constexpr(32)  # rows that a program looks up together: one a thread
HELD = 4  # rows over which a program adds up changes of the intercept; divides AHEAD
SHORTEST, LONGEST = 32, 128  # nonzeros taken at a time: one to four a thread
TILE = 1024  # weights taken at a time with several classes, 32 a thread: also most classes at a time
INT32 = 2**31
# One kernel serves slices of a tensor at any offset and of any length
ANYWHERE = ("begin", "end", "indices", "values", "targets", "weights", "scales")


@triton.jit
def shrunk(w, pull, l1, l2, PENALTY: tl.constexpr):
    """The proximal step of ``l1 |w| + l2/2 w^2``."""
    if PENALTY == "elastic":
        size = tl.abs(w) - pull * l1
        # not a maximum, which would drop a NaN
        w = tl.where(size <= 0.0, 0.0, tl.where(w > 0.0, size, -size))
    return w / (1.0 + pull * l2)


@triton.jit
def write(
    coef,
    squares,
    at,
    mask,
    w,
    gradient,
    step,
    rate,
    l1,
    l2,
    PENALTY: tl.constexpr,
    ADAGRAD: tl.constexpr,
    ATOMIC: tl.constexpr,
):
    """Update the weights at ``at``, which were read as ``w``, along ``gradient``."""
    if ADAGRAD:  # the step uses the sum that includes this gradient and all before it
        square = gradient * gradient
        if ATOMIC:
            before = tl.atomic_add(squares + at, square, mask=mask, sem="relaxed")
            total = tl.where(mask, before, 1.0) + square  # results of masked lanes are undefined
        else:
            total = tl.load(squares + at, mask=mask, other=0.0, cache_modifier=".cg") + square
            tl.store(squares + at, total, mask=mask)
        step = step * tl.rsqrt(total + TINY)
    change = -step * gradient
    if ATOMIC:
        if PENALTY != "none":
            change = shrunk(w + change, step * rate, l1, l2, PENALTY) - w
        tl.atomic_add(coef + at, change, mask=mask, sem="relaxed")
    else:
        w = tl.load(coef + at, mask=mask, other=0.0, cache_modifier=".cg") + change
        if PENALTY != "none":
            w = shrunk(w, step * rate, l1, l2, PENALTY)
        tl.store(coef + at, w, mask=mask)


@triton.jit
def shift(intercept, squares, at, mask, held, held_squares, g, step, enough, ADAGRAD: tl.constexpr):
    """Add a row's change of the intercept to what a program holds and, when that is enough, add this to the intercept.

    Of one margin, or tensors of several classes. Returns what the program then holds.
    """
    if ADAGRAD:
        held_squares += g * g
        before = tl.load(squares + at, mask=mask, cache_modifier=".cg")
        step = step * tl.rsqrt(before + held_squares + TINY)
    held -= step * g
    if enough:
        tl.atomic_add(intercept + at, held, mask=mask, sem="relaxed")
        if ADAGRAD:
            tl.atomic_add(squares + at, held_squares, mask=mask, sem="relaxed")
        held, held_squares = held * 0.0, held_squares * 0.0
    return held, held_squares


@triton.jit
def entries(indices, values, first, left, lanes, UNIT: tl.constexpr, ONCE: tl.constexpr):
    """Features and values from ``first`` on, of which ``left`` belong to the row; ``ONCE``: they are read only once."""
    policy: tl.constexpr = "evict_first" if ONCE else ""
    mask = lanes < left
    u = tl.load(indices + first + lanes, mask=mask, other=0, eviction_policy=policy)
    if UNIT:
        x = mask.to(tl.float32)
    else:
        x = tl.load(values + first + lanes, mask=mask, other=0.0, eviction_policy=policy)
    return u, x


@triton.jit
def ahead(
    begin,
    end,
    targets,
    weights,
    scales,
    at,
    start,
    count,
    n,
    bits,
    key,
    epoch,
    length,
    growth,
    since,
    power,
    WEIGHTED: tl.constexpr,
    SCALED: tl.constexpr,
    SHUFFLED: tl.constexpr,
    TOGETHER: tl.constexpr,
):
    """Look up the rows of these visits: begin and end, target, weight, scale and step of each; 0 beyond the last."""
    there = at < count
    v = start + tl.minimum(at, count - 1)
    row, step = visit_at(v, n, bits, key, epoch, length, growth, since, power, SHUFFLED, TOGETHER)
    y = tl.load(targets + row, mask=there, other=0.0)
    weight, scale = y, y
    if WEIGHTED:
        weight = tl.load(weights + row, mask=there, other=0.0)
    if SCALED:
        scale = tl.load(scales + row, mask=there, other=0.0)
    first, last = tl.load(begin + row, mask=there, other=0), tl.load(end + row, mask=there, other=0)
    return first, last, y, weight, scale, step


@triton.jit
def pick(numbers, i):
    """Element ``i`` of a vector, 0 beyond; a sum of integers is one instruction of a warp, one of floats is ten."""
    own = tl.arange(0, AHEAD) == i
    bits = numbers.to(tl.int32, bitcast=True) if numbers.dtype == tl.float32 else numbers
    bits = tl.sum(tl.where(own, bits, 0), 0)
    return bits.to(tl.float32, bitcast=True) if numbers.dtype == tl.float32 else bits


@triton.jit
def place(u, columns, STRIDE: tl.constexpr, WIDE: tl.constexpr):
    """Offsets of these features' weights for these classes; 64-bit if there are more than 2^31 weights."""
    if WIDE:
        u = u.to(tl.int64)
    return u[:, None] * STRIDE + columns[None, :]


@triton.jit
def dots(
    coef, indices, values, u, x, first, last, columns, STRIDE: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr
):
    """``sum_j coef[indices[j], k] * values[j]`` of a row that begins with ``u`` and ``x``, for these classes k."""
    lanes, inside = tl.arange(0, BLOCK), (columns < STRIDE)[None, :]
    mask = (lanes < last - first)[:, None] & inside
    w = tl.load(coef + place(u, columns, STRIDE, WIDE), mask=mask, other=0.0, cache_modifier=".cg")
    found, more = w * x[:, None], first + BLOCK
    while more < last:
        v, z = entries(indices, values, more, last - more, lanes, False, False)
        mask = (lanes < last - more)[:, None] & inside
        w = tl.load(coef + place(v, columns, STRIDE, WIDE), mask=mask, other=0.0, cache_modifier=".cg")
        found += w * z[:, None]
        more += BLOCK
    return tl.sum(found, 0)


@triton.jit
def with_bias(intercept, held, columns, margins, CLASSES: tl.constexpr):
    """Margins plus the intercept; minus infinity for padded classes."""
    inside = columns < CLASSES
    bias = tl.load(intercept + columns, mask=inside, other=0.0, cache_modifier=".cg")
    return tl.where(inside, margins + bias + held, float("-inf"))


@triton.jit
def gather(top, total, margins):
    """Merge more margins into the largest one and ``total = sum(exp(margin - top))``."""
    highest = tl.maximum(top, tl.max(margins, 0))
    return highest, total * tl.exp(top - highest) + tl.sum(tl.exp(margins - highest), 0)


@triton.jit
def visit_classes(
    coef,
    intercept,
    coef_squares,
    intercept_squares,
    rates,
    indices,
    values,
    u,
    x,
    first,
    last,
    label,
    step,
    weight,
    scale,
    held,
    held_squares,
    enough,
    l1,
    l2,
    param,
    share,
    LOSS: tl.constexpr,
    PENALTY: tl.constexpr,
    ADAGRAD: tl.constexpr,
    ATOMIC: tl.constexpr,
    INTERCEPT: tl.constexpr,
    BLOCK: tl.constexpr,
    CLASSES: tl.constexpr,
    STRIDE: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Visit a row with a margin for each class, ``COLUMNS`` classes at a time; returns what the program then holds."""
    lanes = tl.arange(0, BLOCK)
    top, total = float("-inf"), 0.0
    if (LOSS == "softmax") & (COLUMNS < CLASSES):  # a first pass over all margins, for the normalising sum
        k = 0
        while k < STRIDE:
            columns = k + tl.arange(0, COLUMNS)
            margins = dots(coef, indices, values, u, x, first, last, columns, STRIDE, WIDE, BLOCK)
            top, total = gather(top, total, with_bias(intercept, held, columns, scale * margins, CLASSES))
            k += COLUMNS
    k = 0
    while k < STRIDE:
        columns = k + tl.arange(0, COLUMNS)
        real = columns < CLASSES
        margins = dots(coef, indices, values, u, x, first, last, columns, STRIDE, WIDE, BLOCK)
        margins = with_bias(intercept, held, columns, scale * margins, CLASSES)
        if LOSS == "softmax":
            if COLUMNS >= CLASSES:
                top, total = gather(float("-inf"), 0.0, margins)
            g = tl.exp(margins - top) / total - (columns == label).to(tl.float32)
        else:
            g = dloss(margins, tl.where(columns == label, 1.0, -1.0), param, LOSS)
        g = tl.where(real, g * weight, 0.0)
        if INTERCEPT:
            held, held_squares = shift(
                intercept, intercept_squares, columns, real, held, held_squares, g, share * step, enough, ADAGRAD
            )
        if (PENALTY != "none") | (tl.sum((g != 0.0).to(tl.int32), 0) > 0):
            v, z, more = u, x, first
            while more < last:
                left = lanes < last - more
                # padded classes are written too, so that vectors are whole, and stay zero
                mask, spots = left[:, None] & (columns < STRIDE)[None, :], place(v, columns, STRIDE, WIDE)
                w, rate = 0.0, 0.0
                if PENALTY != "none":
                    rate = tl.load(rates + v, mask=left, other=0.0)[:, None]
                    if ATOMIC:
                        w = tl.load(coef + spots, mask=mask, other=0.0, cache_modifier=".cg")
                change = (z * scale)[:, None] * g[None, :]
                write(coef, coef_squares, spots, mask, w, change, step, rate, l1, l2, PENALTY, ADAGRAD, ATOMIC)
                more += BLOCK
                v, z = entries(indices, values, more, last - more, lanes, False, False)
        k += COLUMNS
    return held, held_squares


@triton.jit(do_not_specialize=VISITS, do_not_specialize_on_alignment=ANYWHERE)
def visit_rows(
    coef,
    intercept,
    coef_squares,
    intercept_squares,
    rates,
    begin,
    end,
    indices,
    values,
    targets,
    weights,
    scales,
    l1,
    l2,
    param,
    share,
    start: tl.int32,
    count: tl.int32,
    n: tl.int32,
    bits: tl.int32,
    key: tl.uint32,
    epoch: tl.int32,  # see order.py
    length,
    growth,
    since,
    power,
    LOSS: tl.constexpr,
    PENALTY: tl.constexpr,
    ADAGRAD: tl.constexpr,
    ATOMIC: tl.constexpr,
    INTERCEPT: tl.constexpr,
    UNIT: tl.constexpr,
    WEIGHTED: tl.constexpr,
    SCALED: tl.constexpr,
    BLOCK: tl.constexpr,
    CLASSES: tl.constexpr,
    STRIDE: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDE: tl.constexpr,
    SHUFFLED: tl.constexpr,
    TOGETHER: tl.constexpr,
):
    """Visit the rows at positions k, k + F, k + 2F, ... after ``start``: k is this program's number, of F."""
    held, held_squares = 0.0, 0.0  # changes of the intercept
    if CLASSES > 1:
        held, held_squares = tl.zeros((COLUMNS,), tl.float32), tl.zeros((COLUMNS,), tl.float32)
    lanes, p, turn = tl.arange(0, BLOCK), tl.program_id(0), tl.num_programs(0)
    while p < count:
        at = p + turn * tl.arange(0, AHEAD)
        firsts, lasts, ys, row_weights, row_scales, row_steps = ahead(
            begin,
            end,
            targets,
            weights,
            scales,
            at,
            start,
            count,
            n,
            bits,
            key,
            epoch,
            length,
            growth,
            since,
            power,
            WEIGHTED,
            SCALED,
            SHUFFLED,
            TOGETHER,
        )
        first, last = pick(firsts, 0), pick(lasts, 0)
        u, x = entries(indices, values, first, last - first, lanes, UNIT, True)
        i = 0
        while (i < AHEAD) & (p < count):
            if CLASSES == 1:
                mask = lanes < last - first
                w = tl.load(coef + u, mask=mask, other=0.0, cache_modifier=".cg")
                bias, rate = tl.load(intercept, cache_modifier=".cg"), 0.0
                if PENALTY != "none":
                    rate = tl.load(rates + u, mask=mask, other=0.0)
            # of the next row, not waited for in this visit
            next_first, next_last = pick(firsts, i + 1), pick(lasts, i + 1)
            next_u, next_x = entries(indices, values, next_first, next_last - next_first, lanes, UNIT, True)
            y, step, weight, scale = pick(ys, i), pick(row_steps, i), 1.0, 1.0
            if WEIGHTED:
                weight = pick(row_weights, i)
            if SCALED:
                scale = pick(row_scales, i)
            enough = False
            if INTERCEPT:
                enough = (i % INTERCEPT == INTERCEPT - 1) | (p + turn >= count)
            if CLASSES > 1:
                held, held_squares = visit_classes(
                    coef,
                    intercept,
                    coef_squares,
                    intercept_squares,
                    rates,
                    indices,
                    values,
                    u,
                    x,
                    first,
                    last,
                    y.to(tl.int32),
                    step,
                    weight,
                    scale,
                    held,
                    held_squares,
                    enough,
                    l1,
                    l2,
                    param,
                    share,
                    LOSS,
                    PENALTY,
                    ADAGRAD,
                    ATOMIC,
                    INTERCEPT,
                    BLOCK,
                    CLASSES,
                    STRIDE,
                    COLUMNS,
                    WIDE,
                )
            else:
                found, more = w * x, first + BLOCK
                while more < last:
                    v, z = entries(indices, values, more, last - more, lanes, UNIT, False)
                    found += tl.load(coef + v, mask=lanes < last - more, other=0.0, cache_modifier=".cg") * z
                    more += BLOCK
                g = dloss(bias + held + scale * tl.sum(found, 0), y, param, LOSS) * weight
                if INTERCEPT:
                    held, held_squares = shift(
                        intercept, intercept_squares, 0, None, held, held_squares, g, share * step, enough, ADAGRAD
                    )
                if (PENALTY != "none") | (g != 0.0):
                    slope = g * scale
                    write(coef, coef_squares, u, mask, w, slope * x, step, rate, l1, l2, PENALTY, ADAGRAD, ATOMIC)
                    more = first + BLOCK
                    while more < last:
                        v, z = entries(indices, values, more, last - more, lanes, UNIT, False)
                        left = lanes < last - more
                        old, pull = 0.0, 0.0
                        if PENALTY != "none":
                            pull = tl.load(rates + v, mask=left, other=0.0)
                            if ATOMIC:
                                old = tl.load(coef + v, mask=left, other=0.0, cache_modifier=".cg")
                        write(coef, coef_squares, v, left, old, slope * z, step, pull, l1, l2, PENALTY, ADAGRAD, ATOMIC)
                        more += BLOCK
            u, x, first, last = next_u, next_x, next_first, next_last
            i += 1
            p += turn


def block_of(problem: LinearProblem, mean: float) -> int:
    """Nonzeros that a program takes at a time, for a mean row length: enough for most rows, if that fits."""
    block = min(max(triton.next_power_of_2(int(mean)), SHORTEST), LONGEST)
    return block if problem.classes == 1 else min(block, TILE // _columns(problem))


def _columns(problem: LinearProblem) -> int:
    return min(triton.next_power_of_2(problem.stride), TILE)


def constants(problem: LinearProblem, block: int, weighted: bool, scaled: bool) -> dict[str, Any]:
    """Return the constants that a kernel is compiled for."""
    columns = _columns(problem)
    held = HELD if columns >= problem.classes else 1  # else a row's classes take turns in what is held
    penalty = "elastic" if problem.l1 > 0 else "l2" if problem.l2 > 0 else "none"
    return {
        "LOSS": problem.loss,
        "PENALTY": penalty,
        "ADAGRAD": problem.adagrad,
        "ATOMIC": problem.discipline == "atomic",
        "INTERCEPT": held if problem.intercept > 0 else 0,
        "UNIT": problem.unit,
        "WEIGHTED": weighted,
        "SCALED": scaled,
        "BLOCK": block,
        "CLASSES": problem.classes,
        "STRIDE": problem.stride,
        "COLUMNS": columns,
        "WIDE": (problem.width + 1) * problem.stride >= INT32,
        "num_warps": 1,
        "enable_fp_fusion": True,
    }


def visit(launcher: Any, segment: Segment, in_flight: int) -> None:
    """Launch ``in_flight`` programs that visit a segment's rows on the current stream."""
    problem, data, visits = launcher.problem, segment.data, segment.visits
    other = data["targets"]  # in place of missing arrays
    visit_rows[(min(in_flight, visits.size),)](
        *launcher.parameters,
        launcher.rates,
        data["begin"],
        data["end"],
        data["indices"],
        data.get("values", other),
        other,
        data.get("weights", other),
        data.get("scales", other),
        problem.l1,
        problem.l2,
        problem.loss_param,
        problem.intercept,
        *visits.arguments,
        **visits.constants,
        **constants(problem, block_of(problem, launcher.mean), "weights" in data, "scales" in data),
    )
