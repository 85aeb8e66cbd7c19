"""Synthetic data named like files: ``synthetic:rcv1?rows=200000&seed=1``, the same bits on every machine.

Rows are documents drawn word by word (``generate_kernel.py``). Word popularity falls as ``1 / (rank + shift)^zipf``;
ranks are assigned to feature numbers at random, as in real data. Half of the planted words belong to a topic; a row
favours one topic by rejecting most words of the others. Labels come from a planted sparse linear model on those words
(the topic with the largest margin), and a share of them is then flipped, so a linear model can come close to
``1 - noise``.

Only operations that IEEE 754 rounds exactly are used, logarithms and powers included (``portable_log``,
``portable_exp``), and each row has a random stream of its own; a test pins a checksum. A nonzero takes about 50 ns on
one core.

With ``fields`` rows are those of a table of clicks instead: one feature of each field (:class:`FieldGenerator`).

``rcv1`` is shaped after the text set of Lewis et al. (2004): 47,236 features, 73 nonzeros a row, the most popular
feature in 45 % of the rows (43 % in the original; with ``shift=0``, plain Zipf, it is in 97 %).
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from hogwild.data import synthetic as common
from hogwild.data.cache import Pieces, Recipe
from hogwild.data.parallel import BytesRead
from hogwild.data.rows.container import Rows
from hogwild.data.rows.store import ROWS
from hogwild.errors import InputError

GENERATOR = 1  # version of the bits below; part of a cache entry's key
VALUES = {"tfidf": 0, "binary": 1, "counts": 2, "real": 3}  # codes in generate_kernel.py
PLANTED = 1 << 16  # ranks that may carry a planted weight; rarer words are uninformative
TILT = 3277  # of 4096: share of another topic's words that a row rejects
PILOT = 4096  # rows used to compute offsets and scales of the targets
CHUNK = 1 << 20  # nonzeros generated at a time
FALL = 8.0  # natural logarithm of the first field's features over the last one's, if there are many fields
STREAMS = {"words": 1, "lengths": 2, "topics": 3, "flips": 4, "planted": 5, "ids": 6, "factors": 7}


def row_recipe(name: str, progress: BytesRead | None = None) -> Recipe:
    """Return the recipe of the rows called ``name``.

    Raises
    ------
    InputError
        If the name is wrong.
    """
    dials = common.parse(name, "rows")
    if dials.nnz > dials.features or (dials.task == "classify" and dials.noise > 0.5):
        raise InputError(f"{name}: expected nnz up to features, and noise up to 0.5 for labels")
    if dials.rank and not dials.fields:
        raise InputError(f"{name}: rank needs fields")
    clicks = dials.values == "binary" and dials.nnz == dials.fields and not dials.spread and dials.classes == 2
    if dials.fields and not (clicks and 2 * dials.fields <= dials.features):
        raise InputError(f"{name}: fields need values=binary, spread=0, two classes, two features each, and no nnz")

    def pieces() -> Pieces:
        source = (FieldGenerator if dials.fields else RowGenerator)(dials)
        source.calibrate()
        for first in range(0, dials.rows, source.chunk):
            last = min(first + source.chunk, dials.rows)
            lengths, indices, values, margins = source.draw(dials.skip + first, dials.skip + last)
            targets = source.targets(dials.skip + first, margins)
            yield Rows.of_lengths(lengths, indices, values, targets, width=dials.features)
            if progress is not None:
                progress(last, dials.rows)
        return {"width": dials.features, "fields": source.fields}

    return common.recipe_of(dials, dials.rows, GENERATOR, pieces, ROWS)


class RowGenerator:
    """Tables of one spec, and the functions from row numbers to rows; results do not depend on how rows are grouped."""

    fields: np.ndarray | None = None  # (features,) int16
    centre: np.ndarray | float = 0.0
    scale = 1.0

    def __init__(self, spec: SimpleNamespace) -> None:
        self.spec = spec
        self.chunk = max(1, CHUNK // spec.nnz)
        self.keys = common.stream_keys(spec.seed, STREAMS)
        self.topics = spec.classes if spec.task == "classify" else 2
        share = common.popularity(spec.features, spec.zipf, spec.shift)
        idf = np.empty(0)
        if spec.values == "tfidf":  # ln(1 + 1 / the number of times a row of mean length draws the word)
            idf = common.portable_log(1.0 + np.cumsum(share)[-1] / (spec.nnz * share))
        bits = self._bits("planted", 0, min(spec.features, PLANTED))
        topic = (((bits >> np.uint64(32)) * np.uint64(2 * self.topics)) >> np.uint64(32)).astype(np.int16)
        ids = common.deal(self.keys["ids"], spec.features)  # feature of each rank
        tf = 1.0 + common.portable_log(np.arange(256, dtype=np.float64).clip(1))
        topic = np.where(topic < self.topics, topic, np.int16(-1))  # (planted,) half of the words have none
        weight = 0.5 + (bits & np.uint64(0xFFFF)).astype(np.float64) / 65536.0
        self.tables = (*common.cumulative(share), ids, tf, idf, topic, weight)

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
        from hogwild.data.generate_kernel import draw_rows

        lengths = self.lengths(first, last)
        begin, longest = np.append(0, np.cumsum(lengths)), int(lengths.max())
        slots = np.zeros(1 << (2 * max(longest, 8)).bit_length(), dtype=np.int32)
        scratch = (slots, *np.empty((3, longest), dtype=np.int64))
        indices, values = np.empty(begin[-1], np.int32), np.empty(begin[-1], np.float32)
        margins = np.zeros((last - first, self.topics))
        latent = (self._bits("topics", first, last) >> np.uint64(33)).astype(np.int64) % self.topics
        law = np.uint64(self.keys["words"]), first, VALUES[self.spec.values], TILT
        with np.errstate(over="ignore"):
            draw_rows(*law, begin, latent, *self.tables, *scratch, indices, values, margins)
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
        return (planted + spec.noise * common.normal(self._bits("flips", first, last))).astype(np.float32)


class FieldGenerator(RowGenerator):
    """Rows with one feature of each field, whose label depends on the features and on pairs of neighbouring fields.

    Fields have ever fewer features, the first about as many as all others of ten; within a field their popularity falls
    as that of words. A row's margin is

        sum_f w_i + sum_f <p_i, q_j> / sqrt(rank),    i: the row's feature of field f; j: that of the field behind f

    (behind the last field comes the first). All numbers are near normal, so both sums vary alike. A linear model learns
    the first sum, a field-aware machine both; a plain one has to serve all pairs of fields by one factor.
    """

    def __init__(self, spec: SimpleNamespace) -> None:
        self.spec = spec
        self.chunk = max(1, CHUNK // spec.fields)
        self.keys = common.stream_keys(spec.seed, STREAMS)
        self.topics = 2
        share = common.portable_exp(-FALL / spec.fields * np.arange(spec.fields))
        sizes = 2 + np.floor((spec.features - 2 * spec.fields) * share / np.cumsum(share)[-1]).astype(np.int64)
        sizes[0] += spec.features - sizes.sum()
        self.first = np.append(0, np.cumsum(sizes))  # rank at which each field begins
        self.popularity = [common.cumulative(common.popularity(int(size), spec.zipf, spec.shift))[0] for size in sizes]
        self.ids = common.deal(self.keys["ids"], spec.features)  # feature of each rank
        self.fields = np.empty(spec.features, np.int16)
        self.fields[self.ids] = np.repeat(np.arange(spec.fields), sizes)
        self.weight = common.normal(self._bits("planted", 0, spec.features))
        factors = common.normal(self._bits("factors", 0, 2 * spec.rank * spec.features))
        self.factors = factors.astype(np.float32).reshape(2, spec.rank, spec.features)

    def draw(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """See :meth:`RowGenerator.draw`; the margins are zero and the row's."""
        count, n = self.spec.fields, last - first
        drawn = (self._bits("words", count * first, count * last) >> np.uint64(12)).astype(np.int64).reshape(n, count)
        ranks = np.empty((count, n), np.int64)
        for field, cdf in enumerate(self.popularity):
            ranks[field] = self.first[field] + np.searchsorted(cdf, drawn[:, field], side="right")
        margins, pairs = np.zeros((n, 2)), np.zeros(n)
        for here, behind in zip(ranks, np.roll(ranks, -1, axis=0)):  # sums in one order, for the same bits everywhere
            margins[:, 1] += self.weight[here]
            for p, q in zip(*self.factors):
                pairs += p[here].astype(np.float64) * q[behind]
        margins[:, 1] += pairs / np.sqrt(max(self.spec.rank, 1))
        indices = np.sort(self.ids[ranks.T], axis=1).ravel()
        return np.full(n, count), indices, np.ones(len(indices), np.float32), margins
