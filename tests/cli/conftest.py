"""How the command-line tests run commands: in this process where that will do, else as a process of their own."""

from __future__ import annotations

import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hogwild.__main__ import main


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str


@pytest.fixture
def hogwild(capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Result]]:
    """``hogwild("train", "file", ...)`` in this process."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {number: signal.getsignal(number) for number in numbers}

    def call(*arguments: object) -> Result:
        capfd.readouterr()
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # main shows them as lines
            status = main([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return Result(status, captured.out, captured.err)

    yield call
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """``spawn("train", ...)``: a process of its own, ended at the test's end if it still runs."""
    started = []

    def start(*arguments: object, **options: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "hogwild", *map(str, arguments)]
        settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": tmp_path, **options}
        started.append(subprocess.Popen(command, **settings))  # type: ignore[call-overload]
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def svm(tmp_path: Path) -> Path:
    """A small separable svmlight file: 200 rows, 20 features, labels 1 and 2."""
    path = tmp_path / "small.svm"
    lines = []
    for row in range(200):
        label = 1 + row % 2
        lines.append(f"{label} {1 + (row % 2) * 10 + row % 7}:1 {10 + (row % 2) * 10}:0.5 # row {row}\n")
    path.write_text("".join(lines))
    return path
