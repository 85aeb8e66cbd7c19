"""The slow float64 twin of the linear problem (``tests/reference.py``), as the device's tests begin it."""

from __future__ import annotations

import numpy as np

from tests import reference


def twin_of(problem, rows, arrays, flat):
    """The twin at the parameters of a flat array; ``arrays`` as the problem's launcher takes them."""
    parts = [part.reshape(-1, problem.stride)[:, : problem.classes] for part in problem.parameters(flat)]
    w, b, *squares = [part[:, 0] for part in parts] if problem.classes == 1 else parts
    X = [(rows.indices[i:j].astype(int), rows.values[i:j].astype(float)) for i, j in zip(rows.begin, rows.end)]
    kinds = problem.loss, problem.loss_param, problem.l1, problem.l2, problem.classes, problem.adagrad
    of_rows = (arrays[name] if len(arrays[name]) else None for name in ("scales", "weights"))
    squares = (squares[0], squares[1][0]) if problem.adagrad else None
    twin = reference.Sgd(X, arrays["targets"], w, b[0], *kinds, problem.intercept, *of_rows, squares, np.float64)
    twin.tabulates = False
    return twin


def pairs(problem, flat, twin):
    """The parts of a flat array, (n, stride), each with the twin's, (n, classes): weights, intercept, their squares."""
    parts = (twin.w, twin.b, twin.w_squares, twin.b_squares)[: 4 if problem.adagrad else 2]
    for part, numbers in zip(problem.parameters(flat), parts):
        yield part.reshape(-1, problem.stride), np.reshape(numbers, (-1, problem.classes))
