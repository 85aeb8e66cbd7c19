"""Consensus ADMM: its fixed point is the optimum over all rows, also where every replica has only its own."""

from __future__ import annotations

import numpy as np

from tests.exchanges.room import Room

SIZE, REPLICAS = 50, 3


def test_quadratics_of_their_own_meet_at_the_common_optimum() -> None:
    """Each replica takes gradient steps on its own quadratic only; both residuals fall."""
    rng = np.random.default_rng(0)
    curvature, centre = rng.random((REPLICAS, SIZE)) + 0.3, rng.normal(size=(REPLICAS, SIZE))
    optimum = (curvature * centre).sum(axis=0) / curvature.sum(axis=0)
    room = Room("consensus:period=1,pull=0.3", REPLICAS, SIZE)
    primal, dual, before = [], [], room.flat.copy()
    for _ in range(400):
        for x, c, a in zip(room.w, curvature, centre):
            x -= (0.2 * c * (x - a)).astype(np.float32)
        room.trade()
        assert len({room.base(replica).tobytes() for replica in range(REPLICAS)}) == 1
        primal.append(np.linalg.norm(np.array(room.w) - room.base()))
        dual.append(np.linalg.norm(room.base() - before))
        before = room.base().copy()
    np.testing.assert_allclose(before, optimum, atol=1e-3)
    assert abs(np.mean(centre, axis=0) - optimum).max() > 0.1  # which a mean of the replicas' optima misses
    assert primal[-1] < 0.01 * primal[0]
    assert dual[-1] < 0.01 * dual[0]
    np.testing.assert_allclose(room.arrays["price"][:, :SIZE].sum(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(room.meet(), optimum, atol=1e-3)
