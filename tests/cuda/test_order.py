"""The sequence of visits that kernels compute: the same as a slow twin's, and every example once an epoch."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

import itertools

import triton
import triton.language as tl

from hogwild.cuda.order import VISITS, visit_at
from hogwild.cuda.streams import Visits
from tests.cuda import order_twin


@triton.jit(do_not_specialize=VISITS)
def look(
    rows,
    steps,
    start: tl.int32,
    count: tl.int32,
    n: tl.int32,
    bits: tl.int32,
    key: tl.uint32,
    scale,
    since,
    power,
    SHUFFLED: tl.constexpr,
    TOGETHER: tl.constexpr,
    SIZE: tl.constexpr,
):
    at = tl.arange(0, SIZE)
    v = start + tl.minimum(at, count - 1)
    row, step = visit_at(v, n, bits, key, scale, since, power, SHUFFLED, TOGETHER)
    tl.store(rows + at, row, mask=at < count)
    tl.store(steps + at, step, mask=at < count)


def looked(visits, device="cpu"):
    """Rows and steps as a kernel finds them."""
    rows, steps = torch.zeros(visits.size, dtype=torch.int32, device=device), torch.zeros(visits.size, device=device)
    size = triton.next_power_of_2(visits.size)
    look[(1,)](rows, steps, *visits.arguments, **visits.constants, SIZE=size)
    return rows.cpu().numpy(), steps.cpu().numpy()


SIZES = [(1, 1), (2, 1), (3, 1), (50, 1), (1000, 1), (20, 32), (33, 32), (1000, 32), (1024, 32)]


@pytest.mark.parametrize(("n", "together"), SIZES)
@pytest.mark.parametrize("shuffled", [True, False])
def test_kernels_look_where_the_twin_does(n, together, shuffled):
    visits = Visits(0, n, n, 2**32 - 5, 0.5, shuffled=shuffled, together=together)
    rows, steps = looked(visits)
    assert rows.tolist() == order_twin.rows(visits).tolist()
    assert (steps == np.float32(0.5)).all()
    assert sorted(rows) == list(range(n))
    for block in rows[: n - n % together].reshape(-1, together):  # neighbours are
        assert block.tolist() == list(range(block[0], block[0] + together))
    part = visits._replace(first=n // 2, size=n - n // 2)
    assert looked(part)[0].tolist() == rows[n // 2 :].tolist()


def test_far_positions():
    n = 2**31 - 2**10
    visits = Visits(n - 100, 100, n, 3, 1.0)
    rows, _ = looked(visits)
    assert rows.tolist() == order_twin.rows(visits).tolist()
    assert len(set(rows.tolist())) == 100
    assert 0 <= min(rows)
    assert max(rows) < n


@pytest.mark.parametrize(
    "visits",
    [
        Visits(0, 50, 60, 1, 3.0, 1e9, 1.0),
        Visits(7, 100, 200, 1, 0.25, 1.0, 0.25),
        Visits(0, 20, 20, 1, 0.0, 1.0, 0.5),
    ],
)
def test_steps(visits):
    np.testing.assert_allclose(looked(visits)[1], order_twin.steps(visits), rtol=1e-5)


def test_permutations_are_even():
    """Of many epochs each place has each example about as often, and each pair of neighbours is as frequent."""
    n, count = 11, 600
    keys = [int(np.random.SeedSequence((5, epoch)).generate_state(1)[0]) for epoch in range(count)]
    epochs = [order_twin.rows(Visits(0, n, n, key, 1.0)).tolist() for key in keys]
    places = Counter(pair for epoch in epochs for pair in enumerate(epoch))
    pairs = Counter(pair for epoch in epochs for pair in itertools.pairwise(epoch))
    assert len(places) == n * n
    assert len(pairs) == n * (n - 1)
    for counts in (places, pairs):
        assert 0.4 < min(counts.values()) * n / count
        assert max(counts.values()) * n / count < 1.7
