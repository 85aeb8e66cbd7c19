"""Several machines on loopback beside one: seconds and bytes until a target is reached.

    python scripts/bench/machines.py [--data rcv1|clicks|ratings ...] [--times 3]

Trains on three kinds of data until 1 % (clicks: 10 %, ratings: 5 %) of the way from the start to the lowest objective
of any run is left: one machine, and two of one worker each, by medians. Steps were chosen beforehand, of powers of two.
More machines, of the simulator: ``hogwild compare --host simulator --link LINK``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import hogwild
from hogwild.compare.report.results import crossing, lowest, with_gaps
from hogwild.data.ratings.container import RATINGS
from hogwild.data.rows.store import save_store

OTHER = "import sys; sys.path.insert(0, {folder!r}); import machines; machines.join(*sys.argv[1:])"
FIELDS = ("epoch", "train_seconds", "bytes_sent")
Options = dict[str, Any]


class Kind(NamedTuple):
    """Data, and the methods that are set side by side on them: names of exchanges to steps."""

    data: str
    left: float  # of the way from the start to the lowest objective, at the target
    options: Options
    steps: dict[str, float]

    def open(self, store: str | None = None) -> Any:
        return (hogwild.open_ratings if "problem" in self.options else hogwild.open_data)(store or self.data)


KINDS = {
    "rcv1": Kind(
        "synthetic:rcv1?rows=200000",
        0.01,
        {"epochs": 8, "schedule": "epoch"},
        {"none": 0.25, "averaging": 1.0, "gossip:period=1000": 0.25},
    ),
    "clicks": Kind(
        "synthetic:ctr?rows=400000&features=4194304",
        0.1,
        {"epochs": 6, "schedule": "epoch"},
        {"none": 0.064, "averaging": 0.128, "gossip:period=1000": 0.064},
    ),
    "ratings": Kind(
        "synthetic:ratings?users=20000&items=3500&ratings=4000000&rank=16&zipf=1.5&shift=41&user_shift=350&noise=0.8",
        0.05,
        {"epochs": 12, "problem": "completion"},
        {"none": 0.05, "averaging": 0.05, "rotation": 0.05},
    ),
}


def join(name: str, store: str, address: str, options: str) -> None:
    """Be machine 1."""
    rows = KINDS[name].open(store)
    with hogwild.gather(address, machines=2, machine=1) as cluster:
        list(hogwild.train(rows, cluster=cluster, **json.loads(options)))


@contextlib.contextmanager
def gathered(name: str, store: str, options: Options) -> Iterator[Any]:
    """Yield a cluster of two machines, of which this is machine 0."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    code = OTHER.format(folder=str(Path(__file__).parent))
    other = subprocess.Popen([sys.executable, "-c", code, name, store, address, json.dumps(options)])
    with hogwild.gather(address, machines=2, machine=0) as cluster:
        yield cluster
    other.wait()


def measured(name: str, store: str, times: int) -> dict[str, list[list[dict[str, Any]]]]:
    """Rows of every run by exchange; each method in its turn, so that all meet the same noise."""
    kind, rows = KINDS[name], KINDS[name].open(store)
    runs: dict[str, list[list[dict[str, Any]]]] = {exchange: [] for exchange in kind.steps}
    for turn in range(times):
        for exchange, step in kind.steps.items():
            print(f"{name}: {exchange}", file=sys.stderr)
            options = kind.options | {"exchange": exchange, "step": step, "workers": 1, "seed": turn}
            if exchange == "none":
                runs[exchange].append([*hogwild.train(rows, **options)])
                continue
            with gathered(name, store, options) as cluster:
                runs[exchange].append([*hogwild.train(rows, cluster=cluster, **options)])
    return runs


def lines(kind: Kind, runs: dict[str, list[list[dict[str, Any]]]]) -> Iterator[str]:
    """A row of the table for each method, with medians over the turns."""
    start = runs["none"][0][0]["objective"]
    optimum = min(lowest(history, start) for histories in runs.values() for history in histories)
    alone = 0.0
    for exchange, histories in runs.items():
        cells = []
        for history in histories:
            rows = with_gaps([row | {"bytes_sent": row["bytes_sent"] or 0} for row in history], start, optimum)
            cells.append([crossing(rows, kind.left, field) or math.nan for field in FIELDS])
        epoch, seconds, sent = map(statistics.median, zip(*cells))
        alone = alone or seconds
        shown = (epoch, 1e3 * seconds, seconds / alone, 1e-6 * sent)
        yield f"| `{exchange}` | {' | '.join(f'{value:.3g}' for value in shown)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=KINDS, default=[*KINDS])
    parser.add_argument("--times", type=int, default=3)
    asked = parser.parse_args()
    for name in asked.data:
        kind = KINDS[name]
        with tempfile.TemporaryDirectory() as folder:
            ratings = RATINGS if "problem" in kind.options else None
            runs = measured(name, str(save_store(kind.open(), Path(folder) / "data", kind=ratings)), asked.times)
        print(f"\n{kind.data}, to {100 * kind.left:g} %\n\n| `--exchange` | epochs | ms | ms / alone | MB |")
        print("|---|--:|--:|--:|--:|", *lines(kind, runs), sep="\n", flush=True)


if __name__ == "__main__":
    main()
