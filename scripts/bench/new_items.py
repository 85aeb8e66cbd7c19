"""How well side features rank items that nobody has rated yet, and what they do for the others.

    python scripts/bench/new_items.py ml-100k/u.data

Real sets with features are rarely at hand, so features are made: a factorisation of half of the users' ratings gives
vectors of items, each item gets one to three of 18 clusters of these, and one in seven is replaced at random. The other
half of the users then chooses: a fifth of the items is hidden in training, and a tenth of the other choices is held
out. Printed are the mean NDCG at 10 among the hidden items, that of the choices held out among the known ones, and
seconds. LightFM is measured beside, where it is installed.
"""

from __future__ import annotations

import importlib.util
import sys
import time

import numpy as np
import scipy.sparse
from sklearn.cluster import KMeans

import hogwild
from hogwild.problems.completion.ranking import ranking_metrics

CLUSTERS, WRONG, HIDDEN, HELD_OUT = 18, 0.15, 0.2, 0.1


def clusters_of(ratings: hogwild.Ratings, random: np.random.Generator) -> scipy.sparse.csr_array:
    """Features of items, (items, 18), which ratings of other users explain."""
    model = hogwild.train(ratings, problem="completion", loss="log", rank=16, l2=0.01, epochs=15, workers=1).finish()
    length = np.linalg.norm(model.item_factors, axis=1, keepdims=True)
    near = KMeans(CLUSTERS, n_init=3, random_state=0).fit_transform(model.item_factors / np.maximum(length, 1e-9))
    features = np.zeros(near.shape, np.float32)
    for item, order in enumerate(np.argsort(near, axis=1)):
        for cluster in order[: random.integers(1, 4)]:
            features[item, cluster if random.random() > WRONG else random.integers(CLUSTERS)] = 1
    return scipy.sparse.csr_array(features)


def main(source: str) -> None:
    ratings = hogwild.open_ratings(source)
    random = np.random.default_rng(0)
    first = random.random(ratings.shape[0]) < 0.5
    features = clusters_of(ratings.select(first[ratings.users]), random)
    ratings = ratings.select(~first[ratings.users])
    hidden = random.random(ratings.shape[1]) < HIDDEN
    known, tested = ratings.select(~hidden[ratings.items]), ratings.select(hidden[ratings.items]).user_lists()
    train, held = known.split(HELD_OUT)
    others = np.tile(np.flatnonzero(~hidden), ratings.shape[0])  # no candidates among the hidden
    begin = np.arange(ratings.shape[0] + 1) * np.count_nonzero(~hidden)

    def show(name: str, began: float, *factors: np.ndarray) -> None:
        seconds = time.perf_counter() - began
        new = ranking_metrics(*factors, tested, (begin, others))["ndcg_at_10"]
        old = ranking_metrics(*factors, held.user_lists(), train.user_lists())["ndcg_at_10"]
        print(f"{name:24} new {new:.4f}   known {old:.4f}   {seconds:.1f} s")

    for loss in ("log", "bpr"):
        for name, data in (("", train), (" and features", train.with_features(items=features))):
            began = time.perf_counter()
            model = hogwild.train(data, problem="completion", loss=loss, l2="auto").finish()
            bias = model.item_bias if name else np.where(hidden, 0, model.item_bias)
            show(loss + name, began, model.user_factors, model.item_factors, bias)
    if importlib.util.find_spec("lightfm") is None:
        return
    import lightfm

    items = scipy.sparse.hstack([scipy.sparse.identity(len(hidden)), features]).tocsr()
    pairs = scipy.sparse.coo_array((train.values, (train.users, train.items)), train.shape)
    for epochs in (10, 30):
        began = time.perf_counter()
        model = lightfm.LightFM(no_components=32, loss="warp").fit(pairs, item_features=items, epochs=epochs)
        biases, factors = model.get_item_representations(items)
        show(f"lightfm, {epochs} epochs", began, model.user_embeddings, factors, biases)


if __name__ == "__main__":
    main(*sys.argv[1:2])
