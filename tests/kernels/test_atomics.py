"""Atomic operations: what they do alone, and that four threads lose nothing through them."""

from __future__ import annotations

import re
import threading

import numba
import numpy as np
import pytest
from numba import njit, types

from hogwild.kernels import atomics, locks
from hogwild.kernels.options import JIT

THREADS, TIMES = 4, 200_000
needs_jit = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="atomic only when compiled")


@njit(**JIT)
def fetch_add(array, index, value):
    return atomics.fetch_add(array, index, value)


@njit(**JIT)
def load(array, index):
    return atomics.load(array, index)


@njit(**JIT)
def store(array, index, value):
    atomics.store(array, index, value)


@njit(**JIT)
def compare_exchange(array, index, expected, value):
    return atomics.compare_exchange(array, index, expected, value)


@njit(**JIT)
def prefetch(array, index):
    atomics.prefetch(array, index)


@njit(**JIT)
def add_often(cells, times):
    for i in range(times):
        atomics.fetch_add(cells, i % len(cells), 1)


@njit(**JIT)
def exchange_often(cells, times):
    for i in range(times):
        u = i % len(cells)
        while True:
            old = atomics.load(cells, u)
            if atomics.compare_exchange(cells, u, old, old + 1):
                break


@njit(**JIT)
def wait_then_answer(cells):
    while atomics.load(cells, 0) == 0:  # a plain read would be hoisted out of the loop
        pass
    atomics.store(cells, 8, cells[16])


def in_threads(function, *args):
    threads = [threading.Thread(target=function, args=args) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


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
@pytest.mark.parametrize("function", [add_often, exchange_often])
@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_no_addition_is_lost(function, dtype):
    cells = np.zeros(8, dtype)
    in_threads(function, cells, TIMES)
    assert cells.tolist() == [THREADS * TIMES / 8] * 8


@needs_jit
def test_store_publishes_what_was_written_before():
    cells = np.zeros(24, np.int64)
    thread = threading.Thread(target=wait_then_answer, args=(cells,), daemon=True)
    thread.start()
    cells[16] = 5
    store(cells, 0, 1)
    thread.join(timeout=120)
    assert not thread.is_alive()
    assert cells[8] == 5


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
