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


def total(vector):
    """Return the sum of the numbers, added in their order."""
    found = np.float32(0)
    for number in vector:
        found += number
    return found


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


@instructions(nothing)
def _nothing(typingctx, lanes):
    def codegen(context, builder, signature, args):
        vector = context.get_value_type(signature.return_type)
        return ir.Constant(vector, [0.0] * vector.count)

    return _kind(lanes)(lanes), codegen


@instructions(load)
def _load(typingctx, lanes, array, first):
    def codegen(context, builder, signature, args):
        vector, kinds = context.get_value_type(signature.return_type), signature.args
        return builder.load(
            _pointer(context, builder, args[1], kinds[1], args[2], kinds[2], vector),
            align=8 if _is_double(vector) else 4,
        )

    return _kind(lanes)(lanes, array, first), codegen


@instructions(store)
def _store(typingctx, vector, array, first):
    def codegen(context, builder, signature, args):
        kinds = signature.args
        pointer = _pointer(context, builder, args[1], kinds[1], args[2], kinds[2], args[0].type)
        builder.store(args[0], pointer, align=8 if _is_double(args[0].type) else 4)
        return context.get_dummy_value()

    return types.void(vector, array, first), codegen


@instructions(fma)
def _fma(typingctx, x, vector, other):
    def codegen(context, builder, signature, args):
        kind = args[1].type
        name = f"llvm.fma.v{kind.count}f{64 if _is_double(kind) else 32}"
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * 3), name)
        return builder.call(function, [_spread(context, builder, args[0], signature.args[0], kind), args[1], args[2]])

    return vector(x, vector, other), codegen


@instructions(total)
def _total(typingctx, vector):
    def codegen(context, builder, signature, args):
        number, kind = ir.FloatType(), args[0].type
        name = f"llvm.vector.reduce.fadd.v{kind.count}f32"
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(number, [number, kind]), name)
        return builder.call(function, [ir.Constant(number, 0.0), args[0]])

    return types.float32(vector), codegen


@instructions(filled)
def _filled(typingctx, lanes, x):
    def codegen(context, builder, signature, args):
        return _spread(context, builder, args[1], signature.args[1], context.get_value_type(signature.return_type))

    return _kind(lanes)(lanes, x), codegen


@instructions(times)
def _times(typingctx, x, vector):
    def codegen(context, builder, signature, args):
        return builder.fmul(_spread(context, builder, args[0], signature.args[0], args[1].type), args[1])

    return vector(x, vector), codegen


@instructions(plus)
def _plus(typingctx, vector, other):
    def codegen(context, builder, signature, args):
        return builder.fadd(*args)

    return vector(vector, other), codegen


@instructions(over)
def _over(typingctx, vector, x):
    def codegen(context, builder, signature, args):
        return builder.fdiv(args[0], _spread(context, builder, args[1], signature.args[1], args[0].type))

    return vector(vector, x), codegen


@instructions(root)
def _root(typingctx, vector):
    def codegen(context, builder, signature, args):
        kind = args[0].type
        name = f"llvm.sqrt.v{kind.count}f32"
        return builder.call(cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind]), name), args)

    return vector(vector), codegen


@instructions(nearer_zero)
def _nearer_zero(typingctx, vector, by):
    def codegen(context, builder, signature, args):
        value, by = args
        zero = ir.Constant(value.type, [0.0] * value.type.count)
        found = value
        for above, sign in ((">", builder.fsub), ("<", builder.fadd)):
            moved = sign(value, by)
            moved = builder.select(builder.fcmp_ordered(above, moved, zero), moved, zero)
            found = builder.select(builder.fcmp_ordered(above, value, zero), moved, found)
        return found

    return vector(vector, by), codegen
