"""Gossip: what is sent and what is owed are all there is, replicas end equal, and bytes are those of the code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hogwild.exchanges.gossip import LAST, Gossip, _open, unpack_entries, whole
from hogwild.exchanges.trade import Message, packed
from tests.exchanges.room import Room

SIZE = 400
pytestmark = pytest.mark.filterwarnings("ignore:.* workers share")


class Table(Room):
    """Replicas that owe each other something, from weights at random."""

    def __init__(self, exchange: Gossip, replicas: int, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        super().__init__(exchange, replicas, SIZE, self.rng.normal(size=SIZE))

    def posted(self, replica: int = 0) -> list[Message]:
        """What a replica has sent that the last one has not taken in."""
        self.link[-1].receive()
        return [*self.link[-1].inbox[replica]]

    def take_in(self) -> None:
        """Let all replicas take in what has arrived, and send nothing."""
        for replica, w in enumerate(self.w):
            self.exchange._take_in(_open(w, self.arrays, replica), self.link[replica])

    def owed(self) -> np.ndarray:
        return np.stack(self.w) - self.arrays["base"][:, :SIZE]


def sent(message: Message) -> np.ndarray:
    """What a message says, (SIZE,) float64."""
    found = np.zeros(SIZE)
    if message.kind == LAST:
        return found + whole(message, SIZE)
    data = message.values.view(np.uint32)
    entries = unpack_entries(data[1:])
    tau = float(data[:1].view(np.float32)[0])
    found[entries & np.uint32(2**31 - 1)] = np.where(entries >> 31, -tau, tau)
    return found


def test_what_is_sent_and_what_is_owed_are_all_updates_exactly() -> None:
    """With tau a power of two and updates of few bits, nothing rounds."""
    tau = 2.0**-6
    table = Table(Gossip(tau=tau), 2)
    table.flat[:] = 0
    table.begin()
    updates = np.zeros(SIZE)
    for _ in range(20):
        delta = table.rng.integers(-99, 100, SIZE) * (table.rng.random(SIZE) < 0.2) * 2.0**-10
        table.w[0] += delta.astype(np.float32)
        updates += delta
        table.trade(0)
        all_sent = sum(sent(message) for message in table.posted())
        assert (all_sent % tau == 0).all()
        np.testing.assert_array_equal(all_sent + table.owed()[0], updates)
        np.testing.assert_array_equal(table.base(), all_sent)


def brought_home(table: Table) -> np.ndarray:
    """What all know, and the mean of what replicas owe, of each weight over those that owe any of it."""
    owed = table.owed().astype(np.float64)
    return table.base() + owed.sum(axis=0) / np.maximum((owed != 0).sum(axis=0), 1)


@pytest.mark.parametrize("options", [{}, {"tau": 0.05}])
def test_replicas_end_equal_and_nothing_is_lost(options: dict[str, Any]) -> None:
    table = Table(Gossip(**options), 4, seed=len(options))
    total = table.flat.astype(np.float64)
    for _ in range(15):
        for replica in table.rng.permutation(4)[: table.rng.integers(1, 5)].tolist():
            delta = (table.rng.normal(size=SIZE) ** 3 * (table.rng.random(SIZE) < 0.2)).astype(np.float32)
            table.w[replica] += delta
            total += delta
            table.trade(replica)
    table.take_in()  # all hear what has been sent, and owe the rest
    np.testing.assert_allclose(table.base() + table.owed().sum(axis=0), total, rtol=1e-4, atol=1e-4)
    expected = brought_home(table)
    table.end()
    np.testing.assert_allclose(table.w[0], expected, rtol=1e-5, atol=1e-5)
    for w in table.w[1:]:
        assert w.tobytes() == table.w[0].tobytes()
    assert table.meet().tobytes() == table.w[0].tobytes()


def test_what_is_owed_lasts_if_it_is_not_brought_home() -> None:
    table = Table(Gossip(home=0), 3)
    total = table.flat.astype(np.float64)
    for task in range(3):
        if task:
            table.begin()
        for replica in range(3):
            delta = (table.rng.normal(size=SIZE) ** 3).astype(np.float32)
            table.w[replica] += delta
            total += delta
            table.trade(replica)
        table.end()
        assert not len(table.posted()[-1].values)  # nobody sends what it owes
        np.testing.assert_allclose(table.base() + table.owed().sum(axis=0), total, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(table.meet(), brought_home(table), rtol=1e-5, atol=1e-5)
        assert np.abs(table.meet() - total).max() > 0.1
        assert len({base.tobytes() for base in table.arrays["base"]}) == 1


def test_a_replica_whose_worker_died_catches_up_if_nothing_is_brought_home() -> None:
    table = Table(Gossip(home=0), 3)
    for replica in range(2):
        table.w[replica] += table.rng.normal(size=SIZE).astype(np.float32)
        table.trade(replica)
    owed = table.rng.normal(size=SIZE).astype(np.float32)
    table.w[2] += owed
    table.link[2].leave()  # its worker is killed
    table.end(0, 1)
    before = table.meet().copy()
    np.testing.assert_array_equal(table.w[2], table.base(2) + owed)
    table.begin()
    assert len({base.tobytes() for base in table.arrays["base"]}) == 1
    np.testing.assert_allclose(table.owed()[2], owed, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(table.meet(), before, rtol=1e-5, atol=1e-5)


def test_tau_aims_at_the_density(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hogwild.exchanges.gossip.DENSITY", 0.25)
    table = Table(Gossip(), 2)
    for _ in range(5):
        table.w[0] += table.rng.normal(size=SIZE).astype(np.float32)
        table.trade(0)
    for message in table.posted():
        assert 0.15 * SIZE <= np.count_nonzero(sent(message)) <= 0.25 * SIZE
        assert message.size < 64 + 12 + SIZE / 4 * 4  # a code is shorter than plain indices


@pytest.mark.parametrize("share", [0.0, 0.01, 0.4, 1.0])
def test_a_whole_change_is_packed(share: float) -> None:
    rng = np.random.default_rng(0)
    change = (rng.normal(size=1000) * (rng.random(1000) < share)).astype(np.float32)
    message = packed(Message(LAST, 0, 0), change, np.flatnonzero(change))
    np.testing.assert_array_equal(whole(message, 1000), change)
    assert message.size <= 64 + min(change.nbytes, 8 * np.count_nonzero(change))
