"""The bench's own kernels do what they are named for, also without the JIT."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from hogwild.bench.kernels.merge import _Side
from hogwild.bench.kernels.steps_kernel import ADDS, TINY, adds, stream
from hogwild.bench.sides import Loop, NaiveLoop
from hogwild.data.rows.source import open_data
from hogwild.kernels.control import cells as control_cells

needs_jit = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="random orders overflow by design, which NumPy reports")


def test_stream_reads_every_entry() -> None:
    indices, values = np.arange(5, dtype=np.int32), np.array([1, -2, 3, 0, 5], np.float32)
    bits = values.view(np.int32)
    for first in range(5):
        expected = int(indices[first:].sum()) + int(bits[first:].sum(dtype=np.int64))
        assert stream(indices[first:], bits[first:]) == expected


def test_a_merge_brings_private_and_shared_together() -> None:
    side = _Side(32, 1, 3)
    side()
    [(tiers, replica, parameters)] = side._parts
    assert replica.coef.tolist() == pytest.approx([3 * TINY] * 32)
    assert replica.base_coef.tolist() == replica.coef.tolist()
    assert parameters.coef.tolist() == replica.coef[np.argsort(tiers.features)].tolist()


@pytest.mark.parametrize("kind", ADDS)
def test_adds(kind: str) -> None:
    cells, locks = np.zeros(4, np.float32), np.zeros(4, np.int32)
    picks = np.array([0, 1, 1, 3], np.int32)
    adds(ADDS[kind])(cells, picks, locks, np.zeros(control_cells(1), np.int64), 10)
    assert cells.tolist() == [3, 5, 0, 2]
    assert not locks.any()


@needs_jit
def test_the_twin_learns_what_the_kernel_learns() -> None:
    """Sums are taken in another order, so they agree to rounding only."""
    rows = open_data("synthetic:rcv1?rows=300&features=200&nnz=8")
    twin, loop = NaiveLoop(rows, 0.5), Loop(rows, 0.5, "file", far=False)
    for _ in range(2):
        twin()
        loop()
    np.testing.assert_allclose(twin.coef, loop.coef, rtol=1e-3, atol=1e-4)
    assert np.abs(twin.coef).max() > 0.1


@needs_jit
def test_prefetching_changes_no_bit() -> None:
    rows = open_data("synthetic:ctr?rows=300&features=4096&nnz=5")
    near, far = (Loop(rows, 0.05, far=far) for far in (False, True))
    for loop in (near, far):
        loop()
    assert near.coef.tobytes() == far.coef.tobytes()
