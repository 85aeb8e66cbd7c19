"""Where compiled kernels are kept: a directory named by a hash of everything numba's own cache does not look at.

Numba's disk cache notices an edit of the file a kernel is in, but not of the files that kernel calls into, nor a
changed ``NUMBA_*`` flag: it would replay machine code from before. So the directory's name hashes all of
``kernels/*.py`` and those flags. It must be set before numba is imported, by a program (``__main__``,
``tests/conftest.py``), never by importing the library, which would impose it on the caller's own kernels. Costs under
a millisecond.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, MutableMapping
from pathlib import Path

import platformdirs

KEPT = 6  # directories of other versions that stay: a bisection or two checkouts should not recompile at each turn


def use_kernel_cache(environ: MutableMapping[str, str]) -> Path | None:
    """Set ``NUMBA_CACHE_DIR`` in ``environ`` (usually ``os.environ``) and return the directory; None if there is none.

    A value the user chose is left alone; one that this function chose, inherited from a parent process with other
    flags, is chosen again beside it.
    """
    given = Path(environ["NUMBA_CACHE_DIR"]) if environ.get("NUMBA_CACHE_DIR") else None
    if given is not None and not re.fullmatch(r"kernels-[0-9a-f]{16}", given.name):
        return given
    name = f"kernels-{_digest(environ)}"
    try:
        directory = next(root / name for root in _roots(given) if _usable(root / name))
    except (OSError, StopIteration):  # kernels/cache.py goes on without
        return None
    environ["NUMBA_CACHE_DIR"] = str(directory)
    return directory


def _roots(given: Path | None) -> Iterator[Path]:
    """Where the directory may be; a temporary one, of no use to another run, comes last."""
    if given is not None:
        yield given.parent
    yield Path(platformdirs.user_cache_dir("hogwild"))
    yield Path(tempfile.gettempdir(), f"hogwild-{os.getuid()}")
    yield Path(tempfile.mkdtemp(prefix="hogwild-"))


def _digest(environ: MutableMapping[str, str]) -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).with_name("kernels").glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    flags = sorted(item for item in environ.items() if item[0].startswith("NUMBA_") and item[0] != "NUMBA_CACHE_DIR")
    digest.update(repr(flags).encode())
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
    """Remove all but the latest caches of other versions; numba makes one again if it was still in use."""
    others = [path for path in directory.parent.glob("kernels-*") if path != directory]
    for path in sorted(others, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]:
        shutil.rmtree(path, ignore_errors=True)
