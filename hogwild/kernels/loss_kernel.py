"""The functions of ``losses.py`` as kernels call them: each becomes a part of the kernel, in arithmetic of float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numba.extending import overload

from hogwild.kernels.losses import bend, curvature, dloss, ease, exp, log_1_exp, loss, slope_of_exp
from hogwild.kernels.options import JIT, inlined

__all__ = ["bend", "curvature", "dloss", "ease", "log_1_exp", "loss"]

LOWEST = -708.0  # an exponent below which exp is no longer a normal number
LOG2_E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # the low bits of the first are zero
TAYLOR = tuple(1.0 / math.factorial(k) for k in range(13, -1, -1))  # of exp, from the highest power on
ARTANH = tuple(1.0 / k for k in range(33, 0, -2))  # of artanh(s) / s in s^2


@inlined
def polynomial(coefficients, x):
    """The value at ``x`` of a polynomial (Horner); the loop over a constant tuple is unrolled."""
    total = 0.0
    for coefficient in coefficients:
        total = total * x + coefficient
    return total


def log_1_exp_series(x):
    """``log(1 + exp(x))`` for ``x <= 0``, to about half a unit in the last place, in arithmetic only.

    A loop over it therefore becomes vector instructions, nine times as fast as calls of the C library. ``exp`` is a
    power of two times a Taylor series of the remainder, and ``log(1 + t) = 2 artanh(t / (2 + t))`` is another series.
    NaN may become a number: the caller has it in another term.
    """
    x = x if x > LOWEST else LOWEST
    n = np.int64(x * LOG2_E - 0.5)
    r = (x - np.float64(n) * LN2_HIGH) - np.float64(n) * LN2_LOW
    t = polynomial(TAYLOR, r) * np.int64((n + np.int64(1023)) << np.int64(52)).view(np.float64)
    s = t / (2.0 + t)
    q = s * s
    return 2.0 * s * polynomial(ARTANH, q)


def _compile(function: Callable, meaning: Callable) -> None:
    """Let kernels call a plain ``function``, as what is written in ``meaning``."""
    options = JIT | {"forceinline": True, "no_cpython_wrapper": True}
    overload(meaning, jit_options=options, strict=False)(lambda *arguments: function)


for _function in (exp, slope_of_exp, loss, dloss, curvature, bend, ease):
    _compile(_function, _function)
_compile(log_1_exp_series, log_1_exp)
