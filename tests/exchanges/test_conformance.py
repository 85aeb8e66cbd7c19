"""What every exchange must do, row by row of the registry: a new scheme is a row of CASES and an oracle of its own."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import hogwild
from hogwild.config import TrainConfig
from hogwild.data.rows.container import Rows
from hogwild.errors import UsageError
from hogwild.exchanges import make_exchange
from hogwild.kernels.control import NO_LIMIT
from hogwild.methods import BETWEEN_WORKERS
from tests.runs import living, long_epochs, start, stopped_inside, toy, when


class Case(NamedTuple):
    """What the tests must know of an exchange."""

    numbers: str = ""  # with which it trades within an epoch, after so many rows; "": it does not
    step: float = 0.5  # with which four replicas learn what one does
    traffic: Callable[[int, int, int], tuple[int, int, int]] | None = None  # see below


def averaging_traffic(size: int, replicas: int, trades: int) -> tuple[int, int, int]:
    """Messages, bytes and the bytes that rounding to cache lines may change, of all replicas in an epoch."""
    rounds = trades + 1  # and the end of the epoch
    messages = 2 * replicas * (replicas - 1) * rounds
    return messages, rounds * 2 * (replicas - 1) * 4 * size + 64 * messages, rounds * replicas * 4 * 16


def gossip_traffic(size: int, replicas: int, trades: int) -> tuple[int, int, int]:
    """The like; how much is sent is a matter of the data, and counted in ``test_gossip.py``."""
    messages = replicas * (replicas - 1) * (trades + 1)
    return messages, 64 * messages, messages * (4 * size + 12)


def server_traffic(size: int, replicas: int, trades: int) -> tuple[int, int, int]:
    """The like; of all but the first replica, whose machine is the server's."""
    messages = (replicas - 1) * (2 * trades + 1 + 1)  # pushes with their answers, and an end; then the model to all
    return messages, 64 * messages + (replicas - 1) * 4 * size, (replicas - 1) * (2 * trades + 1) * 4 * size


CASES: dict[str, Case] = {
    "averaging": Case("period={}", traffic=averaging_traffic),
    "one-shot-averaging": Case(),
    "consensus": Case("period={}", traffic=averaging_traffic),
    "gossip": Case("period={}", step=0.06, traffic=gossip_traffic),
    "server": Case("push={}", traffic=server_traffic),
}
#: Options that have lines of their own, and what else a run with them needs.
VARIANTS: dict[str, dict[str, Any]] = {
    "averaging:period=50,mean=rows": {},
    "averaging:period=50,threshold=0.01": {},
    "averaging:period=50,share=0.5": {},
    "averaging:period=0.25": {},
    "averaging:period=50,by=tree": {},
    "averaging:period=50,by=butterfly,mean=rows": {},
    "averaging:by=ring": {},
    "gossip:period=100,tau=0.01": {"step": 0.05},
    "gossip:period=100,home=0": {"step": 0.05},
    "server:push=50,fetch=100,shards=2,rule=sum": {"step": 0.1},
    "server:push=50,bound=1,warm=300": {},
}
TRADING = [name for name, case in CASES.items() if case.numbers]
QUIET: dict[str, Any] = {"step": 0.3, "epochs": 2}
pytestmark = pytest.mark.filterwarnings("ignore:.* workers share")
named = pytest.mark.parametrize("name", CASES)
#: What trades knows no host: each host once.
really = pytest.mark.parametrize(("name", "host"), [("averaging", "threads"), ("server", "processes")])


@pytest.fixture(scope="module")
def rows() -> Rows:
    return toy()


def spelled(name: str, period: int) -> str:
    numbers = CASES[name].numbers.format(period)
    return f"{name}:{numbers}" if numbers else name


def trained(data: Any, **options: Any) -> tuple[list[bytes], list[float]]:
    """All bits of a run's model, and its objectives."""
    run = hogwild.train(data, **(QUIET | options))
    objectives = [row["objective"] for row in run]
    model: Any = run.model
    names = ("coef_", "intercept_", "user_factors", "item_factors", "user_bias", "item_bias", "x")
    return [getattr(model, name).tobytes() for name in names if hasattr(model, name)], objectives


def test_every_exchange_has_a_row() -> None:
    assert set(CASES) == set(BETWEEN_WORKERS)
    for name in CASES:
        assert make_exchange(name) is not None
    assert make_exchange("none") is None


# ---- one replica


@pytest.mark.parametrize(
    ("exchange", "host"),
    [
        *((spelled(name, 7), "simulator") for name in CASES),
        *((spelled(name, 1), "threads") for name in TRADING),
        *((variant, "threads") for variant in VARIANTS),
    ],
)
def test_one_replica_is_serial_to_the_bit(rows: Rows, exchange: str, host: str) -> None:
    options = VARIANTS.get(exchange, {}) | {"workers": 1}
    assert trained(rows, host=host, exchange=exchange, **options) == trained(rows, host="threads", **options)


@pytest.mark.parametrize("name", ["averaging", "gossip", "server"])
def test_one_replica_of_other_problems(name: str) -> None:
    ratings = hogwild.open_ratings("synthetic:ratings?users=80&items=60&ratings=2000")
    cases: list[tuple[Any, dict[str, Any]]] = [
        (toy(1500, classes=4), {"loss": "softmax", "l1": 1e-4}),
        (ratings, {"problem": "completion", "rank": 5, "loss": "bpr"}),
    ]
    if name == "averaging":  # of whole replicas
        cases.append((hogwild.open_graph("synthetic:grid?side=9"), {"problem": "cuts"}))
    for data, options in cases:
        quiet: dict[str, Any] = {"workers": 1, "host": "threads", "step": 0.05} | options
        assert trained(data, exchange=spelled(name, 50), **quiet) == trained(data, **quiet)


@pytest.mark.parametrize("name", ["averaging", "gossip", "server"])
def test_one_replica_stopped_anywhere_goes_on_to_the_bit(rows: Rows, name: str, tmp_path: Path) -> None:
    quiet: dict[str, Any] = {**QUIET, "workers": 1, "exchange": spelled(name, 100), "host": "threads"}
    whole = hogwild.train(rows, **quiet).finish()
    run = hogwild.train(rows, checkpoint=tmp_path, **quiet)
    next(run)
    run.stop()
    assert next(run)["status"] == "interrupted"
    again = hogwild.train(rows, checkpoint=tmp_path, resume=True, **quiet).finish()
    assert again.coef_.tobytes() == whole.coef_.tobytes()


# ---- several replicas


#: Those of which replicas differ, wait for one another, or owe each other something.
UNEVEN = [name for name in VARIANTS if any(word in name for word in ("share", "ring", "home", "bound"))]


@pytest.mark.parametrize("exchange", [*(spelled(name, 100) for name in CASES), *UNEVEN])
def test_the_simulator_gives_the_same_bits_again(rows: Rows, exchange: str) -> None:
    quiet: dict[str, Any] = {
        "workers": 4,
        "host": "simulator",
        "exchange": exchange,
        "delay": "random:shape=2",
        "link": "latency=20us,bandwidth=1Gbit",
    } | VARIANTS.get(exchange, {})
    first, again = (trained(rows, seed=1, **quiet) for _ in range(2))
    assert first == again
    assert first != trained(rows, seed=2, **quiet)
    assert first[1][-1] < 0.9 * first[1][0]  # it learns


@pytest.mark.parametrize("name", TRADING)
def test_messages_and_bytes_are_those_of_the_scheme(name: str) -> None:
    """All trade as often, for all do as many rows: three replicas and three chunks of 640 rows each."""
    rows, period = toy(3 * 640), 160
    run = hogwild.train(rows, workers=3, host="simulator", exchange=spelled(name, period), **(QUIET | {"epochs": 1}))
    row = [*run][-1]
    size, replicas, traffic = run.problem.size, 3, CASES[name].traffic
    assert traffic is not None
    assert row["replicas"] == replicas
    messages, sent, slack = traffic(size, replicas, len(rows) // replicas // period)
    assert row["messages"] == messages
    assert abs(row["bytes_sent"] - sent) <= slack


@pytest.mark.parametrize(("name", "host"), [*zip(TRADING, ("threads", "simulator", "threads", "simulator"))])
def test_nobody_waits_for_who_has_nothing_left(name: str, host: str) -> None:
    """More replicas than chunks, periods that no chunk fills, and such that end with the epoch."""
    for n, period in ((200, 30), (200, 1), (129, 128)):
        rows = toy(n)
        row = [*hogwild.train(rows, workers=5, host=host, exchange=spelled(name, period), **QUIET)][-1]
        assert (row["status"], row["updates"]) == ("ok", n)


@named
def test_replicas_learn(name: str) -> None:
    """Four replicas that trade every 100 rows, at no cost, are as good as one worker after eight epochs."""
    rows = toy(6000)
    quiet: dict[str, Any] = {"step": CASES[name].step, "epochs": 8, "l2": 1e-3}
    best = hogwild.train(rows, workers=1, **quiet)
    best.finish()
    run = hogwild.train(rows, workers=4, host="simulator", exchange=spelled(name, 100), **quiet)
    run.finish()
    assert run.history[-1]["objective"] <= 1.02 * best.history[-1]["objective"]


@pytest.mark.parametrize(
    "exchange", ["averaging:period=2000", "gossip:period=2000", "server:push=500,bound=1,shards=3"]
)
def test_a_killed_worker_is_missed_by_nobody(exchange: str, tmp_path: Path) -> None:
    """Whether it died at work or in a trade: the others go on, its replacement takes part, nothing stays held."""
    rows = long_epochs(tmp_path, 100)
    run = start(rows, exchange=exchange, workers=3, host="processes", epochs=2)
    next(run)
    killed: list[int] = []

    def kill() -> None:
        for victim in (0, 1):
            pid = run.engine.pool.pids[victim]
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)

    thread = when(lambda: run.progress().rows_done > 10_000, kill)
    row = next(run)
    thread.join()
    assert (row["status"], row["epoch"], row["workers_lost"]) == ("ok", 1, len(killed))
    assert not run.engine.job.trader.arrays["locks"].any()
    assert len(rows) - 2 * run.engine.job.order.chunk <= row["updates"] <= len(rows)
    row = next(run)
    assert (row["status"], row["updates"], row["workers_lost"]) == ("ok", len(rows), 2)
    assert row["objective"] < run.history[0]["objective"]


@really
def test_stopping_in_the_middle_of_trades(name: str, host: str, tmp_path: Path) -> None:
    rows = long_epochs(tmp_path, 100)
    quiet = {"exchange": spelled(name, 300), "workers": 3, "host": host, "checkpoint": tmp_path / "state"}
    run = stopped_inside(lambda: start(rows, epochs=2, **quiet), 0, 3000)
    row = run.history[-1]
    again = start(rows, epochs=1, resume=True, **quiet)
    assert again.engine.job.export().tobytes() == run.engine.job.export().tobytes()
    (last,) = again
    assert (last["status"], last["epoch"]) == ("ok", 1)
    assert last["messages"] > row["messages"] > 0  # counted from the beginning, also when resumed
    assert last["bytes_sent"] > row["bytes_sent"]


def test_a_pool_that_is_closed_in_the_middle_of_trades_ends(tmp_path: Path) -> None:
    before = living()
    run = start(long_epochs(tmp_path, 400), exchange="averaging:period=300", workers=3, host="threads", epochs=2)
    next(run)
    closing = when(lambda: run.progress().rows_done > 3000, run.close)
    assert [*run] == []
    closing.join()
    assert not living() - before


# ---- names and refusals


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"adagrad": True}, "leave adagrad out"),
        ({"discipline": "hogwild"}, "workers with own replicas need no discipline='hogwild': leave discipline out"),
        ({"link": "latency=1ms"}, "simulator"),
        ({"host": "simulator", "link": "latency=1"}, r"latency=1: expected a number and a unit \(.*ms"),
        ({"host": "simulator", "link": "speed=1Gbit"}, "cannot read 'speed=1Gbit': it has latency, bandwidth, row"),
        ({"host": "simulator", "link": "bandwidth=0Gbit"}, "bandwidth=0Gbit: expected"),
        ({"exchange": "averging"}, "did you mean averaging"),
        ({"exchange": ""}, "expected one of"),
        ({"exchange": "averaging:periode=3"}, "cannot read 'periode=3': averaging has period"),
        ({"exchange": "averaging:period=1.5"}, "expected a whole number from 1, or a part of an epoch such as 0.25"),
        ({"exchange": "averaging:mean=mean"}, "one of moved, rows"),
        ({"exchange": "averaging:momentum=1"}, "from 0 to 0.999"),
        ({"exchange": "averaging:share=0.5"}, "give a period"),
        ({"exchange": "averaging:threshold=1"}, "give a period"),
        ({"exchange": "averaging:period=9,threshold=1,by=ring"}, "leave share and by out"),
        ({"exchange": "server:soft=4"}, "soft needs rule=soft; got rule=met"),
        ({"exchange": "gossip:tau=-1"}, "tau=-1"),
        *(
            ({"problem": "cuts", "exchange": name}, "leads out of a simplex: choose averaging with mean=rows")
            for name in ("averaging:mean=moved", "averaging:momentum=0.9", "averaging:outer=2", "server", "gossip")
        ),
    ],
    ids=str,
)
def test_refusals_are_one_sentence(options: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        TrainConfig(**{"exchange": "averaging"} | options)
    assert "\n" not in str(caught.value)


def test_numbers_are_read_and_survive_json() -> None:
    config = TrainConfig(exchange="averaging:period=1000", host="simulator", link="latency=0.2ms,bandwidth=1Gbit")
    assert TrainConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    for text, period in ((config.exchange, 1000), ("averaging", NO_LIMIT), ("averaging:period=0.25", 1500)):
        exchange = make_exchange(text, rows=6000)
        assert exchange is not None
        assert exchange.period == period
    for rows, moved in (("averaging:mean=rows", "averaging"), ("averaging", "averaging:mean=moved")):
        assert make_exchange(moved, sums=False) == make_exchange(rows)  # labels of a vertex add up to one
