"""What exchanges leave out: changes that are not finite, and what would lead past zero under an l1 penalty."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hogwild
from hogwild.exchanges import make_exchange
from hogwild.exchanges.link import DirectLink, serving
from hogwild.exchanges.trade import Served, take
from hogwild.hosts.memory import Block
from tests.runs import toy

SIZE = 64
pytestmark = pytest.mark.filterwarnings("ignore:.* workers share")
SCHEMES = (
    "averaging",
    "averaging:period=1",
    "averaging:period=1,mean=rows",
    "averaging:period=1,by=ring",
    "averaging:period=1,by=tree,mean=rows",
    "one-shot-averaging",
    "consensus:period=1",
    "gossip:period=1",
    "gossip:period=1,home=0",
    "server:push=1",
    "server:push=1,rule=sum",
    "server:push=1,shards=2,rule=soft,soft=2",
)


class Room:
    """Replicas in one process, which trade in turns over links in memory."""

    def __init__(self, name: str, start: float, count: int = 2, shrinks: bool = False) -> None:
        found = make_exchange(name, shrinks=shrinks)
        assert found is not None
        self.exchange, self.count = found, count
        self.arrays = Block(found.spec(SIZE, count), shared=False).arrays
        shards = found.shards if isinstance(found, Served) else 0
        self.links = Block(DirectLink.spec(count, found.room(SIZE, count), shards), shared=False).arrays
        self.flat = np.full(SIZE, start, np.float32)

    def task(self, *changes: np.ndarray | float, trades: int = 1, shrink: bool = False) -> None:
        """Let each replica add its change, trade, and end."""
        self.arrays["left_out"][:] = 0
        DirectLink.reset(self.links)
        self.exchange.begin(self.flat, self.arrays)
        links = [DirectLink(self.links, r, serving(self.exchange, self.arrays)) for r in range(self.count)]
        mine = [take(self.flat, self.arrays, r, 1.0) for r in range(self.count)]
        for _ in range(trades):
            with np.errstate(all="ignore"):
                for each, change in zip(mine, changes):
                    if shrink:  # as an l1 penalty does
                        each[:] = np.sign(each) * np.maximum(np.abs(each) - change, 0)
                    else:
                        each += np.float32(change)
            if self.exchange.period == 1:
                self.drive([self.exchange.trade(mine[r], self.arrays, links[r], 1) for r in range(self.count)])
        ends = [self.exchange.end(mine[r], self.arrays, links[r], 0) for r in range(self.count)]
        self.drive(ends, links)
        self.exchange.meet(self.flat, self.arrays, np.ones(self.count, np.int64))

    def drive(self, going: list[Any], links: list[DirectLink] | None = None) -> None:
        open_ = dict(enumerate(going))
        for _ in range(1000):
            for replica in [*open_]:
                if next(open_[replica], "over") == "over":
                    del open_[replica]
                    if links is not None:
                        links[replica].leave()
            if not open_:
                return
        raise AssertionError(f"replicas {[*open_]} wait")


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", SCHEMES)
def test_a_replica_that_diverges_leaves_the_others_finite(name: str, value: float) -> None:
    room, bad = Room(name, 1.0, count=3), np.zeros(SIZE, np.float32)
    bad[5] = value
    room.task(0.25, bad, 0.5)
    assert np.isfinite(room.flat).all()
    assert room.flat[7] > 1.05  # what the others have learned
    assert room.arrays["left_out"].tolist() == [0, room.arrays["left_out"][1], 0]
    assert room.arrays["left_out"][1] >= 1
    if name != "one-shot-averaging":  # whose replicas are never reset
        room.task(0.0, 0.25, 0.0)
        assert room.arrays["left_out"].tolist() == [0, 0, 0]
        assert np.isfinite(room.arrays["replicas"][:, :SIZE]).all()


@pytest.mark.parametrize("host", ["threads", "simulator"])
@pytest.mark.parametrize("name", ["averaging", "averaging:period=50", "gossip:period=50", "server:push=50"])
def test_a_run_in_which_all_replicas_diverge_says_so(name: str, host: str) -> None:
    run = hogwild.train(toy(), loss="squared-error", workers=3, host=host, exchange=name, step=1e6, epochs=3)
    with pytest.raises(hogwild.TrainingError, match="diverged"):
        run.finish()
    assert run.history[-1]["deltas_left_out"] >= 1


def test_one_replica_diverges_as_serial_does() -> None:
    for name in SCHEMES:
        room = Room(name, 1.0, count=1)
        room.task(np.nan)
        assert np.isnan(room.flat).all(), name
        assert room.arrays["left_out"].tolist() == [0]


@pytest.mark.parametrize("name", SCHEMES)
def test_nothing_passes_zero_because_two_replicas_shrink_it(name: str) -> None:
    room = Room(name, 1.0, shrinks=True)
    room.task(0.75, 0.75, shrink=True)
    assert (room.flat >= 0).all(), room.flat[0]
    assert (room.flat < 1).all()


@pytest.mark.parametrize(("name", "part", "trades"), [("gossip:period=1", 0.3, 3), ("server:push=1,rule=sum", 0.75, 1)])
def test_sums_pass_zero_only_without_the_rule(name: str, part: float, trades: int) -> None:
    for shrinks in (True, False):
        room = Room(name, 1.0, shrinks=shrinks)
        room.task(part, part, trades=trades, shrink=True)
        assert (room.flat == 0).all() if shrinks else (room.flat < 0).all()


@pytest.mark.parametrize("name", SCHEMES)
def test_what_a_replica_itself_takes_past_zero_stays_there(name: str) -> None:
    room = Room(name, 1.0, shrinks=True)
    room.task(-3.0, -3.0, trades=2)
    assert (room.flat < 0).all()


@pytest.mark.parametrize("exchange", ["gossip:period=50", "server:push=50,rule=sum", "averaging:period=50"])
def test_an_l1_penalty_leaves_zeros(exchange: str) -> None:
    run = hogwild.train(toy(), workers=2, host="simulator", exchange=exchange, step=0.1, l1=0.01, epochs=4)
    run.finish()
    assert 0 < np.count_nonzero(run.model.coef_) < run.model.coef_.size
