"""An artificial delay inside a kernel: a spin on the processor's time stamp counter.

How much the disciplines differ depends on the cost of a gradient (Niu et al. 2011, figure 5c), so experiments add to
that cost. A spin keeps the core as busy as arithmetic would, and the counter is read in 20 ns, whereas the system clock
would need memory to write the time to. The counter's rate is measured against the system clock, once per process;
workers are given a number of ticks, so that all agree. The rate errs upwards, by less than a thousandth: a delay is
never shorter than asked for.

A delay ends early once the stop flag is up, so that the current chunk is finished at once and completely, and a stopped
run can be resumed like any other.
"""

from __future__ import annotations

import math
import platform
import time
from functools import lru_cache

import numba
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils

from hogwild.errors import UsageError
from hogwild.kernels.atomics import load
from hogwild.kernels.control import STOP
from hogwild.kernels.options import JIT, instructions

CALIBRATION = 0.01  # seconds
LOOKS = 20  # readings of both clocks, of which the least interrupted one counts


def cycles():
    """Return the time stamp counter (nanoseconds with the JIT off)."""
    return time.perf_counter_ns()


@instructions(cycles)
def _cycles(typingctx):
    def codegen(context, builder, signature, args):
        function_type = ir.FunctionType(ir.IntType(64), [])
        function = cgutils.get_or_insert_function(builder.module, function_type, "llvm.readcyclecounter")
        return builder.call(function, [])

    return types.int64(), codegen


@njit(**JIT)
def read_cycles():
    """Return ``cycles()``, for callers that are not compiled."""
    return cycles()


@njit(**JIT)
def spin(control, ticks):
    """Wait for ``ticks`` ticks, or fewer once the workers are asked to stop."""
    start = cycles()
    while cycles() - start < ticks and load(control, STOP) == 0:
        pass


def ticks_in(seconds):
    """Number of ticks that makes ``spin`` last ``seconds``; 0 for 0.

    Raises
    ------
    UsageError
        If programs may not read this processor's counter.
    """
    return math.ceil(seconds * _ticks_per_second()) if seconds else 0


@lru_cache(None)
def _ticks_per_second():
    machine = platform.machine()
    if not numba.config.DISABLE_JIT and machine not in ("x86_64", "AMD64"):
        raise UsageError(f"gradient_delay needs an x86-64 processor's time stamp counter, and this is {machine}: use 0")
    read_cycles()  # compile before any clock runs
    _, first, began = _look()
    time.sleep(CALIBRATION)
    ended, last, _ = _look()
    return (last - first) / (ended - began)


def _look():
    """The counter, with the clock's time before and after."""
    looks = [(time.perf_counter(), read_cycles(), time.perf_counter()) for _ in range(LOOKS)]
    return min(looks, key=lambda look: look[2] - look[0])
