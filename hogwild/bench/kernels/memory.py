"""Peak memory that a training run owns: anonymous and shared pages, without the mapped pages of the data."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hogwild.bench.kernels.fresh import run_child
from hogwild.bench.plan import STEPS, BenchPlan, about

LOOKS = 0.01  # seconds between samples


def measure(plan: BenchPlan) -> Iterator[dict[str, Any]]:
    """Yield the megabytes of one run by one worker in a fresh interpreter."""
    rows = plan.open("rcv1")
    plan.note("training in a fresh interpreter")
    directory = None if plan.cache is None else str(plan.cache.directory)
    arguments = [plan.names["rcv1"], directory, STEPS["rcv1"]]
    peak = run_child(__name__, arguments, "memory could not be measured")
    yield about(plan.names["rcv1"], rows) | {"workers": 1, "peak_megabytes": peak, "status": "ok"}


def child(name: str, directory: str | None, step: float) -> float:
    """Train two epochs and return the peak in megabytes."""
    peak, over = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not over.is_set():
            peak = max(peak, owned())
            time.sleep(LOOKS)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    from hogwild.data.cache import Cache
    from hogwild.data.rows.source import open_data
    from hogwild.training.train import train

    rows = open_data(name, cache=None if directory is None else Cache(directory))
    train(rows, workers=1, epochs=2, step=step).finish()
    over.set()
    watcher.join()
    return max(peak, owned()) / 1e6


def owned() -> int:
    """Return the bytes of this process that no file backs."""
    lines = Path("/proc/self/status").read_text().splitlines()
    facts = dict(line.split(":", 1) for line in lines if ":" in line)
    return sum(int(facts[name].split()[0]) << 10 for name in ("RssAnon", "RssShmem"))
