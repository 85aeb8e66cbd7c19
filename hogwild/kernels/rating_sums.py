"""What factorisations are judged by, compiled: scores of pairs, sums of losses, penalties; all in float64.

This shares no code with the kernels that train (``completion.py``, ``implicit.py``), nor with their layout: it reads
ratings as they came and factors in the user's numbering. The dot product may be added up in any order, which is what
lets it use vectors; NaN and infinity stay what they are. Losses are those of ``problems/rating_objective.py``.

What it costs: 5 ns a rating and core at rank 32 where its rows are in cache, some 50 for two logarithms.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from hogwild.kernels.options import JIT

SQUARED, LOG, BPR = range(3)  # losses
ANY_ORDER = {"reassoc", "contract", "nsz"}  # of the terms of a sum


@njit(fastmath=ANY_ORDER, **JIT)
def _score(P, Q, b, c, mean, u, i):
    """``mean + b_u + c_i + p_u . q_i``; -1 has neither factors nor a bias."""
    total = 0.0
    if u >= 0 and i >= 0:
        p, q = P[u], Q[i]
        for f in range(len(p)):
            total += np.float64(p[f]) * np.float64(q[f])
    total += mean
    if u >= 0:
        total += np.float64(b[u])
    if i >= 0:
        total += np.float64(c[i])
    return total


@njit(**JIT)
def _softplus(z):
    """``log(1 + exp(z))``, which is infinite for infinity and NaN for NaN."""
    return max(z, 0.0) + math.log1p(math.exp(-abs(z))) if z == z else z


@njit(**JIT)
def fill_scores(P, Q, b, c, mean, users, items, scores):
    """Scores of pairs, into ``scores`` (m,) float64."""
    for k in range(len(users)):
        scores[k] = _score(P, Q, b, c, mean, users[k], items[k])


@njit(**JIT)
def sum_losses(
    P, Q, b, c, mean,  # (users, k), (items, k), (users,), (items,) float32, and a number
    users, items, values,  # (n,) int32, int32, float32
    drawn,  # (n, negatives) int32; -1 is none
    loss,
    sums,  # (2,) float64, out: squared and absolute errors; or losses, and nothing
):  # fmt: skip
    """Sums over ratings."""
    first, second = 0.0, 0.0
    for k in range(len(users)):
        u = users[k]
        m = _score(P, Q, b, c, mean, u, items[k])
        if loss == SQUARED:
            error = m - np.float64(values[k])
            first += error * error
            second += abs(error)
            continue
        if loss == LOG:
            first += _softplus(-m)
        for j in drawn[k]:
            if j >= 0:
                other = _score(P, Q, b, c, mean, u, j)
                first += _softplus(other if loss == LOG else other - m)
    sums[0], sums[1] = first, second


@njit(fastmath=ANY_ORDER, **JIT)
def sum_squares(rows, biases, visits, sums):
    """Of rows of factors (n, k) and biases (n,) float32: ``visits . |p|^2`` and ``visits . b^2``, into ``sums``."""
    first, second = 0.0, 0.0
    for r in range(len(rows)):
        row, square = rows[r], 0.0
        for f in range(len(row)):
            square += np.float64(row[f]) * np.float64(row[f])
        first += visits[r] * square
        second += visits[r] * np.float64(biases[r]) * np.float64(biases[r])
    sums[0], sums[1] = first, second
