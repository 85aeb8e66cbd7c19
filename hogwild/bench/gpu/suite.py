"""The parts of the GPU's benchmark: what it computes, then replicas of a network, sparse rows and matrix completion.

A part runs in a process of its own (``__main__.py``), since a fault of the device ends everything in one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from hogwild.bench.gpu import correctness, timings
from hogwild.bench.gpu.sides import Pace, Row
from hogwild.bench.gpu.timings import FULL, QUICK, Size
from hogwild.cuda import backend as backends
from hogwild.cuda.backend import Backend

DRIVER = Path("/proc/driver/nvidia/version")
PARTS: dict[str, Callable[[Size, Pace], Iterator[Row]]] = {
    "correctness": correctness.measure,
    "streams": timings.streams,
    "linear": timings.linear,
    "completion": timings.completion,
}


def measure(part: str, seconds: float, quick: bool = False, skipped: tuple[str, ...] = ()) -> Iterator[Row]:
    """Yield the rows of a part as they are taken, the device's description first.

    Raises
    ------
    InputError
        If there is no GPU.
    """
    pace = Pace(seconds, skipped)
    yield {"section": "gpu", "part": part, "what": "device", "status": "ok", **about(backends.connect())}
    for row in PARTS[part](QUICK if quick else FULL, pace):
        yield {"section": "gpu", **row}


def works() -> bool:
    """Whether the device still does what it is asked to."""
    try:
        return not torch.cuda.is_initialized() or float(torch.ones(1, device="cuda")) == 1.0
    except RuntimeError:
        return False


def about(device: Backend) -> dict[str, Any]:
    """Return the GPU's name, and the versions of driver, torch, CUDA and Triton."""
    found: dict[str, Any] = {"gpu": device.name, "gpu_free_bytes": device.free(), "gpu_warps": device.programs()}
    found |= {"gpu_driver": None, "version_cuda": torch.version.cuda, "version_torch": torch.__version__}
    with contextlib.suppress(OSError):
        found["gpu_driver"] = DRIVER.read_text(errors="replace").partition("\n")[0]
    with contextlib.suppress(metadata.PackageNotFoundError):
        found["version_triton"] = metadata.version("triton")
    return found
