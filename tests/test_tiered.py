"""Training with frequency-tiered replicas: as good as serial, and everything a run keeps is in the user's numbering."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hogwild
from hogwild.errors import UsageError
from hogwild.model_file import load_checkpoint
from tests.runs import popular, stopped_inside

TIERED: dict[str, Any] = {"discipline": "tiered", "step": 0.1, "epochs": 6}


@pytest.mark.parametrize(
    ("data", "options", "host"),
    [({"classes": 3}, {"loss": "softmax"}, "threads"), ({"weighted": True}, {"l1": 1e-3}, "processes")],
)
def test_two_workers_are_as_good_as_one(
    pools: Callable, data: dict[str, Any], options: dict[str, Any], host: str
) -> None:
    found: dict[str, list[float]] = {"tiered": [], "serial": []}
    for seed in range(3):
        rows = popular(seed=seed, **data)
        for name, workers in (("tiered", 2), ("serial", 1)):
            pool = pools(host if name == "tiered" else "threads", workers)
            run = hogwild.train(rows, pool=pool, **TIERED | options | {"discipline": name, "seed": seed})
            last = list(run)[-1]
            assert (last["status"], last["updates"], last["workers"]) == ("ok", len(rows), workers)
            found[name].append(last["objective"])
            assert last["objective"] < 0.95 * run.history[0]["objective"]
    assert np.median(found["tiered"]) < 1.1 * np.median(found["serial"])


def test_l1_leaves_zeros(pools: Callable) -> None:
    rows = popular()
    found = {}
    for workers in (1, 2):
        model = hogwild.train(rows, pool=pools("threads", workers), l1=1e-2, **TIERED).finish()
        found[workers] = np.count_nonzero(model.coef_)
    assert found[1] < 0.7 * rows.width
    assert found[2] < 1.5 * found[1]


# ---- what is kept is in the user's numbering


def test_two_workers_stopped_inside_an_epoch_are_resumed_by_one(tmp_path: Path, pools: Callable) -> None:
    rows = popular()
    rows = rows.select(np.tile(np.arange(len(rows)), 100))
    options = TIERED | {"checkpoint": tmp_path, "epochs": 2, "step": 0.02}
    run = stopped_inside(lambda: hogwild.train(rows, pool=pools("processes", 2), **options), 1, 5000)
    assert 0 < run.history[-1]["updates"] < len(rows)
    flat = load_checkpoint(tmp_path)[0]["flat"]
    coef, intercept = run.problem.solution(flat)
    np.testing.assert_array_equal(np.atleast_2d(coef), run.model.coef_)
    np.testing.assert_array_equal(intercept, run.model.intercept_)
    again = hogwild.train(rows, pool=pools("threads", 1), resume=True, **options)
    np.testing.assert_array_equal(again.engine.job.export(), flat)
    last = next(again)
    assert (last["epoch"], last["updates"], last["workers"], last["status"]) == (2, len(rows), 1, "ok")
    assert last["objective"] < 1.05 * run.history[1]["objective"]


# ---- where the rows lie, who dies


def test_adagrad_has_no_private_copies() -> None:
    with pytest.raises(UsageError, match="adagrad keeps sums of squares in one array"):
        hogwild.train(popular(), adagrad=True, **TIERED)
    with hogwild.train(popular(), adagrad=True, workers=2, host="threads", step=0.1) as run:
        assert run.problem.discipline == "hogwild"


def test_more_workers_than_rows_of_a_chunk(pools: Callable) -> None:
    """One of the two finds nothing to do; it does not bring back what it fetched before the other's merges."""
    rows = list(hogwild.train(popular(60), pool=pools("threads", 2), **TIERED))
    assert [row["updates"] for row in rows[1:]] == [60] * 6
    assert rows[-1]["objective"] < 0.7
