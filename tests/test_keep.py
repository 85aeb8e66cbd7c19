"""Which parameters a run keeps, what its last row says of them, and that neither changes what is trained."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hogwild
from hogwild import machine
from hogwild.config import TrainConfig
from hogwild.data.rows.store import open_store, save_store
from hogwild.errors import UsageError
from hogwild.problems.linear import case, objective
from hogwild.training.keep import enough, unsettled, verdict
from hogwild.training.schedule import move_mean
from tests.runs import resumed, same

UNEQUAL = {"epochs": 20, "schedule": "constant", "step": 8.0}  # a run whose noise never ends


def noisy(n: int = 200, width: int = 60, seed: int = 0) -> hogwild.Rows:
    """Rows that a model soon learns by heart."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, width))
    return hogwild.Rows.from_scipy(X, np.where(X[:, 0] + random.normal(size=n) > 0, 1.0, -1.0))


def one_hot(n: int = 600, seed: int = 1) -> hogwild.Rows:
    """Rows of five ones; a step that suits them is noisy."""
    random = np.random.default_rng(seed)
    X = np.eye(40)[random.integers(0, 40, size=(n, 5))].reshape(n, 200)
    return hogwild.Rows.from_scipy(X, np.where(X @ random.normal(size=200) + random.logistic(size=n) > 0, 1.0, -1.0))


def trained(rows: hogwild.Rows, test: Any = None, **options: Any) -> Any:
    run = hogwild.train(rows, test, **({"workers": 1, "step": 0.3, "epochs": 8} | options))
    run.finish()
    return run


def loss_on(rows: hogwild.Rows, model: Any) -> float:
    X, y = rows.to_scipy()
    return float(np.logaddexp(0.0, -y * (X @ model.coef_[0].astype(float) + model.intercept_[0])).mean())


def test_the_epoch_with_the_lowest_held_out_loss_is_kept() -> None:
    rest, held_out = noisy().split(0.3)
    run = trained(rest, held_out)
    losses = [row["test_loss"] for row in run.history]
    best = int(np.argmin(losses[1:])) + 1
    assert best < 8, "the data are meant to be overfitted"
    assert run.history[-1]["kept_epoch"] == best
    np.testing.assert_allclose(loss_on(held_out, run.model), losses[best], rtol=1e-12)
    short = trained(rest, held_out, epochs=best, keep="last")  # the serial twin that was stopped there
    np.testing.assert_array_equal(run.model.coef_, short.model.coef_)


def test_test_rows_that_were_not_held_out_only_judge() -> None:
    rest, held_out = noisy().split(0.3)
    apart = hogwild.Rows.from_scipy(*held_out.compact().to_scipy())
    run = trained(rest, apart)
    assert run.history[-1]["kept_epoch"] == 8
    asked = trained(rest, apart, keep="best")
    assert asked.history[-1]["kept_epoch"] < 8


def test_best_without_held_out_rows_is_refused() -> None:
    with pytest.raises(UsageError, match="held-out rows, and there are none"):
        trained(noisy(), keep="best")


def test_the_mean_is_kept_where_it_is_better() -> None:
    rows = one_hot()
    options: dict[str, Any] = {"schedule": "constant", "step": 2.0}
    usual, last = trained(rows, **options), hogwild.train(rows, workers=1, epochs=8, keep="last", **options)
    mean = np.zeros(rows.width)
    for row in last:
        if row["epoch"]:
            move_mean(mean, last.model.coef_[0], row["epoch"])
    assert usual.history[-1]["objective"] < last.history[-1]["objective"], "the step is meant to be noisy"
    np.testing.assert_allclose(usual.model.coef_[0], mean, rtol=1e-6)
    assert [row["objective"] for row in usual.history[:-1]] == [row["objective"] for row in last.history[:-1]]


def test_the_last_parameters_are_kept_where_they_are_better() -> None:
    rows = one_hot()
    usual, last = trained(rows, step=0.01), trained(rows, step=0.01, keep="last")
    np.testing.assert_array_equal(usual.model.coef_, last.model.coef_)


@pytest.mark.parametrize(("held", "l1"), [(False, 1e-3), (True, 0.0)])
def test_a_resumed_run_keeps_the_same_bits(tmp_path: Path, held: bool, l1: float) -> None:
    rows, test = noisy().split(0.3) if held else (one_hot(), None)
    options: dict[str, Any] = {"schedule": "constant", "step": 0.5, "l1": l1, "patience": 6, "workers": 1}
    begin = functools.partial(hogwild.train, rows, test, **options)
    whole, *_ = resumed(begin, tmp_path, 8, 3)
    for epochs in (8, 2):  # nothing is left
        again = begin(checkpoint=tmp_path, resume=True, epochs=epochs)
        again.finish()
        same(whole, again)


def test_exact_steps_finish_what_sgd_has_left(tmp_path: Path) -> None:
    rows = one_hot()
    last, run, short, aimed = (
        trained(rows, **UNEQUAL | more) for more in ({"keep": "last"}, {}, {"epochs": 19}, {"target": 0.01})
    )
    row = run.history[-1]
    assert row["verdict"] == "settled"
    assert row["objective"] < 0.99 * last.history[-1]["objective"]
    assert row["train_seconds"] > row["exact_seconds"] > 0.0
    assert [past["objective"] for past in run.history[:-1]] == [past["objective"] for past in last.history[:-1]]
    assert short.history[-1]["exact_seconds"] is aimed.history[-1]["exact_seconds"] is None
    whole = trained(rows, **UNEQUAL | {"epochs": 22})
    trained(rows, checkpoint=tmp_path, **UNEQUAL)
    rest = trained(rows, checkpoint=tmp_path, resume=True, **UNEQUAL | {"epochs": 22})
    np.testing.assert_array_equal(rest.model.coef_, whole.model.coef_)
    assert rest.history[20]["objective"] == last.history[-1]["objective"], "the row tells of the epoch again"


def test_patience_watches_the_held_out_loss() -> None:
    rest, held_out = noisy().split(0.3)
    run = trained(rest, held_out, epochs=40, patience=3, step=0.02)
    losses, objectives = ([row[name] for row in run.history] for name in ("test_loss", "objective"))
    assert len(losses) < 41
    assert int(np.argmin(losses)) == run.history[-1]["kept_epoch"] <= len(losses) - 4
    assert objectives[-1] < objectives[-3], "only the held-out loss has stopped falling"
    history = [{"epoch": k, "objective": 1.0 - k / 10, "test_loss": 1.0 + k / 10} for k in range(4)]
    config = TrainConfig(patience=2)
    assert not enough(config, history)
    assert enough(config, history, "test_loss")


@pytest.mark.parametrize(("patience", "tol", "rows"), [(3, 1e-3, 7), (1, 1e-3, 3), (1, 0.0, 5)])
def test_patience_counts_epochs_without_progress(patience: int, tol: float, rows: int) -> None:
    history = [{"epoch": k, "objective": v} for k, v in enumerate([1.0, 0.5, 0.4999, 0.4, 0.4, 0.41, 0.39999, 0.1])]
    config = TrainConfig(patience=patience, tol=tol)
    assert next(k for k in range(1, 9) if enough(config, history[:k])) == rows


def test_a_long_run_ends_by_itself_and_goes_on_with_more_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = one_hot()
    whole = trained(rows, epochs=60, step=0.01)
    assert len(whole.history) == 61, "short runs are not ended"
    monkeypatch.setattr("hogwild.training.run.SHORT_RUN", 60 * rows.nnz)
    ended = trained(rows, epochs=60, step=0.01, checkpoint=tmp_path)
    last = len(ended.history) - 1
    assert last < 60
    objectives = [row["objective"] for row in whole.history]
    assert objectives[last - 2] * 0.999 < min(objectives[: last + 1]), "no progress in two epochs"
    for options in ({"patience": 0}, {"schedule": "adaptive"}, {"host": "simulator"}, {"epochs": 59}):
        assert len(trained(rows, **{"epochs": 60, "step": 0.01} | options).history) in (60, 61)
    rest = trained(rows, epochs=61, step=0.01, checkpoint=tmp_path, resume=True)
    assert last + 2 <= rest.history[-1]["epoch"] <= 61
    assert trained(rows, epochs=61, step=0.01, checkpoint=tmp_path, resume=True).history[-1] == rest.history[-1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"epochs": 2, "step": 0.05}, "still falling"),
        ({"epochs": 19, "schedule": "constant", "step": 8.0}, "noise of the step"),
        ({"epochs": 20, "decay": 0.2, "step": 0.05, "keep": "last"}, "can still fall"),
        ({"epochs": 60, "step": 1.0, "l2": 1e-2}, "settled"),
    ],
)
def test_a_run_says_whether_it_has_settled(options: dict[str, Any], said: str) -> None:
    from hogwild.compare.run.problems import find_optimum
    from hogwild.compare.run.runner import Runner

    rows = one_hot()
    run = trained(rows, **options)
    facts, _ = find_optimum(Runner(rows, None, run.config, "rows", 60.0).case)
    row, best = run.history[-1], facts["objective"]
    assert said in row["verdict"]
    assert (row["verdict"] == "settled") == (row["objective"] < 1.01 * best)
    assert [row["verdict"] for row in run.history[:-1]] == [None] * (len(run.history) - 1)


def test_what_the_curve_says() -> None:
    assert unsettled([1.0, 0.5, 0.49], 1e-3) == "still falling 2 % an epoch"
    assert unsettled([1.0, 0.5, 0.6, 0.5, 0.55], 1e-3) == "has risen in 2 of 4 epochs: noise of the step"
    assert unsettled([1.0, 0.5, 0.5], 1e-3) == unsettled([1.0], 1e-3) == ""
    falls = [{"epoch": k, "objective": value} for k, value in enumerate((1.0, 0.9, 0.82))]
    assert verdict(TrainConfig(epochs=2), falls, None) == "still falling 8.89 % an epoch: give more --epochs"
    assert verdict(TrainConfig(epochs=9), falls, None).endswith("more --patience")
    assert verdict(TrainConfig(epochs=2, tol=0.1), falls, None) == "settled"
    assert verdict(TrainConfig(epochs=2), falls, 0.0) == "settled"
    assert verdict(TrainConfig(epochs=2, target=0.85), falls, 0.5) == "settled"
    nothing = [{"epoch": k, "objective": 1e-20**k} for k in range(3)]  # constant targets, but for rounding
    assert verdict(TrainConfig(epochs=2), nothing, 0.9) == "settled"


@pytest.mark.parametrize("held", [False, True])
def test_of_many_rows_a_sample_says_when_to_stop(held: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case, "SAMPLE", 100)
    monkeypatch.setattr(objective, "CHUNK_NONZEROS", 8 * 50)  # ten rows of five
    rows = one_hot(600)
    rest, test = rows.split(0.5) if held else (rows, None)
    every = 3 if held else 6
    run = trained(rest, test, patience=2, epochs=50)
    *before, last = run.history
    assert {row["rows_evaluated"] for row in before} == {len(rest) // every}
    assert "rows_evaluated" not in last
    again = trained(rest, test, epochs=last["epoch"])
    assert all("rows_evaluated" not in row for row in again.history)
    np.testing.assert_array_equal(run.model.coef_, again.model.coef_)
    assert last["train_loss"] == again.history[-1]["train_loss"]
    shown = [each["train_loss"] for each in before[1:]]
    whole = [each["train_loss"] for each in again.history[1:-1]]
    np.testing.assert_allclose(shown, whole, rtol=0.2)
    assert not np.array_equal(shown, whole)


def test_rows_beyond_memory_are_evaluated_by_a_sample(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(case, "SAMPLE", 10)
    monkeypatch.setattr(objective, "CHUNK_NONZEROS", 8 * 50)
    rows = one_hot(600)
    store = open_store(save_store(rows, tmp_path / "rows"))
    usual = trained(rows, renumber="never", keep="last", epochs=2)
    monkeypatch.setattr(machine, "memory", lambda: (8 * rows.nnz, 8 * rows.nnz))
    run = trained(store, epochs=2)
    np.testing.assert_array_equal(run.model.coef_, usual.model.coef_)
    assert run.history[-1]["rows_evaluated"] == 100  # of 60 chunks of ten rows every sixth
    assert run.history[-1]["verdict"] is None
