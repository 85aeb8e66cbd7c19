"""Field-aware factorization machines: margin and update of a row that has no field twice, by tiles of fields.

Here the tilts of ``lines_kernel.py`` never leave the registers, which is 1.4 times as fast on 39 fields: written, they
crowd the lines out of the first cache. Fields go in groups of four: 16 numbers of a line are a feature's factors for a
group. What the four features of a group have for another group is a tile of 4 x 4 factors, which faces the other
group's once it is transposed; all loads, roots and stores are of 16 numbers.

The weight ends the last block of a line. So it is the factor for a feature that every row has, with the value one and
the factors (0, 0, 0, 1), which nobody moves. Fields that a row lacks have the value zero; a row with less than half of
the fields goes by its lines.
"""

from __future__ import annotations

import numpy as np

from hogwild.kernels import vectors
from hogwild.kernels.atomics import prefetch_second
from hogwild.kernels.options import inlined
from hogwild.kernels.tiers import place_of_rate
from hogwild.kernels.vectors import LANES, LINE, fma
from hogwild.problems.fm.lines_kernel import ONE, PENALTY, TILES, UNIT, ZERO, field_of, line_of, moved, place

FOUR, EIGHT = LANES[4], LANES[8]
HALF = np.float32(0.5)
BLOCK, GROUP = 4, 16  # numbers of a factor, and of those for a group of fields

# Vectors of ``stride`` numbers in a worker's buffer. VALUES has a feature's value at each number of its field, KEEP for
# each field the rate of the penalty and then what this leaves of the factors; DROP what it leaves of the weight, less
# that. CONSTANT has the factors that face the weights; and OTHERS, for each field of a group, ones but for the factor
# of that field: four vectors of 16.
VALUES, KEEP, DROP, CONSTANT, OTHERS = range(TILES, TILES + 5)
LACKING = -1  # a field's line, if the row has none
FACING_WEIGHT = -2


def fill(buffer):
    """Write the constants of a worker's buffer, (TILT or more, stride) float32."""
    buffer[CONSTANT, BLOCK - 1 :: BLOCK] = 1.0
    others = np.repeat(1 - np.eye(4), BLOCK, axis=1)
    buffer[OTHERS:].ravel()[: others.size] = others.ravel()


@inlined
def lay_out(shrinks, far, data, stride, begin, end, factor, step, buffer, lines, popular, ahead):
    """Write values and lines of the fields of a row; return whether it goes by tiles.

    ``lines`` (stride / 2,) are those of the fields, and behind them those of the row ``ahead``, entry by entry.
    """
    fields, last = stride // BLOCK, stride - BLOCK
    if (end - begin) * BLOCK * 2 < last:
        return False
    for k in range(0, stride, GROUP):
        vectors.store(vectors.filled(LINE, ZERO), buffer, place(VALUES, stride, k))
    for field in range(fields):
        lines[np.uint64(field)] = LACKING
    for j in range(begin, end):
        field = field_of(data, j)
        if lines[field] != LACKING:
            return False
        lines[field] = np.int64(line_of(data, stride, j))
        x = data.values[np.uint64(j)] * factor
        vectors.store(vectors.filled(FOUR, x), buffer, np.uint64(VALUES * stride) + field * np.uint64(BLOCK))
    lines[np.uint64(last // BLOCK)] = FACING_WEIGHT
    vectors.store(vectors.filled(FOUR, ONE), buffer, place(VALUES, stride, last))
    for j in range(begin, end):  # meanwhile the values are stored, for which wider loads would have to wait
        field, u = field_of(data, j), np.uint32(data.indices[np.uint64(j)])
        if shrinks:
            buffer[place(KEEP, stride, 0) + field] = step * data.rates[place_of_rate(u, popular)]
        if far:
            n = min(data.begin[ahead] + (j - begin), max(data.end[ahead] - 1, 0))
            lines[np.uint64(fields) + field] = np.int64(line_of(data, stride, n))
    return True


@inlined
def held(coef, stride, field, k, buffer, lines):
    """The vector at ``k`` of the line of a field's feature.

    Were there one vector to load for fields without a line, LLVM would choose the address and not the branch, and a row
    would take 9 % longer.
    """
    line = lines[np.uint64(field)]
    if line >= 0:
        return vectors.load(LINE, coef, np.uint64(line) + np.uint64(k))
    return (
        vectors.load(LINE, buffer, place(CONSTANT, stride, 0)) if line == FACING_WEIGHT else vectors.filled(LINE, ZERO)
    )


@inlined
def facing(coef, stride, group, other, buffer, lines):
    """Four vectors of factors that face a group's for ``other``: for each of its features those of the other's."""
    field, k = other // BLOCK, group
    a = held(coef, stride, field, k, buffer, lines)
    b = held(coef, stride, field + 1, k, buffer, lines)
    c = held(coef, stride, field + 2, k, buffer, lines)
    d = held(coef, stride, field + 3, k, buffer, lines)
    a, b = vectors.evens(EIGHT, a, b), vectors.odds(EIGHT, a, b)
    c, d = vectors.evens(EIGHT, c, d), vectors.odds(EIGHT, c, d)
    return vectors.evens(FOUR, a, c), vectors.odds(FOUR, a, c), vectors.evens(FOUR, b, d), vectors.odds(FOUR, b, d)


@inlined
def products(same, coef, stride, group, other, n, faces, sums, buffer, lines):
    """Add the products of the ``n``-th feature of a group with those of ``other``, per unit of its value."""
    values = vectors.load(LINE, buffer, place(VALUES, stride, other))
    if same:  # each pair twice
        values = HALF * values * vectors.load(LINE, buffer, place(OTHERS, stride, n * GROUP))
    return fma(values, held(coef, stride, group // BLOCK + n, other, buffer, lines) * faces, sums)


@inlined
def margin_of_tiles(coef, stride, buffer, lines):
    """Return the margin, without the intercept, of a row that is laid out."""
    sums = vectors.filled(LINE, ZERO)
    for group in range(0, stride, GROUP):
        none = vectors.filled(LINE, ZERO)
        a, b, c, d = facing(coef, stride, group, group, buffer, lines)
        s = products(1, coef, stride, group, group, 0, a, none, buffer, lines)
        t = products(1, coef, stride, group, group, 1, b, none, buffer, lines)
        u = products(1, coef, stride, group, group, 2, c, none, buffer, lines)
        v = products(1, coef, stride, group, group, 3, d, none, buffer, lines)
        for other in range(group + GROUP, stride, GROUP):
            a, b, c, d = facing(coef, stride, group, other, buffer, lines)
            s = products(0, coef, stride, group, other, 0, a, s, buffer, lines)
            t = products(0, coef, stride, group, other, 1, b, t, buffer, lines)
            u = products(0, coef, stride, group, other, 2, c, u, buffer, lines)
            v = products(0, coef, stride, group, other, 3, d, v, buffer, lines)
        first = place(VALUES, stride, group)
        sums = fma(buffer[first], s, fma(buffer[first + np.uint64(BLOCK)], t, sums))
        sums = fma(buffer[first + np.uint64(2 * BLOCK)], u, fma(buffer[first + np.uint64(3 * BLOCK)], v, sums))
    return vectors.total(sums)


@inlined
def move_vector(same, adagrad, shrinks, far, parameters, stride, group, other, n, faces, g, step, buffer, lines):
    """Update the factors for ``other`` of the ``n``-th feature of a group."""
    coef, sums = parameters.coef, parameters.coef_squares
    field = group // BLOCK + n
    line = lines[np.uint64(field)]
    if line < 0:
        return
    first = np.uint64(line) + np.uint64(other)
    slope = g * buffer[place(VALUES, stride, group + n * BLOCK)] * faces
    slope = slope * vectors.load(LINE, buffer, place(VALUES, stride, other))
    if same:
        slope = slope * vectors.load(LINE, buffer, place(OTHERS, stride, n * GROUP))
    factors = moved(LINE, adagrad, sums, first, vectors.load(LINE, coef, first), slope, step)
    if shrinks:
        keep, drop = buffer[place(KEEP, stride, field)], buffer[place(DROP, stride, field)]
        unit = vectors.load(LINE, buffer, place(UNIT, stride, other))
        factors = fma(unit, drop, vectors.filled(LINE, keep)) * factors
    vectors.store(factors, coef, first)
    if far:
        after = np.uint64(lines[np.uint64(stride // BLOCK + field)]) + np.uint64(other)
        prefetch_second(coef, after)
        if adagrad:
            prefetch_second(sums, after)


@inlined
def move_four(same, adagrad, shrinks, far, parameters, stride, group, other, faces, g, step, buffer, lines):
    """Update the factors for ``other`` of a group's features."""
    of_row = g, step, buffer, lines
    a, b, c, d = faces
    move_vector(same, adagrad, shrinks, far, parameters, stride, group, other, 0, a, *of_row)
    move_vector(same, adagrad, shrinks, far, parameters, stride, group, other, 1, b, *of_row)
    move_vector(same, adagrad, shrinks, far, parameters, stride, group, other, 2, c, *of_row)
    move_vector(same, adagrad, shrinks, far, parameters, stride, group, other, 3, d, *of_row)


@inlined
def move_tiles(adagrad, shrinks, far, parameters, stride, g, step, buffer, lines):
    """Update the lines of a row that is laid out."""
    if shrinks:
        ones, penalty = vectors.filled(LINE, ONE), place(PENALTY, stride, 0)
        for k in range(0, stride // BLOCK, GROUP):
            rates = vectors.load(LINE, buffer, place(KEEP, stride, k))
            keep = ones / fma(buffer[penalty], rates, ones)
            vectors.store(keep, buffer, place(KEEP, stride, k))
            drop = ones / fma(buffer[penalty + np.uint64(1)], rates, ones)
            vectors.store(fma(-ONE, keep, drop), buffer, place(DROP, stride, k))
    codes, of_row = (adagrad, shrinks, far, parameters, stride), (g, step, buffer, lines)
    for group in range(0, stride, GROUP):
        faces = facing(parameters.coef, stride, group, group, buffer, lines)
        move_four(1, *codes, group, group, faces, *of_row)
        for other in range(group + GROUP, stride, GROUP):
            faces = facing(parameters.coef, stride, group, other, buffer, lines)
            back = facing(parameters.coef, stride, other, group, buffer, lines)
            move_four(0, *codes, group, other, faces, *of_row)
            move_four(0, *codes, other, group, back, *of_row)
