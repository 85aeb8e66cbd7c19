"""A GPU: matrix completion, sparse rows and replicas of a network, each beside its limit or its rival in the same run.

The decision that matters: everything goes the way a user's program goes (``train`` and ``train_module`` with
``device="cuda"``) and is timed by the runs' own clocks, in rounds in which the rivals have their turns. The limit is a
copy from the device's memory to itself, which has its turns too. Runs are evaluated on the CPU, off the clock, and only
once in some epochs (``gpu_targets.Size``), for that takes a hundred times as long as they do.

In hand at the same time, per device: what the launcher takes by itself (``usual``), all that the device holds
(``full``) and, where they are far apart, the number between (``between``). The last rows are the targets.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import re
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from hogwild import machine
from hogwild.bench import gpu_completion, gpu_linear, gpu_streams, gpu_targets
from hogwild.bench.gpu_targets import CORES, FEWER, FULL, MEMORY, QUICK, TARGETS, TERA, Size
from hogwild.bench.plan import Plan
from hogwild.bench.rounds import Timing, interleaved
from hogwild.cuda import backend as backends
from hogwild.cuda.backend import Backend
from hogwild.errors import HogwildError

COPIES = 10  # at a time: one takes a millisecond or two
SHARE = 8  # of the memory that is free, one in so many is copied at most
DRIVER = Path("/proc/driver/nvidia/version")

Part = Callable[[Plan, Size, "Copy"], Iterator[dict[str, Any]]]
PARTS: dict[str, Part] = {
    "completion": gpu_completion.measure, "logistic": gpu_linear.measure, "streams": gpu_streams.measure,
}  # fmt: skip


def measure(plan: Plan) -> Iterator[dict[str, Any]]:
    """The copy, all parts and the targets; a part that cannot be measured is a row with the reason.

    Raises
    ------
    InputError
        Where there is no GPU.
    """
    device, size = backends.connect(), size_for(plan)
    copy = Copy(device, size.copied)
    plan.note("copying")
    timing = interleaved({"copy": copy}, plan.repeats)["copy"]
    yield copy.row(timing) | about(device)
    done: list[dict[str, Any]] = []
    for name, part in PARTS.items():
        try:
            for row in part(plan, size, copy):
                done.append(row)
                yield row
        except HogwildError as error:
            yield {"part": name, "what": name, "status": f"failed: {error}"}
        copy.release()
        gc.collect()  # runs that are over: the next ones ask for the device's free memory
    for target in TARGETS:
        yield target.row(done)


def size_for(plan: Plan) -> Size:
    """How much to measure on this machine."""
    if plan.quick:
        return QUICK
    total, _ = machine.memory()
    roomy = total is None or total >= MEMORY
    return FULL if roomy and machine.physical_cores() >= CORES else dataclasses.replace(FULL, ratings=FEWER)


def about(device: Backend) -> dict[str, Any]:
    """Which GPU, with which driver, CUDA and Triton."""
    found: dict[str, Any] = {"gpu": device.name, "gpu_free_bytes": device.free(), "gpu_warps": device.programs()}
    found |= {"gpu_driver": driver(), "version_cuda": torch.version.cuda, "version_triton": None}
    with contextlib.suppress(metadata.PackageNotFoundError):
        found["version_triton"] = metadata.version("triton")
    return found


def driver(path: Path = DRIVER) -> str | None:
    """The NVIDIA driver's version as the kernel gives it."""
    try:
        found = re.search(r"\b\d{3,}\.[\d.]+\b", path.read_text(errors="replace"))
    except OSError:
        return None
    return found.group() if found else None


class Copy:
    """A side that copies an array on the device a few times; seconds of one of them."""

    def __init__(self, device: Backend, size: int) -> None:
        self._stream, self._device = device.stream(), device.device
        self._count = max(min(size, device.free() // SHARE) // gpu_targets.FLOAT, 1)
        self._arrays: list[torch.Tensor] = []

    def __call__(self) -> float:
        if not self._arrays:
            self._stream.run(self._make)
            self._stream.record().wait()
        start = time.perf_counter()
        self._stream.run(self._copy)
        self._stream.record().wait()
        return (time.perf_counter() - start) / COPIES

    @property
    def moved(self) -> int:
        """Bytes that a copy reads and writes."""
        return 2 * gpu_targets.FLOAT * self._count

    def row(self, timing: Timing) -> dict[str, Any]:
        """What was measured, bytes read and written counted."""
        rate = timing.per_second(self.moved)
        return timing.fields() | {
            "part": "copy", "what": "copy on the device", "measured": None if rate is None else rate / TERA,
            "unit": "TB/s", "bytes": self.moved, "bytes_per_second": rate,
        }  # fmt: skip

    def release(self) -> None:
        """Give the memory back until the next call."""
        self._arrays = []

    def _make(self) -> None:
        made = torch.zeros(self._count, dtype=torch.float32, device=self._device)
        self._arrays = [made, torch.empty_like(made)]

    def _copy(self) -> None:
        source, out = self._arrays
        for _ in range(COPIES):
            out.copy_(source)
