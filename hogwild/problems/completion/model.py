"""A trained factorisation, which predicts ratings, recommends items to users and finds similar items.

Like the linear model it is immutable, consists of plain arrays and facts that do not depend on how it was trained, and
opens without torch or numba. It holds the names of users and items, so all its methods take and return names. The score
of user u and item i is ``mean + b_u + b_i + p_u . q_i``: for ``squared-error`` the predicted rating, for the sampled
losses a number that is only good for ranking.

Predictions are made in float64 and take about 130 ns a pair and core at rank 32. Recommending is a product with all
items and a selection in float32, about 0.1 ms a user and core for 20,000 items. All cores share the users.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.data.ids import numbers_of_names
from hogwild.data.parallel import map_pieces
from hogwild.data.ratings.container import Ids, Ratings, lists_of
from hogwild.errors import HogwildWarning, InputError, UsageError, expected_one_of
from hogwild.methods import PENALTIES
from hogwild.model_file import outcome, usable
from hogwild.problems.completion.folding import PER_ROW, fold_in
from hogwild.problems.completion.objective import CHUNK, LOSSES, scores_of
from hogwild.problems.completion.ranking import AT, best_of_users, ranking_metrics
from hogwild.problems.trained import TrainedModel, origin_in
from hogwild.serving.scorer import SIDES, PairScorer

SHAPES = {"user_factors": 2, "item_factors": 2, "user_bias": 1, "item_bias": 1}  # arrays of a file, all float32


@dataclass(frozen=True, eq=False)
class CompletionModel(TrainedModel):
    """Parameters of a factorisation and their meaning.

    Attributes
    ----------
    user_factors, item_factors : arrays of float32, shapes (users, k) and (items, k)
    user_bias, item_bias : arrays of float32, shapes (users,) and (items,)
    mean : float
        Constant part of every score: the mean of the training ratings, or 0.
    loss : {"squared-error", "log", "bpr"}
    penalty : {"per-rating", "smoothed", "per-row"}
        The last is of models that earlier versions trained.
    user_ids, item_ids : Ids, optional
        Names; if None, users and items are named by their numbers, from 0.
    ridge : (float, float)
        l2 penalty on a user's factors and bias: for each of their ratings, or in all if the penalty is per row.
    config, fingerprint, history, version :
        As in :class:`hogwild.problems.trained.TrainedModel`.

    Raises
    ------
    InputError
        If the arrays do not fit together, or are not finite.

    See Also
    --------
    HogwildFactorizer : the same as a scikit-learn transformer.

    Examples
    --------
    >>> import hogwild
    >>> ratings = hogwild.open_ratings("synthetic:ratings?users=50&items=20&ratings=400", cache=None)
    >>> model = hogwild.train(ratings, problem="completion", rank=4, workers=1).finish()
    >>> items, scores = model.recommend([0, 1], n=3, seen=ratings)
    >>> scores.shape
    (2, 3)
    """

    user_factors: np.ndarray
    item_factors: np.ndarray
    user_bias: np.ndarray
    item_bias: np.ndarray
    mean: float = 0.0
    loss: str = "squared-error"
    penalty: str = "per-rating"
    user_ids: Ids | None = field(default=None, repr=False)
    item_ids: Ids | None = field(default=None, repr=False)
    ridge: tuple[float, float] = (0.05, 0.05)

    def __post_init__(self) -> None:
        for name, dimensions in SHAPES.items():
            array = np.array(getattr(self, name), dtype=np.float32, order="C")  # a copy: the shared array may change
            if array.ndim != dimensions:
                raise InputError(f"{name} of shape {array.shape}: expected {dimensions} dimensions")
            if not np.isfinite(array).all():
                raise InputError(f"{name}: entry {int(np.argmin(np.isfinite(array)))} is not finite")
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        if self.user_factors.shape[1] != self.item_factors.shape[1]:
            ranks = self.user_factors.shape[1], self.item_factors.shape[1]
            raise InputError(f"users have {ranks[0]} factors and items {ranks[1]}: expected as many")
        for side, size, ids in zip(SIDES, self.shape, (self.user_ids, self.item_ids), strict=True):
            if getattr(self, f"{side}_bias").shape != (size,):
                raise InputError(f"{side}_bias of shape {getattr(self, f'{side}_bias').shape} for {size} {side}s")
            if ids is not None and len(ids) != size:
                raise InputError(f"{len(ids)} ids for {size} {side}s")
        if not math.isfinite(self.mean):
            raise InputError(f"mean {self.mean}: expected a finite number")
        for option, value, choices in (("loss", self.loss, LOSSES), ("penalty", self.penalty, (*PENALTIES, PER_ROW))):
            if value not in choices:
                raise InputError(f"{option} {value!r}: {expected_one_of(choices, value)}")

    def __repr__(self) -> str:
        users, items = self.shape
        return (
            f"<CompletionModel: {self.loss}, {users:,} users, {items:,} items, rank {self.rank}{outcome(self.history)}>"
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of users and of items."""
        return len(self.user_factors), len(self.item_factors)

    @property
    def rank(self) -> int:
        """Number of factors, k."""
        return int(self.user_factors.shape[1])

    @property
    def _solution(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        return self.user_factors, self.item_factors, self.user_bias, self.item_bias

    # -- names and numbers --------------------------------------------------------------------------------------------

    def user_numbers(self, names: Any) -> np.ndarray:
        """Zero-based numbers of users, int32 in the shape of ``names``; -1 if unknown."""
        return numbers_of_names(self.user_ids, names, self.shape[0])

    def item_numbers(self, names: Any) -> np.ndarray:
        """Zero-based numbers of items, int32 in the shape of ``names``; -1 if unknown."""
        return numbers_of_names(self.item_ids, names, self.shape[1])

    def place(self, ratings: Ratings) -> Ratings:
        """Convert ``ratings`` to the numbering of the model, matched by name; unknown users and items become -1."""
        both = zip(self.shape, (self.user_ids, self.item_ids))
        users, items = (Ids(np.arange(size), check=False) if ids is None else ids for size, ids in both)
        return ratings.named_as(users, items)

    def with_users(self, ratings: Ratings, users: Any = None) -> CompletionModel:
        """The model with factors of users whom it does not know, from what they rated, matched by name.

        The items' factors stay (see ``folding.py``), and so does the model itself if there is nobody new.

        Parameters
        ----------
        ratings : Ratings
        users : array of names, optional
            Only these users; by default all in ``ratings``.
        """
        ids = Ids(np.arange(ratings.shape[0]), check=False) if ratings.user_ids is None else ratings.user_ids
        wanted = np.full(ratings.shape[0] + 1, users is None)
        if users is not None:
            wanted[ids.lookup(users)] = True
        rows, factors, biases = fold_in(self, ratings, wanted[:-1] & (self.user_numbers(ids.names()) < 0))
        if not len(rows):
            return self
        known = np.arange(self.shape[0]) if self.user_ids is None else self.user_ids.names()
        return replace(
            self,
            user_factors=np.vstack((self.user_factors, factors)),
            user_bias=np.append(self.user_bias, biases),
            user_ids=Ids(np.append(known, ids.names(rows)), check=False),
        )

    # -- predictions --------------------------------------------------------------------------------------------------

    def predict(self, users: Any, items: Any) -> np.ndarray:
        """Scores of pairs, float64; for ``squared-error`` these are the predicted ratings.

        Parameters
        ----------
        users, items : names, or arrays of names that broadcast against each other
            For an unknown user or item, the score is the mean plus the other one's bias. A warning counts such pairs.

        Returns
        -------
        array of float64
            Scores in the shape of the pairs; a number for a single pair.
        """
        sides = self.user_numbers(users), self.item_numbers(items)
        try:
            pairs = np.broadcast_arrays(*sides)
        except ValueError:
            shapes = f"users of shape {sides[0].shape} and items of shape {sides[1].shape}"
            raise UsageError(f"{shapes} do not make pairs") from None
        flat = [np.ascontiguousarray(side).ravel() for side in pairs]
        scores = self.scores(flat[0], flat[1])
        self.warn_unknown(flat[0], flat[1])
        return scores.reshape(pairs[0].shape)[()]

    def predict_one(self, row: Any) -> float:
        """Score of one pair, ``{"user": name, "item": name}``, in some tens of microseconds.

        What is unknown counts nothing, without a warning; several threads may ask at once.

        Raises
        ------
        InputError
            If either is not there.
        """
        return self._scorer.predict_one(row)

    def predict_many(self, rows: Any) -> list[float]:
        """Scores of several pairs as from :meth:`predict_one`; an error names the row."""
        return self._scorer.predict_many(rows)

    @cached_property
    def _scorer(self) -> PairScorer:
        ids, biases = (self.user_ids, self.item_ids), (self.user_bias, self.item_bias)
        return PairScorer(ids, biases, (self.user_factors, self.item_factors), self.mean)

    def scores(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """Scores of pairs of zero-based numbers, (m,) float64; -1 is unknown."""

        def part(first: int, last: int) -> np.ndarray:
            return scores_of(self._solution, self.mean, users[first:last], items[first:last])

        return np.concatenate([np.empty(0), *map_pieces(len(users), CHUNK, part)])

    def warn_unknown(self, users: np.ndarray, items: np.ndarray, stacklevel: int = 3) -> None:
        """Warn of pairs with a number of -1, if there are any; ``stacklevel`` points at the user's call."""
        count = int(np.count_nonzero((users < 0) | (items < 0)))
        if count:
            share = f"{count:,} of {len(users):,} pairs have a user or item that the model does not know"
            warnings.warn(f"{share}: predicted from what is left", HogwildWarning, stacklevel=stacklevel)

    def recommend(self, users: Any, n: int = 10, seen: Ratings | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The ``n`` best items for each of some users.

        Parameters
        ----------
        users : array of names, shape (m,)
            Users whom the model does not know get factors from their ratings in ``seen``, as from :meth:`with_users`;
            those without any get the best items by bias, and a warning counts them.
        n : int
        seen : Ratings, optional
            Items that a user rated there are not recommended. Matched by name.

        Returns
        -------
        (array of names, array of float32), both of shape (m, min(n, items))
            Items, best first, ties in the model's order; and their scores. If fewer items are left, the score is -inf,
            and the name ``-1`` or an empty string.
        """
        numbers = _numbers_of(self.user_numbers, users, n)
        model, lists = self, None
        if seen is not None:
            model = self.with_users(seen, users)
            numbers = np.atleast_1d(model.user_numbers(users))
            lists = model.place(seen).user_lists()
        unknown = int(np.count_nonzero(numbers < 0))
        if unknown:
            mean = "a mean shrunk for few ratings" if self.penalty == "smoothed" else "their mean"
            liked = f"best by {mean}" if self.loss == "squared-error" else "chosen most"
            if not self.item_bias.any():
                liked = "that come first, since without biases none is better"
            share = f"{unknown:,} of {len(numbers):,} users are not known: they get the items {liked}"
            warnings.warn(share, HogwildWarning, stacklevel=2)
        constant = np.append(model.user_bias.astype(np.float64), 0.0)[numbers] + self.mean
        width = min(n, self.shape[1])
        best, scores = best_of_users(numbers, model._solution, lists, width)
        scores += constant[:, np.newaxis]
        return self._item_names(best), scores

    def similar_items(self, items: Any, n: int = 10) -> tuple[np.ndarray, np.ndarray]:
        """The ``n`` items whose factors are nearest in direction (cosine), for each of some items.

        Parameters
        ----------
        items : array of names, shape (m,)
        n : int

        Returns
        -------
        (array of names, array of float32), both of shape (m, min(n, items - 1))
            The item itself is left out; ties come in the model's order. Without factors the cosine is 0.

        Raises
        ------
        InputError
            If the model does not know an item.
        """
        numbers = _numbers_of(self.item_numbers, items, n)
        if (numbers < 0).any():
            name = np.atleast_1d(np.asarray(items, object))[int(np.argmax(numbers < 0))]
            raise InputError(f"item {name}: the model does not know it")
        factors = self.item_factors.astype(np.float64)
        unit = factors / np.maximum(np.linalg.norm(factors, axis=1, keepdims=True), np.finfo(np.float64).tiny)
        every = np.arange(len(unit))
        itself = lists_of(every, every, (len(unit), len(unit)))
        none = np.zeros(len(unit), np.float32)
        best, near = best_of_users(numbers, (unit, unit, none, none), itself, max(0, min(n, len(unit) - 1)))
        return self._item_names(best), near

    def _item_names(self, numbers: np.ndarray) -> np.ndarray:
        if self.item_ids is None:
            return numbers
        names = self.item_ids.names(numbers) if len(self.item_ids) else np.empty(numbers.shape, object)
        missing = numbers < 0
        return np.where(missing, -1 if self.item_ids.whole else "", names) if missing.any() else names

    # -- files --------------------------------------------------------------------------------------------------------

    def to_file(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """``(arrays, header)`` of a model file: the factors, biases and names, and everything else in JSON's types."""
        arrays = {name: getattr(self, name) for name in SHAPES}
        for side, ids in zip(SIDES, (self.user_ids, self.item_ids), strict=True):
            if ids is not None:
                arrays |= ids.arrays(f"{side}_ids.")
        header = {
            "problem": "completion",
            "loss": self.loss,
            "penalty": self.penalty,
            "mean": float(self.mean),
            "users": self.shape[0],
            "items": self.shape[1],
            "rank": self.rank,
            "ridge": list(self.ridge),
            **self.origin(),
        }
        return arrays, header

    @classmethod
    def from_file(cls, arrays: dict[str, np.ndarray], header: dict[str, Any], where: str | Path) -> CompletionModel:
        """Restore the model that :meth:`to_file` converted.

        Raises
        ------
        InputError
            If anything does not fit; one line that begins with ``where``.
        """
        with usable(where):
            parts: dict[str, Any] = {name: arrays[name] for name in SHAPES}
            parts |= {f"{side}_ids": Ids.from_arrays(arrays, f"{side}_ids.") for side in SIDES}
            parts |= {name: str(header[name]) for name in ("loss", "penalty")}
            factors, biases = map(float, header.get("ridge", cls.ridge))  # absent in files of 0.1.0
            model = cls(**parts, mean=float(header["mean"]), ridge=(factors, biases), **origin_in(header))
            expected = int(header["users"]), int(header["items"]), int(header["rank"])
        if (*model.shape, model.rank) != expected or arrays.keys() - model.to_file()[0].keys():
            holds = f"{model.shape[0]} users, {model.shape[1]} items, rank {model.rank}"
            raise InputError(f"{where}: damaged: holds {holds}; its header says {', '.join(map(str, expected))}")
        return model


def _numbers_of(find: Any, names: Any, n: int) -> np.ndarray:
    """Return the numbers of one name or several, each of which is to get ``n`` answers."""
    if n < 1:
        raise UsageError(f"n={n}: expected at least 1")
    numbers = np.atleast_1d(find(names))
    if numbers.ndim != 1:
        raise UsageError(f"names of shape {numbers.shape}: expected one dimension")
    return numbers


def evaluate_completion(model: CompletionModel, ratings: Ratings, seen: Ratings | None = None) -> dict[str, Any]:
    """Metrics of ``model`` on ratings that were not used in training, matched by name.

    Parameters
    ----------
    model : CompletionModel
    ratings : Ratings
    seen : Ratings, optional
        For the sampled losses: training ratings, whose items are not candidates for their users.

    Returns
    -------
    dict
        ``ratings``, ``unknown`` (pairs with a user or item the model does not know) and, for squared-error, ``rmse``
        and ``mae``, unknown pairs included; else, for known ones, ``auc``, ``precision_at_10``, ``recall_at_10``,
        ``ndcg_at_10``, ``coverage_at_10`` (the share of all items that somebody of the ratings gets) and with ``seen``
        ``popular_ndcg_at_10``: the same if everybody gets the items most often chosen there.

    Raises
    ------
    InputError
        If there are no ratings, or all of them are ``seen``.
    UsageError
        For ``seen`` ratings of a model that ranks nothing.
    """
    if seen is not None and model.loss == "squared-error":
        raise UsageError(f"seen needs a model that ranks, of loss log or bpr; got {model.loss}: leave it out")
    if len(ratings) == 0:
        raise InputError("no ratings to evaluate the model on")
    placed = model.place(ratings)
    unknown = int(np.count_nonzero((placed.users < 0) | (placed.items < 0)))
    result: dict[str, Any] = {"ratings": len(ratings), "unknown": unknown}
    if model.loss == "squared-error":
        model.warn_unknown(placed.users, placed.items)
        error = model.scores(placed.users, placed.items) - placed.values
        return result | {"rmse": math.sqrt(float(np.mean(error**2))), "mae": float(np.abs(error).mean())}
    tested, lists = placed.user_lists(), None
    if seen is not None:
        lists = (seen := model.place(seen)).user_lists()
    everyone: dict[str, Any] = {"users": model.shape[0]}
    result |= ranking_metrics(model._solution, tested, lists, **everyone)
    if seen is not None:
        if result["auc"] is None:
            raise InputError("nothing is left to rank: seen holds all of these ratings; give it those trained on")
        users, items = (np.zeros((size, 0), np.float32) for size in model.shape)
        popular = ranking_metrics((users, items, None, seen.degrees()[1]), tested, lists, **everyone)
        result[f"popular_ndcg_at_{AT}"] = popular[f"ndcg_at_{AT}"]
    return result
