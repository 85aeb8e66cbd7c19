"""What ratings and graphs are to a comparison: samples, facts, optima; and other programs beside our own runs."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hogwild.compare.report.results import load
from hogwild.compare.run import outside
from hogwild.compare.run.outside import CornacMF, ImplicitBPR, Libmf
from hogwild.compare.run.plan import Cell
from hogwild.compare.run.runner import Runner
from hogwild.config import TrainConfig
from hogwild.data.ratings.container import Ratings
from hogwild.errors import TrainingError
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


# ---- LIBMF

MF_TRAIN = """#!/bin/sh
echo "$@" > "$0.args"
for model; do :; done
printf 'f 0\\nm 3\\nn 2\\nk 2\\nb 0\\np0 T 1 2 \\np1 F 0 0 \\np2 T 3 4 \\nq0 T 5 6 \\nq1 T 7 8 \\n' > "$model"
printf 'iter tr_rmse obj\\n0 0.9 1e0\\n1 RMSE 1e0\\n'
"""
PLAIN = dataclasses.replace(BASES["completion"], biases=False, step=0.1, workers=1)


@pytest.mark.parametrize("rmse", ["0.8", "nan", "0.8\nexit 3", "0.8\nkill -9 $$"])
def test_libmf_is_called_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rmse: str) -> None:
    program = tmp_path / "mf-train"
    last, _, ending = rmse.partition("\n")
    program.write_text(MF_TRAIN.replace("RMSE", last) + ending)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    ratings = Ratings([0, 2, 0], [0, 1, 1], [1.0, 2.0, 6.0], (4, 3))  # mean 3, deviation sqrt(14 / 3)
    solver = Libmf(ratings, dataclasses.replace(PLAIN, rank=2, l2=0.25, workers=2))
    if rmse != "0.8":
        with pytest.raises(TrainingError, match="mf-train ended with status (3|-9|0) and no model: 1 (0.8|nan) 1e0"):
            solver.advance(2)
        return
    solver.advance(2)
    words = (tmp_path / "mf-train.args").read_text().split()
    assert words[:10] == "-k 2 -l2 0.25 -r 0.1 -s 2 -t 2".split()
    scale = (14 / 3) ** 0.5
    text = np.loadtxt(words[10])
    np.testing.assert_allclose(text, [[0, 0, -2 / scale], [2, 1, -1 / scale], [0, 1, 3 / scale]], rtol=1e-6)
    users, items, *biases = solver.solution()
    np.testing.assert_allclose(users, scale**0.5 * np.array([[1, 2], [0, 0], [3, 4], [0, 0]]), rtol=1e-6)
    np.testing.assert_allclose(items, scale**0.5 * np.array([[5, 6], [7, 8], [0, 0]]), rtol=1e-6)
    assert [each.tolist() for each in biases] == [[0] * 4, [0] * 3]
    assert solver.untimed > 0


@pytest.mark.skipif(shutil.which("mf-train") is None, reason="needs LIBMF's mf-train on the PATH")
def test_libmf_minimises_the_same_objective() -> None:
    """With another l2 it ends above: by penalty per-rating, without biases, its lambda is our l2."""
    ratings = rated()
    case = Runner(ratings, None, PLAIN, "ratings", 600.0).case

    def ended(l2: float) -> float:
        solver = Libmf(ratings, dataclasses.replace(PLAIN, l2=l2))
        solver.advance(300)
        assert 1 < (solver.peak or 0) < 50  # MB, of its own
        return case.evaluate(solver.solution())["objective"] or np.inf

    with Runner(ratings, None, PLAIN, "ratings", 600.0) as task:
        ours = task.run(Cell("reported", "serial", 1, 0.05, 1), 100)[-1]["objective"]
    l2 = PLAIN.l2
    assert ended(l2) < min(ended(1.5 * l2), ended(l2 / 1.5))
    assert ended(l2) == pytest.approx(ours, rel=0.02)


# ---- implicit


def test_implicit_learns_from_our_start() -> None:
    pytest.importorskip("implicit")
    ratings = rated()
    config = TrainConfig(problem="completion", loss="bpr", rank=8, step=0.1, negatives=2, host="threads", workers=1)
    train, test = ratings.split(0.1, 0, "user")
    with Runner(train, test, config, "ratings", 600.0) as task:
        rows = task.run(Cell("reported", "implicit", 1, 0.1, 1), 10)
        ours = task.run(Cell("reported", "serial", 1, 0.1, 1), 1)
    assert rows[0]["objective"] == ours[0]["objective"]
    assert rows[-1]["train_loss"] < 0.9 * rows[0]["train_loss"]
    assert "popularity" in rows[0]["own_objective"]
    solver = ImplicitBPR(train, config)
    solver.advance(1)
    first = solver.solution()[0]
    solver.advance(2)
    assert np.abs(solver.solution()[0] - first).max() > 0
