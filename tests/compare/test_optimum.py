"""The optimum: against closed forms and scikit-learn, by its own conditions, and what is kept of it."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import scipy.optimize
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from hogwild.compare.reference import optimum
from hogwild.compare.reference.gradient import KINKED, SLOPES, Smooth
from hogwild.compare.reference.optimum import find_optimum
from hogwild.config import TrainConfig
from hogwild.data.rows.container import Rows
from hogwild.data.rows.source import open_data
from hogwild.errors import HogwildWarning, InputError
from hogwild.methods import LABEL_LOSSES
from hogwild.problems.linear.objective import Objective
from hogwild.problems.linear.problem import LinearProblem
from hogwild.problems.linear.rows import row_weights
from hogwild.training.engine import start_pool
from hogwild.training.train import train
from tests.runs import toy

SMOOTH = sorted(set(SLOPES) - set(KINKED))


@pytest.fixture(scope="module")
def text() -> Rows:
    return open_data("synthetic:rcv1?rows=1500&features=300&nnz=20&noise=0.1")


def real(n=400, width=24, seed=0, counts=False):
    rows = toy(n, width, 4, seed, classes=0)
    targets = np.random.default_rng(seed).poisson(np.exp(rows.targets / 4)) if counts else rows.targets
    return Rows((rows.begin, rows.end), rows.indices, rows.values, targets, width)


def example(loss, seed=0, classes=2):
    if loss in LABEL_LOSSES:
        return toy(400, 24, 4, seed, classes, noise=2.0)
    return real(seed=seed, counts=loss == "poisson")


def weighted(rows, seed=5):
    weights = np.random.default_rng(seed).random(len(rows)) * 3
    return Rows((rows.begin, rows.end), rows.indices, rows.values, rows.targets, rows.width, weights)


def config(loss="log", **options):
    return TrainConfig(**{"loss": loss, "l2": 1e-3} | options)


def judge(rows, c):
    p = LinearProblem.of(c, rows, "serial")
    weights = row_weights(rows, c.class_weight)
    return Objective(
        rows, c.loss, p.loss_param, l1=c.l1, l2=c.l2, normalize=c.normalize, labels=p.labels, weights=weights
    )


def smooth(rows, c):
    return Smooth(rows, LinearProblem.of(c, rows, "serial"), row_weights(rows, c.class_weight), c.intercept)


def stationary(rows, c, found):
    """Length of the shortest subgradient at a solution, and of the intercept's derivative."""
    s = smooth(rows, c)
    flat = s.flat(found.coef, found.intercept)
    _, g = s(flat)
    w, g, gb = flat[: s.weights], g[: s.weights], g[s.weights :]
    at_zero = np.sign(g) * np.maximum(np.abs(g) - c.l1, 0)
    return np.linalg.norm(np.where(w == 0, at_zero, g + c.l1 * np.sign(w))), np.linalg.norm(gb)


# ---- the gradient


@pytest.mark.parametrize("mu", [0.0, 0.3])
@pytest.mark.parametrize("loss", [*sorted(SLOPES), "softmax"])
def test_the_gradient_is_that_of_the_objective(loss, mu):
    classes = 3 if loss in ("softmax", "log", "hinge") else 2
    for c in (config(loss), config(loss, normalize="l2", intercept=False)):
        rows = weighted(example(loss, classes=classes))
        s, rng = smooth(rows, c), np.random.default_rng(1)
        s.mu = mu
        x = 0.3 * rng.standard_normal(s.size)
        value, gradient = s(x)
        if mu == 0.0 or loss not in KINKED:
            assert value == pytest.approx(judge(rows, c).evaluate(*s.solution(x))["objective"], rel=1e-12)
        else:
            true = judge(rows, c).evaluate(*s.solution(x))["objective"]
            assert true - mu / 2 * s.classes <= value < true
        if mu > 0.0 or loss not in KINKED:
            numeric = scipy.optimize.approx_fprime(x, lambda y, s=s: s(y)[0], 1e-6)
            np.testing.assert_allclose(gradient, numeric, atol=3e-5 * max(1.0, np.abs(gradient).max()))


def test_poisson_is_straight_beyond_its_cap():
    c, rows = config("poisson", l2=0.0), real(counts=True)
    s = smooth(rows, c)
    for margin in (59.0, 61.0, 80.0):
        x = np.zeros(s.size)
        x[-1] = margin
        value, _ = s(x)
        assert value == pytest.approx(judge(rows, c).evaluate(*s.solution(x))["objective"], rel=1e-12)


def test_the_data_are_held_once():
    s = smooth(toy(400, 24, 4), config())
    assert all(np.shares_memory(part.data, s.X.data) for _, part in s.blocks)
    assert sum(part.shape[0] for _, part in s.blocks) == 400


def test_features_that_never_occur_cost_nothing():
    rows = toy(200, 24, 4)
    wide = Rows((rows.begin, rows.end), rows.indices * 1000 + 7, rows.values, rows.targets, 1_000_000)
    s = smooth(wide, config())
    assert s.size <= 25
    assert find_optimum(wide, config()).objective == pytest.approx(find_optimum(rows, config()).objective, abs=1e-10)


# ---- against others


@pytest.mark.parametrize("intercept", [True, False])
def test_ridge(intercept):
    rows = weighted(real())
    c = config("squared-error", l2=0.01, intercept=intercept)
    X, y = rows.to_scipy()
    A = np.hstack([X.toarray().astype(float), np.ones((len(rows), 1))]) if intercept else X.toarray().astype(float)
    a = rows.weights.astype(float) / rows.weights.astype(float).sum()
    ridge = np.sqrt(c.l2) * np.eye(A.shape[1])[: rows.width]
    exact = np.linalg.lstsq(
        np.vstack([np.sqrt(a)[:, None] * A, ridge]), np.append(np.sqrt(a) * y, np.zeros(rows.width)), rcond=None
    )[0]
    value = a @ (A @ exact - y) ** 2 / 2 + c.l2 / 2 * exact[: rows.width] @ exact[: rows.width]
    found = find_optimum(rows, c)
    assert found.objective == pytest.approx(value, abs=1e-9)
    assert found.gap < 1e-9
    assert found.start == pytest.approx(a @ y.astype(float) ** 2 / 2)
    np.testing.assert_allclose(found.coef, exact[: rows.width], atol=1e-4)
    assert found.intercept == pytest.approx(exact[rows.width :] if intercept else [0.0], abs=1e-4)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("loss", ["log", "softmax"])
def test_logistic_regression(loss, classes):
    rows, c = toy(600, 48, 6, 1, classes, noise=2.0), config(loss, l2=1e-3)
    X, y = rows.to_scipy()
    best = {"coef": [], "intercept": []}
    signs = [y] if loss == "softmax" or classes == 2 else [np.where(y == k, 1, -1) for k in range(classes)]
    for target in signs:
        other = LogisticRegression(C=1 / (c.l2 * len(rows)), tol=1e-12, max_iter=5000).fit(X.astype(float), target)
        best["coef"].append(other.coef_)
        best["intercept"].append(other.intercept_)
    coef, intercept = np.vstack(best["coef"]), np.concatenate(best["intercept"])
    if loss == "softmax" and classes == 2:  # scikit-learn takes the binary loss; two vectors have half of its penalty
        coef, intercept, c = np.vstack((-coef, coef)) / 2, np.append(-intercept, intercept) / 2, config(loss, l2=2e-3)
    value = judge(rows, c).evaluate(coef[0] if len(coef) == 1 else coef, intercept)["objective"]
    found = find_optimum(rows, c)
    assert found.objective == pytest.approx(value, abs=1e-9)
    assert found.objective <= value + 1e-10


def test_hinge_against_liblinear(text):
    c = config("hinge", l2=1e-3)
    X, y = text.to_scipy()
    other = LinearSVC(loss="hinge", C=1 / (c.l2 * len(text)), tol=1e-8, max_iter=100_000, random_state=0).fit(X, y)
    value = judge(text, c).evaluate(other.coef_[0], other.intercept_)["objective"]
    found = find_optimum(text, c)
    assert found.objective <= value
    assert found.objective == pytest.approx(value, abs=1e-3)  # it penalises the intercept
    assert found.gap < 1e-6


# ---- its own conditions


@pytest.mark.parametrize("l1", [0.0, 0.05])
@pytest.mark.parametrize("loss", [*SMOOTH, "softmax"])
def test_nothing_is_left_of_the_subgradient(loss, l1):
    rows = weighted(example(loss, classes=3 if loss == "softmax" else 2))
    c = config(loss, l1=l1, normalize="max")
    found = find_optimum(rows, c)
    weights, intercept = stationary(rows, c, found)
    assert weights < 2e-6
    assert intercept < 1e-6
    assert found.gap < 1e-8
    assert found.objective == judge(rows, c).evaluate(found.coef, found.intercept)["objective"] < found.start
    assert found.coef.dtype == np.float64
    if l1:
        assert (found.coef == 0).any()


@pytest.mark.parametrize(
    "options",
    [
        {"class_weight": "balanced"},
        {"normalize": "l2"},
        {"intercept": False},
        {"loss": "epsilon-insensitive", "loss_param": 0.5},
        {"loss": "hinge", "classes": 3},
    ],
    ids=str,
)
def test_kinks_are_proved_by_the_dual(options):
    options = {"loss": "hinge"} | options
    rows = weighted(example(options["loss"], classes=options.pop("classes", 2)))
    found = find_optimum(rows, config(**options))
    assert found.gap < 1e-6
    assert found.how.startswith("Newton's method from ")


def test_kinks_with_l1_or_without_l2():
    rows = example("hinge")
    for options in ({"l1": 1e-3}, {"l2": 0.0}):
        c = config("hinge", **options)
        found = find_optimum(rows, c)
        s, lowest = smooth(rows, c), found.objective
        flat = s.flat(found.coef, found.intercept)
        for direction in np.random.default_rng(0).standard_normal((50, s.size)):
            near = judge(rows, c).evaluate(*s.solution(flat + 1e-3 * direction))["objective"]
            assert near > lowest - 1e-7
        assert "kinks smoothed by" in found.how


def test_no_run_gets_below(text):
    for loss in ("log", "hinge"):
        for options in ({"l2": 1e-3}, {"l2": 1e-4, "l1": 1e-4}):
            c = config(loss, **options)
            found = find_optimum(text, c)
            asked = dataclasses.replace(c, workers=1, host="threads", epochs=40, schedule="round", step=0.5)
            assert min(row["objective"] for row in train(text, config=asked)) > found.objective - 1e-9


def test_separable_without_a_penalty_is_not_attained():
    rows = toy(200, 48, 6, noise=0.0)
    found = find_optimum(rows, config(l2=0.0))
    assert 0 <= found.objective < 1e-6
    assert "not attained" in found.how
    assert found.gap is None


def test_the_perceptron_is_best_at_the_start():
    found = find_optimum(toy(100, 24, 4), config("perceptron"))
    assert (found.objective, found.start, found.gap) == (0.0, 0.0, 0.0)


def test_targets_that_do_not_fit():
    with pytest.raises(InputError, match="two or more classes"):
        find_optimum(Rows.from_scipy(np.eye(3), np.ones(3)), config())


# ---- how it is found


def test_without_the_memory_there_is_the_serial_run(monkeypatch):
    rows = example("log")
    exact = find_optimum(rows, config())
    monkeypatch.setattr(optimum.machine, "memory", lambda: (1 << 30, 100_000))
    found = find_optimum(rows, config())
    assert "serial epochs; no L-BFGS: it needs 0.0 GB, over a quarter of the 0.0 GB free" in found.how
    assert exact.objective <= found.objective < exact.objective + 1e-3 * (exact.start - exact.objective)


def test_with_a_pool_and_told_of():
    notes = []
    pool = start_pool("threads", 1)
    try:
        found = find_optimum(example("log"), config(), pool=pool, note=notes.append)
        assert pool.job is None
    finally:
        pool.close()
    assert notes[0] == "serial epoch 0 of at most 31"
    assert found.how.startswith("L-BFGS from ")
    crew = start_pool("threads", 2)
    try:
        assert find_optimum(example("log"), config(), pool=crew).objective == found.objective
    finally:
        crew.close()


def test_a_serial_run_that_diverges_is_no_obstacle(monkeypatch):
    monkeypatch.setattr("hogwild.training.probe.Probe.search", lambda self: 1e6)
    found = find_optimum(example("squared-error"), config("squared-error"))
    assert found.gap < 1e-9


def test_ctrl_c_passes_through(tmp_path):
    def note(text):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        find_optimum(example("log"), config(), tmp_path, note=note)
    assert not list(tmp_path.iterdir())


# ---- what is kept


@pytest.fixture
def untrained(monkeypatch):
    """``find_optimum`` that counts how often it has to look."""
    looked = []

    def run(self, pool):
        looked.append(self.config)

    monkeypatch.setattr(optimum._Search, "run", run)
    return looked


def test_a_second_time_nothing_is_trained(tmp_path, monkeypatch):
    rows = example("log")
    first = find_optimum(rows, config(), tmp_path / "new")
    monkeypatch.setattr(optimum, "train", None)
    again = find_optimum(rows, config(), tmp_path / "new")
    assert again == dataclasses.replace(first, coef=None, intercept=None)
    [file] = (tmp_path / "new").iterdir()
    assert file.name.startswith("optimum-")
    assert json.loads(file.read_text())["objective"] == first.objective


def test_only_what_is_minimised_counts(tmp_path, untrained):
    rows = example("log")
    find_optimum(rows, config(), tmp_path)
    for options in ({"step": 0.1}, {"epochs": 7}, {"seed": 3}, {"workers": 2}, {"schedule": "constant"}):
        find_optimum(rows, config(**options), tmp_path)
    assert len(untrained) == 1
    changes = (
        {"l1": 1e-3},
        {"l2": 2e-3},
        {"loss": "squared-hinge"},
        {"normalize": "l2"},
        {"intercept": False},
        {"class_weight": "balanced"},
    )
    for options in changes:
        find_optimum(rows, config(**options), tmp_path)
    assert len(untrained) == 1 + len(changes)
    targets = rows.targets.copy()
    targets[1] = -targets[1]
    for other in (
        weighted(rows),
        rows.block(1, len(rows)),
        Rows((rows.begin, rows.end), rows.indices, rows.values, targets, 24),
    ):
        find_optimum(other, config(), tmp_path)
    assert len(untrained) == 4 + len(changes)


def test_the_default_parameter_is_the_same_as_itself(tmp_path, untrained):
    rows = real()
    find_optimum(rows, config("huber"), tmp_path)
    find_optimum(rows, config("huber", loss_param=1.0), tmp_path)
    assert len(untrained) == 1
    find_optimum(rows, config("huber", loss_param=2.0), tmp_path)
    assert len(untrained) == 2


@pytest.mark.parametrize("damage", ["", "{", "[]", "{}", '{"key": 1}', "null", "\x00"])
def test_a_damaged_file_is_made_again(tmp_path, damage, untrained):
    rows = example("log")
    first = find_optimum(rows, config(), tmp_path)
    [file] = tmp_path.iterdir()
    whole = file.read_text()
    file.write_text(damage)
    assert find_optimum(rows, config(), tmp_path).objective == first.objective
    assert len(untrained) == 2
    assert json.loads(file.read_text())["key"] == json.loads(whole)["key"]
    file.write_text(whole.replace('"objective": ', '"objective": NaN, "was": '))
    find_optimum(rows, config(), tmp_path)
    assert len(untrained) == 3
    assert len(list(tmp_path.iterdir())) == 1


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path, untrained):
    (tmp_path / "file").write_text("")
    with pytest.warns(HogwildWarning, match="not kept for the next time .*file"):
        find_optimum(example("log"), config(), tmp_path / "file")
