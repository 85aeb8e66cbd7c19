"""Field-aware factorization machines: margin and update of a row, by its pairs (Juan, Zhuang, Chin, Lin 2016).

    z = b + sum_j w_j x_j + sum_{i<j} <v_{i, f(j)}, v_{j, f(i)}> x_i x_j

A feature has a factor for each field, and uses with feature ``j`` the one of the field ``f(j)``. They lie one behind
the other in its line, each padded to whole vectors of ``size`` numbers, and the weight behind them. There is no sum
trick: a row costs its pairs. Rows may lack fields and hold several features of one.

A pair moves both factors along each other, as they were before; then the penalty shrinks the features' whole lines, as
the objective says. Rows that hold no field twice go by ``field_kernel.py``, up to rank 4.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from hogwild.kernels import vectors
from hogwild.kernels.atomics import prefetch_second
from hogwild.kernels.options import inlined
from hogwild.kernels.tiers import place_of_rate
from hogwild.kernels.vectors import LANE, LANES, fma
from hogwild.problems.linear.kernel import Data

SINGLE = LANES[1]
ZERO, ONE = np.float32(0), np.float32(1)
TILT, MASK, UNIT, PULL = range(4)  # vectors of ``stride`` numbers in a worker's buffer; ``kernel.py`` explains them

#: As :class:`hogwild.problems.linear.kernel.Data`, and the field of each feature, (width,) int16.
FieldData = namedtuple("FieldData", (*Data._fields, "fields"))


@inlined
def line_of(data, stride, j):
    """Where the line of entry ``j`` begins."""
    return np.uint64(np.uint32(data.indices[np.uint64(j)])) * np.uint64(stride)


@inlined
def block_of(data, size, j):
    """Where the factor for the field of entry ``j`` begins in a line."""
    return np.uint64(data.fields[np.uint64(np.uint32(data.indices[np.uint64(j)]))]) * np.uint64(size)


@inlined
def margin_of_pairs(lanes, size, last, coef, data, stride, begin, end, factor):
    """Return a row's margin without the intercept; a line's weight is at ``last``."""
    margin = ZERO
    sums = vectors.filled(lanes, ZERO)
    for i in range(begin, end):
        x = data.values[np.uint64(i)] * factor
        line, block = line_of(data, stride, i), block_of(data, size, i)
        margin = fma(x, coef[line + np.uint64(last)], margin)
        for j in range(i + 1, end):
            product = x * (data.values[np.uint64(j)] * factor)
            first, second = line + block_of(data, size, j), line_of(data, stride, j) + block
            for k in range(0, size, len(lanes)):
                one = vectors.load(lanes, coef, first + np.uint64(k))
                other = vectors.load(lanes, coef, second + np.uint64(k))
                sums = fma(product * one, other, sums)
    return margin + vectors.total(sums)


@inlined
def moved(lanes, adagrad, sums, first, line, slope, step):
    """Return a vector of the line at ``first`` after a step against ``slope``."""
    if adagrad:
        total = fma(slope, slope, vectors.load(lanes, sums, first))
        vectors.store(total, sums, first)
        slope = slope * vectors.inverse_root(total)
    return fma(-step, slope, line)


@inlined
def move_pairs(
    lanes,
    wide,
    size,
    last,
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
    popular,
    ahead,
):
    """Update the lines of a row whose margin has the gradient ``g``; ``wide`` vectors divide a line.

    With each feature a line of the row ``ahead`` is prefetched, after the last one what is left of them.
    """
    coef, sums = parameters.coef, parameters.coef_squares
    for i in range(begin, end):
        x = g * (data.values[np.uint64(i)] * factor)
        line, block = line_of(data, stride, i), block_of(data, size, i)
        if far:
            first = data.begin[ahead] + (i - begin)
            for n in range(first, data.end[ahead] if i == end - 1 else min(first + 1, data.end[ahead])):
                for k in range(0, stride, LANE):
                    place = line_of(data, stride, n) + np.uint64(k)
                    prefetch_second(coef, place)
                    if adagrad:
                        prefetch_second(sums, place)
        for j in range(i + 1, end):
            slope = x * (data.values[np.uint64(j)] * factor)
            first, second = line + block_of(data, size, j), line_of(data, stride, j) + block
            for k in range(0, size, len(lanes)):
                at, to = first + np.uint64(k), second + np.uint64(k)
                one, other = vectors.load(lanes, coef, at), vectors.load(lanes, coef, to)
                vectors.store(moved(lanes, adagrad, sums, at, one, slope * other, step), coef, at)
                vectors.store(moved(lanes, adagrad, sums, to, other, slope * one, step), coef, to)
        place = line + np.uint64(last)
        coef[place] = moved(SINGLE, adagrad, sums, place, coef[place], x, step)
        if shrinks:
            rate = step * data.rates[place_of_rate(np.uint32(data.indices[np.uint64(i)]), popular)]
            keep = ONE / fma(rate, buffer[PULL * stride], ONE)
            weight = coef[place] / fma(rate, buffer[PULL * stride + last], ONE)
            for k in range(0, stride, len(wide)):
                vectors.store(keep * vectors.load(wide, coef, line + np.uint64(k)), coef, line + np.uint64(k))
            coef[place] = weight
