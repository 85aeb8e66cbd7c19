"""Facts about data: the Hogwild statistics against their definitions, over all pairs of rows."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hogwild
from hogwild.data.rows import container, statistics
from hogwild.data.rows.container import Rows
from hogwild.data.rows.statistics import describe, meets
from tests.reference import hypergraph


def rows_of(sets: list[set[int]], width: int = 12) -> Rows:
    indptr = np.concatenate(([0], np.cumsum([len(e) for e in sets]))).astype(int)
    indices = np.array([u for e in sets for u in sorted(e)], dtype=int)
    return Rows(indptr, indices, np.ones(len(indices)), np.arange(len(sets)) % 2, width)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sets(st.integers(0, 11), max_size=5), min_size=1, max_size=30))
def test_the_definitions(sets):
    facts = describe(rows_of(sets))
    omega, delta, rho, collision = hypergraph(sets)
    assert facts["omega"] == omega
    assert facts["delta"] == pytest.approx(delta)
    assert facts["rho"] == pytest.approx(rho)
    assert facts["rho_exact"]
    assert facts["collision"] == pytest.approx(collision)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sets(st.integers(0, 11), max_size=5), min_size=1, max_size=150), st.integers(0, 3))
def test_a_sampled_bound_is_below_the_truth(sets, seed):
    """Delta <= rho, which the paper's RCV1 line breaks."""
    before = statistics.EXACT_BELOW, statistics.BITS
    statistics.EXACT_BELOW, statistics.BITS = 0, 4
    try:
        facts = describe(rows_of(sets), seed)
    finally:
        statistics.EXACT_BELOW, statistics.BITS = before
    _, delta, rho, _ = hypergraph(sets)
    assert delta - 1e-12 <= facts["rho"] <= rho + 1e-12
    if facts["rho_exact"]:
        assert facts["rho"] == pytest.approx(rho)


def test_meetings_over_many_chunks(monkeypatch):
    random = np.random.default_rng(0)
    sets = [set(random.choice(12, random.integers(0, 4), replace=False).tolist()) for _ in range(200)]
    expected = [sum(bool(e & other) for other in sets) for e in sets[:64]]
    monkeypatch.setattr(container, "CHUNK_ROWS", 7)
    assert meets(rows_of(sets), np.arange(64)).tolist() == expected
    twice = rows_of([set(), *sets, set()]).select(np.arange(1, 201)[::-1])  # neither contiguous nor in order
    assert meets(twice, np.arange(199, 135, -1)).tolist() == expected


def test_the_names_of_a_table_are_its_labels():
    names = [f"name {k:03}" for k in range(100)]
    rows = hogwild.open_table(pa.table({"y": names + names[50:], "x": range(150)}), "y", hash_bits=8)
    found = describe(rows)["targets"]
    assert found["labels"] == {name: 1 + (k >= 50) for k, name in enumerate(names) if k < 14 or k >= 50}


def test_facts_and_targets():
    rows = rows_of([{0, 1}, {1}, set(), {1, 5}])
    facts = describe(rows)
    assert [facts[name] for name in ("rows", "width", "nnz", "used_features", "empty_rows")] == [4, 12, 5, 3, 1]
    assert facts["hottest"] == [(1, 0.75), (0, 0.25), (5, 0.25)]
    assert facts["density"] == 5 / 48
    assert facts["targets"] == {"labels": {"0": 2, "1": 2}}
    assert json.loads(json.dumps(facts))["rho"] == 0.75
    real = Rows([0] * 101, [], [], np.linspace(0, 1, 100), 3)
    assert describe(real)["targets"] == pytest.approx({"min": 0, "mean": 0.5, "max": 1, "std": 0.2915}, abs=1e-4)


def test_no_rows_and_no_entries():
    assert describe(Rows([0], [], [], [], 5))["rho"] == 0
    bare = describe(Rows([0, 0, 0], [], [], [1, 2], 5))
    assert (bare["rho"], bare["delta"], bare["collision"], bare["empty_rows"]) == (0, 0, 0, 2)
