"""Frames: what machines send each other, a header of twelve int64 and then as many bytes as it says.

Nothing is unpickled: a payload is an array of numbers, or JSON. A header is checked before memory for its payload is
allocated: whose it is (magic and the number of the run), its kind, and its lengths.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np

from hogwild.errors import TrainingError
from hogwild.exchanges.trade import EMPTY, NO_INDICES, Message

MAGIC = int.from_bytes(b"hogwild1", "big")
CELLS = 12
MOST_TEXT = 1 << 20  # bytes of JSON
BEAT, TEXT, TRADE, MODEL, PIECE, BYE = range(6)
NOTHING = Message(0, 0, 0)


class Frame(NamedTuple):
    """A message of an exchange, a model, a text, or a piece of an array, and the task that it belongs to."""

    kind: int  # BEAT, TEXT, TRADE, MODEL, PIECE, BYE
    task: int = 0  # counted by machine 0 from 1; of a piece: the number of its array
    ended: int = 0  # whether the sender's workers have done their share of the task
    message: Message = NOTHING  # of a beat: rows done, and nonzeros as ``step``


def text_frame(content: dict[str, Any]) -> Frame:
    """Return a frame that carries a dict as JSON."""
    text = np.array([*json.dumps(content).encode()], np.uint8)
    return Frame(TEXT, message=Message(0, 0, 0, text))


def text_of(frame: Frame) -> dict[str, Any]:
    """Return the dict that a frame carries.

    Raises
    ------
    TrainingError
        If it is no JSON object.
    """
    try:
        found = json.loads(frame.message.values.tobytes())
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise TrainingError("sent a text that is no JSON object")
    return found


def header_of(run: int, frame: Frame) -> np.ndarray:
    """Return the header (12,) int64 of a frame; its payload is the message's values, then its indices."""
    m = frame.message
    sizes = m.indices.nbytes, m.values.nbytes, m.values.dtype == np.uint8
    cells = MAGIC, run, frame.kind, frame.task, frame.ended, m.kind, m.clock, m.rows, m.step, *sizes
    return np.array(cells, np.int64)


def payload_size(header: np.ndarray, run: int, most: int) -> int:
    """Return the bytes that follow a header (12,) int64.

    Raises
    ------
    TrainingError
        If the header is not one of this run's, or promises more than ``most`` bytes.
    """
    magic, number, kind, task, ended = (int(cell) for cell in header[:5])
    indices, values, coded = (int(cell) for cell in header[9:])
    if magic != MAGIC or number != run:
        raise TrainingError("sent what is no frame of this run")
    limit = {BEAT: 0, BYE: MOST_TEXT, TEXT: MOST_TEXT, PIECE: MOST_TEXT}.get(kind, most)
    whole = coded in (0, 1) and indices % 4 == 0 and (coded or values % 4 == 0)
    if not (BEAT <= kind <= BYE and task >= 0 and ended in (0, 1) and whole):
        raise TrainingError("sent a frame with a header that makes no sense")
    if indices < 0 or values < 0 or indices + values > limit:
        raise TrainingError(f"sent a frame of {indices + values:,} bytes, more than the {limit:,} that can be meant")
    return indices + values


def frame_of(header: np.ndarray, payload: np.ndarray) -> Frame:
    """Return the frame of a checked header and its payload (n,) uint8."""
    _, _, kind, task, ended, about, clock, rows, step, _, size, coded = (int(cell) for cell in header)
    values, indices = payload[:size], payload[size:]
    values = values if coded else values.view(np.float32)
    message = Message(
        about, clock, rows, values if size else EMPTY, indices.view(np.int32) if len(indices) else NO_INDICES, step
    )
    return Frame(kind, task, ended, message)
