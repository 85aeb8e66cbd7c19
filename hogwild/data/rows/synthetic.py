"""Synthetic data named like files: ``synthetic:rcv1?rows=200000&seed=1``, the same bits on every machine.

Rows are documents drawn word by word (``generate_kernel.py``). Word popularity falls as ``1 / (rank + shift)^zipf``;
ranks are assigned to feature numbers at random, as in real data. Half of the planted words belong to a topic; a row
favours one topic by rejecting most words of the others. Labels come from a planted sparse linear model on those words
(the topic with the largest margin), and a share of them is then flipped, so a linear model can come close to
``1 - noise``.

Only operations that IEEE 754 rounds exactly are used, logarithms and powers included (``portable_log``,
``portable_exp``), and each row has a random stream of its own; a test pins a checksum. A nonzero takes about 50 ns on
one core.

``rcv1`` is shaped after the text set of Lewis et al. (2004): 47,236 features, 73 nonzeros a row, the most popular
feature in 45 % of the rows (43 % in the original; with ``shift=0``, plain Zipf, it is in 97 %).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hogwild.data import synthetic as common
from hogwild.data.cache import Recipe
from hogwild.data.parallel import BytesRead
from hogwild.data.rows.container import INDEX_LIMIT
from hogwild.data.rows.store import ROWS, Sink
from hogwild.data.synthetic import choice, dial

GENERATOR = 1  # version of the bits below; part of a cache entry's key
VALUES = {"tfidf": 0, "binary": 1, "counts": 2, "real": 3}  # codes in generate_kernel.py
TASKS = ("classify", "regress", "counts")
PLANTED = 1 << 16  # ranks that may carry a planted weight; rarer words are uninformative
TILT = 3277  # of 4096: share of another topic's words that a row rejects
PILOT = 4096  # rows used to compute offsets and scales of the targets
CHUNK = 1 << 20  # nonzeros generated at a time
STREAMS = {"words": 1, "lengths": 2, "topics": 3, "flips": 4, "planted": 5, "ids": 6}


@dataclass(frozen=True)
class SyntheticSpec(common.Spec):
    """Parameters of a synthetic set; those left out of a name take their family's defaults.

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
        Number of rows to leave out at the start: this gives fresh rows of the same planted model, for a test set.
    """

    family: str = "rcv1"
    rows: int = dial(50_000, 1, 2**40)
    features: int = dial(47_236, 2, INDEX_LIMIT)
    nnz: int = dial(73, 1, INDEX_LIMIT)
    spread: float = dial(0.7, 0, 2)
    zipf: float = dial(1.0, 0, 4)
    shift: float = dial(15.0, 0, 1e9)
    values: str = choice("tfidf", VALUES)
    task: str = choice("classify", TASKS)
    classes: int = dial(2, 2, 64)
    positive: float = dial(0.5, 0.01, 0.99)
    noise: float = dial(0.03, 0, 10)
    seed: int = dial(0, 0, 2**63 - 1)
    skip: int = dial(0, 0, 2**40)

    kind = "set"
    families: ClassVar[dict[str, dict[str, Any]]] = {
        "rcv1": {},
        # no hot feature anywhere: two rows meet with a probability of 1.6 %
        "uniform": {"rows": 100_000, "features": 65_536, "nnz": 32, "spread": 0.0, "zipf": 0.0, "values": "binary"},
        # click logs: a model larger than any cache, rows of equal length, a quarter positive
        "ctr": {
            "rows": 100_000,
            "features": 1 << 24,
            "nnz": 39,
            "spread": 0.0,
            "shift": 2.0,
            "values": "binary",
            "positive": 0.25,
            "noise": 0.1,
        },
        # every row holds every feature: a case that lock-free training is not suited for
        "dense": {"rows": 50_000, "features": 64, "nnz": 64, "spread": 0.0, "zipf": 0.0, "values": "real"},
    }

    def limits(self) -> dict[str, tuple[float, float]]:
        return {"nnz": (1, self.features), "noise": (0, 0.5 if self.task == "classify" else 10)}

    @classmethod
    def usual(cls, family: str, given: Mapping[str, Any]) -> dict[str, Any]:
        usual = super().usual(family, given)
        if family == "dense":
            usual["nnz"] = given.get("features", usual["features"])
        if given.get("task", "classify") != "classify":
            usual["noise"] = 0.1 if given["task"] == "regress" else 0.0
        return usual


def recipe(spec: SyntheticSpec, progress: BytesRead | None = None) -> Recipe:
    """Return the recipe for the data of ``spec``."""
    label = f"synthetic-{spec.family}-{spec.rows}"
    return spec.recipe(label, str(GENERATOR), lambda sink: _pour(spec, sink, progress), ROWS)


def _pour(spec: SyntheticSpec, sink: Sink, progress: BytesRead | None) -> dict[str, Any]:
    source = RowGenerator(spec)
    source.calibrate()
    for first in range(0, spec.rows, source.chunk):
        last = min(first + source.chunk, spec.rows)
        lengths, indices, values, margins = source.draw(spec.skip + first, spec.skip + last)
        sink.append(lengths, indices, values, source.targets(spec.skip + first, margins))
        if progress is not None:
            progress(last, spec.rows)
    return {"width": spec.features}


class RowGenerator:
    """Tables of one spec, and the functions from row numbers to rows; results do not depend on how rows are grouped."""

    def __init__(self, spec: SyntheticSpec) -> None:
        self.spec = spec
        self.chunk = max(1, CHUNK // spec.nnz)
        self.keys = common.stream_keys(spec.seed, STREAMS)
        self.topics = spec.classes if spec.task == "classify" else 2
        self._popularity()
        self._planted()
        self.tf = 1.0 + common.portable_log(np.arange(256, dtype=np.float64).clip(1))
        self.centre: np.ndarray | float = 0.0
        self.scale = 1.0

    def _popularity(self) -> None:
        spec = self.spec
        share = common.popularity(spec.features, spec.zipf, spec.shift)
        self.idf = np.empty(0)
        if spec.values == "tfidf":  # ln(1 + 1 / the number of times a row of mean length draws the word)
            self.idf = common.portable_log(1.0 + np.cumsum(share)[-1] / (spec.nnz * share))
        self.cdf, self.guide, self.shift = common.cumulative(share)
        self.ids = common.deal(self.keys["ids"], spec.features)  # feature of each rank

    def _planted(self) -> None:
        bits = self._bits("planted", 0, min(self.spec.features, PLANTED))
        topic = (((bits >> np.uint64(32)) * np.uint64(2 * self.topics)) >> np.uint64(32)).astype(np.int16)
        self.topic = np.where(topic < self.topics, topic, np.int16(-1))  # (planted,) half of the words have none
        self.weight = 0.5 + (bits & np.uint64(0xFFFF)).astype(np.float64) / 65536.0

    def _bits(self, stream: str, first: int, last: int) -> np.ndarray:
        """A random 64-bit number for each row (or rank) ``first <= i < last``."""
        return common.random_bits(self.keys[stream], first, last)

    def lengths(self, first: int, last: int) -> np.ndarray:
        """Number of nonzeros of each row, log-normal with mean ``nnz``."""
        spec = self.spec
        if spec.spread == 0:
            return np.full(last - first, spec.nnz, dtype=np.int64)
        half = np.array([spec.spread * common.ROOT3 / 2.0])
        mean = ((common.portable_exp(half) - common.portable_exp(-half)) / (2.0 * half))[0]
        drawn = common.portable_exp(spec.spread * common.normal(self._bits("lengths", first, last)))
        raw = spec.nnz * drawn / (mean * mean * mean * mean)  # the mean of exp(spread z) is the fourth power
        return np.floor(raw + 0.5).astype(np.int64).clip(1, spec.features)

    def draw(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Lengths (m,), indices and values of rows ``first <= i < last``, and their margins (m, topics)."""
        from hogwild.data.rows.generate_kernel import draw_rows

        lengths = self.lengths(first, last)
        begin = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        longest = int(lengths.max())
        slots = np.zeros(1 << (2 * max(longest, 8)).bit_length(), dtype=np.int32)
        ranks, counts, order = (np.empty(longest, dtype=np.int64) for _ in range(3))
        indices, values = np.empty(begin[-1], np.int32), np.empty(begin[-1], np.float32)
        margins = np.zeros((last - first, self.topics))
        latent = (self._bits("topics", first, last) >> np.uint64(33)).astype(np.int64) % self.topics
        with np.errstate(over="ignore"):
            draw_rows(
                np.uint64(self.keys["words"]),
                first,
                VALUES[self.spec.values],
                TILT,
                begin,
                latent,
                self.cdf,
                self.guide,
                self.shift,
                self.ids,
                self.tf,
                self.idf,
                self.topic,
                self.weight,
                slots,
                ranks,
                counts,
                order,
                indices,
                values,
                margins,
            )
        return lengths, indices, values, margins

    def calibrate(self) -> None:
        """Set offsets and scale of the planted model from order statistics of the first rows: balanced, unit spread."""
        margins = np.concatenate(
            [self.draw(first, min(first + self.chunk, PILOT))[3] for first in range(0, PILOT, self.chunk)]
        )
        if self.topics > 2:
            self.centre = np.sort(margins, axis=0)[PILOT // 2]
            return
        sorted_ = np.sort(margins[:, 1] - margins[:, 0])
        positive = self.spec.positive if self.spec.task == "classify" else 0.5
        self.centre = float(sorted_[int(PILOT * (1.0 - positive))])
        middle = float(sorted_[PILOT * 84 // 100] - sorted_[PILOT * 16 // 100])  # two standard deviations
        self.scale = 2.0 / middle if middle > 0 else 1.0

    def targets(self, first: int, margins: np.ndarray) -> np.ndarray:
        """Targets (m,) float32 of the rows from ``first`` on with the given margins."""
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
        planted = planted + spec.noise * common.normal(self._bits("flips", first, last))
        return (planted if spec.task == "regress" else self._poisson(planted, first, last)).astype(np.float32)

    def _poisson(self, planted: np.ndarray, first: int, last: int) -> np.ndarray:
        """Poisson counts of rate exp(planted), at most e^3, by inversion of the distribution function."""
        rate = common.portable_exp(planted.clip(-5.0, 3.0))
        uniform = (self._bits("topics", first, last) & np.uint64(0xFFFFFFFF)).astype(np.float64) / 2.0**32
        term = common.portable_exp(-rate)
        below, counts = term.copy(), np.zeros(len(rate))
        for k in range(1, 80):
            counts += uniform >= below
            term = term * rate / k
            below += term
        return counts
