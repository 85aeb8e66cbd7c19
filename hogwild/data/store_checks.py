"""Checks of a store beyond its checksums, so that no kernel leaves its arrays and every error is one line.

Checksums find damage. They do not find a faulty writer or a forged store: for these the facts of ``meta.json`` are
checked on every opening, and the numbers in the arrays wherever all are read anyway.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.data.columns import REMEDY
from hogwild.errors import HogwildError, InputError

PIECE = 1 << 20  # numbers checked at a time
HASHING = ("share", "bits", "features", "full")  # facts of hashed rows that are numbers


@contextlib.contextmanager
def usable(path: Path) -> Iterator[None]:
    """Turn errors from missing or wrong facts in meta.json into one line that begins with ``path``."""
    try:
        yield
    except HogwildError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise InputError(f"{path}: damaged store: meta.json cannot be used ({what}); {REMEDY}") from None


def check_facts(meta: dict[str, Any]) -> None:
    """Raise KeyError, TypeError or ValueError if the facts of any rows are unusable."""
    for name in ("warnings", "hashing"):
        if not isinstance(meta.get(name) or {}, dict):
            raise TypeError(f"{name} is {repr(meta[name])[:40]}")
    for name in HASHING if meta.get("hashing") else ():
        float(meta["hashing"][name])
    if meta.get("table") is not None:
        from hogwild.data.tables.plan import TablePlan

        TablePlan.from_json(meta["table"])


def check_counts(path: Path, meta: dict[str, Any], *names: str) -> None:
    """Raise InputError unless these facts of ``meta`` are whole numbers that can be lengths of arrays."""
    for name in names:
        count = meta[name]
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < 2**48:
            said = repr(count)[:40]
            raise InputError(f"{path}: damaged store: {name} is {said}, expected a whole number from 0; {REMEDY}")


def check_range(path: Path, name: str, numbers: np.ndarray, size: int) -> None:
    """Raise InputError if one of ``numbers`` would make a kernel leave an array of this size.

    This takes as long as reading the numbers, so it is meant for arrays that are read anyway.
    """
    for first in range(0, len(numbers), PIECE):
        part = numbers[first : first + PIECE]
        if (low := int(part.min())) < 0 or int(part.max()) >= size:
            found = low if low < 0 else int(part.max())
            raise InputError(f"{path}: damaged store: {name}.npy holds {found}, expected 0 to {size - 1}; {REMEDY}")


def check_offsets(path: Path, indptr: np.ndarray, nnz: int) -> None:
    """Raise InputError unless a store's offsets have the right first and last value and ascend."""
    ok = indptr[0] == 0 and indptr[-1] == nnz
    step = 1 << 22
    for first in range(0, len(indptr), step):  # one wrong offset would make a kernel leave its arrays
        part = indptr[first : first + step + 1]
        ok = ok and bool((part[1:] >= part[:-1]).all())
    if not ok:
        raise InputError(f"{path}: damaged store: indptr.npy does not ascend from 0 to {nnz}; {REMEDY}")
