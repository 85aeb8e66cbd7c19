"""What exchanges leave out: changes that are not finite, and what would lead past zero under an l1 penalty."""

from __future__ import annotations

import numpy as np
import pytest

import hogwild
from tests.exchanges.room import Room
from tests.runs import toy

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


def task(room: Room, *changes: np.ndarray | float, trades: int = 1, shrink: bool = False) -> None:
    """Let each replica add its change, trade, and end."""
    room.begin()
    for _ in range(trades):
        with np.errstate(all="ignore"):
            for w, change in zip(room.w, changes):
                if shrink:  # as an l1 penalty does
                    w[:] = np.sign(w) * np.maximum(np.abs(w) - change, 0)
                else:
                    w += np.float32(change)
        if room.exchange.period == 1:
            room.trade()
    room.end()
    room.meet()


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", SCHEMES)
def test_a_replica_that_diverges_leaves_the_others_finite(name: str, value: float) -> None:
    room, bad = Room(name, 3, start=1.0), np.zeros(64, np.float32)
    bad[5] = value
    task(room, 0.25, bad, 0.5)
    assert np.isfinite(room.flat).all()
    assert room.flat[7] > 1.05  # what the others have learned
    assert room.arrays["left_out"].tolist() == [0, room.arrays["left_out"][1], 0]
    assert room.arrays["left_out"][1] >= 1
    if name != "one-shot-averaging":  # whose replicas are never reset
        task(room, 0.0, 0.25, 0.0)
        assert room.arrays["left_out"].tolist() == [0, 0, 0]
        assert np.isfinite(np.array(room.w)).all()


@pytest.mark.parametrize(
    ("name", "host"), [("averaging", "threads"), ("averaging:period=50", "simulator"), ("server:push=50", "threads")]
)
def test_a_run_in_which_all_replicas_diverge_says_so(name: str, host: str) -> None:
    run = hogwild.train(toy(), loss="squared-error", workers=3, host=host, exchange=name, step=1e6, epochs=3)
    with pytest.raises(hogwild.TrainingError, match="diverged"):
        run.finish()
    assert run.history[-1]["deltas_left_out"] >= 1


def test_one_replica_diverges_as_serial_does() -> None:
    for name in SCHEMES:
        room = Room(name, 1, start=1.0)
        task(room, np.nan)
        assert np.isnan(room.flat).all(), name
        assert room.arrays["left_out"].tolist() == [0]


@pytest.mark.parametrize("name", SCHEMES)
def test_nothing_passes_zero_because_two_replicas_shrink_it(name: str) -> None:
    room = Room(name, 2, start=1.0, shrinks=True)
    task(room, 0.75, 0.75, shrink=True)
    assert (room.flat >= 0).all(), room.flat[0]
    assert (room.flat < 1).all()


@pytest.mark.parametrize(("name", "part", "trades"), [("gossip:period=1", 0.3, 3), ("server:push=1,rule=sum", 0.75, 1)])
def test_sums_pass_zero_only_without_the_rule(name: str, part: float, trades: int) -> None:
    for shrinks in (True, False):
        room = Room(name, 2, start=1.0, shrinks=shrinks)
        task(room, part, part, trades=trades, shrink=True)
        assert (room.flat == 0).all() if shrinks else (room.flat < 0).all()


@pytest.mark.parametrize("name", SCHEMES)
def test_what_a_replica_itself_takes_past_zero_stays_there(name: str) -> None:
    room = Room(name, 2, start=1.0, shrinks=True)
    task(room, -3.0, -3.0, trades=2)
    assert (room.flat < 0).all()
