"""Several machines as processes, by the command line: started together, killed, stopped, interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hogwild
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
ALONE = ["--workers", "1", "--host", "threads", "--step", "0.5"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_store(toy(20_000), tmp_path_factory.mktemp("machines") / "rows"))


def start(
    store: str, machines: int, folder: Path, *options: str, train: list[str] = TRAIN
) -> list[subprocess.Popen[str]]:
    """Start that many machines; machine 0 writes its measurements to ``rows``."""
    address, started = free_address(), []
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
        started.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    return started


def measured(folder: Path) -> list[dict[str, Any]]:
    path = folder / "rows"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]  # the last one may be on its way to the disk


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


def test_a_machine_is_killed_and_missed_by_nobody(store: str, tmp_path: Path) -> None:
    """With other exchanges: ``test_asynchronous.py``, and below."""
    first, second, third = start(store, 3, tmp_path, "--epochs", "1000000", "--exchange", "averaging")
    assert until(lambda: len(measured(tmp_path)) > 4, 180)
    second.kill()
    second.communicate()
    assert until(lambda: measured(tmp_path)[-1]["workers_lost"] == 1, 180)
    lost = len(measured(tmp_path))
    assert until(lambda: len(measured(tmp_path)) > lost + 4, 180)
    first.send_signal(signal.SIGINT)
    status, said = ended(first)
    assert (status, said.strip()) == (130, "stopping and saving; once more to quit at once")
    assert ended(third) == (0, "")
    *_, row, last = measured(tmp_path)
    assert (row["status"], row["updates"], row["workers_lost"]) == ("ok", 20_000, 1)
    assert (last["status"], last["workers_lost"]) == ("interrupted", 1)


def test_a_machine_that_was_killed_comes_back(store: str, tmp_path: Path) -> None:
    """What it prints says that it has done its part; without it every row would say what two machines have sent."""
    first, second = start(store, 2, tmp_path, "--epochs", "1000000", "--exchange", "server:push=1000")
    assert until(lambda: len(measured(tmp_path)) > 2, 180)
    second.kill()
    second.communicate()
    assert until(lambda: measured(tmp_path)[-1]["workers_lost"] == 1, 180)
    alone = measured(tmp_path)[-1]["messages"]
    back = subprocess.Popen(second.args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert until(lambda: measured(tmp_path)[-1]["messages"] > alone + 10, 180)
    first.send_signal(signal.SIGINT)
    assert ended(first)[0] == 130
    said, complained = back.communicate(timeout=180)
    assert (back.returncode, complained) == (0, "")
    assert "the run has begun: asking machine 0" in said
    assert "machine 1: done" in said
    last = measured(tmp_path)[-1]
    assert (last["status"], last["workers_lost"]) == ("interrupted", 1)


def test_machine_0_is_killed(store: str, tmp_path: Path) -> None:
    first, second = start(store, 2, tmp_path, "--epochs", "1000000", "--checkpoint", str(tmp_path / "kept"))
    assert until(lambda: len(measured(tmp_path)) > 4, 180)
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
    assert until(lambda: len(measured(tmp_path)) > 2, 180)
    first.send_signal(signal.SIGINT)
    assert ended(first)[0] == 130
    assert ended(second) == (0, "")
    assert measured(tmp_path)[-1]["status"] == "interrupted"


def test_the_links_of_a_cluster_are_measured(store: str) -> None:
    words = ["cluster", "check", store, "--machines", "2", "--meet", free_address(), "--json"]
    command = [sys.executable, "-m", "hogwild", *words]
    machines = [subprocess.Popen([*command, "--machine", f"{k}"], stdout=subprocess.PIPE, text=True) for k in range(2)]
    said = [process.communicate(timeout=180)[0] for process in machines]
    assert [process.returncode for process in machines] == [0, 0]
    found = json.loads(said[0])
    (link,) = found["links"]
    assert found["prediction"]["link"] == found["link"]
    assert {each["exchange"] for each in found["prediction"]["exchanges"]} >= {"averaging", "gossip:period=1000"}
    assert link["machine"] == 1
    assert link["latency_seconds"] > 0
    assert link["bits_per_second"] > 0
    assert said[1] == ""


@pytest.mark.slow
@pytest.mark.parametrize("exchange", ["averaging", "server:push=100"])
def test_a_machine_that_stands_still_is_given_up(exchange: str, store: str, tmp_path: Path) -> None:
    first, second = start(store, 2, tmp_path, "--epochs", "1000000", "--exchange", exchange, train=IMPATIENT)
    assert until(lambda: len(measured(tmp_path)) > 2, 180)
    second.send_signal(signal.SIGSTOP)
    before = len(measured(tmp_path))
    assert until(lambda: len(measured(tmp_path)) > before + 3, 120)
    assert measured(tmp_path)[-1]["workers_lost"] == 1
    second.send_signal(signal.SIGCONT)  # it finds itself alone
    status, said = ended(second)
    assert status == 1
    assert "machine 0" in said
    first.send_signal(signal.SIGTERM)
    assert ended(first)[0] == 143


@pytest.mark.slow
def test_under_torchrun(store: str, tmp_path: Path) -> None:
    port = free_address().rpartition(":")[2]
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nnodes",
        "1",
        "--nproc-per-node",
        "2",
        "--local-addr",
        "127.0.0.1",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        f"127.0.0.1:{port}",
        "-m",
        "hogwild",
        "train",
        store,
        *ALONE,
        "--epochs",
        "3",
        "--json",
        str(tmp_path / "rows"),
        "--quiet",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    last = measured(tmp_path)[-1]
    assert last["replicas"] == 2
    assert last["updates"] == 20_000


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--machines", "2"], "say where they meet, --meet HOST:PORT of machine 0, or --local"),
        (["--meet", "first:1"], "--meet is for several machines: give --machines P too"),
        (["--machines", "2", "--meet", "first"], "expected HOST:PORT of machine 0"),
        (["--machines", "2", "--meet", "first:1", "--machine", "2"], "expected a number from 0 to 1"),
        (["--machines", "2", "--meet", "first:1", "--local"], "leave --meet out"),
    ],
)
def test_options_that_do_not_go_together(words: list[str], reason: str) -> None:
    done = subprocess.run([*TRAIN, *words], capture_output=True, text=True, timeout=180)
    assert done.returncode == 2
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1
