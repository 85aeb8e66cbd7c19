"""Factorization machines: margin and update of a row (Rendle 2010; Juan, Zhuang, Chin, Lin 2016).

    z = b + sum_j w_j x_j + sum_{i<j} <v_{i, f(j)}, v_{j, f(i)}> x_i x_j

A feature has a factor for each field, and uses with feature ``j`` the one of the field ``f(j)``; a plain machine has
one field. A feature's numbers are a line of ``stride``: its factors, each padded to ``size`` numbers, zeros, and last
the weight ``w``. A row costs its lines, not its pairs: with the sums ``S_{f, g}`` of ``x_i v_{i, g}`` over its features
of field ``f``, the slope of ``z`` along the line of a feature of field ``f`` is ``x_i`` times its field's tilt

    A_f = (S_{0, f}, S_{1, f}, ..., 1)      less x_i v_{i, f} at the factor for the field f itself

and ``z`` is half the sum of the products of lines and slopes, of weights all of it. So after the tilts of a row's
fields are written, four numbers at a time up to rank 4, all else is whole vectors of 16:

    g     = s * loss'(z, y)
    v_i  <- (v_i - step * g * x_i * (A_f - x_i * mask * v_i)) / (1 + step * penalty * N / d_i)

where ``N / d_i`` spreads the penalty over the rows that hold feature ``i``, as in the linear problem, so that the
objective that is reported is the one that is optimised. (libffm shrinks by the same factor at every visit, which is
another objective.) The padding of a line is zero and stays zero. A row may lack fields, and hold several features of a
field.

AdaGrad divides each number's step by the root of its sum of squared gradients, which starts at one as in libffm. The
inverse root is within 7e-4, as libffm's is, but has the same bits on every machine (``vectors.inverse_root``).

The lines of a row with 39 fields are 50 kB with AdaGrad: those of the next row are prefetched into the second cache,
a vector each time one is done. All at once, they would wait for the memory; into the first cache, they would evict what
this row still needs.

Rows that hold no field twice go by ``tiles_kernel.py``, up to rank 4.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from hogwild.kernels import vectors
from hogwild.kernels.atomics import prefetch_second
from hogwild.kernels.options import inlined
from hogwild.kernels.tiers import place_of_rate
from hogwild.kernels.vectors import fma
from hogwild.problems.linear.kernel import Data

HALF, ZERO, ONE = np.float32(0.5), np.float32(0), np.float32(1)

# Vectors of ``stride`` numbers in a worker's buffer. MASK has ones at the factor that begins at the second vector, so
# that it can be read from before or behind; UNIT a one at the weight; PENALTY that of factors, and that of weights;
# ``tiles_kernel.py`` has those from TILES on; and from TILT on are the tilts of the fields of a row, in the order in
# which they occur.
MASK, UNIT, PENALTY, TILES, TILT = 0, 2, 3, 4, 12

#: As :class:`hogwild.problems.linear.kernel.Data`, and the field of each feature, (width,) int16, if there are several.
FieldData = namedtuple("FieldData", (*Data._fields, "fields"))


@inlined
def line_of(data, stride, j):
    """Where the line of entry ``j`` begins."""
    return np.uint64(np.uint32(data.indices[np.uint64(j)])) * np.uint64(stride)


@inlined
def field_of(data, j):
    """The field of entry ``j``."""
    return np.uint64(data.fields[np.uint64(np.uint32(data.indices[np.uint64(j)]))])


@inlined
def place(row, stride, k):
    """Place of the number ``k`` of a vector in the buffer; unsigned, which saves a test for negative ones."""
    return np.uint64(row * stride + k)


@inlined
def margin_of(lanes, coef, data, stride, begin, end, factor, buffer):
    """Return a row's margin without the intercept, and write the tilt of the only field."""
    margin = ZERO
    for k in range(0, stride, len(lanes)):
        sums = squares = vectors.filled(lanes, ZERO)
        for j in range(begin, end):
            x = data.values[np.uint64(j)] * factor
            part = x * vectors.load(lanes, coef, line_of(data, stride, j) + np.uint64(k))
            sums = sums + part
            squares = fma(part, part, squares)
        mask = vectors.load(lanes, buffer, place(MASK + 1, stride, k))
        unit = vectors.load(lanes, buffer, place(UNIT, stride, k))
        pairs = fma(sums, sums, -ONE * squares)
        margin += vectors.total(fma(HALF * mask, pairs, unit * sums))
        vectors.store(fma(mask, sums, unit), buffer, place(TILT, stride, k))
    return margin


@inlined
def margin_of_fields(narrow, lanes, size, coef, data, stride, begin, end, factor, buffer, tilts, fields):
    """Do :func:`margin_of` for several fields: write the tilts of those that the row has.

    ``fields`` become these, in the order in which they occur, and ``tilts``, by field, their places in it plus TILT.
    """
    for j in range(begin, end):
        tilts[field_of(data, j)] = 0
    present = 0
    for j in range(begin, end):
        field = field_of(data, j)
        if tilts[field] == 0:
            tilts[field], fields[np.uint64(present)] = TILT + present, field
            for k in range(0, stride, len(lanes)):
                unit = vectors.load(lanes, buffer, place(UNIT, stride, k))
                vectors.store(unit, buffer, place(TILT + present, stride, k))
            present += 1
    for j in range(begin, end):
        x, line = data.values[np.uint64(j)] * factor, line_of(data, stride, j)
        own = field_of(data, j) * np.uint64(size)
        for n in range(present):
            facing, tilt = line + np.uint64(fields[np.uint64(n)]) * np.uint64(size), place(TILT + n, stride, 0) + own
            for k in range(0, size, len(narrow)):
                at = tilt + np.uint64(k)
                part = vectors.load(narrow, coef, facing + np.uint64(k))
                vectors.store(fma(x, part, vectors.load(narrow, buffer, at)), buffer, at)
    products, squares, weights = vectors.filled(lanes, ZERO), vectors.filled(narrow, ZERO), ZERO
    for j in range(begin, end):
        x, line, field = data.values[np.uint64(j)] * factor, line_of(data, stride, j), field_of(data, j)
        tilt, sums = place(tilts[field], stride, 0), vectors.filled(lanes, ZERO)
        for k in range(0, stride, len(lanes)):
            at = np.uint64(k)
            sums = fma(vectors.load(lanes, coef, line + at), vectors.load(lanes, buffer, tilt + at), sums)
        products = fma(x, sums, products)
        for k in range(0, size, len(narrow)):
            own = x * vectors.load(narrow, coef, line + field * np.uint64(size) + np.uint64(k))
            squares = fma(own, own, squares)
        weights = fma(x, coef[line + np.uint64(stride - 1)], weights)
    return HALF * (vectors.total(products) - vectors.total(squares) + weights)


@inlined
def moved(lanes, adagrad, sums, first, line, slope, step):
    """Return a vector of the line at ``first`` after a step against ``slope``."""
    if adagrad:
        total = fma(slope, slope, vectors.load(lanes, sums, first))
        vectors.store(total, sums, first)
        slope = slope * vectors.inverse_root(total)
    return fma(-step, slope, line)


@inlined
def move(
    lanes,
    size,
    adagrad,
    shrinks,
    far,
    parameters,
    data,
    stride,
    begin,
    end,
    factor,
    g,
    step,
    buffer,
    tilts,
    popular,
    ahead,
):
    """Update the lines of a row whose margin has the gradient ``g``; a line of the row ``ahead`` is prefetched with
    each if there are several fields.
    """
    coef, sums = parameters.coef, parameters.coef_squares
    keep, drop = ONE, ZERO
    for j in range(begin, end):
        u, line = np.uint32(data.indices[np.uint64(j)]), line_of(data, stride, j)
        x = data.values[np.uint64(j)] * factor
        tilt, mask = place(TILT, stride, 0), place(MASK + 1, stride, 0)
        if size:
            field = field_of(data, j)
            tilt, mask = place(tilts[field], stride, 0), mask - field * np.uint64(size)
        if shrinks:
            rate = step * data.rates[place_of_rate(u, popular)]
            keep = ONE / fma(rate, buffer[place(PENALTY, stride, 0)], ONE)
            drop = ONE / fma(rate, buffer[place(PENALTY, stride, 1)], ONE) - keep
        after = line_of(data, stride, max(min(data.begin[ahead] + (j - begin), data.end[ahead] - 1), 0))
        for k in range(0, stride, len(lanes)):
            at = np.uint64(k)
            before = vectors.load(lanes, coef, line + at)
            own = x * vectors.load(lanes, buffer, mask + at)
            slope = (g * x) * fma(-ONE * own, before, vectors.load(lanes, buffer, tilt + at))
            vector = moved(lanes, adagrad, sums, line + at, before, slope, step)
            if shrinks:
                unit = vectors.load(lanes, buffer, place(UNIT, stride, k))
                vector = fma(drop, unit, keep) * vector
            vectors.store(vector, coef, line + at)
            if far and size:
                prefetch_second(coef, after + at)
                if adagrad:
                    prefetch_second(sums, after + at)
