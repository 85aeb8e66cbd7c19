"""Rows files and what a run looks like on a terminal, in a file and in a pipe."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hogwild.cli.display import Display, Reading, bar, clock, training_line
from hogwild.errors import OutputError
from hogwild.rows_file import RowsFile, to_json

ROW = {
    "epoch": 0,
    "objective": 0.693147,
    "train_loss": 0.69,
    "test_loss": 0.7,
    "train_accuracy": None,
    "test_accuracy": None,
    "nonzeros_per_second": None,
    "train_seconds": 0.0,
    "status": "ok",
}


def test_rows_are_json_lines() -> None:
    row = {
        "a": np.float32(0.5),
        "b": float("nan"),
        "c": np.inf,
        "d": [np.int64(3), np.nan],
        "e": None,
        "f": {"g": -np.inf},
    }
    assert json.loads(to_json(row)) == {"a": 0.5, "b": None, "c": None, "d": [3, None], "e": None, "f": {"g": None}}


def test_rows_are_there_as_soon_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    rows = RowsFile(str(path))
    rows.write({"epoch": 0})
    assert path.read_text() == '{"epoch": 0}\n'
    rows.close()
    RowsFile(str(path)).close()
    assert path.read_text() == ""


def test_resuming_appends_and_cuts_a_partial_line(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    for before, kept in (('{"epoch": 0}\n{"epo', '{"epoch": 0}\n'), ('{"epoch": 0}\n', '{"epoch": 0}\n'), ("{", "")):
        path.write_text(before)
        rows = RowsFile(str(path), append=True)
        rows.write({"epoch": 1})
        rows.close()
        assert path.read_text() == kept + '{"epoch": 1}\n'
    path.unlink()
    RowsFile(str(path), append=True).close()
    assert path.read_text() == ""


def test_full_disk() -> None:
    with pytest.raises(OutputError, match="--json /dev/full: No space left"):
        RowsFile("/dev/full").write({"epoch": 0})
    with pytest.raises(OutputError, match="--json /nowhere/rows: No such file"):
        RowsFile("/nowhere/rows")


def test_columns_are_fixed_by_the_first_row() -> None:
    stream = io.StringIO()
    display = Display(stream)
    display.row(ROW)
    display.row(ROW | {"epoch": 1, "objective": 1 / 3, "nonzeros_per_second": 4.125e8, "train_seconds": 1.5})
    display.row(ROW | {"epoch": 20, "objective": float("nan"), "status": "diverged", "workers_lost": 1})
    header, *lines = stream.getvalue().splitlines()
    assert header.split("  ")[0] == " epoch"
    assert "test loss" in header
    assert "test acc" not in header
    assert lines[0] == "     0    0.693147         0.7        -      0.00"
    assert lines[1] == "     1    0.333333         0.7    412.5      1.50"
    assert lines[2].endswith("  diverged  1 worker(s) lost")
    assert " - " in lines[2]
    assert {len(line) for line in (header, *lines[:2])} == {len(header)}


def test_quiet_and_plain() -> None:
    stream = io.StringIO()
    quiet = Display(stream, quiet=True)
    with quiet.live(lambda: "live"):
        quiet.say("x")
        quiet.row(ROW)
    plain = Display(stream)
    with plain.live(lambda: "live"):
        plain.say("a line")
    assert stream.getvalue() == "a line\n"


def test_live_line_on_a_terminal() -> None:
    parent, child = os.openpty()
    with os.fdopen(child, "w") as terminal:
        display = Display(terminal)
        assert display.is_live
        with display.live(lambda: "live line"):
            display.say("a line")
        with display.live(lambda: 1 / 0):  # a display that fails ends nothing
            pass
        shown = os.read(parent, 1 << 16).decode()
    os.close(parent)
    assert "live line" in shown
    assert "a line\r\n" in shown


def test_live_lines() -> None:
    progress = SimpleNamespace(epoch=2, rows_done=500, rows_total=2000, seconds=1.5)
    line = training_line(progress, epochs=10)
    assert line == f"epoch 3/10 {bar(0.25)} 500/2,000 rows  0:02 elapsed  0:04 left"
    progress = SimpleNamespace(epoch=0, rows_done=0, rows_total=0, seconds=0.0)
    assert "0/0 rows" in training_line(progress, epochs=1)
    reading = Reading("file")
    reading.update(50, 200)
    assert reading.line().startswith(f"reading file {bar(0.25)} 25%")
    reading.update(50_000_000, None)
    assert reading.line() == "reading file 50 MB  0:00 elapsed"
    assert [clock(seconds) for seconds in (-1, 0.4, 61, 3599.6, 7325)] == ["0:00", "0:00", "1:01", "1:00:00", "2:02:05"]


def test_any_name_and_an_ascii_terminal(tmp_path: Path, svm: Path) -> None:
    name = "[bold] %s li\nne" + os.fsdecode(b"\xff\xfe")
    svm.rename(tmp_path / name)
    command = [sys.executable, "-m", "hogwild", "train", name, *"--epochs 2 --step 1 --l2 1e-5 -w 1".split()]
    master, slave = os.openpty()
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "TERM": "xterm"}
    process = subprocess.Popen(
        [*command, "--out", f"{name}.model"], cwd=tmp_path, stdin=slave, stdout=slave, stderr=slave, env=environment
    )
    os.close(slave)
    shown = b""
    with contextlib.suppress(OSError):  # the other end was closed
        while part := os.read(master, 1 << 16):
            shown += part
    os.close(master)
    assert process.wait() == 0, shown
    assert b"done after epoch 2" in shown
    assert (tmp_path / f"{name}.model").is_file()


def test_no_control_character_reaches_the_screen(
    hogwild: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of file names, labels, columns and ids: in errors, warnings, rows and facts."""
    monkeypatch.chdir(tmp_path)
    name, table, model, odd = "a\x1b[31m\x07\u202eb.svm", "t\x1b[2Jb.csv", "m\x1b[5m", "c\x1b[31mx"
    Path(name).write_text("1 2:1 1:1\n-1 2:2\n" * 9)
    Path("labels.svm").write_bytes(b"x\x9b\x1b]0;t 1:1\n")
    Path("ratings.txt").write_bytes(b"\x1b[2J 3 4\nu i \x1b[31m\n")
    Path(table).write_text(f"y,{odd}\n" + "no\x1b[1m,v\x1b[32m\nyes,w\n" * 60)
    train = "--epochs 1 --step 1 --host threads --workers 1"
    fine = [
        f"train '{name}' {train}",
        f"info '{name}'",
        f"train '{table}' --label y {train} --out '{model}'",
        f"info '{table}' --label y",
        f"inspect '{model}'",
        f"evaluate '{model}' '{table}'",
    ]
    wrong = [
        f"train labels.svm {train}",
        f"train ratings.txt --problem completion {train}",
        f"data info '{name}'",
        f"predict '{name}' labels.svm",
        f"train '{table}' --label 'y\x1b'",
        f"train '{table}' --label y --ignore 'a\x1bb'",
        "compare 'no\x1b'",
    ]
    for words in (*fine, *wrong):
        done = hogwild(words)
        assert (done.status == 0) == (words in fine), (words, done.err)
        assert done.out or done.err
        assert all(c.isprintable() for c in (done.out + done.err).replace("\n", "")), words
    assert "a\\x1b[31m\\x07\\u202eb.svmx: No such file" in hogwild(f"train '{name}x'").err
