"""Click-through rates from a table
================================

Who clicks, told from a table of categories::

    python scripts/examples/click_through.py                       # 20,000 made-up impressions
    python scripts/examples/click_through.py clicks.csv click      # your table, and its column of labels

The columns go in as they are: names are hashed, so new categories may turn up every day. A rate is used as a
probability, so the picture shows what became of rows with a rate of so much: a model is calibrated if its points lie on
the diagonal.
"""

from __future__ import annotations

import math
import random
import sys

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
from sklearn.calibration import calibration_curve
from sklearn.metrics import log_loss

import hogwild

SIZES = {"site": 400, "advert": 3000, "device": 12, "hour": 24, "city": 800}


def make_impressions(count: int, seed: int = 0) -> pa.Table:
    """Made-up impressions; every category has a liking of its own, popular ones come more often."""
    generator = random.Random(seed)
    liking = {(name, k): random.Random(f"{name}{k}").gauss(0, 0.6) for name, size in SIZES.items() for k in range(size)}
    rows = []
    for _ in range(count):
        row = {name: int(size * generator.random() ** 3) for name, size in SIZES.items()}
        margin = -1.5 + sum(liking[place] for place in row.items())
        click = int(generator.random() < 1 / (1 + math.exp(-margin)))
        rows.append({name: f"{name}{k}" for name, k in row.items()} | {"click": click})
    return pa.Table.from_pylist(rows)


def draw(clicks: np.ndarray, rates: np.ndarray) -> None:
    happened, told = calibration_curve(clicks, rates, n_bins=10, strategy="quantile")
    _, axis = plt.subplots(figsize=(4.5, 4.5), layout="constrained")
    limit = 1.1 * max(*happened, *told)
    axis.plot([0, limit], [0, limit], color="gray", linestyle="dashed")
    axis.plot(told, happened, marker="o")
    axis.set(xlabel="rate that the model tells", ylabel="share that clicked", title="Calibration by tenths of the rows")
    plt.show()


def main(path: str = "", label: str = "click") -> None:
    table = hogwild.open_table(path or make_impressions(20_000), label=label)
    train, test = table.split(0.2)
    model = hogwild.train(train, loss="log", l2="auto").finish()
    rates, clicks = model.predict_proba(test)[:, 1], test.targets > 0
    mean = np.full(len(clicks), np.mean(train.targets > 0))
    guesses = {"the model": rates, "the mean rate": mean}
    print(", ".join(f"log loss {log_loss(clicks, guess):.4f} of {name}" for name, guess in guesses.items()))
    draw(clicks, rates)


if __name__ == "__main__":
    main(*sys.argv[1:3])
