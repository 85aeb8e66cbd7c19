"""Evaluation on the device: the CPU's sums within 1e-5 in every row, and the CPU's own in the last."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hogwild.cuda.completion.launcher import CompletionLauncher
from hogwild.cuda.linear import launcher as on_device
from hogwild.cuda.streams import Streams
from hogwild.data.ratings.container import Ratings
from hogwild.problems.completion.objective import RatingObjective
from hogwild.problems.linear.objective import Objective
from tests.cuda.standin import StandIn
from tests.cuda.test_completion import a_problem
from tests.cuda.test_linear import KINDS, Trial, small_rows
from tests.cuda.test_training import begin, device  # noqa: F401


@pytest.mark.parametrize(("loss", "classes"), KINDS)
@pytest.mark.parametrize("seed", [0, 1])
def test_rows_as_the_evaluator_sums_them(loss, classes, seed, monkeypatch):
    monkeypatch.setattr(on_device, "PIECE", 40)
    rows = small_rows(loss, classes, n=30, weights=seed == 1, unit=seed == 0 and classes == 1)
    trial = Trial(rows, loss=loss, normalize=("none", "l2")[seed])
    problem = trial.problem
    judge = Objective(
        rows,
        loss,
        problem.loss_param,
        normalize=problem.normalize,
        labels=problem.labels,
        width=problem.width,
        weights=trial.arrays["weights"] if seed else None,
    )
    for factor in (1.0, 20.0):
        trial.launcher.flat *= factor
        wanted = judge.sums(*problem.solution(trial.launcher.flat.numpy())).totals
        np.testing.assert_allclose(trial.launcher.sums(trial.data()), wanted, rtol=1e-5)
    trial.launcher.flat[:] = float("nan")
    found = trial.launcher.sums(trial.data())
    assert np.isnan(found[1])
    assert found[2] == 0 or np.isnan(found[2])


def test_more_nonzeros_than_an_int32_counts(monkeypatch):
    found = []
    for most in (1 << 30, 1):
        monkeypatch.setattr("hogwild.cuda.work.INT32", most)
        trial = Trial(small_rows(n=30), l2=0.02)
        assert trial.data()["begin"].dtype == (torch.int64 if most == 1 else torch.int32)
        found.append(trial.launcher.sums(trial.data()))
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("biases", [True, False])
def test_ratings_as_the_evaluator_sums_them(biases, monkeypatch):
    monkeypatch.setattr("hogwild.cuda.completion.launcher.EVALUATED", 100)
    problem, arrays, flat = a_problem(biases=biases)
    launcher = CompletionLauncher(problem, arrays, StandIn())
    launcher.flat.copy_(torch.from_numpy(flat))
    data = {name: torch.from_numpy(part.copy()) for name, part in launcher.part(0, len(arrays["users"])).items()}
    values = arrays["values"] * problem.scale + problem.mean
    ratings = Ratings(arrays["users"], arrays["items"], values, (problem.users, problem.items))
    found = RatingObjective(ratings, "squared-error", mean=problem.mean).evaluate(*problem.solution(flat))
    squared, absolute = launcher.sums(data) / len(values)
    assert squared**0.5 == pytest.approx(found["rmse"], rel=1e-5)
    assert absolute == pytest.approx(found["mae"], rel=1e-5)


@pytest.mark.parametrize("problem", ["linear", "completion", "module"])
def test_rows_between_are_the_devices_and_the_last_is_the_cpus(problem, monkeypatch):
    asked, sums = [], Streams.sums
    monkeypatch.setattr(Streams, "sums", lambda self: asked.append(1) or sums(self))
    options = {} if problem == "module" else {"in_flight": 16}
    mine = list(begin(problem, device="cuda", **options))
    assert len(asked) == 3
    monkeypatch.setattr(Streams, "sums", lambda self: None)
    theirs = list(begin(problem, device="cuda", **options))
    for row, other in zip(mine, theirs):
        assert row.keys() == other.keys()
        for name in [name for name in row if name.startswith(("objective", "test_")) or name == "train_loss"]:
            assert row[name] == pytest.approx(other[name], rel=1e-5), name
    assert mine[-1]["objective"] == theirs[-1]["objective"]


def test_a_target_is_reached_by_what_the_cpu_says(monkeypatch):
    """The device's sums, were they too low, end no run before its target."""
    whole = [row["objective"] for row in begin("linear", device="cuda", in_flight=16, epochs=4)]
    target = (whole[2] + whole[3]) / 2
    assert whole[3] < target < whole[2]
    monkeypatch.setattr(Streams, "sums", lambda self: np.array([1.0, 0.0, 0.0, 0.0]))
    rows = list(begin("linear", device="cuda", in_flight=16, epochs=4, target=target))
    assert [row["epoch"] for row in rows] == [0, 1, 2, 3]


def test_data_beyond_the_device_are_summed_by_the_cpu(device, monkeypatch):  # noqa: F811
    device._free = 20_000
    run = begin("linear", device="cuda", in_flight=8)
    next(run)
    assert run.engine.pool.sums() is None
    run.close()
