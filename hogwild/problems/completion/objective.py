"""The objective that judges a factorisation: mean loss over ratings + penalty, in float64.

The objective is computed from the ratings themselves by compiled code (``scores_kernel.py``) that shares nothing with
the training kernels; the tests check it against sums in NumPy. The score of user u and item i is ``mean + b_u + b_i +
p_u . q_i``. The sampled losses (``log``, ``bpr``) draw their negatives once, with a separate seed, so that the
objective is one function of the parameters and can be compared between epochs and runs.

It costs 10 to 30 ns a rating and core at rank 32, off the training clock, and memory for one piece a thread; the
sampled losses keep 4 bytes for each negative. Penalty per rating: Zhou et al. 2008 ("Large-scale parallel collaborative
filtering for the Netflix prize"). BPR: Rendle et al. 2009.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hogwild.data.parallel import map_pieces
from hogwild.data.ratings.container import Ratings, lists_of
from hogwild.data.rows.container import frozen_array
from hogwild.errors import UsageError
from hogwild.problems.completion.options import SMOOTHING
from hogwild.problems.completion.ranking import Lists, ranking_metrics
from hogwild.problems.completion.sums import Shares, Solution, rows_of, summed

LOSSES = ("squared-error", "log", "bpr")
CHUNK = 1 << 15  # ratings at a time; affects the last digits of a sum
TRIES = 8  # draws of a negative the user has rated; after that it is left out, as in training
DRAWN = 1 << 16  # negatives drawn from one random stream; determines which ones they are


def scores_of(solution: Solution, mean: float, users: np.ndarray, items: np.ndarray) -> np.ndarray:
    """Scores of pairs (m,) int32, (m,) float64; an index of -1 (unknown) has neither factors nor a bias."""
    from hogwild.problems.completion.scores_kernel import fill_scores

    scores = np.empty(len(users))
    parameters = (frozen_array(part, np.float32) for part in solution)
    fill_scores(*parameters, float(mean), frozen_array(users, np.int32), frozen_array(items, np.int32), scores)
    return scores


def draw_negatives(users: np.ndarray, count: int, items: int | np.ndarray, seen: Lists, seed: int = 0) -> np.ndarray:
    """Draw ``count`` random items that each of ``users`` (n,) int32 has not seen; -1 if a few tries find none.

    They come uniformly from ``items``, a number or an array of them, the same on any number of threads; ``seen`` is a
    result of :meth:`Ratings.user_lists`. Returns (n, count) int32.
    """
    from hogwild.data.ratings.lists_kernel import find_pairs

    candidates = np.arange(items, dtype=np.int32) if isinstance(items, int) else items.astype(np.int32)
    drawn = np.empty((len(users), count), np.int32)

    def draw(first: int, last: int) -> None:
        random = np.random.default_rng([seed, first])
        owner = np.repeat(users[first:last], count)
        some = np.empty(len(owner), np.int32)
        rejected = np.arange(len(owner))
        for _ in range(TRIES + 1):
            some[rejected] = candidates[random.integers(0, len(candidates), len(rejected), dtype=np.int32)]
            known = np.empty(len(rejected), bool)
            find_pairs(*seen, owner[rejected], some[rejected], known)
            rejected = rejected[known]
        some[rejected] = -1
        drawn[first:last] = some.reshape(-1, count)

    for _ in map_pieces(len(users), max(1, DRAWN // count), draw):
        pass
    return drawn


class RatingObjective:
    """The objective of a factorisation on given ratings, for any parameters.

    Parameters
    ----------
    ratings : Ratings
        The ratings are streamed, so they may be larger than memory.
    loss : {"squared-error", "log", "bpr"}
        Half the squared error; or, with ratings as choices whatever their value: ``log(1 + exp(-m_ui))`` plus ``log(1 +
        exp(m_uj))`` for each sampled j, or the sum of ``log(1 + exp(m_uj - m_ui))`` over the sampled j.
    l2, penalty : (float, float), {"per-rating", "smoothed"}
        ``l2/2 (|p_u|^2 + |q_i|^2 + b_u^2 + b_i^2)``, in the mean over the ratings, with the l2 of factors and that of
        biases; smoothed, as if every user and item had ``SMOOTHING`` ratings more. With sampled items, each is a pair
        with the user that counts as the rating does.
    mean : float
        Constant part of every score.
    negatives : int
        Sampled items for each rating.
    seen : (begin, items), optional
        Items that negatives avoid, as :meth:`Ratings.user_lists`; by default those in the ratings.
    shares : (users, items), optional
        Of rows in sums, :attr:`hogwild.Ratings.shares`; items without an own share are not drawn.
    """

    def __init__(
        self,
        ratings: Ratings,
        loss: str,
        *,
        l2: tuple[float, float] = (0.0, 0.0),
        penalty: str = "per-rating",
        mean: float = 0.0,
        negatives: int = 1,
        seen: Lists | None = None,
        shares: Shares | None = None,
    ) -> None:
        self.ratings = ratings
        self.shares = shares
        self.loss = loss
        self.mean = float(mean)
        self.l2 = l2
        self.drawn: np.ndarray | None = None  # (n, negatives)
        if loss != "squared-error":
            lists = ratings.user_lists() if seen is None else seen
            offered = ratings.shape[1] if shares is None else np.flatnonzero(shares[1].data[shares[1].indptr[:-1]])
            self.drawn = draw_negatives(ratings.users, negatives, offered, lists)
        self.degrees: tuple[np.ndarray, np.ndarray] | None = None
        if any(l2):
            visits = ratings.degrees()
            if self.drawn is not None:
                pairs = self.drawn >= 0
                by_user = np.bincount(ratings.users, np.count_nonzero(pairs, axis=1), ratings.shape[0])
                visits = visits[0] + by_user, visits[1] + np.bincount(self.drawn[pairs], minlength=ratings.shape[1])
            self.degrees = rows_of(shares, visits, weighted=True)
            if penalty == "smoothed":
                users, items = (np.maximum(degrees, 1) for degrees in rows_of(shares, visits))
                self.degrees = self.degrees[0] * (1 + SMOOTHING / users), self.degrees[1] * (1 + SMOOTHING / items)

    def evaluate(self, rows: Solution, sums: Solution | None = None) -> dict[str, float | None]:
        """Return the objective and its parts.

        Parameters
        ----------
        rows : arrays of shapes (users, k), (items, k), (users,), (items,)
            Factors and biases; with ``shares`` of rows.
        sums : such arrays, optional
            Those of users and items, if they are known: with ``shares``, sums of rows.

        Returns
        -------
        dict
            ``objective``; ``loss``, without the penalty; and for squared-error ``rmse`` and ``mae``. Parameters that
            are not finite give numbers that are not finite.
        """
        solution = summed(rows, self.shares) if sums is None else sums
        n = len(self.ratings)

        def part(first: int, last: int) -> np.ndarray:
            with np.errstate(all="ignore"):
                return self._sums(solution, first, last)

        with np.errstate(all="ignore"):
            total = sum(map_pieces(n, CHUNK, part), np.zeros(2))
            first, second = (float(value) for value in total / n) if n else (math.nan, math.nan)
            loss = first / 2 if self.loss == "squared-error" else first
            result: dict[str, float | None] = {"objective": loss + self.penalty_of(rows), "loss": loss}
            if self.loss == "squared-error":
                result |= {"rmse": math.sqrt(first), "mae": second}
        return result

    def _sums(self, solution: Solution, first: int, last: int) -> np.ndarray:
        """Sums over a chunk: squared and absolute errors, or losses and 0."""
        users, items = self.ratings.users[first:last], self.ratings.items[first:last]
        m = scores_of(solution, self.mean, users, items)
        if self.drawn is None:
            error = m - self.ratings.values[first:last]
            return np.array([np.einsum("i,i->", error, error), np.abs(error).sum()])
        total = np.logaddexp(0.0, -m).sum() if self.loss == "log" else 0.0
        for drawn in self.drawn[first:last].T:
            other = scores_of(solution, self.mean, users, drawn)
            if self.loss == "bpr":
                other -= m
            other[drawn < 0] = -np.inf  # whose loss is zero
            total += np.logaddexp(0.0, other).sum()
        return np.array([total, 0.0])

    def penalty_of(self, rows: Solution) -> float:
        """The penalty of the parameters, in float64."""
        total = 0.0
        for factors, bias, degrees in zip(rows[:2], rows[2:], self.degrees or ()):
            visits = degrees / max(len(self.ratings), 1)  # a user with d ratings is in d of the n terms
            for l2, part in zip(self.l2, (factors, bias[:, np.newaxis])):
                total += l2 * float(np.einsum("ij,ij->i", part, part, dtype=np.float64) @ visits)
        return total / 2


class RatingEvaluator:
    """The objective on the training ratings and the metrics on test ratings, if any, with the names in rows of a run.

    ``test`` has the users and items of ``train``. Test negatives are in neither. ``facts`` are mean, negatives and
    shares, and ``penalty`` is l2 and penalty, as in :class:`RatingObjective`.
    """

    def __init__(
        self, train: Ratings, test: Ratings | None, loss: str, penalty: dict[str, Any] | None = None, **facts: Any
    ) -> None:
        if test is not None and test.shape != train.shape:
            raise UsageError(f"test ratings of {test.shape} users and items, training ratings of {train.shape}")
        implicit = loss != "squared-error"
        self.seen = train.user_lists() if implicit else None
        self.train = RatingObjective(train, loss, seen=self.seen, **(penalty or {}), **facts)
        self.test, self.tested = None, None
        if test is not None:
            both = None
            if implicit:
                self.tested = test.user_lists()
                both = lists_of(np.append(train.users, test.users), np.append(train.items, test.items), train.shape)
            self.test = RatingObjective(test, loss, seen=both, **facts)

    def __call__(self, solution: Solution) -> dict[str, float | None]:
        """Return ``objective``, ``train_loss``, ``test_loss`` and, for both sets, ``rmse`` and ``mae``.

        Sampled losses have instead the metrics of :func:`ranking_metrics`, such as ``test_ndcg_at_10``, over at most
        2,000 evenly spaced users of the test ratings; items that they rated in training are no candidates.
        """
        sums = summed(solution, self.train.shares)
        values = self.train.evaluate(solution, sums)
        named = {name if name == "objective" else f"train_{name}": value for name, value in values.items()}
        if self.test is None:
            return named
        tested = self.test.evaluate(solution, sums)
        named |= {f"test_{name}": value for name, value in tested.items() if name != "objective"}
        if self.seen is not None and self.tested is not None:
            ranked = ranking_metrics(sums, self.tested, self.seen)
            named |= {f"test_{name}": value for name, value in ranked.items()}
        return named
