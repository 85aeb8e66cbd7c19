"""Atomic operations: what they do alone; what four threads do through them is in ``test_contention.py``."""

from __future__ import annotations

import re

import numba
import numpy as np
import pytest
from numba import njit, types

from hogwild.kernels import atomics, locks
from hogwild.kernels.options import JIT
from tests.kernels.harness import from_python

load, store, compare_exchange, prefetch = map(
    from_python, (atomics.load, atomics.store, atomics.compare_exchange, atomics.prefetch)
)
needs_jit = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="atomic only when compiled")


@njit(**JIT)
def fetch_add(array, index, value):
    return atomics.fetch_add(array, index, value)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32])
def test_load_store_and_fetch_add(dtype):
    array = np.array([1, 2, 3], dtype)
    assert fetch_add(array, 1, dtype(5)) == 2
    store(array, 2, dtype(-4))
    assert load(array, 2) == -4
    assert array.tolist() == [1, 7, -4]
    assert array.dtype == dtype


@pytest.mark.parametrize(
    "function", [compare_exchange, atomics.compare_exchange], ids=["compiled", "what it means in Python"]
)
@pytest.mark.parametrize(
    ("held", "expected", "swapped"),
    [
        (1.5, 1.5, True),
        (1.5, 1.25, False),
        (np.nan, np.nan, True),
        (np.nan, 1.0, False),
        (1.0, np.nan, False),
        (-0.0, -0.0, True),
        (-0.0, 0.0, False),
        (0.0, -0.0, False),
        (np.inf, np.inf, True),
    ],
)
def test_compare_exchange_compares_bits(function, held, expected, swapped):
    """Not values: NaN differs from itself, and a loop that waits for it to be equal would never end."""
    array = np.array([7, held], np.float32)
    assert function(array, 1, np.float32(expected), np.float32(2)) == swapped
    assert array.tobytes() == np.array([7, 2 if swapped else held], np.float32).tobytes()


def test_prefetch_touches_nothing_even_far_past_the_end():
    array = np.arange(4, dtype=np.float32)
    for index in (0, 3, 4, 10**6, 10**12):
        prefetch(array, index)
    assert array.tolist() == [0, 1, 2, 3]
    prefetch(array[:0], 0)


@needs_jit
@pytest.mark.parametrize(
    ("function", "instruction"),
    [
        (locks.acquire, r"cmpxchg .* acquire monotonic"),
        (locks.release, r"store atomic i32 0, .* release"),
        (locks.wait_for, r"load atomic i64, .* acquire"),
        (fetch_add, r"atomicrmw add .* monotonic"),
    ],
    ids=["acquire", "release", "wait", "add"],
)
def test_instructions(function, instruction):
    """What no run on x86 could tell apart from a plain store, which other processors would reorder."""
    numbers = types.int64[::1]
    signatures = {
        locks.acquire: (types.int32[::1], types.int64, numbers, types.int64),
        locks.release: (types.int32[::1], types.int64),
        locks.wait_for: (numbers, types.int64, types.int64, numbers, types.int64),
        fetch_add: (numbers, types.int64, types.int64),
    }
    fresh = njit(signatures[function], nogil=True)(function.py_func)  # one from the disk cache cannot be looked into
    assert re.search(instruction, next(iter(fresh.inspect_llvm().values())))
