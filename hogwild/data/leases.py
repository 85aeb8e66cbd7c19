"""Who is using a directory: file locks that vanish with their process, so that nothing in use is ever removed.

A store's ``indices.npy`` stands for the whole directory. Readers hold a shared lock on it through the descriptor their
memory map keeps, so the lock lives as long as the mapping and not longer; writers and removers take an exclusive one. A
killed process holds no locks: what it left behind is known to be dead, without process ids, which may be another
machine's or used again. Where the file system has no locks, nothing is removed.
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
    """Wait for a shared lock (a remover holds its own for the blink of an eye); none where locks do not exist."""
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_SH)
    except OSError:
        pass


def lock_exclusive(file: BinaryIO) -> bool | None:
    """True if the lock was had, False if somebody else has one, None where locks do not exist."""
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def still_named(file: BinaryIO, path: Path) -> bool:
    """Whether ``path`` still is the open ``file``, and not removed or replaced."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except OSError:
        return False


def make_temporary(path: Path) -> Path:
    """A new empty directory beside ``path`` that ``sweep`` knows for a temporary."""
    folder = path.parent / f".{path.name[:100]}{TEMPORARY}{secrets.token_hex(6)}"
    folder.mkdir()
    return folder


def sweep(folder: Path) -> None:
    """Remove the temporaries that killed processes have left in ``folder``."""
    try:
        found = [entry for entry in folder.iterdir() if entry.name.startswith(".") and TEMPORARY in entry.name]
    except OSError:
        return
    for entry in found:
        remove_unused(entry, ABANDONED_AFTER)


def remove_unused(folder: Path, unlockable_after: float = 0.0) -> bool:
    """Remove ``folder`` unless somebody holds its lock; says whether it is gone.

    A folder without the file to lock (killed before it was made, or damaged) goes once it is ``unlockable_after``
    seconds old.
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
            if TEMPORARY not in folder.name:  # leaves its name in one step, so that nobody opens half of it
                aside = make_temporary(folder)
                os.rename(folder, aside)  # onto an empty directory, as POSIX allows
                folder = aside
            shutil.rmtree(folder)
    except OSError:
        return False
    return True
