"""All-reduce: the sum, the same bits for all, and the steps and bytes that each schedule is known for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from math import floor, log2
from typing import Any

import numpy as np
import pytest

from hogwild.exchanges.allreduce import GIVEN_UP, SCHEDULES, all_reduce
from hogwild.exchanges.averaging import Averaging
from hogwild.exchanges.link import START, DirectLink
from hogwild.exchanges.trade import Message
from hogwild.hosts.memory import Block
from hogwild.hosts.simulator import Network, TimedLink
from hogwild.methods import Wire

COUNTS = (1, 2, 3, 4, 7, 8)


class Recorded(TimedLink):
    """A link that keeps what was sent; ``rows`` of a message are the longest chain of messages that ends with it."""

    def __init__(self, network: Network, replica: int) -> None:
        super().__init__(network, replica)
        self.sent: list[Message] = []
        self.inbox = [Inbox() for _ in self.inbox]

    def post(self, to: int, message: Message) -> bool:
        self.sent.append(message._replace(rows=1 + max(queue.chain for queue in self.inbox)))
        return super().post(to, self.sent[-1])


class Inbox(deque[Message]):
    chain = 0

    def popleft(self) -> Message:
        message = super().popleft()
        self.chain = max(self.chain, message.rows)
        return message


def reduced(by: str, arrays: np.ndarray, links: list[Any]) -> list[Any]:
    """What each replica gets; replicas take turns, the last one first."""
    found: list[Any] = [None] * len(links)

    def side(replica: int) -> Iterator[None]:
        found[replica] = yield from all_reduce(by, arrays[replica], links[replica], 1)

    going = {link.replica: side(link.replica) for link in reversed(links)}
    for _ in range(1000):
        going = {replica: each for replica, each in going.items() if next(each, "over") != "over"}
        for replica in range(len(links)):
            if replica not in going:  # as in its next round
                links[replica].receive()
    assert not going
    return found


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("by", SCHEDULES)
def test_the_sum_in_as_many_steps_and_bytes_as_the_schedule_has(by: str, count: int) -> None:
    size = 16 * 7 * 8 * 3  # slices of whole lines
    arrays = np.random.default_rng(count).standard_normal((count, size)).astype(np.float32)
    network = Network(Wire(), np.zeros((count, 3)))
    links = [Recorded(network, replica) for replica in range(count)]
    found = reduced(by, arrays, links)
    np.testing.assert_allclose(found[0], arrays.sum(axis=0, dtype=np.float64), rtol=1e-5, atol=1e-5)
    assert len({each.tobytes() for each in found}) == 1  # everywhere the same bits
    steps = max((message.rows for link in links for message in link.sent), default=0)
    sent = [sum(message.values.nbytes for message in link.sent) for link in links]
    whole, surplus = floor(log2(count)), count & (count - 1) != 0
    if by == "tree":
        assert steps == 2 * whole
        assert sum(sent) == 2 * (count - 1) * 4 * size
        assert max(sent) <= 3 * 4 * size
    elif by == "butterfly":
        # of three, the one that takes the third's array in meanwhile gets the second's
        assert steps == (2 if count == 3 else whole + 2 * surplus)
        assert max(sent) <= (whole + surplus) * 4 * size
        if not surplus:
            assert set(sent) == {whole * 4 * size}
    else:
        assert steps == 2 * (count - 1)
        assert set(sent) == {2 * (count - 1) * 4 * size // count}


@pytest.mark.parametrize("by", SCHEDULES)
def test_through_logs_that_hold_one_message(by: str) -> None:
    arrays = np.random.default_rng(0).standard_normal((5, 100)).astype(np.float32)
    shared = Block(DirectLink.spec(5, START + 4 * 100), shared=False).arrays
    shared["here"][:] = 1
    found = reduced(by, arrays, [DirectLink(Averaging(), shared, replica) for replica in range(5)])
    for each in found:
        np.testing.assert_allclose(each, arrays.sum(axis=0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("by", SCHEDULES)
def test_a_round_that_one_gives_up_ends_for_all(by: str) -> None:
    """Whoever waits for a replica that has given up, or for one that waits for it, gives up too."""
    network = Network(Wire(), np.zeros((6, 3)))
    links = [TimedLink(network, replica) for replica in range(6)]
    for other in range(5):
        links[5].post(other, Message(GIVEN_UP, 1, 0))
    found = reduced(by, np.ones((5, 50), np.float32), links[:5])
    assert [each for each in found if each is not None] == []
