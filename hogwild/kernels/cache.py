"""The disk cache of our kernels: one for library, command and workers, quick to load, and no reason to stop a run.

Numba's own keeps an index of each function, which processes that compile side by side overwrite; here each compiled
form is a file named by a hash of all it depends on. Numba's also sets up the whole compiler (half a second, and scipy)
before it looks; here that is left until something must be compiled. And numba raises where the disk is full, where no
directory can be written, and where a power cut has left a part of a file: here each costs one warning, or none where
the file is merely made anew. Only functions of this package are concerned: the caller's own keep numba's behaviour.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding
import numba
from numba.core import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, NullCache, _CacheLocator
from numba.core.dispatcher import Dispatcher
from numba.core.runtime import _nrt_python
from numba.core.serialize import dumps

from hogwild.errors import HogwildWarning
from hogwild.kernels.directory import announce, kernel_directory

NAMES = "hogwild."  # how the modules of these functions begin
SETTINGS = (
    "OPT",
    "BOUNDSCHECK",
    "LOOP_VECTORIZE",
    "SLP_VECTORIZE",
    "DEBUGINFO_DEFAULT",
)  # of numba, by which code differs
_warned = False


def leave_warnings() -> None:
    """Say nothing in this process: it is a worker, and meets the same disk as its parent."""
    global _warned
    _warned = True


def directory() -> Path | None:
    """Where compiled kernels are kept; None if nowhere."""
    settings = [f"{name}={getattr(config, name, None)}" for name in SETTINGS]
    versions = [f"numba {numba.__version__}", f"llvmlite {llvmlite.__version__}"]
    return kernel_directory(config.CACHE_DIR, " ".join(versions + settings))


class _Locator(_CacheLocator):
    """Says to numba where kernels lie."""

    def __init__(self, path: Path, py_func: Any, py_file: str) -> None:
        self._path, self._line, self._py_file = path, py_func.__code__.co_firstlineno, py_file

    def get_cache_path(self) -> str:
        return str(self._path)

    def get_source_stamp(self) -> str:
        return ""  # the directory's name tells one source from another

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _Locator | None:
        path = directory()
        return None if path is None else cls(path, py_func, py_file)


class _Impl(CompileResultCacheImpl):
    _locator_classes = (_Locator,)


class _Files:
    """The compiled forms of one function, a file each; a file is complete or not there."""

    def __init__(self, path: str, name: str) -> None:
        self._path, self._name = path, name

    def _file(self, key: Any) -> tuple[str, str]:
        """The path of a form's file, and what its name is a hash of."""
        about = repr(key)
        return os.path.join(self._path, f"{self._name}.{hashlib.sha256(about.encode()).hexdigest()[:16]}.nbc"), about

    def load(self, key: Any) -> Any:
        path, about = self._file(key)
        with open(path, "rb") as file:
            found, data = pickle.load(file)
        return data if found == about else None

    def save(self, key: Any, data: Any) -> None:
        path, about = self._file(key)
        temporary = f"{path}.{os.getpid()}"
        try:
            with open(temporary, "wb") as file:
                file.write(dumps((about, data)))
            os.replace(temporary, path)
        except BaseException:
            if os.path.exists(temporary):
                os.unlink(temporary)
            raise


class KernelCache(FunctionCache):
    """The compiled forms of one function on disk, as far as they can be kept there."""

    _impl_class = _Impl

    def __init__(self, py_func: Any) -> None:
        super().__init__(py_func)
        self._cache_file = _Files(self.cache_path, self._impl.filename_base)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled form, or None where there is none that can be read."""
        try:
            found = self._load_overload(sig, target_context)
        except Exception:  # pickle raises nearly anything for a part of a file
            found = None
        while found is None and announce:
            announce.pop()()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the compiled form, or warn that this disk does not."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            warn_once(f"{self.cache_path}: {error.strerror or error}")


def warn_once(reason: str) -> None:
    """Say, in one process and once, that kernels are not kept."""
    global _warned
    if not _warned:
        warnings.warn(f"no kernel cache ({reason}): kernels are compiled in every run", HogwildWarning, stacklevel=2)
    _warned = True


def _enable_caching(self: Any) -> None:
    if not self.py_func.__module__.startswith(NAMES):
        return _numbas(self)
    try:
        self._cache = KernelCache(self.py_func)
    except RuntimeError:  # there is no directory that can be written
        warn_once("no directory for it can be written")
        self._cache = NullCache()


_numbas, Dispatcher.enable_caching = Dispatcher.enable_caching, _enable_caching
for _name, _address in _nrt_python.c_helpers.items():  # compiled code calls them; numba tells LLVM when it compiles
    llvmlite.binding.add_symbol(_name if _name.startswith("_") else f"NRT_{_name}", _address)
