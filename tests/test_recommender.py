"""The factorisation as a model: predictions, recommendations and similar items beside twins; files; metrics."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import scipy.sparse

import hogwild
from hogwild.config import TrainConfig
from hogwild.data.ratings.container import Ids, Ratings
from hogwild.errors import HogwildWarning, InputError, NoChoice, UsageError
from hogwild.kernels import cache
from hogwild.problems.completion import training
from hogwild.problems.completion.folding import DRAWS, fold_in
from hogwild.problems.completion.model import CompletionModel, evaluate_completion
from hogwild.problems.completion.objective import RatingEvaluator, draw_negatives

USERS, ITEMS = 8, 6
NAMES = Ids([f"user {u}" for u in range(USERS)]), Ids(np.arange(ITEMS) * 10)


def make(named=True, seed=0, loss="squared-error", users=USERS, items=ITEMS, rank=3, **rest):
    random = np.random.default_rng(seed)
    shapes = (users, rank), (items, rank), (users,), (items,)
    arrays = [random.integers(-3, 4, shape).astype(np.float32) for shape in shapes]  # small whole numbers: exact, ties
    ids = dict(zip(("user_ids", "item_ids"), NAMES, strict=True)) if named else {}
    return CompletionModel(*arrays, 3.5, loss, **ids, **rest)


def score(model, u, i):
    p = float(model.user_factors[u].astype(float) @ model.item_factors[i]) if min(u, i) >= 0 else 0.0
    return 3.5 + p + (model.user_bias[u] if u >= 0 else 0) + (model.item_bias[i] if i >= 0 else 0)


# -- predictions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [False, True])
def test_predictions(named):
    model = make(named)
    users = NAMES[0].names() if named else np.arange(USERS)
    items = NAMES[1].names() if named else np.arange(ITEMS)
    found = model.predict(users[:, None], items[None, :])
    assert found.dtype == np.float64
    assert found.tolist() == [[score(model, u, i) for i in range(ITEMS)] for u in range(USERS)]
    assert model.predict(users[2], items[4]) == score(model, 2, 4)
    assert model.predict(users[2], items).tolist() == found[2].tolist()
    assert model.predict(users[:0], items[:0]).shape == (0,)


def test_unknown_ones_fall_back():
    model = make()
    with pytest.warns(HogwildWarning, match=r"^2 of 3 pairs have a user or item that the model does not know") as told:
        found = model.predict(["user 1", "nobody", "nobody"], [20, 20, 7])
    assert found.tolist() == [score(model, 1, 2), score(model, -1, 2), 3.5]
    assert told[0].filename == __file__
    with pytest.warns(HogwildWarning, match="1 of 1 pairs"):
        assert make(named=False).predict(0, ITEMS) == score(model, 0, -1)


def test_pairs_that_are_none():
    with pytest.raises(UsageError, match=r"users of shape \(2,\) and items of shape \(3,\) do not make pairs"):
        make().predict(["user 1", "user 2"], [0, 10, 20])
    with pytest.raises(UsageError, match="have no names: ask for them by number"):
        make(named=False).predict("user 1", 0)
    assert make(named=False).predict_one({"user": np.int64(1), "item": 0}) == make(named=False).predict(1, 0)


# -- recommendations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "n"), [(0, 1), (1, 3), (2, ITEMS), (3, 50)])
def test_recommendations_beside_a_sort(seed, n):
    model, random = make(seed=seed), np.random.default_rng(seed)
    seen = Ratings(random.integers(0, USERS, 15), random.integers(0, ITEMS, 15), np.ones(15), (USERS, ITEMS))
    seen.user_ids, seen.item_ids = NAMES
    asked = random.permutation(USERS)[:5]
    items, scores = model.recommend(NAMES[0].names(asked), n, seen)
    assert items.shape == scores.shape == (5, min(n, ITEMS))
    for row, user in enumerate(asked.tolist()):
        left = [item for item in range(ITEMS) if item not in seen.items[seen.users == user]]
        best = sorted(left, key=lambda item: (-score(model, user, item), item))[:n]
        short = min(n, ITEMS) - len(best)
        assert items[row].tolist() == [10 * item for item in best] + [-1] * short
        assert scores[row].tolist() == [score(model, user, item) for item in best] + [-np.inf] * short


def test_nothing_is_left_to_recommend():
    model = dataclasses.replace(make(), item_ids=Ids(list("abcdef")))
    seen = Ratings(
        [0] * ITEMS, range(ITEMS), [1] * ITEMS, (1, ITEMS), user_ids=Ids(["user 3"]), item_ids=Ids(list("fedcba"))
    )
    items, scores = model.recommend(["user 3", "user 4"], 2, seen)
    assert items[0].tolist() == ["", ""]
    assert scores[0].tolist() == [-np.inf] * 2
    assert set(items[1]) <= set("abcdef")


@pytest.mark.parametrize("n", [3, 50])
def test_similar_items_beside_cosines(n):
    model = make(named=False, seed=3)
    factors = np.array(model.item_factors)
    factors[4] = 0.0
    factors[5] = 2 * factors[1]
    model = dataclasses.replace(model, item_factors=factors)
    items, near = model.similar_items(range(ITEMS), n)
    length = np.maximum(np.sqrt((factors.astype(float) ** 2).sum(axis=1)), 1e-9)
    cosine = (factors.astype(float) @ factors.T / length[:, None] / length).astype(np.float32)
    for item in range(ITEMS):
        others = [other for other in range(ITEMS) if other != item]
        assert item not in items[item]
        assert len(items[item]) == min(n, ITEMS - 1)
        assert near[item] == pytest.approx(sorted(cosine[item, others].tolist(), reverse=True)[:n], abs=1e-6)
        assert cosine[item, items[item]] == pytest.approx(near[item], abs=1e-6)
    assert items[1, 0] == 5
    assert not near[4].any()


def test_questions_that_cannot_be_answered():
    with pytest.raises(InputError, match="item 7: the model does not know it"):
        make().similar_items([10, 7])
    assert make(named=False, items=1).similar_items([0])[0].shape == (1, 0)
    for ask in (make().similar_items, make().recommend):
        with pytest.raises(UsageError, match="n=0: expected at least 1"):
            ask([10], 0)
        with pytest.raises(UsageError, match="expected one dimension"):
            ask([[10, 20]])


@pytest.mark.parametrize(
    ("loss", "penalty"),
    [
        ("squared-error", "smoothed"),
        ("squared-error", "per-row"),  # of models that earlier versions trained
        *((loss, "per-rating") for loss in ("squared-error", "log", "bpr")),
    ],
)
def test_a_stranger_with_a_history_gets_factors(loss, penalty):
    """Those that minimise the user's part of the objective, items drawn against the choices included."""
    model = make(False, loss=loss, items=40, penalty=penalty, ridge=(0.3, 0.2), config={"negatives": 2})
    model = dataclasses.replace(model, mean=0.0, item_factors=model.item_factors / 4, item_bias=model.item_bias / 4)
    n, ratings = 12, Ratings([1] * 12, range(12), np.linspace(0, 5, 12), (2, 40))
    users, (p,), (b,) = fold_in(model, ratings)
    assert users.tolist() == [1]  # who rated nothing is left out
    q, c = model.item_factors.astype(float), model.item_bias.astype(float)
    drawn = draw_negatives(ratings.users, 2 * DRAWS, 40, ratings.user_lists())

    def objective(theta):
        m = theta[3] + c + q @ theta[:3]
        if loss == "squared-error":
            terms, visits = np.square(m[:12] - ratings.values).sum() / 2, n
        elif loss == "log":
            terms, visits = np.logaddexp(0, -m[:12]).sum() + np.logaddexp(0, m[drawn]).sum() / DRAWS, 3 * n
        else:
            terms, visits = np.logaddexp(0, m[drawn] - m[:12, None]).sum() / DRAWS, 3 * n
        visits = 1 if penalty == "per-row" else visits + 100 * (penalty == "smoothed")
        return terms + visits / 2 * (0.3 * theta[:3] @ theta[:3] + 0.2 * theta[3] ** 2)

    best = scipy.optimize.minimize(objective, np.zeros(4), tol=1e-10)
    assert [*p, b] == pytest.approx(best.x, abs=2e-3)


def test_strangers_to_a_model_without_biases_get_the_first_items():
    model = dataclasses.replace(make(), item_bias=np.zeros(ITEMS))
    with pytest.warns(HogwildWarning, match="1 of 1 users are not known: they get the items that come first"):
        assert model.recommend(["z"], 2)[0].tolist() == [[0, 10]]


def test_recommendations_for_strangers_with_a_history():
    model, rng = make(), np.random.default_rng(0)
    names = Ids(["user 3", "x", "nobody", "y"]), Ids([30, 77, 0, 10])
    seen = Ratings([0, 1, 1, 3], [0, 0, 2, 1], rng.random(4), (4, 4), None, *names)  # y rated an unknown item only
    with pytest.warns(HogwildWarning, match="2 of 4 users are not known"):
        items, scores = model.recommend(["x", "user 3", "y", "z"], ITEMS, seen)
    users, p, b = fold_in(model, seen, np.arange(4) < 3)
    assert users.tolist() == [0, 1]
    expected = 3.5 + b[1] + model.item_bias + model.item_factors @ p[1]
    left = sorted({1, 2, 4, 5}, key=lambda item: -expected[item])
    assert items[0].tolist() == [10 * item for item in left] + [-1, -1]
    assert scores[0, :4] == pytest.approx(expected[left], abs=1e-5)
    assert items[1].tolist() == [*[i for i in model.recommend("user 3", ITEMS)[0][0] if i != 30], -1]
    liked = sorted(range(ITEMS), key=lambda item: (-model.item_bias[item], item))
    assert items[2].tolist() == items[3].tolist() == [10 * item for item in liked]
    assert scores[3].tolist() == [score(model, -1, item) for item in liked]
    larger = model.with_users(seen)
    assert larger.shape == (USERS + 1, ITEMS)
    assert larger.recommend(["x"], 4, seen)[0][0].tolist() == items[0, :4].tolist()
    assert model.with_users(seen, ["user 3", "z"]) is model


# -- what it is made of -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"user_factors": np.ones(3)}, "user_factors of shape"),
        ({"item_factors": np.ones((ITEMS, 4))}, "users have 3 factors and items 4"),
        ({"user_bias": np.ones(3)}, "user_bias of shape"),
        ({"item_bias": np.full(ITEMS, np.nan)}, "item_bias: entry 0 is not finite"),
        ({"mean": float("inf")}, "mean inf"),
        ({"loss": "hinge"}, "loss 'hinge': expected one of squared-error, log, bpr"),
        ({"penalty": "l1"}, "penalty 'l1'"),
        ({"user_ids": Ids([1])}, "1 ids for 8 users"),
    ],
)
def test_what_it_refuses(change, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(make(), **change)


def test_it_is_a_copy_that_stays():
    factors = np.ones((USERS, 3), np.float32)
    model = dataclasses.replace(make(), user_factors=factors)
    factors[:] = 7
    history = [{"epoch": 0, "objective": 9.0}, {"epoch": 1, "objective": 0.5}]
    assert repr(model) == "<CompletionModel: squared-error, 8 users, 6 items, rank 3>"
    assert repr(make(history=history)).endswith(", rank 3, epoch 1, objective 0.5>")
    assert model.user_factors.max() == 1
    assert not model.user_factors.flags.writeable
    assert (model.shape, model.rank) == ((USERS, ITEMS), 3)


@pytest.mark.parametrize("named", [False, True])
def test_files(named):
    model = make(
        named, config={"rank": 3}, fingerprint="abc", history=[{"epoch": 1}], penalty="per-row", ridge=(2.5, 3.0)
    )
    arrays, header = model.to_file()
    assert all(array.dtype != object for array in arrays.values())
    again = CompletionModel.from_file({k: v.copy() for k, v in arrays.items()}, json.loads(json.dumps(header)), "x")
    for field in dataclasses.fields(CompletionModel):
        a, b = getattr(model, field.name), getattr(again, field.name)
        assert np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b, field.name


def test_it_opens_without_numba_and_never_needs_torch():
    code = (
        "import sys; sys.modules['torch'] = None; import numpy as np\n"
        "from hogwild.problems.completion.model import CompletionModel\n"
        "m = CompletionModel(np.ones((2, 1)), np.ones((3, 1)), np.zeros(2), np.zeros(3))\n"
        "assert 'numba' not in sys.modules\n"
        "assert m.predict(0, 1) == 1 and m.recommend([0], 2)[0].tolist() == [[0, 1]]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


# -- metrics ----------------------------------------------------------------------------------------------------------


def test_ratings_of_others_are_matched_by_name():
    model = make()
    ratings = Ratings([0, 1, 1], [1, 0, 1], [1, 2, 3], (2, 2), None, Ids(["user 2", "zz"]), Ids([50, 0]))
    with pytest.warns(HogwildWarning, match="2 of 3 pairs"):
        found = evaluate_completion(model, ratings)
    errors = [score(model, 2, 0) - 1, score(model, -1, 5) - 2, score(model, -1, 0) - 3]
    assert found == {
        "ratings": 3,
        "unknown": 2,
        "rmse": pytest.approx(np.sqrt(np.mean(np.square(errors)))),
        "mae": pytest.approx(np.mean(np.abs(errors))),
    }
    with pytest.raises(InputError, match="no ratings to evaluate"):
        evaluate_completion(model, ratings.block(0, 0))
    nobodys = Ratings([0, -1], [1, -1], [1, 1], (2, 2), None, Ids(["user 2", "user 3"]), Ids([50, 0]), check=False)
    assert [model.place(nobodys).users.tolist(), model.place(nobodys).items.tolist()] == [[2, -1], [0, -1]]


def test_choices_are_ranked_as_in_training():
    model = make(loss="bpr", users=30, items=25, named=False)
    random = np.random.default_rng(0)
    ratings = Ratings(random.integers(0, 30, 200), random.integers(0, 25, 200), np.ones(200), (30, 25))
    train, test = ratings.split(0.3)
    found = evaluate_completion(model, test, train)
    solution = model.user_factors, model.item_factors, model.user_bias, model.item_bias
    expected = RatingEvaluator(train, test, "bpr")(solution)
    assert list(found) == [
        "ratings",
        "unknown",
        "auc",
        "precision_at_10",
        "recall_at_10",
        "ndcg_at_10",
        "coverage_at_10",
        "popular_ndcg_at_10",
    ]
    assert all(found[name] == expected[f"test_{name}"] for name in list(found)[2:6])
    counts = np.bincount(train.items, minlength=25)
    popular = dataclasses.replace(model, user_factors=0 * model.user_factors, item_bias=counts)
    tested = [user for user in range(30) if user in test.users]
    best, scores = model.recommend(tested, 10, train)
    assert found["coverage_at_10"] == len({*best[scores > -np.inf].tolist()}) / 25
    assert found["popular_ndcg_at_10"] == evaluate_completion(popular, test, train)["ndcg_at_10"]
    assert "popular_ndcg_at_10" not in evaluate_completion(model, test)


# -- the penalty and the epochs that are chosen -----------------------------------------------------------------------


def made(users=120, items=60):
    """Choices by two tastes, and stars, with more noise than structure."""
    random = np.random.default_rng(0)
    u, i = np.divmod(random.permutation(users * items), items)
    taste = (u % 2 == i % 2) * 1.0
    kept = np.flatnonzero(random.random(len(u)) < 0.1 + 0.6 * taste)
    return Ratings(u[kept], i[kept], 3 + taste[kept] + random.standard_normal(len(kept)), (users, items))


@pytest.mark.parametrize(("loss", "metric", "best"), [("log", "ndcg_at_10", max), ("squared-error", "rmse", min)])
def test_l2_and_the_epochs_are_those_of_the_best_held_out_metric(loss, metric, best, tmp_path):
    ratings, told = made(), []
    options = {"problem": "completion", "loss": loss, "l2": "0.001,0.02,9", "rank": 8, "workers": 1, "epochs": 8}
    run = hogwild.train(ratings, report=told.append, checkpoint=tmp_path, **options)
    worth = {each["l2"]: each[f"held_out_{metric}"] for each in run.chosen.path}
    assert list(worth) == [0.001, 0.02, 9]
    near = training.NEAR_NDCG if loss == "log" else training.NEAR_RMSE
    l2 = max(l2 for l2 in worth if abs(worth[l2] / best(worth.values()) - 1) <= near)  # the strongest of the good ones
    assert (run.config.l2, run.chosen.refitted) == (l2, True)
    assert run.chosen.rows + run.chosen.held_out == len(ratings) == run.engine.job.order.n_rows  # trained on all
    epochs = next(each["best_epoch"] for each in run.chosen.path if each["l2"] == l2)
    assert (told[0], told[15]) == (
        "epoch 1, 3 of 3 candidates",
        f"epoch 16, {2 if loss == 'log' else 3} of 3 candidates",
    )
    model = run.finish()
    assert run.history[-1]["epoch"] == epochs <= 8
    given = hogwild.train(ratings, **options | {"l2": l2, "epochs": epochs}).finish()
    assert given.user_factors.tobytes() == model.user_factors.tobytes()  # as if they had been given
    again = hogwild.train(ratings, checkpoint=tmp_path, resume=True, **options)
    assert (again.config.l2, again.config.epochs, again.chosen) == (l2, epochs, None)
    with pytest.raises(InputError, match=f"l2 was {l2}, which is not to choose now"):
        hogwild.train(ratings, checkpoint=tmp_path, resume=True, **options | {"l2": "3,4"})


@pytest.mark.parametrize(
    ("worth", "fits", "l2"),
    [
        ((0.3, 0.1, 0.298, 0.2), [(10, 0.3), (5, 0.1)], 0.01),  # at epoch 10 it is nearly as good as at 5
        ((0.3, 0.298, 0.29), [(5, 0.3), (5, 0.298)], 0.02),  # of two that are nearly as good, the stronger penalty
    ],
)
def test_a_fit_goes_on_while_it_is_nearly_as_good(worth, fits, l2, monkeypatch):
    def compiles(*_, **__):
        time.sleep(0.25)
        cache.compiling_seconds += 0.25
        return {"ndcg_at_10": next(values)}

    values = iter(worth)
    monkeypatch.setattr(training, "ranking_metrics", compiles)
    run = hogwild.train(made(), problem="completion", loss="log", l2="0.01,0.02", rank=2, workers=1, epochs=20)
    assert [(each["best_epoch"], each["held_out_ndcg_at_10"]) for each in run.chosen.path] == fits
    assert (run.config.l2, run.config.epochs) == (l2, fits[l2 == 0.02][0])
    assert not list(values)
    assert (run.chosen.seconds > 0, run.stopwatch.spent("compiling") > 0.24) == (True, True)
    run.close()


def test_ratings_that_were_held_out_choose():
    rest, held = made().split(0.2, by="user")
    run = hogwild.train(rest, held, problem="completion", loss="bpr", l2="auto", rank=4, workers=1, epochs=3)
    assert (run.chosen.rows, run.chosen.held_out, run.chosen.refitted) == (len(rest), len(held), False)
    tried = [(each["l2"], round(each["step"], 3)) for each in run.chosen.path]
    assert tried == [(0.01, 0.07), (0.02, 0.07), (0.02, 0.21), (0.04, 0.35)]
    assert (run.config.l2, run.config.step) in [(each["l2"], each["step"]) for each in run.chosen.path]
    run.close()
    run = hogwild.train(rest, held, problem="completion", loss="bpr", l2="auto", step=0.1, rank=4, workers=1, epochs=1)
    assert [(each["l2"], each["step"]) for each in run.chosen.path] == [(0.01, 0.1), (0.02, 0.1), (0.04, 0.1)]
    run.close()


def test_what_no_l2_is_chosen_by():
    few = Ratings(np.repeat(np.arange(30), 5), np.tile(np.arange(5), 30), np.ones(150), (30, 9))
    with pytest.raises(NoChoice, match="no user has six ratings"):
        hogwild.train(few, problem="completion", loss="log", l2="auto")
    with pytest.raises(NoChoice, match="every candidate for l2 diverged"):
        hogwild.train(made(), problem="completion", l2="auto", step=1e6, workers=1)
    for options, message in (
        ({"l2": "auto", "machines": 2}, "chosen on one machine"),
        ({"penalty": "smoothed", "loss": "log"}, "choose per-rating"),
    ):
        with pytest.raises(UsageError, match=message):
            hogwild.TrainConfig(problem="completion", **options)


def test_biases_alone_win_where_there_is_nothing_else():
    random = np.random.default_rng(0)
    u, i = np.repeat(np.arange(300), 150), random.integers(0, 600, 45_000)
    values = 3 + 0.4 * random.standard_normal(300)[u] + 0.4 * random.standard_normal(600)[i]
    values += random.standard_normal(45_000)
    ratings, options = Ratings(u, i, values, (300, 600)), {"problem": "completion", "rank": 16, "workers": 1}
    run = hogwild.train(ratings, l2="auto", **options)
    model = run.finish()
    assert [each["rank"] for each in run.chosen.path] == [16, 16, 16, 16, 0]
    assert (run.config.rank, model.rank) == (0, 0)
    assert run.chosen.value(0.03) <= (1 + training.NEAR_RMSE) * min(each["held_out_rmse"] for each in run.chosen.path)
    on_gpu = TrainConfig(problem="completion", l2="auto", device="cuda")
    assert {rank for _, _, rank in on_gpu.candidates} == {32}  # which has no kernel of biases alone
    again = CompletionModel.from_file(*model.to_file(), "x")
    assert again.predict(3, 5) == pytest.approx(model.mean + model.user_bias[3] + model.item_bias[5])
    best, _ = model.recommend([0, 1], 3)
    assert best.tolist() == [np.argsort(-model.item_bias)[:3].tolist()] * 2
    named = hogwild.train(ratings, l2="0.03,0.06", epochs=2, **options)  # values somebody gave are all there are
    assert [each["rank"] for each in named.chosen.path] == [16, 16]
    named.close()
    factorizer = hogwild.HogwildFactorizer(16, early_stopping=True, n_jobs=1, random_state=0)
    assert not factorizer.fit_transform(scipy.sparse.coo_array((values, (u, i)), shape=(300, 600))).any()
    assert factorizer.components_.shape == (16, 600)
    with pytest.raises(UsageError, match="rank=0 leaves biases alone"):
        hogwild.TrainConfig(problem="completion", rank=0, biases=False)


# -- side features ----------------------------------------------------------------------------------------------------


def with_genres(loss, users=150, items=80, seed=0):
    """Choices by genre, or stars, and none of a fifth of the items; genres as a frame; tastes and genres as numbers."""
    random = np.random.default_rng(seed)
    genres, tastes = random.integers(0, 4, items), random.integers(0, 4, users)
    u, i = np.divmod(random.permutation(users * items), items)
    same = tastes[u] == genres[i]
    rated = (random.random(len(u)) < (0.2 if loss == "squared-error" else 0.02 + 0.3 * same)) & (i % 5 > 0)
    frame = pd.DataFrame({"item": [f"i{i}" for i in range(items)], "genre": [f"g{g}" for g in genres]})
    names = Ids([f"u{u}" for u in range(users)]), Ids([f"i{i}" for i in range(items) if i % 5])
    place = np.cumsum(np.arange(items) % 5 > 0) - 1
    shape = users, len(names[1])
    ratings = Ratings(u[rated], place[i[rated]], 2.0 + 2 * same[rated], shape, None, *names)
    return ratings, frame, tastes, genres


@pytest.mark.parametrize("loss", ["log", "bpr", "squared-error"])
def test_items_without_ratings_are_ranked_by_their_features(loss):
    ratings, frame, tastes, genres = with_genres(loss)
    rest, held = ratings.with_features(items=frame).split(0.1, by="user")
    assert rest.shape == (150, 80)
    run = hogwild.train(rest, held, problem="completion", loss=loss, rank=8, workers=1, epochs=20, l2=0.01)
    model = run.finish()
    users, cold = ([f"{side}{n}" for n in numbers] for side, numbers in (("u", range(150)), ("i", range(0, 80, 5))))
    scores = model.predict(np.array(users, object)[:, None], np.array(cold, object)[None, :])
    right = tastes[:, None] == genres[None, ::5]
    assert scores[right].mean() > scores[~right].mean() + 1.5 * scores[~right].std()
    assert CompletionModel.from_file(*model.to_file(), "x").shape == (150, 80)
    with pytest.raises(UsageError, match="side features need discipline serial or hogwild"):
        hogwild.train(rest, problem="completion", workers=2, discipline="aig")


def test_users_without_ratings_and_the_choice_of_l2(tmp_path):
    ratings, _, tastes, _ = with_genres("log")
    frame = pd.DataFrame({"user": [*range(150), 999], "taste": [*tastes, tastes[0]]})
    frame["user"] = "u" + frame["user"].astype(str)
    featured = ratings.with_features(users=frame)
    options = {"problem": "completion", "loss": "log", "l2": "auto", "rank": 4, "workers": 1, "epochs": 6}
    run = hogwild.train(featured, checkpoint=tmp_path, **options)
    model = run.finish()
    items, _ = model.recommend(["u999"], 5)
    other, _ = model.recommend([f"u{np.flatnonzero(tastes == tastes[0])[0]}"], 20)
    assert len({*items[0]} & {*other[0]}) >= 4
    with pytest.raises(InputError, match="other data|data"):  # features belong to what a run was trained on
        hogwild.train(ratings, checkpoint=tmp_path, resume=True, **options)
