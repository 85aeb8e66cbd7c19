"""Numba's disk cache of our kernels, made to stop no run: what cannot be kept or read is compiled again.

Numba raises where the disk is full, where no directory can be written, and where a power cut has left a part of a file.
Each of them costs one warning, or none where the file is merely made anew. Only functions of this package are
concerned: the caller's own keep numba's behaviour.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import warnings
from typing import Any

from numba.core.caching import FunctionCache, NullCache
from numba.core.dispatcher import Dispatcher

from hogwild.errors import HogwildWarning

NAMES = "hogwild."  # how the modules of these functions begin
_warned = False


class KernelCache(FunctionCache):
    """The compiled forms of one function on disk, as far as they can be kept there."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled form, or None where there is none that can be read; a damaged index is made anew."""
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # pickle raises nearly anything for a part of a file
            if not isinstance(error, OSError):
                with contextlib.suppress(OSError):
                    self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the compiled form, or warn that this disk does not."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            warn_once(f"{self.cache_path}: {error.strerror or error}")


def warn_once(reason: str) -> None:
    """Say, in one process and once, that kernels are not kept."""
    global _warned
    if not _warned and multiprocessing.parent_process() is None:  # workers meet the same disk
        warnings.warn(f"no kernel cache ({reason}): kernels are compiled in every run", HogwildWarning, stacklevel=2)
    _warned = True


def _enable_caching(self: Any) -> None:
    if not self.py_func.__module__.startswith(NAMES):
        return _numbas(self)
    try:
        self._cache = KernelCache(self.py_func)
    except RuntimeError:  # numba found no directory that can be written
        warn_once("no directory for it can be written")
        self._cache = NullCache()


_numbas, Dispatcher.enable_caching = Dispatcher.enable_caching, _enable_caching
