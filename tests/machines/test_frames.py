"""Frames are read back as they were written."""

from __future__ import annotations

import numpy as np
import pytest

from hogwild.exchanges.trade import Message
from hogwild.machines.cluster import TRADE, Frame


def sent(frame: Frame) -> Frame:
    parts = frame.message.values, frame.message.indices
    payload = np.concatenate([np.ascontiguousarray(part).view(np.uint8) for part in parts])
    return Frame.of(frame.header(), payload)


@pytest.mark.parametrize(
    "values", [np.arange(5, dtype=np.float32), np.arange(7, dtype=np.uint8), np.empty(0, np.float32)]
)
@pytest.mark.parametrize("indices", [np.empty(0, np.int32), np.arange(3, dtype=np.int32)])
def test_frames_are_read_back(values: np.ndarray, indices: np.ndarray) -> None:
    if values.dtype == np.uint8:
        indices = indices[:0]  # values that are encoded hold their indices
    found = sent(Frame(TRADE, 7, 1, Message(3, 4, 5, values, indices, 6)))
    assert (found.kind, found.task, found.ended) == (TRADE, 7, 1)
    assert (*found.message[:3], found.message.step) == (3, 4, 5, 6)
    for part, expected in ((found.message.values, values), (found.message.indices, indices)):
        assert (part.dtype, part.tolist()) == (expected.dtype, expected.tolist())
