"""What programs do together, at the level of kernels: here in the interpreter, with ``-m gpu`` on a GPU.

Changes that all are one power of two have an exact sum, from which nothing may be missing, and into which nothing may
go twice; rows with nothing in common come out as in the twin, however many are in flight.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

import triton
import triton.language as tl

from hogwild.config import TrainConfig
from hogwild.cuda import backend as backends
from hogwild.cuda import completion
from hogwild.cuda.linear import LinearLauncher
from hogwild.cuda.streams import Visits
from hogwild.data.rows.container import Rows
from hogwild.problems.linear.problem import LinearProblem
from tests.cuda import order_twin
from tests.cuda.standin import StandIn
from tests.cuda.test_order import looked

INTERPRETED = "TRITON_INTERPRET" in os.environ
STEP, SHARED = 2.0**-20, 33  # features that all rows have
HERE = pytest.param("cpu", marks=pytest.mark.skipif(not INTERPRETED, reason="kernels are compiled: no -m gpu"))
THERE = pytest.param(
    "cuda",
    marks=[
        pytest.mark.gpu,
        pytest.mark.skipif(not torch.cuda.is_available() or INTERPRETED, reason="no GPU, or no -m gpu"),
    ],
)


@pytest.fixture(params=[HERE, THERE])
def device(request):
    """A backend, and how many examples it does in no time."""
    return (backends.connect(), 5000) if request.param == "cuda" else (StandIn(triton=True), 20)


def launched(launcher, flat, visits, in_flight):
    """The flat array after one launch over all of a launcher's data."""
    launcher.flat.copy_(torch.from_numpy(flat))
    launcher.visit(visits, in_flight)
    return launcher.flat.cpu().numpy()


@pytest.mark.parametrize("classes", [2, 3, 16])
@pytest.mark.parametrize("alone", [True, False])
def test_every_row_adds_to_every_weight_once(device, classes, alone):
    """With the hinge loss far from its kink all changes are one step; so are those of the intercept, held or not."""
    backend, n = device
    rows = Rows(
        np.arange(n + 1) * SHARED, np.tile(np.arange(SHARED), n), np.ones(n * SHARED), np.arange(n) % classes, SHARED
    )
    problem = LinearProblem.of(TrainConfig(loss="hinge", l2=0.0), rows, "atomic")
    arrays = problem.row_arrays(rows, None)
    entries = {"begin": rows.begin, "end": rows.end, "indices": rows.indices, "values": rows.values}
    launcher = LinearLauncher(problem, entries | arrays, backend)
    start = np.zeros(problem.size, np.float32)
    coef, intercept = problem.solution(launched(launcher, start, Visits(0, n, n, 5, STEP), 1 if alone else n))
    own = np.bincount(np.arange(n) % classes, minlength=classes)
    wanted = STEP * (2 * own - n)[1 if classes == 2 else slice(None), None]
    np.testing.assert_array_equal(
        coef.reshape(-1, SHARED), np.broadcast_to(wanted, (len(coef.reshape(-1, SHARED)), SHARED))
    )
    np.testing.assert_allclose(
        intercept, problem.intercept * wanted[:, 0] if classes > 2 else problem.intercept * wanted, rtol=1e-4
    )


@triton.jit
def add_ones(table, numbers, count, TILE: tl.constexpr, GROUP: tl.constexpr, WIDTH: tl.constexpr):
    """Every program adds one to the rows that it has numbers for, up to ``WIDTH``."""
    at, columns = tl.program_id(0) * GROUP + tl.arange(0, GROUP), tl.arange(0, TILE)[None, :] < WIDTH
    spots = completion.place(table, tl.load(numbers + at, mask=at < count, other=0), TILE, TILE)
    old = tl.zeros((GROUP, TILE), tl.float32)
    completion.write(spots, old, old + 1.0, (at < count)[:, None] & columns, True)


@pytest.mark.parametrize("group", [1, 8])
@pytest.mark.parametrize(("tile", "width"), [(64, 64), (32, 24)])
def test_every_rating_adds_to_every_factor_once(device, group, tile, width):
    """Also of several that a program holds together, of one item."""
    backend, n = device
    numbers = (torch.arange(n, dtype=torch.int32) % 3).to(backend.device)
    table = torch.zeros((4, tile), device=backend.device)
    add_ones[(-(-n // group),)](table, numbers, n, tile, group, width, num_warps=1)
    wanted = np.zeros((4, tile))
    wanted[:3, :width] = np.bincount(np.arange(n) % 3)[:, None]
    np.testing.assert_array_equal(table.cpu().numpy(), wanted)


def test_the_order_is_that_of_the_twin(device):
    backend, n = device
    visits = Visits(3, min(128, n - 3), n, 77, 0.1, 2.0, 0.5, together=4)
    rows, steps = looked(visits, backend.device)
    np.testing.assert_array_equal(rows, order_twin.rows(visits))
    np.testing.assert_allclose(steps, order_twin.steps(visits), rtol=1e-5)
