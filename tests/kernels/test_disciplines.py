"""With one worker every discipline is serial to the last bit; with more, round robin is serial with a delay."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from hogwild.problems.linear.kernel import DISCIPLINES
from tests.kernels.harness import (
    COMBINATIONS,
    CONSTANT,
    FALLING,
    against_twin,
    awkward_rows,
    bits,
    job_and_rows,
    rows_for,
    run_epoch,
    work_alone,
)

PARALLEL = [name for name in DISCIPLINES if name != "serial"]
needs_jit = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="several workers only when compiled")


def every_combination(disciplines):
    """Each is a kernel to compile: the pairs that share a branch, for all but atomic write a row in one way."""
    pairs = {
        "hogwild": ["plain", "multi-class"],
        "atomic": ["elastic", "adagrad", "multi-class"],
        "aig": ["plain", "multi-class"],
        "locked": ["adagrad", "multi-class"],
        "round-robin": ["plain", "adagrad", "multi-class"],
        "tiered": ["elastic", "multi-class", "softmax"],
    }
    return [(discipline, name) for discipline in disciplines for name in pairs[discipline]]


def job_for(*posed, **options):
    return job_and_rows(*posed, **options)[0]


@pytest.mark.parametrize(("discipline", "combination"), every_combination(PARALLEL))
def test_one_worker_is_serial(discipline, combination):
    results = []
    step = CONSTANT if combination == "softmax" else FALLING  # with l2 factors from a table, as most runs have them
    for name in ("serial", discipline):
        job = job_for(combination, name)
        for epoch in range(2):
            run_epoch(job, epoch, step)
        results.append(bits(job))
    assert results[0] == results[1]


@pytest.mark.parametrize("discipline", DISCIPLINES)
def test_resumed_in_the_middle_of_an_epoch(discipline):
    whole, parts = (job_for("multi-class", discipline) for _ in range(2))
    run_epoch(whole, 1, FALLING)
    assert parts.order.n_chunks == 4
    for start, end in ((0, 1), (1, 1), (1, 3), (3, None)):
        run_epoch(parts, 1, FALLING, start, end)
    assert bits(parts) == bits(whole)


# --- round robin ---


@needs_jit
@pytest.mark.parametrize("workers", [2, 5])
@pytest.mark.parametrize("combination", ["plain", "adagrad", "multi-class"])
def test_round_robin_is_serial_with_a_delay(combination, workers):
    """Row t sees the updates of rows up to t - W and no others (Langford, Smola, Zinkevich 2009)."""
    rows = rows_for(combination, 300)
    job = against_twin(rows, FALLING, discipline="round-robin", workers=workers, **COMBINATIONS[combination][1])
    assert job.done() == (len(rows), rows.nnz)


@needs_jit
@pytest.mark.parametrize("n", [1, 3, 65])
def test_round_robin_with_few_rows(n):
    rows = awkward_rows("epsilon-insensitive", n=n)
    against_twin(rows, FALLING, discipline="round-robin", workers=4, loss="epsilon-insensitive")


@np.errstate(over="ignore")
@pytest.mark.parametrize("discipline", DISCIPLINES)
def test_told_to_stop_before_the_first_row(discipline):
    job = job_for("multi-class", discipline)
    before = bits(job)
    job.begin_epoch(0, 2)
    job.stop()
    work_alone(job, start=2)
    assert job.done() == (0, 0)
    assert job.problem.position(job.control, job.order) == 2
    assert bits(job) == before


@np.errstate(over="ignore")
@pytest.mark.parametrize(  # tiered ones have one of their own
    ("discipline", "combination"), every_combination(["hogwild", "atomic", "aig"])
)
def test_intercept_paid_in_instalments(discipline, combination):
    """One of several lock-free workers keeps what it owes for a few rows, and sees its own debt."""
    serial, job = job_for(combination, "serial"), job_for(combination, discipline, workers=2)
    run_epoch(serial, 0, FALLING)
    job.begin_epoch(0, 0)
    work_alone(job, step=FALLING)
    np.testing.assert_allclose(job.flat, serial.flat, rtol=1e-4, atol=1e-5)
    assert job.done() == serial.done()
