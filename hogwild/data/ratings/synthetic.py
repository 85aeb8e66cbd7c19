"""Synthetic ratings named like files: ``synthetic:ratings?users=5000&seed=1``, the same bits on every machine.

A planted low-rank model with biases gives every pair a rating; which pairs are rated is drawn. Popularity falls as
``1 / (rank + shift)^zipf`` on both sides, and ranks are assigned to numbers at random. A user's number
of ratings is proportional to that user's popularity. Items are drawn by popularity, without repetition. Ratings are
stored user by user.

Only operations that IEEE 754 rounds exactly are used, as in ``data/rows/synthetic.py``, and there are no tables of
factors: they are hashed afresh for every rating (``generate_kernel.py``), about 2 ns a factor, so that ten million
users and items cost no memory.
"""

from __future__ import annotations

import math
from itertools import pairwise
from types import SimpleNamespace

import numpy as np

from hogwild.data import synthetic as common
from hogwild.data.cache import Pieces, Recipe
from hogwild.data.parallel import BytesRead, map_cuts
from hogwild.data.ratings.container import RATINGS, Ratings
from hogwild.errors import InputError

GENERATOR = 1  # version of the bits below; part of a cache entry's key
CHUNK = 1 << 20  # ratings generated at a time
# on five stars: mean; standard deviations of each bias and of p_u . q_i
MEAN = 3.6
BIAS = 0.35
PRODUCT = 0.6
STREAMS = ("draws", "user_factors", "item_factors", "user_bias", "item_bias", "noise", "users", "items", "rounding")


def rating_recipe(name: str, progress: BytesRead | None = None) -> Recipe:
    """Return the recipe of the ratings called ``name``.

    Raises
    ------
    InputError
        If the name is wrong.
    """
    dials = common.parse(name, "ratings")
    if 2 * dials.ratings > dials.users * dials.items:
        pairs = f"{dials.users:,} x {dials.items:,}"
        raise InputError(f"{name}: more than half of the {pairs} pairs would be rated: ask for fewer ratings")

    def pieces() -> Pieces:
        source = _Source(dials)
        begin = np.concatenate((np.zeros(1, np.int64), np.cumsum(source.counts)))
        total = int(begin[-1])
        out = np.empty(total, np.int32), np.empty(total, np.int32), np.empty(total, np.float32)
        cuts = [0]
        while cuts[-1] < dials.users:
            cuts.append(max(cuts[-1] + 1, int(np.searchsorted(begin, begin[cuts[-1]] + CHUNK, side="right")) - 1))
        for last in map_cuts(list(pairwise(cuts)), lambda first, last: source.draw(first, last, begin, out)):
            if progress is not None:
                progress(int(begin[last]), total)
        yield Ratings(*out, (dials.users, dials.items), check=False)
        return {}

    return common.recipe_of(dials, dials.ratings, GENERATOR, pieces, RATINGS)


class _Source:
    """The tables of one data set; ``draw`` gives the ratings of any range of users."""

    def __init__(self, spec: SimpleNamespace) -> None:
        self.spec = spec
        self.keys = common.stream_keys(spec.seed, {name: number for number, name in enumerate(STREAMS, 101)})
        table = common.cumulative(common.popularity(spec.items, spec.zipf, spec.shift))
        self.tables = (*table, common.deal(self.keys["items"], spec.items))
        share = common.popularity(spec.users, spec.user_zipf, spec.user_shift)
        share /= np.cumsum(share)[-1]
        share = share[common.deal(self.keys["users"], spec.users)]
        rounding = common.uniform(common.random_bits(self.keys["rounding"], 0, spec.users))
        self.counts = _apportion(spec.ratings, share, rounding, spec.items)

    def draw(self, first: int, last: int, begin: np.ndarray, out: tuple[np.ndarray, np.ndarray, np.ndarray]) -> int:
        """Write the ratings of users ``first <= u < last`` to their places in ``out``; return ``last``."""
        from hogwild.data.generate_kernel import REAL, draw_ratings

        spec, most = self.spec, int(self.counts[first:last].max())
        keys = np.array([self.keys[name] for name in STREAMS[:6]], np.uint64)
        dials = np.array([MEAN, PRODUCT / math.sqrt(spec.rank), BIAS, spec.noise, spec.scale - 1.0])
        slots = np.zeros(1 << (2 * max(most, 8)).bit_length(), np.int32)
        scratch = (slots, *np.empty((2, most), np.int64), np.empty(0, np.int16), np.empty(spec.rank))
        law = spec.rank, REAL if spec.values == "real" else -1, dials
        with np.errstate(over="ignore"):
            draw_ratings(keys, first, begin[first : last + 1], *self.tables, *law, *scratch, *out)
        return last


def _apportion(total: int, share: np.ndarray, rounding: np.ndarray, most: int) -> np.ndarray:
    """Divide ``total`` by ``share``, (n,) int64: whole numbers up to ``most``, each growing with the total.

    They are ``floor(x share + rounding)`` for the ``x`` at which they sum to the total, found by bisection.
    """

    def counts(x: float) -> np.ndarray:
        return np.minimum(np.floor(x * share + rounding), float(most)).astype(np.int64)

    low, high = 0.0, float(total)
    while int(counts(high).sum()) < total:
        low, high = high, 2.0 * high
    for _ in range(80):
        middle = (low + high) / 2.0
        if int(counts(middle).sum()) >= total:
            high = middle
        else:
            low = middle
        if not low < (low + high) / 2.0 < high:
            break
    shares, lower = counts(high), counts(low)
    extra = int(shares.sum()) - total
    if extra > 0:  # several grew at the same x
        shares[np.flatnonzero(shares > lower)[:extra]] -= 1
    return shares
