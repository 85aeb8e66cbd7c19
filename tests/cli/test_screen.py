"""Standard output or error that nobody can see any more: results are saved first, then the exit status tells."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import pytest

from hogwild.__main__ import main
from hogwild.machine import physical_cores
from hogwild.model_file import load_checkpoint, load_model
from hogwild.problems.linear.model import LinearModel
from tests.cli.conftest import rows_of

pytestmark = pytest.mark.filterwarnings("default::hogwild.errors.HogwildWarning")  # the command shows them
DATA = "synthetic:rcv1?rows=600&features=500&nnz=10"
ALONE = "--step 1 --epochs 3 --l2 1e-5 --host threads --workers 1"
FULL, CLOSED = "full disk", "closed pipe"
STATUS = {FULL: 1, CLOSED: 141}


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """``gone("stdout", FULL)`` makes a standard stream one that cannot be written."""
    streams: list[TextIO] = []

    def end(name: str, why: str) -> None:
        if why == FULL:
            descriptor = os.open("/dev/full", os.O_WRONLY)
        else:
            other, descriptor = os.pipe()
            os.close(other)
        streams.append(os.fdopen(descriptor, "w", buffering=1))
        monkeypatch.setattr(sys, name, streams[-1])

    yield end
    for stream in streams:
        stream.close()


@pytest.mark.parametrize("why", [FULL, CLOSED])
def test_a_screen_that_is_gone_loses_nothing(
    gone: Callable, tmp_path: Path, why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    files = [f"--{name}={tmp_path / name}" for name in ("out", "json", "checkpoint")]
    gone("stdout", why)
    assert main(["train", DATA, *ALONE.split(), *files]) == STATUS[why]
    message = "hogwild: error: standard output: No space left on device\n"
    assert capfd.readouterr().err == (message if why == FULL else "")
    assert [row["epoch"] for row in rows_of(tmp_path / "json")] == [0, 1, 2, 3]
    assert load_model(tmp_path / "out").history[-1]["epoch"] == 3
    assert load_checkpoint(tmp_path / "checkpoint")[1]["epoch"] == 3


@pytest.mark.parametrize("why", [FULL, CLOSED])
def test_messages_that_nobody_sees(
    gone: Callable, tmp_path: Path, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With ``--json -`` the table goes to standard error, and so do warnings."""
    gone("stderr", why)
    many = f"{ALONE} --workers {physical_cores() + 1}"  # which is warned of
    assert main(f"train {DATA} {many} --json - --out {tmp_path / 'model'}".split()) == STATUS[why]
    assert [row["epoch"] for row in rows_of(capsys.readouterr().out)] == [0, 1, 2, 3]
    assert load_model(tmp_path / "model").history[-1]["epoch"] == 3
    gone("stderr", why)
    assert main(["train", "missing"]) == 1


@pytest.mark.parametrize("why", [FULL, CLOSED])
def test_rows_that_nobody_takes_end_the_run_in_good_order(
    gone: Callable, tmp_path: Path, why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    files = [f"--{name}={tmp_path / name}" for name in ("out", "checkpoint")]
    gone("stdout", why)
    assert main(["train", DATA, *ALONE.split(), *files, "--json", "-", "--quiet"]) == STATUS[why]
    message = f"hogwild: error: --json -: No space left on device; model saved to {tmp_path / 'out'}\n"
    assert capfd.readouterr().err == (message if why == FULL else "")
    assert load_model(tmp_path / "out").history[-1]["epoch"] == 0


@pytest.mark.parametrize(
    ("command", "made"),
    [
        (f"simulate {DATA} --step 1 --epochs 2 --workers 4 --json rows --out model", "model"),
        (
            f"compare {DATA} --methods hogwild -w 2 --seeds 1 --epochs 2 --steps 1 --host threads --out out",
            "out/report.html",
        ),
    ],
)
def test_other_commands(
    gone: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, made: str
) -> None:
    monkeypatch.chdir(tmp_path)
    gone("stdout", FULL)
    assert main(command.split()) == 1
    assert Path(made).stat().st_size > 0


def test_what_only_prints_ends_at_once(gone: Callable) -> None:
    """Where nothing is kept there is nothing to go on for."""
    gone("stdout", CLOSED)
    assert main(["info", DATA]) == 141


def test_predictions_name_what_is_full(gone: Callable, svm: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = svm.parent / "model"
    LinearModel([1.0], [0.0], "log", labels=[1, 2]).save(model)
    assert main(f"predict {model} {svm} --out /dev/full".split()) == 1
    gone("stdout", FULL)
    assert main(f"predict {model} {svm}".split()) == 1
    wanted = [f"hogwild: error: {name}: No space left on device" for name in ("/dev/full", "standard output")]
    assert capfd.readouterr().err.splitlines() == wanted
