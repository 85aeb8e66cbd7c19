"""Two machines on loopback, one worker each, beside two processes of one machine: seconds an epoch, in turns.

    python scripts/bench_machines.py [--rows 2000000] [--epochs 21] [--exchange averaging]

Both average once an epoch on the same rows, which machine 1 reads from the same store. It prints the medians and their
ratio, what was sent, and the objectives at the end, which are those of one scheme.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import hogwild
from hogwild.data.rows.store import save_store

OTHER = "import sys; sys.path.insert(0, {folder!r}); import bench_machines as b; b.join(*sys.argv[1:])"


def options(exchange: str, epochs: int) -> dict[str, Any]:
    return {"exchange": exchange, "step": 1.0, "epochs": epochs, "schedule": "epoch"}


def join(store: str, address: str, exchange: str, epochs: str) -> None:
    """Be machine 1."""
    rows = hogwild.open_data(store)
    with hogwild.gather(address, machines=2, machine=1) as cluster:
        run = hogwild.train(rows, workers=1, host="processes", cluster=cluster, **options(exchange, int(epochs)))
        list(run)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--epochs", type=int, default=21)
    parser.add_argument("--exchange", default="averaging")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = str(save_store(hogwild.open_data(f"synthetic:rcv1?rows={asked.rows}"), Path(folder) / "rows"))
        rows = hogwild.open_data(store)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        code = OTHER.format(folder=str(Path(__file__).parent))
        other = subprocess.Popen([sys.executable, "-c", code, store, address, asked.exchange, str(asked.epochs)])
        with hogwild.gather(address, machines=2, machine=0) as cluster:
            runs = {
                "two machines": hogwild.train(
                    rows, workers=1, host="processes", cluster=cluster, **options(asked.exchange, asked.epochs)
                ),
                "two processes": hogwild.train(
                    rows, workers=2, host="processes", **options(asked.exchange, asked.epochs)
                ),
            }
            seconds: dict[str, list[float]] = {name: [] for name in runs}
            last: dict[str, Any] = {}
            for each in zip(*runs.values(), strict=True):
                for name, row in zip(runs, each, strict=True):
                    before = last.get(name, row)["train_seconds"]
                    last[name] = row
                    seconds[name].append(row["train_seconds"] - before)
        other.wait()
    medians = {name: statistics.median(times[2:]) for name, times in seconds.items()}
    for name, median in medians.items():
        row = last[name]
        print(
            f"{name:<14}{median:.4f} s an epoch (median of {len(seconds[name]) - 2}), "
            f"objective {row['objective']:.6f}, {row['messages']} messages, {row['bytes_sent']} bytes"
        )
    print(f"ratio {medians['two machines'] / medians['two processes']:.3f}")


if __name__ == "__main__":
    main()
