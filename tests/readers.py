"""Slow twins of the parsers of text, which share no code with them: the same values, or the line of the first error."""

from __future__ import annotations

import itertools
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
            if tokens and re.fullmatch(rb"qid:[0-9]+", tokens[0]):
                tokens.pop(0)
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


def matrix(text: bytes) -> tuple[tuple[int, int], dict[tuple[int, int], float]] | int:
    """Shape and summed entries of a MatrixMarket text, or the line of the first error; zeros are left out."""
    lines = text.removeprefix(b"\xef\xbb\xbf").removesuffix(b"\n").split(b"\n")
    words = lines[0].lower().split()
    choices = [
        {b"coordinate", b"array"},
        {b"real", b"double", b"integer", b"unsigned-integer", b"pattern"},
        {b"general", b"symmetric", b"skew-symmetric"},
    ]
    if words[:2] != [b"%%matrixmarket", b"matrix"] or len(words) != 5 or words[2:4] == [b"array", b"pattern"]:
        return 1
    if any(word not in known for word, known in zip(words[2:], choices, strict=True)):
        return 1
    form, field, symmetry = words[2:]
    content = [(n, line.split()) for n, line in enumerate(lines[1:], 2) if line.strip()[:1] not in (b"", b"%")]
    if not content:
        return len(lines)
    number, sizes = content.pop(0)
    if len(sizes) != 2 + (form == b"coordinate") or not all(re.fullmatch(rb"[0-9]{1,18}", size) for size in sizes):
        return number
    m, n = int(sizes[0]), int(sizes[1])
    if max(m, n) >= 2**31 or (symmetry != b"general" and m != n):
        return number
    first = {b"general": 0, b"symmetric": 0, b"skew-symmetric": 1}[symmetry]
    below = (range(first + j if symmetry != b"general" else 0, m) for j in range(n))
    places = list(itertools.islice(((i, j) for j, rows in enumerate(below) for i in rows), len(content)))
    stored = m * n if symmetry == b"general" else m * (m - 1) // 2 + (1 - first) * m
    expected = stored if form == b"array" else int(sizes[2])
    found: dict[tuple[int, int], float] = {}
    for at, (number, entry) in enumerate(content):
        try:
            if form == b"coordinate":
                row, column = (int(token) - 1 for token in entry[:2] if re.fullmatch(rb"[0-9]{1,18}", token))
                value = entry[2:]
            else:
                (row, column), value = places[at] if at < expected else (0, 0), entry
            x = 1.0 if field == b"pattern" and not value else finite(*value)
            whole = field not in (b"integer", b"unsigned-integer") or float(value[0]).is_integer()
            if not (whole and 0 <= row < max(m, 1) and 0 <= column < max(n, 1)) or (field == b"pattern" and value):
                return number
        except (ValueError, TypeError):
            return number
        if at >= expected:
            return number
        found[row, column] = found.get((row, column), 0.0) + x
        if symmetry != b"general" and row != column:
            found[column, row] = found.get((column, row), 0.0) + (-x if symmetry == b"skew-symmetric" else x)
    if len(content) < expected:
        return len(lines)
    return (m, n), {place: x for place, x in found.items() if x}
