"""The limit of a memory-bound kernel: a copy from the device's memory to itself."""

from __future__ import annotations

import time
from typing import Any

import torch

from hogwild.bench.gpu.sizes import FLOAT
from hogwild.cuda.backend import Backend

COPIES = 10  # copies timed together: one takes a millisecond or two
SHARE = 8  # at most 1 / SHARE of the free memory is copied


class Copy:
    """A side that copies an array of at most ``size`` bytes on the device a few times; gives the seconds of one."""

    def __init__(self, device: Backend, size: int) -> None:
        self._stream, self._device = device.stream(), device.device
        self._count = max(min(size, device.free() // SHARE) // FLOAT, 1)
        self._arrays: list[torch.Tensor] = []

    def __call__(self) -> float:
        if not self._arrays:
            self._stream.run(self._make)
            self._stream.record().synchronize()
        start = time.perf_counter()
        self._stream.run(self._copy)
        self._stream.record().synchronize()
        return (time.perf_counter() - start) / COPIES

    @property
    def moved(self) -> int:
        """Bytes that a copy reads and writes."""
        return 2 * FLOAT * self._count

    def facts(self) -> dict[str, Any]:
        """Return what was copied."""
        return {"bytes": FLOAT * self._count}

    def close(self) -> None:
        """Free the memory and the stream."""
        self._arrays = []
        self._stream.close()

    def _make(self) -> None:
        made = torch.zeros(self._count, dtype=torch.float32, device=self._device)
        self._arrays = [made, torch.empty_like(made)]

    def _copy(self) -> None:
        source, out = self._arrays
        for _ in range(COPIES):
            out.copy_(source)
