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
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from hogwild.data.bits import MOST_BITS, check_bits
from hogwild.data.rows.container import PIECE, Rows, chunks, frozen_array
from hogwild.errors import HogwildWarning, InputError

if TYPE_CHECKING:
    from hogwild.data.cache import Recipe

LARGEST = 2**64 - 1  # index, as the text writes it
CROWDED = 0.5  # warn if more than this share of the features shares a bucket
ROOMY = 0.2  # the share that is left with the bits that the warning suggests


def hash_entries(lengths: Any, indices: Any, values: Any, bits: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the row lengths, the buckets and the values of hashed rows, which are copies.

    Raises
    ------
    InputError
        If a sum of values that share a bucket exceeds float32.
    """
    from hogwild.data.text import hashing_kernel as hashing

    lengths, buckets = np.array(lengths, np.int64), np.empty(len(indices), np.int32)
    with np.errstate(over="ignore"):  # wrapping is intended, and is only visible with the JIT off
        hashing.hash_indices(frozen_array(indices, np.int32), bits, buckets)
    buckets, values, _, bad = sort_rows(lengths, buckets, np.array(values, np.float32), bits)
    if bad >= 0:
        raise InputError("the sum of the values of a row's features that share a bucket is beyond float32")
    return lengths, buckets, values


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

    Warns
    -----
    HogwildWarning
        If more than half of the features share a bucket.

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
    hashed = hashed_copy(rows, bits)
    warn_if_crowded("the rows", hashed)
    return hashed


def hashed_pieces(rows: Rows, bits: int) -> Iterator[Rows]:
    """Yield the same rows in hashed copies of about a million entries each, for one pass in bounded memory."""
    for first, last in chunks(rows, PIECE):
        yield hashed_copy(rows.block(first, last), bits)


def hashed_copy(rows: Rows, bits: int) -> Rows:
    """Do :func:`hash_rows` without its warning."""
    if rows.hash_bits is not None:
        raise InputError(f"the features are {_said(rows.hash_bits)} already: hash the data they were made from")
    bits = check_bits(bits)
    indptr, indices, values = rows.flat()
    lengths, indices, values = hash_entries(np.diff(indptr), indices, values, bits)
    end = np.cumsum(lengths)
    entries = {"begin": end - lengths, "end": end, "indices": indices, "values": values, "store": None}
    return rows.block(0, len(rows)).replace(**entries, width=2**bits, hash_bits=bits, fields=None)


def hashed_recipe(recipe: Recipe, bits: int) -> Recipe:
    """Return a recipe that hashes the rows of ``recipe``; it has its own cache entry."""

    def fill(writer: Any) -> dict[str, Any]:
        def append(lengths: Any, indices: Any, values: Any, *others: Any) -> None:
            writer.append(*hash_entries(lengths, indices, values, bits), *others)

        return recipe.fill(SimpleNamespace(append=append)) | {"hash_bits": bits, "width": 2**bits, "fields": None}

    return dataclasses.replace(recipe, key=recipe.key and recipe.key | {"hash_bits": bits}, fill=fill, stored=None)


# -- collisions -------------------------------------------------------------------------------------------------------


def features_in(used: int, bits: int) -> int:
    """Estimate how many features were hashed, from ``used`` of 2^bits buckets: if all are, at least so many."""
    return round(-(2**bits) * math.log1p(-min(used, 2**bits - 1) / 2**bits))


def warn_if_crowded(name: str, rows: Rows) -> None:
    """Warn if most features of hashed rows share a bucket, and say how many bits would do.

    With fewer entries than half the buckets they cannot, and nothing is counted.
    """
    bits = rows.hash_bits
    if bits is None or 2 * rows.nnz < rows.width:
        return
    features = features_in(int(np.count_nonzero(rows.degrees())), bits)
    enough = enough_bits(features, bits)
    now, then = _share(features, bits), _share(features, enough)
    if now > CROWDED:
        remedy = f": --hash-bits {enough} would make it {100 * then:.0f} %" if enough > bits else ""
        message = f"{name}: {100 * now:.0f} % of the features share one of 2^{bits} buckets with others{remedy}"
        warnings.warn(message, HogwildWarning, stacklevel=3)


def enough_bits(features: int, least: int, most: int = MOST_BITS) -> int:
    """Return a number of bits, from ``least`` to ``most``, that leaves four of five features a bucket of their own."""
    return next((bits for bits in range(least, most) if _share(features, bits) <= ROOMY), most)


def _share(features: int, bits: int) -> float:
    """Probability that a feature's bucket holds another feature too."""
    return 1.0 - math.exp(-max(features - 1, 0) / 2**bits)


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
    if expected is None:
        remedy = "give the data before hashing"
    elif found is None:
        remedy = f"hogwild convert --hash-bits {expected}, or hash_rows, hashes them"
    else:
        remedy = f"convert their source with --hash-bits {expected}"
    raise InputError(f"{name}: the features are {_said(found)}, {what} {_said(expected)}: {remedy}")


def _said(bits: int | None) -> str:
    return "not hashed" if bits is None else f"hashed to 2^{bits}"
