"""The verdict says what the rows say, in every direction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hogwild.compare.report.cells import duration, percent, place
from hogwild.compare.report.tables import tables
from hogwild.compare.report.verdict import choice, verdict
from tests.compare.rows import halving, loaded, race, refused, run


@pytest.fixture
def judge(tmp_path: Path) -> Callable[..., list[str]]:
    def call(*parts: Any, **changes: Any) -> list[str]:
        return verdict(loaded(tmp_path, *parts, **changes))

    return call


def test_lock_free_wins(judge: Callable) -> None:
    said = judge(
        race("serial 1 1.6", "tiered 2 1", "hogwild 2 1.2", "locked 2 3", "aig 2 2"),
    )
    assert said[0] == (
        "On 2 workers tiered comes within 0.1 % of the optimum 2.0x (95 % CI 1.9–2.1) sooner than aig and "
        "1.6x (95 % CI 1.5–1.7) sooner than serial; final test accuracy: tiered 90 %, aig 90 %, serial 90 %."
    )
    assert len(said) == 1


def test_which_method_is_first_and_how_sure_that_is(tmp_path: Path) -> None:
    parts = race("serial 1 1.6", "tiered 2 1", "locked 2 3")
    for others, says in (
        ([], "tiered on 2 workers, in 3.00 s: clearly sooner than all others (5 seeds, 95 % confidence)"),
        (
            [race("averaging 2 1", "atomic 2 1")],
            "tiered on 2 workers, in 3.00 s: not clearly sooner than atomic, averag",
        ),
        ([race("liblinear 1 0.1")], "liblinear, in 300 ms: clearly sooner than all others"),
        ([run("aig", [1.0, 0.5], 0.1, 2, seed) for seed in range(5)], "tiered on 2 workers, in 3.00 s: clearly sooner"),
        ([race("aig 2 0.1", noise=(1.0,))], "aig on 2 workers, in 300 ms: of too few seeds to tell it from the others"),
    ):
        assert choice(loaded(tmp_path, parts, *others)).startswith(f"First within 0.1 % of the optimum is {says}")
    assert choice(loaded(tmp_path, race("serial 1 1"))) == ""


def test_lock_free_loses(judge: Callable) -> None:
    said = judge(race("serial 1 1", "tiered 2 2"), race("locked 2 1.5", test_accuracy=0.95))
    assert "1.3x (95 % CI 1.3–1.4) later than locked and 2.0x" in said[0]
    assert "later than serial" in said[0]
    assert "final test accuracy: tiered 90 %, locked 95 %, serial 90 %" in said[0]
    assert said[1] == "Locks were not the problem: leaving them out did not make training sooner."
    assert said[2] == "It was not worth it: one serial worker is there as soon, or sooner."


def test_a_wide_interval_over_the_seeds_where_both_got_there_is_no_verdict(judge: Callable) -> None:
    wild = [row for seed, pace in enumerate((0.3, 3.0, 0.5, 2.5)) for row in run("locked", halving(), pace, 2, seed)]
    stuck = run("locked", [1.0, 0.5], 2.0, 2, 4)
    said = judge(race("serial 1 2", "tiered 2 1"), wild, stuck)
    assert "neither clearly sooner nor later than locked (ratio " in said[0]
    assert ", on the 4 of 5 seeds where both got there: too wide to tell)" in said[0]
    assert not any("not the problem" in text for text in said)


def test_a_tie(judge: Callable) -> None:
    said = judge(race("serial 1 1", "tiered 2 1", "locked 2 1"))
    assert "On 2 workers tiered comes within 0.1 % of the optimum as soon as locked (ratio 1.00, 95 % CI 0." in said[0]
    assert ": no difference shown)" in said[0]
    assert any(text.startswith("Locks were not the problem") for text in said)
    assert any(text.startswith("It was not worth it") for text in said)


def test_a_hair_sooner_shows_its_decimals(judge: Callable) -> None:
    exact = [row for seed in range(5) for row in run("tiered", halving(), 1.0, 2, seed)]
    late = [row for seed in range(5) for row in run("locked", halving(), 1.02 + 1e-4 * seed, 2, seed)]
    steady = [row for seed in range(5) for row in run("serial", halving(), 2.0, 1, seed)]
    assert "1.02x (95 % CI 1.02–1.02) sooner than locked" in judge(steady, exact, late)[0]
    said = judge(race("serial 1 2"), exact, late)  # which varies by more from seed to seed
    assert "as soon as locked, within noise (ratio 1.02, 95 % CI 1.02–1.02; serial against itself: 0.96–1.04)" in said[0]
    assert said[1].startswith("Locks were not the problem")


def test_too_few_seeds(judge: Callable) -> None:
    said = judge(race("serial 1 2", "tiered 2 1", "locked 2 3", noise=(1.0, 1.0)))
    assert "comes within 0.1 % of the optimum in 3.00 s (median)" in said[0]
    assert "there are too few seeds for a verdict against locked (2 on which both got there, of 3" in said[0]
    assert "too few seeds for a verdict against serial" in said[0]
    assert "sooner" not in said[0]


def test_one_side_never_reaches(judge: Callable) -> None:
    stuck = [row for seed in range(5) for row in run("locked", [1.0, 0.1, 0.03, 0.03], 2.0, 2, seed)]
    said = judge(race("serial 1 2", "tiered 2 1"), stuck)
    assert "sooner than serial; locked never gets there in its 3 epochs (best: 3 %)" in said[0]
    stuck = [row | {"method": "tiered", "kind": "lock-free", "cell": f"t{row['seed']}"} for row in stuck]
    said = judge(race("serial 1 2"), stuck, race("locked 2 1"))
    assert said[0].startswith(
        "On 2 workers no lock-free method gets to 0.1 % of the optimum: tiered never gets there in its 3 epochs "
        "(best: 3 %); locked does, after"
    )
    assert said[1] == "Locks were not the problem."


def test_the_target_is_the_hardest_that_serial_always_reaches(judge: Callable) -> None:
    short = [run("serial", halving(0.1, 2), 2.0, seed=seed) for seed in range(3)]
    assert "comes within 1 % of the optimum" in judge(*short, race("tiered 2 1", "locked 2 2"))[0]
    none = [run("serial", [1.0, 0.5, 0.25], seed=seed) for seed in range(3)]
    [said] = judge(*none, race("tiered 2 1"))
    assert said == (
        "Serial does not reach any target (10 %, 1 %, 0.1 % of the optimum) in all its runs (best: 25 %, in 2 epochs), "
        "so there is no verdict: give it more epochs or other steps."
    )


def test_without_a_run_that_descended_no_figure_is_given(judge: Callable) -> None:
    rising = [run("serial", [1.0, 1.5, 2.0], seed=seed) for seed in range(3)]
    known = {"optimum_seen": True, "objective": 1.0}
    [said] = judge(*rising, run("tiered", [1.0, 1.5], 1.0, 2), **known)
    assert said == (
        "No run got below the objective of the start, so there is no verdict: give more epochs or other steps."
    )
    diverged = [run("serial", [None], seed=seed, status="diverged") for seed in range(3)]
    assert "in all its runs (it diverged, in " in judge(*diverged, race("tiered 2 1"))[0]


def test_what_is_missing(judge: Callable) -> None:
    assert judge(race("serial 1 1")) == ["No lock-free method has results, so there is no verdict."]
    assert judge() == ["No lock-free method has results, so there is no verdict."]
    assert "sooner than locked" in judge(race("tiered 2 1", "locked 2 2"))[0]
    assert judge(race("tiered 2 1"))[0].startswith("Neither serial nor a method with locks reaches a target")
    said = judge(race("serial 1 1", "tiered 4 0.5"), refused("locked", 4, "too many"), cores=4)
    assert "sooner than serial" in said[0]


def test_outside_and_exchange(judge: Callable) -> None:
    parts = race("serial 1 2", "tiered 2 1", "locked 2 2")
    others = race("sklearn-sgd 1 3", "liblinear 1 0.5", "averaging 2 1.5")
    said = judge(*parts, *others)
    assert said[1].startswith("Outside solvers: tiered gets there 2.0x (95 % CI ")
    assert said[1].endswith(" later than liblinear, the best of them.")
    assert said[2].startswith("Exchange of whole models: tiered gets there 1.5x")
    stuck = [run("averaging", [1.0, 0.5], 1.0, 2, seed) for seed in range(5)]
    said = judge(*parts, *stuck)
    assert said[1] == (
        "Exchange of whole models: averaging never gets there in its 1 epoch (best: 50 %), the best of them."
    )


def test_the_simulator_has_epochs_only(judge: Callable) -> None:
    parts = [race("serial 1 1"), race("hogwild 64 9", fall=10**-0.75), race("locked 64 1")]
    said = judge(*parts, host="simulator", cores=2, load=9.0)
    assert said[0].startswith(
        "On 64 simulated workers, counted in epochs, hogwild comes within 0.1 % of the optimum 1.3x (95 % CI 1.3–1.3) "
    )
    assert "not the problem" not in " ".join(said)
    assert said[-1] == "The workers were simulated on one core, so seconds mean nothing: only epochs are compared."
    assert not any("quiet" in text or "CORES" in text for text in said)


def test_conditions_of_the_machine(judge: Callable) -> None:
    parts = race("serial 1 2", "tiered 2 1", "locked 2 2")
    assert judge(*parts, load=1.1, cores=2)[-1] == (
        "The machine was not quiet: a load of 1.1 on 2 cores when the comparison began."
    )
    assert judge(*parts, cores=1)[-1].startswith("MORE WORKERS THAN CORES (2 on 1)")
    assert not any("quiet" in text for text in judge(*parts, load=1.0, cores=2))
    assert judge(*parts, load=None, cores=None)
    short = judge(race("serial 1 0.002", "hogwild 2 0.001", "locked 2 0.003"))
    assert short[-1].startswith("Epochs are short (serial: 2.00 ms): beginning and ending them weighs")


def test_real_targets_are_compared_by_rmse(judge: Callable) -> None:
    equal = race("serial 1 2", "locked 2 2", test_rmse=1.0, test_accuracy=None)
    said = judge(equal, race("tiered 2 1", test_rmse=1.004, test_accuracy=None))
    assert said[0].endswith("final test RMSE: tiered 1.004, locked 1, serial 1.")


def test_numbers_in_words() -> None:
    assert [percent(each) for each in (0.1, 0.01, 0.125, 0.00351)] == ["10 %", "1 %", "12.5 %", "0.351 %"]
    assert [duration(each) for each in (1.5, 0.99999, 0.0123, 4.5e-5, 2e-9, 1234.0, 0.0)] == [
        "1.50 s",
        "1.00 s",
        "12.3 ms",
        "45.0 µs",
        "2.00 ns",
        "1,234 s",
        "0.00 ns",
    ]
    cells = ["12.3 ms", "1,234 s", "2.00 ms [1.90–2.10] 4/5", "1.50x", "12.5 %", "1e-05", "never", "–"]
    assert [place(each) for each in cells] == pytest.approx([0.0123, 1234, 0.002, 1.5, 12.5, 1e-5, 1e300, 1e300])


def test_more_workers_than_locks_have_results_for(judge: Callable) -> None:
    crowd = refused("locked", 8, "8 workers on 2 cores")
    said = judge(race("serial 1 1", "hogwild 2 0.5", "hogwild 8 0.5", "locked 2 2"), crowd)
    assert said[0].startswith("On 2 workers hogwild comes within 0.1 % of the optimum 4.")


def test_nearly_there_is_not_there(judge: Callable) -> None:
    near = [run("locked", [1.0, 0.01, 0.00104], 1.0, 2, seed) for seed in range(5)]
    assert "(best: 0.104 %)" in judge(race("serial 1 2", "tiered 2 1"), *near)[0]


def test_the_first_by_the_other_clock(tmp_path: Path) -> None:
    parts = race("serial 1 2", once_seconds=1.0), race("tiered 2 1", once_seconds=9.0)
    said = choice(loaded(tmp_path, *parts))
    assert said.endswith(
        "From the call, with reading, set-up and compiling, it takes 12.5 s; serial is clearly sooner then, in 7.50 s."
    )
    said = choice(loaded(tmp_path, parts[0], race("tiered 2 1", once_seconds=2.0)))
    assert said.endswith("it takes 5.50 s.")


def test_an_objective_of_its_own_is_in_no_race(tmp_path: Path) -> None:
    other = race("sklearn-sgd 1 0.1", own_objective="it draws others")
    source = loaded(tmp_path, race("serial 1 2", "tiered 2 1"), other)
    assert "clearly sooner than all others" in choice(source)
    assert "is tiered" in choice(source)
    assert "Outside" not in " ".join(verdict(source))
    shown = tables([source])[0]
    assert "it draws others" in shown.notes
    serial, tiered, last = (dict(zip(shown.columns, row)) for row in shown.rows)
    assert last["to 10 %"] == last["behind the first"] == "–"
    assert tiered["behind the first"] == "first"
    assert serial["behind the first"] == "2.00x [1.93–2.07]"


def test_many_that_may_be_as_soon_are_counted(tmp_path: Path) -> None:
    lines = [f"{method} 2 1" for method in ("tiered", "hogwild", "atomic", "averaging", "aig", "round-robin")]
    said = choice(loaded(tmp_path, race("serial 1 2", "locked 2 4", *lines)))
    assert (
        "is tiered on 2 workers, in 3.00 s: not clearly sooner than 5 of the 7 others, see 'behind the first' (5 seeds"
        in said
    )


def test_who_is_first_where_nobody_else_gets_there(tmp_path: Path) -> None:
    stuck = [run("tiered", [1.0, 0.5], 1.0, 2, seed) for seed in range(5)]
    assert ": no other method gets there (5 seeds" in choice(loaded(tmp_path, race("serial 1 2"), *stuck))
