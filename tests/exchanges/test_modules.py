"""Replicas of a module, on one machine and on several."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hogwild
from hogwild.machines.cluster import Cluster
from tests.machines.test_machines import together

OPTIONS: dict[str, Any] = {"batch": 16, "step": 0.05, "optimizer": "momentum", "host": "threads", "epochs": 3}


def data(n: int = 640) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 10)).astype(np.float32)
    return X, (X @ rng.standard_normal((10, 3))).argmax(axis=1)


def network() -> nn.Module:
    """With a buffer of each kind: batch norm's means, and its count."""
    model = nn.Sequential(nn.Linear(10, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 3))
    rng = np.random.default_rng(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.from_numpy(rng.standard_normal(parameter.shape).astype(np.float32) / 4))
    return model


def trained(exchange: str, workers: int, **more: Any) -> tuple[list[dict[str, Any]], dict[str, torch.Tensor]]:
    options = OPTIONS | {"workers": workers, "exchange": exchange} | more
    run = hogwild.train_module(network(), "cross-entropy", data(), **options)
    rows = [*run]
    return rows, run.model.into(network()).state_dict()


@pytest.mark.parametrize("exchange", ["averaging:period=64", "gossip:period=64", "server:push=64"])
def test_one_replica_is_serial_to_the_bit(exchange: str) -> None:
    (_, alone), (_, found) = trained("none", 1), trained(exchange, 1)
    assert all(torch.equal(alone[name], found[name]) for name in alone)


@pytest.mark.filterwarnings("ignore:4 workers share")
@pytest.mark.parametrize("exchange", ["averaging:period=64", "gossip:period=64", "server:push=64", "consensus"])
def test_replicas_learn(exchange: str) -> None:
    rows, state = trained(exchange, 2)
    assert (rows[-1]["status"], rows[-1]["updates"], rows[-1]["replicas"]) == ("ok", 640, 2)
    assert rows[-1]["messages"] > 0
    assert rows[-1]["objective"] < 0.75 * rows[0]["objective"]  # consensus is at .40 to .52, the others at .15 to .33
    assert all(bool(torch.isfinite(value).all()) for value in state.values())


@pytest.mark.parametrize("exchange", ["averaging", "gossip:period=64", "server:push=64"])
def test_machines_learn_and_end_with_the_same_parameters(exchange: str) -> None:
    def work(cluster: Cluster) -> tuple[list[dict[str, Any]], nn.Module]:
        workers = 1 + cluster.number  # the optimiser's state is each machine's own
        run = hogwild.train_module(
            network(), "cross-entropy", data(), cluster=cluster, workers=workers, exchange=exchange, **OPTIONS
        )
        return [*run], run.finish().into(network())

    (rows, first), (none, second) = together(2, work)
    assert none == []
    assert (rows[-1]["status"], rows[-1]["updates"], rows[-1]["replicas"]) == ("ok", 640, 2)
    assert rows[-1]["objective"] < 0.5 * rows[0]["objective"]
    assert all(torch.equal(*pair) for pair in zip(first.parameters(), second.parameters()))


def test_machines_with_unlike_modules_are_refused() -> None:
    def work(cluster: Cluster) -> None:
        model = network() if cluster.leads else nn.Linear(10, 3)
        hogwild.train_module(model, "cross-entropy", data(), cluster=cluster, workers=1, **OPTIONS).finish()

    assert all("differs from machine 0" in str(error) for error in together(2, work))


@pytest.mark.parametrize("exchange", ["one-shot-averaging", "averaging:period=64", "gossip:period=64"])
def test_buffers_and_optimiser_states_stay_each_workers_own(exchange: str) -> None:
    options = OPTIONS | {"workers": 2, "exchange": exchange, "optimizer": "adam"}
    run = hogwild.train_module(network(), "cross-entropy", data(), **options)
    run.finish()
    layout, flat = run.problem.layout, run.engine.job.flat
    counts = []
    for worker in range(2):
        model, slot = network(), layout.slot(flat, worker)
        if slot[0]:
            layout.write_buffers(model, layout.slot_buffers(slot))
            counts.append(int(model[1].num_batches_tracked))
            steps = {float(part[-1][0]) for part in layout.trained(flat, slot)}
            assert steps == {counts[-1]}
    assert sum(counts) == 3 * 640 // 16
