"""What is run, and in which order."""

from __future__ import annotations

import itertools

import pytest

from hogwild.compare.run.methods import METHODS
from hogwild.compare.run.plan import ComparisonPlan
from hogwild.errors import UsageError

GRID = (0.25, 0.5, 1.0, 2.0, 4.0)


def plan_of(**changes: object) -> ComparisonPlan:
    fields = {"seeds": 5, "workers": (1, 2), "grid": GRID, "epochs": 10, "methods": ("serial", "hogwild", "liblinear")}
    return ComparisonPlan(**(fields | changes))  # type: ignore[arg-type]


def test_every_method_that_has_a_step_gets_the_same_trials() -> None:
    plan = plan_of(methods=tuple(METHODS), workers=(1, 2, 4))
    trials = {}
    for cell in plan.tuning():
        trials.setdefault((cell.method, cell.workers), []).append((cell.step, cell.seed))
    assert len({tuple(steps) for steps in trials.values()}) == 1  # the same steps on the same seed
    assert set(trials) == {(m.name, w) for m, w in plan.pairs() if m.tuned}
    seeds = {cell.seed for cell in plan.reported({})}
    assert seeds == set(range(5))
    assert not seeds & {seed for _, seed in next(iter(trials.values()))}


def test_reported_cells_are_interleaved() -> None:
    plan = plan_of()
    cells = plan.reported({("serial", 1): 1.0, ("hogwild", 1): 1.0, ("hogwild", 2): 0.5})
    rounds = [list(found) for _, found in itertools.groupby(cells, key=lambda cell: cell.seed)]
    assert len(rounds) == 5  # A B C A B C
    trained = [("serial", 1, 1.0), ("hogwild", 1, 1.0), ("hogwild", 2, 0.5), ("liblinear", 1, None)]
    assert [[(c.method, c.workers, c.step) for c in found] for found in rounds] == [trained] * 5
    assert len({cell.name for cell in cells}) == len(cells)


def test_one_step_is_taken_without_trials() -> None:
    plan = plan_of(grid=(0.5,))
    assert plan.tuning() == []
    assert {cell.step for cell in plan.reported({})} == {0.5, None}


def test_a_grid_goes_on_where_someone_is_best_at_its_end_and_for_all() -> None:
    plan = plan_of()
    assert plan.further({("serial", 1): 1.0, ("hogwild", 2): 2.0}, list(GRID)) == []
    more = plan.further({("serial", 1): 0.25, ("hogwild", 2): 2.0}, list(GRID))
    assert [(cell.method, cell.workers, cell.step) for cell in more] == [
        ("serial", 1, 0.125),
        ("hogwild", 1, 0.125),
        ("hogwild", 2, 0.125),
    ]
    assert {cell.seed for cell in more} == {cell.seed for cell in plan.tuning()}
    both = plan.further({("serial", 1): 0.25, ("hogwild", 2): 4.0}, list(GRID))
    assert [cell.step for cell in both] == [0.125] * 3 + [8.0] * 3
    assert plan_of(grid=(1.0,)).further({}, [1.0]) == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"seeds": 0}, "seeds=0"),
        ({"epochs": 0}, "epochs=0"),
        ({"grid": (0.0, 1.0)}, "above 0"),
        ({"workers": ()}, "numbers from 1"),
        ({"workers": (0, 1)}, "numbers from 1"),
        ({"eps": (1.0,)}, "between 0 and 1"),
    ],
)
def test_impossible_plans(changes: dict, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        plan_of(**changes)
