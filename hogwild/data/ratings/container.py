"""Ratings: users' ratings of items as three flat arrays, and the names that the user's data have for both sides.

Users and items are numbered 0, 1, ... in ascending order of their names, whatever the order of the file, so the same
data give the same numbering however they were read. The names (``Ids``) go with the ratings, into the store and into
the model; without names, a number is its own name.

A rating takes 12 bytes, 20 with times. A part of the ratings (a split) is a copy. Ratings keep their original order; a
container may hold a user and item rated twice, but readers keep the last of them (``last_of_repeats``).
"""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.data.ids import Ids as Ids
from hogwild.data.rows.container import (
    check_numbers,
    check_range,
    check_whole,
    evenly,
    frozen_array,
    held_out_ids,
)
from hogwild.data.rows.store import Kind, MemoryWriter
from hogwild.errors import InputError, UsageError, expected_one_of

SPLITS = ("row", "user", "time")
SAMPLE = 1 << 20  # ratings that a fingerprint samples


class Ratings:
    """Ratings that users gave to items.

    Parameters
    ----------
    users, items : arrays of int32, shape (n,)
        Zero-based; -1 for one unknown to a model, in ratings to be predicted only.
    values : array of float32, shape (n,)
        Stars, or 1 if it is only known that the user chose the item.
    shape : (int, int)
        Numbers of users and of items, including those without a rating.
    times : array of int64, shape (n,), optional
        Time of each rating, in any unit.
    user_ids, item_ids : Ids, optional
        Names; without them an index is its own name.
    store : path, optional
        Directory the arrays are mapped from, if these are all its ratings.
    check : bool
        Verify shapes and ranges (one pass). Readers that guarantee these pass False.
    features : (matrix or None, matrix or None), optional
        Of users and of items, CSR float32 with a row for each; :meth:`with_features` makes them.

    Raises
    ------
    InputError
        The message names the first rating that breaks a rule.

    See Also
    --------
    open_ratings : reads them.

    Examples
    --------
    >>> import hogwild
    >>> ratings = hogwild.open_ratings("synthetic:ratings?users=50&items=20&ratings=400", cache=None)
    >>> train, test = ratings.split(0.1)
    >>> len(train), len(test)
    (360, 40)
    """

    def __init__(
        self,
        users: Any,
        items: Any,
        values: Any,
        shape: tuple[int, int],
        times: Any = None,
        user_ids: Ids | None = None,
        item_ids: Ids | None = None,
        store: str | Path | None = None,
        check: bool = True,
        features: tuple[Any, Any] | None = None,
    ) -> None:
        if check:
            check_whole("users", users)
            check_whole("items", items)
            check_numbers("values", values)
            check_numbers("times", [] if times is None else times, "iu")
        self.users = frozen_array(users, np.int32)
        self.items = frozen_array(items, np.int32)
        with np.errstate(over="ignore"):  # beyond float32 becomes inf and is reported by the check
            self.values = frozen_array(values, np.float32)
        self.times = None if times is None else frozen_array(times, np.int64)
        self.shape = int(shape[0]), int(shape[1])
        self.user_ids, self.item_ids = user_ids, item_ids
        self.store = None if store is None else Path(store)
        self.held_out: Ratings | None = None  # of a split
        self.features = features
        if check:
            self._check()

    def __len__(self) -> int:
        return len(self.users)

    def __repr__(self) -> str:
        users, items = self.shape
        timed = ", timed" if self.times is not None else ""
        where = f", store={str(self.store)!r}" if self.store else ""
        return f"Ratings({len(self):,} ratings of {users:,} users x {items:,} items{timed}{where})"

    @property
    def nnz(self) -> int:
        """Number of ratings."""
        return len(self)

    def _check(self) -> None:
        n = len(self.users)
        for name, array in (("items", self.items), ("values", self.values), ("times", self.times)):
            if array is not None and array.shape != (n,):
                raise InputError(f"{name} needs shape ({n},), as users have; got {array.shape}")
        for side, indices, size, ids in self.sides():
            if ids is not None and len(ids) != size:
                raise InputError(f"{len(ids)} ids for {size} {side}s")
            check_range(f"{side}s", indices[indices != -1], size)
        finite = np.isfinite(self.values)
        if not finite.all():
            raise InputError(f"values: rating {np.argmin(finite)} is not a finite float32")

    def sides(self) -> list[tuple[str, np.ndarray, int, Ids | None]]:
        """Return the name, the indices, the size and the names of both sides."""
        (users, items), ids = self.shape, (self.user_ids, self.item_ids)
        return [("user", self.users, users, ids[0]), ("item", self.items, items, ids[1])]

    @classmethod
    def from_scipy(cls, matrix: Any) -> Ratings:
        """Make ratings from a scipy sparse matrix with users in its rows; entries stored as zero are ratings of 0.

        Raises
        ------
        InputError
            If it is not real and sparse, or a value is not finite in float32.
        """
        import scipy.sparse

        if not scipy.sparse.issparse(matrix) or matrix.ndim != 2:
            raise InputError(f"ratings: expected a scipy sparse matrix, got {type(matrix).__name__}")
        entries = matrix.tocoo()
        row, col = entries.coords if hasattr(entries, "coords") else (entries.row, entries.col)
        return cls(row, col, entries.data, matrix.shape)

    def select(self, ids: Any) -> Ratings:
        """Return a copy of the ratings ``ids`` (positions, or a mask), in that order, with the same users and items."""
        return self._part(np.asarray(ids))

    def block(self, first: int, last: int) -> Ratings:
        """Return ratings ``first <= i < last`` without copying anything."""
        return self._part(slice(first, last))

    def _part(self, which: Any) -> Ratings:
        times = None if self.times is None else self.times[which]
        flat = self.users[which], self.items[which], self.values[which]
        return Ratings(*flat, self.shape, times, self.user_ids, self.item_ids, check=False, features=self.features)

    def named_as(self, users: Ids | None, items: Ids | None) -> Ratings:
        """Return these ratings in the numbering of other names, -1 for names not among them; None leaves a side."""
        sides = list[tuple[np.ndarray, int, Ids | None]]()
        for (_, indices, size, ids), wanted in zip(self.sides(), (users, items)):
            if wanted is not None and ids != wanted:
                numbers = wanted.lookup(np.arange(size) if ids is None else ids.names())
                indices, size, ids = np.append(numbers, np.int32(-1))[indices], len(wanted), wanted  # -1 stays -1
            sides.append((indices, size, ids))
        (user_numbers, m, user_ids), (item_numbers, n, item_ids) = sides
        return Ratings(user_numbers, item_numbers, self.values, (m, n), self.times, user_ids, item_ids, check=False)

    def with_features(self, users: Any = None, items: Any = None) -> Ratings:
        """Return these ratings with features of users, items or both, of which a model learns too.

        Parameters
        ----------
        users, items : path, frame or matrix, optional
            A table has an id in its first column and anything in the others: text is a category, or several between
            bars (``Comedy|Drama``), and numbers are cut into ten ranges. Ids without ratings are added to the users or
            items: a model ranks them by their features. A matrix has a row for each user or item of these ratings.

        Raises
        ------
        InputError
            One line that names the table.
        """
        from hogwild.data.ratings.features import read_features

        found = []
        for table, (side, _, size, ids) in zip((users, items), self.sides()):
            matrix, ids = (None, ids) if table is None else read_features(table, ids, size, side)
            found.append((matrix, ids, size if matrix is None else matrix.shape[0]))
        (user_features, user_ids, m), (item_features, item_ids, n) = found
        flat = self.users, self.items, self.values, (m, n), self.times, user_ids, item_ids
        return Ratings(*flat, self.store, check=False, features=(user_features, item_features))

    @cached_property
    def shares(self) -> tuple[Any, Any] | None:
        """Shares of rows in the vectors of users and of items: CSR float32, (users, users + features) and likewise;
        None without features.

        With the squares of its shares summing to one, a sum moves as far in a step as a vector without features does
        (LightFM's shares sum to one: Kula 2015). The first row is one's own; who has no rating has no share in it.
        """
        if self.features is None:
            return None
        import scipy.sparse

        sides = []
        for features, degrees in zip(self.features, self.degrees()):
            shares = scipy.sparse.eye_array(len(degrees), dtype=np.float32, format="csr")
            if features is not None:
                shares = scipy.sparse.hstack([shares, features], "csr")
                shares.sort_indices()
                shares.data /= np.repeat(np.sqrt(shares.multiply(shares).sum(axis=1)), np.diff(shares.indptr))
                shares.data[shares.indptr[:-1]] *= degrees > 0
            sides.append(shares)
        return sides[0], sides[1]

    def split(self, fraction: float, seed: int = 0, by: str = "row") -> tuple[Ratings, Ratings]:
        """Return ``(rest, held_out)``, each in the order of these ratings, with the same users and items.

        Parameters
        ----------
        fraction : float
        seed : int
        by : {"row", "user", "time"}
            Hold out that fraction of all at random; of each user's at random, rounded, leaving at least one a user; or
            the latest, where equal times count as ascending in this order.

        Raises
        ------
        InputError
            If either part would be empty.
        UsageError
            For an unknown ``by``, or by time if there are no times.
        """
        if by not in SPLITS:
            raise UsageError(f"split by {by!r}: {expected_one_of(SPLITS, by)}")
        if by == "time" and self.times is None:
            raise UsageError("split by time: these ratings have no times (a fourth column); split by row or by user")
        n = len(self)
        rest, held = held_out_ids(n, fraction, seed, "ratings")
        if by == "user":
            order = np.argsort(np.random.default_rng(seed).random(n))
            users = (self.users[order] + 1).astype(np.min_scalar_type(self.shape[0]))  # short ones sort in no time
            order = order[np.argsort(users, kind="stable")]
            degree = np.bincount(self.users + 1, minlength=self.shape[0] + 1)  # unknown users take one more place
            some = np.minimum(np.rint(fraction * degree).astype(np.int64), np.maximum(degree - 1, 0))
            place = np.arange(n) - np.repeat(np.cumsum(degree) - degree, degree)  # among those of its user
            chosen = place < np.repeat(some, degree)
            rest, held = np.sort(order[~chosen]), np.sort(order[chosen])
            if not len(held):
                raise InputError(f"cannot hold out {fraction:g} of each user's ratings: both parts need at least one")
        elif self.times is not None and by == "time":
            order = np.argsort(self.times, kind="stable")
            rest, held = np.sort(order[: len(rest)]), np.sort(order[len(rest) :])
        parts = self.select(rest), self.select(held)
        parts[0].held_out = parts[1]
        return parts

    def degrees(self) -> tuple[np.ndarray, np.ndarray]:
        """Ratings of each user and each item, int64: ``|E_u-|`` and ``|E_-v|`` (Recht et al. 2011, section 2.4)."""
        return count(self.users, self.shape[0]), count(self.items, self.shape[1])

    def user_lists(self) -> tuple[np.ndarray, np.ndarray]:
        """Return ``(begin, items)``: user ``u`` rated ``items[begin[u]:begin[u + 1]]``, ascending, each once.

        ``begin`` is int64, (users + 1,); ``items`` int32. Both are read-only.
        """
        return lists_of(self.users, self.items, self.shape)

    def sample_arrays(self) -> list[np.ndarray]:
        """Return arrays for a fingerprint: users, items, values and times of about a million evenly spaced ratings, and
        all features.
        """
        picked = evenly(len(self), SAMPLE)
        arrays = (self.users, self.items, self.values, self.times)
        features = [array for side in self.features or () if side is not None for array in (side.indices, side.data)]
        return [array[picked] for array in arrays if array is not None] + features


def count(numbers: np.ndarray, size: int) -> np.ndarray:
    """Number of times each of ``size`` numbers occurs in ``numbers`` int32, (size,) int64; -1 is left out."""
    return np.bincount(numbers + 1, minlength=size + 1)[1:]


def lists_of(users: np.ndarray, items: np.ndarray, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return :meth:`Ratings.user_lists` of pairs, (n,) int32 each; pairs with an unknown one (-1) are left out."""
    import scipy.sparse

    placed = (users >= 0) & (items >= 0)
    pairs = users[placed], items[placed]
    matrix = scipy.sparse.coo_array((np.ones(len(pairs[0]), bool), pairs), shape).tocsc().tocsr()  # counting sorts
    return frozen_array(matrix.indptr, np.int64), frozen_array(matrix.indices, np.int32)


def last_of_repeats(ratings: Ratings) -> tuple[Ratings, int]:
    """Return the ratings, keeping the last of each user and item, and how many were removed."""
    keys = ratings.users.astype(np.int64) * max(ratings.shape[1], 1) + ratings.items
    ordered = np.sort(keys)
    repeats = int(np.count_nonzero(ordered[1:] == ordered[:-1]))
    if not repeats:
        return ratings, 0
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    last = np.append(keys[1:] != keys[:-1], True)
    return ratings.select(np.sort(order[last])), repeats


def rating_statistics(ratings: Ratings) -> dict[str, float]:
    """The paper's hypergraph statistics of a factorisation (Recht et al. 2011, eq. 2.6), and densities.

    A rating touches two nodes, a user and an item. It meets every rating of either, itself included:
    ``rho = max (d_u + d_i - 1) / n``, which is exact if no user rated an item twice.

    Returns
    -------
    dict
        ``omega`` (2), ``delta``, ``rho`` and ``density`` (share of the matrix that is known).
    """
    n, (by_user, by_item) = max(len(ratings), 1), ratings.degrees()
    meets = by_user[ratings.users] + by_item[ratings.items]
    return {
        "omega": 2.0,
        "delta": max(int(by_user.max(initial=0)), int(by_item.max(initial=0))) / n,
        "rho": (int(meets.max(initial=1)) - 1) / n,
        "density": len(ratings) / max(math.prod(ratings.shape), 1),
    }


# -- a store of them --------------------------------------------------------------------------------------------------


def ratings_of(meta: dict[str, Any], arrays: dict[str, np.ndarray], path: str | None) -> Ratings:
    """Return the ratings in a store's arrays."""
    ids = [Ids.from_arrays(arrays, f"{side}_") for side in ("user", "item")]
    flat = arrays["users"], arrays["indices"], arrays["values"], (meta["users"], meta["items"]), arrays.get("times")
    ratings = Ratings(*flat, ids[0], ids[1], path, check=False)
    for side, indices, size, names in ratings.sides():
        check_range(f"{side}s", indices, size)
        if names is not None and len(names) != size:
            raise InputError(f"{len(names)} names for {size} {side}s")
    return ratings


def put_ratings(ratings: Ratings, writer: MemoryWriter) -> dict[str, Any]:
    """Write ``ratings``; return the facts that go with them."""
    for side, indices, _, ids in ratings.sides():
        if len(indices) and indices.min() < 0:
            raise InputError(f"ratings of unknown {side}s cannot be kept: drop them first")
        writer.put(**({} if ids is None else ids.arrays(f"{side}_")))
    writer.put(users=ratings.users, indices=ratings.items, values=ratings.values, times=ratings.times)
    n, (users, items) = len(ratings), ratings.shape
    return {"users": users, "items": items, "rows": n, "width": items, "nnz": n}


_ARRAYS: dict[str, tuple[str, str | None]] = {
    "users": ("<i4", "rows"),
    "indices": ("<i4", "rows"),
    "values": ("<f4", "rows"),
    "times": ("<i8", "rows"),
}
_NAMES: dict[str, tuple[str, str | None]] = {"numbers": ("<i8", None), "text": ("|u1", None), "ends": ("<i8", None)}
_ARRAYS |= {f"{side}_{name}": of for side in ("user", "item") for name, of in _NAMES.items()}
#: ``indices.npy`` holds the item of each rating; names are numbers, or text with the end of each.
RATINGS = Kind("ratings", _ARRAYS, ratings_of, put_ratings)
