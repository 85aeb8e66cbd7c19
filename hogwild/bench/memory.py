"""Peak memory that a training run owns: anonymous and shared pages, the mapped pages of the data aside."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hogwild.bench.plan import STEPS, Plan, about
from hogwild.errors import TrainingError

CODE = "import json, sys; from hogwild.bench.memory import child; print(child(*json.loads(sys.argv[1])))"
LOOKS = 0.01  # seconds between two looks


def measure(plan: Plan) -> Iterator[dict[str, Any]]:
    """Megabytes of one run by one worker in a fresh interpreter."""
    rows = plan.open("rcv1")
    plan.note("training in a fresh interpreter")
    directory = None if plan.cache is None else str(plan.cache.directory)
    arguments = json.dumps([plan.names["rcv1"], directory, STEPS["rcv1"]])
    done = subprocess.run([sys.executable, "-c", CODE, arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise TrainingError(f"memory could not be measured: {done.stderr.strip().rpartition(chr(10))[2]}")
    yield about(plan.names["rcv1"], rows) | {"workers": 1, "peak_megabytes": float(done.stdout), "status": "ok"}


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
    from hogwild.data.source import open_data
    from hogwild.training import train

    rows = open_data(name, cache=None if directory is None else Cache(directory))
    train(rows, workers=1, epochs=2, step=step).finish()
    over.set()
    watcher.join()
    return max(peak, owned()) / 1e6


def owned() -> int:
    """Bytes of this process that no file backs."""
    lines = Path("/proc/self/status").read_text().splitlines()
    facts = dict(line.split(":", 1) for line in lines if ":" in line)
    return sum(int(facts[name].split()[0]) << 10 for name in ("RssAnon", "RssShmem"))
