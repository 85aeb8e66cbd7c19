"""`scripts/bench_start.py`: what it reads off the stopwatch of a run, and the lines that it makes of seconds."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def bench_start() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_start", ROOT / "scripts" / "bench_start.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_parts_of_a_run_add_up(bench_start: ModuleType) -> None:
    tiny = "synthetic:rcv1?rows=300", ["--holdout", "0.2", "-w", "1"]
    head, rule, row = bench_start.table({"tiny": tiny}, torch=1.0).splitlines()
    title, *cells = (cell.strip() for cell in row.strip("|").split("|"))
    found = dict(zip([name.strip() for name in head.strip("|").split("|")[1:]], cells, strict=True))
    assert (title, rule.count("--:")) == ("tiny", len(cells))
    seconds = {name: float(cell or 0) for name, cell in found.items()}
    whole, over = seconds.pop("Enter to prompt"), seconds.pop("over")
    assert whole == pytest.approx(sum(seconds.values()), abs=0.06)  # each is rounded to a hundredth
    assert seconds["start"] > 0  # the others may be shorter than a hundredth of a second
    assert over == pytest.approx(whole / (1 + sum(seconds[part] for part in ("l2", "step", "training"))), abs=0.05)


def test_turns_and_what_is_said_of_them(bench_start: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr(bench_start, "stopwatch", lambda command: (float(len(calls)), calls.append(command)))
    found = bench_start.starts("rows.svm", 3)
    assert calls[:4] == calls[4:8]
    assert [command[command.index("rows.svm") :] for command in calls[1:3]] == [
        ["rows.svm", "--epochs", "3", "--l2", "1e-5", "-w", "1"],
        ["rows.svm", "--epochs", "3", "--l2", "1e-5", "-w", "2", "--host", "threads"],
    ]
    assert found["import torch"] == [4.0, 8.0, 12.0]  # without the first round
    lines = list(bench_start.summary({"import torch": [2.0, 1.0, 9.0], "two processes": [3.0, 3.0, 5.0]}))
    assert lines[0].split() == ["import", "torch", "2.00", "s", "(1.00", "to", "9.00)"]
    assert lines[1].endswith("1.50 times torch, aim 1.9")


def test_a_command_that_fails_ends_it(bench_start: ModuleType) -> None:
    with pytest.raises(SystemExit, match="status 3"):
        bench_start.stopwatch([sys.executable, "-c", "raise SystemExit(3)"])
