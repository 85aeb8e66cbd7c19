"""Frames: read back as they were written; nothing that is no frame of the run gets memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hogwild.errors import TrainingError
from hogwild.exchanges.trade import Message
from hogwild.machines.frames import (
    BYE,
    CELLS,
    MODEL,
    MOST_TEXT,
    TRADE,
    Frame,
    frame_of,
    header_of,
    payload_size,
    text_frame,
    text_of,
)

RUN = 12345


def sent(frame: Frame) -> Frame:
    header = header_of(RUN, frame)
    parts = frame.message.values, frame.message.indices
    payload = np.concatenate([np.ascontiguousarray(part).view(np.uint8) for part in parts])
    assert payload_size(header, RUN, 1 << 20) == len(payload)
    return frame_of(header, payload)


@pytest.mark.parametrize(
    "values", [np.arange(5, dtype=np.float32), np.arange(7, dtype=np.uint8), np.empty(0, np.float32)]
)
@pytest.mark.parametrize("indices", [np.empty(0, np.int32), np.arange(3, dtype=np.int32)])
def test_frames_are_read_back(values: np.ndarray, indices: np.ndarray) -> None:
    frame = Frame(TRADE, 7, 1, Message(3, 4, 5, values, indices, 6))
    found = sent(frame)
    assert (found.kind, found.task, found.ended) == (TRADE, 7, 1)
    assert found.message[:3] == (3, 4, 5)
    assert found.message.step == 6
    np.testing.assert_array_equal(found.message.values, values)
    np.testing.assert_array_equal(found.message.indices, indices)
    assert not len(values) or found.message.values.dtype == values.dtype


def test_texts_are_read_back() -> None:
    assert text_of(sent(text_frame({"kind": "task", "step": [0.5, 1.0]}))) == {"kind": "task", "step": [0.5, 1.0]}
    for text in (b"", b"[1]", b"\xff", b"{"):
        with pytest.raises(TrainingError):
            text_of(Frame(TRADE, message=Message(0, 0, 0, np.array([*text], np.uint8))))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=CELLS, max_size=CELLS), st.integers(0, 5))
def test_no_header_gets_more_memory_than_it_may(cells: list[int], good: int) -> None:
    """However many of the first cells are right."""
    header = header_of(RUN, Frame(MODEL, message=Message(0, 0, 0, np.zeros(4, np.float32))))
    header[good:] = cells[good:]
    try:
        size = payload_size(header, RUN, 1000)
    except TrainingError:
        return
    assert 0 <= size <= MOST_TEXT
    assert size <= 1000 or header[2] in (1, BYE)


def test_frames_of_another_run_are_refused() -> None:
    with pytest.raises(TrainingError, match="no frame of this run"):
        payload_size(header_of(RUN + 1, Frame(BYE)), RUN, 100)
