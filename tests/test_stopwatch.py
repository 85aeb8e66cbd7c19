"""The parts of a stopwatch: each second belongs to one, in the library and in the command."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time

import pytest

import hogwild
from hogwild.data.rows.source import open_data
from hogwild.training.stopwatch import PARTS, Stopwatch


def test_parts_interrupt_each_other_and_add_up(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    watch = Stopwatch("set-up", since=-1.0)
    with contextlib.suppress(ValueError), watch("step"):
        now[0] = 2.0
        with watch("training"):
            now[0] = 5.0
        now[0] = 5.5
        assert (watch.spent("step"), watch.spent("training", "set-up")) == (2.5, 4.0)
        raise ValueError
    now[0] = 7.0
    watch.add({"reading": 0.5, "set-up": 1.0})
    assert watch.seconds == {"reading": 0.5, "set-up": 2.5 + 1.0, "step": 2.5, "training": 3.0}
    assert watch.seconds == watch.seconds


def test_a_run_knows_where_its_time_went(tmp_path):
    began = time.perf_counter()
    with hogwild.train(open_data("synthetic:rcv1?rows=300"), epochs=2, workers=1, checkpoint=tmp_path / "c") as run:
        run.finish()
        parts, whole = run.stopwatch.seconds, time.perf_counter() - began
    assert list(parts) == [part for part in PARTS if part not in ("start", "reading", "l2")]
    assert min(parts.values()) > 0
    assert sum(parts.values()) <= whole
    assert parts["training"] + parts["step"] == pytest.approx(run.history[-1]["train_seconds"])


def test_the_command_counts_from_the_start_of_the_process():
    command = f"{sys.executable} -m hogwild train synthetic:rcv1?rows=300 --epochs 2 -w 2 -v --host threads --l2 1e-5"
    began = time.perf_counter()
    done = subprocess.run(command.split(), capture_output=True, text=True, timeout=300, check=True)
    whole = time.perf_counter() - began
    found = dict(re.findall(r"^([a-z][a-z -]*?) +([0-9.]+) s +[0-9]+%$", done.stdout, re.MULTILINE))
    total = float(found.pop("in all"))
    assert {"start", "reading", "set-up", "training", "evaluation"} <= set(found)
    assert sum(map(float, found.values())) == pytest.approx(total, abs=0.005 * (len(found) + 1))
    assert f"{total:.2f} s in all" in done.stdout
    assert 0.3 * whole < total < whole + 0.05
