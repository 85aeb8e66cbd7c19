"""What synthetic rows, ratings and graphs have in common: their names, and random numbers of the same bits everywhere.

Only operations that IEEE 754 rounds exactly are used, logarithms and powers included, on counter-based random streams
(splitmix64), so that a number depends on its stream and its place alone.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from hogwild.errors import InputError, expected_one_of, nearest

if TYPE_CHECKING:
    from hogwild.data.cache import Recipe
    from hogwild.data.rows.store import Kind

PREFIX = "synthetic:"
BITS = 52  # resolution of a cumulative popularity table
MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
ROOT3 = math.sqrt(3.0)
LN2 = 0.6931471805599453


def dial(default: Any, low: float, high: float) -> Any:
    """A number of a set: its default, and the range it must be in."""
    return dataclasses.field(default=default, metadata={"range": (low, high)})


def choice(default: str, known: Iterable[str]) -> Any:
    """A word of a set: its default, and the ones there are."""
    return dataclasses.field(default=default, metadata={"known": tuple(known)})


@dataclass(frozen=True)
class Spec:
    """Parameters of a synthetic set; a subclass is a frozen dataclass of dials and choices after the ``family``."""

    families: ClassVar[dict[str, dict[str, Any]]]  # defaults that differ from the class's
    kind: ClassVar[str]  # for messages
    family: str

    def __post_init__(self) -> None:
        self.check_family(self.family)
        for field in dataclasses.fields(self)[1:]:
            value = getattr(self, field.name)
            if "known" in field.metadata:
                if value not in (known := field.metadata["known"]):
                    raise InputError(f"{self}: {field.name}={value}: {expected_one_of(known, value)}")
                continue
            low, high = self.limits().get(field.name, field.metadata["range"])
            if not low <= value <= high:
                raise InputError(f"{self}: {field.name}={value} is outside {low} to {high}")

    @classmethod
    def check_family(cls, family: str) -> None:
        """Raise InputError, which lists the families, unless there is one of that name."""
        if family not in cls.families:
            names = {each: PREFIX + each for each in cls.families}
            close = nearest(family, (), aliases=names)
            there = ", ".join(names.values())
            raise InputError(f"{PREFIX}{family}: no such synthetic {cls.kind}; there are {there}{close}")

    def limits(self) -> dict[str, tuple[float, float]]:
        """Return ranges that depend on other parameters."""
        return {}

    @classmethod
    def usual(cls, family: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return a family's parameters and their defaults, beside those given."""
        defaults = {field.name: field.default for field in dataclasses.fields(cls)[1:]}
        return defaults | cls.families[family]

    @classmethod
    def parse(cls, name: str) -> Self:
        """Return the parameters in a name such as ``synthetic:rcv1?rows=200000&seed=1``.

        Raises
        ------
        InputError
            For an unknown family or parameter (listing the known ones), or a value out of range.
        """
        family, _, query = name.removeprefix(PREFIX).partition("?")
        cls.check_family(family)
        usual, given = cls.usual(family, {}), dict[str, Any]()
        for part in filter(None, query.split("&")):
            dial, equals, text = part.partition("=")
            if dial not in usual or not equals:
                known = f"{', '.join(usual)}{nearest(dial, usual)}"
                raise InputError(f"{name}: cannot read {part!r}: expected dial=value with one of {known}")
            if dial in given:
                raise InputError(f"{name}: {dial} is given twice")
            given[dial] = _value(name, dial, text, type(usual[dial]))
        return cls(**{"family": family, **cls.usual(family, given), **given})

    def __str__(self) -> str:
        """Return the name, with the parameters that differ from the family's defaults."""
        usual = self.usual(self.family, vars(self))
        given = [f"{name}={getattr(self, name)}" for name, value in usual.items() if getattr(self, name) != value]
        return f"{PREFIX}{self.family}" + ("?" + "&".join(given) if given else "")

    def recipe(self, label: str, generator: str, fill: Callable[..., Any], kind: Kind) -> Recipe:
        """Return the recipe of the set; ``generator`` is the version of its bits."""
        from hogwild.data.cache import Recipe

        dials = dataclasses.asdict(self)
        key = {"synthetic": {**dials, "family": ""}, "generator": generator}
        meta = {"source": str(self), "options": dials, "parser": f"synthetic {generator}"}
        return Recipe(label, key, meta, fill, kind)


def _value(name: str, dial: str, text: str, kind: type) -> Any:
    try:
        if kind is not int:
            value = kind(text)
            if kind is str or math.isfinite(value):
                return value
        elif text.isdecimal() or not (value := float(text)).is_integer():
            return int(text)
        else:
            return int(value)  # of 2e5
    except ValueError:
        pass
    raise InputError(f"{name}: {dial}={text}: expected a {'whole ' if kind is int else ''}number")


def mix_bits(x: int) -> int:
    """Return the output of splitmix64 at state ``x``."""
    return int(random_bits(x & MASK, 1, 2)[0])


def stream_keys(seed: int, numbers: Mapping[str, int]) -> dict[str, int]:
    """Return the key of each random stream."""
    return {name: mix_bits(mix_bits(seed + 1) ^ (number << 56)) for name, number in numbers.items()}


def random_bits(key: int, first: int, last: int) -> np.ndarray:
    """Return a stream's random number for each ``first <= i < last``, uint64."""
    with np.errstate(over="ignore"):
        x = np.arange(first, last, dtype=np.uint64) * np.uint64(GOLDEN) + np.uint64(key)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniform(bits: np.ndarray) -> np.ndarray:
    """Return numbers in [0, 1), float64."""
    return (bits >> np.uint64(11)).astype(np.float64) / 2.0**53


def normal(bits: np.ndarray) -> np.ndarray:
    """Return near-normal deviates: the sum of four 16-bit uniforms, mean 0, standard deviation 1, at most 3.46."""
    parts = [((bits >> np.uint64(s)) & np.uint64(0xFFFF)).astype(np.int64) for s in (0, 16, 32, 48)]
    return (parts[0] + parts[1] + parts[2] + parts[3] - 131070) / 65536.0 * ROOT3


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
