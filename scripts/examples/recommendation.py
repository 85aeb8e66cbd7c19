"""Recommending items
==================

Ratings are a sparse matrix, lock-free SGD finds factors, and each user is shown the best unseen items::

    python scripts/examples/recommendation.py                    # generated ratings
    python scripts/examples/recommendation.py ml-100k/u.data     # any file of user, item, rating

New users need no new training: ``transform`` finds their factors from what they rated. The picture shows how alike the
most rated items are, by the angle between their factors; the order puts like beside like.
"""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse
from scipy.cluster.hierarchy import leaves_list, linkage

import hogwild

GENERATED = "synthetic:ratings?users=1000&items=300&ratings=40000"
DRAWN = 60  # items


def matrix(ratings: hogwild.Ratings) -> scipy.sparse.csr_array:
    """Users in the rows, items in the columns."""
    return scipy.sparse.csr_array((ratings.values, (ratings.users, ratings.items)), shape=ratings.shape)


def draw(factors: np.ndarray, counts: np.ndarray) -> None:
    popular = counts.argsort()[-DRAWN:]
    directions = factors[popular] / np.linalg.norm(factors[popular], axis=1, keepdims=True)
    order = leaves_list(linkage(directions, "average", metric="cosine"))
    alike = directions[order] @ directions[order].T
    figure, axis = plt.subplots(figsize=(5, 4.2), layout="constrained")
    image = axis.imshow(alike, cmap="RdBu_r", vmin=-1, vmax=1)
    axis.set(title=f"Likeness of the {DRAWN} most rated items", xlabel="item", ylabel="item", xticks=[], yticks=[])
    figure.colorbar(image, label="cosine of their factors")
    plt.show()


def main(source: str = GENERATED) -> None:
    ratings = hogwild.open_ratings(source)
    train, test = (matrix(part) for part in ratings.split(0.1))
    model = hogwild.HogwildFactorizer(n_components=16, n_jobs=-1, random_state=0).fit(train)
    spread = np.std(test.data)
    print(f"{train.nnz:,} ratings: RMSE {-model.score(test):.4f} held out, {spread:.4f} for the mean")
    items, scores = model.recommend([0, 1], n=3, seen=train)
    for user, row in enumerate(items):
        said = ", ".join(f"item {item} ({score:.2f})" for item, score in zip(row, scores[user], strict=True))
        print(f"user {user}: {said}")
    stranger = train[[0]]  # as if nobody knew user 0
    users = model.user_factors_ / np.linalg.norm(model.user_factors_, axis=1, keepdims=True)
    nearest = np.argmax(users @ model.transform(stranger)[0])
    print(f"a stranger with the ratings of user 0 is most like user {nearest}")
    draw(model.components_.T, np.bincount(train.indices, minlength=train.shape[1]))


if __name__ == "__main__":
    main(*sys.argv[1:2])
