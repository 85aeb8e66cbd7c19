"""Staleness and lost updates, simulated
=====================================

What would more cores do to the statistics? The simulator plays any number of workers on one core, reproducibly, and
counts what cannot be counted on a real machine::

    python scripts/examples/staleness.py

A gradient is stale by the updates that landed between its read and its write, and an update is lost if another worker
overwrites it. Both grow with the workers; how much that costs depends on how sparse the rows are.
"""

from __future__ import annotations

import matplotlib.pyplot as plt

import hogwild

SPARSE = "synthetic:rcv1?rows=4000&features=20000&nnz=20"
DENSE = "synthetic:uniform?rows=4000&features=40&nnz=20"
WORKERS = (1, 4, 16, 64)


def main() -> None:
    _, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
    for name, data in {"20 of 20,000 weights": SPARSE, "20 of 40 weights": DENSE}.items():
        last = []
        for workers in WORKERS:
            run = hogwild.train(data, host="simulator", workers=workers, discipline="hogwild", l2=1e-4, epochs=4)
            run.finish()
            last.append(run.history[-1])
            lost = last[-1]["lost_updates"] or 0
            print(f"{name}: {workers:2} workers, staleness {last[-1]['staleness_mean']:6.2f}, {lost:9,} updates lost")
        columns = {
            column: [row[column] or 0 for row in last] for column in ("staleness_mean", "lost_updates", "objective")
        }
        columns["objective"] = [objective / columns["objective"][0] for objective in columns["objective"]]
        for axis, values in zip(axes, columns.values(), strict=True):
            axis.plot(WORKERS, values, marker="o", label=f"a row has {name}")
    titles = ("mean staleness (updates)", "lost updates", "objective / one worker's")
    for axis, title in zip(axes, titles, strict=True):
        axis.set(title=title, xlabel="workers", xscale="log", xticks=WORKERS, xticklabels=WORKERS)
        axis.minorticks_off()
    axes[0].legend()
    plt.show()


if __name__ == "__main__":
    main()
