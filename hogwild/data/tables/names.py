"""Names of a table's features: those found while its rows are made, or those of requested buckets.

A hash cannot be undone, so names are collected where values are hashed: with more bits than the rows keep, so that
features which share a bucket can be told apart, and only the first million of them. That costs a bit for each fine
bucket and a lookup for each entry.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from hogwild.data.names import Names
from hogwild.data.rows.container import readonly
from hogwild.data.tables.columns import Categories, Words, bucket_of, text_of
from hogwild.data.tables.plan import TablePlan

FINE, FINER = 26, 8  # bits that tell features apart: 8 MiB of marks; most bits beyond the rows' own
MOST, BYTES = 1 << 20, 64 << 20  # limits of the names collected
LONGEST = 100  # characters of a value

Found = tuple[np.ndarray, Any]  # fine buckets (n,) int32 and their names, a pyarrow array


class Gathering:
    """Collects names: threads look for new ones in their pieces, and one thread keeps them in order.

    Parameters
    ----------
    bits : int
        Bits of the rows' buckets.
    wanted : whole numbers, optional
        Buckets whose names are wanted; by default all.
    """

    def __init__(self, bits: int, wanted: Iterable[int] | None = None) -> None:
        self.bits, self.coarse = max(bits, min(FINE, bits + FINER)), bits
        self.full = False
        self._seen = np.full(max(2**self.bits >> 3, 1), 0 if wanted is None else 255, np.uint8)
        for bucket in wanted or ():
            fine = (bucket << self.shift()) + np.arange(1 << self.shift())
            np.bitwise_and.at(self._seen, fine >> 3, ~(1 << (fine & 7)).astype(np.uint8))
        self._kept: list[Found] = []
        self._count = self._bytes = 0

    def shift(self) -> int:
        """Number of bits by which a fine bucket is shifted to give one of the rows' buckets."""
        return self.bits - self.coarse

    def categories(self, column: Categories, values: Any, codes: np.ndarray) -> Found:
        """Return the new names among a column's values, whose fine buckets are ``codes``."""
        rows, codes = self._fresh(codes)
        return codes, _prefixed(column.column.name, column.texts(values.take(rows)))

    def words(self, name: str, words: Words) -> Found:
        """Return the new names among a column's words."""
        at, codes = self._fresh(words.codes)
        return codes, _prefixed(name, words.texts(at))

    def _fresh(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return where each bucket not seen before first occurs, and these buckets."""
        from hogwild.data.text.hashing_kernel import unmarked

        found = np.empty(0 if self.full else len(codes), np.int64)
        at = found[: unmarked(self._seen, readonly(codes), found)]
        buckets, first = np.unique(codes[at], return_index=True)
        order = np.argsort(first)  # names are kept in the order of the table
        return at[first[order]], buckets[order]

    def add(self, found: Iterable[Found]) -> None:
        """Keep the names of the table's next piece; pieces come in order."""
        import pyarrow as pa

        from hogwild.data.text.hashing_kernel import mark_each

        for codes, names in found:
            if self.full:
                return
            new = np.empty(len(codes), np.bool_)
            mark_each(self._seen, readonly(codes), new)
            kept = codes[new], names.filter(pa.array(new))
            self._kept.append(kept)
            self._count, self._bytes = self._count + len(kept[0]), self._bytes + kept[1].nbytes
            self.full = self._count >= MOST or self._bytes >= BYTES

    def names(self, plan: TablePlan) -> Names:
        """Return all names found, with those that follow from the plan."""
        import pyarrow as pa

        told = [(bucket, name) for bucket, names in plan_names(plan).items() for name in names]
        buckets = [np.array([bucket for bucket, _ in told], np.int32)]
        texts = [pa.array([name for _, name in told], pa.large_string())]
        for codes, names in self._kept:
            buckets.append(codes >> self.shift())
            texts.append(names)
        order = np.argsort(np.concatenate(buckets), kind="stable")
        starts, text = text_of(pa.concat_arrays(texts).take(pa.array(order)))
        return Names(np.concatenate(buckets)[order], starts[1:], text[: starts[-1]])


def _prefixed(column: str, texts: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    cut = pc.utf8_slice_codeunits(texts.cast(pa.large_string()), 0, LONGEST)
    prefix, nothing = (pa.scalar(text, pa.large_string()) for text in (f"{column}=", ""))
    return pc.binary_join_element_wise(prefix, cut, nothing)


def plan_names(plan: TablePlan) -> dict[int, list[str]]:
    """Return the names known without reading the table: those of numeric columns and of their missing values."""
    found: dict[int, list[str]] = {}
    for column in plan.of_role("numeric"):
        for name in (column.name, f"{column.name}="):
            found.setdefault(bucket_of(name, plan.hash_bits), []).append(name)
    return found
