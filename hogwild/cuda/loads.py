"""Data on the device for replicas to work through, whole or part by part, and the sequence of examples.

Data that fit are copied once, and an epoch is a permutation of all examples. Data that do not fit are cut into parts of
neighbouring examples, and an epoch is a permutation of the parts, each permuted in itself, which is a little less
random. The next part is copied by a stream of its own while one is worked on, and never more than two are on the
device. All permutations depend on (seed, epoch, part) only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from hogwild.cuda.backend import Backend, DeviceStream, Event, dtype_of
from hogwild.cuda.problem import DeviceOrder
from hogwild.cuda.work import Launcher
from hogwild.errors import InputError
from hogwild.training.schedule import Step

SHARE, SHARE_BESIDE_MODULES = 0.8, 0.5  # share of the free memory to use; replicas of a module need more
SLOTS = 3  # parts to leave room for: in use, being copied, and cached by the allocator
LARGEST_PART = 1 << 30  # bytes
ENTRY = 36  # bytes for an example's place in the sequence while it is made: torch sorts it, with a key, out of place
PIECE = 1 << 26  # bytes copied at a time while nothing is computed
LARGEST = 2**31 - 2**10  # most examples in a part: int32 numbers, padded to whole blocks
BEFORE = 1 << 40  # the "epoch" of the permutation that is made once


@dataclass
class Load:
    """Examples in visiting order, from one part, or from one or several epochs of the whole data."""

    lengths: list[int]  # examples of each epoch
    visited: list[int]  # examples visited before the first of each epoch, since the run began
    steps: list[Step]  # of each epoch
    data: dict[str, torch.Tensor] = field(default_factory=dict)  # valid once the device has reached ``ready``
    rows: torch.Tensor | None = None  # (sum of lengths,) int32, numbered within the part; valid likewise
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
    """The data of one run, and the part of them on the device.

    Raises
    ------
    InputError
        If not even parts of the data fit.
    """

    def __init__(self, launcher: Launcher, order: DeviceOrder, backend: Backend, seed: int) -> None:
        self._launcher, self._order, self._backend, self._seed = launcher, order, backend, seed
        self._stream: DeviceStream = backend.stream()
        share = SHARE_BESIDE_MODULES if launcher.granule() else SHARE
        self._parts = cut_parts(launcher, order, int(share * backend.free()))
        self._whole: dict[str, torch.Tensor] | None = None
        self._block = 1
        if len(self._parts) == 1:
            self._stream.run(self._take_all)
            self._stream.record().wait()

    def _take_all(self) -> None:
        self._whole, scattered = {}, None
        if self._order.shuffled and self._launcher.block > 1:  # blocks are then as good as single examples
            self._block = self._launcher.block
            scattered = self._permutation(BEFORE, 0, self._order.n_rows, 1)
        for name, array in self._launcher.part(0, self._order.n_rows).items():  # at most two copies at a time
            there = _upload(array, self._backend.device)
            self._whole[name] = there if scattered is None else there[scattered]

    @property
    def parts(self) -> int:
        """Number of parts: 1 if everything is on the device."""
        return len(self._parts)

    def of(self, epoch: int, start: int, steps: Sequence[Step], most: int) -> Iterator[Load]:
        """Yield the loads of ``len(steps)`` epochs from ``epoch`` on, without the first ``start`` chunks.

        Ask for the next one only when all loads but the last are queued and :meth:`finished` was called, since their
        memory is reused.

        Parameters
        ----------
        most : int
            Most examples for joining several epochs into one load.
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

    def close(self) -> None:
        """Give the stream of the copies back."""
        self._stream.close()

    def finished(self, events: Iterable[Event]) -> None:
        """Delay all later copies and permutations until the device has reached these events."""
        for event in events:
            self._stream.after(event)

    def _sequence(self, epoch: int) -> list[int]:
        """Return the parts in an epoch's order."""
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
        """Make the load's sequence from pairs of epoch and part, without the first ``skip`` visits."""
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
        """Return a permutation of ``length`` examples that keeps ``block`` neighbours together, int32."""
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
        # drop the last block's padding; asking which rows exist would wait for the device
        place = torch.arange(length, device=device, dtype=torch.int32)
        gap = (blocks == count - 1).to(torch.int32).argmax() * block + (block - missing)
        return rows.index_select(0, place + (place >= gap).to(torch.int32) * missing)


def cut_parts(launcher: Launcher, order: DeviceOrder, room: int) -> list[tuple[int, int]]:
    """First and last example (exclusive) of each part: one part if ``room`` bytes suffice, else whole chunks.

    Parts have at most ``LARGEST_PART`` bytes, or are one larger chunk.

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
    """Copy an array to the device piece by piece, since it may be larger than the host's spare memory."""
    out = torch.empty(array.shape, dtype=dtype_of(array), device=device)
    rows = max(PIECE // max(array.nbytes // max(len(array), 1), 1), 1)
    for first in range(0, len(array), rows):
        out[first : first + rows].copy_(torch.from_numpy(np.array(array[first : first + rows])))
    return out


def _steps(step: Step, visited: int, count: int, device: torch.device) -> torch.Tensor:
    """``scale / (offset + t)**power`` for ``count`` visits from t = ``visited`` on, float32."""
    scale, offset, power = step
    if power == 0.0:
        return torch.full((count,), scale, dtype=torch.float32, device=device)
    times = torch.arange(visited, visited + count, dtype=torch.float64, device=device)
    return (scale * (offset + times) ** -power).to(torch.float32)
