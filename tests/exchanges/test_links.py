"""Links: messages arrive whole, in order and once, whatever the log's length; virtual lines take their time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hogwild.exchanges.averaging import Averaging
from hogwild.exchanges.link import START, DirectLink, Trader
from hogwild.exchanges.trade import ALL, Message, Step, collect, collected
from hogwild.hosts.memory import Block
from hogwild.hosts.simulator import Network, TimedLink
from hogwild.methods import Wire, parse_link


def direct(replicas: int, room: int) -> tuple[list[DirectLink], dict[str, np.ndarray]]:
    arrays = Block(DirectLink.spec(replicas, room), shared=False).arrays
    arrays["here"][:] = 1
    return [DirectLink(Averaging(), arrays, replica) for replica in range(replicas)], arrays


def values(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def heard(link: DirectLink | TimedLink) -> list[tuple[int, int, list[float]]]:
    link.receive()
    return [
        (sender, message.clock, message.values.tolist())
        for sender, queue in enumerate(link.inbox)
        for message in (queue.popleft() for _ in range(len(queue)))
    ]


def test_to_one_and_to_all() -> None:
    links, arrays = direct(3, 1000)
    assert links[0].post(1, Message(0, 1, 5, values(1, 2, 3)))
    assert links[0].post(ALL, Message(1, 2, 5, values(4)))
    assert heard(links[1]) == [(0, 1, [1, 2, 3]), (0, 2, [4])]
    assert heard(links[2]) == [(0, 2, [4])]
    assert [heard(link) for link in links] == [[], [], []]
    assert arrays["counts"].sum(axis=0).tolist() == [3, 3 * START + 4 * (3 + 2), 0]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.integers(0, 100))
def test_messages_of_any_length_pass_a_log_of_any_length(lengths: list[int], more: int) -> None:
    links, _ = direct(2, START + 4 * 31 + more)
    expected = [np.arange(n, dtype=np.float32) + k for k, n in enumerate(lengths)]
    got: list[list[float]] = []
    for k, array in enumerate(expected):
        while not links[0].post(1, Message(0, k, 0, array)):
            before = len(got)
            got += [numbers for _, _, numbers in heard(links[1])]
            assert len(got) > before  # or there was room
    got += [numbers for _, _, numbers in heard(links[1])]
    assert got == [array.tolist() for array in expected]


def test_indices_and_encoded_values_travel_too() -> None:
    network = Network(Wire(), np.zeros((2, 3)))
    indices, coded = np.array([3, 5, 8], np.int32), np.arange(11, dtype=np.uint8)
    sent = Message(2, 7, 9, values(1, 2, 3), indices), Message(1, 8, 0, coded)
    assert [message.size for message in sent] == [START + 24, START + 11]
    for sender, receiver in (direct(2, 1000)[0], [TimedLink(network, replica) for replica in range(2)]):
        for message in sent:
            sender.post(1, message)
        receiver.receive()
        for message, got in zip(sent, receiver.inbox[0], strict=True):
            assert got.values.dtype == message.values.dtype
            assert [np.ravel(part).tolist() for part in got] == [np.ravel(part).tolist() for part in message]


def test_who_trains_no_more_holds_up_nobody() -> None:
    links, arrays = direct(3, START + 8)
    assert links[0].post(1, Message(0, 1, 0, values(1)))
    assert not links[0].post(1, Message(0, 2, 0, values(2)))  # neither has read the first
    links[2].leave()
    assert heard(links[1]) == [(0, 1, [1])]
    assert links[0].post(1, Message(0, 2, 0, values(2)))
    assert links[0].here().tolist() == [True, True, False]
    DirectLink(Averaging(), arrays, 2)  # a replacement, which must not read what is overwritten
    assert links[0].here().tolist() == [True, True, True]
    assert heard(links[1]) == [(0, 2, [2])]


def test_a_task_begins_with_all_replicas_whether_or_not_their_workers_have_begun() -> None:
    trader = Trader(Averaging(period=1), 8, 3, shared=False)
    trader.begin(np.zeros(8, np.float32))
    assert DirectLink(trader.exchange, trader.arrays, 0).here().all()


def test_a_replacement_goes_on_reading_where_the_dead_one_stopped() -> None:
    links, arrays = direct(2, 1000)
    for k in range(3):
        links[0].post(1, Message(0, k, 0, values(k)))
    links[1].receive()
    links[0].post(1, Message(0, 3, 0, values(3)))
    assert heard(DirectLink(Averaging(), arrays, 1)) == [(0, 3, [3])]


def test_waiting_ends_by_a_message_a_later_one_or_the_senders_end() -> None:
    links, _ = direct(4, 1000)
    waiting = collect(links[0], kind=0, clock=5)
    assert next(waiting, "over") is None
    links[1].post(0, Message(1, 4, 0, values(9)))  # out of date
    links[1].post(0, Message(0, 5, 0, values(1)))
    links[2].post(0, Message(0, 6, 0, values(2)))  # will never send the one that is waited for
    assert next(waiting, "over") is None
    links[3].post(0, Message(0, 5, 0, values(3)))
    links[3].leave()  # what it has sent before counts
    assert next(waiting, "over") == "over"
    assert [(sender, message.values.tolist()) for sender, message in collected(links[0], 0, 5)] == [(1, [1]), (3, [3])]
    assert [len(queue) for queue in links[0].inbox] == [0, 0, 1, 0]


def test_a_line_is_busy_while_a_message_travels() -> None:
    network = Network(
        Wire(latency=1.0, bandwidth=START + 4.0), np.zeros((3, 3))
    )  # a message of one number takes a second
    links = [TimedLink(network, replica) for replica in range(3)]
    links[0].post(ALL, Message(0, 1, 0, values(1)))
    links[1].post(2, Message(0, 2, 0, values(2)))
    assert [network.next_arrival(replica) for replica in range(3)] == [np.inf, 2.0, 3.0]
    network.now[2] = 3.0
    assert heard(links[2]) == [(0, 1, [1])]
    assert network.next_arrival(2) == 4.0  # the line in was busy
    network.now[:] = [4.0] * 3
    assert heard(links[2]) == [(1, 2, [2])]
    assert network.meet([Step(2, START + 4, 3)]) == 4.0 + 1 + 2
    assert network.counts.tolist() == [[2, 2 * (START + 4), 0], [1, START + 4, 0], [0, 0, 0]]


def test_units_of_a_link() -> None:
    assert parse_link("latency=0.2ms,bandwidth=1Gbit,row=2us") == Wire(0.2e-3, 1e9 / 8, 2e-6)
    assert parse_link("") == Wire(0.0, np.inf, 2e-7)
    assert parse_link("bandwidth=100Mbit").bandwidth == pytest.approx(12.5e6)
