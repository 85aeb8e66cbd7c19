"""Matrix completion and graph cuts go through the linear problem's engine: hosts, disciplines, checkpoints."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import hogwild
from hogwild.data.graphs.container import Graph
from hogwild.data.graphs.source import open_graph
from hogwild.data.ratings.container import Ids, Ratings
from hogwild.errors import InputError, UsageError
from hogwild.problems.completion.problem import CompletionProblem
from hogwild.problems.cuts.problem import CutsProblem
from tests.runs import resumed, slowed

QUIET: dict[str, Any] = {"host": "threads", "workers": 1, "epochs": 4}
COMPLETION, CUTS = QUIET | {"problem": "completion", "rank": 8}, QUIET | {"problem": "cuts"}


def ratings(n: int = 8_000, users: int = 300, items: int = 200, rank: int = 4, seed: int = 0) -> Ratings:
    """Ratings of a planted model, about -3 to 3, with a little noise."""
    rng = np.random.default_rng(seed)
    pairs = rng.choice(users * items, n, replace=False)
    u, i = pairs // items, pairs % items
    p, q = rng.standard_normal((users, rank)), rng.standard_normal((items, rank))
    return Ratings(u, i, (p[u] * q[i]).sum(axis=1) / 2 + 0.1 * rng.standard_normal(n), (users, items))


def grid(more: str = "") -> Graph:
    return open_graph(f"synthetic:grid?side=24{more}")


@pytest.mark.parametrize(
    ("data", "options", "inside"),
    [
        (ratings, COMPLETION | {"order": "blocks"}, None),
        (ratings, COMPLETION | {"loss": "bpr", "negatives": 1}, 0),
        (lambda: grid("&labels=3"), CUTS, 0),
    ],
    ids=["blocks", "ranking", "three labels"],
)
def test_resumed_is_the_same_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: Any, options: dict[str, Any], inside: int | None
) -> None:
    if inside is not None:
        slowed(monkeypatch, CutsProblem if options["problem"] == "cuts" else CompletionProblem, 2e-5)
    resumed(functools.partial(hogwild.train, data(), **options), tmp_path, 4, 2, inside)


def test_checkpoints_of_another_problem_or_other_data(tmp_path: Path) -> None:
    for data, changed, options in ((ratings(), ratings(seed=1), COMPLETION), (grid(), grid("&seed=1"), CUTS)):
        folder = tmp_path / options["problem"]
        hogwild.train(data, checkpoint=folder, **options).finish()
        with pytest.raises(InputError, match="cannot resume"):
            hogwild.train(changed, checkpoint=folder, resume=True, **options)
    with pytest.raises(InputError, match="problem was 'completion'"):
        hogwild.train(grid(), checkpoint=tmp_path / "completion", resume=True, **CUTS)


def test_what_may_be_given_as_ratings() -> None:
    data = ratings()
    ours = hogwild.train(data, **COMPLETION).finish()
    triples = hogwild.train((data.users, data.items, data.values), **COMPLETION).finish()
    entries = scipy.sparse.coo_array((data.values, (data.users, data.items)), data.shape)
    matrix = hogwild.train(entries, entries, **COMPLETION).finish()
    for model in (triples, matrix):
        np.testing.assert_array_equal(model.user_factors, ours.user_factors)
    assert ours.ridge == pytest.approx((0.03 * float(data.values.std(dtype=np.float64)), 0.03))
    for wrong in ([1, 2], (1, 2)):
        with pytest.raises(UsageError, match="expected a path, Ratings, "):
            hogwild.train(wrong, **COMPLETION)
    with pytest.raises(UsageError, match="a Graph, got Ratings"):
        hogwild.train(data, problem="cuts")
    with pytest.raises(UsageError, match="Rows or a pair"):
        hogwild.train(data, problem="linear")


def test_ratings_of_nobody_and_of_the_unknown() -> None:
    empty = Ratings([], [], [], (3, 3))
    with pytest.raises(InputError, match="no ratings"):
        hogwild.train(empty, **COMPLETION)
    with pytest.raises(InputError, match="rating 1 is of an unknown item"):
        hogwild.train(Ratings([0, 1], [0, -1], [1.0, 2.0], (2, 2)), **COMPLETION)
    graph = open_graph("synthetic:grid?side=8")
    with pytest.raises(UsageError, match="test"):
        hogwild.train(graph, graph, **CUTS)


@pytest.mark.parametrize(("level", "spread"), [(1e7, 1.0), (2.0**24, 2.0), (0.0, 1e-30), (0.0, 1e30)])
def test_ratings_far_from_zero_or_of_odd_sizes(level: float, spread: float) -> None:
    """Values are scaled in float64: what float32 can tell apart is not lost on the way."""
    data = ratings(24_000, rank=2)
    data = Ratings(data.users, data.items, level + spread * (data.values > 0), data.shape)
    objectives = [row["objective"] for row in hogwild.train(data, **COMPLETION | {"epochs": 10})]
    assert objectives[-1] < 0.9 * objectives[0]


@pytest.mark.filterwarnings("ignore::hogwild.errors.HogwildWarning")  # more workers than cores
@pytest.mark.parametrize("shape", [(1, 1), (50, 1), (1_000, 2_000)])
def test_odd_shapes(shape: tuple[int, int]) -> None:
    """One user, one item, hardly any ratings in a large matrix; more workers than there are tiles."""
    n = min(40, shape[0] * shape[1])
    pairs = np.random.default_rng(0).choice(shape[0] * shape[1], n, replace=False)
    data = Ratings(pairs // shape[1], pairs % shape[1], pairs % 5, shape)
    options = COMPLETION | {"workers": min(n, 3)}
    run = hogwild.train(data, **options)
    assert [row["updates"] for row in run][1:] == [n] * 4
    assert run.model.shape == shape
    if min(shape) < 2 * options["workers"]:
        with pytest.raises(UsageError, match="order blocks"):
            hogwild.train(data, order="blocks", **options)


# ---- ratings and graphs that are odd: each was a traceback or a wrong model once


def test_test_ratings_that_name_others_are_refused() -> None:
    """Numbers mean names: the same numbers for other names gave errors of nobody's ratings."""
    data = ratings(items=40, users=60, n=800)
    ours, theirs, equal = (
        Ratings(data.users, data.items, data.values, data.shape, None, Ids(names), Ids(range(40)))
        for names in (range(60), range(60)[::-1], range(60))
    )
    with pytest.raises(UsageError, match="test needs the training user names"):
        hogwild.train(ours, theirs, **COMPLETION)
    assert hogwild.train(ours, equal, **COMPLETION).finish().history[-1]["test_rmse"] > 0


def test_test_arrays_may_show_fewer_users() -> None:
    data = ratings()
    some = [array[data.users < 9] for array in (data.users, data.items, data.values)]
    run = hogwild.train((data.users, data.items, data.values), tuple(some), **COMPLETION)
    errors = run.finish().predict(*some[:2]) - some[2]
    assert run.history[-1]["test_rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)))


@pytest.mark.parametrize("infinite", [1e9, 1e30, 1e38])
def test_weights_that_stand_for_infinity(infinite: float) -> None:
    weights = np.array([infinite, 1, 2, infinite])
    graph = Graph(np.arange(4), np.arange(1, 5), weights, weights, 5, [0, 4], [0, 1])
    assert hogwild.train(graph, **CUTS | {"epochs": 60}).finish().labels.tolist() == [0, 0, 1, 1, 1]


def test_large_pulls_to_all_labels_alike() -> None:
    """Beside 1e9 to each of three labels, 64 decides between them."""
    pulls = np.array([1e9, 1e9 + 64, 1e9])  # float32 knows 64 apart there, and no less
    graph = Graph([0, 0, 0], [1, 2, 3], pulls, pulls, 4, [1, 2, 3], [0, 1, 2], 3)
    weights = CutsProblem.of(graph, "serial").arrays(graph)["weights"]
    assert np.count_nonzero(weights) == 1
    assert hogwild.train(graph, **CUTS | {"epochs": 20}).finish().labels[0] == 1
