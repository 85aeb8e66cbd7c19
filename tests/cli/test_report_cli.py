"""`hogwild report`: rebuilds from rows alone, without what trained; wrong usage; what it prints."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compare.rows import about, race, write

WITHOUT = """
import sys
for name in ("torch", "numba", "sklearn", "safetensors", "llvmlite"):
    sys.modules[name] = None  # importing it raises ImportError
from hogwild.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def comparison(tmp_path: Path) -> Path:
    return write(tmp_path / "one", about(data="[bold]made[/bold] up"), race("serial 1 2", "tiered 2 1", "locked 2 3"))


def test_a_report(hogwild: Callable, comparison: Path) -> None:
    shown = hogwild(f"report {comparison}").shown()
    assert (
        "\nUse tiered on 2 workers: first within 0.1 % of the optimum, in 3.00 s, clearly sooner than all others"
        in shown
    )
    assert "\nOn 2 workers tiered comes within 0.1 % of the optimum 3.0x (95 % CI 2.9–3.1) sooner than" in shown
    for text in (
        "Time to target, everyone at the given step",
        "Medians over the seeds",
        "[bold]made[/bold] up",
        "What was compared, and where",
        f"report: {comparison / 'report.html'}",
    ):
        assert text in shown
    assert (comparison / "report.html").is_file()


def test_on_a_machine_without_what_trained(comparison: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT, "report", str(comparison), "--out", str(tmp_path / "out")]
    root = Path(__file__).resolve().parents[2]
    result = subprocess.run(command, capture_output=True, text=True, cwd=root, env=dict(os.environ))
    assert (result.returncode, result.stderr) == (0, "")
    assert (tmp_path / "out" / "report.html").is_file()


def test_several_directories(hogwild: Callable, comparison: Path, tmp_path: Path) -> None:
    result = hogwild(f"report {comparison} {comparison} --out {tmp_path / 'joint'} --quiet")
    assert (result.status, result.out, result.err) == (0, "", "")
    assert (tmp_path / "joint" / "report.html").is_file()
