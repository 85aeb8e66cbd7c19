"""Synthetic data named like files: ``synthetic:rcv1?rows=200000&seed=1``, the same bits on every machine.

Rows are documents drawn word by word (``kernels/generate.py``). Word popularity falls as ``1 / (rank + shift)^zipf``;
ranks are dealt to feature numbers at random, as in real data. Half of the planted words belong to a topic; a row leans
to one topic by passing over most words of the others. Labels come from a planted sparse linear model on those words
(the topic with the largest margin), and a share of them is then flipped, so a linear model can come close to
``1 - noise``.

The decision that matters: only operations that IEEE 754 rounds exactly, logarithms and powers included (``_log``,
``_exp``), and one random stream per row; a test pins a checksum. It costs about 50 ns per nonzero on one core.

``rcv1`` is shaped after the text set of Lewis et al. (2004): 47,236 features, 73 nonzeros a row, the most popular
feature in 45 % of the rows (43 % in the original; ``shift=0`` is Zipf's plain law, where it is in 97 %).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hogwild.data.cache import Recipe, build
from hogwild.data.examples import INDEX_LIMIT, Rows
from hogwild.data.store import Sink
from hogwild.errors import InputError, expected_one_of, nearest

if TYPE_CHECKING:
    from hogwild.data.cache import Cache

GENERATOR = 1  # version of the bits below; part of a cache entry's key
PREFIX = "synthetic:"
VALUES = {"tfidf": 0, "binary": 1, "counts": 2, "real": 3}  # codes of kernels/generate.py
TASKS = ("classify", "regress", "counts")
PLANTED = 1 << 16  # ranks that may carry a planted weight; rarer words tell nothing
TILT = 3277  # of 4096: share of another topic's words that a row passes over
PILOT = 4096  # rows that offsets and scales of the targets are taken from
CHUNK = 1 << 20  # nonzeros generated at a time
BITS = 52  # of the cumulative popularity table
STREAMS = {"words": 1, "lengths": 2, "topics": 3, "flips": 4, "planted": 5, "ids": 6}
MASK = 2**64 - 1


@dataclass(frozen=True)
class SyntheticSpec:
    """Dials of a synthetic set; those left out of a name take their family's values.

    Attributes
    ----------
    rows, features, nnz : int
        Shape, and the mean number of nonzeros of a row.
    spread : float
        Standard deviation of the logarithm of the rows' lengths; 0 makes them all ``nnz``.
    zipf, shift : float
        Popularity of the word of rank r = 1, 2, ... is ``1 / (r + shift)^zipf``.
    values : str
        ``tfidf`` (rows of length 1), ``binary``, ``counts`` (how often a word was drawn) or ``real`` (near normal).
    task, classes : str, int
        ``classify`` into ``classes`` classes (two: labels -1 and +1, more: 1 to K), ``regress`` (real targets of
        standard deviation about 1), ``counts`` (Poisson, log-linear).
    positive : float
        Share of label +1 when there are two classes.
    noise : float
        classify: share of labels replaced by a wrong one; else standard deviation of normal noise on the planted value.
    seed : int
    skip : int
        Leave out that many rows at the start: fresh rows of the same planted model, for a test set.
    """

    family: str = "rcv1"
    rows: int = 50_000
    features: int = 47_236
    nnz: int = 73
    spread: float = 0.7
    zipf: float = 1.0
    shift: float = 15.0
    values: str = "tfidf"
    task: str = "classify"
    classes: int = 2
    positive: float = 0.5
    noise: float = 0.03
    seed: int = 0
    skip: int = 0

    def __post_init__(self) -> None:
        check_family(self.family, FAMILIES, "set")
        ranges = {
            "rows": (1, 2**40), "features": (2, INDEX_LIMIT), "nnz": (1, self.features), "spread": (0, 2),
            "zipf": (0, 4), "shift": (0, 1e9), "classes": (2, 64),
            "positive": (0.01, 0.99), "seed": (0, 2**63 - 1), "skip": (0, 2**40),
            "noise": (0, 0.5 if self.task == "classify" else 10),
        }  # fmt: skip
        for name, (low, high) in ranges.items():
            if not low <= getattr(self, name) <= high:
                raise InputError(f"{self}: {name}={getattr(self, name)} is outside {low} to {high}")
        for name, choices in (("values", tuple(VALUES)), ("task", TASKS)):
            if getattr(self, name) not in choices:
                found = getattr(self, name)
                raise InputError(f"{self}: {name}={found}: {expected_one_of(choices, found)}")

    def __str__(self) -> str:
        """The name, with the dials that are not the family's own."""
        dials = dataclasses.asdict(self)
        usual = _usual(self.family, dials)
        given = [f"{name}={dials[name]}" for name in usual if dials[name] != usual[name]]
        return f"{PREFIX}{self.family}" + ("?" + "&".join(given) if given else "")


FAMILIES: dict[str, dict[str, Any]] = {
    "rcv1": {},
    # no hot feature anywhere: two rows meet with a probability of 1.6 %
    "uniform": {"rows": 100_000, "features": 65_536, "nnz": 32, "spread": 0.0, "zipf": 0.0, "values": "binary"},
    # click logs: a model larger than any cache, rows of equal length, a quarter positive
    "ctr": {
        "rows": 100_000, "features": 1 << 24, "nnz": 39, "spread": 0.0, "shift": 2.0, "values": "binary",
        "positive": 0.25, "noise": 0.1,
    },
    # every row holds every feature: what lock-free training is not for
    "dense": {"rows": 50_000, "features": 64, "nnz": 64, "spread": 0.0, "zipf": 0.0, "values": "real"},
}  # fmt: skip


def _usual(family: str, given: dict[str, Any]) -> dict[str, Any]:
    """Values of the dials that are not given; two of them hang on those that are."""
    usual = {field.name: field.default for field in dataclasses.fields(SyntheticSpec) if field.name != "family"}
    usual |= FAMILIES.get(family, {})
    if family == "dense":
        usual["nnz"] = given.get("features", usual["features"])
    if given.get("task", "classify") != "classify":
        usual["noise"] = 0.1 if given["task"] == "regress" else 0.0
    return usual


def parse_spec(name: str) -> SyntheticSpec:
    """The dials of a name such as ``synthetic:rcv1?rows=200000&seed=1``.

    Raises
    ------
    InputError
        For an unknown family or dial (lists the known ones), or a value out of range.
    """
    family, given = parse_dials(name, lambda family: _usual(family, {}))
    return SyntheticSpec(family, **{**_usual(family, given), **given})


def check_family(family: str, families: Iterable[str], what: str) -> None:
    """Raise InputError, which lists them, unless it is one of ``families``."""
    names = {each: PREFIX + each for each in families}
    if family not in names:
        close = nearest(family, (), aliases=names)
        raise InputError(f"{PREFIX}{family}: no such synthetic {what}; there are {', '.join(names.values())}{close}")


def parse_dials(name: str, usual: Callable[[str], dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """``(family, dials given)`` of a name such as ``synthetic:rcv1?rows=200000``.

    ``usual`` gives a family's dials and their values, whose types those in the name must have; of an unknown family
    maybe none, and then nothing is read.
    """
    family, _, query = name.removeprefix(PREFIX).partition("?")
    kinds = {dial: type(value) for dial, value in usual(family).items()}
    given: dict[str, Any] = {}
    if not kinds:
        return family, given
    for part in filter(None, query.split("&")):
        dial, equals, text = part.partition("=")
        if dial not in kinds or not equals:
            known = f"{', '.join(kinds)}{nearest(dial, kinds)}"
            raise InputError(f"{name}: cannot read {part!r}: expected dial=value with one of {known}")
        if dial in given:
            raise InputError(f"{name}: {dial} is given twice")
        given[dial] = _number(name, dial, text, kinds[dial])
    return family, given


def _number(name: str, dial: str, text: str, kind: type) -> Any:
    try:
        value = float(text) if kind is not str else text
        if kind is int:
            try:
                return int(text)
            except ValueError:
                if not float(text).is_integer():
                    raise
                return int(float(text))
        if kind is float and not math.isfinite(float(text)):
            raise ValueError
    except ValueError:
        raise InputError(f"{name}: {dial}={text}: expected a {'whole ' if kind is int else ''}number") from None
    return value


def generate(
    spec: SyntheticSpec | str, cache: Cache | None = None, progress: Callable[[int, int | None], None] | None = None
) -> Rows:
    """The rows of ``spec``: from the cache, where they are generated once, or in memory without one.

    ``progress`` is called with rows done and rows in total.
    """
    spec = parse_spec(spec) if isinstance(spec, str) else spec
    return build(cache, recipe(spec, progress))[0]


def recipe(spec: SyntheticSpec, progress: Callable[[int, int | None], None] | None = None) -> Recipe:
    """How to make the data of ``spec``."""
    dials = dataclasses.asdict(spec)
    return Recipe(
        label=f"synthetic-{spec.family}-{spec.rows}",
        key={"synthetic": {**dials, "family": ""}, "generator": GENERATOR},
        meta={"source": str(spec), "options": dials, "parser": f"synthetic {GENERATOR}"},
        fill=lambda sink: _pour(spec, sink, progress),
    )


def _pour(spec: SyntheticSpec, sink: Sink, progress: Callable[[int, int | None], None] | None) -> dict[str, Any]:
    source = Source(spec)
    source.calibrate()
    for first in range(0, spec.rows, source.chunk):
        last = min(first + source.chunk, spec.rows)
        lengths, indices, values, margins = source.draw(spec.skip + first, spec.skip + last)
        sink.append(lengths, indices, values, source.targets(spec.skip + first, margins))
        if progress is not None:
            progress(last, spec.rows)
    return {"width": spec.features}


class Source:
    """Tables of one spec, and the functions from row numbers to rows; nothing depends on how rows are grouped."""

    def __init__(self, spec: SyntheticSpec) -> None:
        self.spec = spec
        self.chunk = max(1, CHUNK // spec.nnz)
        self.keys = {name: _mix(_mix(spec.seed + 1) ^ (number << 56)) for name, number in STREAMS.items()}
        self.topics = spec.classes if spec.task == "classify" else 2
        self._popularity()
        self._planted()
        self.tf = 1.0 + _log(np.arange(256, dtype=np.float64).clip(1))
        self.centre: np.ndarray | float = 0.0
        self.scale = 1.0

    def _popularity(self) -> None:
        from hogwild.kernels.order import shuffle

        spec = self.spec
        share = np.arange(1, spec.features + 1, dtype=np.float64)
        share += spec.shift
        share = 1.0 / (share if spec.zipf == 1 else _exp(spec.zipf * _log(share)))
        total = np.cumsum(share)
        self.idf = np.empty(0)
        if spec.values == "tfidf":  # ln(1 + 1 / the number of times a row of mean length draws the word)
            self.idf = _log(1.0 + total[-1] / (spec.nnz * share))
        total *= 2.0**BITS / total[-1]
        self.cdf = total.astype(np.int64)  # (features,) a draw u of BITS bits is the first rank with cdf > u
        self.cdf[-1] = 2**BITS
        bits = min(spec.features.bit_length() + 1, 22)
        self.shift = BITS - bits
        starts = np.arange(2**bits, dtype=np.int64) << self.shift
        self.guide = np.searchsorted(self.cdf, starts, side="right").astype(np.int32)
        self.ids = np.arange(spec.features, dtype=np.int32)  # feature of each rank
        with np.errstate(over="ignore"):  # wrapping is meant, and is only seen with the JIT off
            shuffle(self.ids, spec.features, np.uint64(self.keys["ids"]))

    def _planted(self) -> None:
        bits = self._bits("planted", 0, min(self.spec.features, PLANTED))
        topic = (((bits >> np.uint64(32)) * np.uint64(2 * self.topics)) >> np.uint64(32)).astype(np.int16)
        self.topic = np.where(topic < self.topics, topic, np.int16(-1))  # (planted,) half of the words have none
        self.weight = 0.5 + (bits & np.uint64(0xFFFF)).astype(np.float64) / 65536.0

    def _bits(self, stream: str, first: int, last: int) -> np.ndarray:
        """A random 64-bit number for each row (or rank) ``first <= i < last``."""
        x = np.arange(first, last, dtype=np.uint64) * np.uint64(GOLDEN) + np.uint64(self.keys[stream])
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))

    def _normal(self, stream: str, first: int, last: int) -> np.ndarray:
        """Near-normal deviates: the sum of four 16-bit uniforms, mean 0, standard deviation 1, at most 3.46."""
        bits = self._bits(stream, first, last)
        parts = [((bits >> np.uint64(s)) & np.uint64(0xFFFF)).astype(np.int64) for s in (0, 16, 32, 48)]
        return (parts[0] + parts[1] + parts[2] + parts[3] - 131070) / 65536.0 * ROOT3

    def lengths(self, first: int, last: int) -> np.ndarray:
        """Nonzeros of each row, log-normal with mean ``nnz``."""
        spec = self.spec
        if spec.spread == 0:
            return np.full(last - first, spec.nnz, dtype=np.int64)
        half = np.array([spec.spread * ROOT3 / 2.0])
        mean = ((_exp(half) - _exp(-half)) / (2.0 * half))[0]  # of exp(spread z) is this to the fourth
        raw = spec.nnz * _exp(spec.spread * self._normal("lengths", first, last)) / (mean * mean * mean * mean)
        return np.floor(raw + 0.5).astype(np.int64).clip(1, spec.features)

    def draw(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Lengths (m,), indices and values of rows ``first <= i < last``, and their margins (m, topics)."""
        from hogwild.kernels.generate import draw_rows

        lengths = self.lengths(first, last)
        begin = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        longest = int(lengths.max())
        slots = np.zeros(1 << (2 * longest).bit_length(), dtype=np.int32)
        ranks, counts, order = (np.empty(longest, dtype=np.int64) for _ in range(3))
        indices, values = np.empty(begin[-1], np.int32), np.empty(begin[-1], np.float32)
        margins = np.zeros((last - first, self.topics))
        latent = (self._bits("topics", first, last) >> np.uint64(33)).astype(np.int64) % self.topics
        with np.errstate(over="ignore"):
            draw_rows(
                np.uint64(self.keys["words"]), first, VALUES[self.spec.values], TILT, begin, latent,
                self.cdf, self.guide, self.shift, self.ids, self.tf, self.idf, self.topic, self.weight,
                slots, ranks, counts, order, indices, values, margins,
            )  # fmt: skip
        return lengths, indices, values, margins

    def calibrate(self) -> None:
        """Offsets and scale of the planted model, from order statistics of the first rows: balanced, unit spread."""
        margins = np.concatenate([
            self.draw(first, min(first + self.chunk, PILOT))[3] for first in range(0, PILOT, self.chunk)
        ])  # fmt: skip
        if self.topics > 2:
            self.centre = np.sort(margins, axis=0)[PILOT // 2]
            return
        sorted_ = np.sort(margins[:, 1] - margins[:, 0])
        positive = self.spec.positive if self.spec.task == "classify" else 0.5
        self.centre = float(sorted_[int(PILOT * (1.0 - positive))])
        middle = float(sorted_[PILOT * 84 // 100] - sorted_[PILOT * 16 // 100])  # two standard deviations
        self.scale = 2.0 / middle if middle > 0 else 1.0

    def targets(self, first: int, margins: np.ndarray) -> np.ndarray:
        """Targets (m,) float32 of the rows from ``first`` on, whose margins are given."""
        spec, last = self.spec, first + len(margins)
        if spec.task == "classify":
            bits = self._bits("flips", first, last)
            flipped = (bits >> np.uint64(32)).astype(np.float64) < spec.noise * 2.0**32
            if self.topics == 2:
                positive = margins[:, 1] - margins[:, 0] > self.centre
                return np.where(positive ^ flipped, 1.0, -1.0).astype(np.float32)
            best = (margins - self.centre).argmax(axis=1)
            other = 1 + (bits & np.uint64(0xFFFFFFFF)).astype(np.int64) % (self.topics - 1)
            return (1 + (best + flipped * other) % self.topics).astype(np.float32)
        planted = (margins[:, 1] - margins[:, 0] - self.centre) * self.scale
        planted = planted + spec.noise * self._normal("flips", first, last)
        return (planted if spec.task == "regress" else self._poisson(planted, first, last)).astype(np.float32)

    def _poisson(self, planted: np.ndarray, first: int, last: int) -> np.ndarray:
        """Poisson counts of rate exp(planted), at most e^3, by inversion of the distribution function."""
        rate = _exp(planted.clip(-5.0, 3.0))
        uniform = (self._bits("topics", first, last) & np.uint64(0xFFFFFFFF)).astype(np.float64) / 2.0**32
        term = _exp(-rate)
        below, counts = term.copy(), np.zeros(len(rate))
        for k in range(1, 80):
            counts += uniform >= below
            term = term * rate / k
            below += term
        return counts


GOLDEN = 0x9E3779B97F4A7C15
ROOT3 = math.sqrt(3.0)
LN2 = 0.6931471805599453


def _mix(x: int) -> int:
    x = (x + GOLDEN) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def _exp(x: np.ndarray) -> np.ndarray:
    """exp to about 1e-10, from exactly rounded operations only: the same bits everywhere, as np.exp is not."""
    y = np.asarray(x, np.float64) / 1024.0
    s = 1.0 + y * (1.0 + y / 2.0 * (1.0 + y / 3.0 * (1.0 + y / 4.0 * (1.0 + y / 5.0))))
    for _ in range(10):
        s = s * s
    return s


def _log(x: np.ndarray) -> np.ndarray:
    """The natural logarithm, likewise: mantissa by the series of artanh, |t| <= 0.172."""
    mantissa, exponent = np.frexp(np.asarray(x, np.float64))
    low = mantissa < 0.7071067811865476
    mantissa = np.where(low, mantissa * 2.0, mantissa)
    t = (mantissa - 1.0) / (mantissa + 1.0)
    square, series = t * t, np.zeros_like(t)
    for k in range(19, 0, -2):
        series = series * square + 1.0 / k
    return 2.0 * t * series + (exponent - low) * LN2
