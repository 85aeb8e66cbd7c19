"""What lies on the device for replicas to work through: the data, whole or part by part, and a sequence of examples.

The one decision is the order. Data that fit are there once and for all, and an epoch is a permutation of all examples.
Data that do not fit are cut into parts of neighbouring examples, and an epoch is a permutation of the parts, each
permuted in itself, which is a little less random; the next part is copied while one is worked on, by a stream of its
own, and never more than two are on the device. All permutations depend on (seed, epoch, part) only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from hogwild.cuda.backend import Backend, Event, Stream, dtype_of
from hogwild.cuda.problem import DeviceOrder
from hogwild.cuda.work import Launcher
from hogwild.errors import InputError

SHARE, SHARE_BESIDE_MODULES = 0.8, 0.5  # of the memory that is free may be taken; replicas of a module need more
SLOTS = 3  # parts there is room for: in work, being copied, and what the allocator may hold on to
LARGEST_PART = 1 << 30  # bytes
ENTRY = 36  # bytes for an example's place in the sequence, while it is made: torch sorts it, with a key, out of place
PIECE = 1 << 26  # bytes copied at a time where nothing is computed meanwhile
LARGEST = 2**31 - 2**10  # examples in a part, which int32 numbers, filled up to whole blocks
BEFORE = 1 << 40  # the "epoch" of a permutation that is made once

Step = tuple[float, float, float]


@dataclass
class Load:
    """Examples in the order of their visits, of one part, or of one or several epochs of the whole."""

    lengths: list[int]  # how many belong to each epoch
    visited: list[int]  # examples visited before the first of each, since the run began
    steps: list[Step]  # of each epoch
    data: dict[str, torch.Tensor] = field(default_factory=dict)  # once the device has come to ``ready``
    rows: torch.Tensor | None = None  # (sum of lengths,) int32, numbered in the part; likewise
    ready: Event | None = None

    def steps_of(self, first: int, last: int, device: torch.device) -> torch.Tensor:
        """The step at each visit from ``first`` to ``last`` (exclusive), (last - first,) float32."""
        pieces, begin = [], 0
        for length, visited, step in zip(self.lengths, self.visited, self.steps):
            a, b = max(first - begin, 0), min(last - begin, length)
            if a < b:
                pieces.append(_steps(step, visited + a, b - a, device))
            begin += length
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


class Loads:
    """The data of one run, and what of them is on the device.

    Raises
    ------
    InputError
        If not even parts of them fit.
    """

    def __init__(self, launcher: Launcher, order: DeviceOrder, backend: Backend, seed: int) -> None:
        self._launcher, self._order, self._backend, self._seed = launcher, order, backend, seed
        self._stream: Stream = backend.stream()
        share = SHARE_BESIDE_MODULES if launcher.granule() else SHARE
        self._parts = cut_parts(launcher, order, int(share * backend.free()))
        self._whole: dict[str, torch.Tensor] | None = None
        self._block = 1
        if len(self._parts) == 1:
            self._stream.run(self._take_all)
            self._stream.record().wait()

    def _take_all(self) -> None:
        self._whole, scattered = {}, None
        if self._order.shuffled and self._launcher.block > 1:  # blocks of them are then as good as single examples
            self._block = self._launcher.block
            scattered = self._permutation(BEFORE, 0, self._order.n_rows, 1)
        for name, array in self._launcher.part(0, self._order.n_rows).items():  # two copies of one at a time
            there = _upload(array, self._backend.device)
            self._whole[name] = there if scattered is None else there[scattered]

    @property
    def parts(self) -> int:
        """How many parts there are: 1 if everything is on the device."""
        return len(self._parts)

    def of(self, epoch: int, start: int, steps: Sequence[Step], most: int) -> Iterator[Load]:
        """The loads of ``len(steps)`` epochs from ``epoch`` on, without the first ``start`` chunks.

        Ask for the next one only when all of the last but one is given to streams and :meth:`finished` has been told:
        its memory is used again.

        Parameters
        ----------
        most : int
            Examples up to which several epochs make one load.
        """
        n, chunk = self._order.n_rows, self._order.chunk
        if self._whole is not None:
            together = max(most // n, 1)
            for first in range(0, len(steps), together):
                epochs = range(epoch + first, epoch + min(first + together, len(steps)))
                load = Load([n] * len(epochs), [n * k for k in epochs], list(steps[first : first + together]))
                load.data = self._whole
                yield self._permuted(load, [(k, 0) for k in epochs], 0 if first else start * chunk)
            return
        for k, step in enumerate(steps, epoch):
            visited, skipped = k * n, start if k == epoch else 0
            for part in self._sequence(k):
                first, last = self._parts[part]
                length, chunks = last - first, -(-(last - first) // chunk)
                if skipped < chunks:
                    load = Load([length], [visited], [step])
                    self._stream.run(self._copy(load, part))
                    yield self._permuted(load, [(k, part)], skipped * chunk)
                skipped, visited = max(skipped - chunks, 0), visited + length

    def finished(self, events: Iterable[Event]) -> None:
        """Let nothing be copied or permuted from now on before the device has come to these events."""
        for event in events:
            self._stream.after(event)

    def _sequence(self, epoch: int) -> list[int]:
        """The parts in an epoch's order."""
        count = len(self._parts)
        if not self._order.shuffled:
            return list(range(count))
        return [int(part) for part in np.random.default_rng((self._seed, epoch)).permutation(count)]

    def _copy(self, load: Load, part: int) -> Callable[[], None]:
        staged = {name: self._backend.stage(array) for name, array in self._launcher.part(*self._parts[part]).items()}

        def copy() -> None:
            load.data = {name: host.to(self._backend.device, non_blocking=True) for name, host in staged.items()}

        return copy

    def _permuted(self, load: Load, which: list[tuple[int, int]], skip: int) -> Load:
        """Have the load's sequence made, of epochs and parts, without the first ``skip`` visits."""
        lengths = list(load.lengths)

        def permute() -> None:
            pieces = [self._permutation(*pair, length, self._block) for pair, length in zip(which, lengths)]
            load.rows = (pieces[0] if len(pieces) == 1 else torch.cat(pieces))[skip:]

        self._stream.run(permute)
        load.ready = self._stream.record()
        load.lengths[0] -= skip
        load.visited[0] += skip
        return load

    def _permutation(self, epoch: int, part: int, length: int, block: int) -> torch.Tensor:
        """A permutation of ``length`` examples that keeps ``block`` neighbours together, int32."""
        device = self._backend.device
        if not self._order.shuffled:
            return torch.arange(length, device=device, dtype=torch.int32)
        mixed = int(np.random.SeedSequence((self._seed, epoch, part)).generate_state(1, np.uint64)[0]) >> 1
        generator = torch.Generator(device).manual_seed(mixed)
        count = -(-length // block)
        blocks = torch.randperm(count, generator=generator, device=device, dtype=torch.int32)
        if block == 1:
            return blocks
        rows = (blocks[:, None] * block + torch.arange(block, device=device, dtype=torch.int32)).flatten()
        if (missing := count * block - length) == 0:
            return rows
        # without what the last block lacks; to ask which rows there are would wait for the device
        place = torch.arange(length, device=device, dtype=torch.int32)
        gap = (blocks == count - 1).to(torch.int32).argmax() * block + (block - missing)
        return rows.index_select(0, place + (place >= gap).to(torch.int32) * missing)


def cut_parts(launcher: Launcher, order: DeviceOrder, room: int) -> list[tuple[int, int]]:
    """First and last example (exclusive) of each part: one if ``room`` bytes hold everything, else of whole chunks.

    Parts are of ``LARGEST_PART`` bytes at most, or of one chunk that is larger.

    Raises
    ------
    InputError
        If a chunk is too large.
    """
    n, chunk = order.n_rows, order.chunk
    bytes_of = [_bytes(launcher, first, min(first + chunk, n)) for first in range(0, n, chunk)]
    if sum(bytes_of) <= room and n <= LARGEST:
        return [(0, n)]
    most = room // SLOTS
    limit = min(most, max(LARGEST_PART, *bytes_of))
    parts, begin, size = [], 0, 0
    for k, more in enumerate(bytes_of):
        if more > most:
            raise InputError(
                f"device cuda: examples {k * chunk:,} to {min((k + 1) * chunk, n):,} take {more / 1e6:,.1f} MB, and "
                f"there is room for {most / 1e6:,.1f}: free some of the GPU's memory, or train on the CPU"
            )
        if size + more > limit:
            parts.append((begin, k * chunk))
            begin, size = k * chunk, 0
        size += more
    return [*parts, (begin, n)]


def _bytes(launcher: Launcher, first: int, last: int) -> int:
    return launcher.bytes_of(first, last) + ENTRY * (last - first)


def _upload(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """A copy on the device, made piece by piece: the array may be larger than what the host has to spare."""
    out = torch.empty(array.shape, dtype=dtype_of(array), device=device)
    rows = max(PIECE // max(array.nbytes // max(len(array), 1), 1), 1)
    for first in range(0, len(array), rows):
        out[first : first + rows].copy_(torch.from_numpy(np.array(array[first : first + rows])))
    return out


def _steps(step: Step, visited: int, count: int, device: torch.device) -> torch.Tensor:
    """``scale / (offset + t)**power`` at ``count`` visits from t = ``visited`` on, float32."""
    scale, offset, power = step
    if power == 0.0:
        return torch.full((count,), scale, dtype=torch.float32, device=device)
    times = torch.arange(visited, visited + count, dtype=torch.float64, device=device)
    return (scale * (offset + times) ** -power).to(torch.float32)
