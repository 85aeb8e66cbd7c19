"""Lines of fields, as ratings, edges and the entries of a matrix have them: one chunk of text becomes arrays.

The kernel says where the first wrong line is. What is wrong with it is found out by those who know what the fields
mean, in plain Python, since it happens once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

PLAIN = 1  # as a separator: blanks, and quotes mean nothing; ``fields_kernel.py`` has the others


@dataclass(frozen=True)
class FieldsLayout:
    """Role of each field; a negative number for none, as ``fields_kernel.py`` says. ``kind`` is that of the times."""

    separator: int
    columns: int
    user: int = 0
    item: int = 1
    value: int = 2  # negative: all values are 1
    time: int = -1
    kind: int = 0
    comments: bytes = b"##"
    more: bool = False  # there may be more columns


@dataclass
class Fields:
    """The lines of one chunk before its first fault, which is ``(code of the kernel, byte of the chunk, fields)``."""

    lines: int
    numbers: list[np.ndarray]  # users and items, (n,) int64, where they are numbers
    whole: list[bool]  # whether all of a side are numbers
    spans: np.ndarray  # (n, 4) int32: where users and items begin and end
    values: np.ndarray  # (n,) float64
    times: np.ndarray | None
    leading: int  # lines before the first movie line
    movie: int  # number in the last movie line
    fault: tuple[int, int, int] | None
    error: tuple[int, str] | None = None  # the line of the chunk and what is wrong with it, if the caller knows
    others: list[tuple[int, bytes]] = field(default_factory=list)  # lines that the caller took out before


def parse_fields(buffer: bytearray, size: int, layout: FieldsLayout, optional: bool = False) -> Fields:
    """Parse ``buffer[:size]``, on a thread of a pool."""
    from hogwild.data.text import fields_kernel as kernel
    from hogwild.data.text.parse_kernel import FLOAT32_END

    lines = buffer.count(b"\n", 0, size)
    users, items = np.empty(lines, np.int64), np.empty(lines, np.int64)
    spans, values = np.empty((lines, 4), np.int32), np.empty(lines)
    times = np.empty(lines if layout.time >= 0 else 0, np.int64)
    facts, room = np.empty(4, np.int64), kernel.ROOM
    while True:
        unresolved = np.empty((room, 2), np.int64)
        code, where, fields, n, left = kernel.parse_lines(
            buffer,
            size,
            layout.separator,
            *layout.comments,
            layout.columns,
            layout.more,
            layout.user,
            layout.item,
            layout.value,
            layout.time,
            layout.kind,
            optional,
            users,
            items,
            spans,
            values,
            times,
            unresolved,
            facts,
        )
        if left <= room:
            break
        room = left
    faults = [] if code == kernel.DONE else [(where, code, fields)]
    for place, start in unresolved[:left].tolist():
        values[place] = float(buffer[start : end_of_number(buffer, start)])
        if abs(values[place]) >= FLOAT32_END:
            faults.append((start, kernel.BAD_VALUE, 0))
    where, code, fields = min(faults, default=(0, kernel.DONE, 0))
    return Fields(
        lines,
        [users[:n], items[:n]],
        [bool(facts[0]), bool(facts[1])],
        spans[:n],
        values[:n],
        times[:n] if len(times) else None,
        int(facts[2]),
        int(facts[3]),
        (code, where, fields) if faults else None,
    )


def end_of_number(buffer: bytearray, start: int) -> int:
    """Return where the number that begins at ``start`` ends."""
    end = start
    while buffer[end] in b"+-.0123456789eE":
        end += 1
    return end


def line_at(buffer: bytearray, where: int) -> tuple[int, bytes]:
    """Return the number of the line that holds the byte ``where`` of a chunk, from 1, and the line."""
    first = buffer.rfind(b"\n", 0, where) + 1
    return buffer.count(b"\n", 0, where) + 1, bytes(buffer[first : buffer.index(b"\n", where)])
