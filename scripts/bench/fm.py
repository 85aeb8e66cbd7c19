"""Factorization machines beside libffm (ycjuan/libffm, built with -O3), plain ones beside the linear model.

    PATH=$PATH:path/to/libffm python scripts/bench/fm.py [--rows 1000000] [--repeats 3] [rates] [workers] [loss]

Rows are generated clicks with planted factors. ``rates``: an epoch with AdaGrad on one core, in CPU seconds, rivals in
turns, medians; libffm's is what two more epochs add to a run. ``any`` rows lack a quarter of the features, and a tenth
of the features are of another field than their neighbours. ``workers``: two against one, by the clock, on a quiet
machine. ``loss``: seconds to the lowest held-out loss of libffm's best run, among ETAS, and to the same loss of a run
by default; ``in all`` adds the search for step and penalty. Without ``ffm-train`` on the PATH, libffm is left out.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rounds import Training, interleaved

import hogwild
from hogwild.config import TrainConfig
from hogwild.data.order import Order
from hogwild.data.rows.container import Rows
from hogwild.data.text.svmlight import write_text
from hogwild.problems.fm.problem import FMProblem
from hogwild.problems.linear.problem import LinearProblem
from hogwild.training.workers import InlineWorker

EXECUTABLE = "ffm-train"
MORE, FEW = 3, 1  # epochs of two runs of libffm, whose difference is timed
ETAS = (0.05, 0.1, 0.2, 0.4)  # 0.2 is libffm's default
TABLES = {39: 1 << 20, 10: 1 << 13}  # features by fields
ADAGRAD: dict[str, Any] = {"adagrad": True, "l2": 2e-6, "l2_factors": 2e-5}
STEP = (0.2, 1.0, 0.0)


def clicks(rows: int, fields: int) -> Rows:
    name = f"synthetic:ctr?rows={rows}&features={TABLES[fields]}&fields={fields}&rank=4&noise=0.1"
    return hogwild.open_data(name)


def thinned(rows: Rows) -> Rows:
    """The same rows with fewer features, some of them of other fields."""
    random = np.random.default_rng(0)
    indptr, indices, values = rows.flat()
    kept = random.random(len(indices)) < 0.75
    assert rows.fields is not None
    count = int(rows.fields.max()) + 1
    moved = np.where(random.random(rows.width) < 0.1, random.integers(0, count, rows.width), rows.fields)
    counts = np.append(0, np.cumsum(kept))[indptr]
    return Rows(counts, indices[kept], values[kept], rows.targets, rows.width, fields=moved.astype(np.int16))


def ours(problem: str, rows: Rows, **options: Any) -> Callable[[], float]:
    """Return a function that trains for one more epoch on one core and returns its CPU seconds."""
    options |= {name: value for name, value in ADAGRAD.items() if problem != "linear" or name != "l2_factors"}
    config = TrainConfig(problem=problem, normalize="l2", **options)  # type: ignore[arg-type]
    posed = (LinearProblem if problem == "linear" else FMProblem).of(config, rows, "hogwild")
    worker = InlineWorker(posed, Order.of(len(rows)), rows, posed.row_arrays(rows, None), 0)
    if isinstance(posed, FMProblem):
        posed.begin(worker.flat, np.flatnonzero(rows.degrees()), config.settled(seed=0), rows)

    def epoch() -> float:
        began = time.process_time()
        worker.run(0, STEP)
        return time.process_time() - began

    return epoch


def run_libffm(folder: Path, *words: object) -> tuple[float, list[list[float]]]:
    """CPU seconds of a run of libffm in ``folder``, and its lines: epoch, loss, held-out loss, seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [EXECUTABLE, "-s", "1", *map(str, words), "train.ffm", "model"]
    printed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    lines = [line.split() for line in printed.splitlines()]
    numbers = [[float(word) for word in line] for line in lines if line and line[0].isdigit()]
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, numbers


def theirs(folder: Path) -> float:
    """CPU seconds of an epoch of libffm."""
    return (run_libffm(folder, "-t", MORE)[0] - run_libffm(folder, "-t", FEW)[0]) / (MORE - FEW)


def text_of(folder: Path, **parts: Rows) -> Path:
    folder.mkdir()
    for name, rows in parts.items():
        with (folder / f"{name}.ffm").open("wb") as file:
            write_text(rows, file, fields=True)
    return folder


def show(name: str, seconds: float, other: float | None, unit: str, goal: float) -> None:
    beside = "" if other is None else f"{other:9.3f} {unit} {other / seconds:6.2f} times as fast; goal {goal:g}"
    print(f"{name:32} {seconds:9.3f} {unit} {beside}", flush=True)


def rates(count: int, repeats: int, folder: Path) -> None:
    for fields, goal in ((39, 2.5), (10, 1.7)):
        table = clicks(count, fields)
        for kind, rows in {"once": table, "any": thinned(table)}.items():
            sides = {"hogwild": ours("ffm", rows)}
            if shutil.which(EXECUTABLE):
                sides["libffm"] = partial(theirs, text_of(folder / f"{kind}-{fields}", train=rows))
            micros = {name: 1e6 * (timing.seconds or 0) / count for name, timing in interleaved(sides, repeats).items()}
            show(
                f"ffm, {fields} fields, {kind}",
                micros["hogwild"],
                micros.get("libffm"),
                "us/row",
                goal if kind == "once" else 0.95,
            )
    table = clicks(count, 39)
    sides = {"fm": ours("fm", table, rank=8), "linear": ours("linear", table)}
    plain, linear = (1e6 * (timing.seconds or 0) / count for timing in interleaved(sides, repeats).values())
    show("fm of rank 8, linear", plain, linear, "us/row", 0.4)


def workers(count: int, repeats: int, folder: Path) -> None:
    table = clicks(count, 39)
    for problem, rank, goal in (("ffm", 4, 1.65), ("fm", 8, 1.75)):
        options: dict[str, Any] = {"problem": problem, "rank": rank, "step": STEP[0], "host": "threads", "keep": "last"}
        with ExitStack() as stack:
            sides = {
                n: stack.enter_context(closing(Training.of(table, **ADAGRAD, **options, workers=n))) for n in (2, 1)
            }
            times = interleaved({str(n): side for n, side in sides.items()}, repeats)
            two, one = (timing.seconds or 0 for timing in times.values())
            show(f"{problem}, two workers, one", two, one, "s", goal)
            print("  objectives", *(f"{side.last['objective']:.5f}" for side in sides.values()))


def loss(count: int, repeats: int, folder: Path) -> None:
    train, test = clicks(count, 39).split(0.1)
    place = text_of(folder / "loss", train=train, test=test)
    runs = [run_libffm(place, "-r", eta, "-t", 15, "-p", "test.ffm", "--auto-stop")[1] for eta in ETAS]
    epoch, _, lowest, seconds = min(
        (line for lines in runs for line in lines if len(line) == 4), key=lambda line: line[2]
    )
    began = time.perf_counter()
    with closing(hogwild.train(train, test, problem="ffm", rank=4, workers=1, seed=0)) as run:
        row = next(row for row in run if row["test_loss"] <= lowest or row["epoch"] == run.config.epochs)
    whole = time.perf_counter() - began
    print(
        f"libffm's lowest loss {lowest:.5f} after {epoch:.0f} epochs, ours {row['test_loss']:.5f} after {row['epoch']}"
    )
    show("training to that loss", row["train_seconds"], seconds, "s", 4)
    show("search and evaluation too", whole, seconds, "s", 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parts = {"rates": rates, "workers": workers, "loss": loss}
    parser.add_argument("parts", nargs="*", choices=[[], *parts], help="default: all")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for part in given.parts or parts:
            parts[part](given.rows, given.repeats, Path(folder))


if __name__ == "__main__":
    main()
