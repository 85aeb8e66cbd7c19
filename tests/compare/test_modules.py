"""Torch modules in the harness: what is told apart, what is taken, and a comparison from end to end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from hogwild.compare.run.harness import Comparison
from hogwild.compare.run.problems import data_facts
from hogwild.config import TrainConfig
from hogwild.errors import UsageError
from hogwild.problems.module.case import ModuleCase, Posed
from hogwild.problems.module.feed import take_data
from hogwild.problems.module.training import pose
from tests.compare.rows import plan_of, rows_in

BASE = TrainConfig(problem="module", host="threads", batch=16)
N = 120


def data(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(seed).standard_normal((N, 4)).astype(np.float32)
    return X, (X[:, 0] > 0).astype(np.int64)


def network(between: type[nn.Module] = nn.ReLU) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), between(), nn.Linear(3, 2))


def smooth(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(output, target, label_smoothing=0.1)


def smoother(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(output, target, label_smoothing=0.2)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2.0 * self.inner(x)


class Halved(Scaled):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * self.inner(x)


Halved.__qualname__ = Halved.__name__ = "Scaled"  # only what it computes is another


@pytest.fixture
def posed() -> Posed:
    return pose(network, "cross-entropy", data())[0]


def test_a_module_is_compared_from_end_to_end(posed: Posed, tmp_path: Path) -> None:
    test = take_data(data(1), "cross-entropy")
    methods = ("serial", "hogwild", "tiered", "locked", "averaging")
    plan = plan_of(methods=methods, workers=(1,), grid=(0.1, 0.4), seeds=2)
    Comparison(posed, test, plan, BASE, data="mine").run(tmp_path)
    found = rows_in(tmp_path)
    about = found[0]
    assert [about[name] for name in ("loss", "optimizer", "batch", "parameters")] == ["cross-entropy", "sgd", 16, 23]
    assert about["optimum_seen"] is True
    with torch.no_grad():
        X, y = (torch.from_numpy(part) for part in data())
        assert about["start_objective"] == pytest.approx(float(functional.cross_entropy(posed.model(X), y)), rel=1e-5)
    started = {row["objective"] for row in found if row["phase"] == "reported" and row["epoch"] == 0}
    assert {value for value in started if value is not None} == {about["start_objective"]}  # whatever the seed
    ends = {row["method"]: row for row in found if (row["phase"], row["epoch"]) == ("reported", 2)}
    assert {name: row["status"] for name, row in ends.items()} == dict.fromkeys({*methods} - {"tiered"}, "ok")
    assert all(row["test_accuracy"] is not None for row in ends.values())


def test_modules_are_told_apart() -> None:
    X, y = data()
    others = {
        "as it is": (network, "cross-entropy", (X, y), 0),
        "data": (network, "cross-entropy", (X, 1 - y), 0),
        "first parameters": (network, "cross-entropy", (X, y), 1),
        "layer without parameters": (lambda: network(nn.Tanh), "cross-entropy", (X, y), 0),
        "own loss": (network, smooth, (X, y), 0),
        "code of the loss": (network, smoother, (X, y), 0),
        "own class": (Scaled, "cross-entropy", (X, y), 0),
        "code of the class": (Halved, "cross-entropy", (X, y), 0),
    }

    def program(posed: Posed) -> tuple[str, str]:
        return data_facts(BASE, posed, None)["program"], ModuleCase(BASE, posed, None).fingerprint

    def programs() -> list[tuple[str, str]]:
        return [program(pose(*about[:3], seed=about[3])[0]) for about in others.values()]

    assert len({*programs()}) == len(others)
    assert programs() == programs()


def test_the_loss_is_the_module_s(posed: Posed) -> None:
    for each, name in ((posed, "cross-entropy"), (pose(network, smooth, data())[0], "custom")):
        comparison = Comparison(each, None, plan_of(), BASE)
        assert comparison.runner.base.loss == name
    assert comparison.about["loss"] == "smooth"
    with pytest.raises(UsageError, match="train_module"):
        Comparison(data(), None, plan_of(), BASE)
