"""Reads text of any size as chunks of whole lines, from files, pipes or streams, plain or compressed.

Compression is recognised by the first bytes and not by the name, which may be wrong and which standard input does not
have. These bytes are put back by hand, because a pipe cannot seek. The decompressors of the standard library are called
directly, because its file objects discard what a truncated archive still held, and with it the number of the line where
it ends; this is also a fifth faster than ``gzip.open`` on Python 3.11.
"""

from __future__ import annotations

import math
import os
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from io import RawIOBase
from pathlib import Path
from typing import Any, BinaryIO

from hogwild.errors import InputError, reason_of

LINE_BYTES = 20 << 20  # a longer line is not taken for text; parsing one takes ten times its size
PACKED = (".gz", ".bz2", ".xz")
PACKED_BYTES = 1 << 17  # compressed bytes processed at a time


class ReadError(Exception):
    """The text ends here; the reason is reported after the errors of the lines before it."""


class Source(RawIOBase):
    """Raw bytes of a file or stream, counted; the first bytes can be read ahead (a pipe cannot seek)."""

    def __init__(self, path: str | os.PathLike[str] | BinaryIO) -> None:
        self.done = 0
        self.total: int | None = None
        self.head = b""
        self.raw: Any = None
        self.owned = isinstance(path, (str, os.PathLike))
        if isinstance(path, (str, os.PathLike)):
            self.label = os.fspath(path)
            try:
                self.raw = open(path, "rb", buffering=0)
            except (OSError, ValueError) as error:  # ValueError: a NUL in the name
                raise InputError(f"{self.label}: {_reason(error)}") from None
            if Path(path).is_file():
                self.total = os.fstat(self.raw.fileno()).st_size
        else:
            self.raw = path
            name = getattr(path, "name", None)
            self.label = name if isinstance(name, str) else "<stdin>"

    def peek(self, size: int) -> bytes:
        """Return the first bytes, fewer only if there are no more; they will be read again."""
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
        if self.owned and self.raw is not None:
            self.raw.close()
        super().close()


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, IsADirectoryError):
        return "is a directory, expected a text file"
    return f"cannot be read: {reason_of(error)}"


class Archive:
    """Decompressed text of a source of one or more members."""

    def __init__(self, source: Source, engine: Callable[[], Any]) -> None:
        self.source, self.new = source, engine
        self.engine = engine()
        self.packed = b""

    def readinto(self, view: memoryview) -> int:
        """Fill some of ``view``; return 0 at the end."""
        while True:
            if self.engine.eof and not self._next_member():
                return 0
            ended = False
            if not self.packed and getattr(self.engine, "needs_input", True):
                self.packed = self.source.read(PACKED_BYTES) or b""
                ended = not self.packed
            try:
                text = self.engine.decompress(self.packed, len(view))
            except Exception as error:  # zlib.error, OSError, LZMAError, ...: each library has its own
                raise ReadError(f"the archive is damaged: {error}") from None
            self.packed = getattr(self.engine, "unconsumed_tail", b"")  # zlib hands it back, the others keep it
            if text:
                view[: len(text)] = text
                return len(text)
            if ended and not self.engine.eof:
                raise ReadError("the archive is truncated")

    def _next_member(self) -> bool:
        """Begin the next member, past any zeros that pad a tape or block; return False at the end."""
        self.packed = self.engine.unused_data.lstrip(b"\0")
        while not self.packed:
            block = self.source.read(PACKED_BYTES)
            if not block:
                return False
            self.packed = block.lstrip(b"\0")
        self.engine = self.new()
        return True


def _text(source: Source) -> Source | Archive:
    """Return the object to read the text from, chosen by the first bytes."""
    head = source.peek(6)
    if head.startswith(b"\x1f\x8b"):
        return Archive(source, lambda: zlib.decompressobj(wbits=31))
    if head.startswith(b"BZh"):
        import bz2

        return Archive(source, bz2.BZ2Decompressor)
    if head.startswith(b"\xfd7zXZ\0"):
        import lzma

        return Archive(source, lzma.LZMADecompressor)
    return source


def chunks(source: Source, chunk: int, free: deque[bytearray]) -> Iterator[tuple[bytearray, int]]:
    """Yield ``(buffer, size)`` of whole lines, in order; the last byte is a line end even if the file has none.

    Chunks hold up to ``chunk`` bytes, more for a longer line. ``free`` holds buffers of ``chunk + 1`` bytes to reuse.

    Raises
    ------
    ReadError
        After the last whole line, if the source cannot be read further.
    """
    room = chunk
    rest = b""
    failure = None
    stream = None
    while True:
        buffer = free.popleft() if free and room == chunk else bytearray(room + 1)
        filled = len(rest)
        ended = False
        first = stream is None
        buffer[:filled] = rest
        with memoryview(buffer) as view:
            try:
                stream = stream or _text(source)
                while filled < room and not ended:
                    size = stream.readinto(view[filled:room])
                    filled, ended = filled + size, size == 0
            except ReadError as error:
                failure, ended = error, True
            except OSError as error:
                failure, ended = ReadError(_reason(error)), True
        if first and buffer.startswith(b"\xef\xbb\xbf"):  # a byte order mark
            buffer[:3] = b"   "
        if ended and failure is None and filled and buffer[filled - 1] != 10:
            buffer[filled] = 10
            filled += 1
        cut = buffer.rfind(b"\n", 0, filled) + 1
        rest = bytes(memoryview(buffer)[cut:filled])
        if cut:
            yield buffer, cut
        if failure is not None:
            raise failure
        if ended:
            return
        if len(rest) >= LINE_BYTES:  # not sooner: a comment with a NUL in it may cross a chunk's end
            what = "binary data, expected text" if b"\0" in rest else f"a line longer than {LINE_BYTES >> 20} MiB"
            raise ReadError(what)
        room = max(chunk, min(2 * len(rest), LINE_BYTES))


# -- words of a text that a reader refuses -----------------------------------------------------------------------------


def quoted(token: bytes) -> str:
    """Return a token in quotation marks, byte by byte, cut where it is long."""
    return repr(token[:40])[1:] + ("..." if len(token) > 40 else "")


def bad_number(token: bytes) -> str:
    """Return why a token is no number of float32."""
    from hogwild.data.text.parse_kernel import FLOAT32_END

    try:
        number = float(token)
    except ValueError:
        return "expected a number"
    if math.isfinite(number) and abs(number) < FLOAT32_END:
        return "expected a plain decimal number"  # Python knows spellings, such as 1_000, that svmlight does not
    return "beyond float32" if any(48 <= c <= 57 for c in token) else "expected a finite number"


def shown_word(word: bytes | str) -> str:
    """Return a word in quotation marks, cut where it is long; what is not UTF-8 is escaped."""
    text = word.decode(errors="replace") if isinstance(word, bytes) else word
    shown = text if len(text) <= 40 else text[:37] + "..."
    return re.sub(r"\\udc(..)", r"\\x\1", repr(shown))  # a byte that is not UTF-8, as Python reads it
