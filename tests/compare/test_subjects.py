"""The other problems in a comparison: every method on a small set of ratings and a small grid, and their optima."""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hogwild.compare.reference import outside
from hogwild.compare.reference.factorisers import CornacMF, refuse_cornac
from hogwild.compare.reference.minimum_cut import minimum_cut
from hogwild.compare.report.page import write_report
from hogwild.compare.report.results import load, lowest
from hogwild.compare.report.tables import facts_of
from hogwild.compare.run.harness import Comparison
from hogwild.compare.run.methods import METHODS, usual
from hogwild.compare.run.plan import Cell, ComparisonPlan
from hogwild.compare.run.problems import SUBJECTS, start_of
from hogwild.compare.run.runner import ComparedData, Judge, Pools, run_cell
from hogwild.config import TrainConfig
from hogwild.data.graphs.container import Graph
from hogwild.data.graphs.synthetic import generate_graph
from hogwild.data.ratings.container import Ratings
from hogwild.errors import InputError

BASES = {
    "completion": TrainConfig(problem="completion", rank=8, host="threads"),
    "cuts": TrainConfig(problem="cuts", host="threads"),
}


def rated(n: int = 4000, users: int = 120, items: int = 80, seed: int = 0) -> Ratings:
    """Ratings of a planted model of rank two, between about 1 and 5."""
    rng = np.random.default_rng(seed)
    pairs = rng.choice(users * items, n, replace=False)
    u, i = pairs // items, pairs % items
    p, q = rng.normal(0, 0.7, (users, 2)), rng.normal(0, 0.7, (items, 2))
    values = 3 + rng.normal(0, 0.5, users)[u] + (p[u] * q[i]).sum(axis=1) + rng.normal(0, 0.2, n)
    return Ratings(u, i, values, (users, items))


@pytest.fixture(scope="module")
def sets() -> dict[str, Any]:
    return {"completion": rated().split(0.1, 0), "cuts": (generate_graph("synthetic:grid?side=48"), None)}


def plan_of(**changes: Any) -> ComparisonPlan:
    fields = {"seeds": 3, "workers": (2,), "grid": (0.05, 0.1), "epochs": 6, "methods": ("serial", "hogwild", "locked")}
    return ComparisonPlan(**(fields | changes))


# ---- every method


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("problem", ["completion", "cuts"])
def test_every_method_halves_the_sub_optimality_or_is_refused(sets: dict, problem: str, workers: int) -> None:
    base, (train, test) = BASES[problem], sets[problem]
    task = ComparedData(train, test, base, problem, 600.0)
    judge, ran = Judge(task), set()
    with Pools("threads") as pools:
        best = lowest(run_cell(Cell("reported", "serial", 1, base.step, 9), task, 40, pools, judge), np.inf)
        for name, method in METHODS.items():
            if (workers > 1 and not method.parallel) or name == "cornac":
                continue
            reason = method.refusal(base, train, workers, cores=4)
            if reason is not None:
                assert "\n" not in reason
                continue
            ran.add(name)
            cell = Cell("reported", name, workers, base.step, 1, ("given",))
            found = run_cell(cell, task, 20, pools, judge)
            assert {row["status"] for row in found} == {"ok"}, name
            assert (found[0]["epoch"], found[0]["train_seconds"], found[-1]["epoch"]) == (0, 0.0, 20)
            # factors that replicas find apart, from small ones, may have turned: their mean is less than each; and
            # what is divided, or pulled back, takes longer at serial's step
            apart = problem == "completion" and method.kind == "exchange" and name != "averaging"
            left = 0.8 if apart else 0.5
            assert found[-1]["objective"] - best <= left * (found[0]["objective"] - best), name
            assert {row["problem"] for row in found} == {problem}
    assert {"hogwild", "aig", "locked", "round-robin", "averaging", "atomic"} <= ran
    assert ("tiered" in ran, "blocks" in ran) == ((True, True) if problem == "completion" else (False, False))


def test_which_methods_a_problem_has() -> None:
    assert "blocks" not in usual("linear")
    assert {"sklearn-sgd", "liblinear"} <= set(usual("linear"))
    assert "blocks" in usual("completion")
    assert not {"sklearn-sgd", "liblinear", "blocks", "cornac"} & set(usual("cuts"))


@pytest.mark.parametrize(
    ("problem", "name", "says"),
    [
        ("completion", "sklearn-sgd", "sklearn-sgd is for problem linear, not for completion"),
        ("cuts", "liblinear", "liblinear is for problem linear, not for cuts"),
        ("cuts", "blocks", "blocks is for problem completion, not for cuts"),
        ("cuts", "tiered", "discipline tiered has nothing to do for cuts"),
        ("completion", "hogwild", None),
    ],
)
def test_refusals_are_sentences(sets: dict, problem: str, name: str, says: str | None) -> None:
    reason = METHODS[name].refusal(BASES[problem], sets[problem][0], 2, cores=2)
    assert reason is None if says is None else says in (reason or "")


def test_what_a_problem_does_not_take_is_a_refusal_also_without_asking_first(sets: dict) -> None:
    task = ComparedData(*sets["cuts"], BASES["cuts"], "grid", 600.0)
    with Pools("threads") as pools:
        [row] = run_cell(Cell("reported", "tiered", 2, 1.0, 0), task, 2, pools, Judge(task))
    assert row["status"].startswith("refused: discipline tiered")


# ---- samples, judges


def test_samples_are_of_the_same_coordinates(sets: dict) -> None:
    ratings, graph = sets["completion"][0], sets["cuts"][0]
    few = SUBJECTS["completion"].sample(ratings, 10)
    assert (len(few), few.shape) == (10, ratings.shape)
    some = SUBJECTS["cuts"].sample(graph, 10)
    assert (len(some), some.n_vertices, some.n_labels) == (10, graph.n_vertices, 2)
    for subject, data in ((SUBJECTS["completion"], ratings), (SUBJECTS["cuts"], graph)):
        assert subject.fingerprint(data) != subject.fingerprint(subject.sample(data, 10))


@pytest.mark.parametrize("problem", ["completion", "cuts"])
def test_the_judge_says_what_the_run_says(sets: dict, problem: str) -> None:
    task = ComparedData(*sets[problem], BASES[problem], problem, 600.0)
    judge = Judge(task)
    with Pools("threads") as pools:
        found = run_cell(Cell("reported", "serial", 1, 0.05, 3), task, 2, pools, judge)
    for name, value in judge(*start_of(judge.case, 3)).items():
        if name.startswith("train_") and name != "train_loss":  # which a run tells in its last row
            assert found[0][name] is None, name
        else:
            assert found[0][name] == pytest.approx(value, rel=1e-9), name


# ---- optima


def random_graph(seed: int, whole: bool = True, n: int = 8) -> Graph:
    """Two terminals of each label; edges in either direction weigh differently, and terminals are joined too."""
    rng = np.random.default_rng(seed)
    u, v = np.array(list(itertools.combinations(range(n), 2))).T
    forward, backward = rng.integers(0, 9, (2, len(u))) if whole else rng.random((2, len(u))) ** 3
    return Graph(u, v, forward, backward, n, [0, 1, 2, 3], [0, 0, 1, 1])


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_the_minimum_cut_against_all_cuts(seed: int, whole: bool) -> None:
    graph = random_graph(seed, whole)
    best = np.inf
    for rest in itertools.product((0, 1), repeat=4):
        labels = np.array([0, 0, 1, 1, *rest])
        a, b = labels[graph.u], labels[graph.v]
        best = min(best, float(graph.forward[a < b].sum() + graph.backward[a > b].sum()))
    found = minimum_cut(graph)
    assert found.objective == pytest.approx(best, rel=1e-6)
    assert found.gap is not None
    assert 0 <= found.gap <= 1e-6 * best
    assert ("rounded down" in found.how) is not whole
    if whole:
        assert found.gap == 0


def test_no_run_gets_below_the_minimum_cut(sets: dict) -> None:
    graph, _ = sets["cuts"]
    task = ComparedData(graph, None, BASES["cuts"], "grid", 600.0)
    with Pools("threads") as pools:
        found = run_cell(Cell("reported", "hogwild", 2, 1.0, 0), task, 100, pools, Judge(task))
    optimum = minimum_cut(graph).objective
    assert optimum is not None
    assert found[-1]["objective"] >= optimum * (1 - 1e-6)
    assert found[-1]["cut_value"] <= optimum * 1.02


def test_a_comparison_of_cuts_is_measured_against_the_exact_minimum(sets: dict, tmp_path: Path) -> None:
    graph, _ = sets["cuts"]
    Comparison(graph, None, plan_of(grid=(1.0,), epochs=40, delays=(0.0, 1e-6)), BASES["cuts"]).run(tmp_path)
    [source] = load([tmp_path])
    assert (source.goal, source.notes) == ("the optimum", [])
    assert source.head["optimum_how"] == "the minimum cut, by maximum flow"
    assert source.scale.optimum == minimum_cut(graph).objective
    assert source.metric == ("cut_value", "cut value", False)
    report = write_report([tmp_path], tmp_path)
    assert "of the optimum" in report.verdict[0]
    facts = facts_of(source.head)
    assert "2 labels" in facts["data"]
    assert "Ω = 2" in facts["sparsity"]
    assert {row["status"] for row in source.delays} == {"ok"}


def test_too_many_edges_or_labels_leave_the_best_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, why in (("grid?side=8&labels=3", "NP-hard"), ("grid?side=8", "more than the 10")):
        graph = generate_graph(f"synthetic:{name}")
        monkeypatch.setattr("hogwild.compare.reference.minimum_cut.EDGES", 10)
        case = Judge(ComparedData(graph, None, BASES["cuts"], name, 1.0)).case
        found = SUBJECTS["cuts"].optimum(BASES["cuts"], graph, case, note=lambda text: None)
        assert found.objective is None
        assert why in found.how


def test_a_comparison_of_completion_is_measured_against_the_best_seen(sets: dict, tmp_path: Path) -> None:
    train, test = sets["completion"]
    plan = plan_of()
    Comparison(train, test, plan, BASES["completion"], data="ratings").run(tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert rows[0]["objective"] is None
    assert rows[0]["optimum_seen"] is True
    best = min(row["objective"] for row in rows[1:])
    [source] = load([tmp_path])
    assert source.scale.optimum == source.head["objective"] == best
    assert source.goal == "the best seen"
    assert "not convex" in source.notes[0]
    assert source.metric == ("test_rmse", "test RMSE", False)
    report = write_report([tmp_path], tmp_path)
    assert "of the best seen" in report.verdict[0]
    assert "rank = 8" in facts_of(source.head)["minimised"]
    before = (tmp_path / "rows.jsonl").read_bytes()
    again = Comparison(train, test, plan, BASES["completion"], data="ratings")
    again.run(tmp_path)  # the winners, and so the cells, are those of the rows
    assert (tmp_path / "rows.jsonl").read_bytes() == before


def test_an_unknown_optimum_needs_to_be_said(tmp_path: Path) -> None:
    row = {"phase": "optimum", "objective": None, "start_objective": 1.0, "eps": [0.1]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(InputError, match="has objective None"):
        load([tmp_path])
    (tmp_path / "rows.jsonl").write_text(json.dumps(row | {"optimum_seen": True}) + "\n")
    [source] = load([tmp_path])
    assert source.scale.optimum == 1.0  # nothing has run yet


def test_the_lowest() -> None:
    rows = [{"objective": value} for value in (0.5, None, float("nan"), 0.3)]
    assert lowest(rows, 1.0) == 0.3
    assert lowest(rows, 0.1) == 0.1
    assert lowest([], 2.0) == 2.0


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
    monkeypatch.setattr(outside, "installed", lambda module, package: "3.0")


def test_cornac_minimises_the_same_objective(sets: dict, cornac: None) -> None:
    train, test = rated(1500, 60, 50).split(0.1, 0)
    task = ComparedData(train, test, BASES["completion"], "ratings", 600.0)
    judge = Judge(task)
    with Pools("threads") as pools:
        ours = run_cell(Cell("reported", "serial", 1, 0.05, 1), task, 8, pools, judge)
        theirs = run_cell(Cell("reported", "cornac", 1, 0.05, 1), task, 8, pools, judge)
    assert [row["status"] for row in theirs] == ["ok"] * 9
    assert theirs[0]["objective"] == ours[0]["objective"]  # the same start
    way = ours[0]["objective"] - ours[-1]["objective"]
    assert theirs[-1]["objective"] == pytest.approx(ours[-1]["objective"], abs=0.05 * way)
    assert theirs[-1]["test_rmse"] == pytest.approx(ours[-1]["test_rmse"], rel=0.03)


def test_cornac_is_given_threads_and_the_steps_of_the_schedule(sets: dict, cornac: None) -> None:
    config = dataclasses.replace(BASES["completion"], discipline="hogwild", workers=2, step=0.05, decay=0.5)
    solver, steps = CornacMF(rated(200, 30, 20), config), []
    solver.make = lambda **about: (steps.append((about["learning_rate"], about["num_threads"])), FakeMF(**about))[1]
    solver.advance(3)
    assert steps == [(0.05, 2), (0.025, 2), (0.0125, 2)]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"loss": "bpr"}, "no loss bpr"),
        ({"penalty": "per-row"}, "per-rating"),
        ({"nonnegative": True}, "above zero"),
        ({"schedule": "inverse"}, "schedule inverse"),
    ],
)
def test_what_cornac_does_not_do(changes: dict, why: str) -> None:
    reason = refuse_cornac(dataclasses.replace(BASES["completion"], **changes), None)
    assert reason is not None
    assert why in reason
    assert "\n" not in reason


def test_cornac_may_not_be_there(sets: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside, "installed", lambda module, package: None)
    reason = METHODS["cornac"].refusal(BASES["completion"], sets["completion"][0], 2, cores=2)
    assert reason == "cornac is not installed (pip install cornac)"
