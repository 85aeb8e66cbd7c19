"""All-reduce: every replica gets the sum of all replicas' arrays, by messages along a tree, a butterfly or a ring.

For an array of S bytes and N replicas:

| schedule | steps | bytes that a replica sends |
|---|---|---|
| tree | 2 floor(log2 N) | at most S up, to its parent, and 2 S down, to its children |
| butterfly | log2 N; floor(log2 N) + 2 if N is no power of two | S log2 N; the surplus folds in first and out last |
| ring | 2 (N - 1) | 2 (N - 1) / N S: partial sums of N slices go round, then the slices' sums |

Each step takes a latency, and each byte its time on the line: a tree or butterfly suits short arrays, a ring long ones.
All replicas get the same
bits, because whatever is added in two places is the sum of the same two numbers.

Every replica has to take part. If the worker of one is killed, a round cannot be completed: its replacement says so to
all (:func:`give_up`), and so does everybody who learns of it and is still waiting.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import numpy as np

from hogwild.exchanges.trade import ALL, Link, Message, collect, cuts_of, send

GIVEN_UP = 1 << 30  # kind of a message, after all others of a round
SCHEDULES = ("tree", "butterfly", "ring")

Steps = Generator[None, None, None]


def all_reduce(by: str, values: np.ndarray, link: Link, clock: int) -> Generator[None, None, np.ndarray | None]:
    """Return the sum of the replicas' ``values`` (n,) float32, or None if the round ``clock`` was given up.

    Parameters
    ----------
    by : {"tree", "butterfly", "ring"}
    """
    path = _Round(link, clock, values.copy())
    schedule = {"tree": _tree, "butterfly": _butterfly, "ring": _ring}[by]
    yield from schedule(path)
    if path.lost:
        yield from give_up(link, clock)
        return None
    return path.sum


def give_up(link: Link, clock: int) -> Iterator[None]:
    """Tell all others that this replica sends no more in a round."""
    if link.replicas > 1:
        yield from send(link, ALL, Message(GIVEN_UP, clock, 0))


class _Round:
    """A replica's side of one round."""

    def __init__(self, link: Link, clock: int, own: np.ndarray) -> None:
        self.link = link
        self.clock = clock
        self.sum = own
        self.me = link.replica
        self.count = link.replicas
        self.lost = False

    def send(self, to: int, kind: int, values: np.ndarray) -> Iterator[None]:
        if not self.lost:
            yield from send(self.link, to, Message(kind, self.clock, 0, values))

    def receive(self, sender: int, kind: int) -> Generator[None, None, np.ndarray]:
        """Wait for a message; what is returned instead of a lost one does not matter."""
        if not self.lost:
            yield from collect(self.link, kind, self.clock, [sender])
            queue = self.link.inbox[sender]
            if queue and (queue[0].clock, queue[0].kind) == (self.clock, kind):
                return queue.popleft().values
            self.lost = True
        return np.zeros(1, np.float32)


def _tree(path: _Round) -> Steps:
    """Sum up a binary tree to replica 0, and send the sum down it."""
    up, down = 0, 1
    children = [child for child in (2 * path.me + 1, 2 * path.me + 2) if child < path.count]
    parent = (path.me - 1) // 2
    for child in children:
        path.sum += yield from path.receive(child, up)
    if path.me > 0:
        yield from path.send(parent, up, path.sum)
        path.sum[:] = yield from path.receive(parent, down)
    for child in children:
        yield from path.send(child, down, path.sum)


def _butterfly(path: _Round) -> Steps:
    """Add the sums of pairs, of fours, and so on (recursive doubling)."""
    levels = path.count.bit_length() - 1
    whole = 1 << levels
    fold = 0
    unfold = levels + 1
    if path.me >= whole:
        yield from path.send(path.me - whole, fold, path.sum)
        path.sum[:] = yield from path.receive(path.me - whole, unfold)
        return
    if path.me + whole < path.count:
        path.sum += yield from path.receive(path.me + whole, fold)
    for level in range(levels):
        partner = path.me ^ (1 << level)
        yield from path.send(partner, level + 1, path.sum)
        path.sum += yield from path.receive(partner, level + 1)
    if path.me + whole < path.count:
        yield from path.send(path.me + whole, unfold, path.sum)


def _ring(path: _Round) -> Steps:
    """Pass slices on to the next replica: first each adds its own share, then the sums go round."""
    count, cuts = path.count, cuts_of(len(path.sum), path.count)
    following, before = (path.me + 1) % count, (path.me - 1) % count
    for step in range(2 * (count - 1)):
        out, come = (cuts[(path.me - step - late) % count] for late in (0, 1))
        yield from path.send(following, step, path.sum[out])
        values = yield from path.receive(before, step)
        path.sum[come] = path.sum[come] + values if step < count - 1 else values
