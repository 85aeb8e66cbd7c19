"""Factorization machines: the kernel against NumPy, what a run keeps, and from a table to predictions."""

from __future__ import annotations

import io
import itertools
import json
import shutil
import subprocess
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse
from sklearn.utils.estimator_checks import parametrize_with_checks

import hogwild
from hogwild.cli.session import description
from hogwild.compare.run.plan import Cell
from hogwild.compare.run.problems import optimum_of
from hogwild.compare.run.runner import Runner
from hogwild.config import TrainConfig
from hogwild.data.order import Order
from hogwild.data.rows.container import MOST_FIELDS, Rows
from hogwild.data.rows.store import open_store, save_store
from hogwild.data.tables.column import bucket_of
from hogwild.data.text.svmlight import write_text
from hogwild.errors import HogwildWarning, InputError, UsageError
from hogwild.interchange import export_model
from hogwild.kernels import vectors
from hogwild.metrics import evaluate
from hogwild.problems.fm.case import FMCase
from hogwild.problems.fm.objective import FMObjective, Lines
from hogwild.problems.fm.problem import FMProblem
from hogwild.problems.fm.training import Trials
from hogwild.problems.linear.case import LinearCase
from hogwild.training.workers import InlineWorker
from tests import reference
from tests.runs import toy

inverse_root = getattr(vectors.inverse_root, "py_func", vectors.inverse_root)
FIXED: dict[str, Any] = {"problem": "fm", "workers": 1, "step": 0.25, "l2_factors": 1e-4, "epochs": 3}


UNEQUAL = [f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")]
PROBLEMS: Any = ("fm", "ffm")
FIELDS = np.repeat(np.array([0, 1, 2, -1], np.int16), [30, 4, 20, 2])


def clicks(n: int = 3000, seed: int = 0) -> Rows:
    """Rows of a site, a device and a campaign, the fields; the label is by the pair of site and campaign."""
    random = np.random.default_rng(seed)
    sizes = 30, 4, 20
    parts = [random.integers(0, size, n) for size in sizes]
    planted = np.random.default_rng(9)
    likes, wants = (planted.normal(size=(size, 2)) for size in (30, 20))
    margins = 3 * (likes[parts[0]] * wants[parts[2]]).sum(axis=1)
    indices = np.column_stack(parts) + np.cumsum([0, *sizes[:2]])
    targets = np.where(random.random(n) < 1 / (1 + np.exp(-margins)), 1.0, -1.0)
    return Rows(np.arange(n + 1) * 3, indices.ravel(), np.ones(3 * n), targets, sum(sizes) + 2, fields=FIELDS)


# ---- against NumPy


def dense(rows: Rows, normalize: str) -> np.ndarray:
    """The rows scaled, (n, width) float64."""
    X = rows.to_scipy()[0].toarray().astype(float)
    return X if normalize == "none" else X * reference.row_scales(X, normalize)[:, None]


def facing(v: np.ndarray, fields: np.ndarray | None) -> np.ndarray:
    """For each pair of features the factor of the first that meets the second, (width, width, rank)."""
    count = 1 if fields is None else fields.max() + 1
    parts = v.reshape(len(v), count, -1)
    return parts[:, np.zeros(len(v), int) if fields is None else fields]


def margin(w: np.ndarray, v: np.ndarray, b: float, x: np.ndarray, fields: np.ndarray | None = None) -> float:
    """By the sum over pairs: ``v`` (width, rank) or (width, fields * rank), ``x`` (width,)."""
    both = facing(v, fields)
    return float(b + w @ x + np.triu(np.einsum("ijk,jik->ij", both, both) * np.outer(x, x), 1).sum())


def parts(problem: FMProblem, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Weights (width,), factors (width, fields * rank) and intercept, in float64."""
    lines, b = problem.solution(flat)
    return lines[-1].astype(float), lines[problem.places].T.astype(float), float(b[0])


def twin(problem: FMProblem, rows: Rows, arrays: dict[str, np.ndarray], flat: np.ndarray, step: float) -> Any:
    """Weights, factors and intercept after an epoch in file order, in float64."""
    w, v, b = parts(problem, flat)
    v = v.reshape(rows.width, -1, problem.rank)
    fields = np.zeros(rows.width, int) if rows.fields is None else rows.fields
    sums = {name: np.ones_like(part) for name, part in (("w", w), ("v", v), ("b", np.zeros(1)))}  # AdaGrad's
    rates = len(rows) / np.maximum(rows.degrees(), 1)
    bias = np.array([b])

    def move(name: str, part: np.ndarray, place: Any, slope: Any, step: float) -> None:
        sums[name][place] += np.square(slope)
        root = inverse_root(sums[name][place].astype(np.float32)) if name != "b" else 1 / np.sqrt(sums[name][place])
        part[place] -= step * slope * (root if problem.adagrad else 1)

    for i, x in enumerate(dense(rows, problem.normalize)):
        z = margin(w, v.reshape(rows.width, -1), bias[0], x, rows.fields)
        g = reference.dloss(problem.loss, z, float(arrays["targets"][i]), problem.loss_param)
        g *= arrays["weights"][i] if arrays["weights"].size else 1.0
        held = np.flatnonzero(x)
        slopes = np.zeros_like(v)
        for a, c in itertools.permutations(held, 2):
            slopes[a, fields[c]] += g * x[a] * x[c] * v[c, fields[a]]
        move("v", v, held, slopes[held], step)
        move("w", w, held, g * x[held], step)
        move("b", bias, 0, g, problem.intercept * step)
        w[held] /= 1 + step * problem.l2 * rates[held]
        v[held] /= (1 + step * problem.l2_factors * rates[held])[:, None, None]
    return w, v.reshape(rows.width, -1), bias[0]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"adagrad": True, "rank": 20},
        {"normalize": "none", "l2": 0.0, "l2_factors": 0.0, "rank": 3},
        {"loss": "squared-error", "normalize": "l2", "rank": 2},
        {"problem": "ffm", "rank": 3},
        {"problem": "ffm", "rank": 20, "adagrad": True},
        {"problem": "ffm", "rank": 5, "l2": 0.0, "l2_factors": 0.0},
    ],
    ids=str,
)
def test_an_epoch_is_numpys(options: dict[str, Any]) -> None:
    rows = toy(100, 40, 6)
    rows = rows.replace(weights=np.random.default_rng(1).random(100).astype(np.float32))
    if options.get("problem") == "ffm":  # most rows hold each field once, others lack some and hold several of one
        fields = np.minimum(np.arange(40) // 6, 5)
        fields[[0, 24, 30]] = 5, 0, 0
        rows = rows.replace(fields=fields.astype(np.int16))
    config = TrainConfig(**{"problem": "fm", "l2": 1e-3, "l2_factors": 1e-2} | options)
    problem = FMProblem.of(config, rows, "serial")
    arrays = problem.row_arrays(rows, None)
    worker = InlineWorker(problem, Order.of(len(rows), shuffled=False), rows, arrays, 0)
    problem.begin(worker.flat, np.flatnonzero(rows.degrees()), config.settled(seed=3), rows)
    expected = twin(problem, rows, arrays, worker.flat, step=0.1)
    worker.run(0, (0.1, 1.0, 0.0))
    for part, other in zip(parts(problem, worker.flat), expected):
        np.testing.assert_allclose(part, other, rtol=1e-4, atol=1e-5)
    lines = problem.per_feature(worker.flat)[0][:, :-1]
    assert not np.delete(lines, problem.places, axis=1).any()  # padding


@pytest.mark.skipif(shutil.which("ffm-train") is None, reason="needs libffm's ffm-train on the PATH")
def test_losses_are_libffms_at_each_epoch(tmp_path: Path) -> None:
    """Without intercept and weights, with the penalty at each visit and its start, as there; the order differs."""
    train, test = clicks(120_000).split(0.25)
    for name, rows in {"train": train, "test": test}.items():
        entries = rows.flat()[1].reshape(-1, 3)
        lines = [f"{y:g} " + " ".join(f"{FIELDS[u]}:{u}:1" for u in held) for y, held in zip(rows.targets, entries)]
        (tmp_path / name).write_text("\n".join([*lines, ""]))
    words = ["ffm-train", "-p", "test", "-t", "5", "-l", "0.00002", "-r", "0.1", "-s", "1", "train", "model"]
    printed = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    theirs = [float(line.split()[2]) for line in printed.splitlines() if line[:4].strip().isdigit()]
    draws = [16807]  # of C++'s default_random_engine
    while len(draws) < 54 * 3 * 4:
        draws.append(16807 * draws[-1] % (2**31 - 1))
    config = TrainConfig(problem="ffm", adagrad=True, intercept=False, l2=0.0, l2_factors=2e-5)
    problem = FMProblem.of(config, train, "serial")
    arrays = problem.row_arrays(train, None)
    worker = InlineWorker(problem, Order.of(len(train)), train, arrays | {"rates": np.ones_like(arrays["rates"])}, 0)
    factors, squares = problem.per_feature(worker.flat)
    factors[:54, problem.places] = np.array(draws).reshape(54, -1) / (2**31 - 2) / np.sqrt(problem.rank)
    squares[:] = 1.0
    squares[:, -1] = 1e30  # so that no weight moves
    fields = np.maximum(FIELDS, 0)
    judge = FMObjective(test, "log", labels=(-1.0, 1.0), normalize="l2", lines=Lines(4, fields))
    losses = []
    for epoch in range(5):
        worker.run(epoch, (0.1, 1.0, 0.0))
        losses.append(judge.evaluate(*problem.solution(worker.flat))["loss"])
    assert np.abs(problem.solution(worker.flat)[0][-1]).max() < 1e-9
    np.testing.assert_allclose(losses, theirs, rtol=0, atol=0.0005)


@pytest.mark.parametrize("count", [1, 3])
def test_the_objective_is_that_of_all_pairs(count: int) -> None:
    rows, random = toy(200, 30, 5), np.random.default_rng(0)
    fields = np.arange(30, dtype=np.int16) % count
    lines = Lines(2) if count == 1 else Lines(2, fields)
    w, v = (random.normal(size=size).astype(np.float32) for size in (30, (30, 2 * count)))
    coef = np.zeros((lines.stride(count), 30), np.float32)
    coef[-1], coef[lines.places(count)] = w, v.T
    options: dict[str, Any] = {"l2": 0.1, "l2_factors": 0.01, "normalize": "l2", "lines": lines}
    found = FMObjective(rows, "log", labels=(-1.0, 1.0), **options).evaluate(coef, 0.3)
    margins = np.array([margin(w, v, 0.3, x, fields) for x in dense(rows, "l2")])
    loss = np.logaddexp(0, -rows.targets * margins).mean()
    assert found["loss"] == pytest.approx(loss, rel=1e-6)
    assert found["objective"] == pytest.approx(loss + 0.05 * np.sum(w**2) + 0.005 * np.sum(v**2), rel=1e-6)


@pytest.mark.parametrize("problem", ["fm", "ffm"])
def test_parameters_are_judged_where_workers_keep_them(problem: Any) -> None:
    """As copies of them are, with the targets' scale, a padded line and unequal fields."""
    rows = clicks(200)
    rows = rows.replace(targets=100 * rows.targets + np.arange(200, dtype=np.float32), labels=None)
    trials = Trials(TrainConfig(problem=problem, rank=3, loss="squared-error", seed=0), *rows.split(0.25))
    p = trials.problem
    assert p.scale > 1.0
    flat = trials.flat
    lines = p.per_feature(flat)[0]
    lines[:, p.places] = np.random.default_rng(0).normal(size=(p.width, len(p.places)))
    lines[:, -1] = np.random.default_rng(1).normal(size=p.width)
    p.parameters(flat).intercept[0] = 0.5
    judge = p.objective(trials.objective.rows, FMObjective, l2=2.0, l2_factors=3.0, lines=p.lines(trials.rows))
    usual = judge.evaluate(*p.solution(flat))
    assert trials.judge(flat) == pytest.approx(usual["loss"], rel=1e-12)
    lowest, epochs = trials.run(0.01, 1e-4)
    assert np.isfinite(lowest)
    assert epochs > 0
    assert trials.run(0.01, 1e30) < (np.inf, 0)  # all parameters at zero
    sizes = iter([1e3, 0.0, 0.0])
    trials.judge = lambda flat: (flat.fill(next(sizes)), 1.0)[1]  # type: ignore[func-returns-value,method-assign]
    assert trials.run(0.01, 1e-4) == (np.inf, 0)  # the penalty alone shows that it diverges in its best epoch


def test_sums_of_squared_gradients_are_no_parameters_that_diverge() -> None:
    trials = Trials(TrainConfig(problem="fm", rank=8, adagrad=True, seed=0), *clicks(600).split(0.25))
    lowest, epochs = trials.run(0.5, 0.3 / 450)
    assert lowest < trials.before
    assert epochs > 0


def test_sums_of_squares_are_no_parameters_that_diverge() -> None:
    trials = Trials(TrainConfig(problem="fm", rank=3, adagrad=True, seed=0), *clicks(200).split(0.25))
    trials.judge = lambda flat: (trials.problem.parameters(flat).coef_squares.fill(1e6), 0.5)[1]  # type: ignore[func-returns-value,method-assign]
    assert trials.run(0.01, 1e-4) == (0.5, 1)


@pytest.mark.parametrize("step", [None, 0.5])
def test_the_search_descends_a_valley_of_losses(step: float | None) -> None:
    trials = object.__new__(Trials)
    trials.config, trials.before, trials.tried = TrainConfig(problem="fm", step=step), 9.0, {}
    trials.rate, said = 2.0, list[str]()
    trials.report = said.append

    def run(step: float, l2_factors: float, decay: float | None, heavier: float) -> tuple[float, int]:
        loss = (decay or 0) / 100 - heavier / 50 + 1 + abs(np.log2(step) - l2_factors) + (l2_factors - 1.1) ** 2
        return (np.inf if step > 16 else loss), 5

    trials.run = run  # type: ignore[method-assign]
    best = (2.0 if step is None else 0.5), 1.0
    assert trials.best([0.0, 1.0, 2.0, 3.0])[:2] == best
    assert len(said) == len(trials.tried) < 14
    lowest = min(trials.path(), key=lambda each: each["held_out_loss"] or np.inf)
    assert (2.0 * lowest["step"], lowest["l2"], lowest["held_out_loss"]) == (*best, trials.lowest(*best, None, 2.0))
    trials.before, trials.tried = 1.5, {}  # runs end worse than they began
    assert trials.best([1.0]) == (*best, None, 2.0)
    trials.tried, trials.run = {}, lambda step, *_: (1e-5 / step, 1)  # type: ignore[method-assign]
    assert trials.best([1.0]) == (
        (4.0, 1.0, 0.6, 1.0) if step is None else (0.5, 1.0, None, 1.0)
    )  # with larger steps rows of length one are learned one by one


def test_a_run_is_by_what_the_search_ends_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def best(trials: Trials, penalties: Any) -> tuple[float, float, float | None, float]:
        end = 0.5, penalties[0], 0.6, 2.0
        trials.lowest(*end)
        return end

    monkeypatch.setattr(Trials, "best", best)
    for resume in (False, True):
        run = hogwild.train(clicks(300), problem="fm", workers=1, epochs=2, checkpoint=tmp_path, resume=resume)
        run.finish()
        assert (run.config.step, run.config.decay, run.config.l2_factors) == (0.5, 0.6, 0.3 / 300)
        assert run.config.l2 == pytest.approx(2 * 0.15 / 270)  # of the rows that are not held out
        assert "step 0.5, decay 0.6, schedule epoch" in next(description(run))
    with pytest.raises(InputError, match="decay was 0.6"):
        hogwild.train(clicks(300), problem="fm", workers=1, decay=0.9, checkpoint=tmp_path, resume=True)


def test_a_checkpoint_that_keeps_weights_elsewhere_is_refused(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FMCase, "cut", LinearCase.cut)  # as earlier versions did
        hogwild.train(clicks(300), checkpoint=tmp_path, **FIXED).finish()
    with pytest.raises(UsageError, match="lays out factors differently: resume it with the version that wrote it"):
        hogwild.train(clicks(300), checkpoint=tmp_path, resume=True, **FIXED | {"epochs": 4})


# ---- runs


def test_what_lies_beside_the_rows_changes_no_bit() -> None:
    """Disciplines, with one worker, and the numbering."""
    rows, always = clicks(400), {"renumber": "always"}
    played = {"host": "simulator", "discipline": "hogwild", "delay": "straggler:window=1"}
    real = [{"discipline": name} for name in ("hogwild", "aig", "locked")]
    others = {"fm": [*real, always, played], "ffm": [always, played]}
    for problem, changes in others.items():
        options = FIXED | {"problem": problem, "renumber": "never", "keep": "last"}
        usual, *models = (hogwild.train(rows, **options | change).finish() for change in ({}, *changes))
        for model in models:
            np.testing.assert_array_equal(model.factors_, usual.factors_)
            np.testing.assert_array_equal(model.coef_, usual.coef_)
            assert model.intercept_ == usual.intercept_


@pytest.mark.parametrize(
    "options",
    [
        {"host": "processes"},
        {"discipline": "locked"},
        {"exchange": "averaging:period=100"},
    ],
    ids=str,
)
def test_two_workers_learn_what_is_planted(options: dict[str, Any]) -> None:
    rows = clicks()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HogwildWarning)
        run = hogwild.train(rows, **FIXED | {"workers": 2, "step": 1.0, "epochs": 8} | options)
        objectives = [row["objective"] for row in run]
    assert min(objectives) < 0.9 * objectives[0]


@pytest.mark.parametrize("options", [{}, {"adagrad": True}, {"problem": "ffm"}], ids=str)
def test_virtual_workers_store_where_an_example_has_moved_something(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bits as if all parameters were compared after each example."""
    played = {"host": "simulator", "workers": 4, "discipline": "hogwild", "delay": "round-robin:window=1"}
    runs = []
    for _ in range(2):
        runs.append(hogwild.train(clicks(300), **FIXED | played | options, keep="last"))
        runs[-1].finish()
        monkeypatch.setattr(FMProblem, "touched", lambda *_: None)
    np.testing.assert_array_equal(runs[0].model.factors_, runs[1].model.factors_)
    assert runs[0].model.intercept_ == runs[1].model.intercept_
    one, other = (run.history[-1] for run in runs)
    assert one["lost_updates"] == other["lost_updates"] > 0
    assert one["staleness_max"] == 3


@pytest.mark.parametrize(
    "change", [{}, {"adagrad": True}, {"step": None, "l2_factors": None, "l2": "auto"}, {"problem": "ffm"}], ids=str
)
def test_resumed_is_the_same_to_the_bit(tmp_path: Path, change: dict[str, Any]) -> None:
    rows = clicks(600)
    options = FIXED | {"epochs": 4, "renumber": "always", "patience": 0} | change
    whole = hogwild.train(rows, **options)
    whole.finish()
    hogwild.train(rows, checkpoint=tmp_path, **options | {"epochs": 2}).finish()
    again = hogwild.train(rows, checkpoint=tmp_path, resume=True, **options)
    again.finish()
    np.testing.assert_array_equal(whole.engine.job.flat, again.engine.job.flat)
    np.testing.assert_array_equal(whole.model.factors_, again.model.factors_)
    assert whole.config == again.config
    assert [row["objective"] for row in whole.history] == [row["objective"] for row in again.history]


@pytest.mark.parametrize("begun", ["always", "never"])
def test_the_kept_epoch_is_resumed_in_another_numbering(tmp_path: Path, begun: str) -> None:
    """The model is that of an epoch before the run ended first, so it comes from the checkpoint."""
    rows, other = clicks(600), {"always": "never", "never": "always"}[begun]
    options = FIXED | {"problem": "ffm", "patience": 0, "step": 1.5, "l2_factors": 1e-6}
    whole = hogwild.train(rows, **options | {"epochs": 5, "renumber": begun})
    whole.finish()
    hogwild.train(rows, checkpoint=tmp_path, **options | {"epochs": 4, "renumber": begun}).finish()
    again = hogwild.train(rows, checkpoint=tmp_path, resume=True, **options | {"epochs": 5, "renumber": other})
    again.finish()
    assert 0 < whole.history[-1]["kept_epoch"] == again.history[-1]["kept_epoch"] < 4
    np.testing.assert_array_equal(again.model.factors_, whole.model.factors_)
    np.testing.assert_array_equal(again.model.coef_, whole.model.coef_)


def test_a_comparison_judges_runs_that_number_their_features() -> None:
    """Its case evaluates in the user's numbering, and the solution of a run is in the run's own."""
    rows, options = clicks(600), FIXED | {"l2": 1e-4, "epochs": 1}
    run = hogwild.train(rows, **options, renumber="always", keep="last")
    run.finish()
    with Runner(rows, None, TrainConfig(**options, renumber="always"), "clicks", 60.0) as runner:
        start = optimum_of(runner.case, rows, 0)["start_objective"]
        judged = runner.run(Cell("reported", "serial", 1, options["step"], 0), 1)
    assert start == judged[0]["objective"]
    assert [row["objective"] for row in judged] == pytest.approx([row["objective"] for row in run.history], rel=1e-6)


@pytest.mark.parametrize("problem", ["fm", "ffm"])
def test_defaults_find_planted_pairs(problem: Any) -> None:
    """A tenth is held out to choose; the run is on all rows, and if these are many the tenth chooses its epoch."""
    train, test = clicks(4000).split(0.25)
    run = hogwild.train(train.compact(), test, problem=problem, workers=1)
    rows = list(run)
    best = min(rows[0]["l2_path"], key=lambda each: each["held_out_loss"] or np.inf)
    assert (rows[0]["l2_held_out"], rows[-1]["updates"], rows[-1]["kept_epoch"]) == (300, 3000, best["best_epoch"])
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("BUDGET", 1), ("FEWEST", 2000)):
            patch.setattr(f"hogwild.problems.fm.training.{name}", value)
        apart = list(hogwild.train(train.compact(), test, problem=problem, workers=1))
    assert (apart[-1]["updates"], apart[0]["l2_rows"]) == (2700, 2000)
    assert apart[-1]["kept_epoch"] == min(apart[1:], key=lambda row: row["held_out_loss"])["epoch"]
    linear = hogwild.train(train, test, workers=1).finish()
    assert evaluate(run.model, test)["log_loss"] < 0.9 * evaluate(linear, test)["log_loss"]
    pairs = run.model.strongest_pairs(20)
    assert all(abs(pairs[0][2]) >= abs(value) for *_, value in pairs)
    assert any(i < 30 and 34 <= j < 54 for i, j, _ in pairs)  # a site and a campaign


def test_planted_factors_are_learned_by_field() -> None:
    rows = hogwild.open_data("synthetic:ctr?rows=8000&features=120&fields=6&rank=2&noise=0", cache=None)
    train, test = rows.split(0.25)
    options: Any = {"workers": 1, "step": 1.0, "rank": 4, "l2_factors": 2e-4, "epochs": 15}
    models = [hogwild.train(train, problem=name, **options).finish() for name in PROBLEMS]
    models.append(hogwild.train(train, workers=1).finish())
    fm, ffm, linear = (evaluate(model, test)["log_loss"] for model in models)
    assert ffm < 0.95 * fm < 0.95 * linear


def test_nothing_is_held_out_for_the_last_epoch() -> None:
    run = hogwild.train(clicks(300), keep="last", **FIXED)
    last = [*run][-1]
    assert (last["kept_epoch"], last["updates"], "test_loss" in last) == (3, 300, False)


def test_features_that_no_training_row_holds_count_nothing() -> None:
    rows = clicks(500)
    model = hogwild.train(rows, **FIXED).finish()
    assert not model.factors_[-2:].any()
    assert model.factors_[:54].any()
    known = Rows([0, 2], [0, 40], [1, 1], [1.0], 54)
    new = Rows([0, 3], [0, 40, 55], [1, 1, 0.0], [1.0], 56)
    assert model.decision_function(known) == pytest.approx(model.decision_function(new))


# ---- models


@pytest.mark.parametrize("problem", ["fm", "ffm"])
def test_a_model_file_holds_it(tmp_path: Path, problem: str) -> None:
    rows = clicks(400)
    model = hogwild.train(rows, **FIXED | {"problem": problem, "rank": 8}).finish()
    model.save(tmp_path / "m")
    loaded = hogwild.load(tmp_path / "m")
    assert isinstance(loaded, hogwild.FMModel)
    assert "rank 8" in repr(loaded)
    np.testing.assert_array_equal(loaded.predict_proba(rows), model.predict_proba(rows))
    for call in (model.to_sklearn, lambda: export_model(model, tmp_path / "o", "onnx")):
        with pytest.raises(UsageError, match="npz"):
            call()
    arrays, header = model.to_file()
    with pytest.raises(InputError, match="factors of shape"):
        hogwild.FMModel.from_file(arrays | {"factors": model.factors_[1:]}, header, "m")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"discipline": "atomic"}, "disciplines serial, hogwild, aig, locked; got 'atomic'"),
        ({"device": "cuda"}, "of problem 'fm' has no kernels"),
        ({"discipline": "tiered"}, "disciplines serial, hogwild, aig, locked; got 'tiered'"),
        ({"machines": 2}, "trained on one machine"),
        ({"adagrad": True, "exchange": "gossip"}, "leave adagrad out"),
        ({"renumber": "always", "discipline": "aig", "workers": 2}, "leave renumber out"),
        ({"loss": "softmax"}, "loss='softmax': expected one of log"),
        ({"rank": 0}, "rank=0: expected a whole number from 1"),
    ],
)
def test_what_it_cannot_do_is_one_line(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        TrainConfig(problem="fm", **options)


def test_three_labels_few_rows_and_no_fields() -> None:
    with pytest.raises(InputError, match="problem 'ffm' needs fields of features: read a table"):
        hogwild.train(toy(100), **FIXED | {"problem": "ffm"})
    for fields in ([0, 1, 2], [0, 1, 2, 1 << 15], [0.5] * 4):
        with pytest.raises(InputError, match="fields: expected"):
            Rows([0, 1], [0], [1], [1], 4, fields=fields)
    with pytest.raises(InputError, match="problem 'fm' needs two labels; got 3: choose problem 'linear'"):
        hogwild.train(toy(100, classes=3), **FIXED)
    with pytest.raises(InputError, match="problem 'fm' needs features; the rows have none"):
        hogwild.train(Rows([0] * 9, [], [], [0, 1] * 4, 0), problem="fm", workers=1)
    model = hogwild.train(clicks(12), problem="fm", workers=1, epochs=2).finish()
    assert np.isfinite(model.decision_function(clicks(5))).all()
    hogwild.train((np.eye(2), [0, 1]), problem="fm", workers=1, epochs=2).finish()  # a class is in one row alone


@pytest.mark.parametrize(("n", "seed"), [(3, 1), (5, 5), (10, 1), (30, 0)])
def test_few_rows_do_not_diverge(n: int, seed: int) -> None:
    """Of any size, by steps that rows held out found good."""
    rows, random = clicks(n, seed), np.random.default_rng(seed)
    values = 1e4 * random.random(rows.nnz) * 10.0 ** random.integers(-4, 1, rows.nnz)
    large = rows.replace(values=values.astype(np.float32))
    for problem in PROBLEMS:
        for each, options in (
            (rows, {}),
            (large, {"normalize": "none"}),
            (large, {"normalize": "none", "l2_factors": 1e-6}),
        ):
            model = hogwild.train(each, problem=problem, workers=1, **options).finish()
            assert np.isfinite(model.decision_function(each)).all()


# ---- the command line


@pytest.mark.parametrize("problem", ["fm", "ffm"])
def test_from_a_table_to_predictions(tmp_path: Path, capfd: pytest.CaptureFixture[str], problem: str) -> None:
    from hogwild.__main__ import main

    rows = clicks(600)
    names = rows.indices.reshape(-1, 3)
    lines = [f"{int(y > 0)},s{a},d{b - 30},c{c - 34}" for y, (a, b, c) in zip(rows.targets, names)]
    table, model = tmp_path / "clicks.csv", tmp_path / "clicks.hw"
    table.write_text("\n".join(["click,site,device,campaign", *lines]) + "\n")

    def said(*words: object) -> str:
        assert main([str(word) for word in words]) == 0
        return capfd.readouterr().out

    out = said("train", table, "--label", "click", "--problem", problem, "--rank", 4, "--out", model, "--workers", 1)
    for words in ("l2_factors", "loss log, rank 4", "60 rows held out of 600 before the fit on all"):
        assert words in out
    assert set(said("predict", model, table).split()) == {"0", "1"}
    assert json.loads(said("evaluate", model, table, "--json"))["accuracy"] > 0.6
    facts = json.loads(said("inspect", model, "--names", table, "--json"))
    assert facts["config"]["rank"] == 4
    assert problem == "fm" or all(first.split("=")[0] != second.split("=")[0] for first, second, _ in facts["pairs"])
    assert "strongest pairs" in said("inspect", model)
    for command in ("compare", "bench"):
        assert main([command, str(table), "--problem", problem]) == 2
        assert capfd.readouterr().err.count("\n") == 1


# ---- fields of the data


def test_columns_of_a_table_are_fields(tmp_path: Path) -> None:
    """Also in a store, and of any way of reading it; a bucket of two columns is of the first."""
    table = {"y": [0, 1] * 50, "a": [f"v{k}" for k in range(100)], "n": [*range(99), None], "t": ["red car", "no"] * 50}
    rows = hogwild.open_table(pa.table(table), label="y", text="t", numeric="n", hash_bits=18)
    plan = [column["name"] for column in rows.table["columns"]]
    assert plan == ["a", "n", "t"]
    for name, field in (("a=v7", 0), ("n", 1), ("n=", 1), ("t=red", 2)):
        assert rows.fields[bucket_of(name, 18)] == field
    assert np.count_nonzero(rows.fields >= 0) < 120
    few = hogwild.open_table(pa.table(table), label="y", text="t", numeric="n", hash_bits=2)
    assert few.fields.tolist() == [0, 0, 0, 0]
    again = open_store(save_store(rows, tmp_path / "store"))
    np.testing.assert_array_equal(again.fields, rows.fields)


def test_libffms_text(tmp_path: Path) -> None:
    text = "1 0:1:1 2:5:0.5 # c\n0 2:6:1 0:2:1\n1\n0 1:1:2 1:3:1 1:7:1\n"
    (tmp_path / "t.ffm").write_text(text)
    with pytest.warns(HogwildWarning, match="1 features in another field than before"):
        rows = hogwild.open_data(tmp_path / "t.ffm")
    assert rows.fields.tolist() == [0, 0, 1, -1, 2, 2, 1]
    (tmp_path / "t.svm").write_text("1 1:1 5:0.5 # c\n0 6:1 2:1\n1\n0 1:2 3:1 7:1\n")
    plain = hogwild.open_data(tmp_path / "t.svm")
    assert (rows.indices.tolist(), rows.values.tolist()) == (plain.indices.tolist(), plain.values.tolist())
    for bad, words in (
        ("3:1", "bad field in '3:1'"),
        ("32768:1:1", "bad field"),
        ("1:0:1", "index 0"),
        ("1:1:x", "bad value"),
    ):
        (tmp_path / "t.ffm").write_text(f"1 0:1:1\n0 {bad}\n")
        with pytest.raises(InputError, match=f"t.ffm:2: {words}"):
            hogwild.open_data(tmp_path / "t.ffm")


def test_what_is_written_is_read_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from hogwild.__main__ import main

    rows, random = toy(300, 40, 6), np.random.default_rng(0)
    values = (random.normal(size=rows.nnz) * 10.0 ** random.integers(-30, 30, rows.nnz)).astype(np.float32)
    rows = rows.replace(values=values, targets=random.normal(size=300).astype(np.float32))
    rows = rows.replace(fields=np.append(random.integers(0, MOST_FIELDS, 39), MOST_FIELDS - 1).astype(np.int16))
    rows = rows.replace(end=np.append(rows.end[:-1], rows.begin[-1]))  # the last row is empty
    save_store(rows, tmp_path / "store")
    for name, fields in (("a.ffm", rows.fields), ("a.svm", None)):
        assert main(["convert", str(tmp_path / "store"), str(tmp_path / name)]) == 0
        again = hogwild.open_data(tmp_path / name, width=40)
        for one, other in zip(rows.flat(), again.flat()):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(rows.targets, again.targets)
        assert (again.fields is None) == (fields is None)
        assert fields is None or (again.fields == fields)[rows.indices].all()
    assert main(["convert", str(tmp_path / "a.svm"), str(tmp_path / "b.ffm")]) == 1
    assert "libffm's text needs a field of each feature: convert a table" in capfd.readouterr().err
    assert not (tmp_path / "b.ffm").exists()
    with pytest.raises(InputError, match="text has no weights of rows"):
        write_text(rows.replace(weights=np.ones(300, np.float32)), io.BytesIO())


# ---- scikit-learn


@pytest.mark.parametrize("field_aware", [False, True])
def test_estimators_are_the_runs_on_codes(field_aware: bool) -> None:
    rows = clicks(600)
    X, y = rows.to_scipy()
    options: dict[str, Any] = {"field_aware": field_aware, "random_state": 5, "step": 0.5}
    options |= {"fields": np.maximum(FIELDS, 0)} if field_aware else {}
    fitted = hogwild.HogwildFMClassifier(4, **options).fit(X, np.where(y > 0, "yes", "no"))
    seed = fitted.model_.config["seed"]
    problem: Any = "ffm" if field_aware else "fm"
    model = hogwild.train(rows, problem=problem, rank=4, seed=seed, workers=1, step=0.5).finish()
    np.testing.assert_array_equal(fitted.decision_function(X), model.decision_function(X))
    assert fitted.predict(X)[0] == ("yes" if model.predict(X)[0] > 0 else "no")
    assert fitted.predict_proba(X).shape == (600, 2)
    assert hogwild.HogwildFMRegressor(4, **options).fit(X, y).score(X, y) > 0.1


@parametrize_with_checks(
    [hogwild.HogwildFMClassifier(2, step=0.1, l2_factors=1e-3), hogwild.HogwildFMRegressor(2, field_aware=True)],
    expected_failed_checks=lambda _: dict.fromkeys(UNEQUAL, "a row of weight two is one visit, and two rows are two"),
)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_targets_may_lie_far_from_zero() -> None:
    X = np.random.default_rng(0).choice([0.0, 1.0], (300, 8), p=[0.7, 0.3])
    y = X @ np.arange(8) + X[:, 0] * X[:, 1]
    scores = [hogwild.HogwildFMRegressor(4, random_state=0).fit(X, y + far).score(X, y + far) for far in (0.0, 1e3)]
    assert scores[1] > scores[0] - 0.01 > 0.8
    counts = hogwild.train((X, np.full(300, 50.0)), problem="fm", loss="poisson", epochs=1, workers=1, step=1e-6)
    assert counts.finish().intercept_[0] == pytest.approx(np.log(50.0), abs=0.01)


@pytest.mark.parametrize("loss", ["squared-error", "epsilon-insensitive"])
def test_targets_may_be_of_any_size(loss: str) -> None:
    X = np.random.default_rng(0).choice([0.0, 1.0], (300, 8), p=[0.7, 0.3])
    y = X @ np.arange(8) + 4 * X[:, 0] * X[:, 1]
    param = None if loss == "squared-error" else 0.25
    near = hogwild.HogwildFMRegressor(4, loss=loss, loss_param=param, random_state=0).fit(X, y)
    far = hogwild.HogwildFMRegressor(4, loss=loss, loss_param=param and param * 2.0**20, random_state=0)
    far.fit(X, 2.0**20 * y)
    np.testing.assert_array_equal(far.predict(X), 2.0**20 * near.predict(X))
    assert near.score(X, y) > 0.8


def test_numbers_of_fields_may_have_gaps() -> None:
    X = np.random.default_rng(0).choice([0.0, 1.0], (200, 12))
    fields = np.arange(12) // 4
    near, far = (
        hogwild.HogwildFMClassifier(2, field_aware=True, fields=numbers, step=0.1, l2_factors=1e-3, random_state=0)
        .fit(X, X[:, 0] != X[:, 5])
        .model_
        for numbers in (fields, 9000 * fields + 7)
    )
    assert far.factors_.shape == (12, 6)
    np.testing.assert_array_equal(near.factors_, far.factors_)
    with pytest.raises(UsageError, match="fields need field_aware=True"):
        hogwild.HogwildFMClassifier(fields=fields).fit(X, X[:, 0])
    with pytest.raises(InputError, match="fields: expected numbers from 0, got -1"):
        hogwild.HogwildFMClassifier(field_aware=True, fields=fields - 1).fit(X, X[:, 0])
    with pytest.raises(UsageError, match="count=-1"):
        near.strongest_pairs(-1)
    with pytest.raises(InputError, match="fields: expected"):
        hogwild.HogwildFMClassifier(field_aware=True, fields=[*map(str, fields)]).fit(X, X[:, 0])
    for problem, width in (("ffm", 2), ("fm", 0)):
        with pytest.raises(InputError, match="needs features; the rows have none"):
            hogwild.train((scipy.sparse.csr_array((40, width)), np.arange(40) % 2), problem=problem, workers=1)
