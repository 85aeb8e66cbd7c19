"""Arrays that every worker sees: many named arrays in one block of memory, shared or private.

With one block there is one file descriptor to pass, one size to check against ``/dev/shm`` beforehand (a full one kills
with a bus error, not an exception), and one place for the alignment to cache lines. Shared blocks come from torch: they
are unlinked as soon as they are mapped, so nothing is left behind however a process dies.
"""

from __future__ import annotations

import contextlib
import glob
import math
import mmap
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hogwild.errors import OutputError

if TYPE_CHECKING:
    import torch

REMEDY = "use host='threads' (--host threads), which needs none"
CACHE_LINE = 64  # bytes in a cache line: every array starts on one
Shape = tuple[int, ...]


class Block:
    """Named arrays in one piece of memory.

    Parameters
    ----------
    spec : mapping of name to (shape, dtype)
    shared : bool
        Use torch's shared memory; a :class:`hogwild.hosts.channel.Channel` passes it on without a copy.
    mapped : bool
        Private memory is to be a mapping too, as ``hosts/overlay.py`` needs it.

    Raises
    ------
    OutputError
        If ``/dev/shm`` has no room for it.
    """

    def __init__(self, spec: Mapping[str, tuple[Shape, Any]], shared: bool, mapped: bool = False) -> None:
        self.spec = dict(spec)
        size = sum(_padded(shape, dtype) for shape, dtype in self.spec.values()) + CACHE_LINE
        self.tensor: torch.Tensor | np.ndarray
        if shared:
            _check_room(size)
            self.tensor = _share(size)
        elif mapped:
            self.tensor = np.frombuffer(mmap.mmap(-1, size), dtype=np.uint8)
        else:
            self.tensor = np.zeros(size, dtype=np.uint8)
        self.arrays = self._carve()

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]

    def readonly(self, name: str) -> np.ndarray:
        """Return a read-only view of an array, as kernels expect data."""
        view = self.arrays[name].view()
        view.flags.writeable = False
        return view

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


def _padded(shape: Shape, dtype: Any) -> int:
    return -(-int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize // CACHE_LINE) * CACHE_LINE


def _share(size: int) -> torch.Tensor:
    """Allocate zeroed bytes in shared memory, as ``torch.multiprocessing`` does."""
    import torch

    before = _named()
    try:
        storage = torch.UntypedStorage._new_using_fd_cpu(size)
    except RuntimeError as error:  # /dev/shm missing or read-only, no descriptors left, a limit on files or memory
        for name in _named() - before:  # torch sizes a segment, maps it, and only then removes its name
            with contextlib.suppress(OSError):
                if os.stat(name).st_size in (0, size):  # otherwise another thread owns it
                    os.unlink(name)
        raise OutputError(f"cannot share {math.ceil(size / 2**20)} MiB: {_first_line(error)}; {REMEDY}") from error
    return torch.empty(0, dtype=torch.uint8).set_(storage)


def _named() -> set[str]:
    """Names of this process's segments that are not unlinked yet."""
    return set(glob.glob(f"/dev/shm/torch_{os.getpid()}_*"))


def _check_room(size: int) -> None:
    try:
        stat = os.statvfs("/dev/shm")
    except OSError:
        return  # no such directory: torch uses another place
    free = stat.f_bavail * stat.f_frsize
    if stat.f_blocks and free < size:  # a size of 0 means no limit
        raise OutputError(
            f"/dev/shm has {free / 2**20:.0f} MiB free and {math.ceil(size / 2**20)} MiB are needed: enlarge it "
            f"(docker run --shm-size=2g, mount -o remount,size=2G /dev/shm) or {REMEDY}"
        )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
