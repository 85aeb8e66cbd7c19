"""A GPU: what it computes, replicas of a network, sparse rows and matrix completion, each beside its limit or rival.

Everything runs as a user's program does (``train`` and ``train_module`` with ``device="cuda"``) and is timed by the
runs' own clocks, in rounds in which the rivals take turns. Runs are evaluated off the clock, and only once in several
epochs (``sizes.Size``).

A part runs in a process of its own (``__main__.py``), since a fault of the device ends everything in one.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from hogwild.bench.gpu import completion, correctness, linear, streams
from hogwild.bench.gpu.sides import Pace, Row
from hogwild.bench.gpu.sizes import FULL, QUICK, Size
from hogwild.cuda import backend as backends
from hogwild.cuda.backend import Backend

DRIVER = Path("/proc/driver/nvidia/version")
PARTS: dict[str, Callable[[Size, Pace], Iterator[Row]]] = {
    "correctness": correctness.measure, "streams": streams.measure, "linear": linear.measure,
    "completion": completion.measure,
}  # fmt: skip


def measure(part: str, seconds: float, quick: bool = False, skipped: tuple[str, ...] = ()) -> Iterator[Row]:
    """Yield the rows of a part as they are taken, the device's description first.

    Raises
    ------
    InputError
        If there is no GPU.
    sides.Faulty
        After a fault of the device.
    """
    pace = Pace(seconds, skipped, works)
    device = backends.connect()
    yield {"section": "gpu", "part": part, "what": "device", "status": "ok", **about(device)}
    for row in PARTS[part](QUICK if quick else FULL, pace):
        yield {"section": "gpu", **row}


def works() -> bool:
    """Whether the device still does what it is asked to."""
    if not torch.cuda.is_initialized():
        return True
    try:
        torch.cuda.synchronize()
        return float(torch.ones(1, device="cuda")) == 1.0
    except RuntimeError:
        return False


def about(device: Backend) -> dict[str, Any]:
    """Return the GPU's name, and the versions of driver, torch, CUDA and Triton."""
    found: dict[str, Any] = {"gpu": device.name, "gpu_free_bytes": device.free(), "gpu_warps": device.programs()}
    found |= {"gpu_driver": driver(), "version_cuda": torch.version.cuda, "version_torch": torch.__version__}
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
