"""Gossip and a parameter server between machines: nothing is lost, nobody waits, a machine alone is serial."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import hogwild
from hogwild.errors import TrainingError, UsageError
from hogwild.exchanges import make_exchange
from hogwild.exchanges.link import serving
from hogwild.exchanges.trade import take
from hogwild.machines.cluster import Cluster
from hogwild.machines.meeting import Meeting
from hogwild.machines.trading import ROOM, MachineLink
from tests.machines.test_machines import OPTIONS, fit, free_address, together
from tests.runs import toy, until

SLOW = {"gradient_delay": 5e-5}  # seconds a row, so that machines trade within an epoch
SCHEMES = [
    "gossip:period=50",
    "server:push=50",
    "server:push=50,fetch=150,shards=3,rule=sum",
    "server:push=50,rule=soft,soft=2",
]


@contextlib.contextmanager
def clusters(machines: int) -> Iterator[list[Cluster]]:
    """So many clusters that have met, in this process."""
    address, found = free_address(), dict[int, Cluster]()

    def one(number: int) -> None:
        found[number] = Cluster.of(Meeting(address, machines, number), {}, seconds=30.0)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(machines)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    try:
        assert len(found) == machines
        yield [found[number] for number in range(machines)]
    finally:
        ending = [threading.Thread(target=cluster.leave) for cluster in found.values()]
        for thread in ending:
            thread.start()
        for thread in ending:
            thread.join(60)


class ByHand:
    """Machines that change their arrays and trade when the test says so."""

    def __init__(self, name: str, cluster_of: list[Cluster], size: int = 200) -> None:
        count = len(cluster_of)
        self.clusters, self.exchange, self.size = cluster_of, make_exchange(name), size
        self.start = (
            np.linspace(-1, 1, size, dtype=np.float32) if name.startswith("server") else np.zeros(size, np.float32)
        )
        self.arrays = [
            {key: np.zeros(shape, kind) for key, (shape, kind) in self.exchange.spec(size, count).items()}
            for _ in range(count)
        ]
        for arrays in self.arrays:
            self.exchange.begin(self.start, arrays)
        self.mine = [take(self.start, arrays, number, 1.0) for number, arrays in enumerate(self.arrays)]
        self.links = [
            MachineLink(cluster, [*range(count)], 1, ROOM, serving(self.exchange, arrays))
            for cluster, arrays in zip(cluster_of, self.arrays)
        ]

    def drive(self, *going: tuple[int, Iterator[None]]) -> None:
        """Go on with trades of machines until all are complete, while machine 0 serves."""
        left = [trade for _, trade in going]

        def done() -> bool:
            left[:] = [trade for trade in left if next(trade, "over") != "over"]
            self.links[0].receive()
            return not left

        assert until(done)

    def trade(self, *machines: int, rows: int = 1) -> None:
        self.drive(*((k, self.exchange.trade(self.mine[k], self.arrays[k], self.links[k], rows)) for k in machines))

    def end(self, *machines: int) -> None:
        self.drive(*((k, self.exchange.end(self.mine[k], self.arrays[k], self.links[k], 0)) for k in machines))


def changes(rng: np.random.Generator, size: int) -> np.ndarray:
    """Changes of which sums are exact."""
    change = rng.integers(-8, 9, size) / np.float32(64) * (rng.random(size) < 0.2)
    return change.astype(np.float32)


def test_gossip_conserves() -> None:
    rng = np.random.default_rng(0)
    with clusters(3) as three:
        hand = ByHand("gossip:period=1,tau=0.125", three)
        total = hand.start.copy()
        for _ in range(20):
            for k in rng.permutation(3).tolist():
                change = changes(rng, hand.size)
                hand.mine[k] += change
                total += change
                hand.trade(k)
        bases = [hand.arrays[k]["base"][k, : hand.size] for k in range(3)]

        def absorbed() -> bool:
            hand.trade(0, 1, 2)
            return all((bases[0] == base).all() for base in bases[1:])

        assert until(absorbed)
        owed = [mine - base for mine, base in zip(hand.mine, bases)]
        np.testing.assert_array_equal(bases[0] + sum(owed), total)  # each change is there once
        assert all(np.abs(each).max() <= 0.125 for each in owed)
        hand.end(0, 1, 2)
        for mine in hand.mine[1:]:
            np.testing.assert_array_equal(mine, hand.mine[0])
        sent = [link.counts for link in hand.links]
        assert [count.messages for count in sent] == [sent[0].messages] * 3
        assert sent[0].bytes_sent > 64 * sent[0].messages


@pytest.mark.parametrize("options", ["push=1", "push=1,fetch=3,shards=2"])
def test_a_server_conserves_what_the_dead_have_pushed(options: str) -> None:
    rng = np.random.default_rng(1)
    with clusters(3) as three:
        hand = ByHand(f"server:{options},rule=sum", three)
        total, clock = hand.start.astype(np.float64), hand.arrays[0]["clock"]
        for turn in range(12):
            for k in (0, 1) if turn >= 3 else (0, 1, 2):
                change = changes(rng, hand.size)
                hand.mine[k] += change
                total += change
                hand.trade(k)
            if turn == 2:
                # a push alone is not answered: wait until the server has all three of each machine
                assert until(lambda: hand.links[0].receive() or (clock >= 9).all())
                three[2].leave("its power has failed")
                assert until(lambda: not three[0].alive[2] and not three[1].alive[2])
                hand.mine[2] += 1.0  # what it has not pushed is lost
        hand.end(0, 1)
        resting = hand.arrays[0]["resting"]
        assert until(lambda: hand.links[0].receive() or resting[:2].all())
        np.testing.assert_allclose(hand.arrays[0]["centre"], total, atol=1e-5)


def test_what_workers_do_while_an_answer_is_on_its_way_stays() -> None:
    with clusters(2) as two:
        hand = ByHand("server:push=1,rule=sum", two)
        hand.mine[0][3] += 1
        hand.trade(0)
        trade = hand.exchange.trade(hand.mine[1], hand.arrays[1], hand.links[1], 1)
        next(trade)  # it has asked
        hand.mine[1][3] += 10
        hand.mine[1][5] += 20
        hand.drive((1, trade))
        expected = hand.start.copy()
        expected[3] += 1
        np.testing.assert_array_equal(hand.arrays[0]["centre"], expected)
        expected[[3, 5]] += 10, 20
        np.testing.assert_array_equal(hand.mine[1], expected)


@pytest.mark.parametrize(("machines", "exchange"), [*zip([3, 2, 3, 2], SCHEMES)])
def test_machines_train_as_the_simulator_does(machines: int, exchange: str) -> None:
    rows = toy(1000)
    (history, model), *others = together(machines, fit(rows, exchange=exchange, **SLOW))
    for _, other in others:
        np.testing.assert_array_equal(other.coef_, model.coef_)
        np.testing.assert_array_equal(other.intercept_, model.intercept_)
    last = history[-1]
    assert [row["updates"] for row in history[1:]] == [len(rows)] * 4
    assert (last["status"], last["replicas"], last["workers_lost"]) == ("ok", machines, 0)
    objectives = []
    for seed in range(3):
        run = hogwild.train(
            rows, exchange=exchange, **OPTIONS | {"workers": machines, "host": "simulator", "seed": seed}
        )
        objectives.append([*run][-1]["objective"])
    assert last["objective"] < 1.25 * max(objectives)
    assert last["messages"] > 4 * 2 * machines  # not only at the end of an epoch
    assert last["bytes_sent"] > 64 * last["messages"]


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


@pytest.mark.parametrize("exchange", ["averaging", "gossip:period=50", "server:push=50"])
def test_who_leaves_in_the_middle_is_missed_by_nobody(exchange: str) -> None:
    rows = toy()

    def work(cluster: Cluster) -> Any:
        run = hogwild.train(rows, cluster=cluster, exchange=exchange, **(OPTIONS | SLOW | {"epochs": 12}))
        if cluster.number == 2:
            threading.Timer(0.3, cluster.leave, ("its cable was cut",)).start()
        for row in run:
            assert row["epoch"] < 11 or until(lambda: not cluster.alive.all())
        return run.history, run.model

    (history, model), (_, other), gone = together(3, work)
    assert isinstance(gone, TrainingError)
    np.testing.assert_array_equal(other.coef_, model.coef_)
    last = history[-1]
    assert (last["status"], last["epoch"], last["workers_lost"]) == ("ok", 12, 1)
    assert last["updates"] == len(rows)


@pytest.mark.parametrize("exchange", ["averaging", "server:push=50"])
def test_without_machine_0_the_run_is_over(exchange: str) -> None:
    def work(cluster: Cluster) -> Any:
        run = hogwild.train(toy(), cluster=cluster, exchange=exchange, **(OPTIONS | SLOW | {"epochs": 10**6}))
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


@pytest.mark.parametrize("exchange", ["averaging", "gossip:period=50"])
def test_a_run_that_diverges_says_so(exchange: str) -> None:
    def work(cluster: Cluster) -> Any:
        options = OPTIONS | {"step": 1e6, "loss": "squared-error", "exchange": exchange}
        run = hogwild.train(toy(classes=0), cluster=cluster, **options)
        with contextlib.suppress(TrainingError):
            run.finish()
        return run.history[-1]["status"] if cluster.leads else "ended"

    assert together(2, work) == ["diverged", "ended"]


@pytest.mark.parametrize(
    ("exchange", "reason"),
    [
        ("consensus", "machines trade by averaging, gossip, server, rotation: choose one of these"),
        ("averaging:by=ring", "by is not for machines, who have to do without one that dies in a round: leave by out"),
        ("gossip:home=0", "home is not for machines, whose checkpoints hold the model only: leave home out"),
        ("server:bound=3", "bound is not for machines, whose workers do not stop to wait: leave bound out"),
        ("server:rule=adagrad", "rule is not for machines, whose checkpoints hold the model only: leave rule out"),
    ],
)
def test_what_machines_refuse(exchange: str, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        hogwild.TrainConfig(machines=2, exchange=exchange)
    assert str(caught.value) == f"exchange={exchange!r}: {reason}"
