"""Atomic operations on elements of NumPy arrays, for kernels that share memory between workers.

Numba has none on the CPU (numba#2988), so each is an LLVM instruction behind an ``@intrinsic``. Every operation is
first written as a plain Python function that defines its meaning; with the JIT off, that function runs (with one
worker).

Whatever workers share beyond the parameters themselves (counters, flags, turns, locks) goes through ``load``, ``store``
and ``fetch_add``: the compiler hoists a plain read of a shared cell out of the loop, which then never sees a change. An
index must be in range and not negative; nothing is checked.
"""

from __future__ import annotations

import os

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils

from hogwild.kernels.options import instructions


def fetch_add(array, index, value):
    """Add ``value`` to ``array[index]`` and return the element as it was before. No update is lost (relaxed order)."""
    old = array[index]
    array[index] += value
    return old


def load(array, index):
    """Return ``array[index]``, read from memory now (acquire order)."""
    return array[index]


def store(array, index, value):
    """Set ``array[index] = value``, after everything this worker wrote before (release order)."""
    array[index] = value


def compare_exchange(array, index, expected, value):
    """Set ``array[index] = value`` if its bits equal those of ``expected``; return whether they did (acquire order)."""
    if array[index].tobytes() != array.dtype.type(expected).tobytes():  # so that NaN equals NaN, and -0.0 is not 0.0
        return False
    array[index] = value
    return True


def sched_yield():
    """Yield the processor to another thread, after a worker has spun in vain for a while."""
    os.sched_yield()


def prefetch(array, index):
    """Prefetch the cache line of ``array[index]``; nothing is read, so an index past the end is harmless."""


def _pointer(context, builder, array_type, index_type, array, index):
    struct = context.make_array(array_type)(context, builder, array)
    index = context.cast(builder, index, index_type, types.intp)
    return cgutils.get_item_pointer(context, builder, array_type, struct, [index], wraparound=False)


def _align(array_type):
    return array_type.dtype.bitwidth // 8


@instructions(fetch_add)
def _fetch_add(typingctx, array, index, value):
    dtype = array.dtype
    operation = "fadd" if isinstance(dtype, types.Float) else "add"

    def codegen(context, builder, signature, args):
        pointer = _pointer(context, builder, signature.args[0], signature.args[1], args[0], args[1])
        amount = context.cast(builder, args[2], signature.args[2], dtype)
        return builder.atomic_rmw(operation, pointer, amount, "monotonic")

    return dtype(array, index, value), codegen


@instructions(load)
def _load(typingctx, array, index):
    def codegen(context, builder, signature, args):
        pointer = _pointer(context, builder, signature.args[0], signature.args[1], args[0], args[1])
        return builder.load_atomic(pointer, "acquire", _align(array))

    return array.dtype(array, index), codegen


@instructions(store)
def _store(typingctx, array, index, value):
    def codegen(context, builder, signature, args):
        pointer = _pointer(context, builder, signature.args[0], signature.args[1], args[0], args[1])
        content = context.cast(builder, args[2], signature.args[2], array.dtype)
        builder.store_atomic(content, pointer, "release", _align(array))
        return context.get_dummy_value()

    return types.void(array, index, value), codegen


@instructions(compare_exchange)
def _compare_exchange(typingctx, array, index, expected, value):
    dtype = array.dtype

    def codegen(context, builder, signature, args):
        pointer = _pointer(context, builder, signature.args[0], signature.args[1], args[0], args[1])
        old = context.cast(builder, args[2], signature.args[2], dtype)
        new = context.cast(builder, args[3], signature.args[3], dtype)
        if isinstance(dtype, types.Float):  # cmpxchg takes integers, so compare the bits
            bits = ir.IntType(dtype.bitwidth)
            pointer = builder.bitcast(pointer, bits.as_pointer())
            old, new = builder.bitcast(old, bits), builder.bitcast(new, bits)
        pair = builder.cmpxchg(pointer, old, new, "acquire", "monotonic")
        return builder.extract_value(pair, 1)

    return types.boolean(array, index, expected, value), codegen


@instructions(sched_yield)
def _sched_yield(typingctx):
    def codegen(context, builder, signature, args):
        function_type = ir.FunctionType(ir.IntType(32), [])  # libc's, by name: unlike a pointer, it can be cached
        function = cgutils.get_or_insert_function(builder.module, function_type, "sched_yield")
        builder.call(function, [])
        return context.get_dummy_value()

    return types.void(), codegen


@instructions(prefetch)
def _prefetch(typingctx, array, index):
    def codegen(context, builder, signature, args):
        pointer = _pointer(context, builder, signature.args[0], signature.args[1], args[0], args[1])
        byte_pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        function_type = ir.FunctionType(ir.VoidType(), [byte_pointer, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, function_type, "llvm.prefetch.p0")
        read, locality, data = (ir.Constant(number, n) for n in (0, 3, 1))
        builder.call(function, [builder.bitcast(pointer, byte_pointer), read, locality, data])
        return context.get_dummy_value()

    return types.void(array, index), codegen


assert numba.version_info >= (0, 60), "hogwild needs numba 0.60 or newer"
