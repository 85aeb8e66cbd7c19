"""Several machines: here threads of one process, each with a cluster of its own, that meet on the loopback device."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hogwild
from hogwild.errors import HogwildError, InputError, TrainingError, UsageError
from hogwild.machines.cluster import Cluster
from hogwild.machines.meeting import Meeting
from hogwild.machines.pool import Replicas
from hogwild.machines.trading import MachineLink
from tests.runs import toy, until

OPTIONS = {"step": 0.5, "workers": 1, "host": "threads", "epochs": 4}


#: Below those that the system gives to connections, or one of these might take it before machine 0 listens there; tests
#: that run side by side begin at different ones.
PORTS = itertools.cycle((10_000 + (os.getpid() * 997 + k) % 20_000) for k in range(20_000))


def free_address() -> str:
    for port in PORTS:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return f"127.0.0.1:{port}"
    raise AssertionError


def together(
    machines: int, work: Callable[[Cluster], Any], about: list[dict] | None = None, numbered: bool = True
) -> list[Any]:
    """What ``work`` returns on each machine, or the error that it raises."""
    address, found = free_address(), [None] * machines

    def one(number: int) -> None:
        try:
            meeting = Meeting(address, machines, number if numbered else None)
            with Cluster.of(meeting, (about or [{}] * machines)[number], seconds=60.0) as cluster:
                found[number] = work(cluster)
        except Exception as error:
            found[number] = error

    threads = [threading.Thread(target=one, args=(number,)) for number in range(machines)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a machine waits for ever"
    for error in found:
        if isinstance(error, Exception) and not isinstance(error, HogwildError):
            raise error
    return found


def fit(rows: Any, **options: Any) -> Callable[[Cluster], Any]:
    """Train, and return the rows of measurements and the model's arrays."""

    def work(cluster: Cluster) -> Any:
        run = hogwild.train(rows, cluster=cluster, **(OPTIONS | options))
        model = run.finish()
        return run.history, model

    return work


def test_a_run_goes_on_with_another_number_of_machines(tmp_path: Any) -> None:
    rows = toy(600)
    together(2, fit(rows, epochs=2, checkpoint=tmp_path / "c"))
    (history, _), *_ = together(3, fit(rows, epochs=5, checkpoint=tmp_path / "c", resume=True))
    assert [row["epoch"] for row in history] == [0, 1, 2, 3, 4, 5]
    assert history[-1]["objective"] < history[2]["objective"]
    alone = hogwild.train(rows, checkpoint=tmp_path / "c", resume=True, **(OPTIONS | {"epochs": 6}))
    alone.finish()
    assert alone.history[-1]["epoch"] == 6


def test_arrays_arrive_whole_and_in_order() -> None:
    arrays = [np.arange(700_001.0), np.empty(0, np.int32), np.array([[True, False, True]]), np.arange(5.0)]

    def work(cluster: Cluster) -> Any:
        if not cluster.leads:
            cluster.tell({"kind": "some"}, [0], *arrays)
            cluster.tell({"kind": "none"}, [0])
            return None
        note = cluster.next_note(1, ("some",))
        assert cluster.next_note(1, ("none",))["arrays"] == []
        return note["arrays"]

    found, _ = together(2, work)
    for array, expected in zip(found, arrays, strict=True):
        np.testing.assert_array_equal(array, expected, strict=True)


def test_a_machine_that_waits_for_a_run_hears_that_it_has_ended() -> None:
    def work(cluster: Cluster) -> Any:
        if cluster.leads:
            cluster.tell({"kind": "end"})
            return cluster.next_note(1, ("seen",))
        try:
            return hogwild.train(toy(100), cluster=cluster, **OPTIONS)
        finally:
            cluster.tell({"kind": "seen"}, [0])

    _, error = together(2, work)
    assert isinstance(error, TrainingError)
    assert re.fullmatch("machine 0 .*has ended the run", str(error))


def test_a_round_is_the_last_if_all_had_ended_before_it() -> None:
    def work(cluster: Cluster) -> Any:
        if not cluster.leads:
            cluster.tell({"kind": "ended", "task": 1, "clock": 3}, [0])
            return cluster.next_note(0, ("seen",))
        pool = object.__new__(Replicas)
        pool.cluster, pool.members, pool.task, pool._clocks = cluster, [0, 1], 1, {}
        pool.link = MachineLink(cluster, [0, 1], 1, 0, None, {})
        assert until(pool._all_ended)
        found = [pool._all_ended(clock) for clock in (2, 3, 4)]
        cluster.tell({"kind": "seen"})  # then it leaves, and nobody waits for it
        return found

    assert together(2, work)[0] == [False, False, True]


def test_who_has_left_has_no_thread_and_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a group of gloo's might end in that thread while the interpreter ends, which aborts it."""
    ended = list[str]()

    class Late:
        def leave(self, why: str) -> None:
            ended.append(why)

    def watch(cluster: Any) -> None:
        cluster.closed(60.0)
        time.sleep(0.5)
        ended.append("watched")
        cluster._pairs[2] = Late()  # that of a machine which has come back meanwhile

    monkeypatch.setattr(Cluster, "_watch", watch)
    together(2, lambda cluster: None)
    assert sorted(ended) == ["it has left"] * 2 + ["watched"] * 2


def test_an_error_is_told_to_the_others() -> None:
    def work(cluster: Cluster) -> Any:
        if not cluster.leads:
            raise InputError("part1.svm:7: no number")
        return cluster.next_note(1, ("ready",))

    first, _ = together(2, work)
    assert isinstance(first, TrainingError)
    assert str(first).endswith("is gone: part1.svm:7: no number")


def test_other_data_are_refused_everywhere() -> None:
    for error in together(2, lambda cluster: fit(toy(seed=cluster.number))(cluster)):
        assert isinstance(error, InputError)
        assert re.match(r"machine 1 \(.*\) differs from machine 0 \(.*\): data is ", str(error))


def test_machines_that_want_different_things_do_not_meet() -> None:
    found = together(2, lambda cluster: None, [{"loss": "log"}, {"loss": "hinge"}])
    assert [type(error) for error in found] == [InputError, InputError]
    assert "loss is hinge there and log here" in str(found[0])
    assert str(found[0]) == str(found[1])


def test_a_machine_that_does_not_come() -> None:
    address = free_address()
    with pytest.raises(InputError, match=r"^machines 1, 2 of 3 did not come to 127.0.0.1:\d+$"):
        Cluster.of(Meeting(address, 3, 0), {}, seconds=0.5)
    with pytest.raises(InputError, match=r"^cannot reach machine 0 at 127.0.0.1:\d+: "):
        Cluster.of(Meeting(address, 3, 1), {}, seconds=0.5)


def test_two_machines_with_one_number() -> None:
    address, said = free_address(), list[str]()

    def one(number: int) -> None:
        with pytest.raises(InputError) as caught:
            Cluster.of(Meeting(address, 3, number), {}, seconds=3.0)
        said.append(str(caught.value))

    threads = [threading.Thread(target=one, args=(number,)) for number in (0, 1, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert re.fullmatch(r"machine 1 is .* already \(--machine\)", said[0])
    assert said[1:] == [f"machine 2 of 3 did not come to {address}"] * 2


def test_a_port_that_is_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match=r"^machine 0 cannot listen at 127.0.0.1:\d+: Address already in use$"):
            Cluster.of(Meeting(f"127.0.0.1:{taken.getsockname()[1]}", 2, 0), {})


def test_machines_are_numbered_as_they_come() -> None:
    assert sorted(together(3, lambda cluster: cluster.number, numbered=False)) == [0, 1, 2]


@pytest.mark.parametrize("address", ["first", ":1", "first:65536", "first:²"])
def test_addresses(address: str) -> None:
    with pytest.raises(UsageError, match="expected HOST:PORT of machine 0"):
        Meeting(address, 2)


@pytest.mark.parametrize(
    "options", [{"host": "simulator"}, {"discipline": "aig"}, {"problem": "cuts", "exchange": "averaging"}]
)
def test_what_machines_cannot_do(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="machine"):
        hogwild.TrainConfig(machines=2, **options)


def test_machines_meet_first() -> None:
    with pytest.raises(UsageError, match="machines meet first"):
        hogwild.train(toy(50), machines=2)
