"""Columns on one scale: the same models as the user's columns have, near the optimum however the columns differ."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hogwild
from hogwild.data.rows.container import Rows
from hogwild.errors import InputError, UsageError
from hogwild.problems.linear.coordinates import ODD, Coordinates, Numbering, Scaling
from hogwild.problems.linear.objective import Objective
from tests.runs import campaign, resumed, toy

N, WIDTH = 1500, 6
SHIFTS = np.array([0.0, 1.0, 10.0, 100.0, -100.0, 3.0])
FACTORS = 10.0 ** np.array([-6, -3, 0, 2, 4, 6])


def made(seed: int = 0, classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Normal columns and noisy targets; ``classes=0``: real ones."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((N, WIDTH))
    scores = x @ rng.standard_normal((WIDTH, max(classes, 1))) + rng.logistic(size=(N, max(classes, 1)))
    return x, scores[:, 0] if classes == 0 else scores.argmax(axis=1) if classes > 2 else (scores[:, 0] > 0) * 1.0


def rows_of(x: np.ndarray, y: np.ndarray, weights: Any = None) -> Rows:
    return Rows.from_scipy(x.astype(np.float32), y.astype(np.float32), weights)


def optimum(x: np.ndarray, y: np.ndarray, l2: float = 0.0) -> float:
    """The lowest objective of loss log, by another algorithm in standardised columns."""
    made = campaign("optimum")
    return float(made.lowest(made.Drawn("log", np.float32(x).astype(float), 2 * y - 1, np.ones(N), 0.0, l2, True, 1)))


def fit(rows: Rows, **options: Any) -> hogwild.Run:
    run = hogwild.train(rows, **({"workers": 1, "host": "threads"} | options))
    run.finish()
    return run


@pytest.mark.parametrize("options", [{}, {"adagrad": True, "intercept": False}], ids=str)
def test_a_column_times_a_power_of_two_changes_no_bit_of_the_predictions(options: dict[str, Any]) -> None:
    x, y = made()
    x[:, 1] += 20.0
    first = fit(rows_of(x, y), l2=0.0, epochs=3, **options).model
    times = 2.0 ** np.array([30, -7, -30, 0, 5, 1])
    other = fit(rows_of(x * times, y), l2=0.0, epochs=3, **options).model
    np.testing.assert_array_equal(
        other.decision_function(x.astype(np.float32) * times), first.decision_function(x.astype(np.float32))
    )


def test_the_defaults_end_within_a_thousandth() -> None:
    x, y = made()
    x = (x + SHIFTS) * FACTORS
    found, worse = (  # without exact steps, which reach the optimum either way
        fit(rows_of(x, y), scale_columns=scaled, keep="last").history[-1]["objective"] for scaled in (True, False)
    )
    assert found <= 1.001 * optimum(x, y, 1e-5)
    assert worse > 1.05 * optimum(x, y, 1e-5)  # so the assertion above can fail


@pytest.mark.parametrize(("l1", "l2", "adagrad"), [(1e-2, 0.0, True), (1e-2, 1e-2, False), (0.0, 1e-2, False)])
def test_penalties_are_those_of_the_users_columns(l1: float, l2: float, adagrad: bool) -> None:
    """A long fit without scaling, where scales are harmless, is no better: another penalty would have cost more."""
    x, y = made()
    x *= np.array([1.0, 2.0, 0.5, 4.0, 0.25, 1.0])
    given = {"schedule": "round", "epochs": 100, "adagrad": adagrad, "l1": l1, "l2": l2}
    mine, plain = fit(rows_of(x, y), **given), fit(rows_of(x, y), scale_columns=False, **given)
    assert (mine.history[-1]["columns_scaled"], plain.history[-1]["columns_scaled"]) == (4, 0)
    assert mine.history[-1]["objective"] <= plain.history[-1]["objective"] + 1e-4


def test_the_objective_in_the_rows_is_that_of_the_model_in_the_users_columns() -> None:
    x, y = made()
    rows = rows_of((x + SHIFTS) * FACTORS, y)
    run = hogwild.train(rows, epochs=2, l1=1e-4, workers=1, host="threads")
    judge = Objective(rows, "log", l1=1e-4, l2=run.config.l2, labels=(0.0, 1.0))
    for row in run:
        assert row["objective"] == judge.evaluate(run.model.coef_[0], run.model.intercept_)["objective"]
        assert run.model.history[-1] == row


def test_a_run_resumes_to_the_same_bits(tmp_path: Path) -> None:
    x, y = made()
    rows = rows_of((x + SHIFTS) * FACTORS, y)
    resumed(functools.partial(hogwild.train, rows, workers=1, host="threads"), tmp_path, 4, 2)


def test_a_checkpoint_of_unscaled_columns_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = made()
    rows = rows_of(x + SHIFTS, y)
    with monkeypatch.context() as patch:  # a version that scaled no columns
        patch.setattr(Scaling, "of", lambda *_: None)
        fit(rows, epochs=1, checkpoint=tmp_path)
    with pytest.raises((UsageError, InputError), match="scales columns differently"):
        fit(rows, epochs=2, checkpoint=tmp_path, resume=True)


def test_what_is_chosen_is_said() -> None:
    x, y = made()
    x[:, 0] = 2000 + 10 * x[:, 0]
    run = fit(rows_of(x, y), epochs=1)
    assert run.note.startswith("columns scaled: 1 of 6; centred 1")
    assert (run.history[-1]["columns_scaled"], run.history[-1]["columns_centred"]) == (1, 1)
    assert fit(rows_of(x, y), epochs=1, scale_columns=False).note == ""


@pytest.mark.parametrize("weight", [1e6, 1e-6])
def test_one_weight_neither_stops_nor_throws_a_fit(weight: float) -> None:
    x, y = made()
    weights = np.ones(N, np.float32)
    weights[7] = weight
    run = fit(rows_of(x, y, weights), epochs=20)
    assert run.problem.passive == ("safe" if weight > 1 else "none")
    assert run.history[-1]["objective"] <= 0.01 if weight > 1 else 1.01 * optimum(x, y, 1e-5)


def test_a_heavy_row_of_several_classes() -> None:
    x, y = made(classes=3)
    weights = np.ones(N, np.float32)
    weights[7] = 1e6
    history = fit(rows_of(x, y, weights), loss="softmax", epochs=20).history
    assert history[-1]["objective"] < 0.02 * history[0]["objective"]


def test_the_copy_and_the_maps_against_numpy() -> None:
    rng = np.random.default_rng(3)
    x = (rng.standard_normal((50, 5)) * (rng.random((50, 5)) < 0.7)).astype(np.float32)
    columns = Scaling(2.0 ** np.array([0, 3, -2, 1, 0]), np.array([0.0, 1.5, 0.0, -2.25, 0.0]))
    rows = Rows.from_scipy(x, np.zeros(50))
    copy = columns.rows(rows)
    copy._check()
    np.testing.assert_array_equal(copy.to_scipy()[0].toarray(), ((x - columns.means) * columns.inverse).astype("f4"))
    part = np.array([3, 40, 7])
    np.testing.assert_array_equal(
        columns.rows(rows.select(part)).to_scipy()[0].toarray(), copy.to_scipy()[0].toarray()[part]
    )
    for shape in ((5,), (3, 5)):
        coef, intercept = rng.standard_normal(shape).astype("f4"), rng.standard_normal(shape[:-1] or 1).astype("f4")
        mine, moved = columns.outward(coef, intercept)
        scaled = copy.to_scipy()[0].toarray().astype(float) @ coef.T + intercept
        np.testing.assert_allclose(x.astype(float) @ mine.T + moved, scaled, atol=1e-5)
        again = columns.inward(mine, moved)
        np.testing.assert_array_equal(again[0], coef)
        np.testing.assert_allclose(again[1], intercept, atol=1e-5)
    both = Coordinates(columns, Numbering(np.array([3, 1]), 5))  # numbered after they are scaled
    zero, own, all_ = np.zeros(1, np.float32), np.float32([1, 2]), np.float32([0, 2, 0, 1, 0])
    np.testing.assert_array_equal(both.outward(own, zero)[0], columns.outward(all_, zero)[0])
    np.testing.assert_array_equal(both.inward(*both.outward(own, zero))[0], own)


def test_which_columns_are_scaled_and_centred() -> None:
    rng = np.random.default_rng(4)
    x = rng.standard_normal((400, 6))
    x[:, 0] = 100.0  # constant
    x[:, 1] *= 1000
    x[:, 2] = np.where(rng.random(400) < 0.8, 5.0 + x[:, 2], 0.0)  # held by most rows
    x[:, 3] *= rng.random(400) < 0.1
    x[:, 4] = 0.0
    found = Scaling.of(rows_of(x, np.zeros(400)), True)
    np.testing.assert_array_equal(np.log2(found.inverse), [0, -10, -1, 0, 0, 0])
    np.testing.assert_array_equal(np.flatnonzero(found.means), [0, 2])
    assert found.means[2] == pytest.approx(x[:, 2].mean(), rel=1e-6)
    without = Scaling.of(rows_of(x, np.zeros(400)), False)
    assert not without.means.any()
    assert np.log2(without.inverse[0]) == -7
    x[:, 3] *= 2.0 ** (ODD + 1)
    scaled = Scaling.of(rows_of(x, np.zeros(400)), True)
    assert np.log2(scaled.inverse[3]) == -ODD - 1


def test_text_binary_and_normalised_rows_are_left_as_they_are() -> None:
    text, binary = (hogwild.open_data(f"synthetic:{name}?rows=500") for name in ("rcv1", "uniform"))
    x, y = made()
    for rows, options in ((text, {}), (binary, {}), (toy(), {}), (rows_of(x + 50, y), {"normalize": "l2"})):
        run = fit(rows, epochs=1, **options)
        assert run._case._rows is rows
        assert not run.note
