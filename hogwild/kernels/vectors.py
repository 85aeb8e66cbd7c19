"""Rows of factors in vector registers: dot products and steps of whole rows, written as LLVM vector instructions.

A row is ``16 * len(lanes)`` float32 (a cache line for each lane) of a flat array, row ``u`` at ``u * 16 * len(lanes)``.
The contents of the tuple ``lanes`` are never read: its length is part of its type, so every row is unrolled at compile
time, and stays in registers between load and store. Left to the vectoriser, a loop over a row keeps a scalar remainder,
tests whether the two rows overlap, and sums in an order of its own; it ran at half the speed.

Sums are made in one order: up to four accumulators of 16 lanes, added pairwise, then halves upon halves. So all
disciplines agree to the last bit, and can be checked against the plain Python meaning, which also runs with the JIT
off. Only explicit ``fma`` calls are fused. Rows need no alignment, but one that straddles cache lines is slower.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from hogwild.kernels.fma import fma
from hogwild.kernels.options import instructions

LANE = 16  # float32 in a cache line, and in the widest register
SUMS = 4  # accumulators: as many dot products as the latency of an addition can hide
ZERO = np.float32(0)

VECTOR = ir.VectorType(ir.FloatType(), LANE)
INT = ir.IntType(32)


def row(array, lanes, u):
    """Row ``u`` as a view; used only without the JIT."""
    size = LANE * len(lanes)
    return array[int(u) * size : (int(u) + 1) * size]


def dot(lanes, p, u, q, i):
    """Return ``p_u . q_i``."""
    a, b = row(p, lanes, u).reshape(-1, LANE), row(q, lanes, i).reshape(-1, LANE)
    sums = [a[k] * b[k] for k in range(min(len(lanes), SUMS))]
    for k in range(SUMS, len(lanes)):
        sums[k % SUMS] = fma(a[k], b[k], sums[k % SUMS])
    while len(sums) > 1:
        sums = [sums[k] + sums[k + 1] if k + 1 < len(sums) else sums[k] for k in range(0, len(sums), 2)]
    total = sums[0]
    while len(total) > 1:
        total = total[: len(total) // 2] + total[len(total) // 2 :]
    return total[0]


def move(lanes, nonnegative, p, u, q, i, step, shrink):
    """Set ``p_u <- shrink * (p_u - step * q_i)``, at least 0 if ``nonnegative``."""
    row(p, lanes, u)[:] = _moved(nonnegative, row(p, lanes, u), row(q, lanes, i), step, shrink)


def move_both(lanes, nonnegative, p, u, q, i, step, shrink_p, shrink_q):
    """Do ``move`` for each of two rows along the other, both as they were before."""
    a, b = row(p, lanes, u), row(q, lanes, i)
    new = _moved(nonnegative, a, b, step, shrink_p)
    b[:] = _moved(nonnegative, b, a, step, shrink_q)
    a[:] = new


def move_three(lanes, nonnegative, p, u, q, i, j, step, shrink_p, shrink_i, shrink_j):
    """Move ``p_u`` along ``q_i - q_j``, ``q_i`` along ``p_u``, ``q_j`` against it, from old values; i is not j."""
    a, b, c = row(p, lanes, u), row(q, lanes, i), row(q, lanes, j)
    new = _moved(nonnegative, fma(step, c, a), b, step, shrink_p)
    b[:] = _moved(nonnegative, b, a, step, shrink_i)
    c[:] = _moved(nonnegative, c, a, -step, shrink_j)
    a[:] = new


def copy_row(lanes, p, u, q, i):
    """Set ``p_u <- q_i``."""
    row(p, lanes, u)[:] = row(q, lanes, i)


def merge_row(lanes, p, u, q, r, j):
    """Set ``p_u``, ``q_j`` and ``r_j`` all to ``q_j + (p_u - r_j)``: exactly ``q_j`` where the other two are equal."""
    new = row(q, lanes, j) + (row(p, lanes, u) - row(r, lanes, j))
    for array, k in ((p, u), (q, j), (r, j)):
        row(array, lanes, k)[:] = new


def _moved(nonnegative, a, b, step, shrink):
    new = fma(-step, b, a) * shrink
    return np.where(new < ZERO, ZERO, new) if nonnegative else new  # this comparison keeps NaN


class _Rows:
    """Shared parts of the code generators below: the arrays' rows as vectors, and the arithmetic of ``_moved``."""

    def __init__(self, context, builder, signature, args):
        self.context, self.builder, self.types, self.args = context, builder, signature.args, args
        self.count = self.types[0].count
        self.fma = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(VECTOR, [VECTOR] * 3), f"llvm.fma.v{LANE}f32"
        )

    def pointers(self, array, index):
        """Pointers to each lane of the row that two arguments name."""
        struct = self.context.make_array(self.types[array])(self.context, self.builder, self.args[array])
        number = self.context.cast(self.builder, self.args[index], self.types[index], types.uint64)
        first = self.builder.mul(number, ir.Constant(number.type, LANE * self.count))
        start = self.builder.bitcast(self.builder.gep(struct.data, [first]), VECTOR.as_pointer())
        return [self.builder.gep(start, [ir.Constant(INT, k)]) for k in range(self.count)]

    def load(self, pointers):
        return [self.builder.load(pointer, align=4) for pointer in pointers]

    def store(self, vectors, pointers):
        for vector, pointer in zip(vectors, pointers):
            self.builder.store(vector, pointer, align=4)

    def spread(self, argument):
        """Copy a float32 argument into every lane."""
        number = self.context.cast(self.builder, self.args[argument], self.types[argument], types.float32)
        one = self.builder.insert_element(ir.Constant(VECTOR, ir.Undefined), number, ir.Constant(INT, 0))
        return self.builder.shuffle_vector(
            one, ir.Constant(VECTOR, ir.Undefined), ir.Constant(ir.VectorType(INT, LANE), [0] * LANE)
        )

    def moved(self, flag, a, b, step, shrink):
        """Return ``shrink * (a + step * b)`` and its projection, which is folded away if the flag is a constant."""
        zero = ir.Constant(VECTOR, [0.0] * LANE)
        wanted = self.context.cast(self.builder, self.args[flag], self.types[flag], types.boolean)
        out = []
        for x, y in zip(a, b):
            new = self.builder.fmul(self.builder.call(self.fma, [step, y, x]), shrink)
            cut = self.builder.select(self.builder.fcmp_ordered("<", new, zero), zero, new)
            out.append(self.builder.select(wanted, cut, new))
        return out

    def total(self, vectors):
        """Return the sum of all lanes, added pairwise."""
        builder = self.builder
        while len(vectors) > 1:
            pairs = zip(vectors[::2], vectors[1::2])
            vectors = [builder.fadd(a, b) for a, b in pairs] + vectors[len(vectors) // 2 * 2 :]
        total, size = vectors[0], LANE
        while size > 1:
            size //= 2
            nothing = ir.Constant(total.type, ir.Undefined)
            halves = [
                builder.shuffle_vector(total, nothing, ir.Constant(ir.VectorType(INT, size), list(range(k, k + size))))
                for k in (0, size)
            ]
            total = builder.fadd(*halves)
        return builder.extract_element(total, ir.Constant(INT, 0))


def _generate(function, emit, result=types.void):
    """Generate the code of ``function``: ``emit`` gets its arguments as rows."""

    @instructions(function)
    def define(typingctx, *kinds):
        def codegen(context, builder, signature, args):
            found = emit(builder, _Rows(context, builder, signature, args))
            return context.get_dummy_value() if found is None else found

        return result(*kinds), codegen


def _dot(builder, rows):
    a, b = rows.load(rows.pointers(1, 2)), rows.load(rows.pointers(3, 4))
    sums = [builder.fmul(x, y) for x, y in zip(a[:SUMS], b[:SUMS])]
    for k in range(SUMS, len(a)):
        sums[k % SUMS] = builder.call(rows.fma, [a[k], b[k], sums[k % SUMS]])
    return rows.total(sums)


def _move(builder, rows):
    target = rows.pointers(2, 3)
    a, b = rows.load(target), rows.load(rows.pointers(4, 5))
    rows.store(rows.moved(1, a, b, builder.fneg(rows.spread(6)), rows.spread(7)), target)


def _move_both(builder, rows):
    first, second = rows.pointers(2, 3), rows.pointers(4, 5)
    a, b = rows.load(first), rows.load(second)
    back = builder.fneg(rows.spread(6))
    new = rows.moved(1, a, b, back, rows.spread(7)), rows.moved(1, b, a, back, rows.spread(8))
    rows.store(new[0], first)
    rows.store(new[1], second)


def _move_three(builder, rows):
    pointers = rows.pointers(2, 3), rows.pointers(4, 5), rows.pointers(4, 6)
    a, b, c = (rows.load(row) for row in pointers)
    ahead = rows.spread(7)
    back = builder.fneg(ahead)
    towards = [builder.call(rows.fma, [ahead, z, x]) for x, z in zip(a, c)]
    new = (
        rows.moved(1, towards, b, back, rows.spread(8)),
        rows.moved(1, b, a, back, rows.spread(9)),
        rows.moved(1, c, a, ahead, rows.spread(10)),
    )
    for vectors, row in zip(new, pointers):
        rows.store(vectors, row)


def _copy_row(builder, rows):
    rows.store(rows.load(rows.pointers(3, 4)), rows.pointers(1, 2))


def _merge_row(builder, rows):
    pointers = rows.pointers(1, 2), rows.pointers(3, 5), rows.pointers(4, 5)
    now, mine, old = (rows.load(row) for row in pointers)
    new = [builder.fadd(y, builder.fsub(x, z)) for x, y, z in zip(now, mine, old)]
    for row in pointers:
        rows.store(new, row)


_generate(dot, _dot, types.float32)
_generate(move, _move)
_generate(move_both, _move_both)
_generate(move_three, _move_three)
_generate(copy_row, _copy_row)
_generate(merge_row, _merge_row)
