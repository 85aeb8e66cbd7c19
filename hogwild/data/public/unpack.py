"""Extracts members of archives without trusting what an archive says.

No name from an archive becomes a path. A member is chosen by a pattern, must be a regular file, and is written under a
name made here, so ``../`` and links have no effect. Text that is only compressed (.gz, .bz2, .xz) is not unpacked: the
parsers read it as it is.
"""

from __future__ import annotations

import fnmatch
import importlib
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from hogwild.errors import InputError, OutputError

BLOCK = 1 << 20
MAGIC = {b"PK\x03\x04": "zip", b"PK\x05\x06": "zip", b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz"}
OPENERS = {"gzip": "gzip", "bzip2": "bz2", "xz": "lzma"}
DAMAGE = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, ValueError)
LISTED = 4  # members named in a message if none fits


def kind(path: Path) -> str:
    """Return a file's packing by its first bytes: zip, tar, gzip, bzip2, xz or plain."""
    with open(path, "rb") as file:
        head = file.read(512)
    if head[257:262] == b"ustar":
        return "tar"
    return next((name for magic, name in MAGIC.items() if head.startswith(magic)), "plain")


def is_archive(path: Path) -> bool:
    """Return whether the file is an archive of files, rather than one text.

    Raises
    ------
    InputError
        If it is compressed and damaged.
    """
    found = kind(path)
    try:
        return found in ("zip", "tar") or (found != "plain" and tarfile.is_tarfile(path))
    except DAMAGE as error:
        raise _damaged(path, error) from None


def verify(path: Path, called: str) -> None:
    """Read a packed file to its end, to check it.

    Raises
    ------
    InputError
        If it is damaged or truncated; ``called`` is its name in the message.
    """
    found = kind(path)
    try:
        if found in ("zip", "tar"):
            for _, open_member in _members(path):
                if open_member is not None:
                    with open_member() as member:
                        _read_to_end(member)
        elif found != "plain":
            with importlib.import_module(OPENERS[found]).open(path, "rb") as text:
                _read_to_end(text)
    except DAMAGE as error:
        raise _damaged(called, error) from None


def _read_to_end(stream: Any) -> None:
    while stream.read(BLOCK):
        pass


def _damaged(called: str | Path, error: Exception) -> InputError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return InputError(f"{called}: the archive is damaged: {reason}")


def fits(name: str, pattern: str) -> bool:
    """Return whether ``name``, or its part after the last ``/``, fits a shell pattern, or one of ``A|B``."""
    last = name.rpartition("/")[2]
    return any(fnmatch.fnmatchcase(it, one) for it in (name, last) for one in pattern.split("|"))


def unpack(archive: Path, pattern: str, folder: Path) -> list[Path]:
    """Write the members of a zip or tar archive whose names fit ``pattern`` to ``folder``, in order of their names.

    Parameters
    ----------
    pattern : str
        See :func:`fits`.
    folder : Path
        An empty directory.

    Raises
    ------
    InputError
        If none fits, or the archive is damaged or encrypted.
    OutputError
        If they cannot be written.
    """
    found: list[tuple[str, Path]] = []
    others: list[str] = []
    try:
        for name, open_member in _members(archive):
            if open_member is None or not fits(name, pattern):
                others.append(name)
                continue
            path = folder / f"{len(found)}-{re.sub('[^A-Za-z0-9._-]', '_', name)[-80:]}"
            _copy(open_member, path)
            found.append((name, path))
    except OutputError:
        raise
    except DAMAGE as error:
        raise _damaged(archive, error) from None
    if not found:
        named = (name if name.isprintable() and len(name) < 80 else f"{name[:80]!r}" for name in others[:LISTED])
        some = ", ".join(named) + (", ..." if len(others) > LISTED else "")
        raise InputError(f"{archive}: no {pattern} in the archive{f', which holds {some}' if some else ''}")
    return [path for _, path in sorted(found)]


def _members(archive: Path) -> Iterator[tuple[str, Callable[[], Any] | None]]:
    """Yield the name of each member, and the function that opens it, or None if it is not a regular file."""
    if kind(archive) == "zip":
        with zipfile.ZipFile(archive) as packed:
            for info in packed.infolist():
                yield info.filename, None if info.is_dir() else partial(packed.open, info)
    else:
        with tarfile.open(archive, "r:*") as tape:
            for entry in tape:
                yield entry.name, partial(tape.extractfile, entry) if entry.isreg() else None


def _copy(open_member: Callable[[], Any], path: Path) -> None:
    try:
        with open_member() as member, open(path, "xb") as file:
            while block := member.read(BLOCK):
                file.write(block)
    except OSError as error:
        if error.errno is None:  # the archive is at fault
            raise
        raise OutputError(f"{path.parent}: cannot unpack there: {error.strerror}") from None
