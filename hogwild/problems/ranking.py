"""How well scores rank what a user chose above what they did not: precision@k, NDCG@k and AUC; and the best n items.

The decision that matters: candidates are all items but those of the user's training ratings, not a sample of them, for
sampled metrics rank methods differently from exact ones (Krichene and Rendle 2020, "On sampled metrics for item
recommendation"). Equal scores are ranked by item number, and count one half in the AUC.

What it costs: a matrix product and a sort of all items for every user looked at, some 0.5 ms a user for 20,000 items;
so training looks at no more than 2,000 users. Scores are float32. Metrics of users are averaged, users alike.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from hogwild.data.pieces import map_pieces

AT = 10  # usual depth of precision and NDCG
USERS = 2000  # of the test ratings that are looked at
CELLS = 1 << 22  # scores held at a time by a thread: 16 MB
Lists = tuple[np.ndarray, np.ndarray]  # (begin, items), as Ratings.user_lists makes it


def top_items(scores: np.ndarray, n: int) -> np.ndarray:
    """Positions of the ``n`` largest scores (or all, if fewer), best first, of equal ones the first, int64."""
    n = min(n, len(scores))
    if n == 0:
        return np.empty(0, np.int64)
    least = np.partition(scores, len(scores) - n)[len(scores) - n]
    above = np.flatnonzero(scores > least)
    chosen = np.concatenate((above, np.flatnonzero(scores == least)[: n - len(above)]))
    return chosen[np.lexsort((chosen, -scores[chosen]))]


def precision_at_k(ranked: np.ndarray, relevant: np.ndarray, k: int = AT) -> float:
    """Share of the first ``k`` places that hold a relevant item; a place that is not filled holds none."""
    return float(np.isin(ranked[:k], relevant).sum()) / k


def ndcg_at_k(ranked: np.ndarray, relevant: np.ndarray, k: int = AT) -> float:
    """Sum of ``1 / log2(1 + place)`` over the relevant items in the first ``k`` places, over the best there can be."""
    gains = 1.0 / np.log2(np.arange(2, k + 2))
    ideal = gains[: len(relevant)].sum()
    return float(gains[: len(ranked)][np.isin(ranked[:k], relevant)].sum() / ideal) if ideal else float("nan")


def auc(positive: np.ndarray, negative: np.ndarray) -> float:
    """Share of pairs in which the positive score is above the negative one; equal ones count half. NaN for no pairs."""
    if not len(positive) or not len(negative):
        return float("nan")
    ordered = np.sort(negative)
    wins = np.searchsorted(ordered, positive, side="left") + np.searchsorted(ordered, positive, side="right")
    return float(wins.sum(dtype=np.float64) / 2.0 / (len(positive) * len(negative)))


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()  # looking for the libraries takes milliseconds


def each_user(
    users: np.ndarray, user_factors: Any, item_factors: Any, item_bias: Any, seen: Lists | None,
    function: Callable[[int, np.ndarray], Any], threads: int | None = None,
) -> list[Any]:  # fmt: skip
    """``function(place in users, scores of all items)`` for each of ``users``, on all cores; results in order.

    Scores are float32 without mean and user bias, which do not change the order; what the user has seen is at -inf. A
    user of -1 has no factors.
    """
    P, Q = np.asarray(user_factors, np.float32), np.asarray(item_factors, np.float32)
    bias = np.asarray(item_bias, np.float32)

    def part(first: int, last: int) -> list[Any]:
        which = users[first:last]
        p = np.take(P, which, axis=0, mode="clip") if len(P) else np.zeros((len(which), P.shape[1]), np.float32)
        p[which < 0] = 0.0
        with np.errstate(all="ignore"):
            scores = p @ Q.T
            scores += bias
        for row, user in enumerate(which.tolist()):
            if seen is not None and user >= 0:
                scores[row, seen[1][seen[0][user] : seen[0][user + 1]]] = -np.inf
        return [function(first + row, scores[row]) for row in range(len(which))]

    size = max(1, min(CELLS // max(len(Q), 1), 1024))
    size = max(1, min(size, -(-len(users) // 8)))  # a few users are work for all cores too
    with _controller().limit(limits=1, user_api="blas"):  # its threads would fight ours
        return [found for more in map_pieces(len(users), size, part, threads) for found in more]


def ranking_metrics(
    user_factors: Any, item_factors: Any, item_bias: Any, tested: Lists, seen: Lists | None, k: int = AT,
    users: int = USERS, threads: int | None = None,
) -> dict[str, float | None]:  # fmt: skip
    """Mean metrics over users that have test items, or over ``users`` of those, evenly chosen.

    Parameters
    ----------
    user_factors, item_factors, item_bias : arrays
    tested : (begin, items)
        Items of each user's test ratings: the relevant ones, those in ``seen`` left out.
    seen : (begin, items), optional
        Items that are no candidates.

    Returns
    -------
    dict
        ``auc``, ``precision_at_<k>`` and ``ndcg_at_<k>``; None where parameters are not finite, or there is no user
        for whom it is defined.
    """
    names = "auc", f"precision_at_{k}", f"ndcg_at_{k}"
    begin, items = tested
    asked = np.flatnonzero(np.diff(begin) > 0)
    asked = asked[np.unique(np.linspace(0, len(asked) - 1, min(len(asked), users)).astype(np.int64))]
    if not all(np.isfinite(np.asarray(array)).all() for array in (user_factors, item_factors, item_bias)):
        return dict.fromkeys(names)

    def measure(place: int, scores: np.ndarray) -> tuple[float, float, float]:
        user = asked[place]
        relevant = items[begin[user] : begin[user + 1]]
        candidate = scores > -np.inf
        relevant = relevant[candidate[relevant]]
        if not len(relevant):
            return (float("nan"),) * 3
        best = top_items(scores, k)
        best = best[candidate[best]]
        positive = scores[relevant]
        candidate[relevant] = False
        area = auc(positive, scores[candidate])
        return area, precision_at_k(best, relevant, k), ndcg_at_k(best, relevant, k)

    found = np.array(each_user(asked, user_factors, item_factors, item_bias, seen, measure, threads)).reshape(-1, 3)
    defined = [column[~np.isnan(column)] for column in found.T]
    return {name: float(column.mean()) if len(column) else None for name, column in zip(names, defined, strict=True)}
