"""Rows read back: what is no row, and every figure that is computed from those that are, on rows with known results."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from hogwild.compare.report.results import (
    best_step,
    crossing,
    load,
    paired_ratio,
    read_rows,
    speedup,
    with_gaps,
)
from hogwild.compare.report.tables import facts_of, memory, tables
from hogwild.compare.report.verdict import noise_floor
from hogwild.errors import HogwildWarning, InputError
from tests.compare.rows import about, halving, loaded, refused, run, write


def lines(path: Path, *texts: str) -> Path:
    path.write_text("".join(texts))
    return path


ABOUT = json.dumps(about()) + "\n"
ROW = json.dumps(run("serial", [1.0])[0]) + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ABOUT + "nonsense\n" + ROW, "line 2: is no JSON"),
        (ABOUT + "[1, 2]\n", "line 2: has the phase None"),
        (ABOUT + '{"phase": "other"}\n', "line 2: has the phase 'other', not tuning or reported"),
        (ABOUT + json.dumps({"phase": "reported", "cell": "a"}) + "\n", "line 2: has no method"),
        (ABOUT + ROW[:50] + "\n", "line 2: is no JSON"),  # it ends with a line end, so no kill has torn it
        ("", "is empty"),
        (ROW + ABOUT, "line 1: has the phase 'reported', not optimum"),
        (ABOUT + ROW + ABOUT, "line 3: has the phase 'optimum'"),
        (
            json.dumps(about(start_objective=math.nan)) + "\n",
            "line 1: the objective of the optimum or of the start is no",
        ),
    ],
)
def test_what_is_no_comparison(tmp_path: Path, text: str, message: str) -> None:
    lines(tmp_path / "rows.jsonl", text)
    with pytest.raises(InputError, match=r"rows\.jsonl.*: expected .*rows? as hogwild compare") as error:
        load([tmp_path])
    assert message in str(error.value)


def test_a_torn_last_line_is_passed_over(tmp_path: Path) -> None:
    with pytest.warns(HogwildWarning, match="line 3: the last line is torn"):
        assert len(read_rows(lines(tmp_path / "a", ABOUT, ROW, ROW[:40]))) == 2
    assert len(read_rows(lines(tmp_path / "b", ABOUT, "\n", ROW.strip()))) == 2  # whole, but for the line's end
    with pytest.raises(InputError, match=r"rows\.jsonl: no comparison to read: No such file"):
        load([tmp_path])


def test_time_to_target(tmp_path: Path) -> None:
    # 1, 0.1, 0.01 at 0, 2, 4 s: the logarithm falls in a straight line
    eps = [10**-0.5, 0.1, 10**-1.25, 1e-9]
    rows = run("serial", [1.0, 0.1, 0.01], seconds=2.0)
    [group] = loaded(tmp_path, rows, eps=eps).groups
    assert [group.median(f"train_seconds to {each:g}") for each in eps[:3]] == pytest.approx([1.0, 2.0, 2.5])
    assert [group.median(f"epoch to {each:g}") for each in eps[:3]] == pytest.approx([0.5, 1.0, 1.25])
    assert [group.share(each) for each in eps] == [1, 1, 1, 0]
    assert group.of("epoch to 1e-09") is None
    assert group.median("epoch_seconds") == 2.0
    assert group.median("last gap") == pytest.approx(0.01)


def test_a_run_below_the_optimum_is_the_optimum(tmp_path: Path) -> None:
    parts = [about(), run("serial", [1.0, 0.5, -1.0], phase="tuning"), run("serial", [1.0, -0.9])]
    [source] = load([write(tmp_path, *parts)])
    assert source.optimum == -1.0
    assert [row["gap"] for row in source.groups[0].runs[0]["rows"]] == pytest.approx([1.0, 0.05])
    notes = " ".join(tables([source])[0].notes)
    assert "by 5.0e-01 of the way from the start: its -1 is taken for the optimum" in notes


def test_who_counts(tmp_path: Path) -> None:
    """Diverged and timed-out runs did not get there; refused ones were no runs."""
    parts = [
        run("hogwild", [1.0, 0.1, 0.01], seed=0),
        run("hogwild", [1.0, 0.1, 0.01], 3.0, seed=1),
        run("hogwild", [1.0, 0.1, None], seed=2, status="diverged"),
        run("hogwild", [1.0, 0.5], seed=3, status="timed out after 9 s"),
        refused("locked", 9, "too many"),
    ]
    source = loaded(tmp_path, *parts)
    [group] = source.groups
    assert (len(group.runs), group.share(0.1), group.share(0.01)) == (4, 0.75, 0.5)
    assert group.of("train_seconds to 0.01") == pytest.approx((4.0, 3.0, 5.0))
    first, *_, failed, _ = tables([source])
    assert first.rows[0][first.columns.index("ended ok")] == "2/4"
    assert [row[-1] for row in failed.rows] == ["diverged", "timed out after 9 s", "refused: too many"]


def test_speedup_is_two_factors(tmp_path: Path) -> None:
    parts = [
        *(run("serial", halving(0.1), 2.0, seed=seed, step=0.25, cell_step=0.5) for seed in range(3)),
        # half the time for an epoch, twice the epochs; the last target is reached by one of three only
        *(run("hogwild", halving(10**-0.5, 4 + 2 * (seed == 0)), 1.0, 2, seed) for seed in range(3)),
    ]
    source = loaded(tmp_path, *parts)
    found = source.groups
    steps = [(group.method, group.first["step"]) for group in found]
    assert steps == [("serial", 0.5), ("hogwild", 0.5)]  # that was asked for
    assert speedup(found[1], source) == pytest.approx((0.01, 0.5, 2.0))
    assert all(map(math.isnan, speedup(found[1], loaded(tmp_path, parts[-1]))))


def test_paired_ratio(tmp_path: Path) -> None:
    """Ratios 1, 2 and 4: mean logarithm ln 2, deviation ln 2, and Student's 97.5 % point of 2 degrees is 4.3027."""
    parts = [
        *(run("hogwild", [1.0, 0.1], 1.0, 2, seed) for seed in range(4)),
        *(run("locked", [1.0, 0.1], 2.0**seed, 2, seed) for seed in range(3)),
        run("locked", [1.0, 0.9], 1.0, 2, 3),
    ]
    source = loaded(tmp_path, *parts)
    free, locked = source.groups
    ratio = paired_ratio(locked, free, 0.1, "train_seconds")
    half = 4.302652729749464 * math.log(2) / math.sqrt(3)
    assert (ratio.value, ratio.pairs) == (pytest.approx(2.0), 3)
    assert (ratio.low, ratio.high) == pytest.approx((2 * math.exp(-half), 2 * math.exp(half)))
    assert not paired_ratio(locked, free, 0.01, "train_seconds").sure


def test_serial_against_itself_under_another_seed(tmp_path: Path) -> None:
    """1, 2 and 4 s: the ratios 2, 2 and 1/4 have the mean logarithm 0 and the deviation sqrt(3) ln 2."""
    source = loaded(tmp_path, *(run("serial", [1.0, 0.1], 2.0**seed, seed=seed) for seed in range(3)))
    floor = source.noise(0.1)
    half = math.exp(4.302652729749464 * math.log(2))
    assert (floor.value, floor.low, floor.high) == pytest.approx((1.0, 1 / half, half))
    assert noise_floor(source).startswith("Noise: to 10 % serial takes 0.05 to 19.73 times as long under another seed")
    assert noise_floor(loaded(tmp_path, run("serial", [1.0, 0.1]))) == ""
    assert not source.noise(0.01).sure
    assert not loaded(tmp_path, run("hogwild", [1.0, 0.1], workers=2)).noise(0.1).sure


def test_trials(tmp_path: Path) -> None:
    parts = [run("hogwild", [1.0, 0.5], step=step, phase="tuning", seed=9) for step in (2.0, 0.5, 1.0)]
    for best, at_end in ((1.0, False), (0.5, True), (2.0, True)):
        notes = " ".join(tables([loaded(tmp_path, *parts, run("hogwild", [1.0, 0.5], step=best))])[0].notes)
        assert "tried at the steps 0.5 1 2, on a seed that is not among those reported" in notes
        assert ("These steps end at the best of hogwild on 1: one beyond may do better." in notes) == at_end
    assert "tried at" not in " ".join(tables([loaded(tmp_path, run("hogwild", [1.0, 0.5]))])[0].notes)


def test_memory() -> None:
    assert memory(about(megabytes=20.0)) == "20 MB, within the last cache (32 MB)"
    assert memory(about(megabytes=40.0)) == "40 MB, beyond the last cache (32 MB)"
    assert memory(about(cache_megabytes=None)) == memory(about(megabytes=None)) == ""


def test_only_the_same_problem_shares_an_optimum(tmp_path: Path) -> None:
    first = write(tmp_path / "a", about(fingerprint="f", normalize="none"), run("serial", halving()))
    for name, changes in (("b", {"normalize": "l2"}), ("c", {"fingerprint": "g"}), ("d", {"intercept": False})):
        lower = about(**{"fingerprint": "f", "normalize": "none", "objective": -0.5} | changes)
        second = write(tmp_path / name, lower, run("serial", halving()))
        assert [source.optimum for source in load([first, second])] == [0.0, -0.5]


def test_facts() -> None:
    facts = facts_of(about(normalize="l2", caches={"L1d": "32K"}, load_after=0.5))
    assert facts["data"] == "made-up, rows 1,000, width 100, nnz 10,000, test rows 200, omega 10, delta 0.2, rho 0.3"
    assert facts["minimised"] == "loss log, l1 0, l2 1e-05, normalize l2"
    assert facts["machine"] == "cpu A Processor, cores 2, caches L1d 32K, load 0.1, load after 0.5, host threads"
    assert "seeds 0 1 2, step grid 0.5" in facts["plan"]
    assert facts["versions"] == "python 3.11.7, numpy 2.4.6"


# ---- which step wins


def run_of(*objectives: float | None, status: str = "ok") -> list[dict]:
    rows = [{"epoch": k, "objective": value, "status": "ok"} for k, value in enumerate(objectives)]
    rows[-1]["status"] = status
    return with_gaps(rows, 1.0, 0.0)


def test_the_first_time_counts_and_the_optimum_itself_can_be_reached() -> None:
    assert crossing(run_of(1.0, 0.1, 0.9, 0.1), 0.2, "epoch") < 1.0
    assert 0.0 < crossing(run_of(1.0, 0.0), 0.5, "epoch") < 1.0
    assert crossing(run_of(1.0, None, 0.1), 0.2, "epoch") is None  # nothing is known after a NaN
    assert crossing(with_gaps(run_of(1.0, 0.0), 1.0, 1.0), 0.2, "epoch") is None  # nothing to reach


def test_the_hardest_target_decides() -> None:
    eps = (1e-1, 1e-2)
    sooner, harder = run_of(1.0, 0.05, 0.04, 0.03), run_of(1.0, 0.5, 0.05, 0.005)
    assert best_step({1.0: sooner, 2.0: harder}, 0.0, 1.0, eps) == 2.0
    assert best_step({1.0: sooner, 2.0: run_of(1.0, 0.5, 0.2, 0.05)}, 0.0, 1.0, eps) == 1.0  # neither: the next one
    assert best_step({1.0: run_of(1.0, 0.9, 0.8), 2.0: run_of(1.0, 0.9, 0.7)}, 0.0, 1.0, eps) == 2.0  # the lowest
    diverged = run_of(1.0, 0.6, None, status="diverged")
    assert best_step({1.0: run_of(1.0, 0.95, 0.9), 2.0: diverged}, 0.0, 1.0, eps) == 1.0
    assert best_step({2.0: diverged, 4.0: diverged}, 0.0, 1.0, eps) == 2.0  # all alike: the smallest
