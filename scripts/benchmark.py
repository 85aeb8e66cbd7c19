#!/usr/bin/env python3
"""Ratios against scikit-learn and between disciplines, from one run on this machine.

Every figure is the median of interleaved repeats (A B A B ...) in one process; what is compared does the same work on
the same data: one epoch, rows reshuffled each epoch on both sides (or in file order on both), log loss, l2 = 1e-5,
float32 rows. Needs idle cores: a figure taken beside other work is worth nothing.

    python scripts/benchmark.py                 # everything, some minutes
    python scripts/benchmark.py epoch parse     # some of: epoch parse disciplines memory
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from hogwild.kernel_cache import use_kernel_cache

use_kernel_cache(os.environ)

from hogwild import machine  # noqa: E402  (after the kernel cache is set)
from hogwild.data.cache import Cache  # noqa: E402
from hogwild.data.examples import Rows  # noqa: E402
from hogwild.data.source import open_data  # noqa: E402
from hogwild.training import train  # noqa: E402

STEP, L2 = 0.5, 1e-5


def interleaved(sides: dict[str, Callable[[], float]], repeats: int) -> dict[str, float]:
    """Median seconds of each side over rounds in which every side has its turn; the first round is not counted."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats + 1):
        for name, side in sides.items():
            times[name].append(side())
    return {name: statistics.median(values[1:]) for name, values in times.items()}


def our_epoch(rows: Rows, workers: int, discipline: str = "auto", order: str = "shuffled", host: str = "threads"):
    """A side that trains one more epoch at each call and returns its seconds on the run's own clock."""
    run = train(rows, workers=workers, discipline=discipline, order=order, host=host, step=STEP, l2=L2,
                schedule="constant", epochs=10**6)  # fmt: skip
    last = next(run)

    def side() -> float:
        nonlocal last
        before, last = last["train_seconds"], next(run)
        return last["train_seconds"] - before

    side.run = run  # type: ignore[attr-defined]
    return side


def sklearn_epoch(rows: Rows, shuffle: bool):
    from sklearn.linear_model import SGDClassifier

    X, y = rows.to_scipy()
    y = y.astype(int)
    solver = SGDClassifier(loss="log_loss", alpha=L2, learning_rate="constant", eta0=STEP, shuffle=shuffle)
    solver.partial_fit(X[:100], y[:100], classes=sorted(set(y.tolist())))

    def side() -> float:
        start = time.perf_counter()
        solver.partial_fit(X, y)
        return time.perf_counter() - start

    return side


def bench_epoch(args: argparse.Namespace) -> None:
    names = ["synthetic:rcv1?rows=200000", "synthetic:rcv1?rows=600000", *args.data]
    print(f"{'one worker per epoch':36} {'ours':>9} {'sklearn':>9} {'ratio':>6}   Mnnz/s")
    for name in names:
        rows = open_data(name, cache=Cache())
        for order in ("shuffled", "file"):
            ours = our_epoch(rows, 1, order=order)
            sides = {"ours": ours, "sklearn": sklearn_epoch(rows, order == "shuffled")}
            t = interleaved(sides, args.repeats)
            ours.run.close()
            ratio = t["sklearn"] / t["ours"]
            print(f"{Path(name).name[:27]:27} {order:8} {t['ours']:8.4f}s {t['sklearn']:8.4f}s {ratio:5.2f}x"
                  f"   {rows.nnz / t['ours'] / 1e6:.0f} / {rows.nnz / t['sklearn'] / 1e6:.0f}", flush=True)  # fmt: skip


class Nothing:
    """A sink that throws everything away."""

    def append(self, *_: object) -> None:
        pass


def bench_parse(args: argparse.Namespace) -> None:
    from sklearn.datasets import load_svmlight_file

    from hogwild.data.svmlight import parse_svmlight, write_svmlight

    rows = open_data("synthetic:rcv1?rows=100000", cache=Cache())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.svm")
        write_svmlight(path, rows)
        megabytes = path.stat().st_size / 1e6
        usable = sorted(os.sched_getaffinity(0))

        def ours(cores: int) -> Callable[[], float]:
            def side() -> float:
                os.sched_setaffinity(0, set(usable[:cores]))
                start = time.perf_counter()
                parse_svmlight(path, Nothing(), workers=cores)
                return time.perf_counter() - start

            return side

        def theirs() -> float:
            start = time.perf_counter()
            load_svmlight_file(str(path))
            return time.perf_counter() - start

        sides = {f"{cores} core(s)": ours(cores) for cores in (1, 2) if cores <= len(usable)}
        t = interleaved(sides | {"sklearn": theirs}, max(args.repeats // 2, 3))
        os.sched_setaffinity(0, set(usable))
        print(f"\nparsing {megabytes:.0f} MB of svmlight text, against load_svmlight_file ({t['sklearn']:.2f} s)")
        for name in sides:
            print(f"{name:12} {t[name]:7.3f} s {megabytes / t[name]:7.0f} MB/s {t['sklearn'] / t[name]:6.1f}x")


def bench_disciplines(args: argparse.Namespace) -> None:
    rows = open_data("synthetic:rcv1?rows=200000", cache=Cache())
    print("\nspeed-up of workers (processes) over one serial worker, per epoch; objective after the same epochs")
    sides = {"serial 1": our_epoch(rows, 1, host="processes")}
    for workers in args.workers:
        for discipline in ("hogwild", "atomic", "aig", "locked"):
            sides[f"{discipline} {workers}"] = our_epoch(rows, workers, discipline, host="processes")
    t = interleaved(sides, args.repeats)
    for name, side in sides.items():
        objective = side.run.history[-1]["objective"]
        print(f"{name:16} {t[name]:8.4f} s {t['serial 1'] / t[name]:6.2f}x   objective {objective:.5f}")
        side.run.close()


def bench_memory(args: argparse.Namespace) -> None:
    """Peak of what a training run owns (anonymous and shared memory), the mapped data pages aside."""
    code = (
        "import sys, threading, time\n"
        "peak = 0\n"
        "def watch():\n"
        "    global peak\n"
        "    while True:\n"
        "        facts = dict(line.split(':', 1) for line in open('/proc/self/status') if ':' in line)\n"
        "        peak = max(peak, sum(int(facts[k].split()[0]) for k in ('RssAnon', 'RssShmem')))\n"
        "        time.sleep(0.01)\n"
        "threading.Thread(target=watch, daemon=True).start()\n"
        "from hogwild.data.source import open_data\n"
        "from hogwild.data.cache import Cache\n"
        "from hogwild.training import train\n"
        "rows = open_data('synthetic:rcv1?rows=600000', cache=Cache())\n"
        "train(rows, workers=1, epochs=2, step=0.5).finish()\n"
        "print(peak // 1024)\n"
    )
    open_data("synthetic:rcv1?rows=600000", cache=Cache())
    peak = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    print(f"\npeak memory of training on a 350 MB memory map, data pages aside: {peak} MB")


BENCHES = {"epoch": bench_epoch, "parse": bench_parse, "disciplines": bench_disciplines, "memory": bench_memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=[*BENCHES, []], help="default: all")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--data", nargs="*", default=[], help="more data sets for 'epoch', such as the real RCV1")
    args = parser.parse_args()
    print(f"{machine.cpu_model()}, {machine.physical_cores()} cores, load {os.getloadavg()[0]:.2f}, "
          + ", ".join(f"{name} {version}" for name, version in machine.versions().items()))  # fmt: skip
    for name in args.what or BENCHES:
        BENCHES[name](args)


if __name__ == "__main__":
    main()
