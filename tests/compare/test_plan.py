"""What is run, and in which order."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from hogwild.compare.run.methods import METHODS
from hogwild.compare.run.plan import Cell, ComparisonPlan
from hogwild.errors import UsageError
from tests.compare import rows
from tests.compare.rows import run

GRID = (0.25, 0.5, 1.0, 2.0, 4.0)


def plan_of(**changes: object) -> ComparisonPlan:
    fields = {"seeds": 5, "grid": GRID, "epochs": 10, "methods": ("serial", "hogwild", "liblinear")}
    return rows.plan_of(**(fields | changes))


def cells_of(plan: ComparisonPlan, best: Callable[[Cell], float | None]) -> list[Cell]:
    """All cells once all are done, where the trials with the step ``best`` end lowest."""
    head = {"step_grid": list(plan.grid or GRID), "objective": 0.0, "start_objective": 1.0}
    done: dict[str, list] = {}
    while missing := [cell for cell in plan.cells(head, done) if cell.name not in done]:
        for cell in missing:
            end = 0.1 if cell.step == best(cell) else 0.5
            done[cell.name] = run("serial", [1.0, end], phase=cell.phase, workers=cell.workers, step=cell.step)
    return plan.cells(head, done)


def test_every_method_that_has_a_step_gets_the_same_trials() -> None:
    plan = plan_of(methods=tuple(METHODS), workers=(1, 2, 4))
    trials: dict[tuple[str, int], list] = {}
    cells = cells_of(plan, lambda cell: 1.0)
    for cell in cells:
        if cell.phase == "tuning":
            trials.setdefault((cell.method, cell.workers), []).append((cell.step, cell.seed))
    assert len({tuple(steps) for steps in trials.values()}) == 1  # the same steps on the same seed
    assert set(trials) == {(m.name, w) for m, w in plan.pairs() if m.tuned}
    seeds = {cell.seed for cell in cells if cell.phase == "reported"}
    assert seeds == set(range(5))
    assert not seeds & {seed for _, seed in next(iter(trials.values()))}


def test_reported_cells_take_turns_at_the_best_steps() -> None:
    winners = {("serial", 1): 1.0, ("hogwild", 1): 1.0, ("hogwild", 2): 0.5}
    cells = cells_of(plan_of(), lambda cell: winners.get((cell.method, cell.workers)))
    reported = [cell for cell in cells if cell.phase == "reported"]
    rounds = [list(turn) for _, turn in itertools.groupby(reported, key=lambda cell: cell.seed)]
    trained = [("serial", 1, 1.0), ("hogwild", 1, 1.0), ("hogwild", 2, 0.5), ("liblinear", 1, None)]
    assert [[(c.method, c.workers, c.step) for c in turn] for turn in rounds] == [trained] * 5  # A B C A B C
    assert len({cell.name for cell in cells}) == len(cells)


def test_one_step_is_taken_without_trials() -> None:
    cells = cells_of(plan_of(grid=(0.5,)), lambda cell: None)
    assert {(cell.phase, cell.step) for cell in cells} == {("reported", 0.5), ("reported", None)}


@pytest.mark.parametrize(
    ("grid", "best", "more"),
    [
        ((), {1: 1.0, 2: 2.0}, []),
        ((), {1: 0.25, 2: 0.125}, [0.125, 0.0625]),
        ((), {1: 0.25, 2: 4.0}, [0.125, 8.0]),
        (GRID, {1: 0.25, 2: 4.0}, []),  # which was asked for
    ],
)
def test_a_grid_goes_on_where_someone_is_best_at_its_end_and_for_all(grid: tuple, best: dict, more: list) -> None:
    cells = cells_of(plan_of(grid=grid), lambda cell: best[cell.workers])
    for pair in (("serial", 1), ("hogwild", 1), ("hogwild", 2)):
        mine = [cell for cell in cells if (cell.method, cell.workers) == pair]
        assert [cell.step for cell in mine if cell.phase == "tuning"] == [*GRID, *more]
        assert {cell.step for cell in mine if cell.phase == "reported"} == {best[pair[1]]}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"seeds": 0}, "seeds=0"),
        ({"grid": (0.0, 1.0)}, "above 0"),
        ({"workers": ()}, "numbers from 1"),
        ({"workers": (0, 1)}, "numbers from 1"),
        ({"eps": (1.0,)}, "between 0 and 1"),
    ],
)
def test_impossible_plans(changes: dict, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        plan_of(**changes)


def test_one_replica_trades_with_nobody() -> None:
    for workers, counts in (((1, 2, 4), [2, 4]), ((1,), [1])):
        pairs = plan_of(workers=workers, methods=("averaging", "hogwild")).pairs()
        assert [count for method, count in pairs if method.name == "averaging"] == counts
        assert [count for method, count in pairs if method.name == "hogwild"] == [*workers]
