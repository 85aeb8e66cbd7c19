"""Derivatives of the losses, by name, as a Triton function: ``kernels/losses.dloss`` in float32.

No float64 is used. Consumer GPUs have next to none, and every lane of a warp would compute the same; the error of
float32, some 1e-7 of the slope, is far below that of racing updates. As in the original, a NaN margin gives NaN:
constants are returned only when a comparison is true, and minimum, which would drop a NaN, is not used.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="misc"

from __future__ import annotations

import triton
import triton.language as tl

from hogwild.kernels import losses

POISSON_CAP = tl.constexpr(losses.CAP)
#: Losses that a GPU computes; softmax's gradient is the kernel's, as it needs all classes
LOSSES = (
    "log",
    "softmax",
    "hinge",
    "squared-hinge",
    "modified-huber",
    "perceptron",
    "squared-error",
    "huber",
    "epsilon-insensitive",
    "squared-epsilon-insensitive",
    "poisson",
)
EXP_CAP = tl.constexpr(80.0)  # exp of it is finite in float32, and its reciprocal negligible


@triton.jit
def dloss(p, y, param, LOSS: tl.constexpr):
    """Derivative of the loss in the margins ``p`` for targets ``y``; scalars or tensors of one shape."""
    tl.static_assert(LOSS != "softmax", "softmax has no derivative in one margin alone")
    if LOSS == "log":
        z = y * p
        return -y / (1.0 + tl.exp(tl.where(z > EXP_CAP, EXP_CAP, z)))
    elif LOSS == "hinge":
        z = y * p
        return tl.where(z < 1.0, -y, tl.where(z >= 1.0, 0.0, z))
    elif LOSS == "squared-hinge":
        z = y * p
        return tl.where(z >= 1.0, 0.0, -2.0 * y * (1.0 - z))
    elif LOSS == "modified-huber":
        z = y * p
        return tl.where(z >= 1.0, 0.0, tl.where(z < -1.0, -4.0 * y, -2.0 * y * (1.0 - z)))
    elif LOSS == "perceptron":
        z = y * p
        return tl.where(z <= 0.0, -y, tl.where(z > 0.0, 0.0, z))
    elif LOSS == "squared-error":
        return p - y
    elif LOSS == "huber":
        r = p - y
        return tl.where(r > param, param, tl.where(r < -param, -param, r))
    elif LOSS == "epsilon-insensitive":
        r = p - y
        return tl.where(r > param, 1.0, tl.where(r < -param, -1.0, tl.where(tl.abs(r) <= param, 0.0, r)))
    elif LOSS == "squared-epsilon-insensitive":
        r = p - y
        outside = tl.where(r > param, 2.0 * (r - param), 2.0 * (r + param))
        return tl.where(tl.abs(r) <= param, 0.0, outside)
    else:
        tl.static_assert(LOSS == "poisson", "a loss without a derivative here")
        return tl.exp(tl.where(p > POISSON_CAP, POISSON_CAP, p)) - y
