"""A click log with planted crosses and hours: how much of what they hold do crosses, and field-aware machines, learn?

    python scripts/bench/click_log.py [--rows 1000000] [--out clicks.parquet]

The log has categories, ids, a number, titles and times. Whether somebody clicks depends on each column, on the pair of
device and country, and on what each site's day looks like; an ad has one title. The floor is the log loss of the
probabilities that the clicks are drawn from; a share is that of the gap between it and the plain columns, on the last
tenth of the rows.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

import hogwild
from hogwild.metrics import evaluate

SIZES = {"site": 100, "device": 6, "country": 30, "campaign": 100, "ad_id": 1000}
WORDS, DAYS = 100, 60
FITS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain columns": ({"ignore": "time"}, {"l2": "auto"}),
    "crosses, the hour": ({"cross": "device*country,site*time.hour"}, {"l2": "auto"}),
    "field-aware, the hour": ({}, {"problem": "ffm", "rank": 4}),
}


def generate(rows: int, seed: int = 0) -> tuple[pa.Table, np.ndarray]:
    """Return a log, and the probability of each click."""
    random = np.random.default_rng(seed)
    price, seconds = random.gamma(2, 10, rows).round(2), random.integers(0, DAYS * 86_400, rows)
    margin = 0.02 * price - 2
    codes, columns = {}, {}
    for name, size in SIZES.items():
        code = codes[name] = (size * random.random(rows) ** 2).astype(np.int32)  # a few are in most rows
        margin += 0.3 * random.normal(size=size)[code]
        columns[name] = code if name == "ad_id" else pa.array([f"{name}{k}" for k in range(size)]).take(pa.array(code))
    words = random.integers(0, WORDS, (4, SIZES["ad_id"]))[:, codes["ad_id"]]  # of the title of each ad
    margin += 0.15 * random.normal(size=WORDS)[words].sum(axis=0)
    told = pa.array([f"word{k}" for k in range(WORDS)])
    title = pc.binary_join_element_wise(*(told.take(pa.array(each)) for each in words), " ")
    margin += 0.8 * random.normal(size=(SIZES["device"], SIZES["country"]))[codes["device"], codes["country"]]
    day = 2 * np.pi * (seconds // 3600 % 24) / 24
    tastes = 0.7 * random.normal(size=(SIZES["site"], 2))[codes["site"]]
    margin += (0.3 + tastes[:, 0]) * np.cos(day) + tastes[:, 1] * np.sin(day)
    probability = 1 / (1 + np.exp(-margin))
    times = np.datetime64("2024-01-01") + seconds.astype("timedelta64[s]")
    click = (random.random(rows) < probability).astype(np.int8)
    return pa.table({"click": click, **columns, "price": price, "title": title, "time": times}), probability


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--out", help="write the log here as Parquet, and train on nothing")
    given = parser.parse_args()
    log, probability = generate(given.rows)
    if given.out:
        pyarrow.parquet.write_table(log, given.out)
        return
    cut = given.rows - given.rows // 10
    truth = np.where(log["click"].to_numpy()[cut:] == 1, probability[cut:], 1 - probability[cut:])
    floor, plain = -np.log(truth).mean(), np.nan
    print(f"{'floor':<22} {floor:.4f}")
    for name, (columns, options) in FITS.items():
        model = hogwild.train(hogwild.open_table(log.slice(0, cut), "click", **columns), loss="log", **options).finish()
        loss = evaluate(model, hogwild.open_table(log.slice(cut), like=model))["log_loss"]
        plain = loss if np.isnan(plain) else plain
        print(f"{name:<22} {loss:.4f}  {100 * (plain - loss) / (plain - floor):5.1f} % of the gap", flush=True)


if __name__ == "__main__":
    main()
