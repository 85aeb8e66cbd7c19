"""Matrix completion and graph cuts go through the linear problem's engine: hosts, disciplines, checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import hogwild
from hogwild.data.graphs.source import open_graph
from hogwild.data.ratings.container import Ratings
from hogwild.errors import InputError, UsageError
from hogwild.problems.completion.problem import CompletionProblem
from hogwild.problems.cuts.problem import CutsProblem
from tests.runs import slowed, stopped_inside

QUIET: dict[str, Any] = {"host": "threads", "workers": 1, "epochs": 4}
VARIANTS: dict[str, dict[str, Any]] = {
    "completion": {"problem": "completion", "rank": 8},
    "completion, blocks": {"problem": "completion", "rank": 8, "order": "blocks"},
    "completion, implicit": {"problem": "completion", "rank": 8, "loss": "log", "negatives": 2},
    "completion, ranking": {"problem": "completion", "rank": 8, "loss": "bpr", "negatives": 1},
    "cuts": {"problem": "cuts"},
    "cuts, three labels": {"problem": "cuts", "labels": 3},
}


def ratings(n: int = 8_000, users: int = 300, items: int = 200, rank: int = 4, seed: int = 0) -> Ratings:
    """Ratings of a planted model, about -3 to 3, with a little noise."""
    rng = np.random.default_rng(seed)
    pairs = rng.choice(users * items, n, replace=False)
    u, i = pairs // items, pairs % items
    p, q = rng.standard_normal((users, rank)), rng.standard_normal((items, rank))
    return Ratings(u, i, (p[u] * q[i]).sum(axis=1) / 2 + 0.1 * rng.standard_normal(n), (users, items))


def data_for(options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Data of a variant, and the options that are left."""
    options = dict(options)
    if options["problem"] == "completion":
        return ratings(), options
    return open_graph(f"synthetic:grid?side=24&labels={options.pop('labels', 2)}"), options


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("completion, blocks", False),
        ("completion, ranking", True),
        ("cuts, three labels", True),
    ],
)
def test_resumed_is_the_same_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, inside: bool
) -> None:
    data, options = data_for(VARIANTS[name])
    options |= QUIET
    if inside:
        slowed(monkeypatch, CompletionProblem if "rank" in options else CutsProblem, 2e-5)
    whole = hogwild.train(data, **options)
    whole.finish()
    if inside:
        stopped_inside(lambda: hogwild.train(data, checkpoint=tmp_path, **options | {"epochs": 3}), 1, 0).close()
    else:
        hogwild.train(data, checkpoint=tmp_path, **options | {"epochs": 2}).finish()
    again = hogwild.train(data, checkpoint=tmp_path, resume=True, **options)
    again.finish()
    np.testing.assert_array_equal(whole.engine.job.flat, again.engine.job.flat)
    clocks = {"run", "train_seconds", "wall_seconds", "setup_seconds", "updates_per_second", "load"}
    kept, found = ([{k: v for k, v in row.items() if k not in clocks} for row in run.history] for run in (whole, again))
    assert kept == [row for row in found if row["status"] == "ok"]


def test_checkpoints_of_another_problem_or_other_data(tmp_path: Path) -> None:
    for name, changed in (("completion", ratings(seed=1)), ("cuts", open_graph("synthetic:grid?side=24&seed=1"))):
        data, options = data_for(VARIANTS[name])
        folder = tmp_path / name
        hogwild.train(data, checkpoint=folder, **QUIET | options).finish()
        with pytest.raises(InputError, match="cannot resume"):
            hogwild.train(changed, checkpoint=folder, resume=True, **QUIET | options)
    with pytest.raises(InputError, match="problem was 'completion'"):
        hogwild.train(data, checkpoint=tmp_path / "completion", resume=True, **QUIET | options)


def test_what_may_be_given_as_ratings() -> None:
    data = ratings()
    ours = hogwild.train(data, **QUIET | VARIANTS["completion"]).finish()
    triples = hogwild.train((data.users, data.items, data.values), **QUIET | VARIANTS["completion"]).finish()
    entries = scipy.sparse.coo_array((data.values, (data.users, data.items)), data.shape)
    matrix = hogwild.train(entries, **QUIET | VARIANTS["completion"]).finish()
    for model in (triples, matrix):
        np.testing.assert_array_equal(model.user_factors, ours.user_factors)
    assert ours.ridge == pytest.approx((0.03 * float(data.values.std(dtype=np.float64)), 0.03))
    for wrong in ([1, 2], (1, 2)):
        with pytest.raises(UsageError, match="expected a path, Ratings, "):
            hogwild.train(wrong, **QUIET | VARIANTS["completion"])
    with pytest.raises(UsageError, match="a Graph, got Ratings"):
        hogwild.train(data, problem="cuts")
    with pytest.raises(UsageError, match="Rows or a pair"):
        hogwild.train(data, problem="linear")


def test_ratings_of_nobody_and_of_the_unknown() -> None:
    empty = Ratings([], [], [], (3, 3))
    with pytest.raises(InputError, match="no ratings"):
        hogwild.train(empty, **QUIET | VARIANTS["completion"])
    with pytest.raises(InputError, match="rating 1 is of an unknown item"):
        hogwild.train(Ratings([0, 1], [0, -1], [1.0, 2.0], (2, 2)), **QUIET | VARIANTS["completion"])
    graph = open_graph("synthetic:grid?side=8")
    with pytest.raises(UsageError, match="test"):
        hogwild.train(graph, graph, **QUIET | VARIANTS["cuts"])


@pytest.mark.parametrize(("level", "spread"), [(1e7, 1.0), (2.0**24, 2.0), (0.0, 1e-30), (0.0, 1e30)])
def test_ratings_far_from_zero_or_of_odd_sizes(level: float, spread: float) -> None:
    """Values are scaled in float64: what float32 can tell apart is not lost on the way."""
    data = ratings(24_000, rank=2)
    data = Ratings(data.users, data.items, level + spread * (data.values > 0), data.shape)
    objectives = [row["objective"] for row in hogwild.train(data, **QUIET | VARIANTS["completion"] | {"epochs": 10})]
    assert objectives[-1] < 0.9 * objectives[0]


@pytest.mark.filterwarnings("ignore::hogwild.errors.HogwildWarning")  # more workers than cores
@pytest.mark.parametrize("shape", [(1, 1), (50, 1), (1_000, 2_000)])
def test_odd_shapes(shape: tuple[int, int]) -> None:
    """One user, one item, hardly any ratings in a large matrix; more workers than there are tiles."""
    n = min(40, shape[0] * shape[1])
    pairs = np.random.default_rng(0).choice(shape[0] * shape[1], n, replace=False)
    data = Ratings(pairs // shape[1], pairs % shape[1], pairs % 5, shape)
    options: dict[str, Any] = {"host": "threads", "workers": min(n, 3), "epochs": 2, "problem": "completion"}
    run = hogwild.train(data, **options)
    assert [row["updates"] for row in run][1:] == [n, n]
    assert run.model.shape == shape
    if min(shape) < 2 * options["workers"]:
        with pytest.raises(UsageError, match="order blocks"):
            hogwild.train(data, order="blocks", **options)
