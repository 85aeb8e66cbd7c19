"""A machine that is gone comes back into its run, and none that does not belong there."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import hogwild
from hogwild.errors import HogwildError, InputError, TrainingError
from hogwild.machines import cluster as cluster_module
from hogwild.machines.cluster import Cluster
from hogwild.machines.meeting import Meeting
from hogwild.problems.linear.problem import LinearProblem
from tests.machines.test_machines import OPTIONS, free_address
from tests.runs import slowed, toy, until


@pytest.fixture(autouse=True)
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    slowed(monkeypatch, LinearProblem)


@contextlib.contextmanager
def town_of(machines: int, **options: Any) -> Iterator[Town]:
    town = Town(machines, **options)
    try:
        yield town
    finally:
        assert until(lambda: "0" in town.runs or "0" in town.found, 60)
        if "0" in town.runs:
            town.runs["0"].stop()
        for thread in town.threads:
            thread.join(60)
    assert not any(thread.is_alive() for thread in town.threads), "a machine waits for ever"


class Town:
    """Machines of a run, a thread each; who leaves can come back."""

    def __init__(self, machines: int, **options: Any) -> None:
        self.address, self.machines, self.rows = free_address(), machines, toy()
        self.options = OPTIONS | {"epochs": 10**6, "patience": 0} | options
        self.found: dict[str, Any] = {}
        self.clusters: dict[str, Cluster] = {}
        self.runs: dict[str, Any] = {}
        self.threads: list[threading.Thread] = []
        for number in range(machines):
            self.start(f"{number}", number)

    def start(self, name: str, number: int | None, seconds: float = 30.0, **options: Any) -> None:
        def one() -> None:
            try:
                with Cluster.of(Meeting(self.address, self.machines, number), {}, seconds=seconds) as cluster:
                    self.clusters[name] = cluster
                    run = hogwild.train(self.rows, cluster=cluster, **(self.options | options))
                    self.runs[name] = run
                    self.found[name] = run.finish()
            except HogwildError as error:
                self.found[name] = error

        self.threads.append(threading.Thread(target=one, daemon=True))
        self.threads[-1].start()

    @property
    def history(self) -> list[dict[str, Any]]:
        return self.runs["0"].history if "0" in self.runs else []

    def epochs_pass(self, count: int = 3) -> None:
        before = len(self.history)
        assert until(lambda: len(self.history) >= before + count or "0" in self.found, 60)
        assert "0" not in self.found, repr(self.found["0"])


@pytest.mark.parametrize("exchange", ["averaging", "gossip:period=50", "server:push=50"])
def test_who_comes_back_takes_part_again(exchange: str) -> None:
    with town_of(3, exchange=exchange) as town:
        town.epochs_pass()
        leading = town.clusters["0"]
        for name, number in (("back", None), ("again", 2)):  # by any number, and by its own
            town.clusters["2" if name == "back" else "back"].leave("its cable was cut")
            assert until(lambda: not leading.alive[2])
            town.epochs_pass()
            assert town.history[-1]["updates"] == len(town.rows)  # two share them all
            town.start(name, number)
            assert until(lambda: leading.members() == [0, 1, 2])
            town.epochs_pass()
            assert town.history[-1]["updates"] == len(town.rows)
        assert town.history[-1]["workers_lost"] == 2
        assert leading.arrivals.tolist() == [0, 0, 2]
        assert "0" not in town.found, town.found["0"]
    models = {name: found for name, found in town.found.items() if not isinstance(found, HogwildError)}
    assert sorted(models) == ["0", "1", "again"]
    for model in models.values():
        np.testing.assert_array_equal(model.coef_, models["0"].coef_)
    assert town.history[-1]["objective"] < 0.2 * town.history[0]["objective"]


def test_who_has_other_options_or_another_ones_place_is_refused() -> None:
    with town_of(2, exchange="gossip:period=50") as town:
        town.epochs_pass()
        town.start("third", 1, seconds=2.0)
        town.start("any", None, seconds=2.0)
        assert until(lambda: len(town.found) == 2)
        said = [str(town.found[name]) for name in ("third", "any")]
        met = f"2 machines have met at {town.address} already, and"
        assert said[0].startswith(f"{met} machine 1 is not gone within ")
        assert said[1].startswith(f"{met} none of them is gone within ")
        town.clusters["1"].leave("its cable was cut")
        town.start("other", 1, l2=1e-3)
        assert until(lambda: "other" in town.found)
        assert isinstance(town.found["other"], InputError)
        assert "machine 1 (" in str(town.found["other"])
        assert ": l2 is 0.001 there and " in str(town.found["other"])
        town.epochs_pass()
        town.start("same", 1)  # the place is free still
        assert until(lambda: town.clusters["0"].members() == [0, 1])
        town.epochs_pass()
        assert town.history[-1]["workers_lost"] == 1


def test_who_asks_and_never_connects_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "COMING", 1.0)
    with town_of(3, exchange="server:push=50") as town:
        town.epochs_pass()
        town.clusters["2"].leave("its cable was cut")
        assert until(lambda: not town.clusters["0"].alive[2])
        notes = town.clusters["1"].notes
        request = notes.store.add("asks", 1)
        notes.put(f"ask/{request}", town.clusters["1"].hellos[2] | {"number": 2})
        assert until(lambda: notes.get(f"answer/{request}"))
        town.epochs_pass()
        town.start("back", 2)
        assert until(lambda: town.clusters["0"].members() == [0, 1, 2])
        town.epochs_pass()


def test_a_machine_0_that_was_started_again_has_another_run() -> None:
    address, found = free_address(), list[Any]()

    def one() -> None:
        try:
            with Cluster.of(Meeting(address, 2, 1), {}, seconds=20.0) as cluster:
                cluster.next_note(0, ("never",))
        except HogwildError as error:
            found.append(error)

    thread = threading.Thread(target=one, daemon=True)
    thread.start()
    leading = Cluster.of(Meeting(address, 2, 0), {}, seconds=20.0)
    leading.leave("it was started again")
    del leading
    thread.join(60)
    gc.collect()
    assert isinstance(found[0], TrainingError)
    assert "it was started again" in str(found[0])
    with pytest.raises(InputError, match=r"^machine 1 of 2 did not come to "):
        Cluster.of(Meeting(address, 2, 0), {}, seconds=1.0)
