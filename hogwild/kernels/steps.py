"""The step size, and the shrinkage of the weights over many steps under an l2 penalty."""

from __future__ import annotations

import math

import numpy as np

from hogwild.kernels.options import inlined

STEP_EVERY = 16  # rows between two evaluations of a falling step


def step_after(step, visited):
    """Return ``scale / (offset + visited)**power`` as float32."""
    scale, offset, power = step
    return np.float32(scale if power == 0.0 else scale * (offset + visited) ** -power)


step_at = inlined(step_after)


def area(step, visited):
    """Integral of ``step_at`` from a fixed number of rows to ``visited``."""
    scale, offset, power = step
    if power == 0.0:
        return scale * visited
    if power == 1.0:
        return scale * math.log(offset + visited)
    return scale * (offset + visited) ** (1.0 - power) / (1.0 - power)


area_up_to = inlined(area)


@inlined
def scale_at(plan, place):
    """Scale of the weights when the next row is the one at position ``place`` of the epoch.

    No worker is ahead of the others by more than a chunk for each of them, and one that lags behind moves the weights
    by less than it should.
    """
    begun = plan.epoch * plan.n_rows
    now = begun + min(place, plan.n_rows)
    return np.float32(math.exp(plan.l2 * (area_up_to(plan.step, begun) - area_up_to(plan.step, now))))


@inlined
def shrink_a_row(plan, step):
    """Factor on the scale while a worker does a row and each of the others does one."""
    return np.float32(math.exp(-plan.l2 * np.float64(step) * plan.workers))


@inlined
def squared_length(values, begin, end, factor):
    """Squared norm of a row scaled by ``factor``, float64."""
    total = 0.0
    for j in range(begin, end):
        x = np.float64(values[np.uint64(j)]) * factor
        total += x * x
    return total
