"""Explicit fused multiply-add: ``fma(a, b, c) = a * b + c``, rounded once.

Letting the compiler contract where it likes (``fastmath={"contract"}``) runs at the same speed, but whether it fuses
depends on context, so two disciplines would round differently. With explicit calls all disciplines are bitwise equal
with one worker, and a NumPy twin can follow the arithmetic.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from hogwild.kernels.options import instructions


def fma(a, b, c):
    """Return ``a * b + c`` of float32 numbers, rounded once (with the JIT off, by way of float64)."""
    return np.float32(np.float64(a) * np.float64(b) + np.float64(c))


@instructions(fma)
def _fma(typingctx, a, b, c):
    def codegen(context, builder, signature, args):
        kind = ir.FloatType()
        values = [context.cast(builder, value, given, types.float32) for value, given in zip(args, (a, b, c))]
        function_type = ir.FunctionType(kind, [kind, kind, kind])
        return builder.call(cgutils.get_or_insert_function(builder.module, function_type, "llvm.fma.f32"), values)

    return types.float32(a, b, c), codegen
