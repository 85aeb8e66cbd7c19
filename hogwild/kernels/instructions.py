"""How a function of Python becomes LLVM instructions in kernels, and stays Python where nothing is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core.typing.templates import infer_global, make_intrinsic_template


def instructions(function: Callable) -> Callable:
    """Decorate the code generator, written as for ``numba.extending.intrinsic``, of a ``function`` in kernels.

    Numba's own ``overload(function, inline="always")`` of an intrinsic makes the same machine code, but parses and
    types a function anew at each call, which is a tenth of the time that a kernel takes to compile.
    """

    def register(define: Callable) -> Callable:
        template: Any = make_intrinsic_template(function, define, function.__name__)
        infer_global(function, types.Function(template))
        return define

    return register
