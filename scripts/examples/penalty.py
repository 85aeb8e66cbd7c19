"""Sixteen penalties in one pass
=============================

How strong should the penalty be? ``l2="auto"`` trains sixteen candidates side by side: they are the lanes of one
vector, so that a row is read once for all of them::

    python scripts/examples/penalty.py

The strongest penalty whose held-out loss is within half a standard error of the lowest is taken.
"""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt

import hogwild


def main(data: str = "synthetic:rcv1?rows=20000&features=20000&nnz=40") -> None:
    run = hogwild.train(data, loss="log", l2="auto", epochs=5)
    run.finish()
    choice = run.chosen
    path = [row for row in choice.path if row["held_out_loss"] is not None]
    print(f"l2 {choice.l2:.1e} of {len(path)} candidates in {choice.seconds:.2f} s")
    _, axis = plt.subplots(figsize=(6, 3.5), layout="constrained")
    axis.plot([row["l2"] for row in path], [row["held_out_loss"] for row in path], marker="o")
    axis.axvline(choice.l2, color="tab:orange", linestyle="dashed", label=f"chosen: {choice.l2:.1e}")
    axis.set(
        xscale="log", xlabel="l2", ylabel="held-out log loss", title=f"{len(path)} penalties in {choice.seconds:.2f} s"
    )
    axis.legend()
    plt.show()


if __name__ == "__main__":
    main(*sys.argv[1:2])
