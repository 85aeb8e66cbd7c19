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
from functools import partial

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


def prefetch_second(array, index):
    """Do ``prefetch`` into the second cache, past the first."""


def _cell(function, emit, returns=None):
    """Generate the code of a ``function`` of one element: ``emit`` gets its dtype and address, and values of its dtype.

    It returns a value of type ``returns``, by default one of the element's.
    """

    @instructions(function)
    def define(typingctx, array, index, *values):
        def codegen(context, builder, signature, args):
            kind, dtype = signature.args[0], array.dtype
            cells = context.make_array(kind)(context, builder, args[0])
            place = context.cast(builder, args[1], signature.args[1], types.intp)
            pointer = cgutils.get_item_pointer(context, builder, kind, cells, [place], wraparound=False)
            pairs = zip(args[2:], signature.args[2:])
            result = emit(builder, dtype, pointer, *(context.cast(builder, *pair, dtype) for pair in pairs))
            return context.get_dummy_value() if returns is types.void else result

        return (returns or array.dtype)(array, index, *values), codegen


def _emit_fetch_add(builder, dtype, pointer, amount):
    operation = "fadd" if isinstance(dtype, types.Float) else "add"
    return builder.atomic_rmw(operation, pointer, amount, "monotonic")


def _emit_compare_exchange(builder, dtype, pointer, old, new):
    if isinstance(dtype, types.Float):  # cmpxchg takes integers, so compare the bits
        bits = ir.IntType(dtype.bitwidth)
        pointer = builder.bitcast(pointer, bits.as_pointer())
        old, new = builder.bitcast(old, bits), builder.bitcast(new, bits)
    return builder.extract_value(builder.cmpxchg(pointer, old, new, "acquire", "monotonic"), 1)


def _emit_prefetch(builder, dtype, pointer, locality=3):
    line, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [line, number, number, number])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    read, level, data = (ir.Constant(number, n) for n in (0, locality, 1))
    builder.call(function, [builder.bitcast(pointer, line), read, level, data])


_cell(fetch_add, _emit_fetch_add)
_cell(load, lambda builder, dtype, pointer: builder.load_atomic(pointer, "acquire", dtype.bitwidth // 8))
_cell(
    store,
    lambda builder, dtype, pointer, value: builder.store_atomic(value, pointer, "release", dtype.bitwidth // 8),
    types.void,
)
_cell(compare_exchange, _emit_compare_exchange, types.boolean)
_cell(prefetch, _emit_prefetch, types.void)
_cell(prefetch_second, partial(_emit_prefetch, locality=2), types.void)


@instructions(sched_yield)
def _sched_yield(typingctx):
    def codegen(context, builder, signature, args):
        function_type = ir.FunctionType(ir.IntType(32), [])  # libc's, by name: unlike a pointer, it can be cached
        function = cgutils.get_or_insert_function(builder.module, function_type, "sched_yield")
        builder.call(function, [])
        return context.get_dummy_value()

    return types.void(), codegen


assert numba.version_info >= (0, 60), "hogwild needs numba 0.60 or newer"
