"""Whether workers that share weights race for them or have private copies: the discipline ``auto``.

Under ``hogwild`` a row waits for weights on cache lines that another core has written last; under ``tiered`` workers
merge private copies instead. Which costs less depends on the data and on the machine, and no price of a cache line
would do: on one machine it was 10 to 25 ns where rows read many lines that are seldom written, as their misses overlap,
and 50 to 70 ns where all rows write the same few lines, which are taken away between a read and the next write. So both
are tried: the problem's own loop trains on a sample of the rows, with a thread on each core, once on one array and once
on private copies with their merges. It takes 10 to 100 milliseconds, once a run, and only where rows share so many
weights that copies could pay at all.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np

from hogwild.data.order import Order
from hogwild.data.rows.container import Rows, readonly
from hogwild.kernels.control import cells
from hogwild.kernels.tiers import FLOATS, QUANTUM, Tiers, as_tiers
from hogwild.machine import cpus_of, one_cpu_a_core, pin
from hogwild.problems.linear.kernel import Data
from hogwild.problems.linear.problem import LinearProblem, aligned
from hogwild.problems.linear.tiers import (
    CACHED,
    CHEAPEST,
    NEVER,
    Price,
    price_of,
    private_features,
    rank,
    shares,
    timed,
)
from hogwild.problems.protocol import OrderSlice, Shared

COPY_SECONDS = 2e-9  # what one weight costs when all are fetched or merged
# What a weight on a line that another core has written costs a row, for each worker that wants it: between the 4 of an
# AMD EPYC (Zen 5) and the 14 of an Intel Xeon (Emerald Rapids) on text, where both disciplines cannot be tried; and
# more than on any machine
TRANSFER_SECONDS, DEAREST = 8e-9, 6e-8
USUAL = 0.15  # step * curvature * mean squared length of a row, at steps that do well
BOLD = 4.0  # times that is the step of a trial: so merges are as frequent, at its begin, as in whole runs
# Epochs on copies, over racing ones, took 0.4 to 1.03 times what trials said: merges become rarer as rows are fitted
LATER = 1.1  # times as long may copies take in a trial
FEW = 1.0  # weights of a row on such lines, below which replicas do not pay
COPIED = 1 << 22  # most weights of which copies are tried
WORTH = 1 << 16  # least nonzeros of an epoch for which a trial pays
TRIED, FEWEST = 1 << 18, 1024  # nonzeros, and least rows, on which each thread tries a discipline, ...
ROUNDS, MOST = 3, 8  # ... so often, after a round that warms up; most rounds, if threads did not run side by side
PATIENT = 0.5  # seconds that a thread waits for the others, and that rounds take
CALLS = 4  # of a round, for equally many rows: the first also fetches copies, the third is timed amid the others' calls


def choose(
    problem: LinearProblem,
    rows: Rows,
    arrays: dict[str, np.ndarray],
    workers: int,
    price: Price | None = None,
    step: float | None = None,
) -> tuple[Tiers | None, str]:
    """Decide whether several workers use replicas: ``(tiers, why)``, or ``(None, why not)`` for plain ``hogwild``.

    If replicas could pay, both are tried. Where they cannot be, where a trial would take longer than many epochs of few
    rows or would copy very many weights, or with a given ``price`` of merges, the wait of a row under ``hogwild`` is
    compared with its share of the merges by usual prices. ``step * curvature`` is assumed to be ``USUAL / E ||x||^2``,
    but trials take the run's ``step`` if it is known.
    """
    n = len(rows)
    frequency = shares(problem, rows, arrays)
    head = private_features(problem, rows, frequency)
    common = np.where(frequency * n < 1.5, 0.0, frequency)[:head]  # a feature of one row is nobody else's
    foreign = _foreign(common, problem.stride, workers)
    why = f"{foreign:.1f} of the {rows.nnz / n:.1f} weights of a row lie on cache lines that another worker wrote last"
    if foreign < FEW:
        return None, f"only {why}"
    ranking, strength = rank(problem, rows, arrays, frequency, head), _strength(rows, arrays)
    waiting = foreign * max(problem.stride / FLOATS, 1) * workers  # times the price of a line, for each row

    def compared(price: Price, transfer: float) -> tuple[Tiers, bool]:
        tiers = timed(problem, rows, workers, price, ranking)
        merging = float((price[0] + price[1] * np.diff(tiers.bounds)) @ (1 / _between(tiers, strength, workers)))
        passes = 2 * len(common) * problem.stride * COPY_SECONDS * workers / n  # at the ends of the epoch
        return tiers, passes + merging < waiting * transfer

    usual = price is not None or rows.nnz < WORTH or len(common) * problem.stride > COPIED
    tiers, pays = compared(price or CHEAPEST, TRANSFER_SECONDS if usual else DEAREST)
    if pays and price is None:
        tiers, pays = compared(price_of(problem, len(common)), TRANSFER_SECONDS)
        steepest = max(abs(problem.slope(1.0) - problem.slope(0.0)), 0.25)  # the loss's curvature
        trial = None if usual else tried(problem, rows, arrays, tiers, step or BOLD * strength / steepest, workers)
        if trial is not None:
            faster = trial.copied(tiers, _between(tiers, strength, workers), n / workers) < LATER * trial.racing
            pays = faster or (pays and not trial.together)
    if not pays:
        return None, f"{why}, but merging private copies would cost more"
    return tiers, f"{why}; merging private copies costs less"


def _foreign(common: np.ndarray, stride: int, workers: int) -> float:
    """Weights of a row on lines that another worker has written last, by the share of the rows that hold each feature.

    A line counts if it is among the ``CACHED`` most popular: others would come from memory in any case.
    """
    firsts = np.arange(0, len(common), max(FLOATS // stride, 1))  # of the features of each cache line
    lines = np.add.reduceat(common, firsts) if len(common) else common
    return float(np.sort(lines)[::-1][:CACHED].sum()) * (workers - 1) / workers


def _strength(rows: Rows, arrays: dict[str, np.ndarray]) -> float:
    """The usual step times the loss's curvature."""
    if arrays["scales"].size:
        return USUAL
    part = rows.block(0, min(len(rows), 2000)).compact()
    return USUAL / max(float(np.square(part.values, dtype=np.float64).sum()) / len(part), 1e-30)


def _between(tiers: Tiers, strength: float, workers: int) -> np.ndarray:
    """Rows between two merges of each tier."""
    ripe = tiers.patience / np.maximum((workers - 1) * tiers.tops[:-1] * strength, 1e-12)
    return np.maximum(np.minimum(tiers.intervals, ripe), QUANTUM)


class Trial(NamedTuple):
    """What both disciplines take, in seconds of processor time of one worker."""

    racing: float  # a row on weights that all share; at least so long, if not ``together``
    copies: float  # a row on private copies, and merges of popular features
    fetching: float  # all copies, at the begin of an epoch
    merging: float  # all copies, at the end of an epoch
    rows: int  # that a thread did while it was timed
    together: bool  # whether the threads ran side by side, and not only some of the time

    def copied(self, tiers: Tiers, between: np.ndarray, rows: float) -> float:
        """Seconds of a row on private copies, in an epoch of so many rows of a worker."""
        seldom = between > self.rows  # of tiers whose merges were not timed
        times = 1 / rows + float(np.diff(tiers.bounds) @ (seldom / between)) / tiers.bounds[-1]
        return self.copies + self.fetching / rows + self.merging * times


def tried(
    problem: LinearProblem, rows: Rows, arrays: dict[str, np.ndarray], tiers: Tiers, step: float, workers: int
) -> Trial | None:
    """Try workers that race and workers with private copies on a sample of the rows, on this machine.

    Both run the loop of ``tiered``, so that no other is compiled: on one array and without merges, it does what
    ``hogwild`` does.

    Parameters
    ----------
    problem : LinearProblem
        Of discipline ``tiered``.
    rows : Rows
    arrays : dict
        Result of ``problem.row_arrays(rows)``.
    tiers : Tiers
    step : float
    workers : int
        There are as many threads, but no more than cores.

    Returns
    -------
    Trial, or None
        None with a single core.
    """
    cpus = cpus_of(min(workers, len(one_cpu_a_core())))
    if len(cpus) < 2:
        return None
    head = int(tiers.bounds[-1])
    data = _sample(rows, arrays, head if tiers.in_place else None, len(cpus))
    posed = dataclasses.replace(problem, width=head, intercept=0.0, delay=min(problem.delay, 1))
    sides = _Side(posed, data, step, len(cpus), None), _Side(posed, data, step, len(cpus), tiers)
    try:
        with ThreadPoolExecutor(len(cpus), thread_name_prefix="hogwild-trial") as pool:
            racing, copies = (_rounds(partial(side.run, pool, cpus)) for side in sides)
    except RuntimeError:  # too many threads
        return None
    row, fetching, merging = map(float, copies[0])
    return Trial(float(racing[0][0]), row, fetching, merging, sides[0].limit, racing[1])


def _rounds(run: Callable[[int], tuple[np.ndarray, bool]]) -> tuple[np.ndarray, bool]:
    """The median of rounds in which the threads ran side by side; without such, the longest one, and False.

    Threads that wait for each other less often take less time. On a busy machine it ends after ``PATIENT`` seconds.
    """
    run(0)
    valid: list[np.ndarray] = []
    others: list[np.ndarray] = []
    end = time.perf_counter() + PATIENT
    for epoch in range(1, MOST):
        seconds, together = run(epoch)
        (valid if together else others).append(seconds)
        if len(valid) == ROUNDS or time.perf_counter() > end:
            break
    return (np.median(valid, axis=0), True) if valid else (np.max(others, axis=0), False)


def _sample(rows: Rows, arrays: dict[str, np.ndarray], head: int | None, threads: int) -> Data:
    """The kernel's inputs for evenly spaced rows, of few all several times, with the first ``head`` features only."""
    ids = rows.spread(TRIED * threads)
    ids = np.resize(ids, max(TRIED * len(rows) // max(rows.nnz, 1), FEWEST) * threads)
    part = rows.select(ids).compact()
    begin = part.begin
    end = part.end
    indices = part.indices
    values = part.values
    if head is not None:
        kept = indices < head
        before = np.append(0, np.cumsum(kept))
        begin = before[begin]
        end = before[end]
        indices = indices[kept]
        values = values[kept]
    of_rows = [arrays[name][ids] if arrays[name].size else arrays[name] for name in ("targets", "weights", "scales")]
    return Data(*map(readonly, (begin, end, indices, values, *of_rows, arrays["rates"])))


class _Side:
    """Threads that train on the same rows, on one array, or with ``tiers`` on private copies."""

    def __init__(self, problem: LinearProblem, data: Data, step: float, threads: int, tiers: Tiers | None) -> None:
        self._problem = problem
        self._data = data
        self._order = Order(len(data.begin), 1, True)
        self._step = step, 1.0, 1.0 if problem.falling else 0.0
        self.limit = (len(data.begin) - threads * self._order.chunk) // (CALLS * threads)  # rows of each call
        flat = aligned(problem.size)
        control = np.zeros(cells(threads), np.int64)
        locks = np.zeros(1, np.int32)
        idle = as_tiers([], [0, 0], [NEVER], [NEVER], [1.0], [], [1.0, 1.0])  # of no features, and never merged
        self._shared = Shared(problem.parameters(flat), control, locks, tiers or idle)
        made = [problem.scratch(self._order, self._shared.tiers) for _ in range(threads)]
        self._scratch = made if tiers else [scratch._replace(private=flat) for scratch in made]

    def run(self, pool: ThreadPoolExecutor, cpus: list[int | None], epoch: int) -> tuple[np.ndarray, bool]:
        """Do an epoch.

        Returns
        -------
        array of float64, shape (3,)
            Seconds of processor time of a row, of fetching copies, and of merging them at the end, by one thread.
        bool
            Whether the threads ran side by side.
        """
        problem = self._problem
        order = self._order
        shared = self._shared
        threads = len(cpus)
        blocks = np.empty(order.n_blocks, np.int32)
        problem.shuffle(blocks, order, 0, epoch)
        problem.begin_epoch(shared.control, order, 0)
        gate = threading.Barrier(threads)

        def work(worker: int) -> tuple[list[float], list[tuple[float, int]]]:
            try:
                pin(cpus[worker])
                part = OrderSlice(order, blocks, 0, epoch, 0, worker, threads, self.limit)
                call = problem.prepare(shared, self._scratch[worker], self._data, part, self._step)
                clock, used = [], []
                for number in range(CALLS + 1):  # the last one finds few rows, and merges everything
                    if number == 1:
                        gate.wait(PATIENT)
                    clock.append(time.perf_counter())
                    start = time.thread_time()
                    rows = call()
                    used.append((time.thread_time() - start, rows))
                return clock, used
            except BaseException:
                gate.abort()
                raise

        clocks, used = zip(*pool.map(work, range(threads)))
        _, begun, timed, after, ended = zip(*clocks)
        together = max(begun) <= min(timed) and max(after) <= min(ended)
        (first, one), _, (third, some), _, (last, few) = np.mean(used, axis=0)
        row = third / max(some, 1)
        return np.maximum([row, first - one * row, last - few * row], 0.0), together
