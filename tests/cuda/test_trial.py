"""How many examples may be in flight: trials, and what comes of them in whole runs."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hogwild
from hogwild.cuda import streams
from hogwild.cuda.trial import most_in_flight
from hogwild.data.ratings.container import Ratings
from hogwild.data.rows.container import Rows
from hogwild.data.rows.source import open_data
from tests.cuda.standin import StandIn


@pytest.mark.parametrize(
    ("losses", "chosen"),
    [
        ({256: 0.5, 64: 0.49}, 256),  # as good as fewer
        ({256: 0.7, 64: 0.5, 16: 0.48}, 64),
        ({256: math.nan, 64: math.inf, 16: 1e30, 4: 0.5, 1: 0.5}, 4),
        ({256: 50.0, 64: 49.0, 16: 0.5, 4: 0.5}, 16),  # bad, and a quarter no better
        ({256: 1.002, 64: 1.001}, 256),  # at the optimum nothing is learned
        ({256: math.nan, 64: math.nan, 16: math.nan, 4: math.nan, 1: math.nan}, 1),
    ],
)
def test_the_largest_that_does_no_harm(losses, chosen):
    asked = []
    assert most_in_flight(lambda count: asked.append(count) or losses[count], 1.0, 256) == chosen
    assert asked == [*losses]


def dense_rows(task, n=2000, width=20, seed=0):
    """Features that most rows have in common, so that few rows may be in hand together."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, width)) / np.sqrt(width) + (np.arange(width) < 3) * 0.7
    margins = X @ rng.normal(size=width)
    y = margins + 0.1 * rng.normal(size=n) if task == "regress" else np.where(margins > np.median(margins), 1.0, -1.0)
    return Rows(np.arange(n + 1) * width, np.tile(np.arange(width), n), X.ravel(), y, width)


def popular(n=4_000, seed=0):
    """Ratings of which one item has a tenth, in random order."""
    rng = np.random.default_rng(seed)
    users, items = rng.integers(0, 1000, n), np.where(rng.random(n) < 0.1, 0, rng.integers(1, 400, n))
    p, q = rng.normal(0, 0.7, (1000, 3)), rng.normal(0, 0.7, (400, 3))
    values = (p[users] * q[items]).sum(1) + rng.normal(0, 1, 400)[items] + rng.normal(0, 0.3, n)
    return Ratings(users.astype(np.int32), items.astype(np.int32), values.astype(np.float32), (1000, 400))


CASES = {
    "regress": lambda: (dense_rows("regress"), {"loss": "squared-error", "step": 0.03}),
    "classify": lambda: (dense_rows("classify"), {"step": 0.05}),
    "text": lambda: (open_data("synthetic:rcv1?rows=1000"), {"step": 2.0}),
    "completion": lambda: (popular(), {"problem": "completion", "rank": 8, "step": 0.05}),
    "completion, bpr": lambda: (popular(), {"problem": "completion", "rank": 8, "step": 0.05, "loss": "bpr"}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_is_no_worse_than_with_few_in_flight(case, monkeypatch):
    """Next to batches, of which all examples see the same parameters: the worst that a device can do."""
    monkeypatch.setattr(streams, "connect", lambda: StandIn(programs=4096))
    data, options = CASES[case]()
    found = {}
    for in_flight in (None, 4):
        run = hogwild.train(data, device="cuda", epochs=2, schedule="constant", in_flight=in_flight, **options)
        rows = list(run)
        found[in_flight] = rows[-1]
    start = rows[0]["objective"]
    learned = start - found[4]["objective"]
    assert learned > 0
    assert found[None]["objective"] < start - 0.85 * learned
    assert found[None]["in_flight"] >= 4
    if case == "regress":
        assert found[None]["in_flight"] < len(data) // 16
