"""What synthetic rows, ratings and graphs have in common: their names, and random numbers of the same bits everywhere.

Only operations that IEEE 754 rounds exactly are used, logarithms and powers included, on counter-based random streams
(splitmix64), so that a number depends on its stream and its place alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from hogwild.errors import InputError, expected_one_of, nearest

if TYPE_CHECKING:
    from hogwild.data.cache import Pieces, Recipe
    from hogwild.data.rows.store import Kind

PREFIX = "synthetic:"
BITS = 52  # resolution of a cumulative popularity table
MASK = 2**64 - 1
ROOT3 = math.sqrt(3.0)
LN2 = 0.6931471805599453
LARGEST = 2**31 - 1  # of a number of features, users or items: they are int32
SEED = (0, 0, 2**63 - 1)
ZIPF = (1.0, 0, 4)  # popularity of the feature or item of rank r = 1, 2, ... is 1 / (r + shift)^zipf
SHIFT = (15.0, 0, 1e9)
LATER = ("fields", "rank")  # dials that came later: at zero they are not in the cache's keys, so older entries hold

#: Dials of each kind of data: default, least and most; or the words there are, of which the first is the default.
DIALS: dict[str, dict[str, tuple[Any, ...]]] = {
    "rows": {
        "rows": (50_000, 1, 2**40),
        "features": (47_236, 2, LARGEST),
        "nnz": (73, 1, LARGEST),  # mean number of nonzeros of a row
        "spread": (0.7, 0, 2),  # standard deviation of the logarithm of the rows' lengths; 0 makes them all nnz
        "zipf": ZIPF,
        "shift": SHIFT,
        "values": ("tfidf", "binary", "counts", "real"),  # rows of length 1; how often a word was drawn; near normal
        "task": ("classify", "regress"),  # real targets have a standard deviation of about 1
        "classes": (2, 2, 64),  # two: labels -1 and +1, more: 1 to K
        "positive": (0.5, 0.01, 0.99),  # share of label +1 when there are two classes
        "noise": (0.03, 0, 10),  # share of labels replaced by a wrong one; of real targets a standard deviation
        "seed": SEED,
        "skip": (0, 0, 2**40),  # rows to leave out at the start: fresh rows of the same model, for a test set
        "fields": (0, 0, 1024),  # a row has one feature of each field; 0: rows are documents
        "rank": (0, 0, 64),  # numbers in the planted factors by which neighbouring fields interact; 0: they do not
    },
    "ratings": {
        "users": (2000, 1, LARGEST),
        "items": (1000, 1, LARGEST),
        "ratings": (100_000, 1, 2**40),
        "rank": (8, 1, 1024),  # of the planted matrix
        "zipf": ZIPF,
        "shift": (30.0, 0, 1e9),
        "user_zipf": (0.8, 0, 4),
        "user_shift": (30.0, 0, 1e9),
        "noise": (0.5, 0, 10),  # standard deviation, in stars on a scale of five; the planted ratings have 0.78
        "values": ("stars", "real"),  # whole numbers from 1 to scale; neither rounded nor clipped
        "scale": (5, 2, 1_000_000),  # the best rating
        "seed": SEED,
    },
    "edges": {
        "side": (128, 2, 1 << 14),  # points along each axis
        "labels": (2, 2, 64),  # brightness is 0, 1, ...
        "balls": (6, 0, 1000),  # planted discs, with labels 1, 2, ... in turn
        "noise": (0.5, 0, 10),  # standard deviation of the brightness
        "smooth": (10, 0, 1000),  # weight between neighbours
        "seed": SEED,
    },
}
#: The kind of data of each family, and its own defaults.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "rcv1": ("rows", {}),
    # no hot feature anywhere: two rows meet with a probability of 1.6 %
    "uniform": (
        "rows",
        {"rows": 100_000, "features": 65_536, "nnz": 32, "spread": 0.0, "zipf": 0.0, "values": "binary"},
    ),
    # click logs: a model larger than any cache, rows of equal length, a quarter positive
    "ctr": (
        "rows",
        {
            "rows": 100_000,
            "features": 1 << 24,
            "nnz": 39,
            "spread": 0.0,
            "shift": 2.0,
            "values": "binary",
            "positive": 0.25,
            "noise": 0.1,
        },
    ),
    # every row holds every feature: a case that lock-free training is not suited for
    "dense": (
        "rows",
        {"features": 64, "spread": 0.0, "zipf": 0.0, "values": "real"},
    ),
    "ratings": ("ratings", {}),
    "grid": ("edges", {}),
}


def parse(name: str, kind: str) -> SimpleNamespace:
    """Return the dials of the data called ``name``, such as ``synthetic:rcv1?rows=200000&seed=1``.

    Raises
    ------
    InputError
        For an unknown family or dial (listing the known ones), or a value out of range.
    """
    family, _, query = name.removeprefix(PREFIX).partition("?")
    known = {each: PREFIX + each for each, (of, _) in FAMILIES.items() if of == kind}
    if family not in known:
        close = nearest(family, (), aliases=known)
        raise InputError(f"{name}: no such synthetic {kind}; there are {', '.join(known.values())}{close}")
    given, dials = dict[str, Any](), DIALS[kind]
    for part in filter(None, query.split("&")):
        dial, equals, text = part.partition("=")
        if dial not in dials:
            some = f": some are {', '.join([*dials][:6])}"
            raise InputError(f"{name}: no dial {dial!r}{nearest(dial, dials) or some}")
        if not equals:
            raise InputError(f"{name}: {dial!r}: expected {dial}=VALUE")
        given[dial] = _value(f"{name}: {dial}={text}", text, *dials[dial])
    usual = {dial: default for dial, (default, *_) in dials.items()} | FAMILIES[family][1]
    if family == "dense":
        usual["nnz"] = given.get("features", usual["features"])
    if given.get("fields"):
        usual["nnz"] = given["fields"]
    if given.get("task") == "regress":
        usual["noise"] = 0.1
    return SimpleNamespace(name=name, **usual | given)


def _value(title: str, text: str, default: Any, *limits: Any) -> Any:
    if isinstance(default, str):
        if text not in (default, *limits):
            raise InputError(f"{title}: {expected_one_of((default, *limits), text)}")
        return text
    low, high = limits
    whole = isinstance(default, int)
    try:
        number = Decimal(text)  # also of 2e5, and exact
        if low <= number <= high and not (whole and number % 1):
            return type(default)(number)
    except ArithmeticError:
        pass
    raise InputError(f"{title}: expected a {'whole ' if whole else ''}number from {low} to {high}")


def recipe_of(dials: SimpleNamespace, size: int, generator: int, pieces: Callable[[], Pieces], kind: Kind) -> Recipe:
    """Return the recipe of synthetic data of ``size`` examples; ``generator`` is the version of their bits."""
    from hogwild.data.cache import Recipe

    facts = {dial: value for dial, value in vars(dials).items() if dial != "name" and (value or dial not in LATER)}
    meta = {"source": dials.name, "options": facts, "parser": f"synthetic {kind.name} {generator}"}
    family = dials.name.removeprefix(PREFIX).partition("?")[0]
    return Recipe(f"synthetic-{family}-{size}", {"synthetic": facts, "parser": meta["parser"]}, meta, pieces, kind)


def mix_bits(x: int) -> int:
    """Return the output of splitmix64 at state ``x``."""
    return int(random_bits(x & MASK, 1, 2)[0])


def stream_keys(seed: int, numbers: Mapping[str, int]) -> dict[str, int]:
    """Return the key of each random stream."""
    return {name: mix_bits(mix_bits(seed + 1) ^ (number << 56)) for name, number in numbers.items()}


def vector(kernel: Any) -> Any:
    """Return a kernel of one number as a function of NumPy arrays: the same operations, so the same bits."""
    return getattr(kernel, "py_func", kernel)


def random_bits(key: int, first: int, last: int) -> np.ndarray:
    """Return a stream's random number for each ``first <= i < last``, uint64."""
    from hogwild.kernels.order import GOLDEN, mix

    with np.errstate(over="ignore"):  # wrapping is intended
        return np.asarray(vector(mix)(np.arange(first, last, dtype=np.uint64) * GOLDEN + np.uint64(key)))


def uniform(bits: np.ndarray) -> np.ndarray:
    """Return numbers in [0, 1), float64."""
    return (bits >> np.uint64(11)).astype(np.float64) / 2.0**53


def normal(bits: np.ndarray) -> np.ndarray:
    """Return near-normal deviates: mean 0, standard deviation 1, at most 3.46."""
    from hogwild.data.generate_kernel import normal as kernel

    return np.asarray(vector(kernel)(bits))


def deal(key: int, size: int) -> np.ndarray:
    """Return the numbers below ``size`` in a random order, int32."""
    from hogwild.kernels.order import shuffle

    ids = np.arange(size, dtype=np.int32)
    with np.errstate(over="ignore"):  # wrapping is intended, and is only visible with the JIT off
        shuffle(ids, size, np.uint64(key))
    return ids


def popularity(size: int, zipf: float, shift: float) -> np.ndarray:
    """Return ``1 / (rank + shift)^zipf`` for the ranks 1, 2, ..., float64."""
    if zipf == 0:
        return np.ones(size)
    ranks = np.arange(1, size + 1, dtype=np.float64)
    ranks += shift
    return 1.0 / (ranks if zipf == 1 else portable_exp(zipf * portable_log(ranks)))


def cumulative(share: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Return ``(cdf, guide, shift)``: a draw u of ``BITS`` bits is the first rank with ``cdf > u``.

    ``guide[u >> shift]`` is a rank that is not above it, to begin from.
    """
    total = np.cumsum(share)
    total *= 2.0**BITS / total[-1]
    cdf = total.astype(np.int64)
    cdf[-1] = 2**BITS
    bits = min(len(share).bit_length() + 1, 22)
    starts = np.arange(2**bits, dtype=np.int64) << (BITS - bits)
    return cdf, np.searchsorted(cdf, starts, side="right").astype(np.int32), BITS - bits


def portable_exp(x: np.ndarray) -> np.ndarray:
    """exp to about 1e-10, from exactly rounded operations only: the same bits everywhere, as np.exp is not."""
    y = np.asarray(x, np.float64) / 1024.0
    s = 1.0 + y * (1.0 + y / 2.0 * (1.0 + y / 3.0 * (1.0 + y / 4.0 * (1.0 + y / 5.0))))
    for _ in range(10):
        s = s * s
    return s


def portable_log(x: np.ndarray) -> np.ndarray:
    """The natural logarithm, likewise: mantissa by the series of artanh, |t| <= 0.172."""
    mantissa, exponent = np.frexp(np.asarray(x, np.float64))
    low = mantissa < 0.7071067811865476
    mantissa = np.where(low, mantissa * 2.0, mantissa)
    t = (mantissa - 1.0) / (mantissa + 1.0)
    square, series = t * t, np.zeros_like(t)
    for k in range(19, 0, -2):
        series = series * square + 1.0 / k
    return 2.0 * t * series + (exponent - low) * LN2
