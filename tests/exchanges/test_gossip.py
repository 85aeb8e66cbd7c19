"""Gossip: what is sent and what is owed are all there is, replicas end equal, and bytes are those of the code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hogwild
from hogwild.exchanges import make_exchange
from hogwild.exchanges.gossip import LAST, Gossip, _open, pack_delta, unpack_delta, unpack_entries
from hogwild.exchanges.trade import Message, take
from hogwild.hosts.memory import Block
from hogwild.hosts.simulator import Network, TimedLink
from hogwild.methods import Wire

SIZE = 400
pytestmark = pytest.mark.filterwarnings("ignore:.* workers share")


class Heard(TimedLink):
    """A link that keeps what was posted."""

    def __init__(self, network: Network, replica: int) -> None:
        super().__init__(network, replica)
        self.posted: list[Message] = []

    def post(self, to: int, message: Message) -> bool:
        self.posted.append(message)
        return super().post(to, message)


class Table:
    """Replicas at one table, which trade when they are told to, over lines of different speed."""

    def __init__(self, exchange: Gossip, replicas: int, seed: int = 0) -> None:
        self.exchange, self.rng = exchange, np.random.default_rng(seed)
        self.network = Network(replicas, Wire(1.0, 500.0))
        self.links = [Heard(self.network, replica) for replica in range(replicas)]
        self.arrays = Block(exchange.spec(SIZE, replicas), shared=False).arrays
        self.flat = self.rng.normal(size=SIZE).astype(np.float32)
        exchange.begin(self.flat, self.arrays)
        self.mine = [take(self.flat, self.arrays, replica) for replica in range(replicas)]

    def trade(self, replica: int, end: bool = False) -> Any:
        work = self.exchange.end if end else self.exchange.trade
        going = work(self.mine[replica], self.arrays, self.links[replica], 1)
        return going if end else [*going]

    def begin(self) -> None:
        """Begin another task, with links of its own."""
        self.network = Network(len(self.links), self.network.wire)
        self.links = [Heard(self.network, replica) for replica in range(len(self.links))]
        self.exchange.begin(self.flat, self.arrays)

    def end(self, dead: tuple[int, ...] = ()) -> None:
        self.network.here[[*dead]] = False
        going = {replica: self.trade(replica, end=True) for replica in range(len(self.links)) if replica not in dead}
        while going:
            for replica in self.rng.permutation([*going]):
                self.network.now[replica] += 5 * self.rng.random()
                if next(going[replica], "over") == "over":
                    del going[replica]
                    self.network.here[replica] = False

    def take_in(self, replica: int) -> None:
        """Let a replica take in what has arrived, and send nothing."""
        self.exchange._take_in(_open(self.mine[replica], self.arrays, replica), self.links[replica])

    def model(self) -> np.ndarray:
        self.exchange.meet(self.flat, self.arrays, np.ones(len(self.links), np.int64))
        return self.flat

    def update(self, replica: int, delta: np.ndarray) -> None:
        self.mine[replica] += delta
        self.network.now[replica] += 3 * self.rng.random()


def sent(message: Message) -> np.ndarray:
    """What a message says, (SIZE,) float64."""
    found = np.zeros(SIZE)
    if message.kind == LAST:
        return found + unpack_delta(message.values, SIZE)
    data = message.values.view(np.uint32)
    entries = unpack_entries(data[1:], signs=True)
    tau = float(data[:1].view(np.float32)[0])
    found[entries & np.uint32(2**31 - 1)] = np.where(entries >> 31, -tau, tau)
    return found


def test_what_is_sent_and_what_is_owed_are_all_updates_exactly() -> None:
    """With tau a power of two and updates of few bits, nothing rounds."""
    tau = 2.0**-6
    table = Table(Gossip(tau=tau), 2)
    table.flat[:] = 0
    table.mine[0][:], table.arrays["base"][0], table.arrays["start"][:] = 0, 0, 0
    updates = np.zeros(SIZE)
    for _ in range(20):
        delta = table.rng.integers(-99, 100, SIZE) * (table.rng.random(SIZE) < 0.2) * 2.0**-10
        table.update(0, delta.astype(np.float32))
        updates += delta
        table.trade(0)
        all_sent = sum(sent(message) for message in table.links[0].posted)
        mine, base = table.mine[0], table.arrays["base"][0, :SIZE]
        assert (all_sent % tau == 0).all()
        np.testing.assert_array_equal(all_sent + mine - base, updates)
        np.testing.assert_array_equal(base, all_sent)


def brought_home(table: Table) -> np.ndarray:
    """What all know, and the mean of what replicas owe, of each weight over those that owe any of it."""
    base = table.arrays["base"][:, :SIZE].astype(np.float64)
    owed = np.stack(table.mine) - base
    return base[0] + owed.sum(axis=0) / np.maximum((owed != 0).sum(axis=0), 1)


@pytest.mark.parametrize("options", [{}, {"tau": 0.05}])
def test_replicas_end_equal_and_nothing_is_lost(options: dict[str, Any]) -> None:
    table = Table(Gossip(**options), 4, seed=len(options))
    total = table.flat.astype(np.float64)
    for _ in range(15):
        for replica in table.rng.permutation(4)[: table.rng.integers(1, 5)]:
            delta = (table.rng.normal(size=SIZE) ** 3 * (table.rng.random(SIZE) < 0.2)).astype(np.float32)
            table.update(replica, delta)
            total += delta
            table.trade(replica)
    table.network.now[:] = [1e9] * 4
    for replica in range(4):  # all hear what has been sent, and owe the rest
        table.take_in(replica)
    base = table.arrays["base"][0, :SIZE]
    owed = np.stack(table.mine) - base
    np.testing.assert_allclose(base + owed.sum(axis=0), total, rtol=1e-4, atol=1e-4)
    expected = brought_home(table)
    table.end()
    assert all(table.network.next_arrival(replica) is None for replica in range(4))  # nothing is under way
    np.testing.assert_allclose(table.mine[0], expected, rtol=1e-5, atol=1e-5)
    for mine in table.mine[1:]:
        assert mine.tobytes() == table.mine[0].tobytes()
    assert table.model().tobytes() == table.mine[0].tobytes()


def test_what_is_owed_lasts_if_it_is_not_brought_home() -> None:
    table = Table(Gossip(home=0), 3)
    total = table.flat.astype(np.float64)
    for task in range(3):
        if task:
            table.begin()
        for replica in range(3):
            delta = (table.rng.normal(size=SIZE) ** 3).astype(np.float32)
            table.update(replica, delta)
            total += delta
            table.trade(replica)
        table.end()
        assert all(not len(link.posted[-1].values) for link in table.links)  # nobody sends what it owes
        owed = np.stack(table.mine) - table.arrays["base"][:, :SIZE]
        np.testing.assert_allclose(table.arrays["base"][0, :SIZE] + owed.sum(axis=0), total, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(table.model(), brought_home(table), rtol=1e-5, atol=1e-5)
        assert np.abs(table.model() - total).max() > 0.1
        assert len({base.tobytes() for base in table.arrays["base"]}) == 1


def test_a_replica_whose_worker_died_catches_up_if_nothing_is_brought_home() -> None:
    table = Table(Gossip(home=0), 3)
    for replica in range(2):
        table.update(replica, table.rng.normal(size=SIZE).astype(np.float32))
        table.trade(replica)
    owed = table.rng.normal(size=SIZE).astype(np.float32)
    table.update(2, owed)  # and then its worker is killed
    table.end(dead=(2,))
    before = table.model().copy()
    np.testing.assert_array_equal(table.mine[2], table.arrays["base"][2, :SIZE] + owed)
    table.begin()
    assert len({base.tobytes() for base in table.arrays["base"]}) == 1
    np.testing.assert_allclose(table.mine[2] - table.arrays["base"][2, :SIZE], owed, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(table.model(), before, rtol=1e-5, atol=1e-5)


def test_tau_aims_at_the_density(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hogwild.exchanges.gossip.DENSITY", 0.25)
    table = Table(Gossip(), 2)
    for _ in range(5):
        table.update(0, table.rng.normal(size=SIZE).astype(np.float32))
        table.trade(0)
    for message in table.links[0].posted:
        assert 0.15 * SIZE <= np.count_nonzero(sent(message)) <= 0.25 * SIZE
        assert message.size < 64 + 12 + SIZE / 4 * 4  # a code is shorter than plain indices


def test_what_is_not_finite_is_never_sent() -> None:
    table = Table(Gossip(tau=0.01), 2)
    delta = np.full(SIZE, 0.1, np.float32)
    delta[[3, 7]] = np.nan, np.inf
    table.update(0, delta)
    table.trade(0)
    assert not sent(table.links[0].posted[0])[[3, 7]].any()
    table.network.now[:] = [1e6, 1e6]
    table.trade(1)
    assert np.isfinite(table.mine[1]).all()
    table.end()
    assert np.isfinite(table.model()).all()
    assert table.arrays["left_out"].tolist() == [1, 0]


@pytest.mark.parametrize("share", [0.0, 0.01, 0.4, 1.0])
def test_a_whole_delta_is_packed(share: float) -> None:
    rng = np.random.default_rng(0)
    delta = (rng.normal(size=1000) * (rng.random(1000) < share)).astype(np.float32)
    packed = pack_delta(delta)
    np.testing.assert_array_equal(unpack_delta(packed, 1000), delta)
    assert packed.nbytes <= delta.nbytes
    assert (packed.dtype == np.uint8) == (share < 1)


def test_options_are_read() -> None:
    exchange: Any = make_exchange("gossip:period=7,tau=0.5,home=0")
    assert exchange == Gossip(7, 0.5, home=0)
    for wrong in ("home=2", "tau=-1"):
        with pytest.raises(hogwild.UsageError, match=wrong):
            make_exchange(f"gossip:{wrong}")
