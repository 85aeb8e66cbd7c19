"""Methods on a GPU in the harness, on a stand-in for one: who runs where, what rows say, and what is refused."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torch import nn

from hogwild import machine
from hogwild.compare.report.verdict import verdict
from hogwild.compare.run.harness import Comparison
from hogwild.compare.run.methods import METHODS, usual
from hogwild.compare.run.plan import Cell, ComparisonPlan
from hogwild.compare.run.runner import Runner
from hogwild.config import TrainConfig
from hogwild.cuda import streams
from hogwild.data.rows.source import open_data
from hogwild.errors import InputError, UsageError
from hogwild.problems.module.training import pose
from tests.compare.rows import loaded, race, rows_in
from tests.cuda.standin import StandIn

MODULE = TrainConfig(problem="module", host="threads", batch=16)
LINEAR = TrainConfig(host="threads", l2=1e-4)
ROWS = "synthetic:rcv1?rows=300&features=60&nnz=8"


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "connect", StandIn)


def posed() -> Any:
    X = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)
    return pose(lambda: nn.Linear(4, 2), "cross-entropy", (X, (X[:, 0] > 0).astype(int)))[0]


def test_what_a_gpu_is_not_for(standin: None, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = open_data(ROWS)
    for name, base, workers, says in (
        ("cuda-locked", LINEAR, 1, "is for problem module, not for linear"),
        ("cuda-synchronous", MODULE, 5, "a minibatch of 5 x 16 examples is more than the 64 there are"),
        ("cuda-locked", MODULE, 4, None),  # they do not spin
    ):
        reason = METHODS[name].refusal(base, posed() if base is MODULE else rows, workers, cores=1)
        assert reason is None if says is None else says in (reason or "")
    with pytest.raises(UsageError, match="methods say where they run"):
        Comparison(rows, None, ComparisonPlan(1, (1,), (1.0,), 1, ("serial",)), TrainConfig(device="cuda"))

    def connect() -> StandIn:
        raise InputError("device cuda: there is none")

    monkeypatch.setattr(streams, "connect", connect)
    for base, workers, says in (
        (TrainConfig(host="simulator"), 1, "has no host 'simulator'"),
        (LINEAR, 32, "31 streams at most"),
        (LINEAR, 1, "device cuda: there is none"),
    ):
        with Runner(rows, None, base, "rows", 60.0) as runner:
            [row] = runner.run(Cell("reported", "cuda-hogwild", workers, 1.0, 0), 1)
        assert row["status"].startswith("refused: ")
        assert says in row["status"]


# ---- the harness


def test_replicas_of_a_module(standin: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "physical_cores", lambda: 1)
    names = ("serial", "hogwild", *usual("module", "cuda"))
    plan = ComparisonPlan(1, (1, 3), (0.1,), 2, names, cpu_workers=(1,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no word of more workers than cores
        Comparison(posed(), None, plan, MODULE).run(tmp_path)
    assert rows_in(tmp_path)[0]["gpu"] == "stand-in"
    found: dict[tuple[str, int], list] = {}
    for row in rows_in(tmp_path)[1:]:
        found.setdefault((row["method"], row["workers"]), []).append(row)
    counts = {name: (1, 3) if METHODS[name].parallel and METHODS[name].device != "cpu" else (1,) for name in names}
    assert set(found) == {(name, count) for name in names for count in counts[name]}
    for (name, _), rows in found.items():
        assert [row["status"] for row in rows] == ["ok"] * 3, (name, rows[0]["status"])
        assert {row["device"] for row in rows} == {METHODS[name].device}


def test_another_gpu_is_another_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = open_data(ROWS)

    def identity(name: str, *methods: str, in_flight: int | None = None) -> str:
        monkeypatch.setattr(streams, "connect", lambda: SimpleNamespace(name=name))
        plan = ComparisonPlan(1, (1,), (1.0,), 1, ("serial", *methods))
        return Comparison(rows, None, plan, LINEAR, in_flight=in_flight).identity

    asked = {identity("a", "cuda-atomic"), identity("b", "cuda-atomic"), identity("b", "cuda-atomic", in_flight=9)}
    assert len(asked) == 3
    assert identity("a") == identity("b")


# ---- the verdict


@pytest.mark.parametrize(
    ("methods", "says", "says_not"),
    [
        (
            ["cuda-hogwild 4 0.1", "cuda-synchronous 4 0.4"],
            "On the same GPU without a race: cuda-hogwild gets there 4.0x",
            "cores:",
        ),
        (
            ["cuda-hogwild 1 0.1", "hogwild 16 0.8", "locked 16 4"],
            "On the processor's cores: cuda-hogwild gets there 8.0x",
            "On 16 workers",
        ),
        (["hogwild 2 4", "locked 2 8", "cuda-one-stream 1 1"], "On 2 workers hogwild comes within", "replica"),
    ],
)
def test_the_verdict_is_of_the_gpu_where_methods_race_on_one(
    tmp_path: Path, methods: list[str], says: str, says_not: str
) -> None:
    parts = [
        race(line, noise=(1.0,) * 3, device="cuda" if line.startswith("cuda") else "cpu")
        for line in ("serial 1 8", *methods)
    ]
    source = loaded(tmp_path, *parts, gpu="A GPU", cores=2)
    said = " ".join(verdict(source))
    assert says in said
    assert says_not not in said
    assert ("MORE WORKERS THAN CORES" in said) == ("hogwild 16 0.8" in methods)  # replicas are none
