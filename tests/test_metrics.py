"""Metrics in one pass: equal to scikit-learn's over all predictions at once."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from sklearn import metrics as theirs
from sklearn.calibration import calibration_curve

from hogwild.data.rows import container
from hogwild.data.rows.container import Rows
from hogwild.errors import HogwildWarning, InputError
from hogwild.metrics import evaluate
from hogwild.problems.linear.model import LinearModel

WIDTH = 7


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(container.chunks, "__defaults__", (40,))


POWERS = {"poisson": 1.0, "tweedie": 1.5, "gamma": 2.0}


def example(loss="log", classes=2, n=120, seed=0):
    rng = np.random.default_rng(seed)
    dense = (rng.normal(size=(n, WIDTH)) * (rng.random((n, WIDTH)) < 0.6)).astype(np.float32)
    labels = [[], [], [5.0, -1.0], [2.0, 0.1, 9.0]][classes]
    rows = 3 if classes == 3 else 1
    coef = rng.normal(size=(rows, WIDTH)).astype(np.float32)
    param = 1.5 if loss == "tweedie" else 0.0
    model = LinearModel(coef, rng.normal(size=rows).astype(np.float32), loss, param, labels)
    if classes:
        targets = np.array(labels)[rng.integers(classes, size=n)]
    else:
        targets = rng.poisson(3, size=n) + (loss == "gamma") if loss in POWERS else rng.normal(size=n) + 100
    return model, Rows.from_scipy(dense, targets)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("loss", ["log", "softmax", "modified-huber", "hinge"])
def test_labels(loss, classes):
    model, rows = example(loss, classes)
    found = evaluate(model, rows)
    order = model.classes_.astype(np.float32)
    truth = np.argmax(rows.targets[:, None] == order, axis=1)  # scikit-learn takes labels like 0.1 for real targets
    decided = np.argmax(model.predict(rows).astype(np.float32)[:, None] == order, axis=1)
    assert found["rows"] == 120
    assert found["accuracy"] == pytest.approx(theirs.accuracy_score(truth, decided))
    assert found["confusion"] == theirs.confusion_matrix(truth, decided).tolist()
    assert found["labels"] == model.labels
    f1 = theirs.f1_score(truth, decided, average=None)
    assert found["f1"] == pytest.approx(dict(zip(model.labels, f1.tolist())))
    assert found["f1_macro"] == pytest.approx(f1.mean())
    if loss == "hinge":
        assert found["log_loss"] is None
    else:
        assert found["log_loss"] == pytest.approx(theirs.log_loss(truth, model.predict_proba(rows)))
    if classes == 2 and loss != "hinge":
        p = model.predict_proba(rows)[:, 1]
        assert found["brier"] == pytest.approx(theirs.brier_score_loss(truth, p), rel=1e-5)
        share, mean = calibration_curve(truth, p, n_bins=10)
        rows_of = np.unique(np.minimum(np.floor(10 * p), 9), return_counts=True)[1]
        found_bins = [[each["rows"], each["share"], each["probability"]] for each in found["reliability"]]
        np.testing.assert_allclose(found_bins, np.transpose([rows_of, share, mean]), 1e-5)
    if classes == 2:
        assert found["auc"] == pytest.approx(theirs.roc_auc_score(truth, model.decision_function(rows)), rel=1e-12)
    else:
        assert found["auc"] is None


@pytest.mark.parametrize("loss", ["squared-error", "huber", "quantile", *POWERS])
def test_reals(loss):
    model, rows = example(loss, 0)
    found = evaluate(model, rows)
    truth, predicted = rows.targets.astype(float), model.predict(rows)
    assert found["rmse"] == pytest.approx(theirs.root_mean_squared_error(truth, predicted), rel=1e-12)
    assert found["mae"] == pytest.approx(theirs.mean_absolute_error(truth, predicted), rel=1e-12)
    assert found["r2"] == pytest.approx(theirs.r2_score(truth, predicted), rel=1e-10)
    deviances = {name: value for name, value in found.items() if "deviance" in name}
    power = POWERS.get(loss, 0.0)
    deviance = {f"{loss}_deviance": theirs.mean_tweedie_deviance(truth, predicted, power=power)} if power else {}
    assert deviances == pytest.approx(deviance, rel=1e-10)
    if loss == "quantile":
        pinball = theirs.mean_pinball_loss(truth, predicted, alpha=0.5)
        assert found["pinball_loss"] == pytest.approx(pinball)
        assert found["below"] == np.mean(truth < predicted)


@pytest.mark.parametrize(("loss", "classes"), [("log", 2), ("softmax", 3), ("huber", 0)])
def test_blocks_threads_and_picked_rows_give_the_same(loss, classes):
    model, rows = example(loss, classes)
    whole = evaluate(model, rows, threads=1)
    assert evaluate(model, rows, threads=3) == whole
    blocks = evaluate(model, (rows.block(a, a + 25) for a in range(0, 120, 25)))
    picked = evaluate(model, rows.select(np.random.default_rng(1).permutation(120)))
    for found in (blocks, picked):
        assert set(found) == set(whole)
        for each, other in zip(found.pop("reliability", []), whole.get("reliability", []), strict=True):
            assert each == pytest.approx(other, rel=1e-9)
        for name, value in found.items():
            assert value == (pytest.approx(whole[name], rel=1e-9) if isinstance(value, float) else whole[name])


def test_one_class_only_and_one_that_never_comes():
    model, rows = example()
    found = evaluate(model, rows.select(np.flatnonzero(rows.targets == 5)))
    assert found["auc"] is None
    assert math.isfinite(found["log_loss"])
    assert found["f1"][-1.0] == 0.0
    assert sum(map(sum, found["confusion"])) == found["rows"]


def test_labels_the_model_does_not_know():
    model, rows = example()
    strange = Rows.from_scipy(rows.to_scipy()[0], np.where(np.arange(120) == 70, 4.5, rows.targets))
    for data in (strange, [strange.block(0, 50), strange.block(50, 120)]):
        with pytest.raises(InputError, match=r"row 71 has label 4\.5: the model knows 5, -1"):
            evaluate(model, data)


def test_no_rows():
    model, rows = example()
    for nothing in (rows.block(0, 0), [], iter([rows.block(3, 3)])):
        with pytest.raises(InputError, match="no rows"):
            evaluate(model, nothing)


def test_unknown_features_are_counted_once_over_all_blocks():
    model, rows = example()
    narrow = LinearModel(model.coef_[:, :4], model.intercept_, "log", labels=model.labels)
    beyond = int((rows.indices >= 4).sum())
    with pytest.warns(HogwildWarning, match=f"^{beyond} values of features beyond the model's 4 were") as caught:
        evaluate(narrow, [rows.block(0, 60), rows.block(60, 120)])
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_awkward_targets():
    model, rows = example("poisson", 0)
    X = rows.to_scipy()[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = evaluate(model, Rows.from_scipy(X, np.full(120, 2.0)))
        assert found["r2"] is None
        assert math.isnan(evaluate(model, Rows.from_scipy(X, np.linspace(-1, 1, 120)))["poisson_deviance"])
        huge = LinearModel(model.coef_ * np.float32(1e30), model.intercept_, "poisson")
        assert math.isnan(evaluate(huge, rows)["rmse"])
        tiny = LinearModel(model.coef_ * 0, [-1e4], "poisson")  # predicts a count of zero
        assert math.isfinite(evaluate(tiny, rows)["poisson_deviance"])


@pytest.mark.parametrize("classes", [2, 3])
def test_a_model_that_diverged(classes):
    model, rows = example("log", classes)
    broken = LinearModel(np.full_like(model.coef_, np.nan), model.intercept_, "log", labels=model.labels)
    found = evaluate(broken, rows)
    assert math.isnan(found["log_loss"])
    assert found["auc"] is None


@pytest.mark.parametrize("classes", [2, 3])
def test_the_log_loss_of_a_sure_mistake_is_that_of_training(classes):
    intercept = np.array([-60.0] if classes == 2 else [60.0, 0.0, -60.0], np.float32)
    model = LinearModel(
        np.zeros((len(intercept), 1), np.float32), intercept, "softmax", labels=[0.0, 1.0, 2.0][:classes]
    )
    found = evaluate(model, Rows.from_scipy(np.zeros((1, 1)), [classes - 1.0]))
    assert found["log_loss"] == pytest.approx(60.0 * (classes - 1))
