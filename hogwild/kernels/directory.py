"""Where compiled kernels are kept: a directory named by a hash of everything numba's own cache does not look at.

Numba's disk cache notices an edit of the file a kernel is in, but not of the files that kernel calls into, nor a
changed ``NUMBA_*`` flag: it would replay machine code from before. So the directory's name hashes all of
``kernels/*.py`` and those flags. ``cache.py`` puts our kernels there, and nobody else's, so that the library,
the command and the worker processes share what one of them has compiled. Costs under a millisecond.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import platformdirs

announce: list[Callable[[], None]] = []  # what to call, once, when a kernel must be compiled and a person waits
KEPT = 6  # directories of other versions that stay: a bisection or two checkouts should not recompile at each turn


@lru_cache(None)
def kernel_directory(chosen: str, flags: str) -> Path | None:
    """The directory for kernels that are compiled with ``flags``; None where none can be kept.

    Parameters
    ----------
    chosen : str
        Where the user wants numba's caches (``NUMBA_CACHE_DIR``): the directory is made in it. Else empty.
    flags : str
        Whatever else the machine code depends on: numba's version and settings.
    """
    name = f"kernels-{_digest(flags)}"
    try:
        return next((root / name for root in _roots(chosen) if _usable(root / name)), None)
    except OSError:  # no directory for temporary files either
        return None


def _roots(chosen: str) -> Iterator[Path]:
    if chosen:
        yield Path(chosen)
    yield Path(platformdirs.user_cache_dir("hogwild"))
    yield Path(tempfile.gettempdir(), f"hogwild-{os.getuid()}")


def _digest(flags: str) -> str:
    digest = hashlib.sha256(flags.encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _usable(directory: Path) -> bool:
    """Make the directory; False where it cannot be written or another user could have put code in it."""
    try:
        fresh = not directory.exists()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = directory.stat()
        # Cached kernels are pickles: a directory that others own or write to (in /tmp, say) lets them run code as us.
        if facts.st_uid != os.getuid() or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return False
        if not os.access(directory, os.W_OK | os.X_OK):
            return False
        if fresh:
            _prune(directory)
    except OSError:
        return False
    return True


def _prune(directory: Path) -> None:
    """Remove all but the latest caches of other versions; it is made again if it was still in use."""
    others = [path for path in directory.parent.glob("kernels-*") if path != directory]
    for path in sorted(others, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]:
        shutil.rmtree(path, ignore_errors=True)
