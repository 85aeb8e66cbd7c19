"""Other programs' solvers: they minimise what we minimise, do one epoch a call, and refuse what they cannot do."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import SGDClassifier

from hogwild.compare.run import outside
from hogwild.compare.run.outside import LIBLINEAR_LOSSES, OUTSIDE, SGD_LOSSES
from hogwild.compare.run.problems import find_optimum
from hogwild.compare.run.runner import Runner
from hogwild.config import TrainConfig
from hogwild.data.ratings.container import Ratings
from hogwild.data.rows.container import Rows
from hogwild.data.rows.source import open_data
from hogwild.errors import TrainingError
from hogwild.methods import LABEL_LOSSES
from hogwild.training.schedule import make_schedule
from tests.runs import toy

LOSSES = {"sklearn-sgd": sorted({*SGD_LOSSES} - {"perceptron"}), "liblinear": sorted(LIBLINEAR_LOSSES)}
PAIRS = [(name, loss) for name, losses in LOSSES.items() for loss in losses]


@pytest.fixture(scope="module")
def text():
    return {task: open_data(f"synthetic:rcv1?rows=5000&features=500&task={task}") for task in ("classify", "regress")}


def weighted(rows, seed=5):
    weights = np.random.default_rng(seed).random(len(rows)) * 3
    return Rows((rows.begin, rows.end), rows.indices, rows.values, rows.targets, rows.width, weights)


def judge(rows, c):
    case = Runner(rows, None, c, "rows", 60.0).case
    return lambda solver: case.evaluate(solver.solution())["objective"]


def made(name, rows, **options):
    """``(solver, config)``; refused is an error."""
    c = TrainConfig(**{"step": 0.5} | options)
    assert OUTSIDE[name].refuse(c, rows) is None
    return OUTSIDE[name](rows, c), c


@functools.lru_cache
def optimum(rows, c):
    """The optimum, which takes longer than what is tested: found once for solvers with the same objective."""
    return find_optimum(Runner(rows, None, c, "rows", 60.0).case)[0]


def left(solver, rows, c):
    """Sub-optimality: 1 at the start."""
    best = optimum(rows, c)
    return (judge(rows, c)(solver) - best["objective"]) / (best["start_objective"] - best["objective"])


@pytest.mark.parametrize(("name", "loss"), PAIRS)
def test_it_is_the_same_objective(name, loss):
    """Weights, class weights and scaled rows included: with a step that falls slowly, all end at the optimum."""
    rows = weighted(toy(400, 24, 4, classes=2 if loss in LABEL_LOSSES else 0, noise=2.0))
    balanced = {"class_weight": "balanced"} if loss in LABEL_LOSSES else {}
    param = {"loss_param": 0.5} if loss in ("huber", "epsilon-insensitive", "squared-epsilon-insensitive") else {}
    solver, c = made(name, rows, loss=loss, l2=0.01, normalize="l2", decay=0.98, **balanced, **param)
    solver.advance(400)
    assert left(solver, rows, c) < (3e-3 if name == "sklearn-sgd" else 2e-2)  # LIBLINEAR penalises the intercept


def test_l1_and_many_classes():
    rows = toy(600, 24, 4, classes=3, noise=1.0)
    for options in ({"l2": 1e-2}, {"l2": 1e-3, "l1": 1e-3}, {"l2": 0.0, "l1": 3e-3}):
        solver, c = made("sklearn-sgd", rows, decay=0.95, **options)
        solver.advance(100)
        coef, intercept = solver.solution()
        assert (coef.shape, intercept.shape) == ((3, 24), (3,))
        assert left(solver, rows, c) < 2e-3


def test_the_steps_are_those_of_the_schedule(text, monkeypatch):
    seen = []
    monkeypatch.setattr(
        SGDClassifier,
        "partial_fit",
        lambda self, *_, **__: (seen.append(self.eta0), setattr(self, "coef_", np.zeros(1))),
    )
    for name in ("constant", "epoch", "round"):
        solver, _ = made("sklearn-sgd", text["classify"], schedule=name)
        solver.advance(2)
        solver.advance(6)
        assert seen == [make_schedule(name, 0.5).plan(epoch)[0] for epoch in range(6)]
        seen.clear()


def test_every_epoch_has_an_order_of_its_own():
    """With rows that share one feature the weight after an epoch tells the order; a seed repeats it."""
    rows = Rows(np.arange(65), np.zeros(64, np.int32), np.ones(64), np.arange(64) % 7, 1)

    def steps(seed):
        solver, _ = made(
            "sklearn-sgd", rows, loss="squared-error", l2=0.0, intercept=False, seed=seed, schedule="constant", step=1.0
        )
        found = []
        for epoch in range(1, 9):  # with step 1 the weight is the target of the last row
            solver.advance(epoch)
            found.append(float(solver.solution()[0][0]))
        return found

    assert len(set(steps(0))) > 1
    assert steps(0) == steps(0) != steps(1)
    assert steps(2**62) != steps(0)


def test_liblinear_goes_through_the_same_states():
    rows = toy(400, 24, 4, noise=2.0)
    solver, _ = made("liblinear", rows, loss="hinge", seed=3)
    assert list(OUTSIDE["liblinear"].epochs(10)) == [1, 2, 4, 8, 10]  # each from scratch
    assert list(OUTSIDE["sklearn-sgd"].epochs(3)) == [1, 2, 3]
    assert solver.idle() > 0
    found = {}
    for passes in (1, 2, 4, 2):
        solver.advance(passes)
        found.setdefault(passes, []).append(solver.solution()[0])
    np.testing.assert_array_equal(*found[2])
    assert np.abs(found[1][0] - found[4][0]).max() > 0


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("sklearn-sgd", {"loss": "softmax"}, "has no loss softmax"),
        ("sklearn-sgd", {"schedule": "inverse"}, "schedule inverse"),
        ("sklearn-sgd", {"adagrad": True}, "no adagrad"),
        ("liblinear", {"loss": "squared-error"}, "has no loss squared-error"),
        ("liblinear", {"l1": 0.1}, "no l1 penalty"),
        ("liblinear", {"l2": 0.0}, "needs l2 > 0"),
        ("liblinear", {"classes": 3}, "one class after the other"),
        ("vowpal-wabbit", {"loss": "squared-error"}, "the log or the hinge loss"),
        ("snapml", {"l1": 0.1}, "the log or the hinge loss"),
        ("vowpal-wabbit", {"normalize": "l2"}, "rows as they are"),
        ("cornac", {"loss": "bpr"}, "loss squared-error"),
        ("cornac", {"penalty": "smoothed"}, "penalty per-rating"),
        ("cornac", {"schedule": "inverse"}, "schedule inverse"),
        ("libmf", {}, "no biases (--no-biases)"),
        ("libmf", {"biases": False, "penalty": "smoothed"}, "penalty per-rating"),
        ("implicit", {"loss": "log"}, "implicit has loss bpr"),
        ("implicit", {"loss": "bpr", "schedule": "inverse"}, "schedule inverse"),
    ],
)
def test_refusals_are_one_sentence(name, options, why, monkeypatch):
    monkeypatch.setattr(outside.metadata, "version", lambda package: "1.0")
    monkeypatch.setattr(outside.shutil, "which", lambda command: command)
    rows = toy(50, 24, 4, classes=options.pop("classes", 2))
    options = (
        {"problem": "completion", "penalty": "per-rating"} if OUTSIDE[name].problem != "linear" else {}
    ) | options
    said = OUTSIDE[name].refusal(TrainConfig(**options), rows)
    assert why in said
    assert "\n" not in said
    assert not said.endswith(".")


def test_who_is_not_installed(monkeypatch):
    monkeypatch.setattr(outside.Liblinear, "package", "no-such-package")
    assert (
        outside.Liblinear.refusal(TrainConfig(), toy(50, 24, 4))
        == "liblinear needs to be installed: pip install no-such-package"
    )
    monkeypatch.setattr(outside.shutil, "which", lambda command: None)
    said = OUTSIDE["libmf"].refusal(TrainConfig(problem="completion"), None)
    assert said == "libmf needs mf-train on the PATH: build https://github.com/cjlin1/libmf"


def libmf(says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> outside.Libmf:
    """LIBMF, where mf-train is this script."""
    program = tmp_path / "mf-train"
    program.write_text(f"#!/bin/sh\n{says}\n")
    program.chmod(0o755)
    monkeypatch.setattr(outside.Libmf, "command", str(program))
    config = TrainConfig(problem="completion", biases=False, penalty="per-rating", rank=2, step=0.1, l2=0.1)
    ratings = Ratings(np.array([0, 1]), np.array([1, 0]), np.array([1.0, 2.0]), (2, 2))
    return outside.Libmf(ratings, config)


@pytest.mark.parametrize("says", ["exit 3", "echo hello", "echo 1 nan", "echo 1 0.5"])
def test_a_libmf_that_is_broken_ends_its_cell_alone(says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TrainingError, match="ended with status . and no model: "):
        libmf(says, tmp_path, monkeypatch).advance(1)


def test_a_libmf_that_hangs_is_ended_by_its_limit_and_by_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it leaves behind would fail the test."""
    solver = libmf("echo iter; sleep 60; exit 1", tmp_path, monkeypatch)
    solver.limit = 0.2
    with pytest.raises(TimeoutError):
        solver.advance(1)

    def interrupted(*_: object) -> float:
        raise KeyboardInterrupt

    solver.limit = math.inf
    monkeypatch.setattr(outside, "memory_of", interrupted)
    with pytest.raises(KeyboardInterrupt):
        solver.advance(1)
