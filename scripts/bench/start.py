"""What a person waits for beside training: from Enter to prompt by the stopwatch, and where that time goes.

    python scripts/bench/start.py FOLDER [--store DIR] [--repeats 5] [--first]
    python scripts/bench/start.py FOLDER --parts [--store DIR] [--write]

FOLDER holds sets of the benchmark; a generated one of 2,000,000 rows is added. The first form takes turns with a script
of ten lines that fits scikit-learn's ``SGDClassifier`` (log loss, its defaults): medians of ``hogwild train`` as it is,
and by one worker with a given penalty, and the ratio of the first to the script. ``--first`` adds a run whose kernels
must be compiled. The second form prints the parts of ``train -v`` as a table; ``--write`` puts it into
docs/stopwatch.md. A run before those that count has read the text and compiled the kernels.
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
SCRIPT = """
import sys
import numpy as np
from scipy.sparse import csr_matrix
from sklearn.datasets import load_svmlight_file
from sklearn.linear_model import SGDClassifier
if sys.argv[1].endswith(".gz"):
    X, y = load_svmlight_file(sys.argv[1])
    X.indptr, X.indices = X.indptr.astype(np.int32), X.indices.astype(np.int32)
else:
    indptr, indices, values, y = (np.load(f"{sys.argv[1]}/{name}.npy", mmap_mode="r") for name in
                                  ("indptr", "indices", "values", "targets"))
    X = csr_matrix((values, indices, indptr))
SGDClassifier(loss="log_loss", alpha=1e-5 if len(y) > 1e6 else 1e-4).fit(X, y)
"""
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
OTHERS = [title for title, (data, _) in SETS.items() if "ml-" in data or "graphs" in data]  # not linear


def stopwatch(command: list[str], **environ: str) -> tuple[float, str]:
    """Seconds from the start of a command to its end, and what it printed."""
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environ)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: status {done.returncode}: {done.stderr.strip()}")
    return seconds, done.stdout


def beside(runs: dict[str, tuple[str, list[str]]], repeats: int) -> Iterator[str]:
    """A row for each set: medians of commands that take turns, and the ratio of the second to the first."""
    yield "| data | SGDClassifier | hogwild train | ratio | one worker, l2 given |\n|---|--:|--:|--:|--:|"
    for title, (data, _) in runs.items():
        train = [*HOGWILD, "train", data, *(["--l2", "1e-5"] if title == BIG_TITLE else [])]
        commands = [sys.executable, "-c", SCRIPT, data], train, [*train, "--l2", "1e-5", "-w", "1"]
        turns = [[stopwatch(command)[0] for command in commands] for _ in range(repeats + 1)][1:]
        theirs, ours, alone = (statistics.median(times) for times in zip(*turns, strict=True))
        ratio = statistics.median(turn[1] / turn[0] for turn in turns)
        yield f"| {title} | {theirs:.2f} | {ours:.2f} | {ratio:.2f} | {alone:.2f} |"


def first_run(data: str) -> float:
    """Seconds of a run with the usual workers that finds neither kernels nor data prepared."""
    with tempfile.TemporaryDirectory() as empty:
        return stopwatch([*HOGWILD, "train", data, "--no-cache"], NUMBA_CACHE_DIR=empty, XDG_CACHE_HOME=empty)[0]


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
    parser.add_argument("folder", type=Path)
    parser.add_argument("--store", type=Path, metavar="DIR", help="where the generated set lies, or is made and kept")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--first", action="store_true", help="also a run that must compile its kernels")
    parser.add_argument("--parts", action="store_true", help="the table of parts")
    parser.add_argument("--write", action="store_true", help="put the table of parts into docs/stopwatch.md")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        runs = runs_in(given.folder, given.store or Path(temporary, "store"))
        if not given.parts:
            rows = {title: run for title, run in runs.items() if title not in OTHERS}
            for line in beside(rows, given.repeats):
                print(line, flush=True)
            if given.first:
                print(f"first run ever, to a model: {first_run('synthetic:rcv1?rows=20000'):.1f} s")
            return
        torch = statistics.median(stopwatch(TORCH)[0] for _ in range(3))
        text = table(runs, torch)
    text += f"\n\nSeconds; `import torch` takes {torch:.2f} s."
    print(text)
    if given.write:
        page = PAGE.read_text()
        PAGE.write_text(
            re.sub(r"(<!-- parts -->\n).*?(\n<!-- /parts -->)", lambda m: m[1] + text + m[2], page, flags=re.S)
        )


if __name__ == "__main__":
    main()
