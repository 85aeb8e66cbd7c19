"""Metrics of rankings, beside ten-line twins and scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hogwild.data.ratings.container import Ratings
from hogwild.problems.completion.ranking import ranking_metrics
from hogwild.problems.completion.ranking_kernel import best_items

SCORES = st.lists(st.integers(-3, 3), min_size=1, max_size=300)  # many ties


@given(SCORES, st.integers(0, 35), st.sets(st.integers(0, 299)))
@settings(max_examples=100, deadline=None)
def test_the_best_items_beside_a_sort(scores, n, seen):
    row, best = np.array(scores, np.float32), np.empty(n, np.int64)
    row[[item for item in seen if item < len(row)]] = -np.inf
    left = [item for item in range(len(scores)) if item not in seen]
    found = best_items(row, best)
    assert best[:found].tolist() == sorted(left, key=lambda item: (-scores[item], item))[:n]


def naive(P, Q, b, tested, seen, k):
    """Mean AUC, precision, recall and NDCG over users with test items, one user at a time."""
    rows = []
    for user in range(len(P)):
        candidates = [item for item in range(len(Q)) if item not in seen[user]]
        relevant = [item for item in candidates if item in tested[user]]
        scores = {item: float(P[user] @ Q[item] + b[item]) for item in candidates}
        if not relevant:
            continue
        ranked = sorted(candidates, key=lambda item: (-scores[item], item))[:k]
        hits = [item in relevant for item in ranked]
        gain = sum(hit / math.log2(place + 2) for place, hit in enumerate(hits))
        ideal = sum(1 / math.log2(place + 2) for place in range(min(k, len(relevant))))
        pairs = [
            (scores[i] > scores[j]) + (scores[i] == scores[j]) / 2
            for i in relevant
            for j in candidates
            if j not in relevant
        ]
        rows.append([np.mean(pairs) if pairs else math.nan, sum(hits) / k, sum(hits) / len(relevant), gain / ideal])
    return np.nanmean(rows, axis=0)


@pytest.mark.parametrize("seed", range(4))
def test_all_of_it_beside_its_twin(seed):
    random = np.random.default_rng(seed)
    users, items, k = 17, 11, 4
    P, Q = random.integers(-2, 3, (users, 2)).astype("f4"), random.integers(-2, 3, (items, 2)).astype("f4")
    b = random.integers(-1, 2, items).astype("f4")
    tested = Ratings(random.integers(0, users, 30), random.integers(0, items, 30), np.ones(30), (users, items))
    seen = Ratings(random.integers(0, users, 60), random.integers(0, items, 60), np.ones(60), (users, items))
    lists = [[set(part.items[part.users == user].tolist()) for user in range(users)] for part in (tested, seen)]
    found = ranking_metrics((P, Q, None, b), tested.user_lists(), seen.user_lists(), k)
    assert list(found) == ["auc", "precision_at_4", "recall_at_4", "ndcg_at_4", "coverage_at_4"]
    assert list(found.values())[:4] == pytest.approx(naive(P, Q, b, *lists, k))


def test_nothing_to_rank_and_parameters_that_diverged():
    lists = Ratings([0], [0], [1], (2, 4)).user_lists()
    none = dict.fromkeys(("auc", "precision_at_10", "recall_at_10", "ndcg_at_10", "coverage_at_10"))
    q, b = np.ones((4, 1)), np.zeros(4)
    assert ranking_metrics((np.ones((2, 1)), q, None, b), lists, lists) == none | {"coverage_at_10": 0.75}
    assert ranking_metrics((np.full((2, 1), np.nan), q, None, b), lists, None) == none
    everything = Ratings([0] * 4, range(4), [1] * 4, (1, 4)).user_lists()
    assert ranking_metrics((np.ones((1, 1)), q, None, b), everything, None)["auc"] is None


def test_only_some_users_are_looked_at():
    users = 50
    lists = Ratings(range(users), [0] * users, [1] * users, (users, 3)).user_lists()
    P = np.where(np.arange(users) % 7 == 0, 1.0, -1.0)[:, None]  # of 8 evenly chosen: 0, 7, ..., 49
    solution = P, np.array([[1.0], [0], [0]]), None, np.zeros(3)
    assert ranking_metrics(solution, lists, None, 1, users=8)["auc"] == 1.0
    assert ranking_metrics(solution, lists, None, 1)["auc"] == 8 / 50
