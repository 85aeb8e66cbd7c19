"""A slower network between machines: everything arrives as before, never sooner than it would over that link."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import hogwild
from hogwild.hosts.timed import carried
from hogwild.machines.cluster import Cluster
from hogwild.machines.slowed import Lines
from hogwild.methods import Wire, parse_link
from tests.machines.test_machines import OPTIONS, fit, together
from tests.runs import toy


def test_lines_are_those_of_the_simulator() -> None:
    rng = np.random.default_rng(0)
    wire = Wire(0.003, 1e6)
    machines, free = [Lines(wire) for _ in range(3)], np.zeros((3, 2))  # out, in
    now = 0.0
    for _ in range(300):
        now += rng.exponential(0.002)
        sender, receiver = rng.permutation(3)[:2]
        size = int(rng.integers(0, 10_000))
        left = machines[sender].out(size, now)
        arrives = machines[receiver].into(size, left)
        assert left == pytest.approx(carried(wire, size, now, free[sender, 0], 0.0)[0])
        # there a busy line in holds up the line out too, but a message is not sooner by it
        assert arrives == pytest.approx(carried(wire, size, now, free[sender, 0], free[receiver, 1])[1])
        free[sender, 0], free[receiver, 1] = left, arrives


def test_nothing_arrives_early_and_all_in_order() -> None:
    wire = parse_link("latency=20ms,bandwidth=80Mbit")
    array = np.arange(300_000.0, dtype=np.float32)

    def work(cluster: Cluster) -> Any:
        cluster.feel(wire)
        before = time.monotonic()
        if cluster.leads:
            cluster.tell({"kind": "ping"})
            cluster.next_note(1, ("pong",))
            assert time.monotonic() - before >= 2 * 0.02
            before = time.monotonic()
            cluster.tell({"kind": "send"})
            np.testing.assert_array_equal(cluster.next_array(1, 1, np.float32, array.size), array)
            assert time.monotonic() - before >= array.nbytes / 1e7
            return [cluster.next_note(1, ("count",))["k"] for _ in range(20)]
        cluster.next_note(0, ("ping",))
        cluster.tell({"kind": "pong"}, 0)
        cluster.next_note(0, ("send",))
        cluster.send_array(0, 1, array)
        for k in range(20):
            cluster.tell({"kind": "count", "k": k}, 0)
        return None

    assert together(2, work) == [[*range(20)], None]


@pytest.mark.parametrize("exchange", ["averaging", "server:push=1000000"])
def test_a_link_changes_the_time_and_nothing_else(exchange: str) -> None:
    rows, options = toy(500), {"exchange": exchange, "epochs": 3}
    (_, model), _ = together(2, fit(rows, **options))
    (history, slowed), (_, other) = together(2, fit(rows, link="latency=30ms,bandwidth=1Gbit", **options))
    if exchange == "averaging":  # a server takes what comes first
        np.testing.assert_array_equal(slowed.coef_, model.coef_)
    np.testing.assert_array_equal(slowed.coef_, other.coef_)
    assert history[-1]["train_seconds"] >= 3 * 2 * 0.03  # a question and an answer an epoch


def test_the_row_of_a_link_is_the_simulators() -> None:
    with pytest.raises(hogwild.errors.UsageError, match="row is for the simulator"):
        hogwild.TrainConfig(machines=2, link="row=1us", **{k: v for k, v in OPTIONS.items() if k != "epochs"})
