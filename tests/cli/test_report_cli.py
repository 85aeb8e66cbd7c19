"""`hogwild report`: rebuilds from rows alone, without what trained; wrong usage; what it prints."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compare.rows import about, halving, run, write

WITHOUT = """
import sys
for name in ("torch", "numba", "sklearn", "safetensors", "llvmlite"):
    sys.modules[name] = None  # importing it raises ImportError
from hogwild.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def comparison(tmp_path: Path) -> Path:
    pairs = ("serial", 1, 2.0), ("tiered", 2, 1.0), ("locked", 2, 3.0)
    parts = [
        run(method, halving(), pace * (1 + 0.01 * seed), count, seed, rules=["tuned", "serial"])
        for seed in range(3)
        for method, count, pace in pairs
    ]
    return write(tmp_path / "one", about(data="[bold]made[/bold] up"), *parts)


def test_a_report(hogwild: Callable, comparison: Path) -> None:
    result = hogwild(f"report {comparison}")
    assert (result.status, result.err) == (0, "")
    assert "\nOn 2 workers tiered reaches 0.1 % of the optimum 3.0x (95 % CI 3.0–3.0) sooner than" in result.out
    for text in (
        "Time to target, each method at its own best step",
        "Medians over the seeds",
        "[bold]made[/bold] up",
        "What was compared, and where",
        f"report: {comparison / 'report.html'}",
    ):
        assert text in result.out
    assert (comparison / "report.html").is_file()


def test_on_a_machine_without_what_trained(comparison: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT, "report", str(comparison), "--out", str(tmp_path / "out")]
    root = Path(__file__).resolve().parents[2]
    result = subprocess.run(command, capture_output=True, text=True, cwd=root, env=dict(os.environ))
    assert (result.returncode, result.stderr) == (0, "")
    assert (tmp_path / "out" / "curves-seconds.png").is_file()


@pytest.mark.usefixtures("sketched")
def test_several_directories(hogwild: Callable, comparison: Path, tmp_path: Path) -> None:
    result = hogwild(f"report {comparison} {comparison} --out {tmp_path / 'joint'} --quiet")
    assert (result.status, result.out, result.err) == (0, "", "")
    assert (tmp_path / "joint" / "report.html").is_file()


@pytest.mark.usefixtures("sketched")
def test_a_torn_last_line_is_said(hogwild: Callable, comparison: Path) -> None:
    with (comparison / "rows.jsonl").open("a") as file:
        file.write('{"phase": "repor')
    result = hogwild(f"report {comparison} -q")
    assert result.status == 0
    assert result.err.startswith("hogwild: warning: ")
    assert "the last line is torn" in result.err


@pytest.mark.usefixtures("sketched")
def test_show_the_page(hogwild: Callable, comparison: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert hogwild(f"report {comparison} -q --open").status == 0
    assert opened == [(comparison / "report.html").as_uri()]
