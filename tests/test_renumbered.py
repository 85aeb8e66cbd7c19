"""Features numbered by popularity while workers train: the same bits with one worker, and everything else as before."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import hogwild
from hogwild import machine
from hogwild.config import TrainConfig
from hogwild.data.rows import degrees
from hogwild.data.rows.container import Rows
from hogwild.data.rows.store import open_store, save_store
from hogwild.errors import HogwildWarning, UsageError
from hogwild.kernels.tiers import PACK, place_of_rate
from hogwild.model_file import load_checkpoint
from hogwild.problems.linear import case, coordinates, problem
from hogwild.problems.linear.coordinates import Numbering
from hogwild.problems.linear.problem import LinearProblem
from tests.runs import QUIET, popular

WAYS = ("never", "always")


@pytest.mark.parametrize("many", [3, degrees.MANY])
def test_features_are_sorted_by_degree_and_ties_by_number(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(degrees, "MANY", many)
    rows = popular()
    features = degrees.by_popularity(rows)
    assert features.dtype == np.int32
    np.testing.assert_array_equal(features, np.argsort(-rows.degrees(), kind="stable"))


def test_rare_features_are_in_packs_of_one_degree() -> None:
    rows = popular(1500, 3000)
    ranks = Numbering.by_popularity(rows)
    degree, last = rows.degrees()[ranks.features], len(ranks.features) - 1
    assert 0 < ranks.popular < last
    packs = degree[ranks.popular : last].reshape(-1, PACK)
    for part in (degree[: ranks.popular], packs[:, 0]):
        assert np.all(np.diff(part) <= 0)
    rest = degree[: ranks.popular] < packs[0, 0]
    assert np.bincount(degree[: ranks.popular][rest]).max() < PACK
    problem = LinearProblem.of(TrainConfig(), rows, "serial")
    rates = problem.rates(rows)[ranks.features]
    packed = dataclasses.replace(problem.narrowed(last + 1), own_rates=ranks.popular).rates(ranks.rows(rows))
    assert len(packed) < len(rates) / 2
    places = [int(place_of_rate.py_func(u, ranks.popular)) for u in range(last + 1)]
    np.testing.assert_array_equal(packed[places], rates)


@pytest.mark.parametrize("degree", [[], [5], [1] * 63, [1] * 64, [7] + [1] * 130, [9000] * 70 + [3] * 400 + [1] * 90])
def test_packs_of_few_features(degree: list[int]) -> None:
    own = np.array(degree, dtype=np.int64)
    features, popular = coordinates.packed(np.arange(len(own)), own)
    assert sorted(features) == list(range(len(own)))
    assert (len(own) - popular) % PACK == 0
    packs = own[features][popular:].reshape(-1, PACK)
    assert np.all(packs == packs[:, :1])


def test_indices_become_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinates, "PIECE", 1000)  # the indices take several, the last one short
    rows = popular()
    ranks = Numbering.by_popularity(rows)
    np.testing.assert_array_equal(np.sort(ranks.features[:-1]), np.flatnonzero(rows.degrees()))
    assert rows.degrees()[ranks.features[-1]] == 0
    found = ranks.rows(rows)
    np.testing.assert_array_equal(ranks.features[found.indices], rows.indices)
    assert found.indices.dtype == np.int32
    assert not found.indices.flags.writeable
    rest, held = rows.split(0.3)
    assert np.shares_memory(ranks.rows(rest).indices, ranks.rows(held).indices)


def test_features_that_training_rows_lack_have_no_weight() -> None:
    """Those of test rows within the width have the weight zero, those beyond it are left out; so for rows held out."""
    rows = popular()
    rng = np.random.default_rng(1)
    test = Rows.from_scipy(
        sp.random_array((200, rows.width + 50), density=0.1, rng=rng), rng.integers(0, 2, 200) * 2 - 1
    )
    assert (rows.degrees()[test.indices[test.indices < rows.width]] == 0).any()
    options = QUIET | {"epochs": 3, "normalize": "l2"}
    for train, other in ((rows, test), popular().split(0.3)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HogwildWarning)
            plain, ranked = (hogwild.train(train, other, **options, renumber=way) for way in WAYS)
        for mine, theirs in zip(plain, ranked, strict=True):
            for name in ("objective", "test_loss", "test_auc"):
                assert mine[name] == theirs[name]


WIDE = {"width": 3000}  # more than a page of weights, and packs of rare features
AS_GIVEN: dict[str, Any] = {"scale_columns": False}  # columns that are scaled have rates of their own
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "no penalty": ({}, {"l2": 0.0}),
    "tiered": ({}, {"discipline": "tiered"}),
    "packed, l1": (WIDE, AS_GIVEN | {"l1": 1e-3}),
    "packed, softmax": (WIDE | {"classes": 3}, AS_GIVEN | {"loss": "softmax"}),
    "packed, tiered, l1": (WIDE, AS_GIVEN | {"discipline": "tiered", "l1": 1e-3, "schedule": "inverse"}),
}


@pytest.mark.parametrize("case", CASES)
def test_one_worker_gives_the_same_bits(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data, options = CASES[case]
    rows = popular(**data | (WIDE if "tiered" in case else {}))
    if "packed" in case:
        monkeypatch.setattr(problem, "TABLE_WIDTH", 0)
    plain = hogwild.train(rows, **QUIET | options, epochs=3, renumber="never")
    if "packed" in case:
        monkeypatch.setattr(machine, "l2_bytes", lambda: 500)
    ranked = hogwild.train(rows, **QUIET | options, epochs=3, renumber="always")
    for mine, other in zip(plain, ranked, strict=True):
        assert mine["objective"] == other["objective"]
    assert (ranked.problem.own_rates > 0) == ("packed" in case)
    np.testing.assert_array_equal(plain.model.coef_, ranked.model.coef_)
    np.testing.assert_array_equal(plain.model.intercept_, ranked.model.intercept_)
    assert np.any(plain.model.coef_)


@pytest.mark.parametrize("l1", [1e-3, 0.0])
def test_verdict_and_exact_steps_leave_out_what_no_row_holds(l1: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come to the same but for rounding."""
    rest, _ = popular(600, noise=1.0).split(0.3)  # not contiguous
    options = QUIET | {"epochs": 20, "step": 2.0**-9, "l1": l1, "l2": 1e-4}
    full = hogwild.train(rest, **options)
    expected = full.finish()
    monkeypatch.setattr("hogwild.problems.linear.case.MANY", 0)
    narrow = hogwild.train(rest, **options)
    found = narrow.finish()
    assert full.history[-1]["exact_seconds"] is not None
    assert narrow.history[-1]["objective"] == pytest.approx(full.history[-1]["objective"], rel=1e-3, abs=1e-6)
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-2, atol=1e-3)
    assert np.all(found.coef_[:, rest.degrees() == 0] == 0)


@pytest.mark.parametrize("begun", WAYS)
def test_a_checkpoint_is_in_the_users_numbering(begun: str, tmp_path: Path) -> None:
    rows, options = popular(), QUIET | {"adagrad": True, "checkpoint": tmp_path / "saved"}
    other = WAYS[1 - WAYS.index(begun)]
    first = hogwild.train(rows, **options, epochs=2, renumber=begun).finish()
    arrays, _ = load_checkpoint(tmp_path / "saved")
    np.testing.assert_array_equal(arrays["flat"][: rows.width], np.ravel(first.coef_))
    resumed = hogwild.train(rows, **options, epochs=4, renumber=other, resume=True).finish()
    whole = hogwild.train(rows, **QUIET, adagrad=True, epochs=4, renumber=begun).finish()
    np.testing.assert_array_equal(resumed.coef_, whole.coef_)


@pytest.mark.parametrize(("host", "discipline"), [("processes", "hogwild"), ("threads", "tiered"), ("", "tiered")])
def test_two_workers_are_as_good_as_one(
    host: str, discipline: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a host: on a system where workers copy all weights."""
    if not host:
        monkeypatch.setattr(case, "can_overlay", bool)
    rows, options = popular(3000, 3000), QUIET
    if host == "threads":  # rates are packed, and l1 leaves remainders
        monkeypatch.setattr(machine, "l2_bytes", lambda: 500)
        monkeypatch.setattr(problem, "TABLE_WIDTH", 0)
        options = options | {"l1": 1e-4}
    if host == "processes":
        rows = open_store(save_store(rows, tmp_path / "rows"))
    one = hogwild.train(rows, **options, epochs=4, renumber="never")
    two = hogwild.train(
        rows, **options | {"workers": 2, "host": host or "threads"}, discipline=discipline, epochs=4, renumber="always"
    )
    next(two)
    assert (two.problem.own_rates > 0) == (host == "threads")
    assert (two.engine.job.numbering.size > 0) == (not host)
    assert [*two][-1]["objective"] < 1.1 * [*one][-1]["objective"]
    assert np.all(two.model.coef_[:, -5:] == 0)  # the features of no row are the user's last


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"discipline": "aig"}, "discipline='aig' goes by the order of a row's features"),
        ({"exchange": "averaging"}, "replicas trade weights in the user's numbering"),
        ({"host": "simulator"}, "it is for the caches of real workers on a CPU"),
    ],
)
def test_what_cannot_be_renumbered(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=f"renumber='always': {reason}.*: leave renumber out"):
        TrainConfig(renumber="always", **options)
    assert TrainConfig(**options).renumber == "auto"


def test_auto_renumbers_what_outgrows_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = popular(1500, 304)

    def renumbers(cache: int, **options: Any) -> bool:
        monkeypatch.setattr(machine, "l2_bytes", lambda: cache)
        with hogwild.train(rows, **QUIET | options) as run:
            return bool(run.problem.width < rows.width)

    assert renumbers(500)
    assert not renumbers(1 << 20)
    assert not renumbers(500, discipline="aig")
    assert not renumbers(500, renumber="never")
    enough = 4 * rows.width // 4  # for weights alone
    assert not renumbers(enough, l2=0.0)
    assert renumbers(enough)
