"""`hogwild train` and signals: once, it saves and stops; twice, it quits at once; nothing is left half-written."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hogwild.model_file import load_checkpoint, load_model
from tests.cli.conftest import rows_of

LONG = "synthetic:rcv1?rows=20000&features=2000&nnz=30"


def started(process: subprocess.Popen[str], rows: Path) -> None:
    """Wait until some epochs are done."""
    deadline = time.monotonic() + 180
    while not rows.exists() or rows.read_text().count("\n") < 3:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("host", "discipline", "number"), [("processes", "locked", signal.SIGINT), ("threads", "hogwild", signal.SIGHUP)]
)
def test_a_signal_saves_and_stops(spawn: Callable, tmp_path: Path, host: str, discipline: str, number: int) -> None:
    """As a terminal or a batch system sends it, to the whole group: workers and fork server get it as well."""
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip(f"signal {number} is ignored here (nohup), and so by every child")
    rows, model, state = tmp_path / "rows", tmp_path / "model", tmp_path / "state"
    options = f"--host {host} --discipline {discipline} --workers 2 --epochs 1000000 --step 0.1 --l2 0"
    files = f"--json {rows} --out {model} --checkpoint {state}"
    process = spawn(f"train {LONG} {options} {files}", start_new_session=True)
    started(process, rows)
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert err == "\nstopping and saving; once more to quit at once\n"
    last = rows_of(rows)[-1]
    assert last["status"] in ("interrupted", "ok")
    assert "interrupted after epoch" in out
    assert load_model(model).history[-1]["objective"] == last["objective"]
    assert load_checkpoint(state)[1]["history"][-1]["epoch"] == last["epoch"]
    assert [path.name for path in state.iterdir()] == ["checkpoint.safetensors"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "rows", "state"]


def test_a_second_signal_quits_at_once(spawn: Callable, tmp_path: Path) -> None:
    rows, model = tmp_path / "rows", tmp_path / "model"
    # The run is between two chunks, or saving, when the second signal comes.
    process = spawn(f"train {LONG} --host processes --epochs 1000000 --step 0.1 --l2 0 --json {rows} --out {model}")
    started(process, rows)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM
    assert {path.name for path in tmp_path.iterdir()} <= {"model", "rows"}


def test_a_signal_while_reading(spawn: Callable, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = spawn(f"train {pipe} --out {tmp_path / 'model'}")
    with open(pipe, "wb"):  # opened for reading now, and never written to
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert err.strip() == ""
    assert not (tmp_path / "model").exists()
