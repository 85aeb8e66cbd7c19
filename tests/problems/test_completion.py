"""What the completion problem makes of ratings and options: units, layout, penalties, refusals, and that it learns."""

from __future__ import annotations

import numpy as np
import pytest

from hogwild.data.ratings.container import Ratings
from hogwild.errors import UsageError
from hogwild.problems.completion.problem import CompletionProblem
from hogwild.problems.linear.problem import aligned
from tests.kernels.completion_harness import SHAPE, make_job, run_epoch, some_ratings

# without the JIT, NumPy's scalars warn where machine numbers just overflow
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered")


def problem_of(ratings=None, discipline="serial", shape=SHAPE, **options):
    ratings = Ratings(*(some_ratings() if ratings is None else ratings), shape)
    return CompletionProblem.of(ratings, discipline, **options)


def predictions(job, ratings):
    users, items, _ = ratings
    p, q, b_u, b_i = job.problem.solution(job.flat)
    return job.problem.mean + b_u[users] + b_i[items] + np.einsum("ij,ij->i", p[users], q[items])


def test_any_scale_of_values_is_one_problem():
    users, items, values = some_ratings()
    values = np.round(values * 4) / 4  # so that the other scale is exact
    found = []
    for factor, shift in ((1.0, 0.0), (16.0, 8.0)):
        ratings = users, items, (values * factor + shift).astype(np.float32)
        job = make_job(ratings=ratings)
        for epoch in range(5):
            run_epoch(job, epoch)
        found.append((predictions(job, ratings) - shift) / factor)
    np.testing.assert_allclose(found[0], found[1], atol=1e-4)


def test_solution_is_in_the_users_units():
    ratings = some_ratings()
    job = make_job(ratings=ratings)
    run_epoch(job)
    problem, flat = job.problem, job.flat
    assert problem.mean == pytest.approx(ratings[2].mean())
    assert problem.scale == pytest.approx(ratings[2].std())
    p, q, b_u, b_i = problem.solution(flat)
    assert (p.shape, q.shape, b_u.shape, b_i.shape) == ((43, problem.rank), (37, problem.rank), (43,), (37,))
    own = problem.parameters(flat)
    u, i = 5, 7
    rows = own.users.reshape(43, -1)[u].astype(float), own.items.reshape(37, -1)[i].astype(float)
    inner = own.user_bias[u] + own.item_bias[i] + rows[0] @ rows[1]
    assert b_u[u] + b_i[i] + p[u] @ q[i] == pytest.approx(problem.scale * inner, rel=1e-5)
    factors, biases = problem.weights  # the penalty is the same in both units, but for the scale's square
    theirs = factors * (p[u] @ p[u]) + biases * b_u[u] ** 2
    assert theirs == pytest.approx(
        problem.scale**2 * problem.l2 * (rows[0] @ rows[0] + own.user_bias[u] ** 2), rel=1e-5
    )


def test_first_factors_are_seeded_and_rows_start_on_cache_lines():
    problem = problem_of(rank=20)
    first, again, other = (np.zeros(problem.size, np.float32) for _ in range(3))
    for flat, seed in ((first, 1), (again, 1), (other, 2)):
        problem.start(flat, seed)
    assert first.tobytes() == again.tobytes() != other.tobytes()
    p, _ = problem.factors(first)
    assert p.shape == (43, 20)
    assert problem.stride == 32
    assert 0.005 < p.std() < 0.2
    assert not any(part.any() for part in problem.parameters(first)[2:])
    plain = problem_of(rank=20, biases=False)
    flat = np.zeros(plain.size, np.float32)
    plain.start(flat, 1)  # the same, but for a direction that takes the place of biases
    for part, with_biases in zip(plain.factors(flat), problem.factors(first), strict=True):
        np.testing.assert_allclose(part - with_biases, np.eye(1, 20) * np.full((len(part), 1), 0.5), atol=1e-6)
    flat = aligned(problem.size)
    assert all(part.__array_interface__["data"][0] % 64 == 0 for part in problem.parameters(flat))


def test_one_value_and_implicit_feedback_have_no_scale():
    users, items, _ = some_ratings()
    same = np.full(600, 4, np.float32)
    assert (problem_of((users, items, same)).mean, problem_of((users, items, same)).scale) == (4.0, 1.0)
    assert (problem_of(loss="bpr").mean, problem_of(loss="log").scale) == (0.0, 1.0)


def test_rates_smooth_the_degree():
    users, items, values = some_ratings()
    degree = np.bincount(users, minlength=SHAPE[0])
    _, arrays = problem_of(penalty="smoothed").lay_out(Ratings(users, items, values, SHAPE), 1 << 20, 1, 0)
    np.testing.assert_allclose(arrays["user_rates"][:-1], 1 + 100 / degree[:-1], rtol=1e-6)  # as if 100 more
    assert np.isfinite(arrays["user_rates"]).all()  # of users without ratings too
    assert arrays["seen_marks"].size == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"discipline": "aig", "order": "blocks"}, "order blocks needs discipline .*; got aig"),
        ({"loss": "bpr", "order": "blocks"}, "order blocks does not go with loss bpr"),
        ({"workers": 30, "order": "blocks"}, "needs 60 users and items for 30 workers; got 43 and 37"),
    ],
)
def test_what_does_not_go_together_is_refused(options, message):
    with pytest.raises(UsageError, match=message):
        problem_of(**options)


def test_who_may_hold_what_others_wait_for():
    for discipline, order, holds in (
        ("hogwild", "shuffled", False),
        ("hogwild", "blocks", True),
        ("aig", "file", True),
        ("locked", "shuffled", True),
        ("atomic", "shuffled", False),
    ):
        assert problem_of(discipline=discipline, order=order).holds == holds
    assert problem_of(discipline="aig").locks == sum(SHAPE)
    assert problem_of(discipline="locked").locks == 1
