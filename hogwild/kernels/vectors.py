"""Short vectors as values in a kernel: 4, 8 or 16 float32 numbers that stay in registers between load and store.

A loop over the classes of a nonzero keeps its sums in memory, where each waits for the store of the one before; with
these vectors the sums stay in registers, and the loop runs at twice the speed. ``LANES`` has a tuple of each length:
its contents are never read, but its length is part of its type. A vector of one number is that number, so what is
written for vectors serves models with one margin too. Each lane is computed exactly as a scalar would be, to
the last bit. ``+``, ``*`` and ``/`` are those of numbers, one of which may be a number of float32. The plain Python
meaning, which also runs with the JIT off, works on arrays.

Rows of factors are ``LANE * len(lanes)`` numbers of a flat array, a cache line for each element of the tuple ``lanes``;
row ``u`` is at ``u * LANE * len(lanes)``. Their dot products and steps are loops over vectors that are unrolled at
compile time. Left to the vectoriser, a loop over a row keeps a scalar remainder, tests whether the two rows overlap,
and sums in an order of its own; it ran at half the speed. Dot products are summed in one order: up to four accumulators
of 16 lanes, added pairwise, then halves upon halves. So all disciplines agree to the last bit. Rows need no alignment,
but one that straddles cache lines is slower.

Only explicit calls of ``fma`` are fused. Letting the compiler contract where it likes (``fastmath={"contract"}``) runs
at the same speed, but whether it fuses depends on context, so two disciplines would round differently.
"""

from __future__ import annotations

import operator

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import models, register_model

from hogwild.kernels.options import inlined, instructions

LANE = 16  # float32 in a cache line, and in the widest register
LANES = {size: (0,) * size for size in (1, 4, 8, LANE)}
LINE = LANES[LANE]
ZERO, ONE = np.float32(0), np.float32(1)
MAGIC, FIRST, FIRST_SUM = 0x5F1FFFF9, np.float32(0.703952253), np.float32(0.703952253 * 2.38924456)  # of inverse_root
NUMBER = ir.FloatType()


class Lanes(types.Type):
    """The type of a vector of ``size`` float32 numbers."""

    def __init__(self, size):
        self.size = size
        super().__init__(name=f"Lanes({size})")


def _kind(lanes):
    """The type of a vector of as many numbers as the tuple type ``lanes`` has: of one, a number."""
    return Lanes(lanes.count) if lanes.count > 1 else types.float32


@register_model(Lanes)
class _Model(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, ir.VectorType(NUMBER, kind.size))


def own(lanes):
    """Return an array (n,) of the calling function alone, whose numbers stay in registers if n is 1."""
    return np.zeros(len(lanes), np.float32)


def load(lanes, array, first):
    """Return ``array[first : first + n]``."""
    return array[int(first) : int(first) + len(lanes)].copy() if len(lanes) > 1 else array[int(first)]


def store(vector, array, first):
    """Set ``array[first : first + n] = vector``."""
    array[int(first) : int(first) + np.size(vector)] = vector


def fma(x, y, z):
    """Return ``x * y + z`` of float32, rounded once (by way of float64 with the JIT off); numbers or vectors."""
    return np.float32(np.float64(x) * np.float64(y) + np.float64(z))


def filled(lanes, x):
    """Return a vector of which every number is ``x``, or ``x`` if it is a vector."""
    return np.full(len(lanes), x, np.float32) if len(lanes) > 1 else np.float32(x)


def root(vector):
    """Return the square roots."""
    return np.sqrt(vector)


def guess(vector):
    """Return approximate inverses of square roots, to 4%, by halving the exponents among the bits."""
    return (np.int32(MAGIC) - (vector.view(np.int32) >> 1)).view(np.float32)


def nearer_zero(vector, by):
    """Return each number moved towards zero by that of the vector ``by``, at most to zero."""
    moved = np.where(vector > 0, np.maximum(vector - by, ZERO), np.minimum(vector + by, ZERO))
    return np.where((vector > 0) | (vector < 0), moved, vector)


def evens(block, one, other):
    """Return the blocks 0, 2, ... of one vector and then of another; a block has as many numbers as the tuple."""
    return _every_second(len(block), one, other, 0)


def odds(block, one, other):
    """Return the blocks 1, 3, ... of one vector and then of another."""
    return _every_second(len(block), one, other, 1)


def _every_second(size, one, other, first):
    return np.concatenate([one, other]).reshape(-1, 2, size)[:, first].ravel()


def total(vector):
    """Return the sum, of halves upon halves."""
    while len(vector) > 1:
        vector = vector[: len(vector) // 2] + vector[len(vector) // 2 :]
    return vector[0]


@inlined
def inverse_root(vector):
    """Return the inverses of the square roots of normal numbers, to 7e-4 of them.

    A processor's own approximations are as near, but differ from one make to the next; exact roots and divisions take
    as long as all else in a step of AdaGrad. This is a step of Newton's method with the best constants for the guess
    (Kadlec 2010): the same bits everywhere.
    """
    near = guess(vector)
    return near * fma((-FIRST * vector) * near, near, FIRST_SUM)


@inlined
def vector_at(lanes, u, k):
    """Place of the vector number ``k`` of row ``u`` in the flat array."""
    return np.uint64(u) * np.uint64(LANE * len(lanes)) + np.uint64(LANE * k)


@inlined
def dot(lanes, p, u, q, i):
    """Return ``p_u . q_i``; sums begin at -0, to which anything may be added without changing a bit of it."""
    n = len(lanes)
    s0 = s1 = s2 = s3 = filled(LINE, -ZERO)
    for k in range(0, n, 4):
        s0 = add_product(lanes, s0, p, u, q, i, k)
        if k + 1 < n:
            s1 = add_product(lanes, s1, p, u, q, i, k + 1)
        if k + 2 < n:
            s2 = add_product(lanes, s2, p, u, q, i, k + 2)
        if k + 3 < n:
            s3 = add_product(lanes, s3, p, u, q, i, k + 3)
    return total((s0 + s1) + (s2 + s3))


@inlined
def add_product(lanes, sums, p, u, q, i, k):
    """Add to ``sums`` the product of the vectors number ``k`` of two rows."""
    return fma(load(LINE, p, vector_at(lanes, u, k)), load(LINE, q, vector_at(lanes, i, k)), sums)


@inlined
def moved(vector, step, other, shrink):
    """Return ``shrink * (vector + step * other)``."""
    return np.float32(shrink) * fma(step, other, vector)


@inlined
def move_both(lanes, p, u, q, i, step, shrink_p, shrink_q):
    """Move ``p_u`` against ``q_i`` and ``q_i`` against ``p_u``, as both were before, and shrink them."""
    for k in range(len(lanes)):
        a, b = vector_at(lanes, u, k), vector_at(lanes, i, k)
        x, y = load(LINE, p, a), load(LINE, q, b)
        store(moved(x, -step, y, shrink_p), p, a)
        store(moved(y, -step, x, shrink_q), q, b)


def _spread(context, builder, value, kind, vector):
    """Copy a number into every lane; leave a vector as it is."""
    if isinstance(kind, Lanes):
        return value
    number = context.cast(builder, value, kind, types.float32)
    if not isinstance(vector, ir.VectorType):
        return number
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
        return builder.load(_pointer(context, builder, args[1], kinds[1], args[2], kinds[2], vector), align=4)

    return _kind(lanes)(lanes, array, first), codegen


@instructions(store)
def _store(typingctx, vector, array, first):
    def codegen(context, builder, signature, args):
        kinds, value = signature.args, args[0]
        value = value if isinstance(vector, Lanes) else context.cast(builder, value, kinds[0], types.float32)
        builder.store(value, _pointer(context, builder, args[1], kinds[1], args[2], kinds[2], value.type), align=4)
        return context.get_dummy_value()

    return types.void(vector, array, first), codegen


@instructions(own)
def _own(typingctx, lanes):
    array = types.Array(types.float32, 1, "C")

    def codegen(context, builder, signature, args):
        memory = cgutils.alloca_once(builder, ir.ArrayType(NUMBER, lanes.count))
        made = context.make_array(array)(context, builder)
        data = builder.bitcast(memory, NUMBER.as_pointer())
        length, size = (context.get_constant(types.intp, n) for n in (lanes.count, 4))
        context.populate_array(made, data=data, shape=[length], strides=[size], itemsize=size, meminfo=None)
        return made._getvalue()

    return array(lanes), codegen


@instructions(total)
def _total(typingctx, vector):
    def codegen(context, builder, signature, args):
        sums, size = args[0], vector.size
        while size > 1:
            size //= 2
            nothing = ir.Constant(sums.type, ir.Undefined)
            orders = (ir.Constant(ir.VectorType(ir.IntType(32), size), list(range(k, k + size))) for k in (0, size))
            sums = builder.fadd(*(builder.shuffle_vector(sums, nothing, order) for order in orders))
        return builder.extract_element(sums, ir.Constant(ir.IntType(32), 0))

    return types.float32(vector), codegen


def _every_second_block(function, first):
    @instructions(function)
    def define(typingctx, block, one, other):
        def codegen(context, builder, signature, args):
            order = np.arange(2 * one.size, dtype=object).reshape(-1, 2, block.count)[:, first].ravel()
            return builder.shuffle_vector(*args[1:], ir.Constant(ir.VectorType(ir.IntType(32), one.size), list(order)))

        return one(block, one, other), codegen


_every_second_block(evens, 0)
_every_second_block(odds, 1)

OPERATORS = {
    operator.add: lambda builder, vector, x, y: builder.fadd(x, y),
    operator.mul: lambda builder, vector, x, y: builder.fmul(x, y),
    operator.truediv: lambda builder, vector, x, y: builder.fdiv(x, y),
}


def _arithmetic(function, emit):
    """Generate the code of ``function``: ``emit`` gets the type of its vectors and the arguments, each as a vector.

    If all arguments are numbers, so are what it gets and what it returns.
    """

    @instructions(function)
    def define(typingctx, *kinds):
        tuples = [_kind(kind) for kind in kinds if isinstance(kind, types.BaseTuple)]
        result = next((kind for kind in (*kinds, *tuples) if isinstance(kind, Lanes)), types.float32)
        if function in OPERATORS and result is types.float32:  # numba's own
            return None

        def codegen(context, builder, signature, args):
            vector = context.get_value_type(result)
            numbers = [pair for pair in zip(args, signature.args) if not isinstance(pair[1], types.BaseTuple)]
            return emit(builder, vector, *(_spread(context, builder, *number, vector) for number in numbers))

        return result(*kinds), codegen


def _call(name):
    """LLVM's own function ``name`` of vectors, or of numbers."""

    def emit(builder, vector, *values):
        kind = ir.FunctionType(vector, [vector] * len(values))
        width = f"v{vector.count}" if isinstance(vector, ir.VectorType) else ""
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.{width}f32"), values)

    return emit


def _constant(kind, x):
    return ir.Constant(kind, [x] * kind.count if isinstance(kind, ir.VectorType) else x)


def _guess(builder, vector, value):
    number = ir.IntType(32)
    bits = ir.VectorType(number, vector.count) if isinstance(vector, ir.VectorType) else number
    half = builder.lshr(builder.bitcast(value, bits), _constant(bits, 1))
    return builder.bitcast(builder.sub(_constant(bits, MAGIC), half), vector)


def _nearer_zero(builder, vector, value, by):
    zero = _constant(vector, 0.0)
    nearer = value
    for above, sign in ((">", builder.fsub), ("<", builder.fadd)):
        moved = sign(value, by)
        moved = builder.select(builder.fcmp_ordered(above, moved, zero), moved, zero)
        nearer = builder.select(builder.fcmp_ordered(above, value, zero), moved, nearer)
    return nearer


_arithmetic(filled, lambda builder, vector, x: x)
_arithmetic(fma, _call("fma"))
_arithmetic(root, _call("sqrt"))
_arithmetic(guess, _guess)
for _function, _emit in OPERATORS.items():
    _arithmetic(_function, _emit)
_arithmetic(nearer_zero, _nearer_zero)
