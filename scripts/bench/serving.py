"""Microseconds of a core that an answer takes, and seconds from ``import numpy`` to the first one.

    python scripts/bench/serving.py [--rows 2000] [--repeats 5]

Rows are dicts of 30 categories and 10 numbers. Of 20 values of each category most of the model stays in the cache; of
1,000, all equally frequent, little does. Models have two labels, 2^18 features, and random parameters; factors have
rank 8, of field-aware machines rank 4 for each of the 40 columns. ``predict_one`` is called for each row,
``predict_many`` once for all; rounds take turns, and medians are printed, of CPU seconds.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rounds import interleaved

import hogwild

CATEGORIES, NUMBERS, BITS = 30, 10, 18
VALUES = (20, 1000)  # of a category
FIRST = """
import time, numpy
began = time.perf_counter()
import hogwild
hogwild.load({path!r}).predict_one({row!r})
print(time.perf_counter() - began)
"""


def drawn(count: int, values: int) -> list[dict[str, Any]]:
    random = np.random.default_rng(0)
    categories, numbers = random.integers(0, values, (count, CATEGORIES)), random.random((count, NUMBERS))
    return [
        {f"c{k}": f"value{n}" for k, n in enumerate(codes)} | {f"n{k}": x for k, x in enumerate(amounts)}
        for codes, amounts in zip(categories.tolist(), numbers.tolist(), strict=True)
    ]


def models(rows: list[dict[str, Any]]) -> dict[str, hogwild.LinearModel]:
    table = pa.Table.from_pylist([row | {"click": k % 2} for k, row in enumerate(rows)])
    plan = hogwild.open_table(table, "click", hash_bits=BITS).table
    random, columns = np.random.default_rng(1), CATEGORIES + NUMBERS
    coef = random.normal(0, 0.1, (1, 1 << BITS))
    facts: dict[str, Any] = {"loss": "log", "labels": [0, 1], "hash_bits": BITS, "table": plan}
    pairs = facts | {"normalize": "l2"}
    factors = random.normal(0, 0.1, (1 << BITS, 8)), random.normal(0, 0.1, (1 << BITS, 4 * columns))
    fields = np.arange(1 << BITS) % columns
    return {
        "linear model": hogwild.LinearModel(coef, [0.0], **facts),
        "factorization machine": hogwild.FMModel(coef, [0.0], **pairs, factors_=factors[0]),
        "field-aware machine": hogwild.FMModel(coef, [0.0], **pairs, factors_=factors[1], fields_=fields),
    }


def seconds_of(call: Callable[[], Any]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def first_answer(model: hogwild.LinearModel, row: dict[str, Any], repeats: int) -> float:
    """Seconds after ``import numpy`` in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(path := str(Path(folder, "model")))
        command = [sys.executable, "-c", FIRST.format(path=path, row=row)]
        times = [float(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(repeats)]
    return statistics.median(times)


def main(args: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args(args)
    for values in VALUES:
        rows = drawn(given.rows, values)
        made = models(rows)
        sides: dict[str, Callable[[], float]] = {}
        for name, model in made.items():
            sides[f"{name}, one"] = partial(seconds_of, lambda model=model, rows=rows: [*map(model.predict_one, rows)])
            sides[f"{name}, many"] = partial(seconds_of, partial(model.predict_many, rows))
        print(f"{values} values of each category:")
        for name, timing in interleaved(sides, given.repeats).items():
            print(f"  {name:30} {1e6 * (timing.seconds or 0) / len(rows):7.1f} us a row", flush=True)
    print(f"{'first answer after NumPy':32} {first_answer(made['linear model'], rows[0], given.repeats):7.3f} s")


if __name__ == "__main__":
    main()
