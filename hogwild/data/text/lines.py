"""Reads text of any size as chunks of whole lines, from files, pipes or streams, plain or compressed.

Compression is recognised by the first bytes and not by the name, which may be wrong and which standard input does not
have. The decompressors of the standard library are called directly, because its file objects discard what a truncated
archive still held, and with it the number of the line where it ends; this is also a fifth faster than ``gzip.open`` on
Python 3.11.
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

import numpy as np

from hogwild.data.parallel import BytesRead
from hogwild.errors import InputError, reason_of

LINE_BYTES = 20 << 20  # a longer line is not taken for text; parsing one takes ten times its size
PACKED = (".gz", ".bz2", ".xz")
ENGINES: dict[bytes, Callable[[], Any]] = {
    b"\x1f\x8b": lambda: zlib.decompressobj(wbits=31),
    b"BZh": bz2.BZ2Decompressor,
    b"\xfd7zXZ\0": lzma.LZMADecompressor,
}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
PACKED_BYTES = 1 << 17  # compressed bytes processed at a time


class ReadError(Exception):
    """The text ends here; the reason is reported after the errors of the lines before it."""


class Source:
    """Bytes of a file or stream, decompressed if they are an archive of one or more members.

    ``progress`` is called after each read with the bytes read so far, as they are stored, and their total, if known.
    """

    def __init__(self, path: str | os.PathLike[str] | BinaryIO, progress: BytesRead | None = None) -> None:
        self.progress = progress
        self.done = 0  # bytes read
        self.total: int | None = None
        self.owned = isinstance(path, (str, os.PathLike))
        self.raw: Any = path
        name = getattr(path, "name", None)
        self.label = name if isinstance(name, str) else "<stdin>"
        if isinstance(path, (str, os.PathLike)):
            self.label = os.fspath(path)
            try:
                self.raw = open(path, "rb", buffering=0)
            except (OSError, ValueError) as error:  # ValueError: a NUL in the name
                raise InputError(f"{self.label}: {_reason(error)}") from None
            if os.path.isfile(path):
                self.total = os.fstat(self.raw.fileno()).st_size

    def _take(self, size: int) -> bytes:
        try:
            data = self.raw.read(size)
        except OSError as error:
            raise ReadError(_reason(error)) from None
        if not isinstance(data, bytes):
            raise InputError(f"{self.label}: expected a blocking binary stream, but it yields {type(data).__name__}")
        self.done += len(data)
        if self.progress is not None:
            self.progress(self.done, self.total)
        return data

    def pieces(self, size: int) -> Iterator[bytes]:
        """Yield the text in pieces of up to ``size`` bytes.

        Raises
        ------
        ReadError
        """
        packed = b""
        while len(packed) < 6 and (more := self._take(6 - len(packed))):
            packed += more
        new = next((new for magic, new in ENGINES.items() if packed.startswith(magic)), None)
        if new is None:
            while packed:
                yield packed
                packed = self._take(size)
            return
        engine = new()
        while True:
            if engine.eof:
                packed = engine.unused_data.lstrip(b"\0")  # zeros pad a tape or block
                while not packed:
                    if not (block := self._take(PACKED_BYTES)):
                        return
                    packed = block.lstrip(b"\0")
                engine = new()
            ended = False
            if not packed and getattr(engine, "needs_input", True):
                packed = self._take(PACKED_BYTES)
                ended = not packed
            try:
                text = engine.decompress(packed, size)
            except Exception as error:  # zlib.error, OSError, LZMAError, ...: each library has its own
                raise ReadError(f"the archive is damaged: {error}") from None
            packed = getattr(engine, "unconsumed_tail", b"")  # zlib hands it back, the others keep it
            if text:
                yield text
            elif ended and not engine.eof:
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

    Chunks hold about ``chunk`` bytes, more for a longer line.

    Raises
    ------
    ReadError
        After the last whole line, if the source cannot be read further.
    """
    text, pieces, first = bytearray(), source.pieces(chunk), True
    failure: Exception | None = None
    while failure is None:
        room = max(chunk, 2 * len(text))
        try:
            while len(text) < room:
                text += next(pieces)
        except StopIteration as end:
            failure = end
            if text and text[-1] != 10:
                text += b"\n"
        except ReadError as error:
            failure = error
        if first and text.startswith(BYTE_ORDER_MARK):
            del text[: len(BYTE_ORDER_MARK)]
        first = False
        cut = text.rfind(b"\n") + 1
        rest = text[cut:]
        if cut:
            yield text, cut
        text = rest
        if len(rest) >= LINE_BYTES:  # not sooner: a comment with a NUL in it may cross a chunk's end
            what = "binary data, expected text" if b"\0" in rest else f"a line longer than {LINE_BYTES >> 20} MiB"
            failure = ReadError(what)
    if isinstance(failure, ReadError):
        raise failure


def count_of(text: bytes | bytearray, character: bytes, size: int = -1) -> int:
    """Return how often a character occurs in ``text[:size]``, by default in all of it: at memory speed."""
    return int(np.count_nonzero(np.frombuffer(text, np.uint8, size) == ord(character)))


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
