"""What ratings and graphs are to a comparison: samples, facts, optima; and cornac beside our own runs."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hogwild.compare.reference import outside
from hogwild.compare.reference.outside import CornacMF
from hogwild.compare.report.results import load
from hogwild.compare.run.plan import Cell
from hogwild.compare.run.runner import Runner
from hogwild.config import TrainConfig
from tests.compare.rows import rated

BASES = {
    "completion": TrainConfig(problem="completion", rank=8, penalty="per-rating", host="threads"),
    "cuts": TrainConfig(problem="cuts", host="threads"),
}


# ---- optima


def test_an_unknown_optimum_is_the_best_seen(tmp_path: Path) -> None:
    row = {"phase": "optimum", "objective": None, "start_objective": 1.0, "eps": [0.1], "optimum_seen": True}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    [source] = load([tmp_path])
    assert source.optimum == 1.0  # nothing has run yet


# ---- cornac


class FakeMF:
    """The part of cornac's interface that is used, in NumPy: one thread, the order of the data."""

    def __init__(self, max_iter: int, learning_rate: float, init_params: dict, lambda_reg: float, **about: Any) -> None:
        self.epochs, self.step, self.l2, self.about = max_iter, learning_rate, lambda_reg, about
        self.p = init_params

    def fit(self, data: Any) -> None:
        U, V, a, b = (self.p[name] for name in ("U", "V", "Bu", "Bi"))
        for _ in range(self.epochs):
            for u, i, r in zip(*data.triples):
                error = r - (data.global_mean + a[u] + b[i] + U[u] @ V[i])
                old = U[u].copy()
                U[u] += self.step * (error * V[i] - self.l2 * U[u])
                V[i] += self.step * (error * old - self.l2 * V[i])
                a[u] += self.step * (error - self.l2 * a[u])
                b[i] += self.step * (error - self.l2 * b[i])


@pytest.fixture
def cornac(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = {name: ModuleType(name) for name in ("cornac", "cornac.data", "cornac.models")}
    modules["cornac.models"].MF = FakeMF  # type: ignore[attr-defined]
    dataset = lambda users, items, uids, iids, triples: SimpleNamespace(triples=triples, global_mean=3.0)  # noqa: E731
    modules["cornac.data"].Dataset = dataset  # type: ignore[attr-defined]
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(outside.metadata, "version", lambda package: "3.0")


def test_cornac_minimises_the_same_objective(cornac: None) -> None:
    train, test = rated(1500, 60, 50).split(0.1, 0)
    task = Runner(train, test, BASES["completion"], "ratings", 600.0)
    with task:
        ours = task.run(Cell("reported", "serial", 1, 0.05, 1), 8)
        theirs = task.run(Cell("reported", "cornac", 1, 0.05, 1), 8)
    assert [row["status"] for row in theirs] == ["ok"] * 9
    assert theirs[0]["objective"] == ours[0]["objective"]  # the same start
    way = ours[0]["objective"] - ours[-1]["objective"]
    assert theirs[-1]["objective"] == pytest.approx(ours[-1]["objective"], abs=0.05 * way)
    assert theirs[-1]["test_rmse"] == pytest.approx(ours[-1]["test_rmse"], rel=0.03)


def test_cornac_is_given_threads_and_the_steps_of_the_schedule(cornac: None) -> None:
    config = dataclasses.replace(BASES["completion"], discipline="hogwild", workers=2, step=0.05, decay=0.5)
    steps = []
    make = lambda **about: (steps.append((about["learning_rate"], about["num_threads"])), FakeMF(**about))[1]  # noqa: E731
    sys.modules["cornac.models"].MF = make  # type: ignore[attr-defined]
    CornacMF(rated(200, 30, 20), config).advance(3)
    assert steps[-3:] == [(0.05, 2), (0.025, 2), (0.0125, 2)]
