"""What every command shares: one line for whatever goes wrong, the exit status, quick answers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import hogwild.__main__ as program
from hogwild import __version__
from hogwild.errors import HogwildWarning, InputError, OutputError, TrainingError, UsageError
from hogwild.problems.linear.model import LinearModel


def test_version_and_help(hogwild: Callable) -> None:
    assert hogwild("--version").out == f"hogwild {__version__}\n"
    for arguments in ([], ["--help"], ["-h"]):
        result = hogwild(*arguments)
        assert result.status == 0
        for command in ("train", "predict", "evaluate", "inspect", "convert", "info", "data"):
            assert re.search(rf"^\W*{command} ", result.out, re.MULTILINE)


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (InputError("f:3: bad\nlabel"), 1, "f:3: bad label"),
        (UsageError("no"), 2, "no"),
        (OutputError("disk full"), 1, "disk full"),
        (TrainingError("diverged"), 1, "diverged"),
        (FileNotFoundError(2, "No such file", "x"), 1, "x: No such file"),
        (MemoryError(), 1, "out of memory"),
        (ZeroDivisionError("oops"), 1, "unexpected ZeroDivisionError: oops (set HOGWILD_DEBUG=1 for the traceback)"),
        (KeyboardInterrupt(), 130, None),
        (BrokenPipeError(), 141, None),
    ],
)
def test_exceptions(
    hogwild: Callable, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int, text: str | None
) -> None:
    def fail(_: list[str]) -> int:
        raise error

    monkeypatch.setattr(program, "_run", fail)
    result = hogwild("train")
    assert result.status == status
    assert result.err.strip() == ("" if text is None else f"hogwild: error: {text}")


def test_debug_shows_the_traceback(hogwild: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOGWILD_DEBUG", "1")
    result = hogwild("train --loss x")
    assert "Traceback" in result.err
    assert result.err.splitlines()[-1].startswith("hogwild: error:")


def test_warnings_are_one_line_each(hogwild: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(_: list[str]) -> int:
        warnings.warn("3 rows were\nsorted", HogwildWarning, stacklevel=2)
        return 0

    monkeypatch.setattr(program, "_run", warn)
    assert hogwild().err == "hogwild: warning: 3 rows were sorted\n"


def test_sigterm_ends_a_command_with_143(hogwild: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_run", lambda _: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(SystemExit) as stop:
        hogwild()
    assert stop.value.code == 143


HEAVY = {"torch", "numba", "scipy", "sklearn", "matplotlib", "jinja2"}
#: What looks at a matrix, or is of the compiler and more than loads what it has compiled.
NEEDLESS = {"torch", "sklearn", "scipy.linalg", "scipy.sparse", "matplotlib", "rich.live", "numba.np.arraymath"}
SMALL = "synthetic:rcv1?rows=600&features=500&nnz=10"
#: Command, its exit status, a part of its error, and what it must not import: in this order, since imports stay.
LIGHT: list[tuple[str, int, str, set[str]]] = [
    ("--help", 0, "", HEAVY),
    ("info", 0, "", HEAVY),
    ("train --loss x", 2, "expected one of log", HEAVY),
    ("train missing.svm", 1, "missing.svm: No such file", HEAVY),
    ("train -", 1, "-: No such file or directory", {"torch"}),
    (f"train {SMALL} --test missing.svm", 1, "missing.svm: No such file", {"torch"}),
    (f"train {SMALL} --out nowhere/model", 1, "--out nowhere/model: cannot write there", {"torch"}),
    (f"train {SMALL} --out .", 1, "--out .: expected the name of a file", {"torch"}),
    (f"train {SMALL} --checkpoint bad.svm/state", 1, "bad.svm/state: cannot write there", {"torch"}),
    ("train bad.svm", 1, "bad.svm:2: ", {"torch"}),
    ("train one.svm", 1, "one.svm: all 2 rows have the label 1", {"torch"}),
    ("train synthetic:nothing", 1, "synthetic:nothing", {"torch"}),
    (f"train {SMALL} --l2 1e-5 --workers 1 --epochs 1", 0, "", NEEDLESS),
    ("predict model one.svm -o /dev/null", 0, "", {"torch", "matplotlib"}),
    ("evaluate model one.svm", 0, "", {"torch", "matplotlib"}),
    ("inspect model", 0, "", {"torch", "matplotlib"}),
    (f"train {SMALL} --workers 2 --epochs 1 --step 1", 0, "", {"torch"}),
]
LOOK = """
import json, sys
from hogwild.__main__ import main
for words in json.loads(sys.argv[1]):
    print(json.dumps([main(words), [*sys.modules]]), file=sys.stderr)
"""


def test_commands_import_little_and_mistakes_show_early(hogwild: Callable, tmp_path: Path) -> None:
    hogwild(f"train {SMALL} --workers 1 --epochs 1")  # whose kernels are compiled then
    (tmp_path / "bad.svm").write_text("1 1:1\n2 1:x\n")
    (tmp_path / "one.svm").write_text("1 1:1\n1 2:1\n")
    LinearModel([1.0, 2.0], [0.0], "log", labels=[1, 2]).save(tmp_path / "model")
    before = sorted(tmp_path.iterdir())
    command = [sys.executable, "-c", LOOK, json.dumps([words.split() for words, *_ in LIGHT])]
    odd = {**os.environ, "NUMBA_NUM_THREADS": "0"}  # which Numba refuses
    lines = subprocess.run(command, cwd=tmp_path, env=odd, capture_output=True, text=True).stderr.splitlines()
    for words, status, text, heavy in LIGHT:
        error = lines.pop(0) if status else ""
        assert re.fullmatch(r"hogwild: error: .+" if status else "", error), words
        assert text in error, words
        returned, modules = json.loads(lines.pop(0))
        assert (returned, heavy & set(modules)) == (status, set()), words
    assert not lines
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("command", "status", "text"),
    [
        ("predict missing - <&- >&-", 1, "hogwild: error: missing: No such file or directory\n"),
        ("data info a9a <&- >&- 2>&-", 0, ""),
    ],
)
def test_closed_standard_streams(command: str, status: int, text: str) -> None:
    result = subprocess.run(["bash", "-c", f"{sys.executable} -m hogwild {command}"], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (status, text)


def test_an_empty_variable_asks_for_no_completion(hogwild: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_HOGWILD_COMPLETE", "")
    assert hogwild("--version").out.startswith("hogwild ")
