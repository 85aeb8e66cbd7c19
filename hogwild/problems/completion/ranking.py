"""Ranking metrics of scores: precision@k, recall@k, NDCG@k and AUC of chosen against other items; and the best n items.

Candidates are all items but those of the user's training ratings, not a sample of them, because sampled metrics rank
methods differently from exact ones (Krichene and Rendle 2020, "On sampled metrics for item recommendation"). Equal
scores are ranked by item number, and count one half in the AUC.

Each user costs a matrix product and a few passes over the items, some 50 us for 20,000 items; training evaluates no
more than 2,000 users. Scores are float32. Metrics are averaged over users with equal weight. Numba is imported when
first needed, so that a model opens without it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from hogwild.data.parallel import map_pieces
from hogwild.data.rows.container import frozen_array, readonly
from hogwild.problems.completion.sums import Solution

AT = 10  # usual depth of precision and NDCG
USERS = 2000  # most users of the test ratings that are evaluated
CELLS = 1 << 22  # scores that a thread holds at a time: 16 MB
Lists = tuple[np.ndarray, np.ndarray]  # (begin, items), as Ratings.user_lists makes it


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()  # the search for the libraries takes milliseconds


def one_blas_thread() -> Any:
    """A context in which BLAS takes one thread: its own would compete with ours."""
    return _controller().limit(limits=1, user_api="blas")


def each_piece(
    users: np.ndarray, solution: Solution, seen: Lists | None, function: Callable[[int, int, np.ndarray], Any]
) -> None:
    """Call ``function(first, last, scores)`` for pieces of ``users``, on all cores: scores (last - first, items).

    Scores are float32 without mean and user bias, which do not change the order; items the user has seen are at -inf. A
    user of -1 has no factors.
    """
    from hogwild.problems.completion import ranking_kernel as ranking

    users = frozen_array(users, np.int64)
    P, Q, bias = (np.asarray(solution[k], np.float32) for k in (0, 1, 3))

    def part(first: int, last: int) -> None:
        which = users[first:last]
        p = np.take(P, which, axis=0, mode="clip") if len(P) else np.zeros((len(which), P.shape[1]), np.float32)
        p[which < 0] = 0.0
        with np.errstate(all="ignore"):
            scores = p @ Q.T
            scores += bias
        if seen is not None:
            ranking.mask_seen(scores, which, *seen)
        function(first, last, scores)

    size = max(1, min(CELLS // max(len(Q), 1), 1024))
    size = max(1, min(size, -(-len(users) // 8)))  # a few users occupy all cores too
    with one_blas_thread():
        for _ in map_pieces(len(users), size, part):
            pass


def best_of_users(users: np.ndarray, solution: Solution, seen: Lists | None, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The ``n`` items of the largest scores, best first, ties to the first: items int64 and scores float32.

    Both are (users, n), padded with -1 and -inf. Scores and ``seen`` are as in :func:`each_piece`.
    """
    from hogwild.problems.completion import ranking_kernel as ranking

    best, best_scores = np.full((len(users), n), -1, np.int64), np.full((len(users), n), -np.inf, np.float32)

    def choose(first: int, last: int, scores: np.ndarray) -> None:
        rows = best[first:last]
        ranking.best_of_rows(scores, rows)
        some = rows >= 0
        best_scores[first:last][some] = np.take_along_axis(scores, np.maximum(rows, 0), axis=1)[some]

    each_piece(users, solution, seen, choose)
    return best, best_scores


def ranking_metrics(
    solution: Solution, tested: Lists, seen: Lists | None, k: int = AT, users: int = USERS, area: bool = True
) -> dict[str, float | None]:
    """Mean metrics over users that have test items, or over ``users`` of those, evenly spaced.

    Parameters
    ----------
    solution : (user factors, item factors, user bias, item bias)
    tested : (begin, items)
        Items of each user's test ratings: the relevant ones, without those in ``seen``.
    seen : (begin, items), optional
        Items that are no candidates.
    area : bool
        Whether the AUC is wanted, which takes as long as the others.

    Returns
    -------
    dict
        ``auc``, ``precision_at_<k>``, ``recall_at_<k>``, ``ndcg_at_<k>``, and ``coverage_at_<k>``, the share of the
        items that any of these users gets; None if parameters are not finite, or no user has a defined value.
    """
    from hogwild.problems.completion import ranking_kernel as ranking

    names = "auc", *(f"{name}_at_{k}" for name in ("precision", "recall", "ndcg", "coverage"))
    rows = np.flatnonzero(np.diff(tested[0]) > 0)
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), users)).astype(np.int64))]
    if not all(np.isfinite(solution[k]).all() for k in (0, 1, 3)):
        return dict.fromkeys(names)

    values, best = np.empty((len(rows), 4)), np.full((len(rows), k), -1)

    def measure(first: int, last: int, scores: np.ndarray) -> None:
        ranking.measure_rows(scores, readonly(rows[first:last]), *tested, best[first:last], values[first:last], area)

    each_piece(rows, solution, seen, measure)
    defined = [column[~np.isnan(column)] for column in values.T]
    means = [float(column.mean()) if len(column) else None for column in defined]
    return dict(zip(names, [*means, len(np.unique(best[best >= 0])) / max(len(solution[1]), 1)], strict=True))
