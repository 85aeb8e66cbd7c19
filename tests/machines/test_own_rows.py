"""Machines with rows of their own: the problem and the objective are those of one machine that has all the rows."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hogwild
from hogwild.config import TrainConfig
from hogwild.data.rows.container import Rows, readonly
from hogwild.errors import HogwildWarning, InputError, TrainingError, UsageError
from hogwild.kernels.control import NEXT
from hogwild.machines.cluster import Cluster
from hogwild.machines.own_rows import settle
from hogwild.problems.linear.case import LinearCase
from tests.machines.test_machines import OPTIONS, together
from tests.runs import toy


def parts_of(rows: Rows, *cuts: int) -> list[Rows]:
    """Copies of consecutive parts, each with the features only that it has, as if read from a file of its own."""
    found = []
    for first, last in zip((0, *cuts), (*cuts, len(rows)), strict=True):
        part = rows.block(first, last).compact()
        found.append(part.replace(width=int(part.indices.max(initial=0)) + 1))
    return found


def fit_parts(parts: list[Rows], tests: list[Rows | None] | None = None, **options: Any) -> Callable[[Cluster], Any]:
    def work(cluster: Cluster) -> Any:
        test = None if tests is None else tests[cluster.number]
        run = hogwild.train(parts[cluster.number], test, cluster=cluster, own_rows=True, **(OPTIONS | options))
        model = run.finish()
        return run.history, model, run

    return work


def evaluated(rows: Rows, model: hogwild.LinearModel, test: Rows | None = None, **options: Any) -> dict[str, Any]:
    """What one machine that has all the rows says of a model."""
    config = TrainConfig(**({"host": "threads", "workers": 1, "discipline": "hogwild"} | options))
    case = LinearCase(config, rows, test)
    case.make_evaluator()
    coef = model.coef_ if len(model.coef_) > 1 else model.coef_[0]
    return case.evaluate((coef, model.intercept_))


def agree(found: dict[str, Any], expected: dict[str, Any], least: str = "objective") -> None:
    names = [name for name in expected if expected[name] is not None and name in found and found[name] is not None]
    assert least in names
    for name in names:
        assert found[name] == pytest.approx(expected[name], rel=1e-12, abs=1e-15), name


@pytest.mark.parametrize(
    ("classes", "options"), [(2, {}), (2, {"class_weight": "balanced"}), (4, {"normalize": "l2", "l1": 1e-4})]
)
def test_every_machine_poses_the_problem_of_all_rows(classes: int, options: dict[str, Any]) -> None:
    rows = toy(700, classes=classes)
    if classes == 2:
        rows = rows.replace(weights=readonly(np.random.default_rng(5).random(len(rows)).astype(np.float32)))
    else:  # machine 2 has a class of its own, and a feature
        rows = rows.select(np.argsort(rows.targets == 3, kind="stable")).compact()
        indices = rows.indices.copy()
        indices[rows.end[-9:] - 1] = 999
        rows = rows.replace(indices=readonly(indices), width=1000)
    weighted, options = not options, {"l2": 1e-3} | options
    config = TrainConfig(host="threads", workers=1, machines=3, own_rows=True, **options)
    parts = parts_of(rows, 100, 450)
    if weighted:  # a file without weights
        parts[1] = parts[1].replace(weights=None)
        weights = rows.weights.copy()
        weights[100:450] = 1
        rows = rows.replace(weights=readonly(weights))
    whole = LinearCase(TrainConfig(host="threads", workers=1, discipline="serial", **options), rows, None)
    settled = together(3, lambda cluster: settle(cluster, parts[cluster.number], None, config)[0])
    cases = [
        LinearCase(TrainConfig(host="threads", workers=1, discipline="serial", **options), part, None)
        for part in settled
    ]
    for one in cases:
        assert one.n == len(rows)
        assert one.problem.intercept == pytest.approx(cases[0].problem.intercept)
        assert (one.problem.labels, one.problem.width) == (whole.problem.labels, whole.problem.width)
        assert one.problem.size == whole.problem.size
        assert one.fingerprint == cases[0].fingerprint
        np.testing.assert_array_equal(one._arrays["rates"], whole._arrays["rates"])  # the degrees
    for name in ("targets", "weights", "scales"):
        joined = np.concatenate([one._arrays[name] for one in cases])
        np.testing.assert_allclose(joined, whole._arrays[name], rtol=1e-7)
    total = settled[0].totals.degrees
    np.testing.assert_array_equal(total, rows.degrees())


@pytest.mark.parametrize(
    "options",
    [
        {"class_weight": "balanced", "workers": 2},
        {"classes": 3, "loss": "softmax"},
        {"classes": 0, "loss": "squared-error", "step": 0.05, "exchange": "averaging:period=100"},
        {"schedule": "inverse", "workers": 2, "discipline": "tiered"},
        {"exchange": "gossip"},
        {"exchange": "server", "step": None},
    ],
    ids=str,
)
def test_the_objective_is_that_of_all_rows(options: dict[str, Any]) -> None:
    options = options.copy()
    classes = options.pop("classes", 2)
    rows, test = toy(900, classes=classes), toy(300, classes=classes, seed=3)
    found = together(2, fit_parts(parts_of(rows, 250), parts_of(test, 200), **options))
    (history, model, _), (others, other, _) = found
    assert others == []
    np.testing.assert_array_equal(model.coef_, other.coef_)
    goal = {name: options[name] for name in ("loss", "class_weight") if name in options}
    agree(history[-1], evaluated(rows, model, test, **goal))
    zero = dataclasses.replace(model, coef_=np.zeros_like(model.coef_), intercept_=np.zeros_like(model.intercept_))
    agree(history[0], evaluated(rows, zero, test, **goal))
    assert [row["updates"] for row in history[1:]] == [len(rows)] * 4
    assert history[-1].get("test_auc") is None  # which is no sum


def test_all_that_have_opened_the_same_rows_keep_a_range_each() -> None:
    rows, test = toy(901), toy(300, seed=2)
    found = together(3, fit_parts([rows] * 3, [test] * 3))
    history, model, _ = found[0]
    assert [row["updates"] for row in history[1:]] == [len(rows)] * 4  # nothing twice, nothing left out
    agree(history[-1], evaluated(rows, model, test))


def test_a_stopped_run_goes_on_with_the_same_rows(tmp_path: Any) -> None:
    rows = toy(1500)
    parts = parts_of(rows, 500)
    kept = {"checkpoint": tmp_path / "c"}
    unbroken = together(2, fit_parts(parts, epochs=5))[0]
    together(2, fit_parts(parts, epochs=2, **kept))
    (history, model, _), (_, other, _) = together(2, fit_parts(parts, epochs=5, resume=True, **kept))
    np.testing.assert_array_equal(model.coef_, unbroken[1].coef_)  # one worker each: to the bit
    np.testing.assert_array_equal(model.coef_, other.coef_)
    assert [row["epoch"] for row in history] == [0, 1, 2, 3, 4, 5]
    found = together(2, fit_parts(parts_of(rows, 501), epochs=6, resume=True, **kept))
    assert "the training data are not those of the checkpoint" in str(found[0])
    assert "the training data are not those of the checkpoint" in str(found[1])


def test_a_run_that_was_stopped_within_an_epoch_does_each_row_once(tmp_path: Any) -> None:
    rows = toy(30_000)
    parts = parts_of(rows, 20_000)
    kept = {"checkpoint": tmp_path / "c", "epochs": 3}

    def stopped(cluster: Cluster) -> Any:
        run = hogwild.train(parts[cluster.number], cluster=cluster, own_rows=True, **(OPTIONS | kept))
        if not cluster.leads:
            return run.finish()
        next(run)
        job = run.engine.job
        begin = job.begin_epoch

        def begin_and_stop(*args: Any) -> None:
            begin(*args)
            job.control[NEXT] = 7  # seven chunks seem done here; machine 1 goes on until it hears of the stop
            run.stop()

        job.begin_epoch = begin_and_stop
        return next(run), run.engine.state(), job.order.chunk

    (row, state, chunk), _ = together(2, stopped)
    assert row["status"] == "interrupted"
    assert state["chunk"] == 7
    (history, _, _), _ = together(2, fit_parts(parts, resume=True, **kept))
    assert {entry["epoch"]: entry["updates"] for entry in history if entry["epoch"] in (1, 2, 3)} == {
        1: len(rows) - 7 * chunk,
        2: len(rows),
        3: len(rows),
    }


def test_without_a_machine_the_objective_is_of_the_rows_that_remain() -> None:
    rows = toy(1200)
    parts = parts_of(rows, 400, 900)

    def work(cluster: Cluster) -> Any:
        run = hogwild.train(parts[cluster.number], cluster=cluster, own_rows=True, **(OPTIONS | {"epochs": 8}))
        if cluster.number == 2:
            run.stop()
        if not cluster.leads:
            return run.finish()
        with pytest.warns(
            HogwildWarning, match=r"^machine 2 \(.*; its 300 rows are lost: .* of the other 900$"
        ) as said:
            model = run.finish()
        assert len(said) == 1
        return run.history, model

    (history, model), other, _ = together(3, work)
    np.testing.assert_array_equal(model.coef_, other.coef_)
    last = history[-1]
    assert (last["status"], last["epoch"], last["workers_lost"], last["updates"]) == ("ok", 8, 1, 900)
    left = evaluated(rows.block(0, 900).compact(), model)
    assert last["train_loss"] == pytest.approx(left["train_loss"], rel=1e-12)
    assert last["train_accuracy"] == pytest.approx(left["train_accuracy"], rel=1e-12)


def test_test_rows_of_a_machine_but_not_of_machine_0() -> None:
    rows, test = toy(200), toy(50, seed=3)
    found = together(2, fit_parts(parts_of(rows, 80), [None, test]))
    assert {str(error).partition(" has ")[2].partition(" and ")[0] for error in found} == {"test rows"}
    (history, model, _), _ = together(2, fit_parts(parts_of(rows, 80), [test, None]))
    agree(history[-1], evaluated(rows, model, test))


def of_one_class(rows: Rows) -> Rows:
    return rows.select(np.flatnonzero(rows.targets > 0)).compact()


OTHER = toy(100, seed=2)
#: Rows of machines 0 and 1 (and 2), what they want besides, and why all of them refuse.
REFUSED: dict[str, tuple[list[Rows], dict[str, Any], str]] = {
    "no rows": ([toy(200), Rows([0], [], [], [], 3)], {}, "the training data have no rows"),
    "other labels": (
        [toy(200), OTHER.replace(targets=readonly(np.maximum(OTHER.targets, 0)))],
        {},
        "the labels 0, 1, and machine 0 .* -1, 1: write",
    ),
    "one class": ([of_one_class(toy(200)), of_one_class(toy(90))], {}, "^all .* have the label 1: loss log needs two"),
    "no step": ([of_one_class(toy(300)), OTHER], {"step": None}, "the label 1 only: give step"),
    "same rows": ([toy(200), OTHER, toy(200)], {}, "machine 2 .* and machine 0 .*opened the same rows"),
    "hashed": ([toy(100), OTHER.replace(hash_bits=8)], {}, "give all of them one store"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_rows_that_do_not_go_together_are_refused_everywhere(case: str) -> None:
    rows, options, reason = REFUSED[case]
    errors = together(len(rows), fit_parts(rows, **options))
    for error in errors:
        assert isinstance(error, InputError | TrainingError)
        assert re.search(reason, str(error))
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("options", "reason"),
    [({}, "own_rows is for several machines"), ({"machines": 2, "problem": "cuts"}, "unknown option own_rows")],
)
def test_what_own_rows_are_not_for(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        TrainConfig(own_rows=True, **options)
