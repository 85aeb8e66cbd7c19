"""Factors of users whom a model does not know, from what they rated, with the items' factors fixed ("folding in").

A user's parameters minimise the terms of the training objective in which the user occurs. For squared-error that is a
ridge regression. For the sampled losses it is a logistic regression on the chosen items and on items drawn against
them, several times as many as in an epoch; a few steps of L-BFGS-B solve it. A user of 100 ratings at rank 32 takes
0.1 ms, or 3 ms with a sampled loss, and all cores share the users.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hogwild.data.parallel import map_pieces
from hogwild.data.ratings.container import Ratings
from hogwild.problems.completion.objective import draw_negatives
from hogwild.problems.completion.options import SMOOTHING

DRAWS = 8  # epochs whose drawn items are taken together
STEPS = 30  # most iterations of L-BFGS-B
PIECE = 16  # users at a time
PER_ROW = "per-row"  # penalty of models that earlier versions trained, which counts a user once


def fold_in(
    model: Any, ratings: Ratings, wanted: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The users (m,) of ``ratings`` that rated items of ``model``, their factors (m, k) and biases (m,), float32.

    Items are matched by name; ``model`` is a :class:`hogwild.CompletionModel`. ``wanted`` (users,) bool: only these.
    """
    import scipy.optimize  # noqa: F401  # before the limit, which holds for libraries that are loaded
    from threadpoolctl import threadpool_limits

    rank, count = model.rank, model.config.get("negatives") or 1
    biased = model.loss != "bpr" and model.config.get("biases", True)  # of two margins of a user, the bias cancels
    items = model.place(ratings).items
    wanted = np.ones(ratings.shape[0], bool) if wanted is None else wanted
    kept = (items >= 0) & np.append(wanted, False)[ratings.users]  # a user of -1 is nobody's
    known, users = np.unique(ratings.users[kept], return_inverse=True)
    ratings = Ratings(users, items[kept], ratings.values[kept], (len(known), model.shape[1]), check=False)
    ones = np.ones((model.shape[1], int(biased)))
    # of each item: what theta is multiplied by, and what is added
    rows = np.column_stack((model.item_factors, ones, model.item_bias)).astype(np.float64)
    ridge = np.append(np.full(rank, model.ridge[0]), np.full(int(biased), model.ridge[1]))
    solutions = np.zeros((ratings.shape[0], rank + 1), np.float32)
    drawn = np.empty((len(ratings), 0), np.int32)
    if model.loss != "squared-error":
        drawn = draw_negatives(ratings.users, count * DRAWS, model.shape[1], ratings.user_lists())
    order = np.argsort(ratings.users, kind="stable")
    cuts = np.searchsorted(ratings.users[order], np.arange(ratings.shape[0] + 1))

    def solve(user: int) -> np.ndarray:
        places = order[cuts[user] : cuts[user + 1]]
        rated, against = ratings.items[places], drawn[places]
        visits = (1 if model.loss == "squared-error" else 1 + count) * len(places)
        visits += SMOOTHING if model.penalty == "smoothed" else 0
        penalty = ridge * (1 if model.penalty == PER_ROW else visits)
        own = rows[rated]
        if model.loss == "squared-error":
            x, rest = own[:, :-1], ratings.values[places] - model.mean - own[:, -1]
            gram, right = x.T @ x + np.diag(penalty), x.T @ rest
            return np.linalg.solve(gram, right) if penalty.all() else np.linalg.lstsq(gram, right)[0]
        each, others = np.nonzero(against >= 0)
        other, shared = rows[against[each, others]], np.full(len(each), 1 / DRAWS)
        if model.loss == "bpr":
            return _logistic(own[each] - other, shared, penalty)
        return _logistic(np.vstack((own, -other)), np.append(np.ones(len(own)), shared), penalty)

    def part(first: int, last: int) -> None:
        for user in range(first, last):
            solutions[user, : len(ridge)] = solve(user)

    with threadpool_limits(1, "blas"):  # its threads would compete with ours
        for _ in map_pieces(len(known), PIECE, part):
            pass
    return known, solutions[:, :rank], solutions[:, rank]


def _logistic(rows: np.ndarray, weights: np.ndarray, ridge: np.ndarray) -> np.ndarray:
    """Return theta that minimises ``sum weights log(1 + exp(-(x theta + offset))) + sum ridge theta^2 / 2``.

    ``rows`` hold x and, in the last column, the offset.
    """
    import scipy.optimize
    import scipy.special

    x = rows[:, :-1]

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        margins = x @ theta + rows[:, -1]
        slopes = weights * scipy.special.expit(-margins)
        value = weights @ np.logaddexp(0.0, -margins) + ridge @ np.square(theta) / 2
        return float(value), ridge * theta - x.T @ slopes

    options = {"maxiter": STEPS}
    return scipy.optimize.minimize(objective, np.zeros(len(ridge)), jac=True, method="L-BFGS-B", options=options).x
