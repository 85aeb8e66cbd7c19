"""``l2="auto"``: what is chosen, by what, and that nothing else changes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import hogwild
from hogwild.config import TrainConfig
from hogwild.data.ratings.source import open_ratings
from hogwild.data.rows.container import Rows
from hogwild.errors import HogwildError, InputError, UsageError
from hogwild.kernels import cache
from hogwild.training import l2_choice
from hogwild.training.l2_choice import choose_l2, near_lowest
from tests.runs import QUIET, toy

RATINGS = open_ratings("synthetic:ratings?users=20&items=20&ratings=100")
PATH = (1e-6, 1e-3, 1e-2, 0.1)


def noisy(n: int = 600, **options: Any) -> Rows:
    """Rows with more features than they can teach, so that a stronger penalty than the default is better."""
    return toy(n, 304, 8, noise=4.0, **options)


def same(one: Any, other: Any) -> None:
    np.testing.assert_array_equal(one.coef_, other.coef_)
    np.testing.assert_array_equal(one.intercept_, other.intercept_)


def test_the_model_is_that_of_the_penalty_of_the_lowest_held_out_loss() -> None:
    rows, test = noisy(), toy(2000, 304, 8, noise=4.0).block(600, 2000)
    run = hogwild.train(rows, test, l2="auto", workers=1)
    model = run.finish()
    losses = {each["l2"]: each["held_out_loss"] for each in run.chosen.path}
    assert 1e-5 < min(losses, key=losses.__getitem__) <= run.config.l2 < max(losses)
    assert (run.chosen.rows + run.chosen.held_out, run.chosen.folds, run.chosen.epochs) == (600, 5, 0)
    other = hogwild.train(rows, test, l2="auto", workers=1, seed=1)
    np.testing.assert_allclose(model.coef_, other.finish().coef_, atol=0.01)  # both are the optimum
    assert run.chosen.path == other.chosen.path
    usual = hogwild.train(rows, test, workers=1)
    usual.finish()
    assert run.history[-1]["test_loss"] < usual.history[-1]["test_loss"]


def test_the_strongest_within_half_a_paired_standard_error_is_chosen() -> None:
    best = np.ones(400)
    apart = np.tile([-1.0, 1.0], 200)  # from the best in each row: the standard error of its mean is 1 / 20
    weights = np.ones(400)

    def near(*others: Any, rows: Any = weights) -> list[bool]:
        return near_lowest([best, *others], rows).tolist()

    assert near(best + apart + 0.02) == [True, True]
    assert near(best + apart + 0.03) == [True, False]
    assert near(best + apart - 0.01) == [True, True]
    assert near(best + 0.05 + apart * np.repeat([1, 3], 200)) == [True, True]
    half = np.repeat([1.0, 0.0], 200)  # of fewer rows the error is larger
    assert near(best + apart + 0.03, rows=half) == [True, True]
    assert near(best + 5e-5, best + 2e-4) == [True, True, False]  # 1e-4 is equal


def test_hinge_is_judged_by_errors() -> None:
    """The penalty of the lowest hinge loss makes more errors."""
    rest, held = hogwild.open_data("synthetic:rcv1?rows=6000").split(0.25, 0)
    found = choose_l2(TrainConfig(loss="hinge", l2="auto"), rest, held)
    errors = {each["l2"]: each["held_out_error"] for each in found.path}
    losses = {each["l2"]: each["held_out_loss"] for each in found.path}
    assert errors[found.l2] < errors[min(losses, key=losses.__getitem__)]


def test_a_fit_is_finished_whose_l2_was_chosen_in_few_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(l2_choice, "FEW", 0)
    rows = "synthetic:rcv1?rows=4000&features=100&nnz=10"
    run = hogwild.train(rows, loss="hinge", l2=PATH, workers=1)
    run.finish()
    best = hogwild.train(rows, loss="hinge", l2=run.config.l2, workers=1, epochs=400)
    best.finish()
    assert 0 < run.chosen.epochs < 30
    assert run.history[-1]["exact_seconds"] > 0.0
    assert run.history[-1]["objective"] <= 1.01 * best.history[-1]["objective"]


def test_an_optimum_that_may_overfit_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of fewer than twenty rows a parameter l2 is for the epochs that it was chosen by, and the run says so."""
    monkeypatch.setattr(l2_choice, "FEW", 0)
    run = hogwild.train("synthetic:rcv1?rows=2000&features=4000&nnz=20", loss="hinge", l2=PATH, workers=1)
    run.finish()
    assert run.history[-1]["exact_seconds"] is None
    assert run.history[-1]["verdict"] == "l2 was chosen for 10 epochs; its optimum may overfit: name l2 to reach it"


def documents(n: int = 600) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Counts of words in documents of uneven length, and the same of length one."""
    random = np.random.default_rng(0)
    lengths = np.exp(random.normal(3.5, 1.0, n))
    X = random.poisson(lengths[:, None] * random.dirichlet(np.full(200, 0.1), n)).astype(float)
    X[:, 0] += 1.0
    return X, X / np.sqrt(np.square(X).sum(axis=1, keepdims=True)), random


@pytest.mark.parametrize("kind", ["none", "l2"])
def test_normalize_belongs_to_the_choice(kind: str, tmp_path: Path) -> None:
    """Documents of uneven length are normalised if what they are about decides, and not if their length does."""
    X, shares, random = documents()
    z = X.sum(axis=1) if kind == "none" else shares @ random.normal(size=200)
    data = scipy.sparse.csr_matrix(X), np.where(z > np.median(z), 1.0, -1.0)
    run = hogwild.train(data, l2="auto", workers=1, checkpoint=tmp_path / "c")
    run.finish()
    assert run.config.normalize == run.chosen.normalize == kind
    more = hogwild.train(data, l2="auto", workers=1, checkpoint=tmp_path / "c", resume=True, epochs=30)
    assert more.config.normalize == kind
    more.close()
    given = {"none": "l2", "l2": "none"}[kind]
    other = hogwild.train(data, l2="auto", normalize=given, workers=1).chosen
    assert other.normalize == given
    assert run.chosen.value(run.config.l2) < other.value(other.l2)
    assert TrainConfig(l2=1e-5).normalize == TrainConfig(l2=PATH).normalize == "none"


def test_a_sample_tells_whether_to_normalise_many_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many classes or rare ones a sample may have one row, which cannot be in both halves."""
    X, shares, random = documents()
    topics = (shares @ random.normal(size=(200, 8))).argmax(axis=1)
    for y, entries, kind in (topics, 9000, "l2"), (np.arange(600) < 5, 1500, "none"):
        monkeypatch.setattr(l2_choice, "SCALED_ENTRIES", entries)
        config = TrainConfig(loss="softmax", l2="auto")
        assert choose_l2(config, Rows.from_scipy(scipy.sparse.csr_matrix(X), y)).normalize == kind


def test_held_out_losses_are_those_of_runs_on_the_other_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hogwild.problems.linear.problem.TABLE_WIDTH", 0)  # tabulated l2 factors round another way
    rest, held = noisy(400).split(0.25, 0)
    run = hogwild.train(noisy(400), l2=PATH, holdout=0.25, epochs=3, **QUIET)
    assert (run.chosen.rows, run.chosen.held_out, run.chosen.refitted) == (300, 100, False)
    for each in run.chosen.path:
        own = hogwild.train(rest, held, l2=each["l2"], epochs=3, keep="last", **QUIET)
        own.finish()
        assert each["held_out_loss"] == pytest.approx(own.history[-1]["test_loss"], rel=1e-12)
        assert (each["step"], each["epochs"]) == (0.5, 3)
    run.finish()
    chosen = next(each for each in run.chosen.path if each["l2"] == run.config.l2)
    assert run.history[-1]["test_loss"] == pytest.approx(chosen["held_out_loss"], rel=1e-12)  # they stay held out
    same(run.model, hogwild.train(rest, held, l2=PATH, epochs=3, **QUIET).finish())


def test_the_step_is_that_of_the_candidate_that_won() -> None:
    run = hogwild.train(noisy(400), l2=PATH, holdout=0.25, epochs=3, workers=1, host="threads")
    first = next(run)
    won = next(each for each in run.chosen.path if each["l2"] == run.config.l2)
    assert run.config.step == first["step"] == won["step"]
    assert "step_path" not in first
    several = noisy(400, classes=3).split(0.25, 0)
    for options in ({"exchange": "averaging"}, {"loss": "softmax"}):
        config = TrainConfig(l2_path=PATH, epochs=1, **options)
        assert choose_l2(config, *several).step is None


def test_held_out_rows_choose_and_test_rows_judge() -> None:
    rows, test = noisy(400), toy(200, 304, 8, noise=4.0, seed=3)
    rest, held = rows.split(0.25, 0)
    options = {"l2": 1e-6, "epochs": 6, "step": 4.0, "host": "threads", "workers": 1}
    both = hogwild.train(rows, test, holdout=0.25, **options)
    alone = hogwild.train(rest, held, **options)
    same(both.finish(), alone.finish())
    assert [row["held_out_loss"] for row in both.history] == [row["test_loss"] for row in alone.history]
    assert both.history[-1]["held_out_auc"] == alone.history[-1]["test_auc"]
    judged = hogwild.train(rest, test, keep="last", **options)
    judged.finish()
    assert [row["test_loss"] for row in both.history] == [row["test_loss"] for row in judged.history]
    assert both.history[-1]["kept_epoch"] == alone.history[-1]["kept_epoch"] < 6
    patient = hogwild.train(rest, test, holdout=held, patience=1, **options)
    patient.finish()
    assert patient.history[-1]["epoch"] < 6
    assert hogwild.train(rows, test, l2=PATH, holdout=0.25, **QUIET).chosen.held_out == 100


def test_the_better_half_of_candidates_for_several_classes_goes_on() -> None:
    rows = toy(400, 24, 4, classes=3)
    rows = rows.replace(values=rows.values * 1000)  # columns to be scaled
    path = tuple(float(f"1e-{k}") for k in range(8))
    rest, held = rows.split(0.2, 0)
    choice = choose_l2(TrainConfig(l2=path, epochs=8, step=0.25), rest, held)
    found = choice.path
    assert [choice.value(each["l2"]) is None for each in found] == [each["epochs"] < 8 for each in found]
    ends = sorted(each["epochs"] for each in found)
    assert set(ends) <= {1, 2, 4, 8}
    assert sum(ends) == 4 * 1 + 2 * 2 + 1 * 4 + 1 * 8
    assert ends[-1] == 8
    for each in found:
        own = hogwild.train(rest, held, l2=each["l2"], epochs=8, step=0.25, keep="last", workers=1)
        own.finish()
        assert own.history[-1]["columns_scaled"] == 24
        loss = own.history[each["epochs"]]["test_loss"]  # lanes are binary models, and the trainer's classes round
        assert each["held_out_loss"] == pytest.approx(loss, rel=1e-4)


def test_kernels_that_are_compiled_meanwhile_are_not_on_its_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = choose_l2(TrainConfig(l2=PATH, epochs=1), noisy(300))

    def compiles(*about: Any, **more: Any) -> l2_choice.L2Choice:
        time.sleep(0.1)
        cache.compiling_seconds += 0.06
        return chosen

    monkeypatch.setattr(l2_choice, "choose_l2", compiles)
    began = time.perf_counter()
    run = hogwild.train(noisy(300), l2=PATH, epochs=1, **QUIET)
    whole = time.perf_counter() - began
    assert 0.04 <= run.stopwatch.spent("l2") == run.chosen.seconds <= whole - 0.06
    assert run.stopwatch.spent("compiling") >= 0.06


def test_test_rows_have_no_part_in_it_and_rows_tell_of_the_choice() -> None:
    rows = noisy(300)
    runs = [hogwild.train(rows, test, l2=PATH, epochs=1, **QUIET) for test in (None, toy(50, seed=1), rows)]
    for run in runs:
        run.finish()
        first, last = run.history
        assert first["l2_path"] == runs[0].history[0]["l2_path"]
        assert (first["l2_rows"] + first["l2_held_out"], first["l2_folds"], first["l2_epochs"]) == (300, 5, 1)
        assert first["train_seconds"] >= first["l2_seconds"] == run.chosen.seconds > 0
        assert first["l2"] == last["l2"] == run.config.l2
        assert "l2_path" not in last
        assert run.config.l2_path is None


def test_a_run_that_is_resumed_does_not_choose_again(tmp_path: Path) -> None:
    rows, options = noisy(300), {"checkpoint": tmp_path / "c"} | QUIET
    hogwild.train(rows, l2=PATH, epochs=1, **options).finish()
    run = hogwild.train(rows, l2=PATH, epochs=3, resume=True, **options)
    assert run.chosen is None
    same(run.finish(), hogwild.train(rows, l2=PATH, epochs=3, **QUIET).finish())
    with pytest.raises(InputError, match=r"cannot resume with other options: l2 was"):
        hogwild.train(rows, l2=(0.0, 7.0), epochs=4, resume=True, **options)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"l2": "nine"}, "l2='nine': expected a number of at least 0, two or more as '1e-6,1e-5', or 'auto'"),
        ({"l2": (1e-3,)}, "two or more"),
        ({"l2": (-1.0, 1.0)}, "at least 0"),
        ({"l2": np.array([True, False])}, "at least 0"),
        ({"l2": "auto", "machines": 2}, "on one machine"),
    ],
)
def test_refusals(options: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        TrainConfig(**options)


def test_what_cannot_be_chosen_is_one_line() -> None:
    rows = noisy(40)
    rare = rows.replace(targets=np.float32(np.arange(40) == 17))
    cases: list[tuple[Rows, dict[str, Any], str]] = [
        (rows, {"l2": 1e-3, "holdout": noisy(40)}, r"holdout: expected a fraction, or what rows.split\(fraction\)"),
        (RATINGS, {"problem": "completion", "test": RATINGS, "holdout": 0.5}, "test and holdout at once are for rows"),
        (rows, {"l2": "auto", "holdout": 1.5}, "between 0 and 1"),
        (rare, {"l2": PATH}, "a class has one row, which cannot be held out"),
        (
            toy(100, classes=0),
            {"l2": PATH, "loss": "squared-error", "step": 1e30, "epochs": 3},
            "every candidate for l2 diverged",
        ),
    ]
    for data, options, what in cases:
        with pytest.raises(HogwildError, match=what):
            hogwild.train(data, workers=1, **options)
    rest, held = rows.split(0.25, 0)
    with pytest.raises(InputError, match="or no row held out has weight"):
        choose_l2(TrainConfig(l2=PATH), rest, held.replace(weights=np.zeros(10, np.float32)))


def test_a_class_that_is_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = noisy(40)
    rare = rows.replace(targets=np.float32(np.arange(40) == 17))
    monkeypatch.setattr(l2_choice, "FEW", 0)
    monkeypatch.setattr(l2_choice, "are_few", lambda *_: False)
    with pytest.raises(InputError, match="all rows of a class were held out"):
        choose_l2(TrainConfig(l2=PATH, seed=3), rare)  # which holds row 17 out


def test_steps_between_those_that_are_probed() -> None:
    rows = noisy(300)
    path = choose_l2(TrainConfig(l2="auto", epochs=1), rows).path
    steps = [each["step"] for each in path]
    assert all(step is not None and 2**-30 < step < 2**30 for step in steps)
    own = [hogwild.train(rows, l2=each["l2"], workers=1).config.step for each in path[::15]]
    most = 4.0 / np.median(np.square(rows.to_scipy()[0].toarray()).sum(axis=1))  # where log loss bends most
    assert own[0] > most
    assert steps[::15] == [pytest.approx(most), own[1]]
    assert choose_l2(TrainConfig(l2=PATH, epochs=1, schedule="optimal"), noisy(300)).path[0]["step"] is None


@pytest.mark.parametrize("classes", [2, 3])
def test_few_rows_are_all_held_out_once_and_scales_do_not_matter(classes: int) -> None:
    rows = toy(300, 60, 6, classes=classes, noise=2.0)
    small = rows.replace(values=rows.values * np.float32(2**-10))
    loss = "log" if classes == 2 else "softmax"
    found, other = (choose_l2(TrainConfig(loss=loss, l2="auto"), data) for data in (rows, small))
    assert (found.folds, found.rows + found.held_out) == (5, 300)
    assert other.l2 == pytest.approx(found.l2 * 1e-6, rel=0.1)  # 2^-20 is 1e-6 within 5 %
    assert other.value(other.l2) == pytest.approx(found.value(found.l2), rel=0.02)


@pytest.mark.parametrize("loss", ["quantile", "huber"])
def test_losses_of_bounded_slope_take_steps_of_the_targets_size(loss: str) -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(3000, 3))
    y = 1e6 * (X @ [1.0, -2.0, 3.0] + random.normal(size=3000))
    run = hogwild.train((X, y), loss=loss, l2="auto", workers=1)
    error = run.finish().predict(X) - y
    assert np.abs(error).mean() < 0.5 * np.abs(y).mean()
