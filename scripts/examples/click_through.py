"""Click-through rates from categories
===================================

Who clicks, told from dictionaries of strings by hashing::

    python scripts/examples/click_through.py            # 20,000 made-up impressions

Categories have no numbers and new ones turn up every day, so ``FeatureHasher`` gives each ``name=value`` a place among
2^20. The rows are binary, and hogwild does not even read their values. What counts is the log loss of the
probabilities.
"""

from __future__ import annotations

import math
import random
import sys

from sklearn.feature_extraction import FeatureHasher
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline

from hogwild import HogwildClassifier

SIZES = {"site": 400, "advert": 3000, "device": 12, "hour": 24, "city": 800}


def make_impressions(count: int, seed: int = 0) -> tuple[list[dict[str, str]], list[int]]:
    """Made-up impressions; every category has a liking of its own, popular ones come more often."""
    generator = random.Random(seed)
    places = [(name, k) for name, size in SIZES.items() for k in range(size)]
    liking = {place: random.Random(f"{place}").gauss(0, 0.6) for place in places}
    impressions, clicks = [], []
    for _ in range(count):
        drawn = {name: int(size * generator.random() ** 3) for name, size in SIZES.items()}
        margin = -1.5 + sum(liking[name, k] for name, k in drawn.items())
        impressions.append({name: f"{name}{k}" for name, k in drawn.items()})
        clicks.append(int(generator.random() < 1 / (1 + math.exp(-margin))))
    return impressions, clicks


def main(count: str = "20000") -> None:
    impressions, clicks = make_impressions(int(count))
    cut = int(0.8 * len(clicks))  # by time, as it would be
    model = make_pipeline(
        FeatureHasher(n_features=1 << 20, alternate_sign=False),
        HogwildClassifier(loss="log_loss", alpha=1e-4, average=True, n_jobs=-1, random_state=0),
    )
    model.fit(impressions[:cut], clicks[:cut])
    rate = sum(clicks[:cut]) / cut
    guesses = {"the model": model.predict_proba(impressions[cut:])[:, 1], "the mean rate": [rate] * (len(clicks) - cut)}
    print(", ".join(f"log loss {log_loss(clicks[cut:], guess):.4f} of {name}" for name, guess in guesses.items()))


if __name__ == "__main__":
    main(*sys.argv[1:2])
