"""Synthetic ratings named like files: ``synthetic:ratings?users=5000&seed=1``, the same bits on every machine.

A planted low-rank model with biases gives every pair a rating; which pairs are rated is drawn. Popularity falls as
``1 / (rank + shift)^zipf`` on both sides, and ranks are assigned to numbers at random. Each user has a number of
ratings in proportion to popularity, for that many different items drawn by popularity, so no pair occurs twice; ratings
are stored user by user.

Only operations that IEEE 754 rounds exactly are used, as in ``data/rows/synthetic.py``, and there are no tables of
factors: they are hashed afresh for every rating (``generate_kernel.py``), about 2 ns a factor, so that ten million
users and items cost no memory.
"""

from __future__ import annotations

import itertools
import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hogwild.data import synthetic as common
from hogwild.data.cache import Recipe
from hogwild.data.parallel import BytesRead
from hogwild.data.ratings.container import Ratings
from hogwild.data.ratings.store import RATINGS, put_ratings
from hogwild.data.rows.container import INDEX_LIMIT
from hogwild.data.rows.store import MemoryWriter
from hogwild.data.synthetic import choice, dial
from hogwild.errors import InputError

GENERATOR = 1  # version of the bits below; part of a cache entry's key
VALUES = {"stars": 0, "real": 1}  # codes in generate_kernel.py
CHUNK = 1 << 20  # ratings generated at a time
# on five stars: mean; standard deviations of each bias and of p_u . q_i
MEAN = 3.6
BIAS = 0.35
PRODUCT = 0.6
STREAMS = ("draws", "user_factors", "item_factors", "user_bias", "item_bias", "noise", "users", "items", "rounding")


@dataclass(frozen=True)
class RatingSpec(common.Spec):
    """Parameters of a synthetic set; those left out of a name take their family's defaults.

    Attributes
    ----------
    users, items, ratings : int
    rank : int
        Rank of the planted matrix.
    zipf, shift : float
        Popularity of the item of rank r = 1, 2, ... is ``1 / (r + shift)^zipf``.
    user_zipf, user_shift : float
        The same for users.
    noise : float
        Standard deviation of normal noise, in stars on a scale of five; the planted ratings have 0.78.
    values : str
        ``stars`` (whole numbers from 1 to ``scale``) or ``real`` (neither rounded nor clipped).
    scale : int
        The best rating.
    seed : int
    """

    family: str = "ratings"
    users: int = dial(2000, 1, INDEX_LIMIT)
    items: int = dial(1000, 1, INDEX_LIMIT)
    ratings: int = dial(100_000, 1, 2**40)
    rank: int = dial(8, 1, 1024)
    zipf: float = dial(1.0, 0, 4)
    shift: float = dial(30.0, 0, 1e9)
    user_zipf: float = dial(0.8, 0, 4)
    user_shift: float = dial(30.0, 0, 1e9)
    noise: float = dial(0.5, 0, 10)
    values: str = choice("stars", VALUES)
    scale: int = dial(5, 2, 1_000_000)
    seed: int = dial(0, 0, 2**63 - 1)

    kind = "set of ratings"
    families: ClassVar[dict[str, dict[str, Any]]] = {"ratings": {}}

    def __post_init__(self) -> None:
        super().__post_init__()
        if 2 * self.ratings > self.users * self.items:
            pairs = f"{self.users:,} x {self.items:,}"
            raise InputError(f"{self}: more than half of the {pairs} pairs would be rated: ask for fewer ratings")


def rating_recipe(spec: RatingSpec, progress: BytesRead | None = None) -> Recipe:
    """Return the recipe for the ratings of ``spec``."""
    label = f"synthetic-{spec.family}-{spec.ratings}"

    def fill(writer: MemoryWriter) -> dict[str, Any]:
        return put_ratings(_draw(spec, progress), writer)

    return spec.recipe(label, f"ratings {GENERATOR}", fill, RATINGS)


def _draw(spec: RatingSpec, progress: BytesRead | None) -> Ratings:
    source = _Source(spec)
    begin = np.concatenate((np.zeros(1, np.int64), np.cumsum(source.counts)))
    total = int(begin[-1])
    out = np.empty(total, np.int32), np.empty(total, np.int32), np.empty(total, np.float32)
    cuts = [0]
    while cuts[-1] < spec.users:
        cuts.append(max(cuts[-1] + 1, int(np.searchsorted(begin, begin[cuts[-1]] + CHUNK, side="right")) - 1))
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)), thread_name_prefix="hogwild-draw") as pool:
        tasks = [pool.submit(source.draw, first, last, begin, out) for first, last in itertools.pairwise(cuts)]
        for task, last in zip(tasks, cuts[1:], strict=True):
            task.result()
            if progress is not None:
                progress(int(begin[last]), total)
    return Ratings(*out, (spec.users, spec.items), check=False)


class _Source:
    """Tables of one spec, and the function from users to their ratings, however users are grouped."""

    def __init__(self, spec: RatingSpec) -> None:
        self.spec = spec
        self.keys = common.stream_keys(spec.seed, {name: number for number, name in enumerate(STREAMS, 101)})
        self.cdf, self.guide, self.shift = common.cumulative(common.popularity(spec.items, spec.zipf, spec.shift))
        self.ids = common.deal(self.keys["items"], spec.items)
        share = common.popularity(spec.users, spec.user_zipf, spec.user_shift)
        share /= np.cumsum(share)[-1]
        share = share[common.deal(self.keys["users"], spec.users)]
        rounding = common.uniform(common.random_bits(self.keys["rounding"], 0, spec.users))
        self.counts = _apportion(spec.ratings, share, rounding, spec.items)

    def draw(self, first: int, last: int, begin: np.ndarray, out: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
        """Write the ratings of users ``first <= u < last`` to their places in ``out``."""
        from hogwild.data.ratings.generate_kernel import draw_ratings

        spec, most = self.spec, int(self.counts[first:last].max())
        keys = np.array([self.keys[name] for name in STREAMS[:6]], np.uint64)
        dials = np.array([MEAN, PRODUCT / math.sqrt(spec.rank), BIAS, spec.noise, spec.scale - 1.0])
        scratch = (
            np.zeros(1 << (2 * max(most, 8)).bit_length(), np.int32),
            np.empty(most, np.int64),
            np.empty(most, np.int64),
            np.empty(0, np.int16),
            np.empty(spec.rank),
        )
        with np.errstate(over="ignore"):
            draw_ratings(
                keys,
                first,
                begin[first : last + 1],
                self.cdf,
                self.guide,
                self.shift,
                self.ids,
                spec.rank,
                VALUES[spec.values],
                dials,
                *scratch,
                *out,
            )


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
