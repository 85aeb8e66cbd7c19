"""Step sizes: their formulas, the states that resume a run, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hogwild.methods import SCHEDULES
from hogwild.training.schedule import Adaptive, Cooling, make_schedule, slower, usual_schedule

T = np.arange(8.0)  # rows of four epochs of two


def steps(schedule, rows, epochs):
    """The step of every row, as the kernel computes it."""
    found = []
    for epoch in range(epochs):
        scale, offset, power = schedule.plan(epoch)
        found += [scale / (offset + t) ** power for t in range(epoch * rows, (epoch + 1) * rows)]
    return np.array(found)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("constant", {}, np.full(8, 0.5)),
        ("auto", {}, 0.5 * 0.9 ** (T // 2)),
        ("root", {}, 0.5 / np.sqrt(1 + T // 2)),
        ("epoch", {"decay": 0.5}, 0.5 * 0.5 ** (T // 2)),
        ("inverse", {}, 0.5 / (1 + T) ** 0.25),
        ("inverse", {"power": 1.0}, 0.5 / (1 + T)),
        ("rows", {"l2": 1.1e-5}, 0.5 / (1 + 0.5 * 1.1e-5 * T)),  # as optimal ends
        ("rows", {"l2": 0.9e-5}, 0.5 / np.sqrt(1 + T / 25_000)),  # the penalty is weak
    ],
)
def test_steps_are_those_of_the_formula(name, options, expected):
    np.testing.assert_allclose(steps(make_schedule(name, 0.5, **options), 2, 4), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("decay", "drops"),
    [(None, [1, 4, 12, 31, 85, 229]), (0.5, [1, 3, 7, 15, 31, 63, 127, 255]), (1.0, []), (1e-300, [1])],
)
def test_rounds_grow_by_the_decay(decay, drops):
    schedule = make_schedule("round", 1.0, decay=decay)
    assert [e for e in range(1, 300) if schedule.plan(e) != schedule.plan(e - 1)] == drops
    assert schedule.plan(40)[0] == pytest.approx((decay or 0.37) ** sum(drop <= 40 for drop in drops), rel=1e-12)


@pytest.mark.parametrize(
    ("rows", "settled", "found"),
    [
        (100_000, False, "epoch"),
        (100_001, False, "rows"),
        (10**9, True, "epoch"),
        (0, False, "epoch"),
    ],
)
def test_auto_goes_by_the_length_of_an_epoch(rows, settled, found):
    assert usual_schedule("auto", rows, settled) == found
    assert {usual_schedule(name, rows, settled) for name in SCHEDULES} == set(SCHEDULES)


@pytest.mark.parametrize("l2", [1e-5, 1e-2, 3.0])
def test_optimal_is_scikit_learns(l2):
    """Its first steps on one feature that is always 1 and always positive: w moves by step * (1 - decay)."""
    from sklearn.linear_model import SGDClassifier

    schedule = make_schedule("optimal", None, l2=l2, dloss=lambda p: -1.0 if p < 1 else 0.0)
    model = SGDClassifier(alpha=l2, learning_rate="optimal", fit_intercept=False, shuffle=False)
    w, (scale, offset, power) = 0.0, schedule.plan(0)
    for t in range(5):
        model.partial_fit([[1.0]], [1], classes=[-1, 1])
        step = scale / (offset + t) ** power
        w = w * max(0.0, 1 - step * l2) + (step if w < 1 else 0.0)
        assert model.coef_[0, 0] == pytest.approx(w, rel=1e-9)


def test_optimal_starts_gently_on_steep_losses():
    w = 1e-5**-0.25
    schedule = make_schedule("optimal", None, l2=1e-5, dloss=lambda p: -2 * (1 - p))
    assert steps(schedule, 1, 1)[0] == pytest.approx(w / (2 * (1 + w)))


@pytest.mark.parametrize(
    ("objectives", "expected"),
    [
        ([10.0, 9.0, 8.99, 8.98, 8.0, 7.99, math.nan, 7.98], [1, 1, 1, 0.2, 0.2, 0.2, 0.04, 0.04]),
        ([-10.0, -11.0, -12.0, -12.05, -12.05], [1, 1, 1, 1, 0.2]),  # not by a hundredth
    ],
)
def test_adaptive_divides_after_patience(objectives, expected):
    schedule = Adaptive(1.0, tol=0.01, patience=2)
    found = []
    for objective in objectives:
        schedule.observe(objective)
        found.append(schedule.plan(0)[0])
    assert found == pytest.approx(expected)
    schedule.observe(objectives[-1], 2)  # two epochs that were not looked at
    assert schedule.plan(0)[0] == pytest.approx(expected[-1] / 5)
    for _ in range(99):
        schedule.observe(1e3)
    assert 1e-7 < schedule.plan(0)[0] <= 1e-6


@pytest.mark.parametrize("step", [(0.5, 1.0, 0.0), (2.0, 1.0, 0.75), (3.0, 25_000.0, 0.5)])
def test_a_share_of_the_rows_takes_the_steps_of_all(step: tuple[float, float, float]) -> None:
    for share in (1.0, 0.25, 0.6):
        scale, offset, power = slower(step, share)
        for t in (0, 10, 12_345):
            expected = step[0] / (step[1] + t) ** step[2]
            assert scale / (offset + t * share) ** power == pytest.approx(expected, rel=1e-12)


def test_cooling_falls_by_the_penalty_and_by_little_gains() -> None:
    long, short, known = Cooling(0.5, 0.1, 1000), Cooling(0.5, 0.1, 3, visited=7), Cooling(0.5, 0.0, 3, epochs=4)
    np.testing.assert_allclose(steps(long, 1000, 1), 0.5 / (1 + 0.05 * np.arange(1000)))
    assert short.plan(2) == (pytest.approx(0.5 / (1 + 0.05 * (7 + 2 * 3 + 1.5))), 1.0, 0.0)  # of the epoch's middle
    assert [known.plan(epoch)[0] for epoch in range(4)] == [0.5, 0.375, 0.25, 0.125]
    short.cool()
    assert short.plan(2)[0] == pytest.approx(0.125 / (1 + 0.05 * (7 + 2 * 3 + 1.5)))


def test_cooling_has_settled_when_the_rest_could_not_reach_tol() -> None:
    schedule = Cooling(1.0, 1e-4, 100)
    assert schedule.settled(2, 0.0001, 3, 0.001)
    assert schedule.settled(2, 0.0007, 3, 0.001)  # as each of them takes smaller steps
    assert not schedule.settled(2, 0.0008, 3, 0.001)
    assert not schedule.settled(2, 0.0011, 1, 0.001)
    for _ in range(3):
        assert not schedule.settled(1, 0.0, 4, 0.001)  # once is no proof,
        schedule.cool()
    assert schedule.settled(1, 0.0, 4, 0.001)  # but on small steps
    assert not schedule.settled(0, 0.0, 5, 0.001)
    assert not schedule.settled(2, -0.0001, 3, 0.001)  # that was noise
