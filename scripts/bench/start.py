"""What a person waits for beside training: from Enter to prompt by the stopwatch, and where that time goes.

    python scripts/bench/start.py [DATA] [--repeats 10] [--first]
    python scripts/bench/start.py --parts FOLDER [--store DIR] [--write]

The first form takes turns with ``python -c 'import torch'``, a training run of three epochs by one worker, by two
threads and by two processes; medians, and ratios to torch's. ``--first`` adds a run whose kernels must be compiled. The
second form trains on every set of the benchmark that is in FOLDER, and on a generated one of 2,000,000 rows, with the
default of an evaluation every epoch, and prints the parts of ``train -v`` as a table; ``--write`` puts it into
docs/stopwatch.md. The run before the one that counts has read the text and compiled the kernels.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "stopwatch.md"
HOGWILD = [sys.executable, "-m", "hogwild"]
TORCH = [sys.executable, "-c", "import torch"]
TARGETS = {"one worker": 0.9, "two threads": 0.9, "two processes": 1.9, "first run": 8.0}  # times TORCH
PARTS = ("start", "reading", "l2", "set-up", "compiling", "step", "training", "evaluation", "saving")
BIG, BIG_TITLE = "synthetic:rcv1?rows=2000000", "generated: 2,000,000 rows, 146 M nonzeros"

# title: (data, options); of the options those that name a file of the folder begin with @
SETS: dict[str, tuple[str, list[str]]] = {
    "RCV1": ("rcv1/train.svm.gz", ["--test", "@rcv1/test.svm.gz"]),
    "IMDB, rows of length one": (
        "imdb/train_counts.svm.gz",
        ["--test", "@imdb/test_counts.svm.gz", "--normalize", "l2"],
    ),
    "20 newsgroups, 20 classes": ("20news/train.svm.gz", ["--test", "@20news/test.svm.gz"]),
    "Amazon employee access": ("amazon-employee/train.svm.gz", ["--test", "@amazon-employee/test.svm.gz"]),
    "a9a": ("libsvm/a9a.gz", ["--test", "@libsvm/a9a.t.gz"]),
    "w8a": ("libsvm/w8a.gz", ["--holdout", "0.2"]),
    "mushrooms": ("libsvm/mushrooms.gz", ["--holdout", "0.2"]),
    "MovieLens 100k": ("ml-100k/u.data", ["--problem", "completion", "--holdout", "0.1"]),
    "MovieLens 1M": ("ml-1m/ratings.tsv.gz", ["--problem", "completion", "--holdout", "0.1"]),
    "maximum flow, 110,594 vertices": ("graphs/tsukuba_expansion_a5.max.gz", []),
}


def stopwatch(command: list[str], **environ: str) -> tuple[float, str]:
    """Seconds from the start of a command to its end, and what it printed."""
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environ)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: status {done.returncode}: {done.stderr.strip()}")
    return seconds, done.stdout


def starts(data: str, repeats: int) -> dict[str, list[float]]:
    """Seconds of each of the commands, which take turns; a round before them is not counted."""
    train = [*HOGWILD, "train", data, "--epochs", "3", "--l2", "1e-5"]  # no time to choose l2
    commands = {
        "import torch": TORCH,
        "one worker": [*train, "-w", "1"],
        "two threads": [*train, "-w", "2", "--host", "threads"],
        "two processes": [*train, "-w", "2", "--host", "processes"],
    }
    found: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(repeats + 1):
        for name, command in commands.items():
            seconds, _ = stopwatch(command)
            found[name] += [seconds] if turn else []
    return found


def first_run(data: str) -> float:
    """Seconds of a run with the usual workers that finds neither kernels nor data prepared."""
    with tempfile.TemporaryDirectory() as empty:
        command = [*HOGWILD, "train", data, "--epochs", "3", "--no-cache"]
        return stopwatch(command, NUMBA_CACHE_DIR=empty, XDG_CACHE_HOME=empty)[0]


def summary(found: dict[str, list[float]]) -> Iterator[str]:
    """A line for each command: its median, the least and the most, and times torch's beside what is aimed at."""
    torch = statistics.median(found["import torch"])
    for name, times in found.items():
        middle = statistics.median(times)
        line = f"{name:<14} {middle:6.2f} s ({min(times):.2f} to {max(times):.2f})"
        yield line + (f"  {middle / torch:5.2f} times torch, aim {TARGETS[name]:g}" if name in TARGETS else "")


def parts_of(printed: str) -> dict[str, float]:
    """The stopwatch's parts in what ``train -v`` printed."""
    lines = re.findall(r"^([a-z][a-z0-9 -]*?) +([0-9.]+) s +[0-9]+%$", printed, re.MULTILINE)
    return {name: float(seconds) for name, seconds in lines}


def table(runs: dict[str, tuple[str, list[str]]], torch: float) -> str:
    """Train on each set and put the parts into a table; ``runs``: data and options by title."""
    heads = ("data", *PARTS, "end", "Enter to prompt", "over")
    lines = [f"| {' | '.join(heads)} |", "|---|" + "--:|" * (len(heads) - 1)]
    for title, (data, options) in runs.items():
        print(f"training on {title}", file=sys.stderr, flush=True)
        command = [*HOGWILD, "train", data, *options, "-v"]
        stopwatch([*command, "--epochs", "1"])
        whole, printed = stopwatch(command)
        parts = parts_of(printed)
        cells = [f"{parts[part]:.2f}" if part in parts else "" for part in PARTS]
        over = whole / (sum(parts.get(part, 0.0) for part in ("l2", "step", "training")) + torch)
        cells += [f"{seconds:.2f}" for seconds in (whole - parts["in all"], whole, over)]
        lines.append(f"| {' | '.join([title, *cells])} |")
    return "\n".join(lines)


def runs_in(folder: Path, store: Path) -> dict[str, tuple[str, list[str]]]:
    """The sets that are there; the generated one is made in ``store`` unless it is there."""
    runs = {
        title: (str(folder / data), [str(folder / one[1:]) if one.startswith("@") else one for one in options])
        for title, (data, options) in SETS.items()
        if (folder / data).exists()
    }
    if not store.exists():
        stopwatch([*HOGWILD, "convert", BIG, str(store)])
    for path in store.glob("*.npy"):  # into the page cache
        with path.open("rb") as file:
            while file.read(1 << 24):
                pass
    return runs | {BIG_TITLE: (str(store), ["--holdout", "0.2"])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default="synthetic:rcv1?rows=20000", help="what the start is measured on")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--first", action="store_true", help="also a run that must compile its kernels")
    parser.add_argument("--parts", type=Path, metavar="FOLDER", help="the table of parts, of the sets in this folder")
    parser.add_argument("--store", type=Path, metavar="DIR", help="where the generated set lies, or is made and kept")
    parser.add_argument("--write", action="store_true", help="put the table into docs/stopwatch.md")
    given = parser.parse_args()
    if given.parts is None:
        found = starts(given.data, given.repeats)
        found |= {"first run": [first_run(given.data)]} if given.first else {}
        print("\n".join(summary(found)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        torch = statistics.median(stopwatch(TORCH)[0] for _ in range(3))
        text = table(runs_in(given.parts, given.store or Path(temporary, "store")), torch)
    text += f"\n\nSeconds; `import torch` takes {torch:.2f} s."
    print(text)
    if given.write:
        page = PAGE.read_text()
        PAGE.write_text(
            re.sub(r"(<!-- parts -->\n).*?(\n<!-- /parts -->)", lambda m: m[1] + text + m[2], page, flags=re.S)
        )


if __name__ == "__main__":
    main()
