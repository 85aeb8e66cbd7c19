"""Step sizes: their formulas, the states that resume a run, and what is refused."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from hogwild import methods
from hogwild.errors import UsageError
from hogwild.training.schedule import SCHEDULES, Cooling, make_schedule, slower, usual_schedule


def steps(schedule, rows, epochs):
    """The step of every row, as the kernel computes it."""
    found = []
    for epoch in range(epochs):
        scale, offset, power = schedule.plan(epoch)
        found += [scale / (offset + t) ** power for t in range(epoch * rows, (epoch + 1) * rows)]
    return np.array(found)


def test_constant():
    assert np.all(steps(make_schedule("constant", 0.3), 4, 3) == 0.3)


def test_epoch_backoff():
    found = steps(make_schedule("epoch", 2.0), 2, 4)
    np.testing.assert_allclose(found[::2], 2.0 * 0.9 ** np.arange(4), rtol=1e-15)
    assert make_schedule("epoch", 2.0, decay=0.5).plan(3) == (0.25, 1.0, 0.0)


def test_rounds_grow():
    schedule = make_schedule("round", 1.0)
    drops = [e for e in range(1, 300) if schedule.plan(e) != schedule.plan(e - 1)]
    lengths = np.cumsum(0.37 ** -np.arange(6.0))
    assert drops == [math.ceil(end) for end in lengths] == [1, 4, 12, 31, 85, 229]
    for r, epoch in enumerate([0, *drops]):
        assert schedule.plan(epoch)[0] == pytest.approx(0.37**r, rel=1e-12)


@pytest.mark.parametrize(("decay", "drops"), [(0.5, [1, 3, 7, 15, 31]), (1.0, []), (1e-300, [1])])
def test_rounds_of_other_decays(decay, drops):
    schedule = make_schedule("round", 1.0, decay=decay)
    assert [e for e in range(1, 40) if schedule.plan(e) != schedule.plan(e - 1)] == drops


@pytest.mark.parametrize("l2", [1.1e-5, 1e-4, 1e3])
def test_row_backoff_ends_as_optimal_does(l2):
    schedule = make_schedule("rows", 0.5, l2=l2)
    np.testing.assert_allclose(steps(schedule, 3, 2), 0.5 / (1 + 0.5 * l2 * np.arange(6)), rtol=1e-12)
    assert schedule.plan(7)[::2] == (pytest.approx(1 / l2), 1.0) == make_schedule("optimal", None, l2=l2).plan(7)[::2]


@pytest.mark.parametrize("l2", [0.0, 0.9e-5])
def test_row_backoff_of_a_weak_penalty_falls_by_a_root(l2):
    scale, offset, power = make_schedule("rows", 0.5, l2=l2).plan(3)
    assert scale / (offset + 75_000) ** power == pytest.approx(0.25)
    assert scale / offset**power == pytest.approx(0.5)


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


def test_inverse_counts_rows_from_one():
    found = steps(make_schedule("inverse", 0.5), 5, 2)
    np.testing.assert_allclose(found, 0.5 / np.arange(1, 11) ** 0.25, rtol=1e-15)
    found = steps(make_schedule("inverse", 0.5, power=1.0), 5, 2)
    np.testing.assert_allclose(found, 0.5 / np.arange(1, 11), rtol=1e-15)


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
    schedule = make_schedule("optimal", None, l2=1e-5, dloss=lambda p: -2 * (1 - p))
    w = 1e-5**-0.25
    assert steps(schedule, 1, 1)[0] == pytest.approx(w / (2 * (1 + w)))
    assert schedule.plan(0) == schedule.plan(7)


def test_adaptive_divides_after_patience():
    schedule = make_schedule("adaptive", 1.0, patience=2, tol=0.01)
    found = []
    for objective in [10.0, 9.0, 8.99, 8.98, 8.0, 7.99, math.nan, 7.98, math.inf, 1.0]:
        schedule.observe(objective)
        found.append(schedule.plan(0)[0])
    assert found == pytest.approx([1, 1, 1, 0.2, 0.2, 0.2, 0.04, 0.04, 0.008, 0.008])


def test_adaptive_improves_below_zero_too():
    schedule = make_schedule("adaptive", 1.0, patience=1, tol=0.01)
    for objective in (-10.0, -11.0, -12.0):
        schedule.observe(objective)
    assert schedule.plan(0)[0] == 1.0
    schedule.observe(-12.05)  # not by a hundredth
    assert schedule.plan(0)[0] == 0.2


def test_adaptive_stops_dividing():
    schedule = make_schedule("adaptive", 1.0, patience=1)
    for _ in range(100):
        schedule.observe(1.0)
    assert 1e-7 < schedule.plan(0)[0] <= 1e-6


@pytest.mark.parametrize("name", SCHEDULES)
def test_state_goes_through_json(name):
    def fresh():
        step = None if name == "optimal" else 0.5
        return make_schedule(name, step, l2=1e-3, dloss=lambda p: 1.0, patience=2)

    objectives = [3.0, math.nan, 3.0, 3.0, 2.0, 2.0, 2.0, 2.0]
    whole, first, second = fresh(), fresh(), fresh()
    second.restore(json.loads(json.dumps(first.state(), allow_nan=False)))  # before anything was observed
    for epoch, objective in enumerate(objectives):
        if epoch == 3:
            second.restore(json.loads(json.dumps(first.state(), allow_nan=False)))
        for schedule in (whole, first if epoch < 3 else second):
            schedule.observe(objective)
    assert [second.plan(e) for e in range(8, 12)] == [whole.plan(e) for e in range(8, 12)]
    assert second.state() == whole.state()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "cosine", "step": 1.0}, "constant, epoch, round, rows, inverse, optimal, adaptive"),
        ({"name": "optimal", "step": None}, "l2 > 0"),
        ({"name": "optimal", "step": 1.0, "l2": 1.0}, "leave step out"),
        ({"name": "constant", "step": None}, "above 0"),
        ({"name": "constant", "step": math.nan}, "above 0"),
        ({"name": "constant", "step": 0.0}, "above 0"),
        ({"name": "inverse", "step": 1.0, "decay": 0.5}, "epoch or round"),
        ({"name": "epoch", "step": 1.0, "power": 0.5}, "inverse"),
    ],
)
def test_refused(arguments, message):
    with pytest.raises(UsageError, match=message):
        make_schedule(**arguments)


def test_names_are_those_of_the_config():
    assert tuple(SCHEDULES) == methods.SCHEDULES


def test_adaptive_counts_epochs_that_were_not_looked_at() -> None:
    schedule = make_schedule("adaptive", 1.0)
    schedule.observe(1.0)
    for _ in range(2):
        schedule.observe(1.0, 2)
    assert schedule.plan(5)[0] == 1.0
    schedule.observe(1.0, 2)
    assert schedule.plan(7)[0] == 0.2


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
