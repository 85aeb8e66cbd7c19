"""Several machines as processes, by the command line: started together, killed, stopped, interrupted."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hogwild
from hogwild.__main__ import main
from hogwild.data.rows.store import save_store
from tests.machines.test_machines import free_address
from tests.runs import toy, until

TRAIN = [sys.executable, "-m", "hogwild", "train"]
IMPATIENT = [
    sys.executable,
    "-c",
    """import sys
from hogwild.__main__ import main
from hogwild.machines import cluster
cluster.SILENCE = 4.0  # seconds
sys.exit(main())""",
    "train",
]
PATIENT = [*IMPATIENT[:2], IMPATIENT[2].replace("SILENCE = 4.0", "SILENCE = cluster.COMING = 120.0"), "train"]
TAIL = 1 << 16  # bytes of measurements that are read
ALONE = ["--workers", "1", "--host", "threads", "--step", "0.5", "--patience", "0"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_store(toy(20_000), tmp_path_factory.mktemp("machines") / "rows"))


def start(data: list[str], folder: Path, *options: str, train: list[str] = TRAIN) -> list[subprocess.Popen[str]]:
    """Start a machine for each store or file; machine 0 writes its measurements to ``rows``."""
    common = [*ALONE, "--machines", f"{len(data)}", "--meet", free_address(), *options]
    started = []
    for number, path in enumerate(data):
        rows = [] if number else ["--json", str(folder / "rows")]
        started.append(begun([*train, path, *common, *rows, "--machine", f"{number}"], folder / f"shown{number}"))
    return started


def begun(words: Any, shown: Path) -> subprocess.Popen[str]:
    """Start a program that writes to a file what it shows: a pipe that nobody reads fills, and then it stands still."""
    with shown.open("w") as file:
        return subprocess.Popen(words, stdout=file, stderr=subprocess.PIPE, text=True)


def measured(folder: Path) -> list[dict[str, Any]]:
    """The last rows that are on the disk; a machine alone writes thousands in a test."""
    path = folder / "rows"
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - TAIL, 0))
        lines = file.read().split(b"\n")[:-1]
    return [json.loads(line) for line in lines if line.startswith(b"{")]  # the first may be a part


def epoch(folder: Path) -> float:
    rows = measured(folder)
    return float(rows[-1]["epoch"]) if rows else -1.0


def ended(process: subprocess.Popen[str], seconds: float = 180.0) -> tuple[int, str]:
    _, said = process.communicate(timeout=seconds)
    return process.returncode, said


def test_a_machine_that_was_killed_is_missed_by_nobody_and_comes_back(store: str, tmp_path: Path) -> None:
    """What it prints says that it has done its part, and what machine 0 prints that it went and came."""
    options = ["--epochs", "1000000", "--exchange", "server:push=1000"]
    first, second, third = start([store] * 3, tmp_path, *options, train=PATIENT)
    assert until(lambda: epoch(tmp_path) > 2, 180)
    second.kill()
    second.communicate()
    assert until(lambda: measured(tmp_path)[-1]["workers_lost"] == 1, 180)
    lost = epoch(tmp_path)
    assert until(lambda: epoch(tmp_path) > lost + 4, 180)
    row = measured(tmp_path)[-1]
    assert (row["status"], row["updates"], row["workers_lost"]) == ("ok", 20_000, 1)
    back = begun(second.args, tmp_path / "back")
    shown = tmp_path / "shown0"
    assert until(lambda: "is back" in shown.read_text() or back.poll() is not None, 180)
    there = epoch(tmp_path)
    assert until(lambda: epoch(tmp_path) > there + 2, 180)
    first.send_signal(signal.SIGINT)
    status, said = ended(first)
    assert (status, said.strip()) == (130, "stopping and saving; once more to quit at once")
    assert ended(third) == ended(back) == (0, "")
    assert "machine 1: done" in (tmp_path / "back").read_text()
    news = [line for line in shown.read_text().splitlines() if line.startswith("machine 1 (")]
    assert [re.sub(r" \(.*?\)", "", line) for line in news] == [
        "machine 1 is gone: the connection is closed",
        "machine 1 is back",
    ]
    last = measured(tmp_path)[-1]
    assert (last["status"], last["workers_lost"]) == ("interrupted", 1)


def test_machine_0_is_killed(store: str, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    first, second = start([store] * 2, tmp_path, "--epochs", "1000000", "--checkpoint", str(kept))
    assert until(lambda: epoch(tmp_path) > 4, 180)
    first.kill()
    first.communicate()
    status, said = ended(second)
    assert status == 1
    assert said.startswith("hogwild: error: machine 0 (")
    assert len(said.splitlines()) == 1
    options: dict[str, Any] = {"workers": 1, "host": "threads", "step": 0.5}
    resumed = hogwild.train(store, checkpoint=kept, resume=True, epochs=10**6, **options)
    assert next(resumed)["status"] == "ok"
    resumed.close()


@pytest.mark.slow
def test_a_machine_that_stands_still_is_given_up(store: str, tmp_path: Path) -> None:
    first, second = start([store] * 2, tmp_path, "--epochs", "1000000", train=IMPATIENT)
    assert until(lambda: epoch(tmp_path) > 2, 180)
    second.send_signal(signal.SIGSTOP)
    before = epoch(tmp_path)
    assert until(lambda: epoch(tmp_path) > before + 3, 120)
    assert measured(tmp_path)[-1]["workers_lost"] == 1
    second.send_signal(signal.SIGCONT)  # it finds itself alone
    status, said = ended(second)
    assert status == 1
    assert "machine 0" in said
    first.send_signal(signal.SIGTERM)
    assert ended(first)[0] == 143


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--machines", "2", "--meet", "first"], "expected HOST:PORT of machine 0"),
        (["--machines", "2", "--meet", "first:1", "--machine", "2"], "expected a number from 0 to 1"),
        ([], "torchrun needs --machines P --meet HOST:PORT"),
    ],
)
def test_options_that_do_not_go_together(
    words: list[str], reason: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if not words:
        monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["train", *words]) == 2
    said = capfd.readouterr().err
    assert reason in said
    assert len(said.splitlines()) == 1
