"""The directory of compiled kernels, named by a hash of everything that numba's own cache ignores.

Numba's disk cache notices an edit of the file that holds a kernel, but not of the files that the kernel calls into, nor
a changed ``NUMBA_*`` flag: it would run stale machine code. So the directory's name hashes all files with kernels
(``kernels/*.py`` and every ``*kernel.py``) and those flags. ``cache.py`` puts only our kernels there, so that the
library, the command and the worker processes share what one of them has compiled. Hashing takes under a millisecond.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

announce: list[Callable[[], None]] = []  # called once, when a kernel must be compiled while a person waits
KEPT = 6  # directories of other versions to keep: a bisection or two checkouts should not recompile at every switch


@lru_cache(None)
def kernel_directory(chosen: str, flags: str) -> Path | None:
    """Directory for kernels that are compiled with ``flags``; None if none can be kept.

    Parameters
    ----------
    chosen : str
        Where the user wants numba's caches (``NUMBA_CACHE_DIR``), or empty; the directory is made in it.
    flags : str
        Whatever else the machine code depends on: numba's version and settings.
    """
    name = f"kernels-{_digest(flags)}"
    try:
        return next((root / name for root in _roots(chosen) if _usable(root / name)), None)
    except OSError:  # not even a directory for temporary files
        return None


def is_current(directory: Path, flags: str) -> bool:
    """Whether no file with kernels was edited since this process named the directory."""
    return directory.name == f"kernels-{_digest(flags)}"


def _roots(chosen: str) -> Iterator[Path]:
    if chosen:
        yield Path(chosen)
    with contextlib.suppress(ImportError):  # a GPU's benchmark runs without it
        import platformdirs

        yield Path(platformdirs.user_cache_dir("hogwild"))
    yield Path(tempfile.gettempdir(), f"hogwild-{os.getuid()}")


def _digest(flags: str) -> str:
    digest = hashlib.sha256(flags.encode())
    package = Path(__file__).parents[1]
    for path in sorted((*package.glob("kernels/*.py"), *package.glob("*/**/*kernel.py"))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _usable(directory: Path) -> bool:
    """Make the directory; return False if it cannot be written or another user could have put code in it."""
    try:
        fresh = not directory.exists()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = directory.stat()
        # Cached kernels are pickles: whoever owns or can write to the directory (in /tmp, say) could run code as this
        # user.
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
    """Remove all but the latest caches of other versions; one still in use is made again."""
    others = [path for path in directory.parent.glob("kernels-*") if path != directory]
    for path in sorted(others, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]:
        shutil.rmtree(path, ignore_errors=True)
