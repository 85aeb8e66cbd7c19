"""Synthetic ratings named like files: ``synthetic:ratings?users=5000&seed=1``, the same bits on every machine.

A planted model of low rank with biases gives every pair a rating; who rated what is drawn. Popularity falls as
``1 / (rank + shift)^zipf`` on both sides and is dealt to numbers at random. Each user has a number of ratings in
proportion, and that many different items by popularity, so no pair comes twice; ratings lie user by user.

The decision that matters: only operations that IEEE 754 rounds exactly, as in ``synthetic.py``, and no tables of
factors: they are hashed afresh for every rating (``kernels/generate_ratings.py``), about 2 ns a factor, so that ten
million users and items cost no memory.

``netflix``, ``kdd`` and ``jumbo`` are shaped after the sets of Recht et al. (2011), table 1, with fewer ratings unless
more are asked for. The shifts are such that at the usual size the busiest item and user have the shares of the
originals, and so Delta and rho theirs: 2.3e-3 and 2.5e-3; 1.8e-3 and 3.0e-3. With more ratings popular items run out of
users who have not rated them, and a smaller shift is needed.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hogwild.data.examples import INDEX_LIMIT
from hogwild.data.rating_store import RatingRecipe, build_ratings
from hogwild.data.ratings import Ratings
from hogwild.data.synthetic import BITS, GOLDEN, PREFIX, _exp, _log, _mix, check_family, parse_dials
from hogwild.errors import InputError, expected_one_of

if TYPE_CHECKING:
    from hogwild.data.cache import Cache

GENERATOR = 1  # version of the bits below; part of a cache entry's key
VALUES = {"stars": 0, "real": 1}  # codes of kernels/generate_ratings.py
CHUNK = 1 << 20  # ratings generated at a time
MEAN, BIAS, PRODUCT = 3.6, 0.35, 0.6  # of five stars: mean; standard deviations of each bias and of p_u . q_i
STREAMS = ("draws", "user_factors", "item_factors", "user_bias", "item_bias", "noise", "users", "items", "rounding")


@dataclass(frozen=True)
class RatingSpec:
    """Dials of a synthetic set; those left out of a name take their family's values.

    Attributes
    ----------
    users, items, ratings : int
    rank : int
        Of the planted matrix.
    zipf, shift : float
        Popularity of the item of rank r = 1, 2, ... is ``1 / (r + shift)^zipf``.
    user_zipf, user_shift : float
        The same of users.
    noise : float
        Standard deviation of normal noise, in stars of a scale of five; the planted ratings have 0.78.
    values : str
        ``stars`` (whole numbers from 1 to ``scale``) or ``real`` (neither rounded nor cut off).
    scale : int
        The best rating.
    seed : int
    skip : int
        Leave out about so many ratings that a set of this size would have: fresh ones of the same planted model, for a
        test set. The number of ratings is then exact to about a tenth of a percent.
    """

    family: str = "ratings"
    users: int = 2000
    items: int = 1000
    ratings: int = 100_000
    rank: int = 8
    zipf: float = 1.0
    shift: float = 30.0
    user_zipf: float = 0.8
    user_shift: float = 30.0
    noise: float = 0.5
    values: str = "stars"
    scale: int = 5
    seed: int = 0
    skip: int = 0

    def __post_init__(self) -> None:
        check_family(self.family, FAMILIES, "set of ratings")
        ranges = {
            "users": (1, INDEX_LIMIT), "items": (1, INDEX_LIMIT), "ratings": (1, 2**40), "rank": (1, 1024),
            "zipf": (0, 4), "shift": (0, 1e9), "user_zipf": (0, 4), "user_shift": (0, 1e9), "noise": (0, 10),
            "scale": (2, 1_000_000), "seed": (0, 2**63 - 1), "skip": (0, 2**40),
        }  # fmt: skip
        for name, (low, high) in ranges.items():
            if not low <= getattr(self, name) <= high:
                raise InputError(f"{self}: {name}={getattr(self, name)} is outside {low} to {high}")
        if self.values not in VALUES:
            raise InputError(f"{self}: values={self.values}: {expected_one_of(VALUES, self.values)}")
        if 2 * (self.ratings + self.skip) > self.users * self.items:
            pairs = f"{self.users:,} x {self.items:,}"
            raise InputError(f"{self}: more than half of the {pairs} pairs would be rated: ask for fewer ratings")

    def __str__(self) -> str:
        """The name, with the dials that are not the family's own."""
        dials, usual = dataclasses.asdict(self), _usual(self.family)
        given = [f"{name}={dials[name]}" for name in usual if dials[name] != usual[name]]
        return f"{PREFIX}{self.family}" + ("?" + "&".join(given) if given else "")


FAMILIES: dict[str, dict[str, Any]] = {
    "ratings": {},
    # the whole of it has ratings=100198805&shift=106
    "netflix": {
        "users": 480_189, "items": 17_770, "ratings": 10_000_000, "rank": 16, "zipf": 1.5, "shift": 208.0,
        "user_zipf": 0.8, "user_shift": 350.0, "noise": 0.8,
    },
    # track ratings of 0 to 100, here from 1; the whole of it has ratings=252800275
    "kdd": {
        "users": 1_000_990, "items": 624_961, "ratings": 10_000_000, "rank": 16, "zipf": 1.0, "shift": 48.0,
        "user_zipf": 0.8, "user_shift": 21.0, "noise": 0.8, "scale": 100,
    },
    # nobody and nothing is popular; the whole of it has ratings=2e9
    "jumbo": {
        "users": 10_000_000, "items": 10_000_000, "ratings": 10_000_000, "rank": 10, "zipf": 0.0, "user_zipf": 0.0,
        "noise": 0.0, "values": "real",
    },
}  # fmt: skip


def _usual(family: str) -> dict[str, Any]:
    usual = {field.name: field.default for field in dataclasses.fields(RatingSpec) if field.name != "family"}
    return usual | FAMILIES.get(family, {})


def is_rating_spec(name: str) -> bool:
    """Whether ``name`` is that of a synthetic set of ratings, whatever its dials."""
    return name.startswith(PREFIX) and name.removeprefix(PREFIX).partition("?")[0] in FAMILIES


def parse_rating_spec(name: str) -> RatingSpec:
    """The dials of a name such as ``synthetic:netflix?ratings=1e6&seed=1``.

    Raises
    ------
    InputError
        For an unknown family or dial (lists the known ones), or a value out of range.
    """
    family, given = parse_dials(name, _usual)
    return RatingSpec(family, **{**_usual(family), **given})


def generate_ratings(
    spec: RatingSpec | str, cache: Cache | None = None, progress: Callable[[int, int | None], None] | None = None
) -> Ratings:
    """The ratings of ``spec``: from the cache, where they are generated once, or in memory without one.

    ``progress`` is called with ratings done and ratings in total.
    """
    spec = parse_rating_spec(spec) if isinstance(spec, str) else spec
    return build_ratings(cache, rating_recipe(spec, progress))[0]


def rating_recipe(spec: RatingSpec, progress: Callable[[int, int | None], None] | None = None) -> RatingRecipe:
    """How to make the ratings of ``spec``."""
    dials = dataclasses.asdict(spec)
    return RatingRecipe(
        label=f"synthetic-{spec.family}-{spec.ratings}",
        key={"synthetic": {**dials, "family": ""}, "generator": GENERATOR},
        meta={"source": str(spec), "options": dials, "parser": f"synthetic ratings {GENERATOR}"},
        make=lambda: (_draw(spec, progress), {}),
    )


def _draw(spec: RatingSpec, progress: Callable[[int, int | None], None] | None) -> Ratings:
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
    """Tables of one spec, and the function from users to their ratings; nothing depends on how users are grouped."""

    def __init__(self, spec: RatingSpec) -> None:
        self.spec = spec
        self.keys = {name: _mix(_mix(spec.seed + 1) ^ (number << 56)) for number, name in enumerate(STREAMS, 101)}
        self._tables()
        share = _popularity(spec.users, spec.user_zipf, spec.user_shift)
        share /= np.cumsum(share)[-1]
        share = share[self._deal("users", spec.users)]
        rounding = (self._bits("rounding", spec.users) >> np.uint64(11)).astype(np.float64) / 2.0**53
        self.counts = _apportion(spec.ratings + spec.skip, share, rounding, spec.items)
        self.skipped = np.zeros_like(self.counts)
        if spec.skip:
            self.skipped = np.minimum(_apportion(spec.skip, share, rounding, spec.items), self.counts)
            self.counts -= self.skipped

    def _tables(self) -> None:
        total = np.cumsum(_popularity(self.spec.items, self.spec.zipf, self.spec.shift))
        total *= 2.0**BITS / total[-1]
        self.cdf = total.astype(np.int64)  # (items,) a draw u of BITS bits is the first rank with cdf > u
        self.cdf[-1] = 2**BITS
        bits = min(self.spec.items.bit_length() + 1, 22)
        self.shift = BITS - bits
        self.guide = np.searchsorted(self.cdf, np.arange(2**bits, dtype=np.int64) << self.shift, side="right")
        self.guide = self.guide.astype(np.int32)
        self.ids = self._deal("items", self.spec.items)

    def _deal(self, stream: str, size: int) -> np.ndarray:
        from hogwild.kernels.order import shuffle

        ids = np.arange(size, dtype=np.int32)
        with np.errstate(over="ignore"):  # wrapping is meant, and is only seen with the JIT off
            shuffle(ids, size, np.uint64(self.keys[stream]))
        return ids

    def _bits(self, stream: str, size: int) -> np.ndarray:
        x = np.arange(size, dtype=np.uint64) * np.uint64(GOLDEN) + np.uint64(self.keys[stream])
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))

    def draw(self, first: int, last: int, begin: np.ndarray, out: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
        """Write the ratings of users ``first <= u < last`` to their places in ``out``."""
        from hogwild.kernels.generate_ratings import draw_ratings

        spec, most = self.spec, int((self.counts + self.skipped)[first:last].max())
        keys = np.array([self.keys[name] for name in STREAMS[:6]], np.uint64)
        dials = np.array([MEAN, PRODUCT / math.sqrt(spec.rank), BIAS, spec.noise, spec.scale - 1.0])
        scratch = (
            np.zeros(1 << (2 * max(most, 8)).bit_length(), np.int32),
            np.empty(most, np.int64),
            np.empty(spec.rank),
        )
        with np.errstate(over="ignore"):
            draw_ratings(
                keys, first, self.skipped[first:last], begin[first : last + 1], self.cdf, self.guide, self.shift,
                self.ids, spec.rank, VALUES[spec.values], dials, *scratch, *out,
            )  # fmt: skip


def _popularity(size: int, zipf: float, shift: float) -> np.ndarray:
    ranks = np.arange(1, size + 1, dtype=np.float64)
    ranks += shift
    if zipf == 0:
        return np.ones(size)
    return 1.0 / (ranks if zipf == 1 else _exp(zipf * _log(ranks)))


def _apportion(total: int, share: np.ndarray, rounding: np.ndarray, most: int) -> np.ndarray:
    """``total`` dealt out by ``share``, (n,) int64: whole numbers up to ``most``, each growing with the total.

    They are ``floor(x share + rounding)`` for the ``x`` at which they add up to the total, found by bisection.
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
    found, below = counts(high), counts(low)
    extra = int(found.sum()) - total
    if extra > 0:  # several grew at the same x
        found[np.flatnonzero(found > below)[:extra]] -= 1
    return found
