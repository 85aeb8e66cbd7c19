"""`step auto`: near the best of the grid, never a step that diverges, and a number for any data there are."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import hogwild
from hogwild.config import TrainConfig
from hogwild.data.order import Order
from hogwild.data.rows.container import Rows
from hogwild.errors import TrainingError
from hogwild.problems.linear.objective import Objective
from hogwild.training import step_search
from hogwild.training.step_search import HIGHEST, LOWEST, Probe, StepTrials, best_power
from hogwild.training.workers import InlineWorker
from tests.runs import toy


def probed(rows: Rows, **options: Any) -> float:
    return Probe(TrainConfig(workers=1, host="threads", **options), rows).search()


def after_ten_epochs(rows: Rows, step: float, **options: Any) -> float:
    run = hogwild.train(rows, workers=1, step=step, epochs=10, **options)
    try:
        run.finish()
    except TrainingError:
        return math.inf
    return run.history[-1]["objective"]


CASES: dict[str, tuple[Rows, dict[str, Any]]] = {
    "hinge": (toy(noise=2.0), {"loss": "hinge"}),
    "round": (toy(classes=0), {"schedule": "round", "loss": "squared-error"}),
    "softmax": (toy(classes=4), {"loss": "softmax"}),
}


@pytest.mark.parametrize("name", CASES)
def test_near_the_best_of_the_grid(name: str) -> None:
    rows, options = CASES[name]
    step = probed(rows, **options)
    grid = {2.0**power: after_ten_epochs(rows, 2.0**power, **options) for power in range(-8, 7, 2)}
    best, start = min(grid.values()), hogwild.train(rows, workers=1, step=1.0, epochs=1, **options)
    given_up = after_ten_epochs(rows, step, **options) - best
    assert given_up <= 0.02 * (next(start)["objective"] - best)


def test_the_loop_of_the_run_is_the_one_that_probes() -> None:
    """A lock-free worker alone does what a serial one does, to the last bit, so there is one loop to compile."""
    trials = [Probe(TrainConfig(workers=2, discipline=name), toy()).trials for name in ("hogwild", "tiered")]
    assert [trial.workers.problem.discipline for trial in trials] == ["hogwild", "serial"]
    assert trials[0](-3) == trials[1](-3)
    assert (trials[0].workers.parameters() == trials[1].workers.parameters()).all()


def test_where_every_step_diverges_the_run_says_so() -> None:
    X = toy().to_scipy()[0] * np.float32(1e30)
    assert probed(Rows.from_scipy(X, toy().targets)) >= 2.0**LOWEST
    with pytest.raises(TrainingError, match=r"diverged in epoch 1 .*normalize='l2'"):
        hogwild.train((X, toy().targets), workers=1, loss="squared-error", scale_columns=False).finish()
    assert hogwild.train((X, toy().targets), workers=1, normalize="l2", epochs=5).finish().coef_.any()


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.eye(2), [0, 1]),
        (sp.csr_array((10, 0)), [0, 1] * 5),
        (np.array([[1.0], [0.0]]), [5, 7]),
        (np.eye(30), np.arange(30)),
        (np.full((4, 3), 1e15), [0, 1, 0, 1]),
    ],
    ids=["two rows", "no features", "one row empty", "a class a row", "1e15"],
)
def test_tiny_data(X: Any, y: Any) -> None:
    step = probed(Rows.from_scipy(X, y))
    assert 2.0**LOWEST <= step <= 2.0**HIGHEST
    assert math.log2(step).is_integer()
    assert np.isfinite(hogwild.train((X, y), workers=1, epochs=3).finish().coef_).all()


def test_features_that_the_sample_lacks_change_nothing() -> None:
    """Not even the last bit, although a model so wide has its l2 factors computed one by one."""
    rows = toy(800, width=60)
    places = np.sort(np.random.default_rng(0).choice((1 << 20) + 1, 60, replace=False))
    wide = Rows((rows.begin, rows.end), places[rows.indices].astype(np.int32), rows.values, rows.targets, (1 << 20) + 1)
    narrow = Probe(TrainConfig(workers=1, l1=1e-4, normalize="l2"), wide).trials
    assert narrow.workers.problem.width <= 60
    p = dataclasses.replace(narrow.workers.problem, width=wide.width)
    worker = InlineWorker(p, Order.of(len(wide)), wide, p.row_arrays(wide, None), 0)
    objective = Objective(wide, p.loss, p.loss_param, l1=p.l1, l2=p.l2, normalize=p.normalize, labels=p.labels)

    def value(flat: np.ndarray) -> float:
        return float(objective.evaluate(*p.solution(flat))["objective"] or 0.0)

    full = StepTrials(worker, value, narrow.plan, None, narrow.looks)
    for power in (-6, -1, 4):
        assert narrow(power) == full(power)


def test_it_depends_on_nothing_that_resuming_may_change() -> None:
    rows = toy()
    steps = {probed(rows, epochs=epochs) for epochs in (1, 10, 100)}
    assert len(steps) == 1
    config = TrainConfig(workers=2, host="processes", discipline="atomic")
    assert {Probe(config, rows).search()} == steps


def test_a_class_that_the_sample_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_search, "FEWEST", 50)
    monkeypatch.setattr(step_search, "BUDGET", 10)
    rows = toy(5000)
    targets = np.ones(5000, np.float32)
    targets[4321] = -1
    rare = rows.replace(targets=targets)
    probe = Probe(TrainConfig(workers=1), rare)
    assert probe.trials.workers.order.n_rows == 51
    assert 2.0**LOWEST <= probe.search() <= 2.0**HIGHEST


def searched(first: int, value: Callable[[int], float]) -> tuple[int, list[int]]:
    """The power found for an objective ``value``, and the powers that were tried."""
    powers: list[int] = []
    return best_power(lambda power: powers.append(power) or value(power), 1e6, first)[0], powers


@pytest.mark.parametrize("first", [-13, -2, 0, 7, 16])
@pytest.mark.parametrize("best", [-9, -4, 0, 3, 6])
def test_the_search_finds_the_minimum(first: int, best: int) -> None:
    power, powers = searched(first, lambda power: 3e4 * abs(power - best - 0.1))
    assert power == best
    assert len(powers) == len(set(powers)) <= abs(first - best) // 2 + 5
    assert searched(first, lambda power: math.inf if power > best else -3e4 * power)[0] == best


def test_the_search_ends() -> None:
    power, powers = searched(0, lambda power: math.inf)
    assert power == LOWEST
    assert len(powers) < 80
    assert len(searched(0, lambda power: 1e7 - power)[1]) < 40  # worse than nothing, whatever is tried
    assert searched(0, lambda power: 1.0)[0] == -1  # nothing matters: the smallest that was tried
    assert searched(0, lambda power: -3e4 * power)[0] == HIGHEST


@pytest.mark.parametrize("fine", [False, True])
def test_a_larger_step_must_be_worth_it(fine: bool) -> None:
    """Without a penalty a sample that can be told apart wants ever larger steps, which are too large for all rows."""
    start = math.log(2)
    power, found = best_power(lambda power: start * 2.0**-power, start, 0, fine)
    assert power == 8
    assert max(found) == 10
    assert best_power(lambda power: start * 2.0**-power, start, 0, fine, little=0.0)[0] == HIGHEST
    assert best_power(lambda power: -8.0 + 0.001 * abs(power), -8.0, 0, fine)[0] == 0  # nor may it lose, below zero
    assert best_power(lambda power: abs(power + 6.0), 100.0, 0, fine)[0] == -6  # a smaller one need only be better


def test_perceptron_is_not_probed_down_to_nothing():
    """Its objective is lowest, zero, where it starts, so trials say nothing: the step is one over a row's length."""
    rows = toy()
    run = hogwild.train(rows, loss="perceptron", workers=1, epochs=4)
    model = run.finish()
    assert 2**-10 <= run.config.step <= 2**10
    assert np.mean(model.predict(rows) == rows.targets) > 0.8


def test_round_backoff_takes_the_longest_step_of_those_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its steps soon fall a hundredfold: of steps that gain alike in ten epochs, a short one would come to a halt."""
    alike = {-1: 1.0, 0: 0.999, 1: 1.0, 2: 1e5}
    monkeypatch.setattr(step_search, "best_power", lambda *_: (0, alike))
    for schedule, step in (("epoch", 1.0), ("round", 2.0)):
        probe = Probe(TrainConfig(schedule=schedule), toy(200))
        probe.trials.before = 1e6
        assert probe.search() == step


def test_the_first_row_has_what_was_tried() -> None:
    run = hogwild.train(toy(), workers=1, epochs=2)
    first, *later = run
    tried = {each["step"]: each["objective"] for each in first["step_path"]}
    assert list(tried) == sorted(tried)
    assert run.config.step in tried
    assert len(tried) >= 4
    assert tried[run.config.step] <= 1.01 * min(value for value in tried.values() if value is not None)
    assert all("step_path" not in row for row in later)
    assert "step_path" not in next(hogwild.train(toy(), workers=1, epochs=2, step=0.5))


def test_rows_of_weight_zero_are_not_sampled() -> None:
    rng = np.random.default_rng(0)
    X = sp.random(30_000, 50, density=0.1, format="csr", random_state=0)
    weights = np.zeros(30_000)
    weights[rng.choice(30_000, 40, replace=False)] = 1.0
    rows = Rows.from_scipy(X, rng.integers(2, size=30_000), weights=weights)
    assert 2.0**LOWEST < probed(rows) < 2.0**HIGHEST
