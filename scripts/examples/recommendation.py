"""Similar films
=============

Who likes which films tells which films are alike::

    python scripts/examples/recommendation.py                    # made-up films of four genres
    python scripts/examples/recommendation.py ml-100k/u.data     # any file of user, item, rating

Lock-free SGD finds a few numbers for each user and film, its factors, whose product is the rating. The picture lays the
films' factors flat: films of a genre lie together, although the model never saw a genre.
"""

from __future__ import annotations

import io
import sys

import matplotlib.pyplot as plt
import numpy as np

import hogwild

GENRES = ("western", "space", "romance", "crime")
FILMS = 25  # of each genre


def made_up(users: int = 1000, ratings: int = 30, seed: int = 0) -> io.BytesIO:
    """Lines of user, film and 1 to 5 stars: users like some genres more than others, films are mostly of one."""
    random = np.random.default_rng(seed)
    names = [f"{genre} {number}" for genre in GENRES for number in range(1, FILMS + 1)]
    films = np.repeat(np.eye(len(GENRES)), FILMS, axis=0) + random.normal(0, 0.25, (len(names), len(GENRES)))
    lines = []
    for user in range(users):
        seen = random.choice(len(names), ratings, replace=False)
        stars = 3 + films[seen] @ random.normal(0, 1, len(GENRES)) + random.normal(0, 0.5, ratings)
        lines += [
            f"user {user}\t{names[film]}\t{star:.0f}" for film, star in zip(seen, np.clip(stars, 1, 5), strict=True)
        ]
    return io.BytesIO("\n".join(lines).encode())


def draw(model: hogwild.CompletionModel, names: np.ndarray, film: str, similar: np.ndarray) -> None:
    factors = model.item_factors - model.item_factors.mean(axis=0)
    places = factors @ np.linalg.svd(factors, full_matrices=False)[2][:2].T  # (films, 2)
    genres = np.array([str(name).rpartition(" ")[0] for name in names])
    _, axis = plt.subplots(figsize=(6.5, 4.5), layout="constrained")
    for genre in np.unique(genres):
        axis.scatter(*places[genres == genre].T, s=16, label=genre)
    near = places[np.isin(names, similar)]
    axis.scatter(*near.T, s=90, facecolors="none", edgecolors="black", label=f"most like {film}")
    axis.set(title="Films by who likes them", xlabel="first direction of their factors", ylabel="second direction")
    axis.legend()
    plt.show()


def main(source: str = "") -> None:
    ratings = hogwild.open_ratings(source or made_up())
    train, test = ratings.split(0.1)
    run = hogwild.train(train, test, problem="completion", rank=16)
    model = run.finish()
    print(f"RMSE {run.history[-1]['test_rmse']:.3f} held out, {np.std(test.values):.3f} for the mean")
    users, films = model.user_ids.names(), model.item_ids.names()
    best, _ = model.recommend(users[:1], n=3, seen=train)
    print(f"for {users[0]}:", ", ".join(map(str, best[0])))
    film = films[np.bincount(train.items).argmax()]  # the one with most ratings
    similar, _ = model.similar_items([film], n=5)
    print(f"like {film}:", ", ".join(map(str, similar[0])))
    draw(model, films, film, similar[0])


if __name__ == "__main__":
    main(*sys.argv[1:2])
