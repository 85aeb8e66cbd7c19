"""How readers report progress."""

from __future__ import annotations

from collections.abc import Callable

#: Called with the bytes read so far and the bytes there are, or None where nobody knows.
BytesRead = Callable[[int, "int | None"], None]
