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
import gc
import hashlib
import os
import pickle
import shutil
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding
import numba
from numba.core import config
from numba.core.caching import FunctionCache, NullCache
from numba.core.compiler import CompileResult
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
compiling_seconds = 0.0  # so far, in this process
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


class KernelCache(FunctionCache):
    """The compiled forms of one function on disk, as far as they can be stored, one file each.

    A file is either complete or absent. Of numba's cache only the key of a form is used.
    """

    def __init__(self, py_func: Any, path: Path) -> None:
        self._py_func = py_func
        self._cache_path = str(path)

    def _file(self, sig: Any, codegen: Any) -> tuple[Path, str]:
        """Path of a form's file, and the text whose hash is in its name."""
        code = self._py_func.__code__
        text = repr(self._index_key(sig, codegen))
        form = hashlib.sha256(text.encode()).hexdigest()[:16]
        name = f"{Path(code.co_filename).stem}.{code.co_name}-{code.co_firstlineno}.{form}.nbc"
        return Path(self._cache_path, name), text

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled form, or None if there is none that can be read."""
        overload = None
        with contextlib.suppress(Exception):  # pickle may raise nearly any exception on a truncated file
            path, text = self._file(sig, target_context.codegen())
            saved, data = pickle.loads(path.read_bytes())
            overload = CompileResult._rebuild(target_context, *data) if saved == text else None
        while overload is None and announce:
            announce.pop()()
        return overload

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store the compiled form, or warn that the disk does not keep it.

        It is not stored if a file was edited meanwhile: this module may have been imported after the edit, and the
        directory is that of the files before it.
        """
        path, text = self._file(sig, data.codegen)
        if path.parent.name != f"kernels-{_digest(_flags())}":
            return
        temporary = path.with_suffix(f".{os.getpid()}")
        try:
            temporary.write_bytes(dumps((text, data._reduce())))
            temporary.replace(path)
        except OSError as error:
            warn_once(f"{path.parent}: {error.strerror or error}")
        finally:
            temporary.unlink(missing_ok=True)


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
    path = directory()
    if path is None:
        warn_once("no directory that only this user can write to")
    self._cache = NullCache() if path is None else KernelCache(self.py_func, path)


def _compile(self: Any, sig: Any) -> Any:
    """Compile in another thread: LLVM calls Python back, and what a signal's handler raised there would be lost.

    Without looking for garbage meanwhile, which takes a fifth of the time: what a compiler makes refers to each other.
    """
    if not self.py_func.__module__.startswith(NAMES) or global_compiler_lock.is_locked():  # it compiles a caller
        return _numbas_compile(self, sig)
    if threading.current_thread() is not threading.main_thread():
        return _timed(self, sig)
    collects = gc.isenabled()
    try:
        gc.disable()
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(_timed, self, sig).result()
    finally:
        if collects:
            gc.enable()


def _timed(self: Any, sig: Any) -> Any:
    """Compile, and count the time."""
    global compiling_seconds
    with global_compiler_lock:
        began = time.perf_counter()
        try:
            return _numbas_compile(self, sig)
        finally:
            compiling_seconds += time.perf_counter() - began


_numbas, Dispatcher.enable_caching = Dispatcher.enable_caching, _enable_caching
_numbas_compile, Dispatcher.compile = Dispatcher.compile, _compile
for _name, _address in _nrt_python.c_helpers.items():  # compiled code calls these; numba registers them late
    llvmlite.binding.add_symbol(_name if _name.startswith("_") else f"NRT_{_name}", _address)
