"""How the command-line tests run commands: in this process where that will do, else as a process of their own."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hogwild.__main__ import main
from hogwild.cli.sources import implied_problem


@dataclass(frozen=True)
class Result:
    """What a command has come to."""

    status: int
    out: str
    err: str

    def shown(self) -> str:
        """What a command printed that went well and had nothing to warn of."""
        assert (self.status, self.err) == (0, "")
        return self.out

    def facts(self) -> dict[str, Any]:
        """What it printed with ``--json``."""
        facts: dict[str, Any] = json.loads(self.out)
        return facts


def rows_of(source: Path | str) -> list[dict[str, Any]]:
    """Rows of a file or of what a command printed."""
    text = source if isinstance(source, str) else source.read_text()
    return [json.loads(line) for line in text.splitlines()]


def with_penalty(arguments: Sequence[object]) -> list[str]:
    """The words of a command, given one by one or as a line for a shell.

    ``train`` of a linear model gets a penalty if it has none, as choosing one takes time. The default has its own
    tests, which call ``main``.
    """
    words = shlex.split(str(arguments[0])) if len(arguments) == 1 else [str(argument) for argument in arguments]
    if words[:1] != ["train"] or "--l2" in words:
        return words
    named = words[words.index("--problem") + 1] if "--problem" in words[:-1] else implied_problem([*words, ""][1])
    return [*words, "--l2", "1e-5"] if named == "linear" else words


@pytest.fixture
def hogwild(capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Result]]:
    """``hogwild("train file --epochs 2")`` in this process."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {number: signal.getsignal(number) for number in numbers}

    def call(*arguments: object) -> Result:
        capfd.readouterr()
        words = with_penalty(arguments)
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # main shows them as lines
            status = main(words)
        captured = capfd.readouterr()
        return Result(status, captured.out, captured.err)

    yield call
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def refused(hogwild: Callable[..., Result]) -> Callable[..., str]:
    """``refused("train none")``: the line on standard error of a command that must fail, and says why in one."""

    def call(*arguments: object) -> str:
        result = hogwild(*arguments)
        assert result.status in (1, 2), arguments
        assert re.fullmatch(r"hogwild: error: [^\n]+\n", result.err), (arguments, result.err)
        return result.err

    return call


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """``spawn("train file")``: a process of its own, ended at the test's end if it still runs."""
    started = []

    def start(*arguments: object, **options: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "hogwild", *with_penalty(arguments)]
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
