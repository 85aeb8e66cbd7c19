"""Whether a checkout is as fast as another: the same work in turns, each time in a new process.

    python scripts/same_speed.py BEFORE AFTER [--case PART] [--repeats 7] [--data DIR]

BEFORE and AFTER are checkouts; only public names are used, so one script serves both. Each repeat runs a case in
BEFORE and then in AFTER, whose best times make a ratio of speed (above 1: AFTER is faster). Printed are the median
ratio and its 95 % bootstrap interval, for CPU seconds (of all threads and child processes) and for wall seconds. A case
that is one core's work is judged by CPU seconds, which a busy machine does not stretch, others by wall seconds; it
fails if the interval lies below 0.97. DIR (HOGWILD_TEST_DATA by default) holds ``rcv1/train.svm.gz`` and
``libsvm/a9a.gz`` for the two cases that want them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SLOWEST = 0.97  # ratio that the interval has to reach
ENOUGH, MOST = 0.5, 20  # seconds, and runs of a case in one process
BOOTSTRAPS = 2_000
QUIET: dict[str, Any] = {"host": "threads", "keep": "last", "step": 0.1, "l2": 1e-5}


class Case(NamedTuple):
    prepare: Callable[[], Callable[[], Any]]  # returns what is timed
    by: str = "cpu"  # or "wall", if more than one core works


def bundled(name: str) -> tuple[Any, np.ndarray]:
    from sklearn import datasets, preprocessing

    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return preprocessing.scale(X), y


def generated(name: str) -> tuple[Any, np.ndarray]:
    import hogwild

    X, y = hogwild.open_data(f"synthetic:{name}").to_scipy()
    return X, y


def fit(data: Callable[[], tuple[Any, np.ndarray]], loss: str) -> Callable[[], Any]:
    import hogwild

    X, y = data()
    return lambda: hogwild.HogwildClassifier(loss=loss, n_jobs=1, random_state=0).fit(X, y)


def epochs(name: str, workers: int) -> Callable[[], Any]:
    """Two epochs, evaluated at their end only."""
    import hogwild

    rows = hogwild.open_data(f"synthetic:{name}")
    options = {"epochs": 2, "evaluate_every": 2, "workers": workers, **QUIET}
    return lambda: hogwild.train(rows, **options).finish()


def completion(rank: int, workers: int) -> Callable[[], Any]:
    import hogwild

    ratings = hogwild.open_ratings("synthetic:ratings?users=6000&items=4000&ratings=400000")
    options = {"rank": rank, "epochs": 2, "evaluate_every": 2, "workers": workers, **QUIET, "l2": 0.05, "step": 0.02}
    return lambda: hogwild.train(ratings, problem="completion", **options).finish()


def parse() -> Callable[[], Any]:
    from hogwild.data.text.svmlight import Svmlight

    random = np.random.default_rng(0)
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name, "rows.svm")
    with path.open("w") as file:
        for _ in range(20_000):
            indices = np.sort(random.choice(47_236, 70, replace=False)) + 1
            file.write("1 " + " ".join(f"{u}:{x:.6f}" for u, x in zip(indices, random.random(70))) + "\n")
    return lambda: len(list(Svmlight(workers=1).read(Path(folder.name, path.name))))  # which keeps the folder


def command(*arguments: str) -> Callable[[], Any]:
    """Enter to prompt; the first run has read the text and compiled the kernels."""
    line = [sys.executable, "-m", "hogwild", "train", *arguments]
    return lambda: subprocess.run(line, check=True, capture_output=True)


def cases(data: Path | None) -> dict[str, Case]:
    shape = "rcv1?rows=20000"
    sets: dict[str, Callable[[], tuple[Any, np.ndarray]]] = {
        **{name.replace("_", " "): partial(bundled, name) for name in ("breast_cancer", "wine", "digits")},
        "RCV1's shape": partial(generated, shape),
        "20 classes": partial(generated, "rcv1?rows=3000&features=5000&nnz=40&classes=20"),
    }
    found = {
        f"fit, {name}, {loss}": Case(partial(fit, data, loss))
        for name, data in sets.items()
        for loss in ("log_loss", "hinge")
    }
    for workers, by in ((1, "cpu"), (2, "wall")):
        many = f"{workers} worker{'s' * (workers > 1)}"
        found[f"epoch, RCV1's shape, {many}"] = Case(partial(epochs, "rcv1?rows=50000", workers), by)
        found[f"epoch, 2^24 weights, {many}"] = Case(partial(epochs, "ctr?rows=50000", workers), by)
        for rank in (32, 64):
            found[f"completion, rank {rank}, {many}"] = Case(partial(completion, rank, workers), by)
    found["parse svmlight"] = Case(parse)
    found["Enter to prompt, store"] = Case(partial(command, "synthetic:rcv1?rows=200000", "--epochs", "3", "-w", "1"))
    for name, path in {"a9a": "libsvm/a9a.gz", "rcv1": "rcv1/train.svm.gz"}.items():
        if data is not None and (data / path).exists():
            found[f"Enter to prompt, {name}"] = Case(partial(command, str(data / path)))
    return found


def cpu() -> float:
    """CPU seconds of this process and of the children that it has waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def best(case: Case) -> dict[str, float]:
    """The least CPU and wall seconds of several runs in this process."""
    warnings.simplefilter("ignore")
    run = case.prepare()
    run()
    times: dict[str, list[float]] = {"cpu": [], "wall": []}
    while sum(times["wall"]) < ENOUGH and len(times["wall"]) < MOST:
        clocks = {"cpu": cpu, "wall": time.perf_counter}
        began = {name: clock() for name, clock in clocks.items()}
        run()
        for name, clock in clocks.items():
            times[name].append(clock() - began[name])
    return {name: min(seconds) for name, seconds in times.items()}


def measured(checkout: Path, name: str, data: Path | None) -> dict[str, float]:
    """The times of a case in a process of its own, whose hogwild is that of the checkout."""
    line = [sys.executable, __file__, "--one", name, *(["--data", str(data)] if data else [])]
    environ = os.environ | {"PYTHONPATH": str(checkout)}
    done = subprocess.run(line, capture_output=True, text=True, env=environ, cwd=tempfile.gettempdir())
    if done.returncode:
        raise SystemExit(f"{name} in {checkout}: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])


def interval(ratios: np.ndarray) -> tuple[float, float, float]:
    """The median, and its 95 % bootstrap interval."""
    draws = np.random.default_rng(0).choice(ratios, (BOOTSTRAPS, len(ratios)))
    low, high = np.quantile(np.median(draws, axis=1), [0.025, 0.975])
    return float(np.median(ratios)), float(low), float(high)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", type=Path, nargs="*", metavar="BEFORE AFTER")
    parser.add_argument("--case", action="append", metavar="PART", help="cases whose name holds it; again: or this")
    parser.add_argument("--repeats", type=int, default=7)
    usual = os.environ.get("HOGWILD_TEST_DATA")
    parser.add_argument("--data", type=Path, default=Path(usual) if usual else None, metavar="DIR")
    parser.add_argument("--one", metavar="CASE", help=argparse.SUPPRESS)  # what a process of its own is asked for
    asked = parser.parse_args()
    table = cases(asked.data)
    if asked.one:
        print(json.dumps(best(table[asked.one])))
        return 0
    if len(asked.checkouts) != 2:
        parser.error("two checkouts are compared: give BEFORE and AFTER")
    slower = []
    print(f"{'case':36} {'CPU, before / after':>28} {'wall, before / after':>28}   seconds before, after (CPU)")
    for name, case in table.items():
        if not any(part in name for part in asked.case or [""]):
            continue
        pairs = [[measured(checkout, name, asked.data) for checkout in asked.checkouts] for _ in range(asked.repeats)]
        intervals = {
            kind: interval(np.array([before[kind] / after[kind] for before, after in pairs]))
            for kind in ("cpu", "wall")
        }
        shown = "  ".join(f"{middle:9.3f} ({low:.3f} to {high:.3f})" for middle, low, high in intervals.values())
        seconds = ", ".join(f"{np.median([pair[side]['cpu'] for pair in pairs]):.3f}" for side in (0, 1))
        failed = intervals[case.by][2] < SLOWEST
        slower += [name] * failed
        print(f"{name:36} {shown}   {seconds}{f'  SLOWER by {case.by}' * failed}", flush=True)
    print(f"slower: {', '.join(slower) or 'none'}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
