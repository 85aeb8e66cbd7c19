"""The parameter server: what its shards hold, whom a bound keeps waiting, what each rule does with a push."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hogwild
from hogwild.exchanges.link import START, DirectLink, serving
from hogwild.exchanges.server import RATE, Server
from hogwild.exchanges.trade import BOTH, PULL, PUSH, Counts, Message, take
from hogwild.hosts.memory import Block
from tests.runs import long_epochs, start, toy, when

pytestmark = pytest.mark.filterwarnings("ignore:.* workers share")
QUIET: dict[str, Any] = {"step": 0.3, "epochs": 2, "workers": 4, "host": "simulator"}


class Replicas:
    """Replicas and a server, driven by hand."""

    def __init__(self, size: int, count: int, step: float = 1.0, **options: Any) -> None:
        self.server = Server(**options)
        self.arrays = Block(self.server.spec(size, count), shared=False).arrays
        self.links = Block(DirectLink.spec(count, 0, self.server.shards), shared=False).arrays
        DirectLink.reset(self.links)
        self.flat, self.count = np.linspace(-1, 1, size, dtype=np.float32), count
        self.begin(step)

    def begin(self, step: float) -> None:
        self.server.begin(self.flat, self.arrays)
        self.mine = [take(self.flat, self.arrays, replica, step) for replica in range(self.count)]
        self.link = [self.connect(replica) for replica in range(self.count)]

    def connect(self, replica: int) -> DirectLink:
        return DirectLink(self.links, replica, serving(self.server, self.arrays))

    def waits(self, replica: int, rows: int = 1) -> bool:
        """Whether a replica's trade cannot go on; what it has done stays done."""
        return next(self.server.trade(self.mine[replica], self.arrays, self.link[replica], rows), self) is None

    def end(self, replica: int) -> None:
        for _ in self.server.end(self.mine[replica], self.arrays, self.link[replica], 0):
            raise AssertionError("nobody else holds a lock")

    def meet(self) -> np.ndarray:
        self.server.meet(self.flat, self.arrays, np.ones(self.count, np.int64))
        return self.flat


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
    r, rng = Replicas(100, 1, push=push, fetch=fetch, shards=shards, rule=rule), np.random.default_rng(0)
    alone = r.flat.copy()
    for _ in range(20):
        change = moves(rng, 100)
        r.mine[0] += change
        alone += change
        assert not r.waits(0, rows=r.server.period)
        assert r.mine[0].tobytes() == alone.tobytes()
    r.end(0)
    assert r.meet().tobytes() == alone.tobytes()
    assert DirectLink.counted(r.links) == Counts()  # the server is on its own machine


def test_sums_lose_nothing_even_if_a_replica_is_replaced() -> None:
    for options in ({}, {"fetch": 3, "shards": 2}):
        r, rng = Replicas(64, 3, push=1, rule="sum", **options), np.random.default_rng(1)
        total, size = r.flat.astype(np.float64), np.abs(r.flat)
        for turn in range(60):
            replica = int(rng.integers(3))
            if turn == 30:  # between two trades: the next worker finds everything in shared memory
                r.link[1] = r.connect(1)
            change = moves(rng, 64).astype(np.float32)
            change = (r.mine[replica] + change) - r.mine[replica]  # as float32 has it
            r.mine[replica] += change
            total, size = total + change, np.maximum(size, np.abs(total))
            assert not r.waits(replica)
        for replica in range(3):
            r.end(replica)
        np.testing.assert_array_less(np.abs(r.meet() - total), 60 * 1.2e-7 * size)


def test_replicas_learn_what_others_pushed() -> None:
    r = Replicas(64, 2, push=1, rule="sum")
    r.mine[0][3] += 1
    assert not r.waits(0)
    r.mine[1][[3, 5]] += 2
    assert not r.waits(1)
    r.mine[0][7] += 4  # what is trained in the meantime stays
    assert not r.waits(0)
    expected = np.linspace(-1, 1, 64, dtype=np.float32)
    expected[[3, 5, 7]] += [3, 2, 4]
    np.testing.assert_allclose(r.mine[0], expected, rtol=1e-6)
    assert r.arrays["base"][0].tobytes() == r.arrays["centre"].tobytes()


def test_a_replica_whose_worker_died_taking_in_an_answer_reads_all() -> None:
    r = Replicas(64, 2, push=1, shards=2, rule="sum")
    r.mine[1] += 1
    assert not r.waits(1)
    r.mine[0] += 5
    r.arrays["taking"][0, 1] = 1
    assert not r.waits(0)
    assert not r.arrays["taking"].any()
    np.testing.assert_array_equal(r.mine[0], r.arrays["centre"])
    assert r.mine[0][0] == -1 + 1 + 5
    assert r.mine[0][-1] == 1 + 1  # what it owed of this shard is lost


def test_as_many_shards_as_one() -> None:
    rows = toy()
    one, three = (trained(rows, f"server:push=50,rule=sum,shards={shards}")[0] for shards in (1, 3))
    assert one == three


def test_messages_and_bytes() -> None:
    """The shorter of all values and of some with their indices; what is on a replica's own machine is not sent."""
    r = Replicas(64, 2, push=1, rule="sum")
    counted: Callable[[], Counts] = lambda: DirectLink.counted(r.links)  # noqa: E731
    r.mine[1][:3] += 1
    assert not r.waits(1)
    assert counted() == Counts(2, 2 * START + 3 * 8)
    r.mine[0][10:15] += 1
    assert not r.waits(0)
    assert counted() == Counts(2, 2 * START + 3 * 8)
    r.mine[1][20:60] += 1
    assert not r.waits(1)
    assert counted() == Counts(4, 4 * START + 3 * 8 + 64 * 4 + 5 * 8)
    r.end(1)
    assert counted() == Counts(5, 5 * START + 3 * 8 + 64 * 4 + 5 * 8)
    # Four pushes with their answers and an end by two replicas, and the model from the server to both
    _, found = trained(toy(3 * 640), "server:push=160", workers=3, epochs=1)
    assert found[-1]["messages"] == 2 * (4 * 2 + 1) + 2


# ---- locks


def test_a_lock_is_waited_for_and_that_of_the_dead_is_freed() -> None:
    r = Replicas(64, 3, push=1, shards=2, rule="sum")
    r.links["locks"][1] = 2 + 1  # replica 2 holds it
    r.mine[0] += 1
    trade = r.server.trade(r.mine[0], r.arrays, r.link[0], 1)
    assert next(trade, "over") is None
    assert r.arrays["clock"].tolist() == [1, 0]
    DirectLink.free(r.links, 1)
    assert next(trade, "over") is None
    DirectLink.free(r.links, 2)
    assert r.links["torn"].tolist() == [0, 1]
    assert DirectLink.counted(r.links).shards_torn == 1
    assert next(trade, "over") == "over"
    assert r.arrays["clock"].tolist() == [1, 1]
    assert not r.links["locks"].any()
    np.testing.assert_array_equal(r.arrays["centre"], r.mine[0])


# ---- a bound


@pytest.mark.parametrize("bound", [0, 2])
def test_nobody_is_further_ahead_than_the_bound(bound: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After every push the fastest is at most one more ahead of the slowest, and every pull knows enough."""
    serve, apart = Server.serve, []

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


def test_a_bound_of_zero_takes_the_sum_of_all() -> None:
    """After every row of three replicas, along the sum of their gradients, as a float64 twin does."""
    rows = toy(3 * 128, classes=0)
    options = {"loss": "squared-error", "l2": 0.0, "step": 0.01, "schedule": "constant", "intercept": False}
    run = hogwild.train(
        rows,
        order="file",
        exchange="server:push=1,bound=0,rule=sum",
        **(QUIET | options | {"workers": 3, "epochs": 1}),
    )
    model = run.finish()
    chunk = run.engine.job.order.chunk
    x, w = rows.to_scipy()[0].toarray().astype(np.float64), np.zeros(rows.width)
    for row in range(len(rows) // 3):  # the replicas take chunks in turn
        some = row // chunk * 3 * chunk + row % chunk + chunk * np.arange(3)
        w -= 0.01 * ((x[some] @ w - rows.targets[some]) @ x[some])
    np.testing.assert_allclose(model.coef_[0], w, rtol=1e-4, atol=1e-5)


def test_the_dead_and_the_resting_keep_nobody_waiting() -> None:
    for leave in (lambda r: r.server.lost(r.arrays, 1), lambda r: r.end(1)):
        r = Replicas(64, 2, push=1, bound=1)
        assert not r.waits(0)
        trade = r.server.trade(r.mine[0], r.arrays, r.link[0], 1)
        assert next(trade, "over") is None
        leave(r)
        assert next(trade, "over") == "over"
        assert r.arrays["clock"][0] == 2  # the push was applied once


def test_others_wait_while_the_first_replica_trains_alone() -> None:
    r = Replicas(64, 2, push=10, warm=20)
    r.mine[1] += 1
    trade = r.server.trade(r.mine[1], r.arrays, r.link[1], 10)
    assert next(trade, "over") is None
    assert not r.waits(0, 10)
    assert next(trade, "over") is None
    assert not r.waits(0, 10)
    assert next(trade, "over") == "over"
    assert r.server.kept() == ("warmed",)


def test_a_killed_worker_holds_up_nobody_who_waits_for_a_bound(tmp_path: Path) -> None:
    rows = long_epochs(tmp_path, 100)
    run = start(rows, exchange="server:push=100,bound=1,shards=3", workers=3, host="processes", epochs=2)
    next(run)
    victim = run.engine.pool._crew[0].pid  # type: ignore[attr-defined]
    when(lambda: run.progress().rows_done > 5000, lambda: os.kill(victim, signal.SIGKILL))
    row = next(run)
    assert (row["status"], row["epoch"], row["workers_lost"]) == ("ok", 1, 1)
    assert len(rows) - run.engine.job.order.chunk <= row["updates"] <= len(rows)
    assert not run.engine.job.trader.links["locks"].any()
    assert next(run)["status"] == "ok"


# ---- rules


def pushed(r: Replicas, sender: int, clock: int, *change: float) -> float:
    """Push a change that was computed from the parameters at a clock, and return the first weight after it."""
    r.server.serve(0, r.arrays, sender, Message(PUSH, clock, 1, np.array(change, np.float32)))
    return float(r.arrays["centre"][0])


def test_a_push_is_divided_by_its_staleness() -> None:
    r = Replicas(1, 2, rule="scaled")
    before, share = -1.0, []
    for clock, known in enumerate((0, 1, 1, 0, 4)):
        now = pushed(r, clock % 2, known, 12.0)
        share.append((now - before) / 12)
        before = now
    np.testing.assert_allclose(share, [1, 1, 1, 1 / 3, 1], rtol=1e-6)
    assert r.arrays["staleness"][:4].tolist() == [3, 1, 0, 1]


def test_a_constant_delay_is_every_pushs_staleness() -> None:
    run = hogwild.train(toy(7 * 640), exchange="server:push=32,rule=scaled", **(QUIET | {"workers": 7, "epochs": 1}))
    run.finish()
    staleness = run.engine.pool.staleness
    assert sum(staleness.values()) == 7 * 20
    assert staleness[6] > 7 * 20 - 2 * 7  # the first round meets nobody, and the last one what rounding has left


def test_the_mean_of_so_many_pushes_is_applied_at_a_time() -> None:
    rows = toy()
    same = [trained(rows, f"server:push=50,{rule}")[0] for rule in ("rule=soft,soft=1", "rule=sum")]
    assert same[0] == same[1]
    r = Replicas(1, 3, rule="soft", soft=3)
    assert [pushed(r, k % 3, 0, change) for k, change in enumerate((3.0, 6.0, 9.0, 5.0))] == [-1, -1, 5, 5]
    assert r.meet()[0] == 10  # what is left when a task ends


@pytest.mark.parametrize("n", [1, 5, 30])
def test_staleness_of_n_softsync_is_n(n: int) -> None:
    """Thirty learners, as in figure 4 of Zhang et al. (2016)."""
    options = {"workers": 30, "epochs": 1, "delay": "random:shape=4"}
    _, found = trained(toy(30 * 384), f"server:push=4,rule=soft,soft={30 // n}", **options)
    assert found[-1]["staleness_mean"] == pytest.approx(n, rel=0.1)  # (R - 1) / soft, but for the first round


def test_adagrad_is_the_kernels() -> None:
    rows, options = toy(), {"l2": 0.0, "schedule": "constant", "intercept": False, "workers": 1}
    for shards in (1, 3):
        run = hogwild.train(
            rows, exchange=f"server:push=1,rule=adagrad,shards={shards}", **(QUIET | options | {"step": 0.1 / RATE})
        )
        kernel = hogwild.train(rows, adagrad=True, **(QUIET | options | {"step": 0.1, "host": "threads"})).finish()
        np.testing.assert_allclose(run.finish().coef_, kernel.coef_, rtol=1e-3, atol=1e-4)


def gradients(r: Replicas, sequence: list[float]) -> None:
    """The replicas take turns; each computes a gradient from what it read in its last turn."""
    for k, gradient in enumerate(sequence):
        sender = k % r.count
        request = Message(BOTH, int(r.arrays["known"][sender, 0]), 1, np.array([-gradient * 0.1], np.float32))
        reply = r.server.serve(0, r.arrays, sender, request)
        assert reply is not None
        r.arrays["known"][sender, 0] = reply.clock


def test_revision_without_a_delay_is_adagrad() -> None:
    r, rng = Replicas(1, 1, step=0.1, rule="revision"), np.random.default_rng(0)
    w, squares = -1.0, 1.0
    for g in rng.standard_normal(50):
        gradients(r, [g])
        squares += g * g
        w -= 0.1 * RATE * g / np.sqrt(squares)
        assert r.arrays["centre"][0] == pytest.approx(w, rel=1e-5, abs=1e-6)


def test_revision_pays_for_delays_only_where_gradients_agree() -> None:
    late, n = 10, 2000
    r = Replicas(1, late + 1, step=0.1, rule="revision")
    gradients(r, [1.0] * n)
    assert r.arrays["most"][0] == pytest.approx((2 * late + 1) * n, rel=0.02)
    r = Replicas(1, late + 1, step=0.1, rule="revision")
    gradients(r, [1.0, -1.0] * (n // 2))
    assert r.arrays["most"][0] <= n


@pytest.mark.parametrize("rule", ["adagrad", "revision", "scaled", "soft,soft=4"])
def test_rules_train_and_resume(rule: str, tmp_path: Path) -> None:
    rows, exchange = toy(4000), f"server:push=20,rule={rule}"
    _, found = trained(rows, exchange, epochs=4)
    assert found[-1]["objective"] < found[0]["objective"]
    quiet = {"checkpoint": tmp_path, "workers": 1}
    whole = trained(rows, exchange, workers=1)[0]
    trained(rows, exchange, epochs=1, **quiet)
    assert trained(rows, exchange, resume=True, **quiet)[0] == whole
