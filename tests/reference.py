"""Slow float64 NumPy twins, written from the formulas and sharing no line with the package."""

from __future__ import annotations

import numpy as np
from scipy.special import xlogy


def tangent(x):
    """exp(x), and from x = 60 on its tangent."""
    return np.exp(np.minimum(x, 60)) * (1 + np.maximum(x - 60, 0))


# name: (loss, dloss) of prediction p, target y and parameter c; at a kink, the subgradient the package promises
TWINS = {
    "log": (lambda p, y, c: np.logaddexp(0, -y * p), lambda p, y, c: -y * np.exp(-np.logaddexp(0, y * p))),
    "hinge": (lambda p, y, c: np.maximum(1 - y * p, 0), lambda p, y, c: np.where(y * p < 1, -y, 0 * p)),
    "squared-hinge": (
        lambda p, y, c: np.maximum(1 - y * p, 0) ** 2,
        lambda p, y, c: -2 * y * np.maximum(1 - y * p, 0),
    ),
    "modified-huber": (
        lambda p, y, c: np.where(y * p >= -1, np.maximum(1 - y * p, 0) ** 2, -4 * y * p),
        lambda p, y, c: np.where(y * p >= -1, -2 * y * np.maximum(1 - y * p, 0), -4 * y + 0 * p),
    ),
    "perceptron": (lambda p, y, c: np.maximum(-y * p, 0), lambda p, y, c: np.where(y * p <= 0, -y, 0 * p)),
    "squared-error": (lambda p, y, c: (p - y) ** 2 / 2, lambda p, y, c: p - y),
    "huber": (
        lambda p, y, c: np.where(np.abs(p - y) <= c, (p - y) ** 2 / 2, c * np.abs(p - y) - c**2 / 2),
        lambda p, y, c: np.clip(p - y, -c, c),
    ),
    "epsilon-insensitive": (
        lambda p, y, c: np.maximum(np.abs(p - y) - c, 0),
        lambda p, y, c: np.sign(p - y) * (np.abs(p - y) > c),
    ),
    "squared-epsilon-insensitive": (
        lambda p, y, c: np.maximum(np.abs(p - y) - c, 0) ** 2,
        lambda p, y, c: 2 * np.sign(p - y) * np.maximum(np.abs(p - y) - c, 0),
    ),
    "quantile": (
        lambda p, y, c: np.where(p < y, c * (y - p), (1 - c) * (p - y)),
        lambda p, y, c: np.where(p < y, -c, (1 - c) * (p > y)) + 0 * p,
    ),
    "poisson": (lambda p, y, c: tangent(p) - y * p - y + xlogy(y, y), lambda p, y, c: np.exp(np.minimum(p, 60)) - y),
    "tweedie": (
        lambda p, y, c: (
            (tangent((2 - c) * p) - y ** (2 - c)) / (2 - c) - (y * tangent((1 - c) * p) - y ** (2 - c)) / (1 - c)
        ),
        lambda p, y, c: np.exp(np.minimum((2 - c) * p, 60)) - y * np.exp(np.minimum((1 - c) * p, 60)),
    ),
    "gamma": (
        lambda p, y, c: p + y * tangent(-p) - np.where(y > 0, 1 + np.log(y), 0),
        lambda p, y, c: 1 - y * np.exp(np.minimum(-p, 60)),
    ),
}


def loss(name, p, y, c=0.0):
    """Loss of each prediction, float64."""
    with np.errstate(all="ignore"):
        return TWINS[name][0](np.float64(p), np.float64(y), np.float64(c))


def dloss(name, p, y, c=0.0):
    """Its derivative in the prediction, float64."""
    with np.errstate(all="ignore"):
        return TWINS[name][1](np.float64(p), np.float64(y), np.float64(c))


def row_scales(X, kind):
    """One over the length of each row of a dense array; one for rows of zeros."""
    X = np.asarray(X, dtype=np.float64)
    lengths = {"none": np.ones(len(X)), "l2": np.sqrt((X**2).sum(1))}[kind]
    return 1 / np.where(lengths > 0, lengths, 1)


# --- the order ---

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


def splitmix(state):
    """The mixing function of splitmix64 on a Python integer."""
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    state = (state ^ state >> 27) * 0x94D049BB133111EB & _MASK
    return state ^ state >> 31


def _shuffled(items, keys):
    """Fisher-Yates, from the back, with the high half of a splitmix64 stream scaled to the range."""
    state, items = 0, list(items)
    for key in keys:
        state = splitmix((state + key + _GOLDEN) & _MASK)
    for i in reversed(range(1, len(items))):
        state = (state + _GOLDEN) & _MASK
        j = (splitmix(state) >> 32) * (i + 1) >> 32
        items[i], items[j] = items[j], items[i]
    return items


def chunks(n_rows, block, shuffled, seed, epoch, blocks_per_chunk=64):
    """The rows of each chunk of an epoch, as lists."""
    blocks = [range(first, min(first + block, n_rows)) for first in range(0, n_rows, block)]
    if shuffled:
        tail = [blocks.pop()] if n_rows % block else []  # a last, shorter block stays last
        blocks = _shuffled(blocks, (seed, epoch, 0)) + tail
    contents = []
    for number, first in enumerate(range(0, len(blocks), blocks_per_chunk)):
        rows = [row for rows in blocks[first : first + blocks_per_chunk] for row in rows]
        contents.append(_shuffled(rows, (seed, epoch, number + 1)) if shuffled else rows)
    return contents


# --- stochastic gradient descent ---


class Sgd:
    """The linear problem's loop over an explicit sequence of rows, with the proximal, separable penalty and AdaGrad.

    With ``dtype=np.float32`` additions and fused multiplications come in the kernels' order, so that results are equal
    to the last bit; with float64 it is the plain formula. ``w`` is (width,) and ``b`` a number, or with more than one
    class (width, classes) and (classes,); targets are then class numbers.
    """

    def __init__(
        self,
        X,
        y,
        w,
        b,
        loss,
        param=0.0,
        l1=0.0,
        l2=0.0,
        classes=1,
        adagrad=False,
        intercept=1.0,
        scales=None,
        weights=None,
        squares=None,
        dtype=np.float32,
    ):
        """``X``: list of (indices, values); ``intercept``: the share of the step it takes, 0 where there is none;
        ``squares``: AdaGrad's sums to begin with, as (of w, of b)."""
        degrees = np.bincount(np.concatenate([u for u, _ in X]).astype(int), minlength=len(w))
        self.T = dtype
        self.X, self.y, self.loss, self.param, self.classes = X, y, loss, param, classes
        self.w, self.b = np.array(w, dtype), np.array(b, dtype)[()]
        self.l1, self.l2, self.adagrad, self.share = dtype(l1), dtype(l2), adagrad, dtype(intercept)
        self.rates = (len(X) / np.maximum(degrees, 1)).astype(np.float32).astype(dtype)
        self.scales = np.ones(len(X), dtype) if scales is None else np.asarray(scales).astype(dtype)
        self.weights = np.ones(len(X), dtype) if weights is None else np.asarray(weights).astype(dtype)
        of_w, of_b = (np.zeros_like(self.w), np.zeros_like(self.b)) if squares is None else squares
        self.w_squares, self.b_squares = np.array(of_w, dtype), np.array(of_b, dtype)[()]

    def epoch(self, rows, step, visited=0, workers=1):
        """Visit ``rows``; with W round-robin workers the update of a row is applied just before the W-th row after it.

        ``step``: (scale, offset, power) of ``scale / (offset + rows visited before)**power``, evaluated every 16 rows.
        """
        scale, offset, power = step
        # the kernels then multiply by one over the divisor, which rounds a second time
        self.tabulates = power == 0.0 and self.l1 == 0 and not self.adagrad
        pending = []
        for t, row in enumerate(rows):
            if len(pending) == workers:
                self.apply(*pending.pop(0))
            length = self.T(scale * (offset + visited + t - t % 16) ** -power)
            pending.append((row, self.gradient(row), length))
        for update in pending:
            self.apply(*update)

    def fma(self, a, b, c):
        return self.T(np.float64(a) * np.float64(b) + np.float64(c))  # one rounding, but once in 2^29

    def gradient(self, row):
        """The row's loss differentiated in its margin, or margins."""
        indices, values = self.X[row]
        sums = [self.T(0) * self.b] * 4
        for j, (u, x) in enumerate(zip(indices, values)):
            lane = j % 4 if j < len(indices) // 4 * 4 else 0
            sums[lane] = self.fma(self.w[u], x, sums[lane])
        margin = (sums[0] + sums[1]) + (sums[2] + sums[3])
        margin = self.fma(self.scales[row], margin, self.b)
        own = np.arange(self.classes) == self.y[row]
        if self.loss == "softmax":
            e = np.exp(np.float64(margin - margin.max()))
            slope = e / e.sum() - own
        else:
            slope = dloss(self.loss, margin, self.y[row] if self.classes == 1 else np.where(own, 1.0, -1.0), self.param)
        return self.T(slope) * self.weights[row]

    def apply(self, row, g, step):
        for u, x in zip(*self.X[row]):
            a, b = (g * self.scales[row], x) if self.classes == 1 else (x * self.scales[row], g)
            length = step
            if self.adagrad:
                gradient = a * b
                self.w_squares[u] += gradient * gradient
                length = step / np.sqrt(self.w_squares[u] + self.T(1e-10))
                moved = self.fma(-length, gradient, self.w[u])
            else:
                moved = self.fma(-(step * a), b, self.w[u])
            pull = length * self.rates[u]
            moved = np.sign(moved) * np.maximum(np.abs(moved) - pull * self.l1, self.T(0))
            divisor = self.fma(pull, self.l2, self.T(1))
            self.w[u] = moved * (self.T(1) / divisor) if self.tabulates else moved / divisor
        if self.share:
            step = self.share * step
            if self.adagrad:
                step = step / np.sqrt(self.b_squares + g * g + self.T(1e-10))
                self.b_squares = self.b_squares + g * g
            self.b = self.b - step * g


# --- frequency-tiered replicas ---


def share(x, workers):
    """What part of its delta a worker adds: from 1 where steps are small to 1 / workers where they are large."""
    return np.minimum(1.0, (1 + x) / (workers * np.maximum(x, 1e-10)))


def merged(shared, base, private, x, workers, l1=0.0):
    """The shared values after a worker has brought ``private - base``; with l1 none crosses zero but with its copy."""
    shared, base, private = np.float64(shared), np.float64(base), np.float64(private)
    new = shared + share(x, workers) * (private - base)
    alone = (private * base >= 0) & (shared * base >= 0)
    return np.where((l1 > 0) & alone & (new * base < 0), 0.0, new)


def tier_rates(X, weights, groups):
    """``E[s |x_j| (|x_t| . v)] / v_j`` of dense rows, ``v_j = sqrt(E |x_j|)``, t the features of j's own group."""
    X, weights = np.abs(np.asarray(X, np.float64)), np.asarray(weights, np.float64)
    v, rates = np.sqrt(X.mean(axis=0)), np.zeros(X.shape[1])
    for group in set(groups):
        own = np.flatnonzero(np.asarray(groups) == group)
        moves = sum(X[:, k] * v[k] for k in own)
        for j in own:
            rates[j] = (weights * X[:, j] * moves).mean() / v[j] if v[j] else 0.0
    return rates


# --- data ---


def hypergraph(edges):
    """Of sets: the largest, the shares of them that hold the hottest node, that the most met meets, and that meet."""
    met = [sum(bool(e & other) for other in edges) for e in edges]
    degrees = [sum(node in e for e in edges) for node in set().union(*edges)]
    n = len(edges)
    return max(map(len, edges)), max(degrees, default=0) / n, max(met) / n, sum(met) / n**2


def bucket(index, bits):
    """Feature hash of one zero-based index in Python's whole numbers: splitmix64's first output, its top bits."""
    return splitmix((index + _GOLDEN) & _MASK) >> (64 - bits)
