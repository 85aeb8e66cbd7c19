"""The scripts of ``scripts/bench``: what start.py reads off a stopwatch; rivals that take turns; a small log for
beyond.py; the GPU's script on a stand-in for one.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from hogwild.cuda import backend, streams
from hogwild.errors import TrainingError
from tests.cuda.standin import StandIn


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a script import one beside it, as when it is run."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "scripts" / "bench")


@pytest.fixture
def start() -> ModuleType:
    return importlib.import_module("scripts.bench.start")


def test_the_parts_of_a_run_add_up(start: ModuleType) -> None:
    tiny = "synthetic:rcv1?rows=300", ["--holdout", "0.2", "-w", "1"]
    head, rule, row = start.table({"tiny": tiny}, torch=1.0).splitlines()
    title, *cells = (cell.strip() for cell in row.strip("|").split("|"))
    found = dict(zip([name.strip() for name in head.strip("|").split("|")[1:]], cells, strict=True))
    assert (title, rule.count("--:")) == ("tiny", len(cells))
    seconds = {name: float(cell or 0) for name, cell in found.items()}
    whole, over = seconds.pop("Enter to prompt"), seconds.pop("over")
    assert whole == pytest.approx(sum(seconds.values()), abs=0.06)  # each is rounded to a hundredth
    assert seconds["start"] > 0  # the others may be shorter than a hundredth of a second
    assert over == pytest.approx(whole / (1 + sum(seconds[part] for part in ("l2", "step", "training"))), rel=0.05)


def test_a_click_log_goes_through_pipes_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    beyond = importlib.import_module("scripts.bench.beyond")
    words = ["beyond.py", "--rows", "20000", "--held-out", "4000", "--folder", str(tmp_path / "log")]
    there = importlib.util.find_spec("vowpalwabbit") is not None
    monkeypatch.setattr(sys, "argv", words if there else [*words, "--no-vw"])
    beyond.main()
    shown = capsys.readouterr().out
    floor = float(re.search(r"floor (0\.\d+)", shown)[1])
    losses = [float(loss) for loss in re.findall(r"held-out loss (0\.\d+)", shown)]
    assert len(losses) == 1 + there
    assert all(floor < loss < 0.69 for loss in losses)
    assert not any(tmp_path.iterdir())


def test_rivals_take_turns_and_the_first_round_is_not_counted() -> None:
    rounds, turns = importlib.import_module("rounds"), list[str]()

    def side(name: str, seconds: Iterator[float]) -> Any:
        return lambda: (turns.append(name), next(seconds))[1]

    def fails() -> float:
        raise TrainingError("diverged")

    sides = {"a": side("a", iter([9.0, 1.0, 3.0, 2.0])), "bad": fails, "b": side("b", iter([9.0, 4.0, 4.0, 4.0]))}
    found = rounds.interleaved(sides, 3)
    assert turns == ["a", "b"] * 4
    assert found["a"] == rounds.Timing((1.0, 3.0, 2.0))
    assert (found["a"].seconds, found["b"].per_second(8)) == (2.0, 2.0)
    assert (found["bad"].status, found["bad"].seconds) == ("failed: diverged", None)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, with a stand-in where it looks for a GPU and little to measure."""
    module = importlib.import_module("scripts.bench.gpu")
    device = StandIn(3)
    for place in (backend, streams):
        monkeypatch.setattr(place, "connect", lambda: device)
    for name, answer in {"is_available": True, "get_device_name": "a stand-in", "synchronize": None}.items():
        monkeypatch.setattr(torch.cuda, name, lambda answer=answer: answer)
    sizes = ("synthetic:rcv1?rows=200&features=200&nnz=8", "synthetic:ratings?users=30&items=20&ratings=150", 256, 16)
    small = {
        "DEVICE": "cpu",
        "SIZES": {True: sizes},
        "INPUTS": 12,
        "HIDDEN": 8,
        "BATCH": 16,
        "COPIED": 1 << 16,
        "RANKS": (13,),
    }
    for name, value in small.items():
        monkeypatch.setattr(module, name, value)
    return module


def test_every_rate_stands_beside_its_rival(gpu: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(["--quick", "--repeats", "1"]) == 0
    printed = capsys.readouterr().out
    assert "WRONG" not in printed
    lines = [line for line in printed.splitlines() if line.endswith("  ok")]
    assert len(lines) == 6 + 6 + 4
    assert sum(" 1x" in line for line in lines) >= 3  # the first of each is what the others are measured by
    assert "times as fast to that loss as all cores" in printed


def test_another_objective_than_the_cpus_is_said(gpu: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(gpu, "SERIAL", gpu.SERIAL | {"epochs": 5})
    assert gpu.main(["--quick", "--correctness"]) == 1
    assert "WRONG" in capsys.readouterr().out


def test_recommenders_are_measured_by_one_metric(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = importlib.import_module("scripts.bench.recommenders")
    monkeypatch.setitem(bench.MADE, "tiny", (60, 40, 9, 0.5, 1.0, 2.0))
    monkeypatch.setattr(bench.importlib.util, "find_spec", lambda name: None)  # no peers
    bench.main(["made:tiny"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    ndcg = {" ".join(words[:2]): float(words[2]) for words in lines if words[0] in ("most", "hogwild")}
    assert ndcg.keys() == {"most popular", "hogwild log", "hogwild bpr"}
    assert 0 < ndcg["most popular"] < 1
    made = bench.made("tiny")
    assert made.shape == (60, 40)
    assert len(set(zip(made.users.tolist(), made.items.tolist()))) == len(made)  # nobody chooses twice


def test_answers_are_timed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    bench = importlib.import_module("scripts.bench.serving")
    monkeypatch.setattr(bench, "BITS", 10)
    bench.main(["--rows", "20", "--repeats", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(bench.VALUES) * (1 + 2 * 3) + 1
    assert all(float(time) > 0 for time in re.findall(r"([\d.]+) (?:us|s)\b", "\n".join(lines)))
