"""Names of hashed features, such as ``site=example.org``, kept because a hash cannot be undone.

A table's store holds them in the order of their buckets, and a model holds those of its heaviest weights, so that what
it learned can be read when the table is gone.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

SHARED = 3  # names shown for a bucket: those that came first in the table
KEPT, FEWEST = (
    1000,
    10,
)  # heaviest weights of each sign whose names a model keeps: over all classes; per class at least
NAMES = {"name_buckets": "<i4", "name_ends": "<i8", "name_text": "|u1"}  # arrays of a store


class Names:
    """Names of features by their buckets.

    Parameters
    ----------
    buckets : array of int32, shape (n,)
        Ascending; names that share a bucket are in the order of the table.
    ends : array of int64, shape (n,)
        Where each name ends in ``text`` and the next one begins.
    text : array of uint8
        UTF-8.
    """

    def __init__(self, buckets: np.ndarray, ends: np.ndarray, text: np.ndarray) -> None:
        self.buckets = buckets
        self.ends = ends
        self.text = text

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays in a store's format."""
        return dict(zip(NAMES, (self.buckets, self.ends, self.text), strict=True))

    def of(self, wanted: Iterable[int]) -> dict[int, list[str]]:
        """Return up to ``SHARED`` names of each bucket that has any."""
        found: dict[int, list[str]] = {}
        asked = np.unique(np.fromiter(wanted, np.int64))
        first = np.searchsorted(self.buckets, asked)
        last = np.minimum(np.searchsorted(self.buckets, asked, side="right"), first + SHARED)
        for bucket, begin, end in zip(asked.tolist(), first.tolist(), last.tolist()):
            starts = [int(self.ends[at - 1]) if at else 0 for at in range(begin, end)]
            texts = [bytes(self.text[start : self.ends[at]]) for start, at in zip(starts, range(begin, end))]
            if texts:
                found[bucket] = [text.decode("utf-8", "replace") for text in texts]
        return found


def heaviest(
    weights: np.ndarray,  # (width,) float32
    count: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the ``count`` largest weights above zero, largest first, and of the smallest below it."""
    found = []
    for sign in (1, -1):
        at = np.flatnonzero(sign * weights > 0)
        size = np.abs(weights[at])
        if len(at) > count:
            part = np.argpartition(-size, count - 1)[:count]
            at, size = at[part], size[part]
        found.append(at[np.lexsort((at, -size))])
    return found[0], found[1]


def names_of_heaviest(
    coef: np.ndarray,  # (classes, width) float32, or (width,)
    names: Names | None,
) -> dict[int, list[str]]:
    """Return the names a model keeps, those at its heaviest weights of each sign; nothing if the data had no names."""
    if names is None:
        return {}
    coef = np.atleast_2d(coef)
    count = max(KEPT // len(coef), FEWEST)
    return names.of({int(at) for weights in coef for side in heaviest(weights, count) for at in side})
