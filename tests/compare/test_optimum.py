"""The optimum: against closed forms and scikit-learn, by its own conditions, and what is kept of it."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from hogwild.compare.reference import optimum
from hogwild.compare.reference.optimum import Optimum, find_optimum
from hogwild.config import TrainConfig
from hogwild.data.rows.container import Rows
from hogwild.data.rows.source import open_data
from hogwild.errors import HogwildWarning, InputError
from hogwild.methods import LABEL_LOSSES
from hogwild.training.run import train
from tests.runs import toy


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


def test_features_that_never_occur_cost_nothing():
    rows = toy(200, 24, 4)
    wide = Rows((rows.begin, rows.end), rows.indices * 1000 + 7, rows.values, rows.targets, 1_000_000)
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


# ---- its own conditions


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


def test_targets_that_do_not_fit():
    with pytest.raises(InputError, match="two or more classes"):
        find_optimum(Rows.from_scipy(np.eye(3), np.ones(3)), config())


# ---- what is kept


@pytest.fixture
def looked(monkeypatch):
    """The configs of the calls of ``find_optimum`` that had to look."""
    found = []

    def look(rows, c, problem):
        found.append(c)
        return Optimum(0.5, 1.0, "here", np.zeros(24), np.zeros(1), 0.1, 0.0)

    monkeypatch.setattr(optimum, "_found", look)
    return found


def test_a_second_time_nothing_is_trained(tmp_path, monkeypatch):
    rows = example("log")
    first = find_optimum(rows, config(), tmp_path / "new")
    monkeypatch.setattr(optimum, "_found", None)
    again = find_optimum(rows, config(), tmp_path / "new")
    assert again == dataclasses.replace(first, coef=None, intercept=None)
    [file] = (tmp_path / "new").iterdir()
    assert file.name.startswith("optimum-")
    assert json.loads(file.read_text())["objective"] == first.objective


def test_only_what_is_minimised_counts(tmp_path, looked):
    rows = example("log")
    find_optimum(rows, config(), tmp_path)
    for options in ({"step": 0.1}, {"epochs": 7}, {"seed": 3}, {"workers": 2}, {"schedule": "constant"}):
        find_optimum(rows, config(**options), tmp_path)
    assert len(looked) == 1
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
    assert len(looked) == 1 + len(changes)
    targets = rows.targets.copy()
    targets[1] = -targets[1]
    for other in (
        weighted(rows),
        rows.block(1, len(rows)),
        Rows((rows.begin, rows.end), rows.indices, rows.values, targets, 24),
    ):
        find_optimum(other, config(), tmp_path)
    assert len(looked) == 4 + len(changes)


def test_the_default_parameter_is_the_same_as_itself(tmp_path, looked):
    rows = real()
    find_optimum(rows, config("huber"), tmp_path)
    find_optimum(rows, config("huber", loss_param=1.0), tmp_path)
    assert len(looked) == 1
    find_optimum(rows, config("huber", loss_param=2.0), tmp_path)
    assert len(looked) == 2


@pytest.mark.parametrize("damage", ["", "{", "[]", "{}", '{"key": 1}', "null", "\x00"])
def test_a_damaged_file_is_made_again(tmp_path, damage, looked):
    rows = example("log")
    first = find_optimum(rows, config(), tmp_path)
    [file] = tmp_path.iterdir()
    whole = file.read_text()
    file.write_text(damage)
    assert find_optimum(rows, config(), tmp_path).objective == first.objective
    assert len(looked) == 2
    assert json.loads(file.read_text())["key"] == json.loads(whole)["key"]
    file.write_text(whole.replace('"objective": ', '"objective": NaN, "was": '))
    find_optimum(rows, config(), tmp_path)
    assert len(looked) == 3
    assert len(list(tmp_path.iterdir())) == 1


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path, looked):
    (tmp_path / "file").write_text("")
    with pytest.warns(HogwildWarning, match="not kept for the next time .*file"):
        find_optimum(example("log"), config(), tmp_path / "file")
