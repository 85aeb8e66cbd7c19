"""Sparse linear models on a CUDA device: Triton kernels in which a program is one warp with one row in flight.

A visit is that of ``problems/linear/kernel.py``. Its limit is not
arithmetic but latency: only a limited number of rows may be in flight, so rows per second are those in flight over the
time for one. That time has three dependent waits for memory: where a row lies, what is in it, and its weights. Nobody
writes to what the first two read, so a program computes and looks up 32 rows together, one a thread, and requests a
row's entries while it works on the row before; only the weights are waited for. Threads exchange what they looked up by
integer sums over the warp, which are one instruction.

Programs take every F-th row of the sequence. A warp needs no barrier, its sums are shuffles, and atomics are
``relaxed``: the default would empty the L1 cache at each. Weights are read past that cache (``.cg``), which does not
see other programs' writes.

``ATOMIC``: the change is added, so nothing is lost. With a penalty it is the change that the proximal step makes to the
value that was read, so where many visit a feature at once l1 may take it past zero, until the next visit. Otherwise
the weight is read again and stored, and of several concurrent stores the last one stays. The intercept is in every row
and always added to; since all programs contend for it, each adds up its changes over ``PENDING_ROWS`` rows, and itself
works with those at once.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="misc"

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse
import torch
import triton
import triton.language as tl

from hogwild.cuda.backend import Backend
from hogwild.cuda.losses import LOSSES, dloss
from hogwild.cuda.order import VISITS, visit_at
from hogwild.cuda.streams import Launcher, Visits, entries_of
from hogwild.data.rows.container import Rows
from hogwild.errors import InputError
from hogwild.problems.linear import kernel as on_cpu
from hogwild.problems.linear.problem import LinearProblem
from hogwild.problems.linear.rows import SHARE_NONZEROS, SHARE_ROWS

TINY = tl.constexpr(float(on_cpu.TINY))
AHEAD = tl.constexpr(32)  # rows that a program looks up together: one a thread
PENDING_ROWS = 4  # rows over which a program adds up changes of the intercept; divides AHEAD
SHORTEST, LONGEST = 32, 128  # nonzeros taken at a time: one to four a thread
TILE, MOST = 512, 1024  # weights taken at a time with several classes, 16 a thread; most classes
INT32 = 2**31
ROUNDS = 20  # of the power method
#: Curvature of losses in the margin, below the bound of those that are straight on one side: batches of 4 to 8 times
#: the longest step by the bound of log and hinge learned as well as single rows (text and dense rows, two epochs)
CURVATURE = {"log": 0.1, "softmax": 0.2, "hinge": 0.25, "perceptron": 0.25, "epsilon-insensitive": 0.25}
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
def entries(indices, values, first, last, lanes, UNIT: tl.constexpr, ONCE: tl.constexpr):
    """Features and values from ``first`` on, until the row ends; ``ONCE``: they are read only once."""
    policy: tl.constexpr = "evict_first" if ONCE else ""
    mask = lanes < last - first
    u = tl.load(indices + first + lanes, mask=mask, other=0, eviction_policy=policy)
    if UNIT:
        x = mask.to(tl.float32)
    else:
        x = tl.load(values + first + lanes, mask=mask, other=0.0, eviction_policy=policy)
    return u, x[:, None]


@triton.jit
def pick(numbers, i):
    """Element ``i`` of a vector, 0 beyond; a sum of integers is one instruction of a warp, one of floats is ten."""
    here = tl.arange(0, AHEAD) == i
    bits = numbers.to(tl.int32, bitcast=True) if numbers.dtype == tl.float32 else numbers
    bits = tl.sum(tl.where(here, bits, 0), 0)
    return bits.to(tl.float32, bitcast=True) if numbers.dtype == tl.float32 else bits


@triton.jit
def weights_of(coef, u, inside, columns, STRIDE: tl.constexpr, WIDE: tl.constexpr):
    """Offsets of these features' weights for all classes (64-bit if there are 2^31 weights), and the weights."""
    if WIDE:
        u = u.to(tl.int64)
    at = u[:, None] * STRIDE + columns[None, :]
    return at, tl.load(coef + at, mask=inside, other=0.0, cache_modifier=".cg")


@triton.jit
def rates_of(rates, u, inside, PENALTY: tl.constexpr):
    """How strongly each feature is shrunk, if there is a penalty."""
    if PENALTY != "none":
        return tl.load(rates + u[:, None], mask=inside, other=0.0)
    else:
        return inside.to(tl.float32)


@triton.jit(do_not_specialize=VISITS, do_not_specialize_on_alignment=ANYWHERE)
def visit_rows(
    coef,
    intercept,
    coef_squares,
    intercept_squares,
    rates,  # float32
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
    scale,
    since,
    power,  # see order.py
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
    lanes = tl.arange(0, BLOCK)
    columns = tl.arange(0, COLUMNS)
    p = tl.program_id(0)
    turn = tl.num_programs(0)
    real, stored = columns < CLASSES, (columns < STRIDE)[None, :]  # padded classes are written, and stay zero
    pending = tl.zeros((COLUMNS,), tl.float32)  # changes of the intercept, and their squares
    pending_squares = tl.zeros((COLUMNS,), tl.float32)
    while p < count:
        at = p + turn * tl.arange(0, AHEAD)
        there = at < count
        rows, steps = visit_at(start + tl.minimum(at, count - 1), n, bits, key, scale, since, power, SHUFFLED, TOGETHER)
        firsts, lasts = tl.load(begin + rows, mask=there, other=0), tl.load(end + rows, mask=there, other=0)
        ys = tl.load(targets + rows, mask=there, other=0.0)
        row_weights, row_scales = ys, ys
        if WEIGHTED:
            row_weights = tl.load(weights + rows, mask=there, other=0.0)
        if SCALED:
            row_scales = tl.load(scales + rows, mask=there, other=0.0)
        first, last = pick(firsts, 0), pick(lasts, 0)
        u, x = entries(indices, values, first, last, lanes, UNIT, True)
        i = 0
        while (i < AHEAD) & (p < count):
            inside = (lanes < last - first)[:, None]
            spots, w = weights_of(coef, u, inside & stored, columns, STRIDE, WIDE)
            bias = tl.load(intercept + columns, mask=real, other=0.0, cache_modifier=".cg")
            rate = rates_of(rates, u, inside, PENALTY)
            # of the next row, not waited for in this visit
            next_first, next_last = pick(firsts, i + 1), pick(lasts, i + 1)
            next_u, next_x = entries(indices, values, next_first, next_last, lanes, UNIT, True)
            y = pick(ys, i)
            step = pick(steps, i)
            weight = 1.0
            norm = 1.0
            if WEIGHTED:
                weight = pick(row_weights, i)
            if SCALED:
                norm = pick(row_scales, i)
            products, more = w * x, first + BLOCK
            while more < last:
                v, z = entries(indices, values, more, last, lanes, UNIT, False)
                rest = (lanes < last - more)[:, None]
                _, old = weights_of(coef, v, rest & stored, columns, STRIDE, WIDE)
                products += old * z
                more += BLOCK
            margins = bias + pending + norm * tl.sum(products, 0)
            if LOSS == "softmax":
                margins = tl.where(real, margins, float("-inf"))
                parts = tl.exp(margins - tl.max(margins, 0))
                g = parts / tl.sum(parts, 0) - (columns == y.to(tl.int32)).to(tl.float32)
            elif CLASSES > 1:
                g = dloss(margins, tl.where(columns == y.to(tl.int32), 1.0, -1.0), param, LOSS)
            else:
                g = dloss(margins, y, param, LOSS)
            g = tl.where(real, g * weight, 0.0)
            if INTERCEPT:
                move = share * step
                if ADAGRAD:
                    pending_squares += g * g
                    before = tl.load(intercept_squares + columns, mask=real, other=0.0, cache_modifier=".cg")
                    move = move * tl.rsqrt(before + pending_squares + TINY)
                pending -= move * g
                if (i % INTERCEPT == INTERCEPT - 1) | (p + turn >= count):
                    tl.atomic_add(intercept + columns, pending, mask=real, sem="relaxed")
                    if ADAGRAD:
                        tl.atomic_add(intercept_squares + columns, pending_squares, mask=real, sem="relaxed")
                    pending, pending_squares = pending * 0.0, pending_squares * 0.0
            if (PENALTY != "none") | (tl.sum((g != 0.0).to(tl.int32), 0) > 0):
                slope = norm * g[None, :]
                write(
                    coef,
                    coef_squares,
                    spots,
                    inside & stored,
                    w,
                    x * slope,
                    step,
                    rate,
                    l1,
                    l2,
                    PENALTY,
                    ADAGRAD,
                    ATOMIC,
                )
                more = first + BLOCK
                while more < last:
                    v, z = entries(indices, values, more, last, lanes, UNIT, False)
                    rest = (lanes < last - more)[:, None]
                    at_v, old = weights_of(coef, v, rest & stored, columns, STRIDE, WIDE)
                    pull = rates_of(rates, v, rest, PENALTY)
                    write(
                        coef,
                        coef_squares,
                        at_v,
                        rest & stored,
                        old,
                        z * slope,
                        step,
                        pull,
                        l1,
                        l2,
                        PENALTY,
                        ADAGRAD,
                        ATOMIC,
                    )
                    more += BLOCK
            u = next_u
            x = next_x
            first = next_first
            last = next_last
            i += 1
            p += turn


class LinearLauncher(Launcher):
    """See :class:`hogwild.cuda.streams.Launcher`; ``arrays`` are the arguments of ``LinearProblem.data``."""

    problem: LinearProblem

    def __init__(self, problem: LinearProblem, arrays: Mapping[str, np.ndarray], backend: Backend) -> None:
        if problem.classes > MOST:
            raise InputError(f"device cuda: linear models have {MOST:,} classes at most there, got {problem.classes:,}")
        if problem.loss not in LOSSES:
            raise InputError(f"device cuda: loss {problem.loss} has no form for a GPU: train on the CPU")
        super().__init__(problem, backend)
        self.rates = torch.tensor(arrays["rates"], device=backend.device)  # (width,) or empty
        self.parameters: Any = problem.parameters(self.flat)  # views of it
        ends, targets = (arrays["begin"], arrays["end"]), arrays["targets"]
        self.rows = Rows(ends, arrays["indices"], arrays["values"], targets, problem.width, check=False)
        self.of_rows = {name: arrays[name] for name in ("targets", "weights", "scales") if len(arrays[name])}
        self.data = self.upload(entries_of(self.rows, problem.unit) | self.of_rows)

    def room(self) -> int:
        return self.backend.programs()  # a row each

    def longest_step(self) -> float:
        """One over the curvature times the largest eigenvalue of the mean of ``x x'``, the intercept's share included.

        Rows are a sample, and the eigenvalue is found by the power method.
        """
        ids = self.rows.spread(SHARE_NONZEROS, SHARE_ROWS)
        rows = self.rows.select(ids).compact()
        scales, weights = (
            self.of_rows[name][ids] if name in self.of_rows else np.ones(len(rows)) for name in ("scales", "weights")
        )
        features, u = np.unique(rows.indices, return_inverse=True)
        x = scipy.sparse.csr_array((rows.values, u, np.append(rows.begin, rows.end[-1:])), (len(rows), len(features)))
        intercept = np.full((len(rows), 1), self.problem.intercept**0.5)
        x = scipy.sparse.hstack((scipy.sparse.diags_array(scales) @ x, intercept), "csr")
        v = np.ones(len(features) + 1)
        for _ in range(ROUNDS):
            v = x.T @ (weights * (x @ v)) / len(rows) / max(float(np.linalg.norm(v)), 1e-30)
        eigenvalue = float(np.linalg.norm(v))
        curvature = CURVATURE.get(self.problem.loss, 1.0)
        if self.problem.loss == "poisson":  # it is the mean of the target
            curvature = max(float(rows.targets.mean()), curvature)
        return 1 / max(curvature * eigenvalue, 1e-30)

    def constants(self) -> dict[str, Any]:
        """Constants that the kernel is compiled for."""
        problem = self.problem
        columns = triton.next_power_of_2(problem.stride)
        block = min(max(triton.next_power_of_2(self.rows.nnz // len(self.rows)), SHORTEST), LONGEST)
        return {
            "LOSS": problem.loss,
            "PENALTY": "elastic" if problem.l1 > 0 else "l2" if problem.l2 > 0 else "none",
            "ADAGRAD": problem.adagrad,
            "ATOMIC": problem.discipline == "atomic",
            "INTERCEPT": PENDING_ROWS if problem.intercept > 0 else 0,
            "UNIT": problem.unit,
            "WEIGHTED": "weights" in self.data,
            "SCALED": "scales" in self.data,
            "BLOCK": block if problem.classes == 1 else min(block, max(TILE // columns, 1)),
            "CLASSES": problem.classes,
            "STRIDE": problem.stride,
            "COLUMNS": columns,
            "WIDE": (problem.width + 1) * problem.stride >= INT32,
            "num_warps": 1,
            "enable_fp_fusion": True,
        }

    def visit(self, visits: Visits, in_flight: int) -> None:
        """Launch ``in_flight`` programs, which visit the rows on the current stream."""
        problem, data = self.problem, self.data
        other = data["targets"]  # in place of missing arrays
        visit_rows[(min(in_flight, visits.size),)](
            *self.parameters,
            self.rates,
            *(data.get(name, other) for name in ANYWHERE),
            problem.l1,
            problem.l2,
            problem.loss_param,
            problem.intercept,
            *visits.arguments,
            **visits.constants,
            **self.constants(),
        )
