"""The examples over a slowed link: they run, and the point of each is checked by counts and by orders of events."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "scripts" / "examples" / "distributed"
NAMES = ("layer_by_layer", "two_stages", "two_by_two", "codistillation", "large_batch")

# All in one process, which imports torch once; each starts processes of its own. What `main` returns is what it prints.
RUNNER = """
import importlib, json, sys
from pathlib import Path

folder, *names = sys.argv[1:]
for name in names:
    found = importlib.import_module(name).main(quick=True)
    found = {str(key): value for key, value in found.items()} if isinstance(found, dict) else found
    Path(folder, f"{name}.json").write_text(json.dumps(found))
"""


def test_each_shows_what_it_is_for(tmp_path: Path) -> None:
    """One test, since all run in one process, which takes seconds to start."""
    command = [sys.executable, "-c", RUNNER, tmp_path, *NAMES]
    ran = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("\n") >= 2 * len(NAMES)
    found = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in NAMES}
    pushes_of_layers_start_before_backward_ends(found["layer_by_layer"])
    micro_batches_leave_the_gradients_and_interleave_the_stages(*found["two_stages"])
    two_by_two_holds_half_and_sends_least(found["two_by_two"])
    modules_that_teach_each_other_predict_better(found["codistillation"])
    a_scaled_step_keeps_up_by_a_sixteenth_of_the_messages(*found["large_batch"].values())


def test_each_is_a_page_long() -> None:
    assert {file.stem for file in FOLDER.glob("*.py")} == {*NAMES, "slowed"}
    for file in FOLDER.glob("*.py"):
        assert len(file.read_text().splitlines()) < 100, file


def pushes_of_layers_start_before_backward_ends(processes: list[Any]) -> None:
    *workers, _ = processes
    pushes = [f"push{k}" for k in reversed(range(8))]
    for worker in workers:
        assert worker["waiting"]["events"] == ["end", *pushes]
        assert worker["overlapped"]["events"] == [*pushes, "end"]
        assert worker["overlapped"]["losses"] == worker["waiting"]["losses"]
        assert worker["waiting"]["losses"][-1] < worker["waiting"]["losses"][0]


def micro_batches_leave_the_gradients_and_interleave_the_stages(lower: list[Any], upper: list[Any]) -> None:
    for pieces, below, above in zip((1, 4), lower, upper):
        assert below["pieces"] == below["messages"] == above["messages"] == pieces
        assert below["bytes"] == above["bytes"] == 512 * 512 * 4
        assert max(below["off"], above["off"]) < 1e-5
        assert below["events"] == ["send"] * pieces + ["take"] * pieces  # all are under way before the first is back
        assert above["events"] == ["take", "send"] * pieces  # which leaves before the second is taken


def two_by_two_holds_half_and_sends_least(layouts: dict[str, Any]) -> None:
    whole, rows = 8 * 256 * 257, 1024 * 256 * 4  # weights; bytes of the activations between two layers
    most = {name: max(each["bytes"] for each in processes) for name, processes in layouts.items()}
    assert most["(1, 1)"] == 0
    assert most["(4, 1)"] == 2 * 3 * whole * 4 // 4
    assert most["(1, 4)"] == 2 * rows  # up and down, of a stage in the middle
    assert most["(2, 2)"] == whole // 2 * 4 + rows // 2
    assert most["(2, 2)"] < min(most["(4, 1)"], most["(1, 4)"])
    for name, stages in {"(1, 1)": 1, "(4, 1)": 1, "(1, 4)": 4, "(2, 2)": 2}.items():
        for process in layouts[name]:
            assert process["weights"] == whole // stages
            assert process["off"] < 1e-4, name


def modules_that_teach_each_other_predict_better(workers: list[Any]) -> None:
    losses = {name: sum(each[name]["losses"][-1] for each in workers) for name in ("alone", "codistilled")}
    assert losses["codistilled"] < 0.95 * losses["alone"]
    for each in workers:
        assert each["messages"] == 400 // 50
        assert each["bytes"] == 400 // 50 * 4 * (65 * 128 + 129 * 10)
        assert each["alone"]["losses"][:2] == each["codistilled"]["losses"][:2]  # by labels alone, at first


def a_scaled_step_keeps_up_by_a_sixteenth_of_the_messages(small: Any, same: Any, scaled: Any, warm: Any) -> None:
    assert small["messages"] == 16 * same["messages"] == 16 * scaled["messages"] == 16 * warm["messages"]
    assert small["bytes"] == 16 * warm["bytes"]
    for run in (small, scaled, warm):
        assert run["losses"][-1] < 0.75 * same["losses"][-1]
