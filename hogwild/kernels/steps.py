"""The step size, and the length of a row that it must suit."""

from __future__ import annotations

import numpy as np

from hogwild.kernels.options import inlined

STEP_EVERY = 16  # rows between two evaluations of a falling step


def step_after(step, visited):
    """Return ``scale / (offset + visited)**power`` as float32."""
    scale, offset, power = step
    return np.float32(scale if power == 0.0 else scale * (offset + visited) ** -power)


step_at = inlined(step_after)


@inlined
def squared_length(values, begin, end, factor):
    """Squared norm of a row scaled by ``factor``, float64."""
    total = 0.0
    for j in range(begin, end):
        x = np.float64(values[np.uint64(j)]) * factor
        total += x * x
    return total
