"""Words of a text that a reader refuses: where they stand, and how a message shows them."""

from __future__ import annotations

import itertools
import math
import re

TOKEN = re.compile(rb"[^ \t\n\v\f\r#]*")


def line_of(buffer: bytearray, row: int, comments: bytes = b"#") -> int:
    """Return the line of the chunk, from 1, that holds its row ``row``; it is for errors, so in plain Python."""
    lines = (number for number, line in enumerate(buffer.split(b"\n"), 1) if line.strip()[:1] not in comments)
    return next(itertools.islice(lines, row, None))


def token_at(buffer: bytearray, start: int) -> bytes:
    """Return the bytes from ``start`` to the next blank, line end or comment."""
    match = TOKEN.match(buffer, start)
    return match.group() if match else b""


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
    return repr(shown.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))
