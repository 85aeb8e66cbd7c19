"""`hogwild compare` from end to end: outputs, mistakes that show early, interruption, and going on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hogwild.compare.run.plan import Cell
from hogwild.compare.run.runner import Runner
from hogwild.machine import physical_cores
from tests.compare.rows import rows_in
from tests.cuda.standin import StandIn

SMALL = "synthetic:rcv1?rows=1500&features=300&nnz=10"
QUICK = "--methods hogwild,locked --epochs 5 --seeds 3 --steps 1,2 --host threads"


def test_a_comparison_and_everything_it_writes(hogwild: Callable, tmp_path: Path) -> None:
    shown = hogwild(f"compare {SMALL} {QUICK} --workers 1,2 --out {tmp_path / 'out'}").shown()
    assert f"{SMALL}: 1,500 rows" in shown
    assert "held out 300 rows" in shown
    assert "On 2 workers" in shown
    assert "report.html" in shown
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"rows.jsonl", "summary.json", "report.html"} <= written
    assert {Path(name).suffix for name in written} == {".jsonl", ".json", ".csv", ".html", ".tex"}
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    again = hogwild(f"report {tmp_path / 'out'}")
    assert again.status == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def test_the_same_command_goes_on(hogwild: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-C; what is kept is the ledger's affair."""
    command = f"compare {SMALL} --methods hogwild --epochs 2 --seeds 3 --steps 1 --host threads --out {tmp_path}"
    run = Runner.run

    def interrupted(self: Runner, cell: Cell, epochs: int) -> list[dict]:
        if cell.seed:
            raise KeyboardInterrupt
        return run(self, cell, epochs)

    monkeypatch.setattr(Runner, "run", interrupted)
    result = hogwild(command)
    assert (result.status, result.err) == (130, "")
    assert f"runs are in {tmp_path}; the same command goes on" in result.out
    monkeypatch.undo()
    before = (tmp_path / "rows.jsonl").read_bytes()
    hogwild(command).shown()
    assert (tmp_path / "rows.jsonl").read_bytes().startswith(before)


OTHERS = {
    "synthetic:ratings?users=200&items=150&ratings=6000 --problem completion --rank 8 "
    "--methods hogwild,locked,liblinear --epochs 4 --steps 0.05,0.1": (
        "of the best seen",
        "test RMSE",
        "The optimum is not known",
        "refused: liblinear is for problem linear, not for completion",
    ),
    "synthetic:grid?side=24 --methods hogwild,aig,tiered --epochs 20 --steps 1": (
        "of the best seen",
        "cut value",
        "refused: discipline='tiered': expected one of",
    ),
    f"{SMALL} --problem fm --l2-factors 1e-4 --rank 2 --methods hogwild,locked --epochs 3 --steps 0.1": (
        "of the best seen",
        "l2 factors 0.0001, rank 2",
        "test accuracy",
    ),
}


@pytest.mark.parametrize("command", OTHERS)
def test_other_problems_are_compared_too(hogwild: Callable, tmp_path: Path, command: str) -> None:
    shown = hogwild(f"compare {command} --seeds 3 --workers 2 --host threads --out {tmp_path}").shown()
    assert [text for text in OTHERS[command] if text not in shown] == []
    head, *rows = rows_in(tmp_path)
    starts = {row["objective"] for row in rows if (row["phase"], row["epoch"], row["seed"]) == ("reported", 0, 0)}
    assert starts - {None} == {head["start_objective"]}  # all runs of a seed begin there


def test_a_gpu_s_methods_beside_serial(hogwild: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hogwild.cuda.streams.connect", StandIn)
    out = tmp_path / "out"
    options = "--device cuda --host threads --in-flight 9 --methods cuda-atomic,hogwild"
    shown = hogwild(f"compare {SMALL} --epochs 2 --seeds 1 --steps 0.1 {options} --out {out}").shown()
    assert "Speed and conflicts" in shown
    assert "stand-in" in shown
    rows = rows_in(out)
    assert {row["in_flight"] for row in rows if row["method"] == "cuda-atomic"} == {9}
    assert {(row["method"], row["workers"]) for row in rows[1:]} == {
        ("serial", 1),
        ("hogwild", physical_cores()),
        ("cuda-atomic", 1),
    }
