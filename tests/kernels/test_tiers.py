"""Frequency-tiered replicas: tiers and merges against their slow twins, sums that lose nothing, steps that stay stable.

All workers are virtual, in one thread and in a seeded random interleaving, so that every sum is exact and repeatable;
what only a race can lose is not seen here.
"""

from __future__ import annotations

import dataclasses

import numba
import numpy as np
import pytest

from hogwild.config import TrainConfig
from hogwild.data.rows.container import Rows
from hogwild.data.rows.degrees import Totals, facts_of
from hogwild.hosts.memory import PAGE, can_overlay
from hogwild.kernels.control import LINE, MERGED, ROWS, WORKERS
from hogwild.kernels.tiers import QUANTUM, merge_due
from hogwild.problems.linear import tiers as module
from hogwild.problems.linear.coordinates import Numbering
from hogwild.problems.linear.kernel import Plan
from hogwild.problems.linear.objective import Objective
from hogwild.problems.linear.problem import LinearProblem
from hogwild.problems.linear.tiers import choose, plan_tiers
from tests import reference
from tests.kernels.harness import (
    FALLING,
    awkward_rows,
    bits,
    from_python,
    interleave,
    make_job,
    run_epoch,
)

LINE_FLOATS = 16
MERGE = from_python(merge_due)
FAR = 1e20  # a target so far that epsilon-insensitive rows have slope one and no curvature: deltas are added whole
WHOLE = {"loss": "epsilon-insensitive", "intercept": False}
needs_overlay = pytest.mark.skipif(not can_overlay(), reason="this system does not map memory twice")
needs_jit = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="many rows: only when compiled")


@pytest.fixture
def often(monkeypatch):
    """Merges every few rows, so that small sets see many."""
    for name, value in {"FEWEST": 1, "MOST": 1, "RARE": 0, "PER_EPOCH": 8}.items():
        monkeypatch.setattr(module, name, value)


def zipf_rows(n=300, width=100, seed=0, counts=False, targets=None, longest=9):
    """Rows of few to ``longest`` features, low numbers mostly, in an order that ranks must change; some have none."""
    rng = np.random.default_rng(seed)
    popularity = rng.permutation(1.0 / np.arange(1, width + 1))
    popularity[rng.random(width) < 0.1] *= width > 1e9 or width < 10  # features that no row holds
    holders = np.flatnonzero(popularity)
    lengths = rng.integers(0, min(longest, len(holders)) + 1, size=n)
    chances = popularity[holders] / popularity[holders].sum()
    indices = [np.sort(rng.choice(holders, size=k, replace=False, p=chances)) for k in lengths]
    values = rng.integers(1, 5, lengths.sum()) * (1 if counts else 0.25)
    targets = np.full(n, FAR) if targets is None else targets
    return Rows(np.append(0, np.cumsum(lengths)), np.concatenate(indices), values, targets, width)


def sums(rows):
    """What every feature's values add up to."""
    return np.bincount(rows.indices, weights=rows.values, minlength=rows.width)


def coef(job):
    return job.problem.solution(job.export())[0]


# --- which tiers there are ---


def planned(rows, workers=4, **options):
    config = TrainConfig(**{"discipline": "tiered", "l2": 0.0} | options)
    problem = LinearProblem.of(config, rows, "tiered")
    return plan_tiers(problem, rows, problem.row_arrays(rows, config.class_weight), workers)


@pytest.mark.parametrize("workers", [1, 16])
@pytest.mark.parametrize("width", [1, 17, 3000])
def test_tiers_hold_every_feature_once(width, workers):
    rows = zipf_rows(2000, width)
    tiers = planned(rows, workers, loss="squared-error")
    assert sorted(tiers.features) == list(range(width))
    degrees = np.maximum(rows.degrees(), 1)[tiers.features]
    assert np.all(np.diff(degrees) <= 0)
    assert np.all(np.diff(tiers.bounds) > 0)
    assert (tiers.bounds[0], tiers.bounds[-1]) == (0, width)
    assert np.all(tiers.bounds[:-1] % LINE_FLOATS == 0)
    for first, end in zip(tiers.bounds[:-2], tiers.bounds[1:-1]):
        assert degrees[end] < degrees[first] / 2 or end == first + LINE_FLOATS
        assert degrees[end - LINE_FLOATS] >= degrees[first] / 2  # it is rounded up to a cache line, no more
    assert np.all(np.diff(tiers.intervals) >= 0)
    assert tiers.intervals.min() >= (QUANTUM if workers > 1 else module.NEVER)
    for t, (first, end) in enumerate(zip(tiers.bounds, tiers.bounds[1:])):
        assert tiers.tops[t] == max(tiers.rates[first:end].max(), tiers.tops[-1] if t == 0 else 0)


@pytest.mark.parametrize("options", [{"normalize": "l2"}, {"intercept": False, "class_weight": "balanced"}])
def test_rates_against_the_twin(options):
    rng = np.random.default_rng(0)
    weights = np.where(rng.random(400) < 0.3, 0.0, rng.random(400))
    rows = zipf_rows(400, 150, targets=np.sign(rng.normal(size=400) + 0.5), longest=40)
    rows = Rows.from_scipy(rows.to_scipy()[0], rows.targets, weights)
    problem = LinearProblem.of(TrainConfig(**options), rows, "tiered")
    arrays = problem.row_arrays(rows, options.get("class_weight"))
    tiers = plan_tiers(problem, rows, arrays, 4)
    X = rows.to_scipy()[0].toarray()[:, tiers.features]
    X *= reference.row_scales(X, options.get("normalize", "none"))[:, None]
    tier = np.repeat(np.arange(len(tiers.intervals)), np.diff(tiers.bounds))
    assert tier[-1] >= module.SPAN  # or there would be one group only
    s, share = arrays["weights"].astype(np.float64), problem.intercept
    seen = (X != 0).sum(axis=0) >= module.OFTEN
    assert 50 < seen.sum() < 150
    v, size = np.sqrt(X.mean(axis=0)), np.abs(X)
    expected = reference.tier_rates(X, s, tier // module.SPAN)
    for j in np.flatnonzero(tier < module.SPAN):
        expected[j] += share * (s * size[:, j]).mean() / v[j] if v[j] else 0.0
    np.testing.assert_allclose(tiers.rates[seen], expected[seen], rtol=1e-5)
    if not share:
        return
    own = tier < module.SPAN
    assert tiers.tops[-1] == pytest.approx((s * (size[:, own] @ v[own] + share)).mean(), rel=1e-5)


def test_a_sample_judges_features_by_their_known_degrees(monkeypatch):
    """Who is often in the sample by chance is not taken for popular, and who is in no sampled row not for harmless."""
    rows = zipf_rows(4000, 1000, targets=np.arange(4000) % 2)
    whole = planned(rows, intercept=False)
    monkeypatch.setattr(module, "SAMPLED", rows.nnz // 50)
    some = planned(rows, intercept=False)
    assert some.tops.max() < 1.5 * whole.tops.max()
    rare = (rows.degrees()[whole.features] >= 8) & (rows.degrees()[whole.features] < 32)
    assert rare.sum() > 100
    assert 0.6 < np.median(some.rates[rare] / whole.rates[rare]) < 1.6


def test_rates_are_of_the_rows_of_this_machine():
    """What is rare on all machines may be in every row of one, and the other way round."""
    parts = [zipf_rows(300, 60, seed=seed, targets=np.arange(300) % 2) for seed in range(4)]
    about = [facts_of(part, np.array([0.0, 1.0], np.float32), 0.0, str(k)) for k, part in enumerate(parts)]
    totals = Totals(about, np.sum([part.degrees() for part in parts], axis=0))
    alone, given = parts[0], totals.given_to(parts[0])
    many = np.flatnonzero((alone.degrees() >= 16) & (alone.degrees() > 2 * totals.degrees / len(parts)))
    assert len(many) >= 3
    rates = []
    for rows in (alone, given):
        tiers, found = planned(rows, intercept=False), np.empty(60)
        found[tiers.features] = tiers.rates
        rates.append(found)
    assert np.all(rates[1][many] > 0.5 * rates[0][many])
    assert np.all(rates[1][alone.degrees() == 0] == 0)


def test_which_features_are_private(monkeypatch):
    """Those of at least ``RARE`` rows, to the end of a page; no more than caches hold."""
    rows = ranked_rows(n=4000, targets=np.arange(4000) % 2)
    problem = LinearProblem.of(TrainConfig(discipline="tiered"), rows, "tiered")

    def head(page=256, **fields):
        return module.copied(dataclasses.replace(problem, page=page, **fields), rows)[1]

    assert head(LINE_FLOATS) is None
    popular = int((rows.degrees() >= module.RARE).sum())
    assert 256 < popular < 1024
    assert head() == -(-popular // 256) * 256
    assert head(8192) == rows.width
    monkeypatch.setattr(module, "CACHED", 16)
    assert head() == 256
    many = dataclasses.replace(problem, labels=tuple(map(float, range(40))), page=256)  # 48 weights a feature
    features = module.copied(many, rows)[1]
    assert many.private(features)[0] == (0, features * many.stride)


def even_rows(n, width, nnz):
    """Rows of ``nnz`` ones each, one in each stratum of the features."""
    stratum = width // nnz
    indices = np.arange(nnz) * stratum + np.random.default_rng(0).integers(0, stratum, (n, nnz))
    return Rows(np.arange(n + 1) * nnz, indices.ravel(), np.ones(n * nnz), np.arange(n) % 2, width)


def chosen(n, width, nnz, workers=16):
    rows = even_rows(n, width, nnz)
    problem = LinearProblem.of(TrainConfig(), rows, "tiered")
    return choose(problem, rows, problem.row_arrays(rows, None), workers)


@needs_jit
def test_auto_weighs_contention_against_merging():
    """Rows of one feature hardly wait; rows of the same few features wait for every one of them."""
    tiers, why = chosen(200_000, 1 << 16, 1)
    assert tiers is None
    assert why.startswith("only")
    tiers, why = chosen(20_000, 200, 50)
    assert tiers is not None
    assert "cost less" in why


# --- merges ---


def replica_of(job, worker, scratch):
    """``(replica, private parameters, plan)`` of a worker, for the kernels."""
    p, shared = job.problem, job.shared().parameters
    replica = scratch.replica._replace(coef=shared.coef, intercept=shared.intercept)
    given = {"blocks": job.state["blocks"], "step": FALLING, "l1": p.l1, "workers": job.workers, "stride": p.stride}
    plan = Plan(**dict.fromkeys(Plan._fields, 0) | given | {"worker": worker})
    return replica, p.parameters(scratch.private), plan


@pytest.mark.parametrize(("workers", "strength"), [(1, 20.0), (3, 0.3), (16, 20.0)])
@pytest.mark.parametrize(
    ("classes", "options"), [(2, {"loss": "log"}), (2, {"loss": "log", "l1": 0.01}), (3, {"loss": "hinge"})], ids=str
)
def test_merge_against_the_twin(classes, options, workers, strength):
    job = make_job(awkward_rows(options["loss"], classes, n=200), "tiered", workers, **options)
    p, rng, scratch = job.problem, np.random.default_rng(3), job.scratch()
    shared, base, mine = job.flat.copy(), *rng.normal(size=(2, p.size)).astype(np.float32)  # by rank
    if p.l1:
        mine[rng.random(p.size) < 0.2] = 0.0  # as the penalty makes them
    scratch.private[:] = mine
    p.per_feature(scratch.private)[0][job.tiers.features] = p.per_feature(mine)[0]
    scratch.replica.base_coef[:], scratch.replica.base_intercept[:] = p.parameters(base)[:2]
    replica, private, plan = replica_of(job, 0, scratch)
    replica.due[:] = 1  # as at the end of an epoch
    MERGE(job.tiers, replica, private, job.control, plan, strength, 10)

    x = strength * np.repeat(job.tiers.rates.astype(np.float64), p.stride), strength * job.tiers.tops[-1]
    own = p.per_feature(scratch.private)[0][job.tiers.features].ravel(), private.intercept
    bases = replica.base_coef, replica.base_intercept
    for k, after in enumerate(p.parameters(job.flat)[:2]):  # the weights, then the intercept
        before = [p.parameters(flat.astype(np.float64))[k] for flat in (shared, base, mine)]
        expected = reference.merged(*before, x[k], workers, p.l1)
        np.testing.assert_allclose(after, expected, rtol=1e-5, atol=2e-6)
        assert np.array_equal(after == 0, expected == 0)
        np.testing.assert_array_equal(after, bases[k])
        np.testing.assert_array_equal(after, own[k])
    assert job.control[WORKERS + MERGED] == p.width


def test_a_merge_that_is_not_due_changes_nothing():
    job = make_job(awkward_rows(n=200), "tiered", 2)
    scratch = job.scratch()
    replica, private, plan = replica_of(job, 1, scratch)
    scratch.private[:] = 3.0
    replica.due[:] = 5 + np.arange(len(replica.due))
    replica.limits[:] = 7.0
    before = bits(job)
    due = MERGE(job.tiers, replica, private, job.control, plan, 6.9, 4)
    assert due == (5, 7.0)
    assert bits(job) == before
    MERGE(job.tiers, replica, private, job.control, plan, 6.9, 5)  # now the first tier's time has come
    assert job.control[WORKERS + LINE + MERGED] == job.tiers.bounds[1]
    assert bits(job) != before
    assert (replica.rows[0], replica.grown[0], replica.due[0]) == (5, 6.9, job.tiers.intervals[0])
    before = bits(job)
    replica.due[:] = 1
    MERGE(job.tiers, replica, private, job.control, plan, 5.0, 5)  # nothing has been done since
    assert job.control[WORKERS + LINE + MERGED] == job.problem.width  # the other tiers'
    if len(job.tiers.intervals) == 1:
        assert bits(job) == before


# --- epochs of several workers: nothing is lost ---


@pytest.mark.parametrize(("workers", "width"), [(1, 17), (2, 1), (8, 100)])
@needs_jit
@pytest.mark.usefixtures("often")
def test_no_delta_is_lost(width, workers):
    """Whole numbers, so that sums are exact in any order; features in few rows wait for the end of the epoch."""
    rows = zipf_rows(700, width, counts=True)
    for seed in range(3):
        job = make_job(rows, "tiered", workers, start=False, **WHOLE)
        for epoch in range(2):
            interleave(job, epoch, (1.0, 1.0, 0.0), seed, longest=8 if seed else 100)
            assert coef(job).tolist() == ((epoch + 1) * sums(rows)).tolist()
            assert job.done() == (len(rows), rows.nnz)
    merges = job.control[WORKERS:].reshape(-1, LINE)[:, MERGED].sum() / width
    assert merges == 1 if workers == 1 else merges > workers  # more often than at the end


def ranked_rows(**options):
    """Rows of more features than fill a page, numbered by popularity."""
    rows = zipf_rows(width=5000, counts=True, longest=40, **options)
    return Numbering.by_popularity(rows).rows(rows)


@needs_jit
@needs_overlay
@pytest.mark.usefixtures("often")
def test_no_delta_is_lost_where_rare_weights_are_shared(monkeypatch):
    monkeypatch.setattr(module, "CACHED", 1)
    rows = ranked_rows(n=500)
    job = make_job(rows, "tiered", 3, start=False, page=PAGE, **WHOLE)
    assert (job.tiers.bounds[-1], job.numbering.size) == (PAGE, 0)
    for epoch in range(2):
        interleave(job, epoch, (1.0, 1.0, 0.0), seed=epoch)
        assert coef(job).tolist() == ((epoch + 1) * sums(rows)).tolist()
    assert job.control[WORKERS:].reshape(-1, LINE)[:, MERGED].sum() > 3 * PAGE


@needs_jit
@pytest.mark.usefixtures("often")
def test_a_worker_that_dies_takes_what_it_had_not_merged():
    n, longest = 1000, 8
    rows = Rows(
        np.arange(n + 1), np.zeros(n, int), np.full(n, 2.0), np.full(n, FAR), 1
    )  # ones have a kernel of their own
    for seed in range(5):
        job = make_job(rows, "tiered", 3, start=False, **WHOLE)
        interleave(job, 0, (1.0, 1.0, 0.0), seed, longest, stops=(1,))
        done = job.done()[0]
        assert n - job.order.chunk <= done < n
        assert job.control[WORKERS + LINE + ROWS] <= longest
        assert done - longest <= coef(job)[0] / 2 <= done


# --- one worker ---


@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")  # of the rates
def test_one_worker_is_serial_with_large_values():
    rng = np.random.default_rng(0)
    X = (rng.random((400, 12)) < 0.5) * rng.normal(size=(400, 12)) * 1e20
    rows = Rows.from_scipy(X.astype(np.float32), np.sign(X[:, 0] + X[:, 1]) + 1)
    rows = rows.select(np.flatnonzero(rows.targets != 1))
    jobs = [make_job(rows, name, start=False) for name in ("serial", "tiered")]
    for job in jobs:
        for epoch in range(2):
            run_epoch(job, epoch, (1e-3, 1.0, 0.0))
    assert np.isfinite(jobs[0].flat).all()
    assert bits(jobs[0]) == bits(jobs[1])


# --- it diverges nowhere where one worker does not ---


@pytest.fixture
def seldom(monkeypatch):
    """Merges as far apart as any machine may find them worth."""
    monkeypatch.setattr(module, "FEWEST", module.MOST)


def objective(job, rows):
    p, weights = job.problem, job.local["weights"]
    judge = Objective(
        rows,
        p.loss,
        p.loss_param,
        l1=p.l1,
        l2=p.l2,
        weights=weights if weights.size else None,
        normalize=p.normalize,
        labels=p.labels,
        width=p.width,
    )
    return judge.evaluate(*p.solution(job.export()))["objective"]


def trained(rows, workers, step, seeds=3, **options):
    """Median over seeds of the objective after the last epoch."""
    found = []
    for seed in range(seeds):
        job = make_job(rows, "tiered" if workers > 1 else "serial", workers, seed=seed, start=False, **options)
        for epoch in range(5):
            at = (step * 0.9**epoch, 1.0, 0.0)
            interleave(job, epoch, at, seed) if workers > 1 else run_epoch(job, epoch, at)
        found.append(objective(job, rows))
    return float(np.median(found))


def count_rows(n=6000, width=30):
    """Labels are of a linear model of the columns, each scaled to one."""
    rng = np.random.default_rng(0)
    X = rng.poisson(rng.gamma(0.5, 10.0, size=width), size=(n, width))
    margins = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9) @ rng.normal(size=width)
    noise = 0.5 * margins.std() * rng.normal(size=n)
    return Rows.from_scipy(X.astype(np.float32), np.sign(margins + noise))


@needs_jit
@pytest.mark.usefixtures("seldom")
def test_stable_where_plain_sums_blow_up(monkeypatch):
    """Counts have a mean far from zero, and so a curvature along it that caps what is learnt across it."""
    rows, step = count_rows(), 1e-3
    serial = trained(rows, 1, step)
    assert trained(rows, 16, step) < 1.25 * serial
    monkeypatch.setattr(module, "LARGEST", 0.0)  # rates, so that nothing caps what is added
    monkeypatch.setattr(module, "PATIENCE", (1e30, 1e30))
    assert trained(rows, 16, step, seeds=1) > 3 * serial


@needs_jit
@pytest.mark.usefixtures("seldom")
def test_two_common_classes_among_many_rare_ones():
    rng, n, classes = np.random.default_rng(0), 8_000, 32
    X = (rng.random((n, 12)) < 0.5).astype(np.float32)
    X[:, 0] = 1
    targets = (X @ np.linspace(-1, 1, 12) > 0) ^ (rng.random(n) < 0.2)
    targets = np.where(np.arange(n) < classes, np.arange(n), targets)
    rows = Rows.from_scipy(X, targets.astype(np.float32))
    assert trained(rows, 16, 0.1, loss="softmax") < 2 * trained(rows, 1, 0.1, loss="softmax")
