"""Arrays that every worker sees: many named arrays in one block of memory, shared or private, and views of them.

With one block there is one file descriptor to pass, and one place for the alignment to cache lines. A shared block is
torch's shared storage over a memory file that never has a name: nothing is left behind however a process dies, and the
size of ``/dev/shm``, which is 64 MB in a container, does not matter (torch's own files lie there, and a full one kills
with a bus error, not an exception).

In a worker's view some pages may be its own (:func:`overlaid`). A tiered worker of a wide model keeps private copies of
popular weights and shares all others; both lie where one array would have them, so no kernel asks for each weight where
it is, which took a seventh of the speed.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hogwild.errors import OutputError
from hogwild.machine import check_memory

if TYPE_CHECKING:
    import torch

REMEDY = "use host='threads' (--host threads), which needs none"
CACHE_LINE = 64  # bytes in a cache line: every array starts on one
PAGE = mmap.PAGESIZE // 4  # float32 in a page
MAYMOVE, FIXED = 1, 0x10  # flags of mremap and mmap on Linux
FAILED = ctypes.c_void_p(-1).value
Shape = tuple[int, ...]


class Block:
    """Named arrays in one piece of memory.

    Parameters
    ----------
    spec : mapping of name to (shape, dtype)
    shared : bool
        Use torch's shared memory; a :class:`hogwild.hosts.processes.Channel` passes it on without a copy.
    mapped : bool
        Private memory is to be a mapping too, as :func:`overlaid` needs it.

    Raises
    ------
    OutputError
        If the system gives no memory.
    """

    def __init__(self, spec: Mapping[str, tuple[Shape, Any]], shared: bool, mapped: bool = False) -> None:
        self.spec = dict(spec)
        size = sum(_padded(shape, dtype) for shape, dtype in self.spec.values()) + CACHE_LINE
        self.tensor: torch.Tensor | np.ndarray
        if shared:
            self.tensor = _share(size)
        elif mapped:
            self.tensor = np.frombuffer(mmap.mmap(-1, size), dtype=np.uint8)
        else:
            self.tensor = np.zeros(size, dtype=np.uint8)
        self.arrays = self._carve()

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]

    @classmethod
    def copy(cls, arrays: Mapping[str, np.ndarray], shared: bool) -> Block:
        """Return a block that holds copies of some arrays."""
        block = cls({name: (array.shape, array.dtype) for name, array in arrays.items()}, shared)
        for name, array in arrays.items():
            block[name][...] = array
        return block

    def readonly(self) -> dict[str, np.ndarray]:
        """Return read-only views of the arrays, as kernels expect data."""
        views = {name: array.view() for name, array in self.arrays.items()}
        for view in views.values():
            view.flags.writeable = False
        return views

    @classmethod
    def at(cls, descriptor: int, spec: Mapping[str, tuple[Shape, Any]]) -> Block:
        """Map another process's block, given its :meth:`descriptor`, without torch."""
        block = cls.__new__(cls)
        block.spec = dict(spec)
        block.tensor = np.frombuffer(mmap.mmap(descriptor, 0), dtype=np.uint8)
        block.arrays = block._carve()
        return block

    def descriptor(self) -> int:
        """Return a descriptor by which another process can map the same memory; the block keeps owning it."""
        if isinstance(self.tensor, np.ndarray):
            raise TypeError("a private block belongs to its process")  # and would be aligned differently elsewhere
        return int(self.tensor.untyped_storage()._share_fd_cpu_()[0])

    def _carve(self) -> dict[str, np.ndarray]:
        whole = self.tensor if isinstance(self.tensor, np.ndarray) else self.tensor.numpy()
        offset = -whole.__array_interface__["data"][0] % CACHE_LINE
        arrays = {}
        for name, (shape, dtype) in self.spec.items():
            count = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
            arrays[name] = whole[offset : offset + count].view(dtype).reshape(shape)
            offset += _padded(shape, dtype)
        return arrays


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
        length = 4 * (end - begin)
        if length:
            _check(_libc().mmap(address + 4 * begin, length, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0), length)
    return view


@lru_cache(None)
def can_overlay() -> bool:
    """Whether this system maps memory twice; Linux does."""
    if sys.platform != "linux":
        return False
    try:
        array = np.frombuffer(mmap.mmap(-1, 2 * mmap.PAGESIZE), dtype=np.float32)
        view = overlaid(array, [(0, PAGE)])
    except (OSError, AttributeError, OutputError):
        return False
    array[0] = array[PAGE] = 1
    return bool(view[0] == 0 and view[PAGE] == 1)


class _Mapping:
    """Mapped memory, which is given back when no array refers to it."""

    def __init__(self, address: int, count: int) -> None:
        self._unmap = _libc().munmap  # kept: at exit, modules go first
        self._range = address, 4 * count
        typestr = np.dtype(np.float32).str
        self.__array_interface__ = {"data": (address, False), "shape": (count,), "version": 3, "typestr": typestr}

    def __del__(self) -> None:
        self._unmap(*self._range)


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


def _padded(shape: Shape, dtype: Any) -> int:
    return -(-int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize // CACHE_LINE) * CACHE_LINE


def _share(size: int) -> torch.Tensor:
    """Allocate zeroed bytes in shared memory of ``torch.multiprocessing``."""
    import torch

    check_memory("shared arrays", size, f"; {REMEDY}")
    try:
        descriptor = os.memfd_create("hogwild-arrays")
        try:
            os.truncate(descriptor, size)
            storage = torch.UntypedStorage._new_shared_fd_cpu(descriptor, size)  # which has a descriptor of its own
        finally:
            os.close(descriptor)
    except (OSError, RuntimeError) as error:  # no descriptors left, or a limit on files or memory
        reason = str(error).partition("\n")[0]
        raise OutputError(f"cannot share {math.ceil(size / 2**20)} MiB: {reason}; {REMEDY}") from error
    return torch.empty(0, dtype=torch.uint8).set_(storage)
