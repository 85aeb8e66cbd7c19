"""Reads text of any size as chunks of whole lines, from files, pipes or streams, plain or compressed.

Compression is recognised by the first bytes and not by the name, which may be wrong and which standard input does not
have. These bytes are put back by hand, because a pipe cannot seek. The decompressors of the standard library are called
directly, because its file objects discard what a truncated archive still held, and with it the number of the line where
it ends; this is also a fifth faster than ``gzip.open`` on Python 3.11.
"""

from __future__ import annotations

import bz2
import lzma
import math
import os
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from hogwild.errors import InputError, reason_of

LINE_BYTES = 20 << 20  # a longer line is not taken for text; parsing one takes ten times its size
PACKED = (".gz", ".bz2", ".xz")
ENGINES: dict[bytes, Callable[[], Any]] = {
    b"\x1f\x8b": lambda: zlib.decompressobj(wbits=31),
    b"BZh": bz2.BZ2Decompressor,
    b"\xfd7zXZ\0": lzma.LZMADecompressor,
}
PACKED_BYTES = 1 << 17  # compressed bytes processed at a time


class ReadError(Exception):
    """The text ends here; the reason is reported after the errors of the lines before it."""


class Source:
    """Bytes of a file or stream, decompressed if they are an archive of one or more members."""

    def __init__(self, path: str | os.PathLike[str] | BinaryIO) -> None:
        self.done = 0  # bytes read, as they are stored
        self.total: int | None = None
        self.owned = isinstance(path, (str, os.PathLike))
        self.raw: Any = path
        name = getattr(path, "name", None)
        self.label = name if isinstance(name, str) else "<stdin>"
        self.new: Any = None  # makes the decompressor of a member; None: plain text
        self.engine: Any = None
        self.packed: bytes | None = None  # read, and not given on; None before anything is read
        if isinstance(path, (str, os.PathLike)):
            self.label = os.fspath(path)
            try:
                self.raw = open(path, "rb", buffering=0)
            except (OSError, ValueError) as error:  # ValueError: a NUL in the name
                raise InputError(f"{self.label}: {_reason(error)}") from None
            if os.path.isfile(path):
                self.total = os.fstat(self.raw.fileno()).st_size

    def _take(self, size: int) -> bytes:
        data = self.raw.read(size)
        if not isinstance(data, bytes):
            raise InputError(f"{self.label}: expected a blocking binary stream, but it yields {type(data).__name__}")
        self.done += len(data)
        return data

    def readinto(self, view: memoryview) -> int:
        """Fill some of ``view`` with text; return how much, 0 at the end."""
        if self.packed is None:
            self.packed = b""
            while len(self.packed) < 6 and (more := self._take(6 - len(self.packed))):
                self.packed += more
            self.new = next((new for magic, new in ENGINES.items() if self.packed.startswith(magic)), None)
            self.engine = self.new and self.new()
        if self.engine is None and not self.packed and self.owned:
            size: int = self.raw.readinto(view)
            self.done += size
            return size
        text = self._text(len(view))
        view[: len(text)] = text
        return len(text)

    def _text(self, size: int) -> bytes:
        if self.engine is None:
            text, self.packed = self.packed or self._take(size), b""
            return text
        while True:
            if self.engine.eof:
                self.packed = self.engine.unused_data.lstrip(b"\0")  # zeros pad a tape or block
                while not self.packed:
                    if not (block := self._take(PACKED_BYTES)):
                        return b""
                    self.packed = block.lstrip(b"\0")
                self.engine = self.new()
            ended = False
            if not self.packed and getattr(self.engine, "needs_input", True):
                self.packed = self._take(PACKED_BYTES)
                ended = not self.packed
            try:
                text = self.engine.decompress(self.packed, size)
            except Exception as error:  # zlib.error, OSError, LZMAError, ...: each library has its own
                raise ReadError(f"the archive is damaged: {error}") from None
            self.packed = getattr(self.engine, "unconsumed_tail", b"")  # zlib hands it back, the others keep it
            if text:
                return text
            if ended and not self.engine.eof:
                raise ReadError("the archive is truncated")

    def close(self) -> None:
        if self.owned:
            self.raw.close()


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, IsADirectoryError):
        return "is a directory, expected a text file"
    return f"cannot be read: {reason_of(error)}"


def chunks(source: Source, chunk: int) -> Iterator[tuple[bytearray, int]]:
    """Yield ``(text, size)``, whole lines in text[:size], in order; the last byte of the file is taken for a line end.

    Chunks hold up to ``chunk`` bytes, more for a longer line.

    Raises
    ------
    ReadError
        After the last whole line, if the source cannot be read further.
    """
    rest, failure = bytearray(), None
    first, ended = True, False
    while not ended:
        room, filled = max(chunk, min(2 * len(rest), LINE_BYTES)), len(rest)
        text = bytearray(room + 1)
        text[:filled] = rest
        try:
            with memoryview(text) as view:
                while filled < room and not ended:
                    size = source.readinto(view[filled:room])
                    filled, ended = filled + size, size == 0
        except ReadError as error:
            failure, ended = error, True
        except OSError as error:
            failure, ended = ReadError(_reason(error)), True
        if ended and failure is None and filled and text[filled - 1] != 10:
            text[filled] = 10
            filled += 1
        if first and text.startswith(b"\xef\xbb\xbf"):  # a byte order mark
            text[:3] = b"   "
        first = False
        cut = text.rfind(b"\n", 0, filled) + 1
        rest = text[cut:filled]
        if cut:
            yield text, cut
        if len(rest) >= LINE_BYTES:  # not sooner: a comment with a NUL in it may cross a chunk's end
            what = "binary data, expected text" if b"\0" in rest else f"a line longer than {LINE_BYTES >> 20} MiB"
            failure, ended = ReadError(what), True
    if failure is not None:
        raise failure


# -- words of a text that a reader refuses -----------------------------------------------------------------------------


def quoted(token: bytes) -> str:
    """Return a token in quotation marks, byte by byte, cut where it is long."""
    return repr(token[:40])[1:] + ("..." if len(token) > 40 else "")


def bad_number(token: bytes) -> str:
    """Return why a token is no number of float32; nothing if it is one."""
    from hogwild.data.text.parse_kernel import FLOAT32_END

    try:
        number = float(token)
    except ValueError:
        return "expected a number"
    if not math.isfinite(number) or abs(number) >= FLOAT32_END:
        return "beyond float32" if any(48 <= c <= 57 for c in token) else "expected a finite number"
    return "expected a plain decimal number" if b"_" in token else ""  # which Python knows, and svmlight does not


def shown_word(word: bytes | str) -> str:
    """Return a word in quotation marks, cut where it is long; what is not UTF-8 is escaped."""
    text = word.decode(errors="replace") if isinstance(word, bytes) else word
    shown = text if len(text) <= 40 else text[:37] + "..."
    return re.sub(r"\\udc(..)", r"\\x\1", repr(shown))  # a byte that is not UTF-8, as Python reads it
