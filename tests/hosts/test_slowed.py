"""Links that real workers feel: nothing arrives early, nothing is lost, and whoever dies or stops holds up nobody."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hogwild
from hogwild.config import TrainConfig
from hogwild.errors import UsageError
from hogwild.exchanges import make_exchange
from hogwild.exchanges.direct import START, DirectLink, serving
from hogwild.exchanges.replicas import take
from hogwild.exchanges.trade import ALL, BOTH, BYE, PUSH, REPLY, Message, Served
from hogwild.hosts.shared import Block
from hogwild.hosts.slowed import Slowed
from hogwild.methods import Wire
from tests.runs import living, long_epochs, start, toy, until, when

pytestmark = pytest.mark.filterwarnings("ignore:.* workers share")
LINK = "latency=0.2ms,bandwidth=1Gbit"


def slowed(replicas: int, room: int, wire: Wire) -> tuple[list[Slowed], dict[str, np.ndarray]]:
    arrays = Block(Slowed.spec(replicas, room), shared=False).arrays
    Slowed.reset(arrays)
    return [Slowed(arrays, replica, None, wire) for replica in range(replicas)], arrays


def numbered(clock: int, length: int = 0) -> Message:
    return Message(0, clock, 0, np.full(length, clock, np.float32))


# ---- messages


class ByHand:
    """A clock that the test moves, so that a busy machine makes nothing late."""

    def __init__(self) -> None:
        self.now = 0.0  # seconds

    def monotonic(self) -> float:
        return self.now

    def monotonic_ns(self) -> int:
        return round(1e9 * self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ByHand:
    clock = ByHand()
    monkeypatch.setattr("hogwild.hosts.slowed.time", clock)
    return clock


def test_nothing_arrives_early_or_out_of_order(clock: ByHand) -> None:
    """Lines are busy: the second message of a sender follows its first, and so does the second to a receiver."""
    busy = 0.005
    links, arrays = slowed(3, 10_000, Wire(latency=0.01, bandwidth=(START + 40) / busy))
    assert links[0].post(ALL, numbered(1, 10))
    assert links[1].post(2, numbered(2, 10))
    assert links[0].post(2, numbered(3, 10))
    assert DirectLink.counted(arrays)[:2] == (4, 4 * (START + 40))
    links[0].leave()
    heard: list[tuple[int, int, int, float]] = []
    while len(heard) < 4:
        coming = sum(found[:2] == (2, 0) for found in heard) < 2  # what 0 has sent before it left is on its way
        assert links[2].here().tolist() == [coming, True, True]
        clock.now += 0.001
        assert clock.now < 0.05
        for link in links:
            link.receive()
            for sender, queue in enumerate(link.inbox):
                while queue:
                    message = queue.popleft()
                    assert message.values.tolist() == 10 * [message.clock]
                    heard.append((link.replica, sender, message.clock, clock.now))
    assert links[2].here().tolist() == [False, True, True]
    assert sorted(found[:3] for found in heard) == [(1, 0, 1), (2, 0, 1), (2, 0, 3), (2, 1, 2)]
    assert [clock for to, sender, clock, _ in heard if (to, sender) == (2, 0)] == [1, 3]
    # 0's line out is busy for 1, then 2, and then 2 again; 2's line in takes 0, 1 and 0 in turn
    turns = {(1, 1): 1, (2, 1): 2, (2, 2): 3, (2, 3): 4}
    for to, _, number, after in heard:
        assert 0.01 + turns[to, number] * busy - 1e-9 <= after < 0.0111 + turns[to, number] * busy


def test_messages_of_any_length_pass_a_log_that_is_full() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 30, 200)
    links, _ = slowed(2, START + 4 * 31, Wire(latency=1e-5, bandwidth=1e8))
    got: list[list[float]] = []
    for k, length in enumerate(lengths):
        while not links[0].post(1, numbered(k, int(length))):
            links[1].receive()
    assert until(lambda: links[1].receive() or len(links[1].inbox[0]) == len(lengths))
    got = [message.values.tolist() for message in links[1].inbox[0]]
    assert got == [[float(k)] * int(length) for k, length in enumerate(lengths)]


def test_what_is_in_transit_survives_its_sender_and_its_receiver(clock: ByHand) -> None:
    links, arrays = slowed(2, 1000, Wire(latency=0.02))
    links[0].post(1, numbered(7))
    links[1].receive()
    assert not links[1].inbox[0]
    arrays["turn"][0] = 0 + 1  # the sender dies while it holds the lines
    assert not links[1].post(0, numbered(1))
    Slowed.free(arrays, 1)
    assert not links[1].post(0, numbered(1))
    Slowed.free(arrays, 0)
    assert links[1].post(0, numbered(1))
    replacement = Slowed(arrays, 1, None, Wire(latency=0.02))
    clock.now = 0.015
    assert 0 < replacement.look() <= 0.02
    replacement.receive()
    assert replacement.look() == pytest.approx(0.005)
    assert not replacement.inbox[0]
    clock.now = 0.021
    replacement.receive()
    assert replacement.inbox[0][0].clock == 7


def test_requests_travel_there_and_back(clock: ByHand) -> None:
    """To a server of two shards; shard 1 has to wait once."""
    asked: list[tuple[int, int, float]] = []

    def clerk(shard: int, sender: int, request: Message) -> Message | None:
        asked.append((shard, request.kind, clock.now))
        if (shard, request.kind) == (1, BOTH):
            return None
        return Message(REPLY, request.clock, 0, np.zeros(10, np.float32))

    arrays = Block(Slowed.spec(2, 0, 2), shared=False).arrays
    Slowed.reset(arrays)
    link = Slowed(arrays, 0, clerk, Wire(latency=0.01))
    here = link.ask(0, Message(BOTH, 3, 0))  # shard 0 is on its own machine
    assert link.answer(here) is not None
    pushed, pulled = link.ask(1, Message(PUSH, 4, 0)), link.ask(1, Message(BOTH, 5, 0))
    assert link.answer(pushed) is not None  # nobody waits for it
    for clock.now, served in ((0.009, 1), (0.011, 3), (0.019, 4), (0.028, 4)):  # both left at 0, the answer at 19 ms
        assert link.answer(pulled) is None
        assert link.asked == {pulled: 1}
        assert len(asked) == served
    clock.now = 0.03
    assert link.answer(pulled) is not None
    assert [(shard, kind) for shard, kind, _ in asked] == [(0, BOTH), (1, PUSH), (1, BOTH), (1, 1)]
    leaving = link.ask(1, Message(BYE, 6, 0))
    assert link.answer(leaving) is None  # who leaves waits until the server has what it pushed
    clock.now += 0.011
    assert link.answer(leaving) is not None
    assert DirectLink.counted(arrays)[:2] == (4, 4 * START + 40)
    assert not link.asked


# ---- schemes


def traded(name: str, wire: Wire | None) -> tuple[tuple[int, int], np.ndarray, np.ndarray]:
    """Three replicas that change at random and trade, driven by hand: counts, the model, and start plus changes."""
    count, size, rng = 3, 200, np.random.default_rng(2)
    exchange: Any = make_exchange(name)
    shards = exchange.shards if isinstance(exchange, Served) else 0
    kind: Any = DirectLink if wire is None else Slowed
    arrays = Block(exchange.spec(size, count), shared=False).arrays
    cells = Block(kind.spec(count, exchange.room(size, count), shards), shared=False).arrays
    kind.reset(cells)
    flat = np.linspace(-1, 1, size, dtype=np.float32)
    total = flat.astype(np.float64)
    exchange.begin(flat, arrays)
    mine = [take(flat, arrays, replica, 1.0) for replica in range(count)]
    serve = serving(exchange, arrays)
    links = [kind(cells, replica, serve, *([] if wire is None else [wire])) for replica in range(count)]
    for turn in range(5):
        going = []
        for replica, link in enumerate(links):
            change = rng.integers(-8, 9, size) / np.float32(64) * (rng.random(size) < 0.2)
            mine[replica] += change.astype(np.float32)
            total += change
            side = exchange.trade if turn < 4 else exchange.end
            going.append((link, side(mine[replica], arrays, link, 1 if turn < 4 else 0)))
        drive(going, leaves=turn == 4)
    exchange.meet(flat, arrays, np.full(count, 4))
    return DirectLink.counted(cells)[:2], flat, total


def drive(going: list[tuple[Any, Iterator[None]]], leaves: bool) -> None:
    deadline = time.monotonic() + 120
    while going:
        assert time.monotonic() < deadline
        for each in [*going]:
            if next(each[1], "over") == "over":
                going.remove(each)
                if leaves:
                    each[0].leave()


ALIKE = (
    "averaging:period=1",
    "averaging:period=1,by=ring",
    "averaging:period=1,mean=rows",
    "consensus:period=1",
    "gossip:period=1,tau=0.25",
)
SUMS = ("server:push=1,scale=sum", "server:push=1,fetch=2,scale=sum,shards=2")


@pytest.mark.parametrize("name", ALIKE + SUMS)
def test_schemes_send_and_conserve_as_much_as_without(name: str) -> None:
    counts, model, _ = traded(name, None)
    slow, found, total = traded(name, Wire(latency=1e-3, bandwidth=1e7))
    if name in ALIKE:
        assert (slow, found.tobytes()) == (counts, model.tobytes())
        return
    np.testing.assert_allclose(found, total, atol=1e-5)  # each change is there once
    assert slow[0] == counts[0]


@pytest.mark.parametrize("host", ["threads", "processes"])
@pytest.mark.parametrize(
    "exchange",
    [
        "averaging",
        "averaging:period=20,late=1",
        "gossip:period=20",
        "server:push=20",
        "server:push=20,fetch=40,shards=3,late=1",
        "consensus:period=20",
    ],
)
def test_replicas_that_end_at_different_times(exchange: str, host: str) -> None:
    rows = toy(300)
    (_, row) = hogwild.train(rows, workers=3, host=host, exchange=exchange, link=LINK, step=0.3, epochs=1)
    assert (row["status"], row["updates"]) == ("ok", len(rows))
    assert row["messages"] > 0


def test_time_on_the_way_is_on_the_clock() -> None:
    """A round within the epoch and the meeting at its end take two steps each."""
    options: dict[str, Any] = {"workers": 2, "host": "threads", "step": 0.3, "epochs": 1}
    run = hogwild.train(toy(256), exchange="averaging:period=64", link="latency=20ms,bandwidth=1Gbit", **options)
    row = [*run][-1]
    rounds = row["messages"] // (2 * 2) - 1
    assert row["train_seconds"] >= 0.04 * (1 + rounds)
    assert row["waited_seconds"] >= 0.04 * rounds


# ---- ends


def test_replicas_that_die_with_messages_in_transit_are_missed_by_nobody(tmp_path: Path) -> None:
    rows = long_epochs(tmp_path, 60)
    options: dict[str, Any] = {"workers": 3, "host": "processes", "epochs": 2, "link": "latency=5ms,bandwidth=100Mbit"}
    for exchange in ("averaging:period=2000", "server:push=2000"):
        run = start(rows, exchange=exchange, **options)
        next(run)
        killed: list[int] = []

        def kill(run: hogwild.Run = run, killed: list[int] = killed) -> None:
            for victim in (0, 1):
                killed.append(run.engine.pool._crew[victim].pid)  # type: ignore[attr-defined]
                os.kill(killed[-1], signal.SIGKILL)

        thread = when(lambda run=run: run.progress().rows_done > 8000, kill)
        row = next(run)
        thread.join()
        assert (row["status"], row["workers_lost"]) == ("ok", len(killed))
        row = next(run)
        assert (row["status"], row["updates"], row["workers_lost"]) == ("ok", len(rows), 2)


@pytest.mark.parametrize("exchange", ["averaging:period=50", "averaging", "server:push=50"])
def test_waiting_ends_when_the_run_is_closed(exchange: str) -> None:
    """Also that of the parent, for the replicas to meet."""
    before = living()
    run = hogwild.train(
        toy(400), workers=2, host="threads", exchange=exchange, link="latency=1000s", step=0.3, epochs=1
    )
    next(run)
    closing = when(lambda: run.progress().rows_done >= 100, run.close)
    assert [*run] == []
    closing.join()
    assert not living() - before


def test_refusals() -> None:
    for options, why in (
        ({}, "give exchange"),
        ({"exchange": "averaging", "link": f"{LINK},row=1us"}, "row is for the simulator"),
        ({"exchange": "averaging", "link": "latency=1"}, "expected a number and a unit"),
    ):
        for host in ("auto", "threads", "processes"):
            with pytest.raises(UsageError, match=why) as caught:
                TrainConfig(**({"link": LINK, "host": host} | options))
            assert "\n" not in str(caught.value)
    assert TrainConfig(link=LINK, exchange="averaging").slow == Wire(0.2e-3, 1.25e8)
    for options in ({"link": LINK, "host": "simulator"}, {"exchange": "averaging"}):
        assert TrainConfig(**options).slow is None
