"""File locks that show who is using a directory; they vanish with their process, so nothing in use is ever removed.

A store's ``indices.npy`` is locked on behalf of the whole directory. Readers hold a shared lock on it through the
descriptor that their memory map keeps, so the lock lives exactly as long as the mapping; writers and removers take an
exclusive one. A killed process holds no locks, so what it left behind is known to be abandoned without process ids,
which may belong to another machine or be reused. Where the file system has no locks, nothing is removed.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import time
from pathlib import Path
from typing import BinaryIO

LOCKED = "indices.npy"
TEMPORARY = ".hogwild-tmp-"  # part of the name of a directory that is being written or removed
ABANDONED_AFTER = 3600.0  # seconds without even a file to lock


def lock_shared(file: BinaryIO) -> None:
    """Wait for a shared lock (a remover holds its own only briefly); take none where locks are not supported."""
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_SH)
    except OSError:
        pass


def lock_exclusive(file: BinaryIO) -> bool | None:
    """Return True if the lock was taken, False if another process holds one, None where locks are not supported."""
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def still_named(file: BinaryIO, path: Path) -> bool:
    """Return whether ``path`` still is the open ``file``, neither removed nor replaced."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except OSError:
        return False


def make_temporary(path: Path) -> Path:
    """Make an empty directory beside ``path`` that ``sweep`` recognises as temporary."""
    folder = path.parent / f".{path.name[:100]}{TEMPORARY}{secrets.token_hex(6)}"
    folder.mkdir()
    return folder


def sweep(folder: Path) -> None:
    """Remove the temporary directories that killed processes left in ``folder``."""
    try:
        found = [entry for entry in folder.iterdir() if entry.name.startswith(".") and TEMPORARY in entry.name]
    except OSError:
        return
    for entry in found:
        remove_unused(entry, ABANDONED_AFTER)


def remove_unused(folder: Path, unlockable_after: float = 0.0) -> bool:
    """Remove ``folder`` unless another process holds its lock; return whether it is gone.

    A folder without the file to lock (damaged, or its writer was killed before making it) is removed once it is
    ``unlockable_after`` seconds old.
    """
    try:
        if not (folder / LOCKED).exists():
            if time.time() - folder.stat().st_mtime < unlockable_after:
                return False
            shutil.rmtree(folder)
            return True
        with open(folder / LOCKED, "r+b") as file:
            if not lock_exclusive(file) or not still_named(file, folder / LOCKED):  # replaced before it was locked
                return False
            if TEMPORARY not in folder.name:  # renamed in one step, so that nobody opens a partly removed store
                aside = make_temporary(folder)
                os.rename(folder, aside)  # onto an empty directory, as POSIX allows
                folder = aside
            shutil.rmtree(folder)
    except OSError:
        return False
    return True
