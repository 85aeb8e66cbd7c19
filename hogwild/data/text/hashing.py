"""Feature hashing: any index below 2^64 becomes one of 2^B buckets, so a model's size is chosen rather than found.

The hash is fixed, and part of every hashed store and model: the bucket of the zero-based index i is the top B bits of
the first output of splitmix64 seeded with i (Steele, Lea, Flood 2014), an invertible mixing of 64 bits. It is applied
*after* 1-based text is shifted to 0, so data hash alike whether numbered from 0, from 1, or given as a matrix. It has
no seed, so data and model need to agree on B only.

The hash is unsigned, as in Vowpal Wabbit. The signs of Weinberger et al. (2009, "Feature hashing for large scale
multitask learning") make inner products unbiased, which a method with fixed weights needs; a linear model learns the
weight of each bucket as it is. Signs would make counts negative, let two values of a row cancel, and change the length
of rows that are normalised.

The cost is that features in one bucket share a weight, and their identity is lost. Values of one row that fall into the
same bucket are summed. From m buckets, u of them used, the number of features is estimated as ``n = -m ln(1 - u/m)``
(linear counting, Whang et al. 1990), and a feature collides with probability ``1 - exp(-(n - 1) / m)``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from hogwild.data.bits import check_bits
from hogwild.data.rows.container import PIECE, Rows, chunks, readonly
from hogwild.errors import InputError

if TYPE_CHECKING:
    from hogwild.data.cache import Pieces, Recipe

LARGEST = 2**64 - 1  # index, as the text writes it
SHARED = 0.2  # of the features, at most, share a bucket where the number of bits is chosen


def sort_rows(
    lengths: np.ndarray, indices: np.ndarray, values: np.ndarray, bits: int
) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Sort hashed rows by bucket and sum repeated buckets, in place.

    Returns
    -------
    indices, values : arrays, shape (nnz,)
        Leading parts of the arrays given; ``lengths`` (n,) is updated.
    summed : int
        Rows in which values were summed.
    bad : int
        The first row with a sum beyond float32, or -1.
    """
    from hogwild.data.text import hashing_kernel as hashing

    longest = int(lengths.max(initial=0))
    spare = np.empty(longest, np.int32), np.empty(longest, np.float32), np.empty(hashing.BINS, np.int64)
    with np.errstate(over="ignore"):
        nnz, summed, bad = hashing.sort_rows(lengths, indices, values, bits, *spare)
    return indices[:nnz], values[:nnz], int(summed), int(bad)


def hash_rows(rows: Rows, bits: int) -> Rows:
    """Return a copy in memory of rows whose features are hashed to ``2**bits``, which is its width.

    Parameters
    ----------
    rows : Rows
        Not hashed yet.
    bits : int
        1 to 30.

    Raises
    ------
    InputError
        If they are hashed already, or a sum of values exceeds float32.
    UsageError
        For ``bits`` out of range.

    See Also
    --------
    hogwild.open_data : with ``hash_bits``, hashes what it reads.

    Examples
    --------
    >>> import hogwild
    >>> from hogwild.data.text.hashing import hash_rows
    >>> hash_rows(hogwild.open_data("synthetic:uniform?rows=9&features=500&nnz=5", cache=None), 10).width
    1024
    """
    from hogwild.data.text import hashing_kernel as hashing

    if rows.hash_bits is not None:
        raise InputError(f"the features are {_said(rows.hash_bits)} already: hash the data they were made from")
    bits = check_bits(bits)
    indptr, indices, values = rows.flat()
    lengths, buckets = np.diff(indptr), np.empty(len(indices), np.int32)
    with np.errstate(over="ignore"):  # wrapping is intended, and is only visible with the JIT off
        hashing.hash_indices(readonly(indices), bits, buckets)
    indices, values, _, bad = sort_rows(lengths, buckets, np.array(values), bits)
    if bad >= 0:
        raise InputError("the sum of the values of a row's features that share a bucket is beyond float32")
    end = np.cumsum(lengths)
    entries = {"begin": end - lengths, "end": end, "indices": indices, "values": values, "store": None}
    return rows.block(0, len(rows)).replace(**entries, width=2**bits, hash_bits=bits, fields=None)


def hashed_pieces(rows: Rows, bits: int) -> Iterator[Rows]:
    """Yield the same rows in hashed copies of about a million entries each, for one pass in bounded memory."""
    for first, last in chunks(rows, PIECE):
        yield hash_rows(rows.block(first, last), bits)


def hashed_recipe(recipe: Recipe, bits: int) -> Recipe:
    """Return a recipe that hashes the rows of ``recipe``; it has its own cache entry."""

    def pieces() -> Pieces:
        for rows in recipe.pieces():
            yield from hashed_pieces(rows, bits)
        return {"hash_bits": bits, "width": 2**bits}

    return dataclasses.replace(recipe, key=recipe.key and recipe.key | {"hash_bits": bits}, pieces=pieces, stored=None)


# -- how many bits ----------------------------------------------------------------------------------------------------


def enough_bits(used: int, counted: int, least: int, most: int) -> int:
    """Return a number of bits, from ``least`` to ``most``, that leaves four of five features a bucket of their own.

    Parameters
    ----------
    used : int
        Of ``2**counted`` buckets, into which all features were hashed; if all are, there are at least so many features.
    """
    buckets = 2**counted
    features = round(-buckets * math.log1p(-min(used, buckets - 1) / buckets))
    alone = math.log1p(-SHARED) / -max(features - 1, 1)
    return next((bits for bits in range(least, most) if 2**-bits <= alone), most)


# -- one hash for data and model --------------------------------------------------------------------------------------


def check_same(found: int | None, expected: int | None, name: str, what: str = "expected them") -> None:
    """Refuse rows whose hashing differs from the expected one; None means not hashed.

    Raises
    ------
    InputError
        One line: ``name``, what its features are, what they should be, and what to do.
    """
    if found == expected:
        return
    remedy = "without --hash-bits" if expected is None else f"with --hash-bits {expected}"
    raise InputError(
        f"{name}: the features are {_said(found)}, {what} {_said(expected)}: convert their source {remedy}"
    )


def _said(bits: int | None) -> str:
    return "not hashed" if bits is None else f"hashed to 2^{bits}"
