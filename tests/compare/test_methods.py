"""Conformance: every method of the table on every problem, on a small set, is trained and judged alike, or refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from torch import nn

from hogwild.compare.report.results import KINDS, lowest
from hogwild.compare.run.methods import METHODS, USUAL_EXCHANGES, chosen, find, listed, usual
from hogwild.compare.run.plan import Cell
from hogwild.compare.run.problems import begun
from hogwild.compare.run.runner import Runner
from hogwild.config import TrainConfig, config_class
from hogwild.data.graphs.synthetic import generate_graph
from hogwild.data.rows.source import open_data
from hogwild.errors import UsageError
from hogwild.methods import DISCIPLINES
from hogwild.problems.module.training import pose
from tests.compare.rows import rated

BASES = {
    "linear": TrainConfig(host="threads", l2=1e-4),
    "completion": TrainConfig(problem="completion", rank=8, host="threads"),
    "cuts": TrainConfig(problem="cuts", host="threads"),
    "module": TrainConfig(problem="module", host="threads", batch=16),
}
STEPS = {"linear": 1.0, "completion": BASES["completion"].step, "cuts": BASES["cuts"].step, "module": 0.4}
OUTSIDE = {"linear": {"sklearn-sgd", "liblinear"}, "completion": set(), "cuts": set(), "module": set()}


@pytest.fixture(scope="module")
def tasks() -> dict[str, Runner]:
    X = np.random.default_rng(0).standard_normal((200, 4)).astype(np.float32)
    data = {
        "linear": open_data("synthetic:rcv1?rows=5000&features=500&nnz=20&seed=3").split(0.2, 0),
        "completion": rated().split(0.1, 0),
        "cuts": (generate_graph("synthetic:grid?side=20"), None),
        "module": (pose(lambda: nn.Linear(4, 2), "cross-entropy", (X, (X[:, 0] > 0).astype(int)))[0], None),
    }
    bases = BASES | {"module": dataclasses.replace(BASES["module"], loss="cross-entropy")}
    return {problem: Runner(*data[problem], base, problem, 600.0) for problem, base in bases.items()}


@pytest.mark.parametrize(
    ("problem", "workers"), [("linear", 1), ("completion", 1), *((problem, 2) for problem in BASES)]
)
def test_every_method_halves_the_sub_optimality_or_is_refused(tasks: dict, problem: str, workers: int) -> None:
    task, trained = tasks[problem], set()
    with task:
        best = lowest(task.run(Cell("reported", "serial", 1, STEPS[problem], 9), 40), np.inf)
        for name, method in METHODS.items():
            seldom = problem == "linear" and method.exchange not in USUAL_EXCHANGES  # for links that take time
            if (workers > 1 and not method.parallel) or name == "cornac" or seldom:
                continue
            cell = Cell("reported", name, workers, STEPS[problem] if method.tuned else None, 1)
            rows = task.run(cell, 20)
            if rows[0]["status"].startswith("refused: "):
                continue
            trained.add(name)
            assert {row["status"] for row in rows} == {"ok"}, name
            assert (rows[0]["epoch"], rows[0]["train_seconds"], rows[-1]["epoch"]) == (0, 0.0, 20)
            for field in ("epoch", "train_seconds"):
                assert [row[field] for row in rows] == sorted(row[field] for row in rows)
            assert rows[-1]["train_seconds"] > 0
            # factors that replicas find apart, from small ones, may have turned: their mean is less than each; and
            # what is divided, or pulled back, takes longer at serial's step
            apart = problem == "completion" and method.kind == "exchange" and name != "averaging"
            share = 0.8 if apart else 0.5
            assert rows[-1]["objective"] - best <= share * (rows[0]["objective"] - best), name
            same = {"problem": problem, "method": name, "kind": method.kind, "workers": workers, "cell": cell.name}
            assert all(row[field] == value for row in rows for field, value in same.items())
            assert {row["cell_rows"] for row in rows} == {len(rows)}
    ours = {"hogwild", "locked", "atomic"} | ({"aig", "round-robin", "averaging"} if problem != "module" else set())
    assert ours <= trained
    special = {"linear": {"tiered"}, "completion": {"blocks"}}
    assert {"tiered", "blocks"} & trained == special.get(problem, set())
    if workers == 1:
        wherever = {name for name in trained if METHODS[name].outside} - {"vowpal-wabbit", "snapml"}  # where installed
        assert wherever == OUTSIDE[problem]


@pytest.mark.parametrize("problem", ["linear", "completion", "cuts"])  # a module has its own start
def test_the_judge_says_what_the_run_says(tasks: dict, problem: str) -> None:
    task = tasks[problem]
    case = task.case
    with task:
        rows = task.run(Cell("reported", "serial", 1, 0.05, 3), 2)
    judged = case.evaluate(begun(dataclasses.replace(case.config, seed=3), tasks[problem].rows))
    for name, value in judged.items():
        if name.startswith("train_") and rows[0][name] is None:  # a run tells it in its last row
            continue
        assert rows[0][name] == pytest.approx(value, rel=1e-9), name
    assert judged["objective"] is not None


@pytest.mark.parametrize(
    ("problem", "name", "changes", "reason"),
    [
        ("linear", "locked", {"workers": 4}, "4 workers on 1 cores"),
        ("completion", "sklearn-sgd", {}, "sklearn-sgd is for problem linear, not for completion"),
        ("cuts", "blocks", {}, "blocks is for problem completion, not for cuts"),
    ],
)
def test_refusals_are_sentences(tasks: dict, problem: str, name: str, changes: dict, reason: str | None) -> None:
    workers = changes.pop("workers", 1)
    base = dataclasses.replace(tasks[problem].base, **changes)
    text = METHODS[name].refusal(base, tasks[problem].rows, workers, cores=1)
    assert text is None if reason is None else reason in (text or "")
    assert "\n" not in (text or "")


def test_which_methods_a_problem_has() -> None:
    assert {method.kind for method in METHODS.values()} == set(KINDS)
    assert {method.discipline for method in METHODS.values()} == set(DISCIPLINES)
    assert {"sklearn-sgd", "liblinear"} <= set(usual("linear"))
    assert {"blocks", "cornac", "gossip"} & set(usual("linear")) == set()
    assert "blocks" in usual("completion")
    assert not {"sklearn-sgd", "liblinear", "blocks", "cornac"} & set(usual("cuts"))
    assert usual("module") == ["serial", "hogwild", "atomic", "locked", "averaging", "one-shot-averaging"]


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.device == "cuda"])
def test_every_method_of_a_gpu_is_a_config_of_its_problems(name: str) -> None:
    method = METHODS[name]
    workers = 3 if method.parallel else 1
    for problem in method.problems:
        config = method.config(TrainConfig(problem=problem), workers, 0.5, 7)
        assert (config.device, config.host, config.step, config.seed) == ("cuda", "streams", 0.5, 7)
        assert config.discipline in config_class(problem).on_gpu
        together = (config.batch or 1) * (config.workers or 1)
        assert together == (TrainConfig(problem=problem).batch or 1) * workers  # whoever shares them out
        assert name in usual(problem, "cuda")
        assert name not in usual(problem)


def test_a_run_has_all_its_epochs_and_is_judged_by_the_last() -> None:
    task = Runner(None, None, TrainConfig(problem="fm", l2_factors=1e-5), "rows", 60.0)
    config = task.config(Cell("reported", "hogwild", 2, 0.5, 3), 7)
    assert (config.epochs, config.patience, config.keep, config.workers, config.seed) == (7, 0, "last", 2, 3)


def test_names_with_parameters() -> None:
    text = "serial, averaging:period=100,mean=rows,hogwild ,one-shot-averaging"
    assert listed(text) == ["serial", "averaging:period=100,mean=rows", "hogwild", "one-shot-averaging"]
    table = chosen(["averaging:period=7", "hogwild"])
    assert [method.name for method in table] == ["serial", "hogwild", "averaging:period=7"]
    assert (table[-1].exchange, table[-1].kind) == ("averaging:period=7", "exchange")
    for wrong in ("averaging:periode=7", "hogwild:period=7", "averging", "averaging:period=0"):
        with pytest.raises(UsageError, match="no method|exchange"):
            find(wrong)
