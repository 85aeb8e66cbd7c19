"""Staleness and lost updates, simulated
=====================================

What would more cores do to the statistics? The simulator plays any number of workers on one core, reproducibly, and
counts what cannot be counted on a real machine::

    python scripts/examples/staleness.py

A gradient is stale by the updates that landed between its read and its write, and an update is lost if another worker
overwrites it. Both grow with the workers; how much that costs depends on how sparse the examples are. The speed-up is
the simulated time in which one worker reaches its objective of the fourth epoch, over that of many. It counts what
staleness costs, and neither memory nor caches: it is what the algorithm would allow. Workers take ratings tile by tile,
and 8,000 make too few tiles for 64 workers. A curve ends where twice the epochs do not get there.
"""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import hogwild

WORKERS = (1, 4, 16, 64)
EPOCHS = 4  # of one worker, after which objectives are compared
PROBLEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "linear, 20 of 20,000 weights": ("synthetic:rcv1?rows=4000&features=20000&nnz=20", {"l2": 1e-4}),
    "linear, 20 of 40 weights": ("synthetic:uniform?rows=4000&features=40&nnz=20", {"l2": 1e-4}),
    "factorization machine": ("synthetic:ctr?rows=3000&features=2000", {"problem": "fm", "rank": 4, "step": 0.1}),
    "completion of ratings": (
        "synthetic:ratings?users=600&items=300&ratings=8000",
        {"problem": "completion", "rank": 8},
    ),
    "cut of a picture": ("synthetic:grid?side=32", {"problem": "cuts"}),
}


def play(data: str, workers: int, options: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a run of twice the epochs."""
    run = hogwild.train(data, host="simulator", workers=workers, discipline="hogwild", epochs=2 * EPOCHS, **options)
    run.finish()
    return run.history


def seconds_to(objective: float, rows: list[dict[str, Any]]) -> float:
    """Simulated seconds, interpolated between epochs; NaN if it is never reached."""
    lowest = np.minimum.accumulate([row["objective"] for row in rows])
    return float(np.interp(-objective, -lowest, [row["virtual_seconds"] for row in rows], right=np.nan))


def main() -> None:
    _, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
    for name, (data, options) in PROBLEMS.items():
        runs = [play(data, workers, options) for workers in WORKERS]
        first, goal = runs[0], runs[0][EPOCHS]["objective"]
        rows = [run[EPOCHS] for run in runs]
        lost = [(row["lost_updates"] or 0) / row["updates"] for row in rows]
        worse = [row["objective"] / goal for row in rows]
        speed = [seconds_to(goal, first) / seconds_to(goal, run) for run in runs]
        for workers, row, each, times in zip(WORKERS, rows, lost, speed, strict=True):
            stale = f"staleness {row['staleness_mean']:5.2f}, {each:6.3f} numbers overwritten"
            fast = f"{times:5.1f} times as fast" if times > 0 else "never gets there"
            print(f"{name:<28} {workers:2} workers: {stale}, objective {row['objective']:.4f}, {fast}")
        for axis, values in zip(axes, (lost, worse, speed), strict=True):
            axis.plot(WORKERS, values, marker="o", label=name)
    axes[2].plot(WORKERS, WORKERS, color="gray", linestyle=":", label="ideal")
    axes[2].set(yscale="log", yticks=WORKERS, yticklabels=WORKERS)
    titles = ("overwritten numbers, an update", f"objective / one worker's, epoch {EPOCHS}", "simulated speed-up")
    for axis, title in zip(axes, titles, strict=True):
        axis.set(title=title, xlabel="workers", xscale="log", xticks=WORKERS, xticklabels=WORKERS)
        axis.minorticks_off()
    axes[0].legend(fontsize="small")
    axes[2].legend(*([each[-1]] for each in axes[2].get_legend_handles_labels()), fontsize="small")
    plt.show()


if __name__ == "__main__":
    main()
