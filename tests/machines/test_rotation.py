"""Rotation between machines: bit for bit one machine that works on the same tiles in the same order."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hogwild
from hogwild.data.ratings.container import Ratings
from hogwild.errors import InputError, TrainingError, UsageError
from hogwild.machines.cluster import Cluster
from hogwild.problems.completion.problem import CompletionProblem
from hogwild.problems.protocol import case_of
from hogwild.training.engine import Engine, resolve, start_pool
from hogwild.training.schedule import make_schedule
from tests.machines.test_machines import fit, together
from tests.runs import slowed, when

RATINGS = "synthetic:ratings?users=300&items=200&ratings=6000"
OPTIONS: dict[str, Any] = {
    "problem": "completion",
    "rank": 5,
    "step": 0.05,
    "penalty": "per-rating",
    "exchange": "rotation",
    "workers": 1,
    "host": "threads",
    "epochs": 3,
}
NAMES = ("user_factors", "item_factors", "user_bias", "item_bias")


@pytest.fixture(scope="module")
def ratings() -> Ratings:
    return hogwild.open_ratings(RATINGS)


def bits(model: Any) -> list[bytes]:
    return [getattr(model, name).tobytes() for name in NAMES]


def serially(ratings: Ratings, machines: int, **options: Any) -> tuple[list[np.ndarray], int]:
    """The model's arrays of one machine that works on all tiles in the order of so many, and the numbers that these
    would have sent.
    """
    config = resolve(hogwild.TrainConfig(machines=machines, **OPTIONS | options), len(ratings))
    case = case_of("completion")(config, ratings, None)
    schedule = make_schedule(case.config.schedule, case.config.step, decay=case.config.decay)
    engine = Engine(case.lay_out, start_pool("threads", 1))
    try:
        for epoch in range(config.epochs):
            engine.advance(schedule.plan(epoch))
            engine.go_to(engine.epoch)
        users, items = case.problem.rows_of_parts(engine.job.data(), engine.job.order)
        rows = config.epochs * (machines - 1) * sum(map(len, items))
        for epoch in range(config.epochs):
            held = [items[(machine - 1 - epoch) % machines] for machine in range(machines)]  # after P - 1 turns
            rows += sum(map(len, [*users[1:], *held[1:]]))
        return [*case.solution(engine.job.export())], rows * case.problem.numbers
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("machines", "options"),
    [
        (2, {}),
        (4, {"penalty": "per-rating", "rank": 17, "biases": False}),
    ],
)
def test_machines_are_one_machine_to_the_bit(ratings: Ratings, machines: int, options: dict[str, Any]) -> None:
    (history, model), *others = together(machines, fit(ratings, **OPTIONS | options))
    expected, numbers = serially(ratings, machines, **options)
    for name, array in zip(NAMES, expected, strict=True):
        np.testing.assert_array_equal(getattr(model, name), array)
    for _, other in others:
        assert bits(other) == bits(model)
    assert [row["updates"] for row in history[1:]] == [len(ratings)] * 3
    assert history[-1]["objective"] < history[0]["objective"]
    assert (history[-1]["status"], history[-1]["replicas"], history[-1]["workers_lost"]) == ("ok", machines, 0)
    messages = 3 * (machines * (machines - 1) + machines - 1)  # each passes P - 1 blocks, and all but one bring theirs
    assert history[-1]["messages"] == messages
    assert history[-1]["bytes_sent"] == 64 * messages + 4 * numbers


def test_workers_race_inside(ratings: Ratings) -> None:
    options = OPTIONS | {"workers": 2, "discipline": "hogwild", "epochs": 4}
    (history, model), (_, other) = together(2, fit(ratings, **options))
    assert bits(model) == bits(other)
    alone = hogwild.train(ratings, **OPTIONS | {"exchange": "none", "epochs": 4})
    alone.finish()
    assert [row["updates"] for row in history[1:]] == [len(ratings)] * 4
    assert history[-1]["objective"] < 1.1 * alone.history[-1]["objective"]


def test_a_run_goes_on_with_as_many_machines_as_there_are(ratings: Ratings, tmp_path: Path) -> None:
    def on(machines: int, epochs: int, folder: str, **options: Any) -> Any:
        return together(
            machines,
            fit(ratings, **OPTIONS | {"epochs": epochs, "checkpoint": tmp_path / folder, "resume": True} | options),
        )[0]

    whole = on(2, 4, "whole")
    on(2, 2, "parts")
    history, model = on(2, 4, "parts")
    assert bits(model) == bits(whole[1])
    assert [row["objective"] for row in history] == [row["objective"] for row in whole[0]]
    history, _ = on(3, 5, "parts")
    assert history[-1]["objective"] < history[-2]["objective"]
    alone = OPTIONS | {"exchange": "none", "epochs": 7, "checkpoint": tmp_path / "parts", "resume": True}
    run = hogwild.train(ratings, **alone)
    for row in run:
        if row["epoch"] == 6:
            run.stop()
    assert run.history[-1]["objective"] < history[-1]["objective"]


def test_a_stop_completes_the_epoch(ratings: Ratings, monkeypatch: pytest.MonkeyPatch) -> None:
    slowed(monkeypatch, CompletionProblem, 2e-5)
    begun = threading.Barrier(2)

    def work(cluster: Cluster) -> Any:
        run = hogwild.train(ratings, cluster=cluster, **OPTIONS | {"epochs": 1000})
        begun.wait()
        if cluster.leads:
            when(lambda: run.progress().epoch > 2 and run.progress().rows_done > 100, run.stop)
        model = run.finish()
        return run.history, model

    (history, model), (_, other) = together(2, work)
    assert bits(model) == bits(other)
    assert history[-1]["status"] == "interrupted"
    assert history[-1]["epoch"] == int(history[-1]["epoch"])
    assert {row["updates"] for row in history[1:]} == {len(ratings)}


def test_a_machine_that_is_gone_ends_the_run(ratings: Ratings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slowed(monkeypatch, CompletionProblem, 1e-5)

    def work(cluster: Cluster) -> Any:
        options = OPTIONS | {"epochs": 10**6, "checkpoint": tmp_path / "c"}
        run = hogwild.train(ratings, cluster=cluster, **options)
        if cluster.number == 2:
            threading.Timer(0.5, cluster.leave, ("its cable was cut",)).start()
        return run.finish()

    first, second, _ = together(3, work)
    for error in (first, second):
        assert isinstance(error, TrainingError)
        assert "machine 2 (" in str(error)
        assert "is gone: its cable was cut; rotation needs every machine: resume from a checkpoint" in str(error)
        assert "\n" not in str(error)
    resumed = hogwild.train(
        ratings,
        checkpoint=tmp_path / "c",
        resume=True,
        **OPTIONS | {"exchange": "none", "epochs": 10**6},
    )
    assert next(resumed)["status"] == "ok"
    resumed.close()


def test_an_epoch_that_was_begun_otherwise_is_completed_otherwise(
    ratings: Ratings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slowed(monkeypatch, CompletionProblem, 1e-3)
    options = OPTIONS | {"exchange": "none", "epochs": 1000, "checkpoint": tmp_path / "c"}
    run = hogwild.train(ratings, **options)
    next(run)
    when(lambda: run.progress().seconds > 0.1, run.stop)
    list(run)
    assert 0 < run.history[-1]["epoch"] < 1
    both = OPTIONS | {"epochs": 1000, "checkpoint": tmp_path / "c", "resume": True}
    first, _ = together(2, fit(ratings, **both))
    assert isinstance(first, InputError)
    assert "rotation resumes at a whole epoch; got a checkpoint within one" in str(first)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"machines": 1}, "passes blocks of items between machines: give machines"),
        ({"problem": "linear"}, "passes blocks of items round, of which problem 'linear' has none: choose averaging"),
        ({"loss": "bpr"}, "loss 'bpr' draws items that other machines hold: choose averaging"),
        ({"order": "file"}, "has an order of its own, in which blocks meet: leave order='file' out"),
        ({"exchange": "rotation:period=3"}, "rotation has no numbers"),
    ],
)
def test_what_rotation_refuses(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        hogwild.TrainConfig(**{"problem": "completion", "machines": 2, "exchange": "rotation"} | options)
    assert reason in str(caught.value)
