"""`hogwild simulate` from end to end: its rows, its histogram, and mistakes that show before any data are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hogwild.model_file import load_model
from tests.cli.conftest import rows_of

SMALL = "synthetic:rcv1?rows=600&features=500&nnz=10"


def test_a_simulation_and_everything_it_writes(hogwild: Callable, tmp_path: Path) -> None:
    model, rows = tmp_path / "model", tmp_path / "rows"
    shown = hogwild(
        f"simulate {SMALL} --holdout 0.25 --epochs 3 --discipline hogwild --delay straggler:alpha=1.3 "
        f"--json {rows} --out {model}",
    ).shown()
    found = rows_of(rows)
    assert [row["epoch"] for row in found] == [0, 1, 2, 3]
    assert {(row["host"], row["workers"], row["discipline"]) for row in found} == {("simulator", 64, "hogwild")}
    assert found[0]["staleness_mean"] is found[0]["staleness_max"] is found[0]["lost_updates"] is None
    assert found[3]["objective"] < found[0]["objective"]
    assert "staleness" not in found[0]
    for row in found[1:]:
        assert sum(row["staleness"].values()) == row["updates"] == 450
        assert max(map(int, row["staleness"])) == row["staleness_max"]
        assert row["lost_updates"] > 0
    assert "hogwild on 64 workers (simulator): delay straggler:alpha=1.3, one core" in shown
    header = next(line for line in shown.splitlines() if line.startswith(" epoch"))
    assert "stale mean  stale max        lost" in header
    assert "to play all workers on one core" in shown
    assert load_model(model).config["host"] == "simulator"


def test_train_plays_round_robin_too(hogwild: Callable) -> None:
    result = hogwild(f"train {SMALL} --host simulator --workers 9 --discipline atomic --epochs 1 --json -")
    assert result.status == 0
    row = json.loads(result.out.splitlines()[-1])
    assert (row["staleness_max"], row["lost_updates"]) == (8, 0)


def test_default_data(hogwild: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    import hogwild.cli.train as command

    monkeypatch.setattr(command, "SIMULATED_DATA", SMALL)
    result = hogwild("simulate --epochs 1 -w 5")
    assert result.out.startswith(f"no data named: training on {SMALL}, a generated stand-in")
    assert "held out 120 rows" in result.out
