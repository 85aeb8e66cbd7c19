"""Slow twins of the parsers of text, which share no code with them: the same values, or the line of the first error."""

from __future__ import annotations

import re

import numpy as np

LARGEST = 3.4028235677973366e38
NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
FEATURE = re.compile(rb"([0-9]{1,18}):(.*)", re.DOTALL)


def finite(token: bytes) -> float:
    if not NUMBER.fullmatch(token) or abs(float(token)) >= LARGEST:
        raise ValueError(token)
    return float(token)


def float32(token: bytes) -> float:
    return float(np.float32(finite(token)))


def reference(text: bytes, base: int = 1) -> list[tuple[float, list[tuple[int, float]]]] | int:
    """Rows of svmlight text as (target, [(index, value), ...]), or the line of the first error."""
    rows = []
    for number, line in enumerate(text.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        tokens = line.partition(b"#")[0].split()
        if not tokens:
            continue
        try:
            target = float32(tokens.pop(0))
            entries: dict[int, float] = {}
            for token in tokens:
                index, value = FEATURE.fullmatch(token).groups()  # type: ignore[union-attr]
                at = int(index) - base
                if not 0 <= at < 2**31 - 1:
                    return number
                entries[at] = entries.get(at, 0.0) + float32(value)
            sums = {at: np.float32(min(max(value, -1e39), 1e39)) for at, value in sorted(entries.items())}
            if not np.isfinite(list(sums.values())).all():
                return number
            rows.append((target, [(at, float(value)) for at, value in sums.items()]))
        except (ValueError, AttributeError):
            return number
    return rows or max(text.count(b"\n") + (text[-1:] not in (b"", b"\n")), 1)
