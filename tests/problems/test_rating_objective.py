"""The objective of factorisations beside sums written out; sampled negatives; what an evaluator reports."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hogwild.data.ratings.container import Ratings
from hogwild.errors import UsageError
from hogwild.problems.completion import objective as rating_objective
from hogwild.problems.completion.objective import (
    LOSSES,
    RatingEvaluator,
    RatingObjective,
    draw_negatives,
    scores_of,
)

SETUPS = [*((loss, "per-rating") for loss in LOSSES), ("squared-error", "smoothed")]


def make(n=50, users=7, items=9, seed=0, rank=3):
    random = np.random.default_rng(seed)
    ratings = Ratings(random.integers(0, users, n), random.integers(0, items, n), random.random(n), (users, items))
    shapes = (users, rank), (items, rank), (users,), (items,)
    return ratings, tuple(random.standard_normal(shape).astype(np.float32) for shape in shapes)


def twin(ratings, solution, loss, l2, penalty, mean, drawn, shares=None):
    """``(objective, loss)`` by plain sums."""
    P, Q, b, c = (array.astype(float).tolist() for array in solution)
    if shares is not None:
        return twin_of_sums(ratings, solution, loss, l2, penalty, mean, drawn, *(side.toarray() for side in shares))

    def score(u, i):
        return mean + b[u] + c[i] + sum(p * q for p, q in zip(P[u], Q[i], strict=True))

    def squares(u, i):
        return sum(p * p for p in P[u]) + sum(q * q for q in Q[i]) + b[u] ** 2 + c[i] ** 2

    total, ridge = 0.0, 0.0
    for at, (u, i, r) in enumerate(zip(ratings.users.tolist(), ratings.items.tolist(), ratings.values.tolist())):
        m = score(u, i)
        ridge += squares(u, i)
        if loss == "squared-error":
            total += (m - r) ** 2 / 2
            continue
        if loss == "log":
            total += math.log1p(math.exp(-m))
        for j in drawn[at][drawn[at] >= 0].tolist():  # every pair pays for the rows in it
            total += math.log1p(math.exp(score(u, j) if loss == "log" else score(u, j) - m))
            ridge += squares(u, j)
    if penalty == "smoothed":
        for index, factors, bias in ((ratings.users, P, b), (ratings.items, Q, c)):
            ridge += 100 * sum(sum(p * p for p in factors[k]) + bias[k] ** 2 for k in set(index.tolist()))
    return (total + l2 / 2 * ridge) / len(ratings), total / len(ratings)


def twin_of_sums(ratings, solution, loss, l2, penalty, mean, drawn, S, T):
    """The same of rows with shares ``S`` in users and ``T`` in items: sums over rows where that has squares."""
    E, F, d, e = (array.astype(float) for array in solution)
    p, q, b, c = S @ E, T @ F, S @ d, T @ e
    _, plain = twin(ratings, (p, q, b, c), loss, 0.0, "per-rating", mean, drawn)
    visits = np.zeros(len(S)), np.zeros(len(T))
    for at, (u, i) in enumerate(zip(ratings.users, ratings.items)):
        others = [] if loss == "squared-error" else drawn[at][drawn[at] >= 0].tolist()
        visits[0][u] += 1 + len(others)
        np.add.at(visits[1], [i, *others], 1)
    ridge = 0.0
    for side, factors, bias, of in ((S, E, d, visits[0]), (T, F, e, visits[1])):
        more = 100 / np.maximum((side != 0).T @ of, 1) if penalty == "smoothed" else np.zeros(len(bias))
        ridge += ((side**2).T @ of * (1 + more)) @ (np.sum(factors**2, axis=1) + bias**2)
    return plain + l2 / 2 * ridge / len(ratings), plain


@pytest.mark.parametrize(("loss", "penalty"), SETUPS)
def test_sums_of_features_beside_plain_sums(loss, penalty):
    ratings, _ = make(users=7, items=12)
    ratings = ratings.select(ratings.items < 8).with_features(items=np.eye(12)[:, ::-1] + np.ones((12, 1)))
    shares, random = ratings.shares, np.random.default_rng(0)
    shapes = (7, 3), (24, 3), (7,), (24,)
    rows = tuple(random.standard_normal(shape).astype(np.float32) for shape in shapes)
    same = {"l2": (0.3, 0.3), "penalty": penalty, "mean": 0.4, "negatives": 2}
    objective = RatingObjective(ratings, loss, shares=shares, **same)
    found = objective.evaluate(rows)
    expected = twin(ratings, rows, loss, 0.3, penalty, 0.4, objective.drawn, shares)
    assert (found["objective"], found["loss"]) == pytest.approx(expected)
    assert loss == "squared-error" or objective.drawn.max() == 7  # nobody rated the others, so nobody passed them over


@pytest.mark.parametrize(("loss", "penalty"), SETUPS)
@given(st.integers(1, 60), st.integers(0, 9), st.integers(1, 3))
@settings(max_examples=15, deadline=None)
def test_beside_plain_sums(loss, penalty, n, seed, negatives):
    ratings, solution = make(n, seed=seed)
    same = {"l2": (0.3, 0.3), "penalty": penalty, "mean": 0.4, "negatives": negatives}
    objective = RatingObjective(ratings, loss, **same)
    found = objective.evaluate(solution)
    expected = twin(ratings, solution, loss, 0.3, penalty, 0.4, objective.drawn)
    assert (found["objective"], found["loss"]) == pytest.approx(expected)
    if loss == "squared-error":
        predicted = scores_of(solution, 0.4, ratings.users, ratings.items)
        assert found["rmse"] == pytest.approx(np.sqrt(np.mean((predicted - ratings.values) ** 2)))
        assert found["mae"] == pytest.approx(np.mean(np.abs(predicted - ratings.values)))


@pytest.mark.parametrize("loss", LOSSES)
def test_pieces_do_not_matter(loss, monkeypatch):
    ratings, solution = make(3000, 40, 30)
    whole = RatingObjective(ratings, loss, l2=(0.1, 0.1)).evaluate(solution)
    monkeypatch.setattr(rating_objective, "CHUNK", 256)
    assert RatingObjective(ratings, loss, l2=(0.1, 0.1)).evaluate(solution) == pytest.approx(whole)


def test_parameters_that_diverged_give_no_warning():
    ratings, solution = make()
    broken = (np.full_like(solution[0], np.nan), *solution[1:])
    huge = (solution[0] * np.float32(1e38), *solution[1:])
    for loss in LOSSES:
        assert math.isnan(RatingObjective(ratings, loss, l2=(1, 1)).evaluate(broken)["objective"])
        assert not RatingObjective(ratings, loss, l2=(1, 1)).evaluate(huge)["objective"] < 1e30


def test_what_it_refuses():
    with pytest.raises(UsageError, match="test ratings of"):
        RatingEvaluator(make()[0], make(users=8)[0], "squared-error")


# -- negatives --------------------------------------------------------------------------------------------------------


def test_negatives_are_not_seen_where_there_is_another():
    random = np.random.default_rng(0)
    users, items = 30, 40
    mask = random.random((users, items)) < 0.4
    mask[7] = True  # has seen everything
    u, i = np.nonzero(mask)
    ratings = Ratings(u, i, np.ones(len(u)), mask.shape)
    drawn, again, other = (draw_negatives(ratings.users, 3, items, ratings.user_lists(), seed) for seed in (0, 0, 1))
    assert np.array_equal(drawn, again)
    assert not np.array_equal(drawn, other)
    assert drawn.shape == (len(u), 3)
    assert (drawn >= -1).all()
    assert (drawn < items).all()
    assert (drawn[u == 7] == -1).all()  # left out, as in training
    assert (drawn[u != 7] == -1).mean() < 0.4**7  # eight more draws each
    assert not mask[np.repeat(u, 3), drawn.ravel()][drawn.ravel() >= 0].any()
    free = np.bincount(drawn[(u == 3) & (drawn[:, 0] >= 0)].ravel() + 1, minlength=items + 1)[1:][~mask[3]]
    assert (free > 0).mean() > 0.5


# -- the evaluator ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "of_both", "of_test"),
    [
        ("squared-error", ["loss", "rmse", "mae"], []),
        ("log", ["loss"], ["auc", "precision_at_10", "recall_at_10", "ndcg_at_10", "coverage_at_10"]),
        ("bpr", ["loss"], ["auc", "precision_at_10", "recall_at_10", "ndcg_at_10", "coverage_at_10"]),
    ],
)
def test_names(loss, of_both, of_test):
    ratings, solution = make(60, 20, 15)
    train, test = ratings.split(0.3)
    evaluator = RatingEvaluator(train, test, loss, {"l2": (0.1, 0.1)}, negatives=2)
    values = evaluator(solution)
    alone = ["objective", *(f"train_{name}" for name in of_both)]
    assert list(values) == [*alone, *(f"test_{name}" for name in of_both + of_test)]
    assert values["objective"] > values["train_loss"]
    assert values == evaluator(solution)  # the negatives stay
    assert list(RatingEvaluator(train, None, loss)(solution)) == alone
    if loss == "squared-error":
        assert values["test_rmse"] == RatingObjective(test, loss).evaluate(solution)["rmse"]
    else:  # what is drawn against test ratings is in neither set
        both = set(zip(ratings.users.tolist(), ratings.items.tolist()))
        drawn = evaluator.test.drawn
        assert not {(u, j) for u, row in zip(test.users.tolist(), drawn.tolist()) for j in row} & both
