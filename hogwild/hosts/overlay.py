"""A view of shared memory in which some pages are the viewer's own.

A tiered worker of a wide model keeps private copies of the popular weights and shares all others. In its view both lie
where one array would have them, so no kernel asks for each weight where it is: that took a seventh of the speed. The
memory is mapped a second time, and private pages replace some of it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from hogwild.errors import OutputError

PAGE = mmap.PAGESIZE // 4  # float32 in a page
MAYMOVE, FIXED = 1, 0x10  # flags of mremap and mmap on Linux
FAILED = ctypes.c_void_p(-1).value


class _Mapping:
    """Mapped memory, which is given back when no array refers to it."""

    def __init__(self, address: int, count: int) -> None:
        self._unmap, self._about = _libc().munmap, (address, 4 * count)  # kept: at exit, modules go first
        self.__array_interface__ = {"data": (address, False), "shape": (count,), "typestr": "<f4", "version": 3}

    def __del__(self) -> None:
        self._unmap(*self._about)


def overlaid(shared: np.ndarray, parts: Sequence[tuple[int, int]]) -> np.ndarray:
    """Map an array once more, with zeros of the caller's own in place of ``parts``.

    Parameters
    ----------
    shared : array of float32, shape (n,)
        The begin of a page of a shared mapping, and whole pages.
    parts : sequence of (int, int)
        Begin and end of each, multiples of ``PAGE``.

    Raises
    ------
    OutputError
        If the system has no memory or mapping left.
    """
    start, size = shared.__array_interface__["data"][0], shared.nbytes
    if start % mmap.PAGESIZE or any(bound % PAGE for bound in (len(shared), *sum(parts, ()))):
        raise ValueError(f"an array of {size} bytes at {start:#x} and parts {parts} are no whole pages")
    address = _libc().mremap(start, 0, size, MAYMOVE)  # of length 0: the old mapping stays
    _check(address, size)
    view = np.asarray(_Mapping(address, len(shared)))
    flags = FIXED | mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    for begin, end in parts:
        own = 4 * (end - begin)
        if own:
            _check(_libc().mmap(address + 4 * begin, own, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0), own)
    return view


@lru_cache(None)
def can_overlay() -> bool:
    """Whether this system maps memory twice; Linux does."""
    if sys.platform != "linux" or sys.byteorder != "little":
        return False
    try:
        array = np.frombuffer(mmap.mmap(-1, 2 * mmap.PAGESIZE), dtype=np.float32)
        view = overlaid(array, [(0, PAGE)])
    except (OSError, AttributeError, OutputError):
        return False
    array[0] = array[PAGE] = 1
    return bool(view[0] == 0 and view[PAGE] == 1)


def _check(address: int | None, size: int) -> None:
    if address is None or address == FAILED:
        raise OutputError(
            f"cannot map {size} bytes: {os.strerror(ctypes.get_errno())}; use renumber='never' (--renumber never)"
        )


@lru_cache(None)
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    libc.mremap.restype = libc.mmap.restype = pointer
    libc.mremap.argtypes = [pointer, size, size, ctypes.c_int]
    libc.mmap.argtypes = [pointer, size, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [pointer, size]
    return libc
