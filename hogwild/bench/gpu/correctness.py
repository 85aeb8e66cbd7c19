"""What a GPU computes, beside what the CPU does: first in the benchmark, since a wrong kernel may be fast.

Where rows have nothing in common their order does not matter, so however many are in flight the sums are exact.
Where all have everything in common, each of many equal changes counts: whatever is lost is missing from the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from hogwild.bench.gpu.sides import Pace, Row, Side, Timings, race
from hogwild.bench.gpu.timings import Size
from hogwild.data.ratings.container import Ratings
from hogwild.data.rows.container import Rows
from hogwild.errors import TrainingError
from hogwild.problems.module.training import train_module
from hogwild.training.run import Run
from hogwild.training.train import train

ALLOWED = 1e-4  # largest difference of a parameter: float32 sums in another order
STEP = 2.0**-20  # sums of it are exact
SHARED, OWN = 33, 5  # features of each row, all rows' or its own
Check = Callable[[int], float]  # of a number of examples: the largest difference


def difference(one: Callable[..., Run[Any]], **on_device: Any) -> float:
    """Largest difference of the parameters trained on the device from those of one worker of the CPU."""
    found = []
    for options in ({"device": "cuda", **on_device}, {"workers": 1, "discipline": "serial"}):
        with one(**options) as run:
            run.finish()
            found.append(run.engine.job.export())
    return float(np.abs(found[0] - found[1]).max())


def linear(rows: Rows, in_flight: int, **options: Any) -> float:
    """Sparse rows, each of which is visited as on the CPU."""
    usual = {"epochs": 1, "step": 0.1, "schedule": "constant", "order": "file", "l2": 0.01}
    on_device = {"in_flight": in_flight, "discipline": options.pop("discipline", "atomic")}
    return difference(partial(train, rows, **usual | options), **on_device)


def apart(n: int, classes: int = 2, **options: Any) -> float:
    """Rows with nothing in common, all in flight."""
    values = np.random.default_rng(0).normal(size=n * OWN)
    rows = Rows(np.arange(n + 1) * OWN, np.arange(n * OWN), values, np.arange(n) % classes, n * OWN)
    return linear(rows, n, **{"epochs": 2, "step": 0.5, "intercept": False} | options)


def one_row(n: int, classes: int = 2, **options: Any) -> float:
    """Rows with a third of few features each, one in flight."""
    rng = np.random.default_rng(0)
    chosen = [np.flatnonzero(rng.random(40) < 0.3) for _ in range(n)]
    begin, indices = np.cumsum([0, *map(len, chosen)]), np.concatenate(chosen)
    return linear(Rows(begin, indices, rng.normal(size=len(indices)), rng.integers(0, classes, n), 40), 1, **options)


def added(n: int, classes: int) -> float:
    """Share of equal changes that are not in the sum: with the hinge loss far from its kink all are ``step``."""
    indices, labels = np.tile(np.arange(SHARED), n), np.arange(n) % classes
    rows = Rows(np.arange(n + 1) * SHARED, indices, np.ones(n * SHARED), labels, SHARED)
    run = train(
        rows,
        device="cuda",
        in_flight=n,
        discipline="atomic",
        loss="hinge",
        step=STEP,
        schedule="constant",
        epochs=1,
        l2=0.0,
        intercept=False,
    )
    with run:
        found = run.finish().coef_  # (1, width) or (classes, width)
    own = np.bincount(labels, minlength=classes)
    wanted = STEP * (2 * own - n)[1 if classes == 2 else slice(None), None]
    return float(np.abs(found - wanted).max() / (STEP * n))


def completion(n: int, rank: int, in_flight: int | None = None, **options: Any) -> float:
    """Ratings of which no two share a user or an item, or with one in flight any."""
    users = items = np.arange(n, dtype=np.int32)
    if in_flight == 1:
        users, items = users // 11, items % 11
    ratings = Ratings(users, items, np.random.default_rng(0).normal(3, 1, n).astype(np.float32), (n, n))
    usual = {"problem": "completion", "rank": rank, "step": 0.1, "epochs": 1, "order": "file"}
    return difference(partial(train, ratings, **usual | options), in_flight=in_flight or n, discipline="atomic")


def module(n: int) -> float:
    """One replica, whose step is captured."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(n, 12)).astype(np.float32), rng.integers(0, 3, n)

    def start(**options: Any) -> Run[Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(12, 20), nn.Tanh(), nn.Linear(20, 3))
        about: dict[str, Any] = {"epochs": 1, "batch": 16, "order": "file", "step": 0.125, "discipline": "serial"}
        return train_module(model, "cross-entropy", data, **about | options)

    return difference(start, workers=1)


CHECKS: dict[str, Check] = {
    "linear, one row in flight": one_row,
    "linear, one row in flight, AdaGrad and l1": partial(one_row, adagrad=True, l1=0.001),
    "linear, one row in flight, 5 classes": partial(one_row, classes=5),
    "linear, all in flight, nothing in common": apart,
    "linear, the same, shuffled": partial(apart, order="shuffled"),
    "linear, the same, stored": partial(apart, discipline="hogwild"),
    "linear, the same, 5 classes": partial(apart, classes=5),
    **{
        f"linear, every change is added, {classes} classes": partial(added, classes=classes)
        for classes in (2, 3, 7, 16)
    },
    "completion, one rating in flight": partial(completion, rank=64, in_flight=1),
    **{
        f"completion, all in flight, nothing in common, rank {rank}": partial(completion, rank=rank)
        for rank in (20, 64, 512)
    },
    "completion, the same, rank 64, shuffled": partial(completion, rank=64, order="shuffled"),
    "module, captured": module,
}


def checked(check: Check, n: int) -> Timings:
    """A check of ``n`` examples, whose seconds do not count."""
    found = check(n)
    if not found <= ALLOWED:
        raise TrainingError(f"differs by {found:.3g}, at most {ALLOWED:g} was asked")
    yield {"difference": found}


def measure(size: Size, pace: Pace) -> Iterator[Row]:
    """Yield a row for each check."""
    about = {"unit": "difference", "asked": ALLOWED}
    pace.rounds = 0
    yield from race(
        "correctness", {name: Side(checked(check, size.checked), 1, about) for name, check in CHECKS.items()}, pace
    )
