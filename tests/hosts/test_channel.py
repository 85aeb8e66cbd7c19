"""Messages between processes: whole or not at all, with the memory that they share, and no descriptor is lost."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
from collections.abc import Iterator

import numpy as np
import pytest

from hogwild.hosts.memory import Block
from hogwild.hosts.processes import Channel


@pytest.fixture
def pair() -> Iterator[tuple[Channel, Channel]]:
    ours, theirs = (Channel(end) for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    with contextlib.closing(ours), contextlib.closing(theirs):
        yield ours, theirs


def descriptors() -> int:
    gc.collect()  # what an earlier test has left must not go in between
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("length", [100, 5_000_000])
def test_messages_of_any_length_arrive_whole_and_in_turn(pair: tuple[Channel, Channel], length: int) -> None:
    """Though nobody reads yet: a sender never waits."""
    before = descriptors()
    messages = [(1, bytes(length)), (2, "b" * length), None]
    for message in messages:
        pair[0].send(message)
    assert [pair[1].receive() for _ in messages] == messages
    assert descriptors() == before


def test_a_block_is_one_memory_on_both_sides(pair: tuple[Channel, Channel]) -> None:
    block = Block({"a": ((3,), np.int32), "b": ((7, 2), np.float32)}, shared=True)
    block["b"][3, 1] = 5
    pair[0].send({"blocks": [block, block], "more": bytes(40_000)})
    one, other = pair[1].receive()["blocks"]
    assert one["b"][3, 1] == 5
    one["a"][:] = 7
    assert (block["a"] == 7).all()
    assert (other["a"] == 7).all()
    assert one["b"].dtype == np.float32


def test_what_is_never_fetched_is_freed() -> None:
    """Of a worker that died with a job before it: neither descriptors nor the segment stay."""
    before, block = descriptors(), Block({"a": ((1000,), np.int32)}, shared=True)
    for _ in range(5):
        ours, theirs = (Channel(end) for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        ours.send(block)
        theirs.close()
        with pytest.raises(EOFError):
            ours.receive()
        with pytest.raises(BrokenPipeError):
            ours.send(block)
        ours.close()
    del block
    assert descriptors() == before


def test_last_words_are_heard_though_something_was_left_unread(pair: tuple[Channel, Channel]) -> None:
    pair[0].send("never read")
    pair[1].send("last words")
    pair[1].close()
    assert pair[0].receive() == "last words"
    with pytest.raises(EOFError):
        pair[0].receive()
