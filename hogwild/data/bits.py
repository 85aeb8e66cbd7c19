"""How many bits a hash of features may have."""

from __future__ import annotations

from typing import Any

from hogwild.errors import UsageError

MOST_BITS = 30  # 2^31 features are one more than int32 indices and widths allow


def check_bits(bits: Any) -> int:
    """``bits`` as an int.

    Raises
    ------
    UsageError
        Unless it is a whole number from 1 to 30.
    """
    if bits is True or bits not in range(1, MOST_BITS + 1):
        raise UsageError(
            f"hash_bits={bits!r}: expected 1 to {MOST_BITS} (indices are int32, so 2^31 features do not fit)"
        )
    return int(bits)


def check_hashing(bits: Any, width: int | None) -> int | None:
    """``bits`` as an int, or None; the number of features, if given, must be what it makes it."""
    if width is not None and not 1 <= width < 2**31:
        raise UsageError(f"width={width}: expected 1 to {2**31 - 1}")
    if bits is None:
        return None
    bits = check_bits(bits)
    if width not in (None, 2**bits):
        raise UsageError(f"width={width}: hash_bits={bits} makes it {2**bits}: give one of them")
    return bits
