"""Models that outgrow the cache: epochs with the features numbered as they are, and by popularity.

    python scripts/bench/wide.py [--rows 400000] [--repeats 5] [--workers 1,2] [--host processes]

Both take turns, so their ratio is between neighbours in time. With one worker both end at the same weights. The most
that several workers can reach is what as many runs of one worker do at the same time, each with weights of its own.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

import hogwild
from hogwild.bench import Training, interleaved

CLICKS = "synthetic:ctr?rows={rows}&features={features}&classes={classes}"
WIDTHS = 1 << 20, 1 << 22, 1 << 24
KINDS: dict[str, tuple[int, dict[str, Any]]] = {  # classes, options
    "l2": (2, {}),
    "no penalty": (2, {"l2": 0.0}),
    "l1 and l2": (2, {"l1": 1e-7}),
    "adagrad": (2, {"adagrad": True}),
    "4 classes": (4, {}),
}
NUMBERINGS = {"as it is": "never", "by popularity": "always"}


class SideBySide:
    """A side of several runs at the same time; its seconds are those of the slowest one."""

    def __init__(self, runs: list[Training]) -> None:
        self._runs = runs

    def __call__(self) -> float:
        with ThreadPoolExecutor(len(self._runs)) as pool:
            return max(pool.map(lambda run: run(), self._runs))


def measure(rows: Any, workers: int, options: dict[str, Any], repeats: int) -> None:
    with ExitStack() as stack:

        def start(workers: int, discipline: str, numbering: str) -> Training:
            way = {"workers": workers, "discipline": discipline, "renumber": NUMBERINGS[numbering]}
            return stack.enter_context(closing(Training.of(rows, step=0.05, **options, **way)))

        sides: dict[str, Any] = {
            f"{discipline}, {numbering}": start(workers, discipline, numbering)
            for discipline in (["serial"] if workers == 1 else ["hogwild", "tiered"])
            for numbering in NUMBERINGS
        }
        if workers > 1:
            sides["runs side by side"] = SideBySide([start(1, "serial", "by popularity") for _ in range(workers)])
        for name, timing in interleaved(sides, repeats).items():
            passes = workers if name == "runs side by side" else 1
            rate = timing.per_second(passes * rows.nnz)
            print(f"    {name:24}{'-' if rate is None else f'{rate / 1e6:7.0f}'} M nonzeros/s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--host", default="threads")
    asked = parser.parse_args()
    for features in WIDTHS:
        for kind, (classes, options) in KINDS.items():
            rows = hogwild.open_data(CLICKS.format(rows=asked.rows, features=features, classes=classes))
            for workers in map(int, asked.workers.split(",")):
                print(f"{features:,} weights, {kind}, {workers} worker(s)")
                measure(rows, workers, {"host": asked.host} | options, asked.repeats)


if __name__ == "__main__":
    main()
