"""Matrix completion on a device: the kernels in Triton's interpreter against a slow twin, and the launcher."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

import triton
import triton.language as tl

from hogwild.cuda import completion
from hogwild.cuda.completion import CompletionLauncher
from hogwild.cuda.streams import Visits
from hogwild.data.ratings.container import Ratings
from hogwild.errors import InputError
from hogwild.problems.completion.problem import CompletionProblem
from tests.cuda import order_twin
from tests.cuda.completion_twin import Twin
from tests.cuda.standin import StandIn
from tests.kernels.completion_harness import make_job, run_epoch, some_ratings

SHAPE, N = (9, 11), 37


def a_problem(discipline="atomic", rank=20, n=N, **options):
    """A problem on a few ratings, its launcher's arrays and where it starts; user 0 has rated everything."""
    rng = np.random.default_rng(1)
    every = np.array(list(itertools.product(range(1, SHAPE[0] - 1), range(SHAPE[1]))))
    pairs = np.concatenate([[(0, i) for i in range(SHAPE[1])], rng.permutation(every)[: n - SHAPE[1]]])
    users, items = (part.astype(np.int32) for part in rng.permutation(pairs).T)
    values = rng.normal(3, 1, n).astype(np.float32)
    ratings = Ratings(users, items, values, SHAPE)
    problem = CompletionProblem.of(ratings, discipline, rank=rank, order="file", **options)
    arrays = problem.lay_out(ratings, 1, 1, 0)[1]
    flat = np.zeros(problem.size, np.float32)
    problem.start(flat, 0)
    for part in problem.factors(flat):
        part *= 3  # so that products count
    if problem.biases:
        for part in problem.parameters(flat)[2:]:
            part[:] = rng.normal(0, 0.3, len(part))
    return problem, arrays, flat


def launch(problem, arrays, flat, in_flight, visits):
    """The flat array after one launch."""
    launcher = CompletionLauncher(problem, arrays, StandIn(triton=True))
    launcher.flat.copy_(torch.from_numpy(flat))
    launcher.visit(visits, in_flight)
    return launcher, launcher.flat.numpy()


VISITS = Visits(0, N, N, 7, 0.3, 2.0, 0.2, together=32)


def in_file_order(n):
    return Visits(0, n, n, 0, 0.1, shuffled=False)


def twin_of(problem, arrays, flat, visits, group, programs):
    """The twin's flat array after these visits."""
    twin = Twin(problem, flat, arrays, problem.discipline == "atomic")
    twin.run(order_twin.rows(visits), order_twin.steps(visits), group, programs)
    return twin.flat()


EXPLICIT = [
    # discipline, in hand, rank and options; a tile of rank 20 holds 16 ratings at most, one of 90 holds 4
    ("atomic", 1, 20, {}),
    ("hogwild", 1, 20, {"penalty": "smoothed", "l2": 0.01}),
    ("hogwild", 6, 16, {"biases": False}),
    ("atomic", 33, 20, {"penalty": "smoothed", "l2": 0.01}),
    ("hogwild", 33, 33, {}),
    ("atomic", 9, 90, {"biases": False}),
    ("hogwild", 3, 1, {"l2": 0.0}),
]


@pytest.mark.parametrize(("discipline", "in_flight", "rank", "options"), EXPLICIT)
def test_kernel_steps_as_the_formulas_say(discipline, in_flight, rank, options):
    problem, arrays, flat = a_problem(discipline, rank, **options)
    launcher, found = launch(problem, arrays, flat, in_flight, VISITS)
    group, programs = launcher.grid(in_flight)
    assert in_flight // 2 < group * programs <= in_flight
    wanted = twin_of(problem, arrays, flat, VISITS, group, programs)
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-6)
    assert np.abs(found - flat).max() > 0.05


def test_one_rating_in_hand_is_the_serial_kernel_of_the_cpu():
    job = make_job(order="file", ratings=some_ratings(12))
    start, arrays = job.flat.copy(), {name: np.array(part) for name, part in job.data()._asdict().items()}
    run_epoch(job)
    for discipline in ("hogwild", "atomic"):
        problem = dataclasses.replace(job.problem, discipline=discipline)
        _, found = launch(problem, arrays, start, 1, in_file_order(12))
        np.testing.assert_allclose(found, job.flat, rtol=2e-5, atol=1e-6)
    assert np.abs(found - start).max() > 0.05


def test_losses_of_choices_are_refused():
    problem, arrays, _ = a_problem()
    with pytest.raises(InputError, match="^device cuda: loss bpr has no form for a GPU: train on the CPU$"):
        CompletionLauncher(dataclasses.replace(problem, loss="bpr"), arrays, StandIn())


@triton.jit
def places(factors, numbers, out, STRIDE: tl.constexpr, TILE: tl.constexpr, SIZE: tl.constexpr):
    at = completion.place(factors, tl.load(numbers + tl.arange(0, SIZE)), STRIDE, TILE)
    row = tl.arange(0, SIZE)[:, None] * TILE + tl.arange(0, TILE)[None, :]
    tl.store(out + row, at.to(tl.int64, bitcast=True))


def test_rows_may_lie_beyond_what_32_bits_count():
    numbers = torch.tensor([0, 3, 2_999_999, 2**31 - 1], dtype=torch.int32)
    out, factors = torch.zeros((4, 16), dtype=torch.int64), torch.zeros(1)
    places[(1,)](factors, numbers, out, 1024, 16, 4)
    wanted = factors.data_ptr() + 4 * (1024 * numbers.long()[:, None] + torch.arange(16))
    assert torch.equal(out, wanted)


def test_longest_step_is_that_of_the_most_popular():
    problem, arrays, _ = a_problem()
    most = max(np.bincount(arrays[side]).max() for side in ("users", "items"))
    assert most > N // 11 + 1
    assert CompletionLauncher(problem, arrays, StandIn()).longest_step() == N / most
