"""The factorizer: recommending and folding in, as a scikit-learn transformer."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from sklearn.base import clone

import hogwild
from hogwild import HogwildFactorizer, TrainingError, UsageError
from hogwild.data.ids import Ids


@pytest.fixture(scope="module")
def ratings() -> tuple[Any, Any]:
    found = hogwild.open_ratings("synthetic:ratings?users=300&items=80&ratings=9000&noise=0.1&seed=1")
    return tuple(
        scipy.sparse.csr_array((part.values, (part.users, part.items)), shape=part.shape) for part in found.split(0.1)
    )


@pytest.fixture(scope="module")
def model(ratings: Any) -> HogwildFactorizer:
    return HogwildFactorizer(8, random_state=0).fit(ratings[0])


def test_it_predicts_better_than_the_mean(model: Any, ratings: Any) -> None:
    train, test = ratings
    assert model.score(test) > -0.9 * np.std(test.data)
    assert model.score(train) > model.score(test)


def test_a_seed_gives_the_same_bits(model: Any, ratings: Any) -> None:
    again = clone(model).fit(ratings[0])
    assert np.array_equal(again.user_factors_, model.user_factors_)
    sent = pickle.loads(pickle.dumps(model))
    assert np.array_equal(sent.transform(ratings[0]), model.transform(ratings[0]))


def test_transform_keeps_what_fit_promised(ratings: Any) -> None:
    X = ratings[0][:20]
    free = HogwildFactorizer(3, alpha=0, biases=False, max_iter=3, random_state=0).fit(X)
    one = scipy.sparse.csr_array(([5.0], ([0], [7])), shape=(1, 80))  # one rating does not say what three factors are
    predicted = free.model_.mean + free.transform(one)[0] @ free.components_[:, 7]
    assert predicted == pytest.approx(5, abs=1e-3)
    twice = scipy.sparse.coo_array(([4.0, 4.0], ([0, 0], [7, 7])), shape=(1, 80))  # two ratings, and not one of 8
    once = scipy.sparse.coo_array(([4.0], ([0], [7])), shape=(1, 80))
    assert np.allclose(free.transform(twice), free.transform(once))


def test_choices_are_ranked(ratings: Any) -> None:
    model = HogwildFactorizer(4, loss="bpr", random_state=0, max_iter=2).fit(ratings[0])
    assert not hasattr(model, "score")
    margins = model.transform(ratings[0]) @ model.components_ + model.model_.item_bias
    chosen = ratings[0].toarray() != 0
    assert margins[chosen].mean() > margins[~chosen].mean() + 0.1
    new = scipy.sparse.vstack([ratings[0], ratings[0][:1]])  # row 300 is a new user
    assert not set(model.recommend([300], 10, seen=new)[0][0]) & set(ratings[0][[0]].indices)


def test_early_stopping_chooses_alpha_and_the_passes(ratings: Any) -> None:
    options = {"n_components": 4, "loss": "log", "max_iter": 4, "n_jobs": 1, "random_state": 0}
    stopped = HogwildFactorizer(early_stopping=True, **options).fit(ratings[0])
    chosen = stopped.model_.config["l2"]
    assert chosen in (0.01, 0.02, 0.04)
    assert stopped.n_iter_ <= 4
    options["eta0"] = stopped.model_.config["step"]
    given = HogwildFactorizer(alpha=chosen, early_stopping=True, **options).fit(ratings[0])
    assert np.array_equal(given.user_factors_, stopped.user_factors_)
    plain = HogwildFactorizer(alpha=chosen, **options | {"max_iter": stopped.n_iter_}).fit(ratings[0])
    assert np.array_equal(plain.user_factors_, stopped.user_factors_)  # trained on all ratings


def test_new_ratings_are_passed_over(ratings: Any) -> None:
    train, test = ratings
    early = HogwildFactorizer(4, random_state=0, n_jobs=1).fit(train[:, :])
    before, users = early.score(test), early.user_factors_.copy()
    new = scipy.sparse.vstack([test, train[[0]]])  # row 300 is a new user
    early.partial_fit(new).partial_fit(new)
    assert early.score(test) > before
    assert early.model_.shape == (301, 80)
    assert early.n_iter_ == 22
    untouched = np.flatnonzero(np.diff(test.indptr) == 0)
    assert np.allclose(early.user_factors_[untouched], users[untouched], rtol=1e-5)
    one, other = (
        HogwildFactorizer(4, random_state=0, n_jobs=1).fit(train * unit).partial_fit(new * unit) for unit in (1, 16)
    )
    pairs = [[3, 7], [20, 40], [300, 5]]
    assert np.allclose(other.predict(pairs), 16 * one.predict(pairs), rtol=1e-3)  # the same in other units
    few = HogwildFactorizer(4, random_state=0, n_jobs=1).partial_fit(train)
    once = HogwildFactorizer(4, random_state=0, n_jobs=1, max_iter=1).fit(train)
    assert np.array_equal(few.user_factors_, once.user_factors_)
    unknown = hogwild.Ratings([0], [-1], [1.0], (300, 80))
    with pytest.raises(ValueError, match="unknown item"):
        few.partial_fit(unknown)


def test_features_rank_items_without_ratings(ratings: Any) -> None:
    train = ratings[0].tolil()
    train[:, 40:] = 0  # half of the items become new
    train = scipy.sparse.csr_array(train)
    genres = scipy.sparse.csr_array(np.arange(80)[:, None] % 4 == np.arange(4)).astype(float)
    model = HogwildFactorizer(4, loss="log", random_state=0, max_iter=3).fit(train, item_features=genres)
    factors = model.components_.T
    assert np.allclose(factors[40:], np.tile(factors[40:44], (10, 1)))  # nothing but their features
    for wrong in (np.eye(2), np.empty((80, 0))):
        shape = r"\({}, {}\)".format(*wrong.shape)
        with pytest.raises(
            ValueError, match=f"item features need numbers for 80 items.*; got float64 of shape {shape}"
        ):
            model.fit(train, item_features=wrong)


def test_errors_are_one_line(model: Any) -> None:
    with pytest.raises(ValueError, match="X is dense"):
        HogwildFactorizer().fit(np.eye(3))
    with pytest.raises(ValueError, match="no ratings to evaluate"):
        model.score(scipy.sparse.csr_array((300, 80)))
    for name, wrong in (("alpha", -1), ("eta0", 0), ("n_components", 0), ("max_iter", 0.5)):
        with pytest.raises(UsageError, match=f"^{name}={wrong}: expected"):
            HogwildFactorizer(**{name: wrong}).fit(scipy.sparse.csr_array(np.eye(3)))
    with pytest.raises(UsageError, match="loss 'hinge'|loss='hinge'"):
        HogwildFactorizer(loss="hinge").fit(scipy.sparse.csr_array(np.eye(3)))
    with pytest.raises(UsageError, match="expected whole numbers"):
        model.predict([0.5, 1.0])
    with pytest.raises(ValueError, match="no ratings"):
        HogwildFactorizer().fit(scipy.sparse.csr_array((3, 3)))


def test_a_step_that_is_too_large_is_called_by_its_name(ratings: Any) -> None:
    with pytest.raises(TrainingError, match=r"^diverged in epoch .* try an eta0 below 1e\+10$"):
        HogwildFactorizer(2, eta0=1e10).fit(ratings[0])
    with pytest.raises(UsageError, match="^alpha='auto': expected a finite number"):
        HogwildFactorizer(alpha="auto").fit(ratings[0])
    with pytest.raises(UsageError, match="verbose='loud'"):
        HogwildFactorizer(2, verbose="loud").fit(ratings[0])


def test_ratings_with_names_are_matched_by_name() -> None:
    random = np.random.default_rng(0)
    cells = random.permutation(300)[:200]
    users, items = cells // 15, cells % 15
    values = 1.0 + users % 2 + items % 3
    names = [Ids([f"{side}{k}" for k in range(size)]) for side, size in (("u", 20), ("i", 15))]
    ratings = hogwild.Ratings(users, items, values, (20, 15), user_ids=names[0], item_ids=names[1])
    model = HogwildFactorizer(2, random_state=0).fit(ratings)
    assert model.score(ratings) > -0.5
    later = ratings.select(np.flatnonzero(items >= 5))
    few = Ids([f"i{k}" for k in range(5, 15)])
    alike = hogwild.Ratings(later.users, later.items - 5, later.values, (20, 10), user_ids=names[0], item_ids=few)
    np.testing.assert_array_equal(model.transform(alike), model.transform(later))
    with pytest.raises(ValueError, match="X has 21 rows for the 20 users with names: a matrix cannot name new ones"):
        model.partial_fit(scipy.sparse.csr_array(np.ones((21, 15))))
