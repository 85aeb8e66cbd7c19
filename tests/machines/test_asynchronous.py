"""Gossip and a parameter server between machines: nothing is lost, nobody waits, a machine alone is serial."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import hogwild
from hogwild.errors import TrainingError, UsageError
from hogwild.exchanges import make_exchange
from hogwild.exchanges.trade import take
from hogwild.hosts.memory import Block
from hogwild.machines.cluster import Cluster
from hogwild.machines.pool import ROOM
from hogwild.machines.trading import MachineLink
from hogwild.problems.linear.problem import LinearProblem
from tests.machines.test_machines import OPTIONS, fit, together
from tests.runs import slowed, toy, until

SCHEMES = {  # how many machines trade by each, and how much worse than in the simulator they may be
    "averaging": (2, 1.05),
    "averaging:period=100": (3, 1.05),
    "gossip:period=50": (3, 1.25),
    "server:push=50": (2, 1.25),
    "server:push=50,fetch=150,shards=3,rule=soft,soft=2": (3, 1.25),
}


@pytest.fixture(autouse=True)
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines trade within an epoch."""
    slowed(monkeypatch, LinearProblem)


def drive(trade: Iterator[None]) -> None:
    assert until(lambda: next(trade, "over") == "over")


def test_a_server_has_all_that_the_dead_have_pushed() -> None:
    def work(cluster: Cluster) -> Any:
        exchange, me = make_exchange("server:push=1,fetch=3,shards=2,rule=sum"), cluster.number
        assert exchange is not None
        arrays = Block(exchange.spec(200, 3), shared=False).arrays
        exchange.begin(start := np.zeros(200, np.float32), arrays)
        link = MachineLink(cluster, [0, 1, 2], 1, ROOM, exchange, arrays)
        if cluster.leads:
            assert until(lambda: link.receive() or not cluster.alive[1:].any())
            link.receive()
            return arrays["centre"]
        w, total, rng = take(start, arrays, me, 1.0), start.copy(), np.random.default_rng(me)
        for _ in range(12 if me == 1 else 3):
            change = rng.integers(-8, 9, 200).astype(np.float32) / 64  # of which sums are exact
            w += change
            total += change
            drive(exchange.trade(w, arrays, link, 1))
        if me == 1:
            drive(exchange.end(w, arrays, link, 0))
        w += 1  # what it has not pushed is lost
        return total

    centre, first, second = together(3, work)
    np.testing.assert_array_equal(centre, first + second)


@pytest.mark.parametrize("exchange", SCHEMES)
def test_machines_train_as_the_simulator_does(exchange: str) -> None:
    rows, (machines, slack) = toy(1000), SCHEMES[exchange]
    (history, model), *others = together(machines, fit(rows, exchange=exchange))
    for other_history, other in others:
        assert other_history == []
        np.testing.assert_array_equal(other.coef_, model.coef_)
        np.testing.assert_array_equal(other.intercept_, model.intercept_)
    last = history[-1]
    assert [row["updates"] for row in history[1:]] == [len(rows)] * 4  # nothing twice, nothing left out
    assert (last["status"], last["replicas"], last["workers_lost"]) == ("ok", machines, 0)
    objectives = []
    for seed in range(3):
        options = OPTIONS | {"workers": machines, "host": "simulator", "seed": seed}
        objectives.append([*hogwild.train(rows, exchange=exchange, **options)][-1]["objective"])
    assert last["objective"] < slack * max(objectives)
    assert last["bytes_sent"] > 64 * last["messages"]
    if exchange == "averaging":  # a share for each other machine and a mean to each, once an epoch
        assert last["messages"] == 4 * machines * 2 * (machines - 1)
    else:  # not only at the end of an epoch
        assert last["messages"] > 4 * 2 * machines


@pytest.mark.parametrize("exchange", ["averaging", "gossip:period=1000000", "server:push=1000000,rule=sum"])
def test_without_trades_within_an_epoch_all_is_as_in_the_simulator(exchange: str) -> None:
    rows = toy(1024)
    options: dict[str, Any] = OPTIONS | {"exchange": exchange}
    (_, model), _ = together(2, fit(rows, **options))
    simulated = hogwild.train(rows, **(options | {"workers": 2, "host": "simulator"})).finish()
    np.testing.assert_allclose(model.coef_, simulated.coef_, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("exchange", ["averaging:period=20", "gossip:period=20", "server:push=20,shards=2"])
def test_a_machine_that_is_left_alone_trains_serially_to_the_bit(exchange: str) -> None:
    rows = toy(300)

    def work(cluster: Cluster) -> Any:
        run = hogwild.train(rows, cluster=cluster, exchange=exchange, **OPTIONS)
        if not cluster.leads:
            run.close()
            return None
        assert until(lambda: not cluster.alive[1])
        return run.finish()

    model, _ = together(2, work)
    alone = hogwild.train(rows, **OPTIONS).finish()
    assert model.coef_.tobytes() == alone.coef_.tobytes()
    assert model.intercept_.tobytes() == alone.intercept_.tobytes()


def test_without_machine_0_the_run_is_over() -> None:
    def work(cluster: Cluster) -> Any:
        run = hogwild.train(
            toy(), cluster=cluster, exchange="server:push=50", **OPTIONS | {"epochs": 10**6, "patience": 0}
        )
        if cluster.leads:
            next(run), next(run)
            cluster.leave("its power has failed")
            run.close()
            return None
        return run.finish()

    _, error = together(2, work)
    assert isinstance(error, TrainingError)
    assert "machine 0" in str(error)
    assert "its power has failed" in str(error)


def test_a_run_that_diverges_says_so() -> None:
    def work(cluster: Cluster) -> Any:
        options = OPTIONS | {"step": 1e6, "loss": "squared-error", "exchange": "averaging"}
        run = hogwild.train(toy(classes=0), cluster=cluster, **options)
        with contextlib.suppress(TrainingError):
            run.finish()
        return run.history[-1]["status"] if cluster.leads else "ended"

    assert together(2, work) == ["diverged", "ended"]


@pytest.mark.parametrize(
    ("exchange", "reason"),
    [
        ("consensus", "machines trade by averaging, gossip, server, rotation: choose one of these"),
        ("averaging:by=ring", "by=ring is for the workers of one machine: leave by out"),
        ("gossip:home=0", "home=0.0 is for the workers of one machine: leave home out"),
        ("server:bound=3", "bound=3.0 is for the workers of one machine: leave bound out"),
        ("server:rule=adagrad", "rule=adagrad is for the workers of one machine: leave rule out"),
    ],
)
def test_what_machines_refuse(exchange: str, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        hogwild.TrainConfig(machines=2, exchange=exchange)
    assert str(caught.value) == f"exchange={exchange!r}: {reason}"
