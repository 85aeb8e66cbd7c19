"""JIT options of every kernel, in one place.

``error_model="numpy"`` drops the division-by-zero branch, ``nogil`` lets threads run, ``cache`` keeps machine code on
disk. With ``_nrt`` off there are no reference counts: Numba would take and drop one, atomically, for each array handed
to a helper, which costs half a microsecond a merge, and 340 MB/s instead of 830 in the parser. No kernel allocates, so
none are needed.

Fast math is off: it turns the sparse dot product into gathers, which stall on the scatter of the row before (1.8-2.5x
slower), deletes every NaN test, and lets two disciplines round differently. Its gains are written out by hand instead:
four accumulators in a dot product, and the ``fma`` of ``vectors.py``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from numba import njit, types
from numba.core.registry import CPUDispatcher
from numba.core.typing.templates import infer_global, make_intrinsic_template

import hogwild.kernels.cache  # noqa: F401  # a full disk then stops no kernel

JIT: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "cache": True,
    "fastmath": False,  # without it a helper is compiled with the flags of the kernel that happens to call it first
    "_nrt": False,
    "no_cfunc_wrapper": True,
}


class Helper(CPUDispatcher):
    """A compiled function without the wrapper for calls from Python, which is up to half of what there is to compile.

    Numba's own dispatcher would then call address zero.
    """

    def __call__(self, *arguments: Any) -> Any:
        raise TypeError(f"{self.__name__} is compiled for kernels only: call one, or {self.__name__}.py_func")


def called(function: Callable, **options: Any) -> Any:
    """Decorate a function that kernels call and Python does not."""
    made: Any = njit(no_cpython_wrapper=True, **JIT, **options)(function)
    if made is not function:  # the JIT is on
        made.__class__ = Helper
    return made


def inlined(function: Callable) -> Any:
    """Do ``called`` for a function that becomes a part of every kernel that calls it."""
    return called(function, forceinline=True)


def instructions(function: Callable) -> Callable:
    """Decorate the code generator, written as for ``numba.extending.intrinsic``, of a ``function`` in kernels.

    Numba's own ``overload(function, inline="always")`` of an intrinsic makes the same machine code, but parses and
    types a function anew at each call, which is a tenth of the time that a kernel takes to compile.
    """

    def register(define: Callable) -> Callable:
        context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_ONLY)
        define.__signature__ = inspect.Signature([context, *inspect.signature(function).parameters.values()])  # type: ignore
        template: Any = make_intrinsic_template(function, define, function.__name__)
        infer_global(function, types.Function(template))
        return define

    return register
