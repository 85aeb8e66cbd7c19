"""A GPU: matrix completion, sparse rows and replicas of a network, each beside its limit or its rival in the same run.

Everything runs as a user's program does (``train`` and ``train_module`` with ``device="cuda"``) and is timed by the
runs' own clocks, in rounds in which the rivals take turns. The limit is a copy from the device's memory to itself,
which takes its turns too. Runs are evaluated on the CPU, off the clock, and only once in several epochs
(``sizes.Size``), since an evaluation takes a hundred times as long as an epoch.

Numbers of examples in flight per device: the launcher's choice (``usual``), all that the device holds (``full``) and,
where they are far apart, a number between (``between``).
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
from hogwild.bench.gpu import completion as gpu_completion
from hogwild.bench.gpu import linear as gpu_linear
from hogwild.bench.gpu import streams as gpu_streams
from hogwild.bench.gpu.sizes import CORES, FEWER, FLOAT, FULL, MEMORY, QUICK, TERA, Size
from hogwild.bench.plan import BenchPlan
from hogwild.bench.rounds import Timing, interleaved
from hogwild.cuda import backend as backends
from hogwild.cuda.backend import Backend
from hogwild.errors import HogwildError

COPIES = 10  # copies timed together: one takes a millisecond or two
SHARE = 8  # at most 1 / SHARE of the free memory is copied
DRIVER = Path("/proc/driver/nvidia/version")

Part = Callable[[BenchPlan, Size, "Copy"], Iterator[dict[str, Any]]]
PARTS: dict[str, Part] = {
    "completion": gpu_completion.measure, "logistic": gpu_linear.measure, "streams": gpu_streams.measure,
}  # fmt: skip


def measure(plan: BenchPlan) -> Iterator[dict[str, Any]]:
    """Yield rows for the copy and all parts; a part that cannot be measured gives a row with the reason.

    Raises
    ------
    InputError
        If there is no GPU.
    """
    device, size = backends.connect(), size_for(plan)
    copy = Copy(device, size.copied)
    plan.note("copying")
    timing = interleaved({"copy": copy}, plan.repeats)["copy"]
    yield copy.row(timing) | about(device)
    for name, part in PARTS.items():
        try:
            yield from part(plan, size, copy)
        except HogwildError as error:
            yield {"part": name, "what": name, "status": f"failed: {error}"}
        copy.release()
        gc.collect()  # free finished runs, since the next ones check the device's free memory


def size_for(plan: BenchPlan) -> Size:
    """Choose the sizes for this machine."""
    if plan.quick:
        return QUICK
    total, _ = machine.memory()
    roomy = total is None or total >= MEMORY
    return FULL if roomy and machine.physical_cores() >= CORES else dataclasses.replace(FULL, ratings=FEWER)


def about(device: Backend) -> dict[str, Any]:
    """Return the GPU's name, and the versions of driver, CUDA and Triton."""
    found: dict[str, Any] = {"gpu": device.name, "gpu_free_bytes": device.free(), "gpu_warps": device.programs()}
    found |= {"gpu_driver": driver(), "version_cuda": torch.version.cuda, "version_triton": None}
    with contextlib.suppress(metadata.PackageNotFoundError):
        found["version_triton"] = metadata.version("triton")
    return found


def driver(path: Path = DRIVER) -> str | None:
    """Return the NVIDIA driver's version as the kernel reports it."""
    try:
        found = re.search(r"\b\d{3,}\.[\d.]+\b", path.read_text(errors="replace"))
    except OSError:
        return None
    return found.group() if found else None


class Copy:
    """A side that copies an array on the device a few times; returns the seconds of one copy."""

    def __init__(self, device: Backend, size: int) -> None:
        self._stream, self._device = device.stream(), device.device
        self._count = max(min(size, device.free() // SHARE) // FLOAT, 1)
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
        return 2 * FLOAT * self._count

    def row(self, timing: Timing) -> dict[str, Any]:
        """Return the measured row, which counts bytes read and written."""
        rate = timing.per_second(self.moved)
        return timing.fields() | {
            "part": "copy", "what": "copy on the device", "measured": None if rate is None else rate / TERA,
            "unit": "TB/s", "bytes": self.moved, "bytes_per_second": rate,
        }  # fmt: skip

    def release(self) -> None:
        """Free the memory until the next call."""
        self._arrays = []

    def _make(self) -> None:
        made = torch.zeros(self._count, dtype=torch.float32, device=self._device)
        self._arrays = [made, torch.empty_like(made)]

    def _copy(self) -> None:
        source, out = self._arrays
        for _ in range(COPIES):
            out.copy_(source)
