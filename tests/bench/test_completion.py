"""The section completion on tiny data: every way is measured, all learn, and cornac's work is the same as ours."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from hogwild.bench import completion
from hogwild.bench.plan import BenchPlan
from hogwild.data.cache import Cache

SMALL = "synthetic:netflix?users=400&items=150&ratings=12000"


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BenchPlan:
    monkeypatch.setattr(completion, "SHAPED", {True: SMALL})
    monkeypatch.setattr(completion, "RANKS", (8,))
    return BenchPlan((1,), repeats=1, quick=True, names={}, cache=Cache(tmp_path / "cache"), against=True)


@pytest.mark.slow
def test_every_rating_is_learned_from_by_every_way(plan: BenchPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = completion.ratings_of(SMALL)
    monkeypatch.setattr(completion, "one_cpu_a_core", lambda: [0, 1])
    rows = list(completion.measure(dataclasses.replace(plan, workers=(1, 2), repeats=19)))
    assert {row["data"] for row in rows} == {"netflix-shaped"}
    assert {(row["kind"], row["workers"]) for row in rows} >= {("serial", 1), *((kind, 2) for kind in completion.KINDS)}
    for row in rows:
        assert (row["ratings"], row["epochs"], row["status"]) == (len(train), 20, "ok")
        assert row["held_out_rmse"] < 0.98 * float(test.values.std())


def test_cornac_does_the_same_work(plan: BenchPlan) -> None:
    pytest.importorskip("cornac")
    rows = {row["kind"]: row["held_out_rmse"] for row in completion.measure(plan)}
    assert abs(rows["cornac"] - rows["serial"]) < 0.02


def test_ratings_of_a_file_are_split_and_sorted_by_user(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pairs = rng.permutation(600)
    lines = [f"{pair // 20 + 1}\t{pair % 20 + 1}\t{pair % 5 + 1}\n" for pair in pairs]
    (tmp_path / "r.tsv").write_text("".join(lines))
    train, test = completion.ratings_of(str(tmp_path / "r.tsv"))
    assert train.shape == test.shape == (30, 20)
    assert (len(train), len(test)) == (540, 60)
    assert all((np.diff(part.users) >= 0).all() for part in (train, test))
