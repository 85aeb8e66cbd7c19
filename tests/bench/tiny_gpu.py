"""The GPU's benchmark made small, for a stand-in."""

from __future__ import annotations

from collections.abc import Callable

from hogwild.bench.gpu import sides, suite, timings
from hogwild.bench.gpu.timings import Size
from hogwild.cuda import backend
from hogwild.cuda import streams as pool
from tests.cuda.standin import StandIn

TINY = Size(
    1 << 16,
    "synthetic:ratings?users=30&items=20&ratings=150",
    "synthetic:rcv1?rows=200&features=200&nnz=8",
    256,
    {"completion": 2, "linear": 3, "streams": 1},
    goal=2,
    most=40,
    checked=24,
)


def take_place(change: Callable[[object, str, object], None], device: StandIn) -> StandIn:
    """Put ``device`` where a GPU would be found, and measure little and once; ``change`` is like ``setattr``."""
    for module in (backend, pool):
        change(module, "connect", lambda: device)
    change(suite, "QUICK", TINY)
    change(suite, "Pace", lambda *about: sides.Pace(*about, rounds=1))
    for name, value in {"RANKS": (8,), "BATCHES": (16,), "INPUTS": 12, "HIDDEN": 8}.items():
        change(timings, name, value)
    return device
