"""The disk cache of our kernels, shared by the library, the command and worker processes.

Numba's own cache keeps an index for each function, which processes that compile side by side overwrite; here each
compiled form is a file named by a hash of all it depends on. Numba's cache also sets up the whole compiler (half a
second, and scipy) before it looks; here that waits until something must be compiled. And numba raises an error when the
disk is full, when no directory can be written, and when a power cut has truncated a file: here each costs one warning,
or none if the file can simply be made anew. Only functions of this package are concerned: the caller's own functions
keep numba's behaviour.

Numba also notices an edit of the file that holds a kernel, but not of the files that the kernel calls into, nor a
changed ``NUMBA_*`` flag: it would run stale machine code. So the files lie in a directory whose name hashes all files
with kernels (``kernels/*.py`` and every ``*kernel.py``) and those flags. Hashing takes under a millisecond. The
directory lies in the user's cache, or where ``NUMBA_CACHE_DIR`` says, and only this user may write to it: who can put a
pickle there could run code.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import shutil
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding
import numba
from numba.core import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, NullCache, _CacheLocator
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.runtime import _nrt_python
from numba.core.serialize import dumps

from hogwild.errors import HogwildWarning
from hogwild.kernels import announce

NAMES = "hogwild."  # the module names of our functions begin with this
SETTINGS = (
    "OPT",
    "BOUNDSCHECK",
    "LOOP_VECTORIZE",
    "SLP_VECTORIZE",
    "DEBUGINFO_DEFAULT",
)  # numba settings that change the generated code
KEPT = 6  # directories of other versions to keep: a bisection or two checkouts should not recompile at every switch
_warned = False


def leave_warnings() -> None:
    """Turn off warnings in this process: it is a worker, and meets the same disk as its parent."""
    global _warned
    _warned = True


def directory() -> Path | None:
    """Directory that keeps compiled kernels, or None."""
    import platformdirs

    return kernel_directory(config.CACHE_DIR or platformdirs.user_cache_dir("hogwild"), _flags())


def _flags() -> str:
    settings = [f"{name}={getattr(config, name, None)}" for name in SETTINGS]
    return " ".join([f"numba {numba.__version__}", f"llvmlite {llvmlite.__version__}", *settings])


@lru_cache(None)
def kernel_directory(root: str, flags: str) -> Path | None:
    """The directory in ``root`` for kernels compiled with ``flags``, which is made; None if none can be kept there.

    Of other versions the latest ``KEPT`` are left; one that is still in use is made again.
    """
    path = Path(root, f"kernels-{_digest(flags)}").resolve()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = path.stat()
        if facts.st_uid != os.getuid() or facts.st_mode & 0o022 or not os.access(path, os.W_OK | os.X_OK):
            return None
        others = {each: each.stat().st_mtime for each in path.parent.glob("kernels-*") if each != path}
    except OSError:
        return None
    for each in sorted(others, key=others.__getitem__)[:-KEPT]:
        shutil.rmtree(each, ignore_errors=True)
    return path


def _digest(flags: str) -> str:
    digest = hashlib.sha256(flags.encode())
    package = Path(__file__).parents[1]
    for path in sorted((*package.glob("kernels/*.py"), *package.glob("*/**/*kernel.py"))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


class _Locator(_CacheLocator):
    """Tells numba where the kernels lie."""

    def __init__(self, path: Path, py_func: Any, py_file: str) -> None:
        self._path = path
        self._line = py_func.__code__.co_firstlineno
        self._py_file = py_file

    def get_cache_path(self) -> str:
        return str(self._path)

    def get_source_stamp(self) -> str:
        return ""  # the directory's name already identifies the source

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _Locator | None:
        path = directory()
        return None if path is None else cls(path, py_func, py_file)


class _Impl(CompileResultCacheImpl):
    _locator_classes = (_Locator,)


class _Files:
    """The compiled forms of one function, one file each; a file is either complete or absent."""

    def __init__(self, path: str, name: str) -> None:
        self._path, self._name = path, name

    def _file(self, key: Any) -> tuple[str, str]:
        """Path of a form's file, and the text whose hash is its name."""
        text = repr(key)
        return os.path.join(self._path, f"{self._name}.{hashlib.sha256(text.encode()).hexdigest()[:16]}.nbc"), text

    def load(self, key: Any) -> Any:
        path, text = self._file(key)
        with open(path, "rb") as file:
            saved, data = pickle.load(file)
        return data if saved == text else None

    def save(self, key: Any, data: Any) -> None:
        path, text = self._file(key)
        temporary = f"{path}.{os.getpid()}"
        try:
            with open(temporary, "wb") as file:
                file.write(dumps((text, data)))
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)


class KernelCache(FunctionCache):
    """The compiled forms of one function on disk, as far as they can be stored."""

    _impl_class = _Impl

    def __init__(self, py_func: Any) -> None:
        super().__init__(py_func)
        self._cache_file = _Files(self.cache_path, self._impl.filename_base)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled form, or None if there is none that can be read."""
        try:
            overload = self._load_overload(sig, target_context)
        except Exception:  # pickle may raise nearly any exception on a truncated file
            overload = None
        while overload is None and announce:
            announce.pop()()
        return overload

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store the compiled form, or warn that the disk does not keep it.

        It is not stored if a file was edited meanwhile: this module may have been imported after the edit, and the
        directory is that of the files before it.
        """
        if Path(self.cache_path).name != f"kernels-{_digest(_flags())}":
            return
        try:
            super().save_overload(sig, data)
        except OSError as error:
            warn_once(f"{self.cache_path}: {error.strerror or error}")


def warn_once(reason: str) -> None:
    """Warn, once and in one process only, that kernels are not kept."""
    global _warned
    if not _warned:
        message = f"no kernel cache ({reason}): kernels are compiled in every run; set NUMBA_CACHE_DIR"
        warnings.warn(message, HogwildWarning, stacklevel=2)
    _warned = True


def _enable_caching(self: Any) -> None:
    if not self.py_func.__module__.startswith(NAMES):
        return _numbas(self)
    try:
        self._cache = KernelCache(self.py_func)
    except RuntimeError:  # no directory can be written
        warn_once("no directory that only this user can write to")
        self._cache = NullCache()


def _compile(self: Any, sig: Any) -> Any:
    """Compile in another thread: LLVM calls Python back, and what a signal's handler raised there would be lost."""
    ours = self.py_func.__module__.startswith(NAMES) and threading.current_thread() is threading.main_thread()
    if not ours or global_compiler_lock.is_locked():  # by this thread, which compiles a caller
        return _numbas_compile(self, sig)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(_numbas_compile, self, sig).result()


_numbas, Dispatcher.enable_caching = Dispatcher.enable_caching, _enable_caching
_numbas_compile, Dispatcher.compile = Dispatcher.compile, _compile
for _name, _address in _nrt_python.c_helpers.items():  # compiled code calls these; numba registers them late
    llvmlite.binding.add_symbol(_name if _name.startswith("_") else f"NRT_{_name}", _address)
