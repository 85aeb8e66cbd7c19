"""Replicas that trade over a slow link
====================================

Where memory cannot be shared, every worker has a replica of the model and they trade. How often they should depends on
the link, and the simulator has one of any speed::

    python scripts/examples/replicas.py

Left, by the clock: waiting for a round costs time. Right, by what is sent: trading often costs bytes.
"""

from __future__ import annotations

import matplotlib.pyplot as plt

import hogwild

DATA = "synthetic:rcv1?rows=8000&features=20000&nnz=30"
LINK = "latency=0.2ms,bandwidth=100Mbit,row=2us"
EXCHANGES = ("averaging", "averaging:period=250", "gossip:period=250,home=0", "server:push=1000")


def main() -> None:
    options = {"host": "simulator", "workers": 4, "link": LINK, "l2": 1e-5, "step": 2.0, "epochs": 8}
    figure, (by_time, by_bytes) = plt.subplots(1, 2, figsize=(9, 3.7), layout="constrained", sharey=True)
    for exchange in EXCHANGES:
        run = hogwild.train(DATA, exchange=exchange, **options)
        run.finish()
        rows = run.history[1:]
        objective = [row["objective"] for row in rows]
        megabytes = [row["bytes_sent"] / 1e6 for row in rows]
        milliseconds = [1e3 * row["virtual_seconds"] for row in rows]
        by_time.plot(milliseconds, objective, marker="o", label=exchange)
        by_bytes.plot(megabytes, objective, marker="o", label=exchange)
        print(f"{exchange:25} objective {objective[-1]:.4f}, {milliseconds[-1]:6.1f} ms, {megabytes[-1]:5.1f} MB")
    figure.suptitle(f"4 replicas, {LINK}", fontsize="medium")
    by_time.set(xlabel="virtual milliseconds", xscale="log", ylabel="objective")
    by_bytes.set(xlabel="megabytes sent", xscale="log")
    figure.legend(*by_time.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    plt.show()


if __name__ == "__main__":
    main()
