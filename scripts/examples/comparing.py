"""Comparing methods from Python
=============================

Was it worth leaving the locks out, on these data and this machine? ::

    python scripts/examples/comparing.py                             # a small generated set, some seconds
    python scripts/examples/comparing.py rows.svm.gz comparison      # your data, results kept in comparison/

This does the same as ``hogwild compare``: the step of every method is tuned alike, repeats are interleaved, and the
verdict is in words. Started again with the same arguments, it goes on where it was. The picture has the report's
curves.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

from hogwild import open_data
from hogwild.compare.report.figures import curves_of
from hogwild.compare.report.page import write_report
from hogwild.compare.report.results import load
from hogwild.compare.run.harness import Comparison
from hogwild.compare.run.plan import ComparisonPlan
from hogwild.config import TrainConfig


def main(data: str = "synthetic:rcv1?rows=40000&features=20000&nnz=40", out: str = "") -> None:
    train, test = open_data(data).split(0.2, seed=0)
    methods = ("serial", "hogwild", "tiered", "locked")
    plan = ComparisonPlan(seeds=3, workers=(2,), grid=(0.5, 1.0, 2.0), epochs=5, methods=methods)
    comparison = Comparison(train, test, plan, TrainConfig(host="threads"), data=data)
    with tempfile.TemporaryDirectory() as folder:
        where = Path(out or folder)
        comparison.run(where)
        report = write_report([where], where)
        curves = curves_of(load([where]))
    print("\n".join(report.verdict))
    _, axis = plt.subplots(figsize=(7.1, 4.5), layout="constrained")
    for curve in curves:
        axis.loglog(curve.points["train_seconds"], curve.points["median"], color=curve.colour, label=curve.name)
    axis.set(xlabel="seconds of training", ylabel="distance from the optimum", title="Medians of three seeds")
    axis.xaxis.set_minor_formatter("")
    axis.legend()
    plt.show()


if __name__ == "__main__":
    main(*sys.argv[1:3])
