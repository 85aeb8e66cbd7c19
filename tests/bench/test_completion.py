"""The section completion on tiny data: every way is measured, all learn, and cornac's work is the same as ours."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from hogwild.bench import completion
from hogwild.bench.plan import Plan
from hogwild.data.cache import Cache

SIZE = (400, 150, 12_000)


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setattr(completion, "SIZES", {True: SIZE})
    monkeypatch.setattr(completion, "RANKS", (8,))
    return Plan((1,), repeats=1, quick=True, names={}, cache=Cache(tmp_path / "cache"), against=True)


@pytest.mark.slow
def test_every_rating_is_learned_from_by_every_way(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "EPOCHS", 20)
    _, train, test = completion.netflix_shaped(*SIZE)
    monkeypatch.setattr(completion, "one_cpu_a_core", lambda: [0, 1])
    rows = list(completion.measure(dataclasses.replace(plan, workers=(1, 2))))
    assert {row["data"] for row in rows} == {"netflix-shaped"}
    assert {(row["kind"], row["workers"]) for row in rows} >= {("serial", 1), *((kind, 2) for kind in completion.KINDS)}
    for row in rows:
        assert (row["ratings"], row["epochs"], row["status"]) == (len(train[0]), 20, "ok")
        assert row["held_out_rmse"] < 0.98 * float(test[2].std())


def test_each_call_trains_anew_from_the_same_factors(plan: Plan) -> None:
    shape, train, test = completion.netflix_shaped(*SIZE)
    problem = completion.CompletionProblem.of(shape, train[1], train[2], "serial", rank=8, l2=completion.L2)
    first = completion.aligned(problem.size)
    problem.start(first, 0)
    before = first.copy()
    side = completion._Training(train, shape, 8, "serial", "shuffled", 1, first)
    side()
    once = side.error(test)
    side()
    assert side.error(test) == once
    np.testing.assert_array_equal(first, before)


def test_cornac_does_the_same_work(plan: Plan) -> None:
    pytest.importorskip("cornac")
    shape, train, _ = completion.netflix_shaped(*SIZE)
    problem = completion.CompletionProblem.of(shape, train[1], train[2], "serial", rank=8, l2=completion.L2)
    first = completion.aligned(problem.size)
    problem.start(first, 0)
    side = completion._Cornac(train, problem, first, 1)
    side()
    assert side._model.k == side._model.u_factors.shape[1] == 8
    rows = {row["kind"]: row["held_out_rmse"] for row in completion.measure(plan)}
    assert abs(rows["cornac"] - rows["serial"]) < 0.02


def test_ratings_of_a_file_are_split_and_sorted_by_user(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pairs = rng.permutation(600)
    lines = [f"{pair // 20 + 1}\t{pair % 20 + 1}\t{pair % 5 + 1}\n" for pair in pairs]
    (tmp_path / "r.tsv").write_text("".join(lines))
    shape, train, test = completion.ratings_of(str(tmp_path / "r.tsv"))
    assert shape == (30, 20)
    assert len(train[0]) + len(test[0]) == 600
    assert len(test[0]) == 60
    for users, items, values in (train, test):
        assert (np.diff(users) >= 0).all()
        assert len(users) == len(items) == len(values)
