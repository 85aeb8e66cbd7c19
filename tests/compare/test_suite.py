"""The paper's experiments: its figures, stand-ins of any size, the protocol, rows that go on, and the tables."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hogwild.compare.report.paper import paper_tables
from hogwild.compare.report.results import ROWS, load
from hogwild.compare.report.tables import tables
from hogwild.compare.run import harness
from hogwild.compare.run.paper import PAPER, shift_for
from hogwild.compare.run.reached import largest_that_converges
from hogwild.compare.run.suites import Suite, exchanges
from hogwild.data.graphs.synthetic import GraphSpec
from hogwild.data.ratings.synthetic import RatingSpec
from hogwild.data.rows.synthetic import SyntheticSpec
from hogwild.errors import UsageError

SMALL = {
    "scale": 1e-4,
    "epochs": 3,
    "workers": (2,),
    "methods": ("hogwild", "tiered", "round-robin"),
    "host": "threads",
}
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


@pytest.mark.parametrize("scale", [1e-30, 1e-4, 1.0])
def test_sets_of_exchanges_can_be_made_at_any_scale(scale: float) -> None:
    for each in exchanges(scale=scale):
        SyntheticSpec.parse(each.data)


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


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"scale": 0.0}, "scale=0"),
        ({"scale": 2.0}, "scale=2"),
        ({"scale": math.nan}, "scale=nan"),
        ({"scale": math.inf}, "scale=inf"),
        ({"epochs": 0}, "epochs=0"),
        ({"host": "simulator"}, "simulator"),
        ({"workers": (1, 2)}, "expected one number"),
    ],
)
def test_plans_that_are_none(changes: dict, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Suite("paper", changes)


# ---- the whole


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("suite")
    Suite("paper", SMALL, command="hogwild compare --suite paper", timeout=300.0).run(out)
    return out


def rows_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in (path / ROWS).read_text().splitlines()]


@pytest.mark.slow
def test_every_set_and_method(done: Path) -> None:
    assert {path.name for path in done.iterdir()} == {each.key for each in PAPER}
    for folder in done.iterdir():
        first, *rows = rows_of(folder)
        assert (first["suite"], first["scale"]) == ("paper", 1e-4)
        cells = {row["cell"]: row for row in rows}
        tried = [row for row in cells.values() if row["phase"] == "tuning"]
        assert {row["method"] for row in tried} == {"serial"}
        assert 5 <= len(tried) <= 5 + harness.EXTENSIONS
        reported = [row for row in cells.values() if row["phase"] == "reported"]
        assert {row["method"] for row in reported} == {"serial", *SMALL["methods"]}
        ended = {row["status"] for row in reported}
        assert {status for status in ended if not status.startswith("refused: discipline tiered")} == {"ok"}
        assert len({row["cell_step"] for row in reported}) == 1  # the same for all methods
        assert {row["schedule"] for row in rows if row["phase"] == "reported" and row["epoch"]} == {"epoch"}


@pytest.mark.slow
def test_the_tables(done: Path) -> None:
    made = paper_tables(load([done]))
    assert [len(table.rows) for table in made] == [12, 6]
    assert all(len(row) == len(table.columns) for table in made for row in table.rows)
    first = made[0]
    assert first.rows[0][:5] == ("RCV1", "paper", "9.5", "0.297", "0.339")
    assert first.rows[2][-1] == "8.5"
    assert first.rows[6] == ("Jumbo", "paper", "9,454", "0.031", "0.013", *("–",) * 4)
    for row in first.rows[1::2]:
        assert "–" not in row[2:4]
    assert any("swapped" in note for note in made[1].notes)
    [failed] = [table for table in tables(load([done])) if table.title == "Runs that did not end ok"]
    refused = [row for row in failed.rows if row[-1].startswith("refused")]
    assert {(row[0], row[2]) for row in refused} == {("dblife", "tiered"), ("abdomen", "tiered")}


@pytest.mark.slow
def test_what_is_finished_is_not_run_again(done: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for each in PAPER:
        (tmp_path / each.key).mkdir()
        lines = (done / each.key / ROWS).read_bytes().splitlines(keepends=True)
        kept = lines[:-2] if each is PAPER[-1] else lines  # the last cell is torn
        (tmp_path / each.key / ROWS).write_bytes(b"".join(kept))
    ran: list[str] = []
    original = harness.run_cell
    monkeypatch.setattr(harness, "run_cell", lambda cell, *about: (ran.append(cell.name), original(cell, *about))[1])
    Suite("paper", SMALL, timeout=300.0).run(tmp_path)
    assert len(ran) == 1
    for each in PAPER:
        found, before = (rows_of(folder / each.key) for folder in (tmp_path, done))
        assert {row["cell"] for row in found} == {row["cell"] for row in before}
    with pytest.raises(UsageError, match="another comparison"):
        Suite("paper", SMALL | {"epochs": 2}).run(tmp_path)


def test_a_run_that_was_stopped_is_extrapolated(tmp_path: Path) -> None:
    about = {
        "phase": "optimum",
        "suite": "paper",
        "set": "Netflix",
        "scale": 0.5,
        "epochs": 20,
        "workers_list": [2],
        "problem": "completion",
        "objective": None,
        "optimum_seen": True,
        "start_objective": 1.0,
        "eps": [0.1],
        "data": "synthetic:netflix",
        "ratings": 100,
        "omega": 2,
        "delta": 0.1,
        "rho": 0.2,
    }
    ends = {"hogwild": (20, 8.0, "ok"), "round-robin": (2.5, 9.0, "timed out after 9 s"), "aig": (0, None, "failed")}
    rows = [about]
    for method, (epochs, seconds, status) in ends.items():
        for epoch, spent in ((0, 0.0), (epochs, seconds))[: 2 if epochs else 1]:
            rows.append(
                {
                    "phase": "reported",
                    "cell": method,
                    "method": method,
                    "kind": "locks",
                    "workers": 2,
                    "seed": 0,
                    "epoch": epoch,
                    "train_seconds": spent,
                    "objective": 0.5,
                    "status": status if epoch == epochs else "ok",
                    "cell_step": 0.1,
                    "step_rule": ["tuned"],
                    "train_rmse": 0.7,
                    "test_rmse": 0.9,
                }
            )
    (tmp_path / ROWS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    first, _ = paper_tables(load([tmp_path]))
    assert first.rows[1] == ("Netflix", "here", "8", "0.7", "0.9", "~72", "–", "–", "9")
