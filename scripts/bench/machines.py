"""Several machines on loopback beside one: the cost of a round, and seconds and bytes until a target is reached.

    python scripts/bench/machines.py loopback [--rows 2000000] [--epochs 21] [--exchange averaging]
    python scripts/bench/machines.py table [--data rcv1|clicks|ratings ...] [--times 3] [--only real|simulated]

``loopback`` trains two machines of one worker each beside two processes of one machine, epoch by epoch in turns. Both
average once an epoch on the same rows, which machine 1 reads from the same store. It prints the medians and their
ratio, what was sent, and the objectives at the end, which are those of one scheme.

``table`` trains on three kinds of data until 1 % (clicks: 10 %, ratings: 5 %) of the way from the start to the lowest
objective of any run is left: one machine, and two and four of one worker each; then in the simulator with
up to 64. Steps were chosen beforehand, of powers of two. Four machines share cores where there are fewer, so their
seconds mean nothing, and are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hogwild
from hogwild.compare.report.results import crossing, lowest, with_gaps
from hogwild.data.ratings.container import RATINGS
from hogwild.data.rows.store import save_store

OTHER = "import sys; sys.path.insert(0, {folder!r}); import machines; machines.join(*sys.argv[1:])"
LINK, ROW = "latency=0.2ms,bandwidth=1Gbit", "0.2us"
Options = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """Data, and the methods that are set side by side on them: names of exchanges to steps."""

    data: str
    left: float  # of the way from the start to the lowest objective, at the target
    options: Options
    steps: dict[str, float]
    crowds: tuple[int, ...] = ()  # numbers of machines in the simulator; of gossip, which is for few, up to 16

    def open(self, store: str | None = None) -> Any:
        ratings = self.options.get("problem") == "completion"
        return (hogwild.open_ratings if ratings else hogwild.open_data)(store or self.data)


CROWDS = (1, 2, 4, 16, 64)
KINDS = {
    "rcv1": Kind(
        "synthetic:rcv1?rows=200000",
        0.01,
        {"epochs": 8, "schedule": "epoch"},
        {"none": 0.25, "averaging": 1.0, "gossip:period=1000": 0.25},
        CROWDS,
    ),
    "clicks": Kind(
        "synthetic:ctr?rows=400000&features=4194304",
        0.1,
        {"epochs": 6, "schedule": "epoch"},
        {"none": 0.064, "averaging": 0.128, "gossip:period=1000": 0.064},
        CROWDS[:3],
    ),
    "ratings": Kind(
        "synthetic:ratings?users=20000&items=3500&ratings=4000000&rank=16&zipf=1.5&shift=41&user_shift=350&noise=0.8",
        0.05,
        {"epochs": 12, "problem": "completion"},
        {"none": 0.05, "averaging": 0.05, "rotation": 0.05},
    ),
}


def join(name: str, store: str, address: str, number: str, machines: str, options: str) -> None:
    """Be a machine that does not lead."""
    rows = KINDS[name].open(store)
    with hogwild.gather(address, machines=int(machines), machine=int(number)) as cluster:
        list(hogwild.train(rows, cluster=cluster, **json.loads(options)))


@contextlib.contextmanager
def gathered(name: str, store: str, machines: int, options: Options) -> Iterator[Any]:
    """Yield a cluster of so many machines, of which this is machine 0."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    code = OTHER.format(folder=str(Path(__file__).parent))
    about = [address, "{}", str(machines), json.dumps(options)]
    others = [
        subprocess.Popen(
            [sys.executable, "-c", code, name, store, *(word if word != "{}" else str(k) for word in about)]
        )
        for k in range(1, machines)
    ]
    with hogwild.gather(address, machines=machines, machine=0) as cluster:
        yield cluster
    for other in others:
        other.wait()


# ---- loopback


def loopback(asked: argparse.Namespace) -> None:
    options = {
        "workers": 1,
        "host": "processes",
        "exchange": asked.exchange,
        "step": 1.0,
        "epochs": asked.epochs,
        "schedule": "epoch",
    }
    with tempfile.TemporaryDirectory() as folder:
        store = str(save_store(hogwild.open_data(f"synthetic:rcv1?rows={asked.rows}"), Path(folder) / "rows"))
        rows = hogwild.open_data(store)
        with gathered("rcv1", store, 2, options) as cluster:
            runs = {
                "two machines": hogwild.train(rows, cluster=cluster, **options),
                "two processes": hogwild.train(rows, **options | {"workers": 2}),
            }
            seconds: dict[str, list[float]] = {name: [] for name in runs}
            last: dict[str, Any] = {}
            for each in zip(*runs.values(), strict=True):
                for name, row in zip(runs, each, strict=True):
                    before = last.get(name, row)["train_seconds"]
                    last[name] = row
                    seconds[name].append(row["train_seconds"] - before)
    medians = {name: statistics.median(times[2:]) for name, times in seconds.items()}
    for name, median in medians.items():
        row = last[name]
        print(
            f"{name:<14}{median:.4f} s an epoch (median of {len(seconds[name]) - 2}), "
            f"objective {row['objective']:.6f}, {row['messages']} messages, {row['bytes_sent']} bytes"
        )
    print(f"ratio {medians['two machines'] / medians['two processes']:.3f}")


# ---- the table


@dataclass
class Trial:
    """A run, and what it reached."""

    exchange: str
    machines: int
    history: list[dict[str, Any]]
    clock: str = "train_seconds"

    def reached(self, left: float, start: float, optimum: float) -> dict[str, float | None]:
        rows = with_gaps([row | {"bytes_sent": row["bytes_sent"] or 0} for row in self.history], start, optimum)
        return {field: crossing(rows, left, field) for field in ("epoch", self.clock, "bytes_sent")}


def real(name: str, store: str, times: int) -> Iterator[Trial]:
    """One machine, and two and four on loopback; each method in its turn, so that all meet the same noise."""
    kind, rows = KINDS[name], KINDS[name].open(store)
    for turn in range(times):
        for exchange, step in kind.steps.items():
            options = kind.options | {"exchange": exchange, "step": step, "workers": 1, "seed": turn}
            if exchange == "none":
                yield Trial(exchange, 1, [*hogwild.train(rows, **options)])
                continue
            for machines in (2, 4):
                if machines == 4 and turn:
                    continue
                print(f"{name}: {exchange} of {machines}", file=sys.stderr)
                with gathered(name, store, machines, options) as cluster:
                    yield Trial(exchange, machines, [*hogwild.train(rows, cluster=cluster, **options)])


def simulated(name: str, rows: Any) -> Iterator[Trial]:
    kind = KINDS[name]
    for exchange, step in kind.steps.items():
        for machines in kind.crowds:
            if (exchange == "none") != (machines == 1) or (exchange.startswith("gossip") and machines > 16):
                continue
            crowd = {"workers": machines, "host": "simulator", "link": f"{LINK},row={ROW}", "exchange": exchange}
            if machines == 1:
                crowd |= {"exchange": "averaging"}  # whose clock is virtual, and which is serial
            larger = {"step": step * max(machines / 4, 1) if exchange == "averaging" else step}
            history = [*hogwild.train(rows, **kind.options | crowd | larger)]
            print(f"{name}: {exchange} of {machines} simulated", file=sys.stderr)
            yield Trial(exchange, machines, history, "virtual_seconds")


def shown(value: float | None, scale: float = 1.0) -> str:
    return "–" if value is None else f"{value * scale:.3g}"


def lines(kind: Kind, trials: list[Trial]) -> Iterator[str]:
    """A row of the table for each method, with medians over the turns."""
    start = trials[0].history[0]["objective"]
    optimum = min(lowest(trial.history, start) for trial in trials)
    cells = list(dict.fromkeys((trial.exchange, trial.machines, trial.clock) for trial in trials))
    alone: float | None = None
    for cell in cells:
        every = [t for t in trials if (t.exchange, t.machines, t.clock) == cell]
        found = [trial.reached(kind.left, start, optimum) for trial in every]
        middle = {
            field: None if any(f[field] is None for f in found) else statistics.median(f[field] for f in found)
            for field in found[0]
        }  # type: ignore[type-var]
        clock = every[0].clock
        seconds = None if cell[1] == 4 and clock == "train_seconds" else middle[clock]
        alone = seconds if cell[0] == "none" else alone
        ratio = seconds / alone if seconds is not None and alone else None
        where = "simulated" if clock == "virtual_seconds" else "loopback"
        a_round = every[0].history[-1][clock] / every[0].history[-1]["epoch"]
        yield (
            f"| `{cell[0]}` | {cell[1]} | {where if cell[0] != 'none' or clock != 'train_seconds' else 'alone'} | "
            f"{shown(middle['epoch'])} | {shown(seconds, 1e3)} | {shown(ratio)} | "
            f"{shown(middle['bytes_sent'], 1e-6)} | "
            f"{shown(a_round if seconds is not None else None, 1e3)} |"
        )


def table(asked: argparse.Namespace) -> None:
    for name in asked.data:
        kind = KINDS[name]
        with tempfile.TemporaryDirectory() as folder:
            rows, path = kind.open(), Path(folder) / "data"
            store = str(save_store(rows, path, kind=RATINGS if "problem" in kind.options else None))
            groups = {"real": [] if asked.only == "simulated" else [*real(name, store, asked.times)]}
            groups["simulated"] = [] if asked.only == "real" else [*simulated(name, rows)]
        print(f"\n{kind.data}, to {100 * kind.left:g} %\n")
        print("| `--exchange` | machines | where | epochs | ms | ms / alone | MB | ms an epoch |")
        print("|---|--:|---|--:|--:|--:|--:|--:|")
        for trials in filter(None, groups.values()):
            print(*lines(kind, trials), sep="\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("loopback")
    one.add_argument("--rows", type=int, default=2_000_000)
    one.add_argument("--epochs", type=int, default=21)
    one.add_argument("--exchange", default="averaging")
    one.set_defaults(do=loopback)
    many = commands.add_parser("table")
    many.add_argument("--data", nargs="+", choices=KINDS, default=[*KINDS])
    many.add_argument("--times", type=int, default=3)
    many.add_argument("--only", choices=("real", "simulated"))
    many.set_defaults(do=table)
    asked = parser.parse_args()
    asked.do(asked)


if __name__ == "__main__":
    main()
