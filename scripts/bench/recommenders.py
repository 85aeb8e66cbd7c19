"""Recommenders by default beside their peers, each on the same split and by the same metric.

    python scripts/bench/recommenders.py ml-100k/u.data ml-1m/ratings.tsv.gz ml-1m/ratings.tsv.gz:4 made:listens
    python scripts/bench/recommenders.py new u.data u.item      # items that nobody has rated yet, by their genres
    python scripts/bench/recommenders.py stars u.data u.data:5 made:stars        # RMSE beside biases alone

Of choices (any rating, or with ``:4`` those of at least 4) a tenth of each user's is held out, or of the latter a
fifth, and the NDCG at 10 over all users is printed with the seconds from the call to the model, choices of penalties
included and compiling not: of CPU, which other programs on the machine disturb least, and of the clock. Peers are
implicit (ALS, BPR) and LightFM (WARP; ``lightfm-next`` is maintained), where they are installed. LightFM is measured
after each epoch, and so is our last fit, to say how long both take to LightFM's best NDCG.

Sets that are not at hand have stand-ins, ``made:``: choices by tastes of planted vectors and by popularity, which falls
as a power of the rank. Items without ratings: a fifth of the items is hidden in training, and the hidden ones are
ranked; without a table, features are made of a factorisation of half the users, blurred, and the other half is ranked.
Stars, a tenth held out: with ``:5`` five ratings of each user are kept; biases alone have the best of five penalties.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse

import hogwild
from hogwild.problems.completion.ranking import ranking_metrics

#: Users, items, mean choices of a user, their spread (of logarithms), exponent of popularity, weight of tastes.
MADE = {
    "listens": (1_900, 17_600, 45, 0.1, 1.0, 2.0),  # as Last.fm's
    "flicks": (5_000, 4_000, 60, 1.0, 1.0, 1.5),  # as Flixster's
    "trust": (8_000, 10_000, 16, 0.8, 0.8, 2.0),  # as Epinions'
}
TASTES = 12  # planted dimensions
STARS = "synthetic:ratings?users=20000&items=5000&ratings=100000"  # of five a user
EPOCHS = 30  # of LightFM
FACTORS = 32, 64  # of ALS; the others have 32
CLUSTERS, WRONG, HIDDEN = 18, 0.15, 0.2  # made genres, the share that is wrong, and that of hidden items
ALONE = (0.01, 0.02, 0.03, 0.05, 0.08)  # penalties of biases alone
Solution = tuple[Any, Any, Any, Any]  # factors of users and items, and biases of both


def made(name: str) -> hogwild.Ratings:
    """Choices by popularity and planted tastes: each user's largest sums of both and of Gumbel noise."""
    users, items, mean, spread, skew, weight = MADE[name]
    random = np.random.default_rng(0)
    popularity = -skew * np.log(random.permutation(items) + 10.0)
    p, q = (random.standard_normal((n, TASTES)) / TASTES**0.25 for n in (users, items))
    counts = np.clip(mean * np.exp(spread * random.standard_normal(users)), 5, items // 4).astype(int)
    chosen = []
    for user, count in enumerate(counts):
        scores = popularity + weight * (q @ p[user]) + random.gumbel(size=items)
        chosen.append(np.argpartition(-scores, count)[:count])
    return hogwild.Ratings(
        np.repeat(np.arange(users), counts), np.concatenate(chosen), np.ones(counts.sum()), (users, items)
    )


def split_of(name: str) -> tuple[hogwild.Ratings, hogwild.Ratings]:
    """Choices to train on, and those held out."""
    path, _, least = name.partition(":")
    if path == "made":
        return made(least).split(0.2, by="user")
    ratings = hogwild.open_ratings(path)
    if least:
        ratings = ratings.select(ratings.values >= float(least))
    return ratings.split(0.2 if least else 0.1, by="user")


class Watch:
    """Seconds of the CPU and of the clock since it was made, or first started."""

    def __init__(self) -> None:
        self.cpu, self.wall = sum(os.times()[:4]), time.perf_counter()

    def stop(self) -> tuple[float, float]:
        return sum(os.times()[:4]) - self.cpu, time.perf_counter() - self.wall


def ours(train: hogwild.Ratings, loss: str, threads: int, **options: Any) -> Solution:
    factorizer = hogwild.HogwildFactorizer(loss=loss, early_stopping=True, n_jobs=threads, random_state=0, **options)
    return solution_of(factorizer.fit(train).model_)


def solution_of(model: Any) -> Solution:
    return model.user_factors, model.item_factors, None, model.item_bias


def epochs_to(level: float, train: hogwild.Ratings, loss: str, threads: int, ndcg: Any) -> tuple[float, float]:
    """CPU seconds of the choice of penalties by such a fit, and the share of its epochs after which it has an NDCG."""
    watch = Watch()
    options: Any = {"problem": "completion", "loss": loss, "workers": threads, "host": "threads"}
    run = hogwild.train(train, l2="auto", **options)
    cpu, _ = watch.stop()
    with run:
        reached = (row["epoch"] for row in run if ndcg(solution_of(run.model)) >= level)
        return cpu, next(reached, run.config.epochs) / run.config.epochs


def implicits(train: hogwild.Ratings, threads: int) -> Iterator[tuple[str, Callable[[], Solution]]]:
    """Models of implicit, by their defaults but for the number of factors."""
    if importlib.util.find_spec("implicit") is None:
        return
    from implicit.cpu.als import AlternatingLeastSquares
    from implicit.cpu.bpr import BayesianPersonalizedRanking

    pairs = scipy.sparse.csr_matrix((np.ones(len(train), np.float32), (train.users, train.items)), train.shape)

    def fit(model: Any) -> Solution:
        model.fit(pairs, show_progress=False)
        return model.user_factors, model.item_factors, None, np.zeros(train.shape[1])

    shared = {"num_threads": threads, "random_state": 0}
    for factors in FACTORS:
        yield f"implicit ALS, {factors}", lambda factors=factors: fit(AlternatingLeastSquares(factors, **shared))
    yield "implicit BPR", lambda: fit(BayesianPersonalizedRanking(FACTORS[0], **shared))


def lightfms(
    train: hogwild.Ratings, threads: int, items: Any = None, loss: str = "warp"
) -> Iterator[tuple[int, float, float, Any]]:
    """After each epoch of LightFM: its number, the seconds so far of CPU and clock, and the model."""
    if importlib.util.find_spec("lightfm") is None:
        return
    from lightfm import LightFM

    ends = train.users.copy(), train.items.copy()  # which it wants to be writable
    pairs = scipy.sparse.coo_matrix((np.ones(len(train), np.float32), ends), train.shape)
    model, spent = LightFM(no_components=FACTORS[0], loss=loss, random_state=0), np.zeros(2)
    for epoch in range(1, EPOCHS + 1):
        watch = Watch()
        model.fit_partial(pairs, item_features=items, num_threads=threads)
        spent += watch.stop()
        yield epoch, *spent, model


def choices(names: list[str], threads: int) -> None:
    for name in names:
        train, held = split_of(name)
        tested, seen = held.user_lists(), train.user_lists()

        def ndcg(solution: Solution, tested: Any = tested, seen: Any = seen) -> float:
            return ranking_metrics(solution, tested, seen, users=len(tested[0]))["ndcg_at_10"] or 0.0

        def show(title: str, value: float, cpu: float = 0, wall: float = 0) -> None:
            print(f"  {title:28} {value:.4f} {cpu:9.1f} {wall:9.1f}", flush=True)

        users, items = (np.zeros((size, 0), np.float32) for size in train.shape)
        print(f"{name}: {train}, {len(held):,} held out\n  {'':28}   NDCG    CPU s         s")
        show("most popular", ndcg((users, items, None, train.degrees()[1])))
        best, cost, ranked = 0.0, 0.0, ""
        for loss in ("log", "bpr"):
            ours(train.block(0, min(len(train), 5_000)), loss, threads)  # compiles
            watch = Watch()
            solution = ours(train, loss, threads)
            cpu, wall = watch.stop()
            value = ndcg(solution)
            show(f"hogwild {loss}", value, cpu, wall)
            if value > best:
                best, cost, ranked = value, cpu, loss
        for title, fit in implicits(train, threads):
            watch = Watch()
            solution = fit()
            spent = watch.stop()
            show(title, ndcg(solution), *spent)
        curve = []
        for epoch, cpu, wall, model in lightfms(train, threads):
            value = ndcg((model.user_embeddings, model.item_embeddings, None, model.item_biases))
            curve.append((value, cpu, wall, epoch))
            if epoch in (10, EPOCHS):
                show(f"LightFM WARP, {epoch} epochs", value, cpu, wall)
        if curve:
            top = max(curve)
            show(f"LightFM WARP, best (epoch {top[3]})", *top[:3])
            if best >= top[0]:
                before, share = epochs_to(top[0], train, ranked, threads, ndcg)
                reached = before + share * (cost - before)
                print(
                    f"  to {top[0]:.4f} ours takes {reached:.2f} s of CPU, LightFM {top[1] / reached:.1f} times as many"
                )


def clusters_of(ratings: hogwild.Ratings, random: np.random.Generator) -> Any:
    """Features of items, (items, 18), which ratings of other users explain."""
    from sklearn.cluster import KMeans

    model = hogwild.train(ratings, problem="completion", loss="log", rank=16, l2=0.01, epochs=15, workers=1).finish()
    length = np.linalg.norm(model.item_factors, axis=1, keepdims=True)
    near = KMeans(CLUSTERS, n_init=3, random_state=0).fit_transform(model.item_factors / np.maximum(length, 1e-9))
    features = np.zeros(near.shape, np.float32)
    for item, order in enumerate(np.argsort(near, axis=1)):
        for cluster in order[: random.integers(1, 4)]:
            features[item, cluster if random.random() > WRONG else random.integers(CLUSTERS)] = 1
    return scipy.sparse.csr_array(features)


def in_int32(matrix: Any) -> Any:
    """The matrix as LightFM takes it."""
    matrix = scipy.sparse.csr_matrix(matrix, dtype=np.float32)
    matrix.indices, matrix.indptr = (part.astype(np.int32) for part in (matrix.indices, matrix.indptr))
    return matrix


def new_items(path: str, table: str | None, threads: int) -> None:
    ratings, random = hogwild.open_ratings(path), np.random.default_rng(0)
    if table is None:
        first = random.random(ratings.shape[0]) < 0.5
        features = clusters_of(ratings.select(first[ratings.users]), random)
        ratings = ratings.select(~first[ratings.users])
    else:
        whole = ratings.with_features(items=table)
        features = whole.features[1]
        ratings = hogwild.Ratings(ratings.users, ratings.items, ratings.values, whole.shape, check=False)
    hidden = random.random(ratings.shape[1]) < HIDDEN
    known, tested = ratings.select(~hidden[ratings.items]), ratings.select(hidden[ratings.items]).user_lists()
    train, held = known.split(0.1, by="user")
    others = hogwild.Ratings(
        *np.divmod(np.flatnonzero(np.tile(~hidden, ratings.shape[0])), len(hidden)), [], ratings.shape, check=False
    )
    no_candidates = others.user_lists()

    def show(name: str, solution: Solution, cpu: float, wall: float) -> None:
        new = ranking_metrics(solution, tested, no_candidates)["ndcg_at_10"]
        old = ranking_metrics(solution, held.user_lists(), train.user_lists())["ndcg_at_10"]
        print(f"  {name:36} new {new:.4f}   known {old:.4f} {cpu:9.1f} {wall:9.1f}", flush=True)

    print(f"{path}: {train}, {int(hidden.sum())} items hidden, {features.shape[1]} features; NDCG, CPU s, s")
    featured = train.with_features(items=features)
    for title, data, loss, options in (
        ("log", train, "log", {}),
        ("log and features", featured, "log", {}),
        ("bpr", train, "bpr", {}),
        ("bpr and features", featured, "bpr", {}),
        ("bpr and features, 1 negative, l2 .001", featured, "bpr", {"negatives": 1, "alpha": 0.001}),
    ):
        watch = Watch()
        users, items, _, bias = ours(data, loss, threads, **options)
        spent = watch.stop()
        show(f"hogwild {title}", (users, items, None, np.where(hidden, 0, bias) if data is train else bias), *spent)
    both = in_int32(scipy.sparse.hstack([scipy.sparse.identity(len(hidden), format="csr"), features]))
    untrained = in_int32(scipy.sparse.hstack([scipy.sparse.diags(1.0 - hidden), features]))
    # LightFM draws the hidden items against others, unless they are left out by hand, as ours are by themselves
    shape = train.shape[0], int((~hidden).sum())
    same = hogwild.Ratings(train.users, (np.cumsum(~hidden) - 1)[train.items], train.values, shape, check=False)
    for title, rows, given, asked in (
        ("as it comes", train, both, both),
        ("without hidden items", same, in_int32(both[~hidden]), untrained),
    ):
        for loss in ("warp", "bpr"):
            for epoch, cpu, wall, model in lightfms(rows, threads, given, loss):
                if epoch in (10, EPOCHS):
                    bias, items = model.get_item_representations(asked)
                    name = f"LightFM {loss} {epoch}, {title}"
                    show(name, (model.user_embeddings, items, None, bias), cpu, wall)


def stars(names: list[str], threads: int) -> None:
    for name in names:
        path, _, each = name.partition(":")
        ratings = hogwild.open_ratings(STARS if path == "made" else path)
        if path != "made" and each:
            order = np.lexsort((np.random.default_rng(0).random(len(ratings)), ratings.users))
            place = np.arange(len(ratings)) - np.searchsorted(ratings.users[order], ratings.users[order])
            ratings = ratings.select(np.sort(order[place < int(each)]))
        train, held = ratings.split(0.1)

        def rmse(title: str, train: Any = train, held: Any = held, **options: Any) -> None:
            watch = Watch()
            run = hogwild.train(train, problem="completion", workers=threads, **options)
            model = run.finish()
            cpu, wall = watch.stop()
            error = model.scores(held.users, held.items) - held.values
            value = float(np.sqrt(np.mean(np.square(error))))
            chosen = f"l2 {run.config.l2:g}, rank {run.config.rank}, {run.config.epochs} epochs"
            print(f"  {title:16} {value:.4f} {cpu:9.2f} {wall:9.2f}   {chosen}", flush=True)

        print(f"{name}: {train}, {len(held):,} held out\n  {'':16}   RMSE    CPU s         s")
        rmse("by default")
        rmse("l2 auto", l2="auto")
        for l2 in ALONE:
            rmse("biases alone", l2=l2, rank=0)


def main(args: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", metavar="SET", help="see above; first 'new' or 'stars' for these")
    parser.add_argument("--threads", type=int, default=1, help="of everybody")
    given = parser.parse_args(args)
    kind, rest = given.names[0], given.names[1:]
    if kind == "new":
        new_items(rest[0], rest[1] if len(rest) > 1 else None, given.threads)
    elif kind == "stars":
        stars(rest, given.threads)
    else:
        choices(given.names, given.threads)


if __name__ == "__main__":
    main()
