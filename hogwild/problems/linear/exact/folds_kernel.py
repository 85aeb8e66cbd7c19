"""Newton's method for the fits of cross-validation side by side: each leaves one part of the rows out.

The fits share the rows, so their weights lie together as lanes, (width + 1, stride), and a nonzero that is read serves
all; the last line holds the intercepts. A fit is ``each`` lanes, one for each margin of a row, and a stride is a
multiple of the eight numbers of a vector. Newton steps are found by conjugate gradients, scaled by each coordinate's
curvature. A fit has lengths of its own, so one that is ready moves no more while others go on. Margins of the rows
left out are computed with the others: their mean loss is what a fit is judged by.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from hogwild.kernels import lanes as vectors
from hogwild.kernels.lanes import DOUBLES
from hogwild.kernels.options import JIT, called, inlined
from hogwild.problems.linear.exact.gradient_kernel import LEAST, curvature, slope
from hogwild.problems.linear.objective_kernel import cross_entropy, loss

SOFTMAX = 100  # code of the loss whose margins belong together
ENOUGH = 0.1  # share of what its slope promises that a step must bring (Armijo), or a shorter one is tried
SHORTER, SHORTEST = 0.25, 1e-9  # than the step before, and lengths below which none is taken
SMALL = 0.01  # share of a Newton step's gain below which a conjugate gradient is its last
FLAT = 1e-12  # curvature along a direction, over that of its coordinates, below which there is no minimum there
FACTS = 9
NOW, SQUARE, SIZE, BROUGHT, LENGTH, ALONG, ACROSS, BENT, GOING = range(FACTS)  # lines of Room.facts


class Fits(NamedTuple):
    """What the fits are of."""

    begin: np.ndarray  # (n,) int64
    end: np.ndarray  # (n,) int64
    indices: np.ndarray  # (nnz,) int32
    values: np.ndarray  # (nnz,) float32
    scales: np.ndarray  # (n,) float32, or empty
    targets: np.ndarray  # (n,) float64: numbers of classes where there are several margins
    shares: np.ndarray  # (n,) float64: weights in the objective; their sum over all rows is one
    left_out: np.ndarray  # (n,) int32: number of the fit that does not learn from the row
    penalties: np.ndarray  # (width + 1,) float64: factor on l2; zero for the intercept
    code: int
    param: float
    each: int
    stride: int
    intercept: int


class Room(NamedTuple):
    """Work space."""

    margins: np.ndarray  # (n * stride,) float64, and so are
    change: np.ndarray
    bends: np.ndarray
    rest: np.ndarray  # ((width + 1) * stride,) float64, and so are
    diagonal: np.ndarray
    step: np.ndarray
    direction: np.ndarray
    image: np.ndarray
    facts: np.ndarray  # (FACTS, fits) float64
    row: np.ndarray  # (3, stride) float64


@inlined
def copy(source, out):
    for k in range(len(out)):  # assigning a slice would allocate
        out[k] = source[k]


@inlined
def some(flags):
    for flag in flags:
        if flag:
            return True
    return False


@inlined
def factor_of(fits, i):
    return np.float64(fits.scales[i]) if len(fits.scales) else 1.0


@inlined
def place(fits, j, k):
    """Where the numbers of entry ``j`` are, of lanes from ``k`` on."""
    return np.uint64(np.uint32(fits.indices[np.uint64(j)])) * np.uint64(fits.stride) + np.uint64(k)


@inlined
def row_margins(fits, i, x, out, first):
    """Set ``out`` from ``first`` on to row ``i`` times ``x``."""
    factor, end = factor_of(fits, i), fits.end[i]
    for k in range(0, fits.stride, len(DOUBLES)):
        one, two, j = vectors.nothing(DOUBLES), vectors.nothing(DOUBLES), fits.begin[i]
        while j + 1 < end:
            one = vectors.fma(np.float64(fits.values[np.uint64(j)]), vectors.load(DOUBLES, x, place(fits, j, k)), one)
            j += 1
            two = vectors.fma(np.float64(fits.values[np.uint64(j)]), vectors.load(DOUBLES, x, place(fits, j, k)), two)
            j += 1
        if j < end:
            one = vectors.fma(np.float64(fits.values[np.uint64(j)]), vectors.load(DOUBLES, x, place(fits, j, k)), one)
        last = vectors.load(DOUBLES, x, len(x) - fits.stride + k)
        vectors.store(vectors.fma(factor, vectors.plus(one, two), last), out, first + k)


@inlined
def add_row(fits, i, of_row, power, out):
    """Add the row's numbers ``of_row`` (stride,), times a power of its values, to ``out``."""
    factor = factor_of(fits, i)
    for k in range(0, fits.stride, len(DOUBLES)):
        vector, last = vectors.load(DOUBLES, of_row, k), len(out) - fits.stride + k
        for j in range(fits.begin[i], fits.end[i]):
            value, u = factor * np.float64(fits.values[np.uint64(j)]), place(fits, j, k)
            value = value * value if power == 2 else value
            vectors.store(vectors.fma(value, vector, vectors.load(DOUBLES, out, u)), out, u)
        vectors.store(vectors.plus(vector, vectors.load(DOUBLES, out, last)), out, last)


@inlined
def target_of(fits, i, k):
    y = fits.targets[i]
    if fits.each == 1:
        return y
    return 1.0 if np.int64(y) == k else -1.0


@called
def row_loss(fits, i, margins):
    """Loss of row ``i`` at its margins (each,)."""
    if fits.code == SOFTMAX:
        return cross_entropy(margins, np.int64(fits.targets[i]))
    total = 0.0
    for k in range(fits.each):
        total += loss(fits.code, margins[k], target_of(fits, i, k), fits.param)
    return total


@njit(**JIT)
def lost(fits, room, length, out):
    """Set ``out`` (fits,) to the sums of the rows' losses that each learns from, so far along the change of margins."""
    out[:] = 0.0
    p = room.row[0]
    for i in range(len(fits.begin)):
        first = i * fits.stride
        for fit in range(len(out)):
            if room.facts[GOING, fit] == 0.0 or fits.left_out[i] == fit:
                continue
            for k in range(fits.each):
                lane = first + fit * fits.each + k
                p[k] = room.margins[lane] + length[fit] * room.change[lane] if length[fit] else room.margins[lane]
            out[fit] += fits.shares[i] * row_loss(fits, i, p[: fits.each])


@njit(**JIT)
def judged(fits, room, weights, out):
    """Set ``out`` (fits,) to the mean loss of each on the rows that it leaves out, with ``weights`` (n,) of rows."""
    out[:] = 0.0
    total = room.facts[NOW]
    total[:] = 0.0
    for i in range(len(fits.begin)):
        fit = fits.left_out[i]
        if fit >= 0 and weights[i] > 0.0:
            first = i * fits.stride + fit * fits.each
            out[fit] += weights[i] * row_loss(fits, i, room.margins[first : first + fits.each])
            total[fit] += weights[i]
    for fit in range(len(out)):
        out[fit] /= total[fit]


@called
def probabilities(margins, out):
    """Set ``out`` (each,) to those of the classes."""
    top, total = -math.inf, 0.0
    for margin in margins:
        top = max(top, margin)
    for k in range(len(margins)):
        out[k] = math.exp(margins[k] - top)
        total += out[k]
    for k in range(len(margins)):
        out[k] /= total


@called
def bend(fits, room, i):
    """Set the first two lines of ``room.row`` to the row's slopes and curvatures, and ``room.bends`` to its curvatures,
    of softmax to probabilities.
    """
    s, b, first = room.row[0], room.row[1], i * fits.stride
    s[:], b[:] = 0.0, 0.0
    for fit in range(room.facts.shape[1]):
        share = 0.0 if fits.left_out[i] == fit else fits.shares[i]
        at, end = fit * fits.each, (fit + 1) * fits.each
        if fits.code == SOFTMAX:
            probabilities(room.margins[first + at : first + end], room.bends[first + at : first + end])
        for lane in range(at, end):
            own, y = room.bends[first + lane], target_of(fits, i, lane - at)
            if fits.code == SOFTMAX:
                s[lane], b[lane] = share * (own - (1.0 if y > 0.0 else 0.0)), share * own * (1.0 - own)
            else:
                p = room.margins[first + lane]
                s[lane] = share * slope(fits.code, p, y, fits.param)
                b[lane] = share * curvature(fits.code, p, y, fits.param)
                room.bends[first + lane] = b[lane]


@njit(**JIT)
def derivatives(fits, l2, x, room):
    """Set ``rest`` to minus the gradient, and ``diagonal``."""
    room.rest[:], room.diagonal[:] = 0.0, 0.0
    for i in range(len(fits.begin)):
        bend(fits, room, i)
        add_row(fits, i, room.row[0], 1, room.rest)
        add_row(fits, i, room.row[1], 2, room.diagonal)
    stride = fits.stride
    for u in range(len(fits.penalties)):
        penalty, free = l2 * fits.penalties[u], u + 1 < len(fits.penalties) or fits.intercept
        for lane in range(u * stride, (u + 1) * stride):
            room.rest[lane] = -(room.rest[lane] + penalty * x[lane]) if free else 0.0
            room.diagonal[lane] += penalty + LEAST


@njit(**JIT)
def products(fits, l2, room):
    """Set ``image`` to the Hessian times ``direction``."""
    q, stride = room.row[0], fits.stride
    room.image[:] = 0.0
    for i in range(len(fits.begin)):
        row_margins(fits, i, room.direction, q, 0)
        first = i * stride
        if fits.code == SOFTMAX:
            for fit in range(room.facts.shape[1]):
                share = 0.0 if fits.left_out[i] == fit else fits.shares[i]
                at, end, mean = fit * fits.each, (fit + 1) * fits.each, 0.0
                for lane in range(at, end):
                    mean += room.bends[first + lane] * q[lane]
                for lane in range(at, end):
                    q[lane] = share * room.bends[first + lane] * (q[lane] - mean)
        else:
            for lane in range(stride):
                q[lane] *= room.bends[first + lane]
        add_row(fits, i, q, 1, room.image)
    for u in range(len(fits.penalties)):
        penalty, free = l2 * fits.penalties[u], u + 1 < len(fits.penalties) or fits.intercept
        for lane in range(u * stride, (u + 1) * stride):
            room.image[lane] = room.image[lane] + penalty * room.direction[lane] if free else 0.0


@njit(**JIT)
def dot(fits, a, b, by, buffer, out):
    """Set ``out`` (fits,) to the sums of ``a * b``, each line times a number of ``by`` unless that is empty."""
    buffer[:] = 0.0
    for u in range(len(a) // fits.stride):
        factor, first = (by[u] if len(by) else 1.0), u * fits.stride
        for lane in range(fits.stride):
            buffer[lane] += factor * a[first + lane] * b[first + lane]
    for fit in range(len(out)):
        out[fit] = 0.0
        for lane in range(fit * fits.each, (fit + 1) * fits.each):
            out[fit] += buffer[lane]


@njit(**JIT)
def scaled_size(fits, room, out):
    """Set ``image`` to the rest over the diagonal, and ``out`` (fits,) to the product of both."""
    for lane in range(len(room.rest)):
        room.image[lane] = room.rest[lane] / room.diagonal[lane]
    dot(fits, room.rest, room.image, room.facts[0, :0], room.row[0], out)


@njit(**JIT)
def spread(fits, of_fits, out):
    """Set the lanes ``out`` (stride,) to the numbers of their fits."""
    out[:] = 0.0
    for fit in range(len(of_fits)):
        out[fit * fits.each : (fit + 1) * fits.each] = of_fits[fit]


@njit(**JIT)
def newton_step(fits, l2, room, most, share):
    """Set ``step`` by at most so many conjugate gradients, and what they bring.

    Fits to which they bring no more than a ``share`` of the objective are ready.
    """
    facts, lengths = room.facts, room.row[2]
    size, bent, going, brought = facts[SIZE], facts[BENT], facts[LENGTH], facts[BROUGHT]
    brought[:], room.step[:], steps = 0.0, 0.0, 0
    copy(facts[GOING], going)
    scaled_size(fits, room, size)
    copy(room.image, room.direction)
    while steps < most and some(going):
        steps += 1
        products(fits, l2, room)
        dot(fits, room.direction, room.image, facts[0, :0], room.row[0], bent)
        for fit in range(len(size)):
            if not bent[fit] > FLAT * size[fit]:
                going[fit] = 0.0
            bent[fit] = size[fit] / bent[fit] if going[fit] else 0.0
            brought[fit] += bent[fit] * size[fit] / 2.0
        spread(fits, bent, lengths)
        for u in range(0, len(room.step), fits.stride):
            for lane in range(fits.stride):
                room.step[u + lane] += lengths[lane] * room.direction[u + lane]
                room.rest[u + lane] -= lengths[lane] * room.image[u + lane]
        for fit in range(len(size)):
            little = max(share * abs(facts[NOW, fit]), SMALL * brought[fit])
            if not bent[fit] * size[fit] / 2.0 > little:
                going[fit] = 0.0
            bent[fit] = size[fit]
        scaled_size(fits, room, size)
        for fit in range(len(size)):
            bent[fit] = size[fit] / bent[fit] if going[fit] else 0.0
        spread(fits, bent, lengths)
        for u in range(0, len(room.step), fits.stride):
            for lane in range(fits.stride):
                room.direction[u + lane] = room.image[u + lane] + lengths[lane] * room.direction[u + lane]
    for fit in range(len(size)):
        if not brought[fit] > share * abs(facts[NOW, fit]):
            facts[GOING, fit] = 0.0


@njit(**JIT)
def take_step(fits, l2, x, room, share):
    """Go along ``step`` as far as each fit's objective falls; those that gain no more than a ``share`` are ready."""
    facts, row, stride = room.facts, room.row, fits.stride
    now, square, then, length = facts[NOW], facts[SQUARE], facts[SIZE], facts[LENGTH]
    for i in range(len(fits.begin)):
        row_margins(fits, i, room.step, room.change, i * stride)
    dot(fits, x, room.step, fits.penalties, row[0], facts[ALONG])
    dot(fits, room.step, room.step, fits.penalties, row[0], facts[ACROSS])
    copy(facts[GOING], length)
    copy(facts[GOING], facts[BENT])  # those that have no length yet
    while some(facts[BENT]):
        lost(fits, room, length, then)
        for fit in range(len(now)):
            t = length[fit]
            if facts[BENT, fit] == 0.0:
                continue
            then[fit] += l2 / 2.0 * (square[fit] + t * (2.0 * facts[ALONG, fit] + t * facts[ACROSS, fit]))
            if then[fit] < now[fit] - ENOUGH * t * 2.0 * facts[BROUGHT, fit]:
                facts[BENT, fit] = 0.0
                if t == 1.0 and now[fit] - then[fit] < share * abs(now[fit]):
                    facts[GOING, fit] = 0.0
                now[fit] = then[fit]
                square[fit] += t * (2.0 * facts[ALONG, fit] + t * facts[ACROSS, fit])
                continue
            length[fit] *= SHORTER
            if not length[fit] > SHORTEST:
                facts[BENT, fit], facts[GOING, fit], length[fit] = 0.0, 0.0, 0.0
    spread(fits, length, row[0])
    for u in range(0, len(x), stride):
        for lane in range(stride):
            x[u + lane] += row[0, lane] * room.step[u + lane]
    for i in range(0, len(room.margins), stride):
        for lane in range(stride):
            room.margins[i + lane] += row[0, lane] * room.change[i + lane]
