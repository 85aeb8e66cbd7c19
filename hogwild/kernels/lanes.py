"""Short vectors as values in a kernel: 4, 8 or 16 float32 numbers, or 8 of float64, that stay in registers between load
and store.

A loop over the classes of a nonzero keeps its sums in memory, where each waits for the store of the one before; with
these vectors the sums stay in registers, and the loop runs at twice the speed. ``LANES`` has a tuple of each length:
its contents are never read, but length and kind are part of its type, as are those of ``DOUBLES``. Each lane is
computed exactly as a scalar would be, to the last bit. The plain Python meaning, which also runs with the JIT off,
works on arrays.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import models, register_model

from hogwild.kernels import fma as scalar
from hogwild.kernels.options import instructions

LANES = {size: (0,) * size for size in (4, 8, 16)}
DOUBLES = (0.0,) * 8


class Lanes(types.Type):
    """The type of a vector of ``size`` numbers, float32 or else ``double``."""

    def __init__(self, size, double=False):
        self.size, self.double = size, double
        super().__init__(name=f"Lanes({size}, {double})")


@register_model(Lanes)
class _Model(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, ir.VectorType(ir.DoubleType() if kind.double else ir.FloatType(), kind.size))


def dtype_of(lanes):
    return np.float64 if isinstance(lanes[0], float) else np.float32


def nothing(lanes):
    """Return a vector of zeros."""
    return np.zeros(len(lanes), dtype_of(lanes))


def load(lanes, array, first):
    """Return ``array[first : first + n]``."""
    return array[int(first) : int(first) + len(lanes)].copy()


def store(vector, array, first):
    """Set ``array[first : first + n] = vector``."""
    array[int(first) : int(first) + len(vector)] = vector


def fma(x, vector, other):
    """Return ``x * vector + other``, rounded once (with the JIT off only of float32); ``x`` is a number or a vector."""
    return scalar.fma(x, vector, other) if other.dtype == np.float32 else x * vector + other


def filled(lanes, x):
    """Return a vector of which every number is ``x``."""
    return np.full(len(lanes), x, dtype_of(lanes))


def times(x, vector):
    """Return ``x * vector``; ``x`` is a number or a vector."""
    return vector.dtype.type(x) * vector if np.isscalar(x) else x * vector


def plus(vector, other):
    """Return ``vector + other``."""
    return vector + other


def over(vector, x):
    """Return ``vector / x``; ``x`` is a number or a vector."""
    return vector / (vector.dtype.type(x) if np.isscalar(x) else x)


def root(vector):
    """Return the square roots."""
    return np.sqrt(vector)


def nearer_zero(vector, by):
    """Return each number moved towards zero by that of the vector ``by``, at most to zero."""
    moved = np.where(vector > 0, np.maximum(vector - by, np.float32(0)), np.minimum(vector + by, np.float32(0)))
    return np.where((vector > 0) | (vector < 0), moved, vector)


def _is_double(vector):
    return isinstance(vector.element, ir.DoubleType)


def _kind(lanes):
    return Lanes(lanes.count, lanes.dtype == types.float64)


def _spread(context, builder, value, kind, vector):
    """Copy a number into every lane; leave a vector as it is."""
    if isinstance(kind, Lanes):
        return value
    number = context.cast(builder, value, kind, types.float64 if _is_double(vector) else types.float32)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
    order = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), order)


def _pointer(context, builder, array, kind, first, first_kind, vector):
    struct = context.make_array(kind)(context, builder, array)
    number = context.cast(builder, first, first_kind, types.uint64)
    return builder.bitcast(builder.gep(struct.data, [number]), vector.as_pointer())


@instructions(load)
def _load(typingctx, lanes, array, first):
    def codegen(context, builder, signature, args):
        vector, kinds = context.get_value_type(signature.return_type), signature.args
        pointer = _pointer(context, builder, args[1], kinds[1], args[2], kinds[2], vector)
        return builder.load(pointer, align=8 if _is_double(vector) else 4)

    return _kind(lanes)(lanes, array, first), codegen


@instructions(store)
def _store(typingctx, vector, array, first):
    def codegen(context, builder, signature, args):
        kinds = signature.args
        pointer = _pointer(context, builder, args[1], kinds[1], args[2], kinds[2], args[0].type)
        builder.store(args[0], pointer, align=8 if _is_double(args[0].type) else 4)
        return context.get_dummy_value()

    return types.void(vector, array, first), codegen


def _arithmetic(function, emit):
    """Generate the code of ``function``: ``emit`` gets the type of its vectors and the arguments, each as a vector."""

    @instructions(function)
    def define(typingctx, *kinds):
        result = next((kind for kind in kinds if isinstance(kind, Lanes)), None) or _kind(kinds[0])

        def codegen(context, builder, signature, args):
            vector = context.get_value_type(result)
            numbers = [pair for pair in zip(args, signature.args) if not isinstance(pair[1], types.BaseTuple)]
            return emit(builder, vector, *(_spread(context, builder, *number, vector) for number in numbers))

        return result(*kinds), codegen


def _call(name):
    """LLVM's own function ``name`` of vectors."""

    def emit(builder, vector, *values):
        kind = ir.FunctionType(vector, [vector] * len(values))
        full = f"llvm.{name}.v{vector.count}f{64 if _is_double(vector) else 32}"
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, full), values)

    return emit


def _nearer_zero(builder, vector, value, by):
    zero = ir.Constant(vector, [0.0] * vector.count)
    nearer = value
    for above, sign in ((">", builder.fsub), ("<", builder.fadd)):
        moved = sign(value, by)
        moved = builder.select(builder.fcmp_ordered(above, moved, zero), moved, zero)
        nearer = builder.select(builder.fcmp_ordered(above, value, zero), moved, nearer)
    return nearer


_arithmetic(nothing, lambda builder, vector: ir.Constant(vector, [0.0] * vector.count))
_arithmetic(filled, lambda builder, vector, x: x)
_arithmetic(fma, _call("fma"))
_arithmetic(root, _call("sqrt"))
_arithmetic(times, lambda builder, vector, x, y: builder.fmul(x, y))
_arithmetic(plus, lambda builder, vector, x, y: builder.fadd(x, y))
_arithmetic(over, lambda builder, vector, x, y: builder.fdiv(x, y))
_arithmetic(nearer_zero, _nearer_zero)
