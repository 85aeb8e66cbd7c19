"""Several machines as processes, by the command line: started together, killed, stopped, interrupted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hogwild
from hogwild.cli import machines
from hogwild.config import TrainConfig
from hogwild.data.rows.store import save_store
from hogwild.errors import InputError
from tests.conftest import descendants
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


def start(
    store: str, machines: int, folder: Path, *options: str, train: list[str] = TRAIN
) -> list[subprocess.Popen[str]]:
    """Start that many machines; machine 0 writes its measurements to ``rows``."""
    address = free_address()
    started = []
    for number in range(machines):
        words = [
            *train,
            store,
            *ALONE,
            "--machines",
            f"{machines}",
            "--meet",
            address,
            "--machine",
            f"{number}",
            *options,
        ]
        words += ["--json", str(folder / "rows")] if number == 0 else []
        started.append(begun(words, folder / f"shown{number}"))
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


def test_all_machines_on_this_one(store: str, tmp_path: Path) -> None:
    model = tmp_path / "model"
    command = [*TRAIN, store, *ALONE, "--machines", "2", "--local", "--epochs", "3", "--out", str(model)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 machines" in done.stdout
    assert "2 replicas sent" in done.stdout
    assert hogwild.load(model).coef_.any()


@pytest.mark.parametrize("have_met", [False, True])
def test_local_machines_end_with_their_parent(have_met: bool, store: str, tmp_path: Path) -> None:
    before = descendants()
    options = ["--machines", "2", "--local", "--epochs", "1000000", "--quiet", "--json", str(tmp_path / "rows")]
    parent = subprocess.Popen([*TRAIN, store, *ALONE, *options])
    assert until(lambda: measured(tmp_path) if have_met else len(descendants() - before) == 2)
    parent.kill()
    parent.wait()
    assert until(lambda: descendants() <= before)


def test_a_local_machine_that_fails_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "LOCAL", "import sys; sys.exit('no memory')")
    meeting = machines.meeting_of({"machines": 2, "local": True})
    with pytest.raises(InputError, match=r"^machine 1 ended early: no memory$"):
        with machines.gathered(meeting, TrainConfig(workers=1, machines=2), str):
            pass


def test_a_machine_is_killed_and_missed_by_nobody(store: str, tmp_path: Path) -> None:
    """With other exchanges: ``test_asynchronous.py``, and below."""
    first, second, third = start(store, 3, tmp_path, "--epochs", "1000000", "--exchange", "averaging")
    assert until(lambda: epoch(tmp_path) > 4, 180)
    second.kill()
    second.communicate()
    assert until(lambda: measured(tmp_path)[-1]["workers_lost"] == 1, 180)
    lost = epoch(tmp_path)
    assert until(lambda: epoch(tmp_path) > lost + 4, 180)
    first.send_signal(signal.SIGINT)
    status, said = ended(first)
    assert (status, said.strip()) == (130, "stopping and saving; once more to quit at once")
    assert ended(third) == (0, "")
    *_, row, last = measured(tmp_path)
    assert (row["status"], row["updates"], row["workers_lost"]) == ("ok", 20_000, 1)
    assert (last["status"], last["workers_lost"]) == ("interrupted", 1)


def test_a_machine_that_was_killed_comes_back(store: str, tmp_path: Path) -> None:
    """What it prints says that it has done its part, and what machine 0 prints that it went and came."""
    options = ["--epochs", "1000000", "--exchange", "server:push=1000"]
    first, second = start(store, 2, tmp_path, *options, train=PATIENT)
    assert until(lambda: epoch(tmp_path) > 2, 180)
    second.kill()
    second.communicate()
    assert until(lambda: measured(tmp_path)[-1]["workers_lost"] == 1, 180)
    alone = measured(tmp_path)[-1]["messages"]  # in all epochs so far
    back = begun(second.args, tmp_path / "back")
    assert until(lambda: measured(tmp_path)[-1]["messages"] > alone + 10 or back.poll() is not None, 180)
    first.send_signal(signal.SIGINT)
    assert ended(first)[0] == 130
    assert ended(back) == (0, "")
    shown = (tmp_path / "back").read_text()
    assert "machine 1: done" in shown
    news = [line for line in (tmp_path / "shown0").read_text().splitlines() if line.startswith("machine 1 (")]
    assert [re.sub(r" \(.*?\)", "", line) for line in news] == [
        "machine 1 is gone: the connection is closed",
        "machine 1 is back",
    ]
    last = measured(tmp_path)[-1]
    assert (last["status"], last["workers_lost"]) == ("interrupted", 1)


def test_machine_0_is_killed(store: str, tmp_path: Path) -> None:
    first, second = start(store, 2, tmp_path, "--epochs", "1000000", "--checkpoint", str(tmp_path / "kept"))
    assert until(lambda: epoch(tmp_path) > 4, 180)
    first.kill()
    status, said = ended(second)
    assert status == 1
    assert said.startswith("hogwild: error: machine 0 (")
    assert len(said.splitlines()) == 1
    first.communicate()
    resumed = subprocess.run(
        [*TRAIN, store, *ALONE, "--epochs", "8", "--checkpoint", str(tmp_path / "kept"), "--resume", "-q"],
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert (resumed.returncode, resumed.stderr) == (0, "")


def test_control_c_ends_all_machines(store: str, tmp_path: Path) -> None:
    first, second = start(store, 2, tmp_path, "--epochs", "1000000")
    assert until(lambda: epoch(tmp_path) > 2, 180)
    first.send_signal(signal.SIGINT)
    assert ended(first)[0] == 130
    assert ended(second) == (0, "")
    assert measured(tmp_path)[-1]["status"] == "interrupted"


@pytest.mark.slow
@pytest.mark.parametrize("exchange", ["averaging", "server:push=100"])
def test_a_machine_that_stands_still_is_given_up(exchange: str, store: str, tmp_path: Path) -> None:
    first, second = start(store, 2, tmp_path, "--epochs", "1000000", "--exchange", exchange, train=IMPATIENT)
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
        (["--machines", "2"], "say where they meet, --meet HOST:PORT of machine 0, or --local"),
        (["--meet", "first:1"], "--meet is for several machines: give --machines P too"),
        (["--machines", "2", "--meet", "first"], "expected HOST:PORT of machine 0"),
        (["--machines", "2", "--meet", "first:1", "--machine", "2"], "expected a number from 0 to 1"),
        (["--machines", "2", "--meet", "first:1", "--local"], "leave --meet out"),
        ([], "torchrun needs --machines P --meet HOST:PORT"),
    ],
)
def test_options_that_do_not_go_together(words: list[str], reason: str) -> None:
    world = {} if words else {"WORLD_SIZE": "2"}
    done = subprocess.run([*TRAIN, *words], capture_output=True, text=True, timeout=180, env=os.environ | world)
    assert done.returncode == 2
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1
