"""Virtual workers: the semantics of every discipline, exactly, on one core."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hogwild
from hogwild.data.order import Order
from hogwild.data.rows.container import Rows
from hogwild.errors import UsageError
from hogwild.hosts.job import Job, Task
from hogwild.hosts.simulator import DelaySchedule, Law, Simulator
from hogwild.kernels.control import EVENT_KINDS, LOAD, NEXT, PAY, READ, STORE
from hogwild.methods import DISCIPLINES
from hogwild.problems.protocol import Problem
from tests.kernels.harness import (
    FALLING,
    assert_equal_to_twin,
    bits,
    job_and_rows,
    make_job,
    run_epoch,
    sequence,
    twin_of,
)
from tests.runs import toy

PHASED = ["hogwild", "atomic", "aig"]
SEVERAL = [name for name in DISCIPLINES if name != "serial"]


def play(job: Job, delay: str = "round-robin", epochs: int = 2, step: Any = FALLING) -> Simulator:
    """Epochs of a job in a simulator."""
    pool = Simulator(job.workers, delay)
    pool.open(job)
    for epoch in range(epochs):
        job.begin_epoch(epoch, 0)
        pool.begin(Task(epoch, 0, step))
        while not pool.wait(1.0):
            pass
    return pool


def run(discipline: str, workers: int, delay: str = "round-robin", n: int = 700, **options: Any) -> hogwild.Run:
    law = {} if discipline == "round-robin" else {"delay": delay}
    options = {"step": 0.5, "epochs": 2} | law | options
    return hogwild.train(toy(n), host="simulator", workers=workers, discipline=discipline, **options)


def job_of(discipline: str, workers: int = 1, combination: str = "elastic", **options: Any) -> tuple[Job, Any]:
    """A job on 300 rows, and its twin."""
    job, rows = job_and_rows(combination, discipline, workers, 300, **options)
    return job, twin_of(job, rows)


def assert_delayed(job: Job, twin: Any, workers: int) -> None:
    """Hold two epochs against the twin in which a row is applied just before the ``workers``-th row after it."""
    for epoch in range(2):
        twin.epoch(sequence(job, epoch), FALLING, epoch * job.order.n_rows, workers)
    assert_equal_to_twin(job, twin)


# --- the oracles


@pytest.mark.parametrize(
    ("discipline", "combination", "delay"),
    [
        *((name, "elastic", "round-robin") for name in DISCIPLINES),
        ("hogwild", "multi-class", "straggler:window=1"),
        ("hogwild", "adagrad", "random"),
    ],
)
def test_one_worker_is_serial(discipline: str, combination: str, delay: str) -> None:
    serial, job = (job_of(name, 1, combination)[0] for name in ("serial", discipline))
    for epoch in range(2):
        run_epoch(serial, epoch, FALLING)
    pool = play(job, delay)
    assert bits(job) == bits(serial)
    assert job.done() == serial.done()
    counted = {"staleness_mean": 0, "staleness_max": 0, "lost_updates": 0}
    assert pool.measured() == (counted if discipline in PHASED else {})


@pytest.mark.parametrize(("workers", "combination"), [(2, "multi-class"), (7, "elastic")])
def test_turns_are_serial_with_a_delay(workers: int, combination: str) -> None:
    """The workers' own kernel, one turn a call: bit for bit the twin, and what threads make."""
    job, twin = job_of("round-robin", workers, combination)
    play(job, "round-robin:quantum=5")  # which changes nothing: a turn is one row
    assert_delayed(job, twin, workers)
    threads, _ = job_of("round-robin", workers, combination)
    for epoch in range(2):
        run_epoch(threads, epoch, FALLING)
    assert bits(job) == bits(threads)


@pytest.mark.parametrize(
    ("discipline", "combination"), [("hogwild", "elastic"), ("atomic", "adagrad"), ("aig", "multi-class")]
)
@pytest.mark.parametrize(
    ("workers", "delay", "exactly"),
    [
        (5, "round-robin", 4),
        (5, "constant:delay=2", 2),
        (5, "constant:delay=0", 0),
        (3, "random:shape=1000000", 2),
    ],
)
def test_staleness_is_what_the_law_says(
    discipline: str, combination: str, workers: int, delay: str, exactly: int
) -> None:
    """But for the first rows of an epoch, and so is the result; weights only, since the intercept is paid late."""
    job, twin = job_of(discipline, workers, combination, intercept=False)
    pool = play(job, delay + ("," if ":" in delay else ":") + "window=0")
    assert Counter(pool.staleness) == Counter(range(exactly)) + Counter({exactly: 300 - exactly})
    assert pool.measured()["staleness_max"] == exactly
    assert_delayed(job, twin, exactly + 1)


class Steered(Problem):
    """An example moves one of three numbers by the sum of all; its "kernel" has no events."""

    discipline = "hogwild"
    size = 3

    def parameters(self, flat: np.ndarray) -> np.ndarray:
        return flat

    data = scratch = lambda *_: None

    def prepare(self, shared: Any, scratch: Any, data: Any, part: Any, step: Any) -> Any:
        def turn() -> int:
            k = int(shared.control[NEXT])
            shared.control[NEXT] = min(k + 1, part.order.n_chunks)
            if k == part.order.n_chunks:
                return 0
            shared.parameters[k * k % 3] += np.float32(1.0) - np.float32(0.4) * shared.parameters.sum()
            return 1

        return turn

    def compile(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize("window", [0, 1])
@pytest.mark.parametrize("workers", [1, 4])
def test_whole_examples_are_delayed_too(workers: int, window: int) -> None:
    """With ``window=1`` a store writes what was read plus the change, and what others stored meanwhile is lost."""
    job = Job.of(Steered(), Order(50, 1, False, 1), 0, workers, {}, shared=False)
    pool = play(job, f"round-robin:window={window}", epochs=1)
    w, lost, pending = np.zeros(3, np.float32), 0, []
    depths = np.zeros(3, int)
    for k in [*range(50), *[None] * workers]:
        if len(pending) == workers or k is None:
            place, read, change, depth = pending.pop(0) if pending else (0, w[0], np.float32(0), depths[0])
            w[place] = (read if window else w[place]) + change
            lost += depths[place] - depth if window else 0
            depths[place] = (depth if window else depths[place]) + (change != 0)
        if k is not None:
            place = k * k % 3
            pending.append((place, w[place], np.float32(1.0) - np.float32(0.4) * w.sum(), depths[place]))
    np.testing.assert_allclose(job.flat, w, rtol=1e-5)
    assert Counter(pool.staleness) == Counter(range(workers - 1)) + Counter({workers - 1: 51 - workers})
    assert pool.measured()["lost_updates"] == lost
    assert (lost > 0) == (window == 1 and workers > 1)


@pytest.mark.parametrize("discipline", ["hogwild", "locked"])
@pytest.mark.parametrize(
    ("problem", "data"),
    [
        ("completion", "synthetic:ratings?users=50&items=30&ratings=400"),
        ("cuts", "synthetic:grid?side=8"),
        ("fm", "synthetic:ctr?rows=300&features=1000"),
    ],
)
def test_every_problem_is_played(problem: Any, data: str, discipline: str) -> None:
    """One worker is serial, to the last bit."""
    options: dict[str, Any] = {"problem": problem, "epochs": 2, "step": 0.1}
    hosts: list[dict[str, Any]] = [{"discipline": "serial", "host": "threads"}]
    hosts += [{"discipline": discipline, "host": "simulator", "workers": workers} for workers in (1, 5)]
    serial, one, five = (hogwild.train(data, **options | {"workers": 1} | host) for host in hosts)
    for run in (serial, one, five):
        run.finish()
    assert [row["objective"] for row in one.history] == [row["objective"] for row in serial.history]
    assert five.history[-1]["updates"] == one.history[-1]["updates"]
    assert five.history[-1]["objective"] == pytest.approx(one.history[-1]["objective"], rel=0.1)
    assert (five.history[-1]["staleness_max"] is None) == (discipline == "locked")


def test_the_intercept_too_when_paid_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Round robin by the law is round robin by turns."""
    monkeypatch.setattr("hogwild.problems.linear.problem.FLUSH", 1)
    results = []
    for discipline in ("atomic", "round-robin"):
        job, _ = job_of(discipline, 6)
        play(job)
        results.append(bits(job))
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("discipline", "delay"),
    [("hogwild", "straggler"), ("atomic", "random"), ("locked", "random"), ("tiered", "straggler")],
)
def test_the_same_seed_gives_the_same_bits(discipline: str, delay: str) -> None:
    runs = [run(discipline, 13, delay) for _ in range(2)]
    found = [[(row["objective"], row["staleness_mean"], row["lost_updates"]) for row in one] for one in runs]
    assert found[0] == found[1]
    np.testing.assert_array_equal(runs[0].model.coef_, runs[1].model.coef_)
    other = run(discipline, 13, delay, seed=1).finish()
    assert (other.coef_ != runs[0].model.coef_).any()


@pytest.mark.parametrize("delay", ["round-robin", "random", "straggler:alpha=1.1"])
@pytest.mark.parametrize("discipline", PHASED)
def test_nothing_is_gained_and_only_what_is_lost_is_lost(discipline: str, delay: str) -> None:
    """Each of a row's weights grows by one: at the end they add up to all updates less the lost ones."""
    rng = np.random.default_rng(0)
    rows = Rows(
        np.arange(501) * 6, np.sort(rng.random((500, 8)).argsort(1)[:, :6]).ravel(), np.ones(3000), np.full(500, 1e6), 8
    )
    job = make_job(rows, discipline, 9, start=False, loss="epsilon-insensitive", intercept=False)
    pool = play(job, delay + ("," if ":" in delay else ":") + "window=0.7", epochs=1, step=(1.0, 1.0, 0.0))
    lost = pool.measured()["lost_updates"]
    assert job.problem.parameters(job.flat).coef.sum() == rows.nnz - lost
    assert (lost > 0) == (discipline == "hogwild")
    assert job.done() == (500, rows.nnz)


@pytest.mark.parametrize("quantum", [1, 7, 1000])
def test_every_row_once_by_hundreds_of_workers(quantum: int) -> None:
    for discipline in ("locked", "atomic"):
        assert [row["updates"] for row in run(discipline, 300, f"random:quantum={quantum}")] == [0, 700, 700]


# --- as a pool


@pytest.mark.parametrize("discipline", SEVERAL)
def test_stopped_and_resumed(discipline: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stop flag is looked at between chunks, all rows are done once, and the rest is done by another run."""
    whole, begin = run(discipline, 5, n=900, checkpoint=tmp_path), Simulator.begin
    next(whole)

    def begin_and_stop(pool: Simulator, task: Task) -> None:
        begin(pool, task)
        assert not pool.wait(-1.0)  # one step
        whole.stop()

    with monkeypatch.context() as patch:
        patch.setattr(Simulator, "begin", begin_and_stop)
        row = next(whole)
    assert row["status"] == "interrupted"
    assert 0 < row["updates"] < 900
    if discipline in PHASED:
        assert sum(whole.staleness.values()) == row["updates"]
    rest = run(discipline, 5, n=900, checkpoint=tmp_path, resume=True)
    rows = list(rest)
    assert [row["epoch"] for row in rows] == [1, 2]
    assert [row["updates"] for row in rows] == [900, 900]


def test_an_interrupted_step_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run("hogwild", 5)
    next(found)

    def interrupt(self: DelaySchedule, rows: int) -> list[int]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(DelaySchedule, "events", interrupt)
        with pytest.raises(KeyboardInterrupt):
            next(found)
    assert found.engine.pool.wait(0.0)


# --- options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delay": "poisson"}, "expected one of round-robin, constant, random, straggler"),
        ({"delay": 3}, "expected one of"),
        ({"delay": "random:alpha=2"}, "cannot read 'alpha=2': random has shape, window, quantum"),
        ({"delay": "straggler:alpha=1"}, "alpha=1: expected a number from 1.01"),
        ({"delay": "straggler:alpha=x"}, "alpha=x: expected a number"),
        ({"delay": "random:quantum=1.5"}, "expected a whole number from 1"),
        ({"delay": "random:window=2"}, "window=2: expected a number from 0 to 1"),
        ({"delay": "constant:delay=4"}, "needs workers=5 or more, got workers=4"),
        ({"delay": "random", "host": "threads"}, "needs host='simulator'"),
        ({"delay": "random", "discipline": "round-robin"}, "has turns of its own"),
    ],
)
def test_mistakes_are_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        hogwild.TrainConfig(**{"host": "simulator", "workers": 4} | options)
    assert "\n" not in str(caught.value)


# --- schedules


@pytest.mark.parametrize(
    "delay", ["round-robin", "random:window=1e-300", "straggler:alpha=1.1", "constant:delay=2,window=1"]
)
def test_every_worker_reads_loads_and_stores_in_this_order(delay: str) -> None:
    law = Law(delay, 6)
    schedule = DelaySchedule(law, (0, 0, 0), law.window)
    events = [event for rows in (64, 1, 35, None) for event in schedule.events(rows)]
    for worker in range(6):
        kinds = [event % EVENT_KINDS for event in events if event // EVENT_KINDS == worker]
        assert kinds == [READ, LOAD, STORE] * (len(kinds) // 3) + [PAY]
    assert sum(event % EVENT_KINDS == READ for event in events) == sum(schedule.staleness.values()) == 100


@pytest.mark.parametrize("delay", ["random", "straggler"])
def test_row_times_have_mean_one(delay: str) -> None:
    times = Law(delay, 6).times((1, 2, 3))
    drawn = [next(times) for _ in range(200_000)]
    assert min(drawn) > 0
    assert np.mean(drawn) == pytest.approx(1, rel=0.02 if "straggler" not in delay else 0.6)
