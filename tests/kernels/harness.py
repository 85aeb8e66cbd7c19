"""Data with every awkward kind of row, and epochs of a kernel run by hand, next to their slow twin."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from numba import njit

from hogwild.config import TrainConfig
from hogwild.data.order import Order
from hogwild.data.rows.container import Rows
from hogwild.exchanges import make_exchange
from hogwild.hosts.job import Task
from hogwild.kernels.control import ABORT, LAST, TURN
from hogwild.kernels.options import JIT
from hogwild.kernels.tiers import FLOATS
from hogwild.methods import LABEL_LOSSES
from hogwild.problems.linear.kernel import BEGUN
from hogwild.problems.linear.problem import LinearProblem
from hogwild.training.workers import job_of
from tests import reference

CONSTANT, FALLING = (0.05, 1.0, 0.0), (0.3, 5.0, 0.4)
PENALTIES = {"none": {}, "l2": {"l2": 0.02}, "elastic": {"l1": 0.01, "l2": 0.02}}
# name: classes and options; between them every penalty, AdaGrad or not, one margin or several
COMBINATIONS = {
    "plain": (2, {"loss": "epsilon-insensitive"}),
    "elastic": (2, {"loss": "log", "normalize": "l2", **PENALTIES["elastic"]}),
    "adagrad": (2, {"loss": "log", "adagrad": True, "schedule": "constant", **PENALTIES["l2"]}),
    "multi-class": (3, {"loss": "hinge"}),
    "softmax": (3, {"loss": "softmax", **PENALTIES["l2"]}),
}
LENGTHS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 17)  # 4k + r entries, and none


def from_python(helper):
    """A kernel that only calls ``helper``, which Python cannot."""
    return njit(**JIT | {"cache": False})(lambda *arguments: helper(*arguments))


def awkward_rows(loss="log", classes=2, n=83, width=37, weights=False, seed=0):
    """Rows of all small lengths, with zeros stored, features in (nearly) every row, in one row, and in none."""
    rng = np.random.default_rng(seed)
    indices, values = [], []
    for i in range(n):
        u = np.sort(rng.choice(np.arange(1, width - 6), size=LENGTHS[i % len(LENGTHS)], replace=False))
        if len(u):
            u[0] = 0  # in every row that has any
        if i == n - 1:
            u = np.append(u, width - 3)  # a feature of one row; the last two have none
        x = rng.normal(size=len(u)) / 2
        x[rng.random(len(u)) < 0.1] = 0.0
        indices.append(u)
        values.append(x)
    indptr = np.concatenate(([0], np.cumsum([len(u) for u in indices])))
    if loss in LABEL_LOSSES:
        targets = np.array([3.0, -1.5, 7.0, 0.25, 5.0])[rng.integers(classes, size=n)]
    else:
        targets = rng.poisson(2, size=n) if loss == "poisson" else rng.normal(size=n)
    row_weights = np.where(rng.random(n) < 0.2, 0.0, rng.random(n) + 0.1) if weights else None
    return Rows(indptr, np.concatenate(indices), np.concatenate(values), targets, width, row_weights)


def make_job(
    rows, discipline="serial", workers=1, order=None, seed=0, cache_bytes=2 << 20, start=True, page=FLOATS, **options
):
    """A job on these rows, its parameters drawn at random (``start``) or zero; ``options`` are TrainConfig's."""
    config = TrainConfig(discipline=discipline, **{"l2": 0.0} | options)
    problem = LinearProblem.of(config, rows, discipline, cache_bytes)
    problem = replace(problem, passive="none", page=page)  # the twin takes plain steps
    order = order or Order(len(rows), 1, True)
    arrays = problem.row_arrays(rows, None)
    job = job_of(problem, order, seed, workers, rows, arrays, shared=False, exchange=make_exchange(config.exchange))
    if start:
        rng, flat = np.random.default_rng(1), np.zeros_like(job.flat)
        for part, spread in zip(problem.parameters(flat), (rng.normal, rng.normal, rng.random, rng.random)):
            matrix = part.reshape(-1, problem.stride)
            matrix[:, : problem.classes] = spread(size=(len(matrix), problem.classes)) / 2
        job.restore(flat)  # which is by rank where the discipline is tiered
    return job


def rows_for(combination, n=200):
    classes, options = COMBINATIONS[combination]
    return awkward_rows(options["loss"], classes, n=n, weights=combination in ("elastic", "softmax"))


def job_and_rows(combination, discipline, workers=1, n=200, **more):
    rows = rows_for(combination, n)
    return make_job(rows, discipline, workers, **COMBINATIONS[combination][1] | more), rows


@dataclass(frozen=True)
class Until(Order):
    """The same order, cut short at chunk ``end``, as if workers were told to stop there."""

    end: int = 0

    @property
    def n_chunks(self):
        return self.end


@np.errstate(all="ignore")  # without the JIT, NumPy's scalars warn where machine numbers just overflow
def run_epoch(job, epoch=0, step=CONSTANT, start=0, end=None, meanwhile=None):
    """One epoch, or its chunks from ``start`` to ``end``, by all the job's workers: threads if there are several.

    ``meanwhile`` is called, without arguments, once the threads run.
    """
    whole = job.order
    job.begin_epoch(epoch, start)
    if end is not None:
        job.order = Until(whole.n_rows, whole.block, whole.shuffled, end=end)
        job.control[LAST] = end * whole.chunk  # round robin looks here

    def work(worker):
        try:
            job.work(job.shared(), job.scratch(), job.data(), Task(epoch, start, step), worker)
        except BaseException:
            job.control[ABORT] = 1  # or the others would wait for ever
            raise

    try:
        if job.workers == 1 and meanwhile is None:
            work(0)
        else:
            _in_threads(job, work, meanwhile)
    finally:
        job.order = whole


def work_alone(job, worker=0, start=0, step=CONSTANT):
    """One worker, in an epoch that has begun; the others are never heard of."""
    job.work(job.shared(), job.scratch(), job.data(), Task(0, start, step), worker)


def few_a_call(job, step, limit=7):
    """Begin an epoch; return what does so many of its examples at each call, and how many."""
    job.begin_epoch(0, 0)
    part = job.part(Task(0, 0, step), 0, limit)
    return job.problem.prepare(job.shared(), job.scratch(), job.data(), part, step)


def gives_up(job):
    """Who waits for a lock or a turn when the run is lost ends, and has written nothing."""
    job.begin_epoch(0, 0)
    job.state["locks"][:] = job.control[TURN] = job.control[ABORT] = 1
    before = job.flat.copy()
    work_alone(job)
    np.testing.assert_array_equal(job.flat, before)


def _in_threads(job, work, meanwhile):
    job.compile()  # or the threads would all do so
    gate = threading.Barrier(job.workers)

    def begin(worker):
        gate.wait()
        work(worker)

    with ThreadPoolExecutor(job.workers) as pool:
        running = [pool.submit(begin, worker) for worker in range(job.workers)]
        if meanwhile is not None:
            meanwhile()
        for future in running:
            future.result()


@np.errstate(all="ignore")
def interleave(job, epoch=0, step=CONSTANT, seed=0, longest=8, stops=()):
    """One epoch by all workers in this one thread: whoever is drawn goes on for up to ``longest`` rows.

    Seeded, so the same every time. ``stops``: workers that are never heard of again after their first turn.
    """
    job.begin_epoch(epoch, 0)
    rng, scratches = np.random.default_rng(seed), [job.scratch() for _ in range(job.workers)]
    shared, data, running = job.shared(), job.data(), list(range(job.workers))
    turns = {
        (worker, limit): job.problem.prepare(
            shared, scratches[worker], data, job.part(Task(epoch, 0, step), worker, limit), step
        )
        for worker in running
        for limit in range(1, longest + 1)
    }
    while running:
        worker, limit = int(rng.choice(running)), int(rng.integers(1, longest + 1))
        turns[worker, limit]()
        if worker in stops or not scratches[worker].state[BEGUN]:
            running.remove(worker)


def bits(job):
    """The parameters in the user's numbering, to be compared bit by bit."""
    return job.export().view(np.int32).tolist()


def twin_of(job, rows, dtype=np.float32):
    """The slow twin at the job's present parameters."""
    problem, arrays = job.problem, job.local
    parts = [part.reshape(-1, problem.stride)[:, : problem.classes] for part in problem.parameters(job.export())]
    if problem.classes == 1:
        parts = [part[:, 0] for part in parts]
    w, b, w_squares, b_squares = parts
    squares = (w_squares, b_squares[0]) if problem.adagrad else None
    X = [(rows.indices[i:j].astype(int), rows.values[i:j].astype(dtype)) for i, j in zip(rows.begin, rows.end)]
    return reference.Sgd(
        X,
        job.problem.encode(rows)[0],
        w,
        b[0],
        problem.loss,
        problem.loss_param,
        problem.l1,
        problem.l2,
        problem.classes,
        problem.adagrad,
        problem.intercept,
        arrays["scales"] if problem.normalize != "none" else None,
        None if rows.weights is None else rows.weights / rows.weights.mean(dtype=np.float64),
        squares,
        dtype,
    )


def sequence(job, epoch):
    """All rows of an epoch as one worker takes them."""
    order = job.order
    chunks = reference.chunks(order.n_rows, order.block, order.shuffled, job.seed, epoch)
    return [row for rows in chunks for row in rows]


def assert_equal_to_twin(job, twin, rtol=0.0):
    """Weights and intercept; to the last bit unless ``rtol`` says otherwise."""
    coef, intercept = job.problem.solution(job.export())
    close = {"rtol": rtol, "atol": rtol, "strict": rtol == 0.0}
    np.testing.assert_allclose(coef, twin.w.T, **close)
    np.testing.assert_allclose(intercept, np.atleast_1d(twin.b), **close)
    if job.problem.adagrad and rtol == 0.0:
        squares = job.problem.parameters(job.export()).coef_squares.reshape(-1, job.problem.stride)
        np.testing.assert_array_equal(squares[:, : job.problem.classes], twin.w_squares.reshape(len(squares), -1))


def against_twin(rows, step=CONSTANT, epochs=2, dtype=np.float32, rtol=0.0, **options):
    """Train on ``rows`` and let the twin follow; returns the job. ``options`` are ``make_job``'s."""
    job = make_job(rows, **options)
    twin = twin_of(job, rows, dtype)
    before = job.flat.copy()
    for epoch in range(epochs):
        run_epoch(job, epoch, step)
        twin.epoch(sequence(job, epoch), step, epoch * len(rows), job.workers)
    assert_equal_to_twin(job, twin, rtol)
    assert np.all(np.isfinite(job.flat))
    assert np.any(job.flat != before)
    return job
