"""Data on the device for replicas to work through, whole or part by part, and the sequence of examples.

Data that fit are copied once, and an epoch is a permutation of all examples. Data that do not fit are cut into parts of
neighbouring examples, and an epoch is a permutation of the parts, each permuted in itself, which is a little less
random. The next part is copied by a stream of its own while one is worked on, and never more than two are on the
device. All permutations depend on (seed, epoch, part) only. Kernels compute theirs (``order.py``), so that epochs whose
steps are a geometric sequence are one sequence of visits; minibatches are put together by torch, from row numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from hogwild.cuda.backend import Backend, DeviceStream, dtype_of
from hogwild.cuda.problem import DeviceOrder
from hogwild.cuda.work import Launcher, Segment, Visits
from hogwild.errors import InputError
from hogwild.training.schedule import Step

SHARE, SHARE_BESIDE_MODULES = 0.8, 0.5  # share of the free memory to use; replicas of a module need more
SLOTS = 3  # parts to leave room for: in use, being copied, and cached by the allocator
LARGEST_PART = 1 << 30  # bytes
ENTRY = 36  # bytes for an example's place in a permutation that torch makes: it sorts it, with a key, out of place
PIECE = 1 << 26  # bytes copied at a time while nothing is computed
LARGEST = 2**31 - 2**10  # most examples in a part, of int32 numbers
BEFORE = 1 << 40  # the "epoch" of the permutation that is made once
TOGETHER = 1 << 30  # most visits in one load
ALIKE = 1e-9  # largest difference of the logarithms of one ratio
TINY = 1e-30  # in place of zero


@dataclass
class Load:
    """One part, or one or several epochs of the whole data, in visiting order."""

    visits: Visits  # all of them
    epochs: int
    visited: int  # examples visited before position 0, since the run began
    data: dict[str, torch.Tensor] = field(default_factory=dict)  # valid once the device has reached ``ready``
    rows: torch.Tensor | None = None  # (visits.size,) int32, if examples come in minibatches; valid likewise
    ready: torch.cuda.Event | None = None  # None: the data are there

    def segment(self, first: int, last: int) -> Segment:
        """The visits at positions from ``first`` to ``last`` (exclusive)."""
        begin, visits = self.visits.first, self.visits._replace(first=first, size=last - first)
        rows = None if self.rows is None else self.rows[first - begin : last - begin]
        return Segment(self.data, visits, self.visited + first, rows)


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
        share = SHARE_BESIDE_MODULES if launcher.granule else SHARE
        self._parts = cut_parts(launcher, order, int(share * backend.free()))
        self.whole: dict[str, torch.Tensor] | None = None  # all data, if they are on the device to stay
        if len(self._parts) == 1:
            self._stream.run(self._take_all)
            self._stream.record().synchronize()

    def _take_all(self) -> None:
        self.whole, scattered = {}, None
        if self._together > 1:  # so that a block of neighbours is a random choice
            scattered = self._permutation(BEFORE, 0, self._order.n_rows)
        for name, array in self._launcher.part(0, self._order.n_rows).items():  # at most two copies at a time
            there = _upload(array, self._backend.device)
            self.whole[name] = there if scattered is None else there[scattered]

    @property
    def _together(self) -> int:
        """Neighbours that are visited together: in random places, if the data are on the device to stay."""
        return self._launcher.block if self._order.shuffled and len(self._parts) == 1 else 1

    def of(self, epoch: int, start: int, steps: Sequence[Step]) -> Iterator[Load]:
        """Yield the loads of ``len(steps)`` epochs from ``epoch`` on, without the first ``start`` chunks.

        Ask for the next one only when all loads but the last are queued and :meth:`finished` was called, since their
        memory is reused.
        """
        n, chunk, steps = self._order.n_rows, self._order.chunk, list(steps)
        while steps:
            count, rate, visited = 1, 0.0, epoch * n
            if self.whole is not None and not self._launcher.granule:
                count, rate = alike(steps[: max(TOGETHER // n, 1)])
            parts = np.arange(len(self._parts))
            if self._order.shuffled:
                parts = np.random.default_rng((self._seed, epoch)).permutation(parts)
            for part in parts.tolist():
                length = self._parts[part][1] - self._parts[part][0]
                if start * chunk < length:
                    yield self._load(epoch, part, start * chunk, length, count, steps[0], rate, visited)
                start, visited = max(start - -(-length // chunk), 0), visited + length
            epoch, start, steps = epoch + count, 0, steps[count:]

    def _load(
        self, epoch: int, part: int, skip: int, length: int, epochs: int, step: Step, rate: float, visited: int
    ) -> Load:
        """Begin to copy a part, if it is not there, and to permute its minibatches, without the first ``skip``."""
        scale, offset, power = step
        key = int(np.random.SeedSequence((self._seed, part)).generate_state(1)[0])
        since = max(offset + visited, TINY)
        visits = Visits(
            skip,
            epochs * length - skip,
            length,
            key,
            epoch,
            scale,
            rate,
            since,
            power,
            self._order.shuffled,
            self._together,
        )
        load = Load(visits, epochs, visited, self.whole or {})
        if self.whole is None:
            self._stream.run(self._copy(load, part))
        if self._launcher.granule:
            self._stream.run(lambda: setattr(load, "rows", self._permutation(epoch, part, length)[skip:]))
        if self.whole is None or self._launcher.granule:
            load.ready = self._stream.record()
        return load

    def close(self) -> None:
        """Give the stream of the copies back."""
        self._stream.close()

    def finished(self, events: Iterable[torch.cuda.Event]) -> None:
        """Delay all later copies and permutations until the device has reached these events."""
        for event in events:
            self._stream.after(event)

    def _copy(self, load: Load, part: int) -> Callable[[], None]:
        staged = {name: self._backend.stage(array) for name, array in self._launcher.part(*self._parts[part]).items()}

        def copy() -> None:
            load.data = {name: host.to(self._backend.device, non_blocking=True) for name, host in staged.items()}

        return copy

    def _permutation(self, epoch: int, part: int, length: int) -> torch.Tensor:
        """Return a permutation of ``length`` examples, int32."""
        device = self._backend.device
        if not self._order.shuffled:
            return torch.arange(length, device=device, dtype=torch.int32)
        mixed = int(np.random.SeedSequence((self._seed, epoch, part)).generate_state(1, np.uint64)[0]) >> 1
        generator = torch.Generator(device).manual_seed(mixed)
        return torch.randperm(length, generator=generator, device=device, dtype=torch.int32)


def alike(steps: Sequence[Step]) -> tuple[int, float]:
    """How many of the first steps are a geometric sequence, and the logarithm of its ratio to the base 2."""
    count, rate = 1, 0.0
    for (before, *about), (after, *others) in itertools.pairwise(steps):
        here = math.log2(after / before) if min(before, after) > 0 else math.nan
        if others != about or not (count == 1 or abs(here - rate) < ALIKE) or math.isnan(here):
            break
        count, rate = count + 1, here
    return count, rate


def cut_parts(launcher: Launcher, order: DeviceOrder, room: int) -> list[tuple[int, int]]:
    """First and last example (exclusive) of each part: one part if ``room`` bytes suffice, else whole chunks.

    Parts have at most ``LARGEST_PART`` bytes, or are one larger chunk.

    Raises
    ------
    InputError
        If a chunk is too large.
    """
    n, chunk = order.n_rows, order.chunk
    entry = ENTRY if launcher.block > 1 or launcher.granule else 0
    if launcher.bytes_of(0, n) + entry * n <= room and n <= LARGEST:
        return [(0, n)]
    spans = [(first, min(first + chunk, n)) for first in range(0, n, chunk)]
    bytes_of = [launcher.bytes_of(first, last) + entry * (last - first) for first, last in spans]
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


def _upload(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """Copy an array to the device piece by piece, since it may be larger than the host's spare memory."""
    out = torch.empty(array.shape, dtype=dtype_of(array), device=device)
    rows = max(PIECE // max(array.nbytes // max(len(array), 1), 1), 1)
    for first in range(0, len(array), rows):
        out[first : first + rows].copy_(torch.from_numpy(np.array(array[first : first + rows])))
    return out
