"""Zip archives of NumPy arrays from anywhere: nothing is unpickled, and claimed sizes are checked before allocation.

An array's header is compared with the bytes that follow it before any memory is allocated, which NumPy's own reader
does not do for archives; and an archive may not unpack to more than the available memory.
"""

from __future__ import annotations

import contextlib
import math
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from hogwild import machine
from hogwild.errors import InputError

MOST_MEMBERS = 100_000
DATE = (1980, 1, 1, 0, 0, 0)  # the same for all members, so that equal models make equal files


@contextlib.contextmanager
def opened(path: Path, what: str) -> Iterator[zipfile.ZipFile]:
    """Yield the archive ``path``, and turn any error within the block into one line.

    Raises
    ------
    InputError
        If it is missing, not an archive, damaged, or larger than memory when unpacked.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            _check_size(archive)
            yield archive
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except zipfile.BadZipFile as error:
        raise InputError(f"{path}: not {what}{_kind(path)}: {error}") from error
    except (zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:  # as zipfile and numpy raise
        raise InputError(f"{path}: not a readable archive: {error}") from error


def _check_size(archive: zipfile.ZipFile) -> None:
    members = archive.infolist()
    names = {member.filename for member in members}
    size, available = sum(member.file_size for member in members), machine.memory()[1]
    if len(members) > MOST_MEMBERS or len(names) < len(members):
        raise InputError(f"an archive of {len(members):,} members, {len(names):,} of them different")
    if available is not None and 2 * size > available:
        raise InputError(f"{size / 2**30:.1f} GiB when unpacked, and {available / 2**30:.1f} GiB are available")


def _kind(path: Path) -> str:
    with contextlib.suppress(OSError), path.open("rb") as file:
        if file.read(1) == b"\x80":
            return " but a pickle, which could run code: it is not read"
    return ""


def read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """Return the array in a member of the archive.

    Raises
    ------
    InputError
        If it is not an array, holds Python objects, or does not have the length in its header.
    """
    with archive.open(member) as file:
        shape, fortran, dtype = _array_header(file, member)
        data = file.read()
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


def check_arrays(archive: zipfile.ZipFile) -> None:
    """Raise InputError unless every ``.npy`` in the archive is an array that :func:`read_array` accepts."""
    for member in archive.infolist():
        if member.filename.endswith(".npy"):
            with archive.open(member) as file:
                _array_header(file, member)


def _array_header(file: IO[bytes], member: zipfile.ZipInfo) -> tuple[tuple[int, ...], bool, Any]:
    readers: dict[Any, Any] = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    name = member.filename.removesuffix(".npy")
    try:
        version = np.lib.format.read_magic(file)
        shape, fortran, dtype = readers[version](file)
    except (ValueError, KeyError, OverflowError, tokenize.TokenError, SyntaxError) as error:
        raise InputError(f"{name}: not a NumPy array: {' '.join(str(error).split())[:80]}") from error
    if dtype.hasobject:
        raise InputError(f"{name}: holds Python objects, which could run code: not read")
    size = math.prod(shape) * dtype.itemsize
    there = member.file_size - file.tell()
    if size != there or min(shape, default=0) < 0:
        raise InputError(f"{name}: an array of shape {shape} is {size:,} bytes, and {there:,} are there")
    return shape, fortran, dtype


def write_array(archive: zipfile.ZipFile, name: str, array: np.ndarray) -> None:
    """Add ``array`` as ``name``, as ``numpy.savez`` does except for the date."""
    member = zipfile.ZipInfo(f"{name}.npy", DATE)
    with archive.open(member, "w", force_zip64=True) as file:
        np.lib.format.write_array(file, np.asanyarray(array, order="C"), allow_pickle=False)
