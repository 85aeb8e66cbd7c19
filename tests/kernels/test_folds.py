"""Optima without each fold: they are those of fits on the other rows alone, and penalties are walked to their best."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hogwild.config import TrainConfig
from hogwild.errors import NoChoice
from hogwild.problems.linear.objective import Objective
from hogwild.problems.linear.optimum.finder import FitProblem
from hogwild.problems.linear.optimum.folds import are_few, divisions, fits_without, walked
from hogwild.problems.linear.problem import LinearProblem
from hogwild.problems.linear.rows import row_weights
from tests.runs import toy


@pytest.mark.parametrize(
    ("loss", "classes", "scale"), [("log", 2, 1.0), ("log", 3, 100.0), ("softmax", 3, 1.0), ("huber", 0, 1.0)]
)
def test_they_are_the_optima_of_the_other_rows(loss: str, classes: int, scale: float) -> None:
    """Whose share of the weight the loss has, beside the whole penalty."""
    rows = toy(60, 6, 3, classes=classes, noise=1.0)
    weights = np.linspace(0.5, 1.5, 60, dtype=np.float32)
    rows = rows.replace(values=rows.values * np.float32(scale), weights=weights)
    problem, l2 = LinearProblem.of(TrainConfig(loss=loss), rows, "serial"), 0.02 * scale**2
    folds = divisions(rows.targets, classes, 10**6)[0]
    whole = Objective(rows, loss, problem.loss_param, labels=problem.labels, weights=row_weights(rows, None))
    optima = fits_without(whole, problem.classes, True, [folds])
    for penalty in (10 * l2, l2):
        found = optima(penalty)
    labels = np.unique(rows.targets).astype(float).tolist() if classes else []
    for fold in (0, 3):
        rest = rows.select(np.flatnonzero(folds != fold))
        share = float(rest.weights.sum() / weights.sum())
        weighted = {"weights": row_weights(rest, None), "labels": labels}
        judge = Objective(rest, loss, problem.loss_param, l2=l2 / share, **weighted)
        start = [np.zeros_like(part) for part in found[fold]]
        best = FitProblem.of(judge, rest, problem.classes, True).lowered(*start, enough=1e-9).value
        assert judge.evaluate(*found[fold])["objective"] == pytest.approx(best, rel=3e-4)


def test_divisions_spread_classes_and_repeat_for_few_rows() -> None:
    targets = np.repeat([1.0, 2.0], [40, 10])
    found = divisions(targets, 2, 100)
    assert len(found) == 5
    assert not np.array_equal(found[0], found[1])
    for fold_of in found:
        assert (np.bincount(fold_of[:40]) == 8).all()
        assert (np.bincount(fold_of[40:]) == 2).all()
    assert len(divisions(np.arange(2000.0), 0, 10**6)) == 1
    with pytest.raises(NoChoice, match="a class has one row"):
        divisions(np.arange(50) == 7, 2, 100)


def test_which_rows_are_few() -> None:
    rows = toy(100, 24, 4)
    assert are_few(rows, "log", 0.0, 1)
    assert not are_few(rows, "hinge", 0.0, 1)
    assert not are_few(rows, "log", 1e-5, 1)
    assert not are_few(rows, "log", 0.0, 100_000)


@pytest.mark.parametrize("lowest", [-9.3, -4.2, 0.4, 2.2])
def test_the_walk_ends_near_the_lowest_loss_wherever_it_is(lowest: float) -> None:
    def loss(l2: float) -> float:
        return 1.0 + min(math.log10(l2 / 10**lowest) ** 2, 9.0) if l2 < 1e5 else 10.0

    losses = walked(loss, 0.32, 1e-12)
    assert list(losses) == sorted(losses)
    best = min(losses, key=losses.__getitem__)
    assert abs(math.log10(best) - lowest) < 0.3
    assert len(losses) <= 20


def test_a_walk_of_losses_that_tell_nothing() -> None:
    assert max(walked(lambda l2: 0.5, 1.0, 1e-8)) == 1.0
    assert set(walked(lambda l2: math.inf, 1.0, 1e-2).values()) == {math.inf}
