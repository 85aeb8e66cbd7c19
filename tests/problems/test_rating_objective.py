"""The objective of factorisations beside sums written out; sampled negatives; what an evaluator reports."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hogwild.data.ratings.container import Ratings
from hogwild.errors import UsageError
from hogwild.methods import PENALTIES
from hogwild.problems.completion import objective as rating_objective
from hogwild.problems.completion.objective import (
    LOSSES,
    RatingEvaluator,
    RatingObjective,
    Scores,
    draw_negatives,
    merge_lists,
)
from hogwild.problems.completion.scores_kernel import sum_softplus

SETUPS = [(loss, penalty) for loss in LOSSES for penalty in PENALTIES]


def make(n=50, users=7, items=9, seed=0, rank=3):
    random = np.random.default_rng(seed)
    ratings = Ratings(random.integers(0, users, n), random.integers(0, items, n), random.random(n), (users, items))
    shapes = (users, rank), (items, rank), (users,), (items,)
    return ratings, tuple(random.standard_normal(shape).astype(np.float32) for shape in shapes)


def twin(ratings, solution, loss, l2, penalty, mean, drawn):
    """``(objective, loss)`` by plain sums."""
    P, Q, b, c = (array.astype(float).tolist() for array in solution)

    def score(u, i):
        return mean + b[u] + c[i] + sum(p * q for p, q in zip(P[u], Q[i], strict=True))

    def squares(u, i):
        return sum(p * p for p in P[u]) + sum(q * q for q in Q[i]) + b[u] ** 2 + c[i] ** 2

    def of_item(i):
        return sum(q * q for q in Q[i]) + c[i] ** 2

    total, ridge = 0.0, 0.0
    for at, (u, i, r) in enumerate(zip(ratings.users.tolist(), ratings.items.tolist(), ratings.values.tolist())):
        m = score(u, i)
        if loss == "squared-error":
            total += (m - r) ** 2 / 2
            ridge += squares(u, i)
            continue
        if loss == "log":
            total += math.log1p(math.exp(-m))
            ridge += squares(u, i)
        for j in drawn[at][drawn[at] >= 0].tolist():  # every pair, or triple, pays for the rows in it
            total += math.log1p(math.exp(score(u, j) if loss == "log" else score(u, j) - m))
            ridge += squares(u, j) if loss == "log" else squares(u, i) + of_item(j)
    if penalty == "per-row":
        ridge = len(ratings) * sum(float((array.astype(float) ** 2).sum()) for array in solution)
    return (total + l2 / 2 * ridge) / len(ratings), total / len(ratings)


@pytest.mark.parametrize(("loss", "penalty"), SETUPS)
@given(st.integers(1, 60), st.integers(0, 9), st.integers(1, 3), st.sampled_from([None, 1, 3]))
@settings(max_examples=15, deadline=None)
def test_beside_plain_sums(loss, penalty, n, seed, negatives, threads):
    ratings, solution = make(n, seed=seed)
    same = {"l2": 0.3, "penalty": penalty, "mean": 0.4, "negatives": negatives}
    objective = RatingObjective(ratings, loss, **same, threads=threads)
    found = objective.evaluate(*solution)
    expected = twin(ratings, solution, loss, 0.3, penalty, 0.4, objective.drawn)
    assert (found["objective"], found["loss"]) == pytest.approx(expected)
    if loss == "squared-error":
        predicted = Scores(*solution, 0.4).of(ratings.users, ratings.items)
        assert found["rmse"] == pytest.approx(np.sqrt(np.mean((predicted - ratings.values) ** 2)))
        assert found["mae"] == pytest.approx(np.mean(np.abs(predicted - ratings.values)))


@pytest.mark.parametrize("loss", LOSSES)
def test_pieces_and_threads_do_not_matter(loss, monkeypatch):
    ratings, solution = make(3000, 40, 30)
    whole = RatingObjective(ratings, loss, l2=0.1).evaluate(*solution)
    monkeypatch.setattr(rating_objective, "CHUNK", 256)
    found = [RatingObjective(ratings, loss, l2=0.1, threads=threads).evaluate(*solution) for threads in (1, 4)]
    assert found[0] == found[1]
    assert found[0] == pytest.approx(whole)


@given(st.lists(st.floats(-1e3, 1e3) | st.sampled_from([0.0, 1e300, -1e300, np.inf, -np.inf]), max_size=20))
@settings(max_examples=100, deadline=None)
def test_softplus_beside_numpy(z):
    z = np.array(z, float)
    assert sum_softplus(z) == pytest.approx(np.logaddexp(0.0, z).sum(), rel=1e-10, abs=1e-40)
    assert math.isnan(sum_softplus(np.append(z, np.nan)))


def test_unknown_ones_have_the_mean_and_the_other_bias():
    ratings = Ratings([-1, 0, -1], [1, -1, -1], [1, 2, 3], (2, 2))
    P, Q = np.ones((2, 1)), np.full((2, 1), 3.0)
    b, c = np.array([0.25, 9.0]), np.array([9.0, 0.5])
    assert Scores(P, Q, b, c, 2.0).of(ratings.users, ratings.items).tolist() == [2.5, 2.25, 2.0]
    assert RatingObjective(ratings, "squared-error", mean=2.0).evaluate(P, Q, b, c)["mae"] == pytest.approx(2.75 / 3)


def test_parameters_that_diverged_give_no_warning():
    ratings, solution = make()
    broken = (np.full_like(solution[0], np.nan), *solution[1:])
    huge = (solution[0] * np.float32(1e38), *solution[1:])
    for loss in LOSSES:
        assert math.isnan(RatingObjective(ratings, loss, l2=1).evaluate(*broken)["objective"])
        assert not RatingObjective(ratings, loss, l2=1).evaluate(*huge)["objective"] < 1e30


def test_what_it_refuses():
    ratings, solution = make()
    for wrong in ({"loss": "hinge"}, {"loss": "log", "penalty": "l1"}, {"loss": "log", "negatives": 0}):
        with pytest.raises(UsageError, match="expected"):
            RatingObjective(ratings, **wrong)
    with pytest.raises(UsageError, match="do not go together"):
        RatingObjective(ratings, "log").evaluate(*solution[:3], solution[2])
    with pytest.raises(UsageError, match="test ratings of"):
        RatingEvaluator(ratings, make(users=8)[0], "squared-error")


# -- negatives --------------------------------------------------------------------------------------------------------


def test_negatives_are_not_seen_where_there_is_another():
    random = np.random.default_rng(0)
    users, items = 30, 40
    mask = random.random((users, items)) < 0.4
    mask[7] = True  # has seen everything
    u, i = np.nonzero(mask)
    ratings = Ratings(u, i, np.ones(len(u)), mask.shape)
    drawn = draw_negatives(ratings.users, 3, items, ratings.user_lists(), 0)
    assert drawn.shape == (len(u), 3)
    assert (drawn >= -1).all()
    assert (drawn < items).all()
    assert (drawn[u == 7] == -1).all()  # left out, as in training
    assert (drawn[u != 7] == -1).mean() < 0.4**7  # eight more draws each
    assert not mask[np.repeat(u, 3), drawn.ravel()][drawn.ravel() >= 0].any()
    free = np.bincount(drawn[(u == 3) & (drawn[:, 0] >= 0)].ravel() + 1, minlength=items + 1)[1:][~mask[3]]
    assert (free > 0).mean() > 0.5


@pytest.mark.parametrize("loss", ["log", "bpr"])
def test_who_has_chosen_everything_is_judged_by_that(loss):
    """What was chosen is not held against them: as the kernel leaves out what it cannot draw."""
    u, i = np.repeat(np.arange(3), 4), np.tile(np.arange(4), 3)
    ratings, solution = Ratings(u, i, np.ones(12), (3, 4)), make(1, 3, 4)[1]
    objective = RatingObjective(ratings, loss, l2=0.3, negatives=2)
    found = objective.evaluate(*solution)
    expected = twin(ratings, solution, loss, 0.3, "per-rating", 0.0, objective.drawn)
    assert (found["objective"], found["loss"]) == pytest.approx(expected)
    assert found["loss"] == 0 if loss == "bpr" else found["loss"] > 0


def test_negatives_are_those_of_the_seed(monkeypatch):
    ratings, _ = make(2000, 50, 60)
    lists = ratings.user_lists()
    monkeypatch.setattr(rating_objective, "DRAWN", 100)
    one, many, other = (
        draw_negatives(ratings.users, 2, 60, lists, seed, threads) for seed, threads in ((1, 1), (1, 4), (2, 1))
    )
    assert np.array_equal(one, many)
    assert not np.array_equal(one, other)


def test_negatives_of_nobody_and_without_lists():
    empty = Ratings([], [], [], (3, 5)).user_lists()
    assert draw_negatives(np.array([0, 2, -1], np.int32), 1, 5, empty, 0).shape == (3, 1)
    assert draw_negatives(np.empty(0, np.int32), 1, 5, empty, 0).shape == (0, 1)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 9))
@settings(max_examples=50, deadline=None)
def test_merged_lists(n, m, seed):
    a, b = make(n, seed=seed)[0], make(m, seed=seed + 100)[0]
    begin, items = merge_lists(a.user_lists(), b.user_lists())
    for user in range(7):
        expected = set(a.items[a.users == user].tolist()) | set(b.items[b.users == user].tolist())
        assert items[begin[user] : begin[user + 1]].tolist() == sorted(expected)
    assert len(begin) == 8


# -- the evaluator ----------------------------------------------------------------------------------------------------


def test_names_of_ratings():
    ratings, solution = make()
    train, test = ratings.split(0.3)
    found = RatingEvaluator(train, test, "squared-error", l2=0.1)(solution)
    assert list(found) == [
        "objective",
        "train_loss",
        "train_rmse",
        "train_mae",
        "test_loss",
        "test_rmse",
        "test_mae",
    ]
    assert found["objective"] > found["train_loss"]
    assert found["test_rmse"] == RatingObjective(test, "squared-error").evaluate(*solution)["rmse"]
    assert list(RatingEvaluator(train, None, "squared-error")(solution)) == list(found)[:4]


@pytest.mark.parametrize("loss", ["log", "bpr"])
def test_names_of_choices(loss):
    ratings, solution = make(60, 20, 15)
    train, test = ratings.split(0.3)
    evaluator = RatingEvaluator(train, test, loss, negatives=2)
    found = evaluator(solution)
    assert list(found) == [
        "objective",
        "train_loss",
        "test_loss",
        "test_auc",
        "test_precision_at_10",
        "test_ndcg_at_10",
    ]
    assert 0 < found["test_auc"] < 1
    assert found == evaluator(solution)  # the negatives stay
    assert list(RatingEvaluator(train, None, loss)(solution)) == ["objective", "train_loss"]
