"""The parts of a stopwatch: each second belongs to one; the command's are in ``test_bench_scripts.py``."""

from __future__ import annotations

import contextlib
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
