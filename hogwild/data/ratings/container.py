"""Ratings: users' ratings of items as three flat arrays, and the names that the user's data have for both sides.

Users and items are numbered 0, 1, ... in ascending order of their names, whatever the order of the file, so the same
data give the same numbering however they were read. The names (``Ids``) go with the ratings, into the store and into
the model; without names, a number is its own name.

A rating takes 12 bytes, 20 with times. A part of the ratings (a split) is a copy. Ratings keep their original order; a
container may hold a user and item rated twice, but readers keep the last of them (``last_of_repeats``).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hogwild.data.ids import Ids as Ids
from hogwild.data.parallel import pieces
from hogwild.data.rows.container import INDEX_LIMIT, PIECE, check_numbers, check_whole, evenly, frozen_array, readonly
from hogwild.errors import InputError, UsageError, expected_one_of

if TYPE_CHECKING:
    import scipy.sparse

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
        if check:
            self._check()

    def __len__(self) -> int:
        return len(self.users)

    def __repr__(self) -> str:
        timed = ", timed" if self.times is not None else ""
        where = f", store={str(self.store)!r}" if self.store else ""
        return f"Ratings({describe(self)}{timed}{where})"

    @property
    def nnz(self) -> int:
        """Number of ratings."""
        return len(self)

    def _check(self) -> None:
        n = len(self.users)
        named = {"users": self.users, "items": self.items, "values": self.values, "times": self.times}
        for name, array in named.items():
            if array is not None and array.shape != (n,):
                raise InputError(f"{name}: expected one for each of {n} users, got an array of shape {array.shape}")
        sides = zip(
            ("users", "items"), (self.users, self.items), self.shape, (self.user_ids, self.item_ids), strict=True
        )
        for side, indices, size, ids in sides:
            if not 0 <= size <= INDEX_LIMIT:
                raise InputError(f"{size} {side}: expected 0 to {INDEX_LIMIT}")
            if ids is not None and len(ids) != size:
                raise InputError(f"{len(ids)} ids for {size} {side}")
            if n and (indices.min() < -1 or indices.max() >= size):
                run = f"{indices.min()} to {indices.max()}"
                raise InputError(f"{side} run from {run}, expected 0 to {size - 1} (-1: unknown)")
        for first, last in pieces(len(self), PIECE):
            finite = np.isfinite(self.values[first:last])
            if not finite.all():
                raise InputError(f"values: rating {first + int(np.argmin(finite))} is not a finite float32")

    @classmethod
    def from_scipy(cls, matrix: Any) -> Ratings:
        """Make ratings from a scipy sparse matrix with users in its rows; entries stored as zero are ratings of 0.

        Raises
        ------
        InputError
            If it is not real and sparse, or a value is not finite in float32.
        """
        import scipy.sparse

        if not scipy.sparse.issparse(matrix) or matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
            kind = f"{type(matrix).__name__} of dtype {getattr(matrix, 'dtype', None)}"
            raise InputError(f"ratings: expected a scipy sparse matrix of real numbers, got {kind}")
        entries = matrix.tocoo()
        row, col = entries.coords if hasattr(entries, "coords") else (entries.row, entries.col)
        with np.errstate(over="ignore"):
            return cls(row, col, entries.data.astype(np.float32), matrix.shape)

    def to_scipy(self) -> scipy.sparse.coo_array:
        """Return a COO float32 array, (users, items), that shares memory."""
        import scipy.sparse

        if len(self) and min(self.users.min(), self.items.min()) < 0:
            raise UsageError("ratings of unknown users or items have no place in a matrix: drop them first")
        return scipy.sparse.coo_array((self.values, (self.users, self.items)), shape=self.shape)

    def select(self, ids: Any) -> Ratings:
        """Return a copy of the ratings ``ids`` (positions, or a mask), in that order, with the same users and items."""
        return self._part(np.asarray(ids))

    def block(self, first: int, last: int) -> Ratings:
        """Return ratings ``first <= i < last`` without copying anything."""
        return self._part(slice(first, last))

    def _part(self, which: Any) -> Ratings:
        times = None if self.times is None else self.times[which]
        flat = self.users[which], self.items[which], self.values[which]
        return Ratings(*flat, self.shape, times, self.user_ids, self.item_ids, check=False)

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
        if not 0 < fraction < 1:
            raise InputError(f"cannot hold out {fraction}: expected a fraction between 0 and 1")
        mask = np.zeros(len(self), dtype=bool)
        held = round(fraction * len(self))
        if by == "user":
            order = np.lexsort((np.random.default_rng(seed).random(len(self)), self.users))
            degree = np.bincount(self.users + 1, minlength=self.shape[0] + 1)  # unknown users take one more place
            some = np.minimum(np.rint(fraction * degree).astype(np.int64), np.maximum(degree - 1, 0))
            place = np.arange(len(self)) - np.repeat(np.cumsum(degree) - degree, degree)  # among those of its user
            mask[order] = place < np.repeat(some, degree)
        elif self.times is None or by == "row":
            mask[np.random.default_rng(seed).permutation(len(self))[:held]] = True
        elif held:
            mask[np.argsort(self.times, kind="stable")[-held:]] = True
        if not 0 < np.count_nonzero(mask) < len(self):
            raise InputError(f"cannot hold out {fraction:g} of {len(self)} ratings: both parts need at least one")
        rest, held_out = self.select(np.flatnonzero(~mask)), self.select(np.flatnonzero(mask))
        rest.held_out = held_out
        return rest, held_out

    def degrees(self) -> tuple[np.ndarray, np.ndarray]:
        """Ratings of each user and each item, int64: ``|E_u-|`` and ``|E_-v|`` (Recht et al. 2011, section 2.4)."""
        return count(self.users, self.shape[0]), count(self.items, self.shape[1])

    def user_lists(self) -> tuple[np.ndarray, np.ndarray]:
        """Return ``(begin, items)``: user ``u`` rated ``items[begin[u]:begin[u + 1]]``, ascending, each once.

        ``begin`` is int64, (users + 1,); ``items`` int32. Both are read-only.
        """
        begin, items = lists_of(self.users, self.items, self.shape)
        return readonly(begin), readonly(items)

    def sample_arrays(self) -> list[np.ndarray]:
        """Return arrays for a fingerprint: users, items, values and times of about a million evenly spaced ratings."""
        which: Any = slice(None) if len(self) <= SAMPLE else evenly(len(self), SAMPLE)
        arrays = (self.users, self.items, self.values, self.times)
        return [np.ascontiguousarray(array[which]) for array in arrays if array is not None]


def count(numbers: np.ndarray, size: int) -> np.ndarray:
    """Number of times each of ``size`` numbers occurs in ``numbers`` int32, (size,) int64; -1 is left out."""
    from hogwild.data.ratings.lists_kernel import count_numbers

    total = np.zeros(size + 1, dtype=np.int64)  # the last place counts -1
    count_numbers(numbers, total)
    return total[:size]


def lists_of(users: np.ndarray, items: np.ndarray, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return :meth:`Ratings.user_lists` of pairs, (n,) int32 each; pairs with an unknown one (-1) are left out."""
    from hogwild.data.ratings.lists_kernel import sort_pairs

    placed = (users >= 0) & (items >= 0)
    if not placed.all():
        users, items = frozen_array(users[placed], np.int32), frozen_array(items[placed], np.int32)
    places = []
    for numbers, size in zip((users, items), shape, strict=True):
        degrees = count(numbers, size)
        places.append(np.cumsum(degrees) - degrees)
    begin, sorted_items = np.empty(shape[0] + 1, np.int64), np.empty(len(users), np.int32)
    length = sort_pairs(users, items, *places, np.empty((len(users), 2), np.int32), sorted_items, begin)
    return begin, sorted_items[:length]


def describe(ratings: Ratings) -> str:
    """Return a text such as ``1,000,209 ratings of 6,040 users x 3,706 items``."""
    users, items = ratings.shape
    return f"{len(ratings):,} ratings of {users:,} users x {items:,} items"


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
    n, (users, items) = len(ratings), ratings.shape
    by_user, by_item = ratings.degrees()
    meets = 0
    for first, last in pieces(n, PIECE):
        both = by_user[ratings.users[first:last]] + by_item[ratings.items[first:last]]
        meets = max(meets, int(both.max()) - 1)
    busiest = max(int(degree.max(initial=0)) for degree in (by_user, by_item))
    return {
        "omega": 2.0,
        "delta": busiest / max(n, 1),
        "rho": meets / max(n, 1),
        "density": n / max(users * items, 1),
    }
