"""The gradient on all rows, and the last steps of an l1 penalty, against NumPy and scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

import hogwild
from hogwild.compare.reference.gradient import SLOPES
from hogwild.kernels.losses import LOSSES
from hogwild.methods import DEFAULT_PARAM
from hogwild.problems.linear.exact import gradient_kernel as kernels
from hogwild.problems.linear.exact import kinked, newton
from hogwild.problems.linear.exact.bent import bound
from hogwild.problems.linear.exact.ending import CODES, Ending, ending_of
from hogwild.problems.linear.exact.improve import improved
from hogwild.problems.linear.exact.settle import settled
from hogwild.problems.linear.objective import Objective

LABELLED = ("log", "hinge", "squared-hinge", "modified-huber", "perceptron", "softmax")


def problem(loss: str, classes: int = 1, n: int = 150, width: int = 12) -> dict[str, Any]:
    random = np.random.default_rng(3)
    X = random.normal(size=(n, width)) * (random.random((n, width)) < 0.5)
    w = random.normal(size=(classes, width)).astype(np.float32) * (random.random((classes, width)) < 0.7)
    y = np.where(X[:, 0] + random.normal(size=n) > 0, 1.0, -1.0)
    y = y if loss in LABELLED else np.abs(random.normal(size=n)) if loss == "poisson" else random.normal(size=n)
    y = random.integers(0, classes, n).astype(float) if classes > 1 else y
    return {"X": X, "y": y, "w": w, "b": random.normal(size=classes).astype(np.float32), "weights": random.random(n)}


def ending(about: dict[str, Any], loss: str, l1: float = 0.0, l2: float = 0.0, intercept: bool = True) -> Ending:
    rows = hogwild.Rows.from_scipy(scipy.sparse.csr_matrix(about["X"]), about["y"])
    return Ending(rows, loss, DEFAULT_PARAM.get(loss, 0.0), l1, l2, about["y"], about["weights"], None, intercept)


@pytest.mark.parametrize("loss", sorted(set(SLOPES) & set(LOSSES)))
@pytest.mark.parametrize("l1", [0.0, 0.05])
def test_gradient_of_a_loss(loss: str, l1: float) -> None:
    about = problem(loss)
    X, y, w, b = about["X"], about["y"], about["w"][0].astype(float), float(about["b"][0])
    _, slopes = SLOPES[loss](X @ w + b, y, DEFAULT_PARAM.get(loss, 0.0), 0.0)
    slopes = slopes * about["weights"] / len(y)
    g = X.T @ slopes + 0.1 * w
    g = np.where(w != 0, g + l1 * np.sign(w), np.sign(g) * np.maximum(np.abs(g) - l1, 0))
    end = ending(about, loss, l1, 0.1)
    found = end._norm(about["w"].astype(float), end.local(about["w"].astype(float), about["b"]).here)
    np.testing.assert_allclose(found, np.hypot(np.linalg.norm(g), slopes.sum()), rtol=1e-6)


@pytest.mark.parametrize("loss", ["log", "softmax"])
def test_gradient_of_classes_is_that_of_the_objective(loss: str) -> None:
    about = problem(loss, classes=3)
    end, w, b = ending(about, loss, l2=0.1), about["w"].astype(float), about["b"].astype(float)
    g, of_intercept = end.local(w, b).here
    for k, u in ((0, 0), (1, 5), (2, 11)):
        ahead, behind = w.copy(), w.copy()
        ahead[k, u] += 1e-5
        behind[k, u] -= 1e-5
        np.testing.assert_allclose(g[u, k], (end.objective(ahead, b) - end.objective(behind, b)) / 2e-5, rtol=1e-5)
    shifted = [end.objective(w, b + side * np.eye(3)[1]) for side in (1e-5, -1e-5)]
    np.testing.assert_allclose(of_intercept[1], (shifted[0] - shifted[1]) / 2e-5, rtol=1e-5)


@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("classes", [1, 3])
def test_the_steps_of_an_l1_penalty_never_raise_the_objective(loss: str, classes: int) -> None:
    if (loss == "softmax" and classes == 1) or (classes > 1 and loss not in LABELLED):
        pytest.skip("there is no such model")
    about = problem(loss, classes)
    labels = tuple(np.unique(about["y"])) if loss in LABELLED else ()
    rows = hogwild.Rows.from_scipy(about["X"], about["y"])
    weights = (about["weights"] / about["weights"].mean()).astype(np.float32)
    judge = Objective(rows, loss, l1=0.05, l2=0.01, labels=labels, weights=weights)
    coef = about["w"] if classes > 1 else about["w"][0]
    found, _ = settled(ending(about | {"weights": weights}, loss, 0.05, 0.01), coef, about["b"])
    values = [judge.evaluate(*solution)["objective"] for solution in ((coef, about["b"]), found)]
    assert found[0].shape == coef.shape
    assert found[0].dtype == np.float32
    assert values[1] <= values[0] * (1 + 1e-7)
    if loss not in ("hinge", "perceptron", "epsilon-insensitive", "softmax"):
        assert values[1] < values[0]


@pytest.mark.parametrize("loss", ["log", "squared-hinge", "softmax", "hinge", "squared-error", "poisson"])
def test_exact_steps_reach_the_optimum(loss: str) -> None:
    """Nearly separable rows with columns of other scales and far from zero, from zero weights, held against scipy."""
    from scipy.optimize import minimize
    from sklearn.svm import SVC

    about = problem(loss, classes=3 if loss == "softmax" else 1, n=80, width=5)
    about["X"][:, 0] = 1000.0 + about["X"][:, 0]
    about["X"][:, 1] /= 1000.0
    rows, classes = hogwild.Rows.from_scipy(about["X"], about["y"]), len(about["b"])
    labels = tuple(np.unique(about["y"])) if loss in LABELLED else ()
    judge = Objective(rows, loss, l2=1e-4, labels=labels)
    zero = np.zeros((classes, 5) if classes > 1 else 5, np.float32), np.zeros(classes, np.float32)
    start = judge.evaluate(*zero)["objective"]
    (coef, intercept), left = improved(ending_of(judge, rows, classes, True), *zero, start)
    found = judge.evaluate(coef, intercept)["objective"]

    if loss == "hinge":
        theirs = SVC(kernel="linear", C=1 / (80 * 1e-4), tol=1e-6).fit(about["X"], about["y"])
        best = judge.evaluate(np.ravel(theirs.coef_), theirs.intercept_)["objective"]
    else:

        def value(flat: np.ndarray) -> float:
            W = flat.reshape(classes, 6)
            return float(judge.evaluate(W[:, :5] if classes > 1 else W[0, :5], W[:, 5] - 1000 * W[:, 0])["objective"])

        best = minimize(value, np.zeros(classes * 6), method="BFGS", options={"maxiter": 2000}).fun
    assert left is not None
    assert left <= (0.006 if loss == "hinge" else 0.0)
    assert found < start
    assert found <= 1.01 * best


@pytest.mark.parametrize(("intercept", "classes", "scaled"), [(True, 1, False), (False, 1, True), (True, 3, True)])
def test_dual_ascent_of_hinge_reaches_the_optimum_and_bounds_it(
    intercept: bool, classes: int, scaled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sklearn.svm import SVC

    about, l2 = problem("hinge", classes), 1e-3
    X, scales = about["X"], 0.5 + np.random.default_rng(1).random(150) if scaled else np.ones(150)
    best = 0.0
    for k in range(classes):
        y = np.where(about["y"] == k, 1.0, -1.0) if classes > 1 else about["y"]
        Z = (
            X * scales[:, None]
            if intercept
            else np.vstack((X * scales[:, None],) * 2) * np.repeat((1, -1), 150)[:, None]
        )
        both = (y, about["weights"]) if intercept else (np.append(y, -y), np.append(about["weights"], about["weights"]))
        theirs = SVC(kernel="linear", C=1 / (len(Z) * l2), tol=1e-8).fit(Z, both[0], both[1])  # mirrored rows: b = 0
        z = both[0] * (Z @ np.ravel(theirs.coef_) + theirs.intercept_)
        best += np.mean(both[1] * np.maximum(1 - z, 0)) + l2 / 2 * np.square(theirs.coef_).sum()
    end = ending(about, "hinge", l2=l2, intercept=intercept)
    end.scales = scales if scaled else None
    monkeypatch.setattr(kinked, "BENT_PASSES", np.inf)
    monkeypatch.setattr(newton, "FEATURES", 0)
    zero = np.zeros((classes, 12), np.float32), np.zeros(classes, np.float32)
    found, left = improved(end, *zero, end.objective(*zero))
    value = end.objective(*found)
    assert left is not None
    assert value * (1 - left) <= best * (1 + 1e-6)
    assert best * (1 - 1e-6) <= value <= best * 1.006
    assert left <= 0.006
    assert not (found[1].any() and not intercept)


def test_dual_ascent_that_is_not_at_its_end_lengthens_weights_and_sees_rows_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = np.random.default_rng(0)
    X = np.floor(random.pareto(1.1, (300, 500)) * (random.random((300, 500)) < 0.2)).clip(max=300)  # counts of words
    near = X.clip(max=3)[:, :80] @ np.repeat([1, -1], 40) + 3 * random.normal(size=300)
    end = ending({"X": X, "y": np.where(near > 0, 1.0, -1.0), "weights": None}, "hinge", l2=1e-5)

    def reached() -> float:
        ascent = kinked._Ascent(end)
        ascent.run(400 * end.rows.nnz)
        found = end.objective(ascent.best_w[None], np.array([ascent.best_b]))
        assert found == pytest.approx(ascent.value)
        return found / ascent.lower

    assert (whole := reached()) < 2
    monkeypatch.setattr(kinked, "LATE", np.inf)
    assert (without := reached()) > 1.05 * whole
    monkeypatch.setattr(kinked, "LONGER", (1.0,))
    assert reached() > 10 * without


def test_rounding_to_float32_leaves_no_loss_where_the_objective_is_tiny() -> None:
    X, y = np.random.default_rng(1).normal(size=(48, 2000)), np.repeat([-1.0, 1.0], 24)
    end, zero = (
        ending({"X": X, "y": y, "weights": None}, "hinge", l2=1e-5),
        (np.zeros((1, 2000), np.float32), np.zeros(1, np.float32)),
    )
    found, left = improved(end, *zero, 1.0)
    assert end.objective(*found) < 1e-6
    assert left is not None
    assert left <= 0.006


@pytest.mark.parametrize("loss", ["hinge", "epsilon-insensitive"])
@pytest.mark.parametrize("l2", [0.0, 1e-4])
def test_steps_on_bent_kinks_reach_the_optimum_and_bound_it(
    loss: str, l2: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the whole Hessian, by conjugate gradients and by dual ascent; columns of scales that this takes long for."""
    about = problem(loss)
    about["X"] *= 10.0 ** np.linspace(-2, 2, 12)
    end, zero = ending(about, loss, l2=l2), (np.zeros((1, 12), np.float32), np.zeros(1, np.float32))
    found = [improved(end, *zero, end.objective(*zero))]
    monkeypatch.setattr(newton, "FEATURES", 0)
    found.append(improved(end, *zero, end.objective(*zero)))
    monkeypatch.setattr(kinked, "BENT_PASSES", np.inf)
    found.append(improved(end, *zero, end.objective(*zero)))
    values = [end.objective(*solution) for solution, _ in found]
    for value, (_, left) in list(zip(values, found))[: 3 if l2 else 2]:
        assert left is not None
        assert value * (1 - left) <= min(values) * 1.001
    assert max(values[:2]) <= 1.006 * min(values)
    assert max(left for _, left in found[:2] if left is not None) <= 0.006


@pytest.mark.parametrize("loss", ["hinge", "epsilon-insensitive"])
def test_the_bound_holds_for_any_slopes(loss: str) -> None:
    """So it holds wherever exact steps have stopped; here those of random margins, and of one row."""
    about, random = problem(loss), np.random.default_rng(4)
    end, zero = ending(about, loss, l2=1e-3), (np.zeros((1, 12), np.float32), np.zeros(1, np.float32))
    solution, left = improved(end, *zero, end.objective(*zero))
    best = end.objective(*solution)
    assert left is not None
    assert left <= 0.006
    for scale in (0.01, 0.3, 3.0, 100.0):
        slopes = end.slopes(scale * random.normal(size=(150, 1)), 0, 150)[:, 0]
        assert 0.0 <= bound(end, slopes) <= best
    assert bound(end, np.where(np.arange(150) == 0, slopes, 0.0)) == 0.0


@pytest.mark.parametrize("loss", ["bent-hinge", "bent-epsilon-insensitive"])
def test_slopes_and_curvatures_of_bent_losses(loss: str) -> None:
    p, y, h = np.linspace(-4.0, 4.0, 81) + 0.013, np.resize((1.3, -0.7), 81), 1e-6
    code, slopes, curvatures = CODES[loss], np.empty(81), np.empty(81)
    kernels.slopes(code, p, y, np.ones(81), 0.4, slopes)
    kernels.curvatures(code, p, y, np.ones(81), 0.4, curvatures)
    values = [
        [kernels.mean_loss(code, p[i : i + 1] + d, y[i : i + 1], np.ones(1), 0.4) for d in (-h, h)] for i in range(81)
    ]
    np.testing.assert_allclose(slopes, np.diff(values, axis=1)[:, 0] / (2 * h), atol=1e-5)
    beside = [np.empty(81), np.empty(81)]
    for d, out in zip((-h, h), beside):
        kernels.slopes(code, p + d, y, np.ones(81), 0.4, out)
    np.testing.assert_allclose(curvatures, (beside[1] - beside[0]) / (2 * h), atol=1e-5)


@pytest.mark.parametrize("loss", ["squared-hinge", "modified-huber"])
def test_wide_separable_rows_end_at_their_optimum(loss: str) -> None:
    """Where SGD has ended every row is beyond its margin, and a model of the loss promises nothing."""
    random = np.random.default_rng(12)
    X = random.normal(size=(60, 400))
    rows = hogwild.Rows.from_scipy(X, np.where(X @ random.normal(size=400) > 0, 1.0, -1.0))
    run = hogwild.train(rows, loss=loss, l2=1e-5, workers=1)
    run.finish()
    case = run._case
    best = case.improved((np.zeros(400, np.float32), np.zeros(1, np.float32)), 1.0)[0]
    assert run.history[-1]["objective"] <= 1.01 * case.evaluate(best)["objective"]
    w = np.ravel(case.solution(run._job.export())[0])
    assert run.history[-1]["objective"] < 1e-5 / 2 * w @ w  # less than the penalty of what SGD has found


def test_weights_of_any_mean_and_steps_that_must_be_short() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(200, 300))
    y = np.where(X @ random.normal(size=300) > 0, 1.0, -1.0)
    rows = hogwild.Rows.from_scipy(X, y)
    run = hogwild.train(rows, loss="squared-hinge", l2=1e-3, workers=1)  # a whole Newton step overshoots
    run.finish()
    found = [ending({"X": X, "y": y, "weights": np.full(200, k)}, "squared-hinge", l2=1e-3 * k) for k in (1.0, 1e4)]
    zero = np.zeros((1, 300)), np.zeros(1)
    ends = [improved(end, *zero, end.objective(*zero))[0] for end in found]
    best = found[0].objective(*ends[0])
    assert found[1].objective(*ends[1]) == pytest.approx(1e4 * best, rel=1e-3)
    assert run.history[-1]["objective"] <= 1.01 * best
    about = problem("hinge")
    hinges = [ending(about | {"weights": np.full(150, k)}, "hinge", l2=1e-3 * k) for k in (1.0, 1e4)]
    zero = np.zeros((1, 12)), np.zeros(1)
    values = [end.objective(*improved(end, *zero, end.objective(*zero))[0]) for end in hinges]
    assert values[1] == pytest.approx(1e4 * values[0], rel=0.01)


def test_counts_whose_objective_is_negative_are_finished_too() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(200, 6)) @ (np.ones((6, 6)) + 0.1 * random.normal(size=(6, 6)))
    y = random.poisson(np.exp(np.clip(2.0 + 0.2 * X[:, 0] - 0.3 * X[:, 1], 0.0, 4.0))).astype(float)
    last, run = (hogwild.train((X, y), loss="poisson", step=1e-4, workers=1, keep=keep) for keep in ("last", None))
    last.finish()
    run.finish()
    ends = [each.history[-1]["objective"] for each in (last, run)]
    assert ends[1] < ends[0] < 0.0
    assert run.history[-1]["exact_seconds"] > 0.0
    assert last.history[-1]["verdict"] != run.history[-1]["verdict"] == "settled"


@pytest.mark.parametrize("l1", [1e-2, 2e-3])
def test_zeros_of_an_l1_penalty_are_those_of_the_optimum(l1: float) -> None:
    from sklearn.linear_model import LogisticRegression

    random = np.random.default_rng(0)
    X = random.normal(size=(300, 40))
    y = np.where(X @ (random.normal(size=40) * (random.random(40) < 0.3)) + random.logistic(size=300) > 0, 1.0, -1.0)
    theirs = LogisticRegression(l1_ratio=1, solver="saga", C=1 / (300 * l1), max_iter=3000, tol=1e-8).fit(X, y)
    run = hogwild.train((X, y), l1=l1, l2=0.0, workers=1, epochs=10)
    model = run.finish()
    np.testing.assert_array_equal(model.coef_ == 0, theirs.coef_ == 0)
    np.testing.assert_allclose(model.coef_, theirs.coef_, atol=1e-3)
    assert 0 < np.count_nonzero(model.coef_ == 0) < 40
    assert run.history[-1]["gradient_norm"] < 1e-5


def test_exact_steps_bound_the_distance_from_the_optimum() -> None:
    from hogwild.compare.reference.optimum import find_optimum

    about = problem("log")
    rows = hogwild.Rows.from_scipy(about["X"], about["y"])
    run = hogwild.train(rows, l2=1e-3, workers=1, epochs=3, step=0.05)
    run.finish()
    best, row = find_optimum(rows, run.config).objective, run.history[-1]
    _, gain = run._case.judge(run._solution, row["objective"])
    assert best is not None
    assert 0.9 * (1 - best / row["objective"]) < gain <= 1 - best / row["objective"] + 1e-9
