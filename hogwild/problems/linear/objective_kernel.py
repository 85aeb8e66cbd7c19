"""Sums over rows of losses and of the task's metrics, computed from margins in float64.

These losses are a second implementation, for the evaluator alone: that both agree is the proof that the reported
objective is the optimised one. ``code`` is an argument, so one compiled loop serves all losses; a branch that is the
same for every row costs nothing next to the row. NaN stays NaN, and nothing overflows needlessly.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from hogwild.data.rows.margins_kernel import REASSOCIATE
from hogwild.kernels.options import JIT, called, inlined

CODES: dict[str, int] = {
    "log": 0,
    "hinge": 1,
    "squared-hinge": 2,
    "modified-huber": 3,
    "perceptron": 4,
    "squared-error": 5,
    "huber": 6,
    "epsilon-insensitive": 7,
    "squared-epsilon-insensitive": 8,
    "poisson": 9,
    "softmax": 10,
}
POISSON, SOFTMAX, LAST_OF_LABELS = 9, 10, 4
POISSON_CAP = 60.0  # beyond this margin the loss follows its tangent; exp(60) is no realistic count
LARGEST_EXPONENT = 709.0
LOWEST = -708.0  # an exponent below which exp is no longer a normal number
LOG2_E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # the low bits of the first are zero


@inlined
def above_zero(x):
    return 0.0 if x <= 0.0 else x  # NaN stays NaN


@inlined
def exponential(x):
    return math.inf if x > LARGEST_EXPONENT else math.exp(x)


@inlined
def log_1_exp(x):
    """``log(1 + exp(x))`` for ``x <= 0``, to about half a unit in the last place, in arithmetic only.

    A loop over it therefore becomes vector instructions, nine times as fast as calls of the C library. ``exp`` is a
    power of two times a Taylor series of the remainder, and ``log(1 + t) = 2 artanh(t / (2 + t))`` is another series.
    NaN may become a number: the caller has it in another term.
    """
    x = x if x > LOWEST else LOWEST
    n = np.int64(x * LOG2_E - 0.5)
    r = (x - np.float64(n) * LN2_HIGH) - np.float64(n) * LN2_LOW
    series = 1.0 / 6227020800.0
    series = series * r + 1.0 / 479001600.0
    series = series * r + 1.0 / 39916800.0
    series = series * r + 1.0 / 3628800.0
    series = series * r + 1.0 / 362880.0
    series = series * r + 1.0 / 40320.0
    series = series * r + 1.0 / 5040.0
    series = series * r + 1.0 / 720.0
    series = series * r + 1.0 / 120.0
    series = series * r + 1.0 / 24.0
    series = series * r + 1.0 / 6.0
    series = series * r + 0.5
    series = series * r + 1.0
    series = series * r + 1.0
    t = series * np.int64((n + np.int64(1023)) << np.int64(52)).view(np.float64)
    s = t / (2.0 + t)
    q = s * s
    series = 1.0 / 33.0
    series = series * q + 1.0 / 31.0
    series = series * q + 1.0 / 29.0
    series = series * q + 1.0 / 27.0
    series = series * q + 1.0 / 25.0
    series = series * q + 1.0 / 23.0
    series = series * q + 1.0 / 21.0
    series = series * q + 1.0 / 19.0
    series = series * q + 1.0 / 17.0
    series = series * q + 1.0 / 15.0
    series = series * q + 1.0 / 13.0
    series = series * q + 1.0 / 11.0
    series = series * q + 1.0 / 9.0
    series = series * q + 1.0 / 7.0
    series = series * q + 1.0 / 5.0
    series = series * q + 1.0 / 3.0
    return 2.0 * s * (series * q + 1.0)


@njit(**JIT)
def loss(code, p, y, param):
    """Loss of margin ``p`` for target ``y`` (-1 or +1, a real number, or a count), both float64."""
    if code == 0:
        return above_zero(-y * p) + log_1_exp(-abs(p))
    if code == 1:
        return above_zero(1.0 - y * p)
    if code == 2:
        return above_zero(1.0 - y * p) ** 2
    if code == 3:
        return -4.0 * y * p if y * p < -1.0 else above_zero(1.0 - y * p) ** 2
    if code == 4:
        return above_zero(-y * p)
    if code == 5:
        return (p - y) ** 2 / 2.0
    if code == 6:  # r^2/2 up to param, a straight line beyond
        r = abs(p - y)
        inner = param if r > param else r
        return inner * (r - inner / 2.0)
    if code == 7:
        return above_zero(abs(p - y) - param)
    if code == 8:
        return above_zero(abs(p - y) - param) ** 2
    if p > POISSON_CAP:
        top = math.exp(POISSON_CAP)
        return top * (1.0 - POISSON_CAP) + (top - y) * p
    return math.exp(p) - y * p


@njit(**JIT)
def loss_values(code, margins, targets, param, out):
    """Set ``out`` to the loss of each margin."""
    for i in range(len(margins)):
        out[i] = loss(code, margins[i], targets[i], param)


@njit(**JIT)
def tally(code, margins, targets, weights, param, sums):
    """Add to ``sums`` (4,): weights, weighted losses, then rows classified right, or squared and absolute errors.

    ``targets`` (n,) float32 are classes, 0 and 1, or real numbers or counts; ``weights`` (n,) float32 may be empty.
    """
    total, lost, first, second = 0.0, 0.0, 0.0, 0.0
    for i in range(len(margins)):
        p, y = margins[i], np.float64(targets[i])
        y = 2.0 * y - 1.0 if code <= LAST_OF_LABELS else y
        weight = np.float64(weights[i]) if len(weights) else 1.0
        total += weight
        lost += weight * loss(code, p, y, param)
        if code <= LAST_OF_LABELS:
            first += 1.0 if (y > 0.0 and p > 0.0) or (y < 0.0 and p <= 0.0) else 0.0
        else:
            error = (exponential(p) if code == POISSON else p) - y
            first += error * error
            second += abs(error)
    sums[0] += total
    sums[1] += lost
    sums[2] += first
    sums[3] += second


@njit(**REASSOCIATE)
def tally_log(margins, targets, weights, sums):
    """Do :func:`tally` for the log loss in vector instructions; without weights each weight is 1."""
    total, lost, right = np.float64(len(margins)), 0.0, 0.0
    if len(weights) == 0:
        for i in range(len(margins)):
            p, y = margins[i], 2.0 * np.float64(targets[i]) - 1.0
            lost += above_zero(-y * p) + log_1_exp(-abs(p))
            right += 1.0 if (y > 0.0) == (p > 0.0) and p == p else 0.0
    else:
        total = 0.0
        for i in range(len(margins)):
            p, y, weight = margins[i], 2.0 * np.float64(targets[i]) - 1.0, np.float64(weights[i])
            total += weight
            lost += weight * (above_zero(-y * p) + log_1_exp(-abs(p)))
            right += 1.0 if (y > 0.0) == (p > 0.0) and p == p else 0.0
    sums[0] += total
    sums[1] += lost
    sums[2] += right


@njit(**JIT)
def cross_entropy(margins, label):
    """Softmax loss of one row's margins (K,)."""
    top, total = -math.inf, 0.0
    for margin in margins:
        top = max(top, margin)
    for margin in margins:
        total += math.exp(margin - top)
    return top + math.log(total) - margins[label]


@called
def is_first_of_largest(margins, label):
    """Whether the margin of ``label`` is the largest, and the first such if several are equal; False if one is NaN."""
    for k in range(len(margins)):
        if not (margins[k] < margins[label] if k < label else margins[k] <= margins[label]):
            return False
    return True


@njit(**JIT)
def tally_classes(code, margins, targets, weights, param, sums):
    """Do :func:`tally` for several classes: ``margins`` (n, K), ``targets`` the classes from 0 on."""
    total, lost, right = 0.0, 0.0, 0.0
    for i in range(len(margins)):
        label, row_loss = np.int64(targets[i]), 0.0
        if code == SOFTMAX:
            row_loss = cross_entropy(margins[i], label)
        else:
            for k in range(margins.shape[1]):
                row_loss += loss(code, margins[i, k], 1.0 if k == label else -1.0, param)
        weight = np.float64(weights[i]) if len(weights) else 1.0
        total += weight
        lost += weight * row_loss
        right += 1.0 if is_first_of_largest(margins[i], label) else 0.0
    sums[0] += total
    sums[1] += lost
    sums[2] += right


@njit(**JIT)
def class_numbers(targets, labels, order, numbers):
    """Set ``numbers`` (n,) float32 to each target's position in ``labels``; return the first row without one, or -1.

    ``order`` (K,) int64 sorts ``labels`` (K,) float32.
    """
    for i in range(len(targets)):
        low, high = 0, len(labels)
        while high - low > 1:
            middle = (low + high) // 2
            if labels[order[middle]] <= targets[i]:
                low = middle
            else:
                high = middle
        if labels[order[low]] != targets[i]:
            return i
        numbers[i] = order[low]
    return -1
