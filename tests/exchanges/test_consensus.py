"""Consensus ADMM: its fixed point is the optimum over all rows, also where every replica has only its own."""

from __future__ import annotations

import numpy as np
import pytest

import hogwild
from hogwild.compare.reference.optimum import find_optimum
from hogwild.config import TrainConfig
from hogwild.exchanges.consensus import Consensus
from hogwild.exchanges.trade import take
from hogwild.hosts.memory import Block
from hogwild.hosts.simulator import Network, TimedLink
from hogwild.methods import Wire
from tests.runs import toy

SIZE, REPLICAS = 50, 3


def test_quadratics_of_their_own_meet_at_the_common_optimum() -> None:
    """Each replica takes gradient steps on its own quadratic only; both residuals fall."""
    rng = np.random.default_rng(0)
    curvature, centre = rng.random((REPLICAS, SIZE)) + 0.3, rng.normal(size=(REPLICAS, SIZE))
    optimum = (curvature * centre).sum(axis=0) / curvature.sum(axis=0)
    exchange, network = Consensus(period=1, pull=0.3), Network(REPLICAS, Wire())
    arrays = Block(exchange.spec(SIZE, REPLICAS), shared=False).arrays
    flat = np.zeros(SIZE, np.float32)
    exchange.begin(flat, arrays)
    mine = [take(flat, arrays, replica) for replica in range(REPLICAS)]
    links = [TimedLink(network, replica) for replica in range(REPLICAS)]
    primal, dual, before = [], [], flat.copy()
    for _ in range(400):
        for x, c, a in zip(mine, curvature, centre):
            x -= (0.2 * c * (x - a)).astype(np.float32)
        going = [exchange.trade(x, arrays, link, 1) for x, link in zip(mine, links)]
        while going:
            going = [each for each in going if next(each, "over") != "over"]
        common = arrays["base"][:, :SIZE]
        assert len({z.tobytes() for z in common}) == 1
        primal.append(np.linalg.norm(np.array(mine) - common[0]))
        dual.append(np.linalg.norm(common[0] - before))
        before = common[0].copy()
    np.testing.assert_allclose(before, optimum, atol=1e-3)
    assert abs(np.mean(centre, axis=0) - optimum).max() > 0.1  # which a mean of the replicas' optima misses
    assert primal[-1] < 0.01 * primal[0]
    assert dual[-1] < 0.01 * dual[0]
    np.testing.assert_allclose(arrays["price"][:, :SIZE].sum(axis=0), 0, atol=1e-5)
    exchange.meet(flat, arrays, np.ones(REPLICAS, np.int64))
    np.testing.assert_allclose(flat, optimum, atol=1e-3)


@pytest.mark.parametrize("numbers", ["", ":period=100", ":period=100,pull=0.1"])
def test_a_run_reaches_the_optimum(numbers: str) -> None:
    rows = toy(1000, width=80)
    quiet = {"l2": 1e-2, "host": "simulator", "workers": 4}
    run = hogwild.train(rows, exchange=f"consensus{numbers}", step=0.2, schedule="epoch", epochs=40, **quiet)
    run.finish()
    best = find_optimum(rows, TrainConfig(l2=1e-2)).objective
    assert run.history[-1]["objective"] - best <= 1e-3 * best
