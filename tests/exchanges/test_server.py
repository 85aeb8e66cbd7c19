"""The parameter server: what its shards hold, whom a bound keeps waiting, what each rule does with a push."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hogwild
from hogwild.exchanges.link import START
from hogwild.exchanges.server import RATE, TAKING, Server
from hogwild.exchanges.trade import BOTH, PULL, PUSH, Counts, Message
from tests.exchanges.room import Room
from tests.runs import toy

pytestmark = pytest.mark.filterwarnings("ignore:.* workers share")
QUIET: dict[str, Any] = {"step": 0.3, "epochs": 2, "workers": 4, "host": "simulator"}


RAMP = np.linspace(-1, 1, 64, dtype=np.float32)  # where replicas start


def moves(rng: np.random.Generator, size: int) -> np.ndarray:
    """A change of some weights, of very different sizes."""
    return np.where(rng.random(size) < 0.3, rng.standard_normal(size) * 10.0 ** rng.integers(-9, 3, size), 0)


def trained(data: Any, exchange: str, **options: Any) -> tuple[bytes, list[dict[str, Any]]]:
    run = hogwild.train(data, exchange=exchange, **(QUIET | options))
    found = [*run]
    return run.model.coef_.tobytes(), found


# ---- what shards hold


@pytest.mark.parametrize("rule", ["sum", "met"])
@pytest.mark.parametrize(("push", "fetch", "shards"), [(1, 1, 1), (3, 2, 3), (2, 5, 1), (4, 4, 2)])
def test_the_server_has_one_replica_to_the_bit(push: int, fetch: int, shards: int, rule: str) -> None:
    r = Room(f"server:push={push},fetch={fetch},shards={shards},rule={rule}", 1, start=RAMP)
    alone, rng = r.flat.copy(), np.random.default_rng(0)
    for _ in range(20):
        change = moves(rng, 64)
        r.w[0] += change
        alone += change
        r.trade(0, rows=r.exchange.period)
        assert r.w[0].tobytes() == alone.tobytes()
    r.end(0)
    assert r.meet().tobytes() == alone.tobytes()
    assert r.trader.sent() == Counts()  # the server is on its own machine


def test_sums_lose_nothing_even_if_a_replica_is_replaced() -> None:
    for options in ("", ",fetch=3,shards=2"):
        r, rng = Room(f"server:push=1,rule=sum{options}", 3, start=RAMP), np.random.default_rng(1)
        total, size = r.flat.astype(np.float64), np.abs(r.flat)
        for turn in range(60):
            replica = int(rng.integers(3))
            if turn == 30:  # between two trades: the next worker finds everything in shared memory
                r.link[1] = r.connect(1)
            change = moves(rng, 64).astype(np.float32)
            change = (r.w[replica] + change) - r.w[replica]  # as float32 has it
            r.w[replica] += change
            total, size = total + change, np.maximum(size, np.abs(total))
            r.trade(replica)
        r.end()
        np.testing.assert_array_less(np.abs(r.meet() - total), 60 * 1.2e-7 * size)


def test_a_replica_whose_worker_died_taking_in_an_answer_reads_all() -> None:
    r = Room("server:push=1,shards=2,rule=sum", 2, start=RAMP)
    r.w[1] += 1
    r.trade(1)
    r.w[0] += 5
    r.arrays["known"][0, 1] = TAKING
    r.trade(0)
    assert r.arrays["known"].min() >= 0
    np.testing.assert_array_equal(r.w[0], r.arrays["centre"])
    assert r.w[0][0] == -1 + 1 + 5
    assert r.w[0][-1] == 1 + 1  # what it owed of this shard is lost
    r = Room("server:push=1,fetch=9,rule=sum", 2, start=RAMP)
    r.arrays["known"][0, 0] = TAKING
    for _ in range(2):
        r.trade(0)
        r.w[0] += 5
    r.trade(0)
    assert r.arrays["centre"][0] == -1 + 10  # but not what it learns before it has read


def test_messages_and_bytes() -> None:
    """The shorter of all values and of some with their indices; what is on a replica's own machine is not sent."""
    r = Room("server:push=1,rule=sum", 2, start=RAMP)
    counted = r.trader.sent
    r.w[1][:3] += 1
    r.trade(1)
    assert counted() == Counts(2, 2 * START + 3 * 8)
    r.w[0][10:15] += 1
    r.trade(0)
    assert counted() == Counts(2, 2 * START + 3 * 8)
    r.w[1][20:60] += 1
    r.trade(1)
    assert counted() == Counts(4, 4 * START + 3 * 8 + 64 * 4 + 5 * 8)
    r.end(1)
    assert counted() == Counts(5, 5 * START + 3 * 8 + 64 * 4 + 5 * 8)


# ---- locks


def test_a_lock_is_waited_for_and_that_of_the_dead_is_freed() -> None:
    r = Room("server:push=1,shards=2,rule=sum", 3)
    r.arrays["locks"][1] = 2 + 1  # replica 2 holds it
    r.w[0] += 1
    trade = r.trading(0)
    assert next(trade, "over") is None
    assert r.arrays["clock"].tolist() == [1, 0]
    r.trader.bury(1)
    assert next(trade, "over") is None
    r.w[0][[3, 60]] += 10  # what is trained while it waits stays
    r.trader.bury(2)
    assert r.arrays["torn"].tolist() == [0, 1]
    assert r.trader.sent().shards_torn == 1
    assert next(trade, "over") == "over"
    assert r.arrays["clock"].tolist() == [1, 1]
    assert not r.arrays["locks"].any()
    r.w[0][[3, 60]] -= 10
    np.testing.assert_array_equal(r.arrays["centre"], r.w[0])


# ---- a bound


def test_nobody_is_further_ahead_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """After every push the fastest is at most one more ahead of the slowest, and every pull knows enough."""
    serve, apart, bound = Server.serve, [], 2

    def watched(self: Server, shard: int, arrays: Any, sender: int, request: Message) -> Message | None:
        reply = serve(self, shard, arrays, sender, request)
        pushes = arrays["pushes"][arrays["resting"] == 0, shard]
        if len(pushes):
            apart.append(pushes.max() - pushes.min())
        if request.kind in (PULL, BOTH) and reply is not None:
            assert pushes.min() >= arrays["pushes"][sender, shard] - bound
        return reply

    monkeypatch.setattr(Server, "serve", watched)
    options = {"delay": "straggler:alpha=1.2", "workers": 6, "link": "latency=20us"}
    trained(toy(6000), f"server:push=5,bound={bound}", **options)
    assert len(apart) > 2000
    assert max(apart) == bound + 1


def test_the_dead_and_the_resting_keep_nobody_waiting() -> None:
    for leave in (lambda r: r.exchange.lost(r.arrays, 1), lambda r: r.end(1)):
        r = Room("server:push=1,bound=1", 2, start=RAMP)
        r.trade(0)
        trade = r.trading(0)
        assert next(trade, "over") is None
        leave(r)
        assert next(trade, "over") == "over"
        assert r.arrays["clock"][0] == 2  # the push was applied once


def test_others_wait_while_the_first_replica_trains_alone() -> None:
    r = Room("server:push=10,warm=20", 2, start=RAMP)
    r.w[1] += 1
    trade = r.trading(1, 10)
    assert next(trade, "over") is None
    r.trade(0, rows=10)
    assert next(trade, "over") is None
    r.trade(0, rows=10)
    assert next(trade, "over") == "over"
    assert r.exchange.kept() == ("warmed",)


# ---- rules


def pushed(r: Room, sender: int, clock: int, *change: float) -> float:
    """Push a change that was computed from the parameters at a clock, and return the first weight after it."""
    r.exchange.serve(0, r.arrays, sender, Message(PUSH, clock, 1, np.array(change, np.float32)))
    return float(r.arrays["centre"][0])


def test_a_push_is_divided_by_its_staleness() -> None:
    r = Room("server:rule=scaled", 2, size=1, start=-1.0)
    before, share = -1.0, []
    for clock, known in enumerate((0, 1, 1, 0, 4)):
        now = pushed(r, clock % 2, known, 12.0)
        share.append((now - before) / 12)
        before = now
    np.testing.assert_allclose(share, [1, 1, 1, 1 / 3, 1], rtol=1e-6)
    assert r.arrays["staleness"][:4].tolist() == [3, 1, 0, 1]


def test_the_mean_of_so_many_pushes_is_applied_at_a_time() -> None:
    rows = toy()
    same = [trained(rows, f"server:push=50,{rule}")[0] for rule in ("rule=soft,soft=1", "rule=sum")]
    assert same[0] == same[1]
    r = Room("server:rule=soft,soft=3", 3, size=1, start=-1.0)
    assert [pushed(r, k % 3, 0, change) for k, change in enumerate((3.0, 6.0, 9.0, 5.0))] == [-1, -1, 5, 5]
    assert r.meet()[0] == 10  # what is left when a task ends


@pytest.mark.parametrize("n", [5, 30])
def test_staleness_of_n_softsync_is_n(n: int) -> None:
    """Thirty learners, as in figure 4 of Zhang et al. (2016)."""
    options = {"workers": 30, "epochs": 1, "delay": "random:shape=4"}
    _, found = trained(toy(30 * 384), f"server:push=4,rule=soft,soft={30 // n}", **options)
    assert found[-1]["staleness_mean"] == pytest.approx(n, rel=0.1)  # (R - 1) / soft, but for the first round


def gradients(r: Room, sequence: list[float]) -> None:
    """The replicas take turns; each computes a gradient from what it read in its last turn."""
    for k, gradient in enumerate(sequence):
        sender = k % r.count
        request = Message(BOTH, int(r.arrays["known"][sender, 0]), 1, np.array([-gradient * 0.1], np.float32))
        reply = r.exchange.serve(0, r.arrays, sender, request)
        assert reply is not None
        r.arrays["known"][sender, 0] = reply.clock


def test_revision_without_a_delay_is_adagrad() -> None:
    r, rng = Room("server:rule=revision", 1, size=1, start=-1.0, step=0.1), np.random.default_rng(0)
    w, squares = -1.0, 1.0
    for g in rng.standard_normal(50):
        gradients(r, [g])
        squares += g * g
        w -= 0.1 * RATE * g / np.sqrt(squares)
        assert r.arrays["centre"][0] == pytest.approx(w, rel=1e-5, abs=1e-6)


def test_revision_pays_for_delays_only_where_gradients_agree() -> None:
    late, n = 10, 2000
    r = Room("server:rule=revision", late + 1, size=1, start=-1.0, step=0.1)
    gradients(r, [1.0] * n)
    assert r.arrays["most"][0] == pytest.approx((2 * late + 1) * n, rel=0.02)
    r = Room("server:rule=revision", late + 1, size=1, start=-1.0, step=0.1)
    gradients(r, [1.0, -1.0] * (n // 2))
    assert r.arrays["most"][0] <= n


@pytest.mark.parametrize("rule", ["adagrad", "revision", "soft,soft=4"])
def test_rules_train_and_resume(rule: str, tmp_path: Path) -> None:
    rows, exchange = toy(4000), f"server:push=20,rule={rule}"
    quiet = {"checkpoint": tmp_path, "workers": 1}
    whole, found = trained(rows, exchange, workers=1)
    assert found[-1]["objective"] < found[0]["objective"]
    trained(rows, exchange, epochs=1, **quiet)
    assert trained(rows, exchange, resume=True, **quiet)[0] == whole
