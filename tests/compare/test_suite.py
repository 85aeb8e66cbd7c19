"""The paper's experiments: its figures, stand-ins of any size, the protocol, rows that go on, and the tables."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hogwild.compare.report.page import write_report
from hogwild.compare.report.results import ROWS
from hogwild.compare.report.suite import is_suite, load_suite, markdown, suite_tables, suite_verdict
from hogwild.compare.run import suite as module
from hogwild.compare.run.paper import PAPER, shift_for
from hogwild.compare.run.suite import Suite, SuitePlan, beyond, largest_that_converges
from hogwild.data.graphs.synthetic import GraphSpec
from hogwild.data.ratings.synthetic import RatingSpec
from hogwild.data.rows.synthetic import SyntheticSpec
from hogwild.errors import InputError, UsageError

SMALL = SuitePlan(scale=1e-4, epochs=3, methods=("serial", "hogwild", "tiered", "round-robin"), timeout=20.0)
PARSERS = {"linear": SyntheticSpec.parse, "completion": RatingSpec.parse, "cuts": GraphSpec.parse}


# ---- the paper's figures, and stand-ins


def test_the_figures_obey_the_paper_s_own_definitions() -> None:
    assert [each.name for each in PAPER] == ["RCV1", "Netflix", "KDD", "Jumbo", "DBLife", "Abdomen"]
    for each in PAPER:
        assert each.delta <= each.rho <= 1  # as printed, RCV1 would break it
        if each.problem != "linear":
            assert each.rho <= 2 * each.delta
    ratios = {each.name: each.ratio for each in PAPER if each.round_robin}
    printed = {"RCV1": 6.5, "Netflix": 8.5, "KDD": 8.1, "DBLife": 1.8, "Abdomen": 6.3}
    assert ratios == {name: pytest.approx(value, abs=0.051) for name, value in printed.items()}


@pytest.mark.parametrize("scale", [1e-6, 1e-4, 1e-2, 1.0])
def test_stand_ins_can_be_made_at_any_scale(scale: float) -> None:
    for each in PAPER:
        assert PARSERS[each.problem](each.name_at(scale)) is not None
        if callable(each.held_out):
            assert SyntheticSpec.parse(each.held_out(scale)).skip > 0
    netflix = RatingSpec.parse(PAPER[1].name_at(1.0))
    assert (netflix.users, netflix.items, netflix.ratings) == (480_189, 17_770, 100_198_805)
    assert RatingSpec.parse(PAPER[3].name_at(1.0)).ratings == 200_000_000  # a tenth


def test_a_matrix_stays_as_full() -> None:
    for each in PAPER[1:3]:
        specs = [RatingSpec.parse(each.name_at(scale)) for scale in (1.0, 0.01)]
        full = [spec.ratings / (spec.users * spec.items) for spec in specs]
        assert full[1] == pytest.approx(full[0], rel=0.01)


@pytest.mark.parametrize(("share", "size", "zipf"), [(2.3e-3, 1777, 1.5), (1.8e-3, 62_496, 1.0), (0.5, 10, 2.0)])
def test_the_shift_that_gives_a_share(share: float, size: int, zipf: float) -> None:
    popularity = (np.arange(1, size + 1) + shift_for(share, size, zipf)) ** -zipf
    assert popularity[0] / popularity.sum() == pytest.approx(share, rel=1e-3)


def test_a_share_below_the_smallest_there_is() -> None:
    assert shift_for(1e-9, 100, 1.0) == 1e9


# ---- the protocol


def trial(*objectives: float | None, status: str = "ok") -> list[dict[str, Any]]:
    rows = [{"objective": value, "status": "ok"} for value in objectives]
    rows[-1]["status"] = status
    return rows


def test_the_largest_step_that_converges() -> None:
    trials = {0.1: trial(1.0, 0.30), 0.2: trial(1.0, 0.20), 0.4: trial(1.0, 0.23), 0.8: trial(1.0, 0.5)}
    assert largest_that_converges(trials) == 0.4
    assert largest_that_converges(trials | {1.6: trial(1.0, 0.2, status="timed out")}) == 0.4
    assert largest_that_converges(trials | {1.6: trial(1.0, None, status="diverged")}) == 0.4
    assert largest_that_converges({0.1: trial(1.0, None, status="diverged")}) == 0.1


def test_a_grid_grows_at_its_ends() -> None:
    trials = {0.1: trial(1.0, 0.30), 0.2: trial(1.0, 0.20), 0.4: trial(1.0, 0.5)}
    assert beyond(trials) == []
    assert beyond(trials | {0.05: trial(1.0, 0.1)}) == [0.025]
    assert beyond(trials | {0.8: trial(1.0, 0.21)}) == [1.6]
    assert beyond({0.1: trial(1.0, None, status="diverged")}) == [0.05]


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"scale": 0.0}, "scale=0"), ({"scale": 2.0}, "scale=2"), ({"epochs": 0}, "epochs=0"),
     ({"host": "simulator"}, "simulator")],
)  # fmt: skip
def test_plans_that_are_none(changes: dict, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        SuitePlan(**changes)


# ---- the whole


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("suite")
    Suite(SMALL, command="hogwild compare --suite paper").run(out)
    return out


def rows_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in (path / ROWS).read_text().splitlines()]


@pytest.mark.slow
def test_every_set_and_method(done: Path) -> None:
    rows = rows_of(done)
    assert rows[0]["phase"] == "suite"
    assert {row["set"] for row in rows[1:]} == {each.key for each in PAPER}
    cells = {row["cell"]: row for row in rows[1:]}
    tried = [row["cell_step"] for row in cells.values() if row["phase"] == "tuning"]
    assert 6 * 5 <= len(tried) <= 6 * 9
    assert len(cells) == 6 * (1 + 4) + len(tried)
    ended = {row["status"] for row in cells.values() if row["phase"] == "reported"}
    assert {status for status in ended if not status.startswith("refused: discipline tiered")} == {"ok"}
    for name in {row["set"] for row in rows[1:]}:
        steps = {row["cell_step"] for row in rows if row.get("set") == name and row["phase"] == "reported"}
        assert len(steps) == 1  # the same for all methods
    schedules = {(row["schedule"], row["method"]) for row in rows if row["phase"] == "reported" and row["epoch"]}
    assert {schedule for schedule, _ in schedules} == {"epoch"}


@pytest.mark.slow
def test_the_tables(done: Path, tmp_path: Path) -> None:
    assert is_suite(done)
    about, found = load_suite(done)
    made = suite_tables(about, found)
    assert [len(table.rows) for table in made] == [12, 24, 6, 4]
    assert all(len(row) == len(table.columns) for table in made for row in table.rows)
    first = made[0]
    assert first.rows[0][:5] == ("RCV1", "paper", "9.5", "0.297", "0.339")
    assert first.rows[2][-1] == "8.5"
    assert first.rows[6] == ("Jumbo", "paper", "9,454", "0.031", "0.013", *("–",) * 4)
    for row in first.rows[1::2]:
        assert "–" not in row[2:4]
    refused = [row for row in made[1].rows if row[-1].startswith("refused")]
    assert {(row[0], row[1]) for row in refused} == {("DBLife", "tiered"), ("Abdomen", "tiered")}
    assert any("swapped" in note for note in made[2].notes)
    report = write_report([done], tmp_path)
    assert {path.name for path in report.files} == {"report.html", "report.md"}
    assert "Round-robin takes so many times as long as Hogwild" in report.verdict[0]
    text = (tmp_path / "report.md").read_text()
    assert "| RCV1 | paper | 9.5 |" in text
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write_report([done], tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    with pytest.raises(UsageError, match="stands alone"):
        write_report([done, done], tmp_path)


@pytest.mark.slow
def test_what_is_finished_is_not_run_again(done: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = (done / ROWS).read_bytes().splitlines(keepends=True)
    (tmp_path / ROWS).write_bytes(b"".join(lines[:-2]))  # the last cell is torn
    ran: list[str] = []
    original = module.run_cell
    monkeypatch.setattr(module, "run_cell", lambda cell, *about: (ran.append(cell.name), original(cell, *about))[1])
    again = Suite(SMALL)
    again.run(tmp_path)
    assert len(ran) == 1
    assert again.progress.done == again.progress.total
    assert {row["cell"] for row in rows_of(tmp_path)[1:]} == {row["cell"] for row in rows_of(done)[1:]}
    monkeypatch.setattr(Suite, "_data", lambda self, each: pytest.fail("nothing is left to do"))
    Suite(SMALL).run(tmp_path)
    with pytest.raises(UsageError, match="another comparison"):
        Suite(SuitePlan(scale=1e-4)).run(tmp_path)


def write(path: Path, *rows: dict) -> Path:
    path.mkdir(exist_ok=True)
    (path / ROWS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


ABOUT = {"phase": "suite", "suite": "paper", "cpu": "A Processor", "cores": 2,
         "plan": {"scale": 0.5, "epochs": 20, "workers": 2, "seeds": 1, "timeout": 9.0}}  # fmt: skip
DATA = {"phase": "data", "set": "netflix", "cell": "netflix/data", "data": "synthetic:netflix", "ratings": 100,
        "users": 5, "items": 6, "omega": 2, "delta": 0.1, "rho": 0.2}  # fmt: skip


def run(method: str, *rows: tuple[float, float], status: str = "ok") -> list[dict]:
    """Rows at (epoch, seconds)."""
    made = [
        {"phase": "reported", "set": "netflix", "cell": f"netflix/reported/{method}", "method": method, "workers": 2,
         "seed": 0, "epoch": epoch, "train_seconds": seconds, "objective": 1.0, "status": "ok", "cell_step": 0.1,
         "train_rmse": 0.7, "test_rmse": 0.9}
        for epoch, seconds in rows
    ]  # fmt: skip
    made[-1]["status"] = status
    return made


def test_a_run_that_was_stopped_is_extrapolated_and_it_is_said(tmp_path: Path) -> None:
    late = run("round-robin", (0, 0.0), (2.5, 9.0), status="timed out after 9 s")
    about, found = load_suite(write(tmp_path, ABOUT, DATA, *run("hogwild", (0, 0.0), (20, 8.0)), *late))
    table = suite_tables(about, found)[0]
    assert table.rows[1] == ("Netflix", "here", "8", "0.7", "0.9", "~72", "0.7", "0.9", "9")
    assert "round-robin on Netflix after 2.5 epochs" in table.notes[-1]
    said = suite_verdict(about, found)
    assert said[0].startswith("Round-robin takes so many times as long as Hogwild, on 2 workers: Netflix 9.0;")
    assert said[-1] == "Not run yet: RCV1, KDD, Jumbo, DBLife, Abdomen."
    assert markdown([table], said).startswith(said[0])


def test_rows_of_no_run(tmp_path: Path) -> None:
    about, found = load_suite(write(tmp_path, ABOUT, DATA, *run("hogwild", (0, math.nan), status="failed: so")))
    assert suite_tables(about, found)[0].rows[1][2:] == ("–",) * 7
    about, found = load_suite(write(tmp_path, ABOUT))
    assert found == []
    assert suite_verdict(about, found)[0].startswith("Not run yet: RCV1")


def test_what_is_no_suite(tmp_path: Path) -> None:
    assert not is_suite(tmp_path)
    assert not is_suite(write(tmp_path / "a", {"phase": "optimum"}))
    with pytest.raises(InputError, match="suite 'other'"):
        load_suite(write(tmp_path / "b", ABOUT | {"suite": "other"}))
    with pytest.raises(InputError, match=r"line 2: has the phase 'delay', not one of suite, data"):
        load_suite(write(tmp_path / "c", ABOUT, {"phase": "delay"}))
