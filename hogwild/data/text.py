"""Text of any size as chunks of whole lines, from a file, pipe or stream, plain or compressed; for every text format.

Compression is told by the first bytes and not by the name, which may lie and which standard input does not have. They
are put back by hand, for a pipe cannot seek. Python's own gzip, bz2 and lzma modules do the rest: reading by hand would
save a fifth of gzip's time on Python 3.11 (nothing later), for a page of code about members, padding and checksums.
"""

from __future__ import annotations

import importlib
import os
import zlib
from collections import deque
from collections.abc import Iterator
from io import RawIOBase
from pathlib import Path
from typing import Any, BinaryIO

from hogwild.errors import InputError

LINE_BYTES = 64 << 20  # a longer line is taken for something that is not text
MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\x00": "lzma"}  # first bytes -> module that reads the rest


class ReadError(Exception):
    """The text ends here, for a reason that belongs behind the errors of the lines before it."""


class Source(RawIOBase):
    """The raw bytes of a file or stream, counted, with its first bytes looked at and put back (a pipe cannot seek)."""

    def __init__(self, path: str | os.PathLike[str] | BinaryIO) -> None:
        self.done = 0
        self.total: int | None = None
        self.owned = isinstance(path, (str, os.PathLike))
        if isinstance(path, (str, os.PathLike)):
            self.label = os.fspath(path)
            try:
                self.raw: Any = open(path, "rb", buffering=0)  # noqa: SIM115 - closed in close()
            except (OSError, ValueError) as error:  # ValueError: a NUL in the name
                raise InputError(f"{self.label}: {_reason(error)}") from None
            if Path(path).is_file():
                self.total = os.fstat(self.raw.fileno()).st_size
        else:
            self.raw = path
            name = getattr(path, "name", None)
            self.label = name if isinstance(name, str) else "<stdin>"
        self.head = b""

    def peek(self, size: int) -> bytes:
        while len(self.head) < size and (more := self._take(size - len(self.head))):
            self.head += more
        return self.head

    def _take(self, size: int) -> bytes:
        data = self.raw.read(size)
        if not isinstance(data, bytes):
            raise InputError(f"{self.label}: expected a blocking binary stream, but it yields {type(data).__name__}")
        return data

    def readable(self) -> bool:
        return True

    def readinto(self, view: Any) -> int:
        if self.head or not hasattr(self.raw, "readinto"):
            data = self.head[: len(view)] or self._take(len(view))
            self.head = self.head[len(view) :]
            view[: len(data)] = data
            size = len(data)
        else:
            size = self.raw.readinto(view)
            if size is None:
                raise InputError(f"{self.label}: expected a blocking stream")
        self.done += size
        return size

    def close(self) -> None:
        if self.owned:
            self.raw.close()
        super().close()


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, IsADirectoryError):
        return "is a directory, expected svmlight text"
    return f"cannot be read: {getattr(error, 'strerror', None) or error}"


def _text(source: Source) -> tuple[Any, tuple[type[Exception], ...]]:
    """``(raw stream of the text, what it raises on a damaged archive)``, told by the first bytes: names may lie."""
    head = source.peek(6)
    for magic, kind in MAGIC.items():
        if head.startswith(magic):
            module = importlib.import_module(kind)
            return module.open(source, "rb"), (zlib.error, getattr(module, "LZMAError", EOFError))
    return source, ()


def _read(stream: Any, view: memoryview, damage: tuple[type[Exception], ...]) -> int:
    try:
        return stream.readinto(view)
    except EOFError:
        raise ReadError("the archive is truncated") from None
    except OSError as error:
        if error.errno is not None:
            raise ReadError(_reason(error)) from None
        raise ReadError(f"the archive is damaged: {error}") from None  # from a decompressor
    except damage as error:
        raise ReadError(f"the archive is damaged: {error}") from None


def chunks(source: Source, chunk: int, free: deque[bytearray]) -> Iterator[tuple[bytearray, int]]:
    """``(buffer, size)`` of whole lines, the last byte a line end. ``free`` holds buffers to use again."""
    stream, damage = _text(source)
    room, rest, failure, begun = chunk, b"", None, False
    while True:
        buffer = free.popleft() if free and room == chunk else bytearray(room + 1)
        filled, ended = len(rest), False
        buffer[:filled] = rest
        with memoryview(buffer) as view:
            try:
                while filled < room and not ended:
                    size = _read(stream, view[filled:room], damage)
                    filled, ended = filled + size, size == 0
            except ReadError as error:
                failure, ended = error, True
        if not begun and buffer.startswith(b"\xef\xbb\xbf"):  # a byte order mark
            buffer[:3] = b"   "
        begun = True
        cut = buffer.rfind(b"\n", 0, filled) + 1
        if ended and not failure and cut < filled:
            buffer[filled] = 10
            cut = filled = filled + 1
        rest = bytes(memoryview(buffer)[cut:filled])
        if cut:
            yield buffer, cut
        if failure:
            raise failure
        if ended:
            return
        if b"\0" in rest:
            raise ReadError("binary data, expected svmlight text")
        if len(rest) >= LINE_BYTES:
            raise ReadError(f"a line longer than {LINE_BYTES >> 20} MiB, expected svmlight text")
        room = max(chunk, min(2 * len(rest), LINE_BYTES))
