"""The disk cache of our kernels, shared by the library, the command and worker processes.

Numba's own cache keeps an index for each function, which processes that compile side by side overwrite; here each
compiled form is a file named by a hash of all it depends on. Numba's cache also sets up the whole compiler (half a
second, and scipy) before it looks; here that waits until something must be compiled. And numba raises an error when the
disk is full, when no directory can be written, and when a power cut has truncated a file: here each costs one warning,
or none if the file can simply be made anew. Only functions of this package are concerned: the caller's own functions
keep numba's behaviour.

Numba also notices an edit of the file that holds a kernel, but not of the files that the kernel calls into, nor a
changed ``NUMBA_*`` flag: it would run stale machine code. So the files lie in a directory whose name hashes all files
with kernels (``kernels/*.py`` and every ``*kernel.py``) and those flags. Hashing takes under a millisecond.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import shutil
import signal
import stat
import tempfile
import threading
import warnings
from collections.abc import Iterator
from functools import lru_cache
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
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_warned = _compiling = False


def leave_warnings() -> None:
    """Turn off warnings in this process: it is a worker, and meets the same disk as its parent."""
    global _warned
    _warned = True


def directory() -> Path | None:
    """Directory that keeps compiled kernels, or None."""
    return kernel_directory(config.CACHE_DIR, _flags())


def _flags() -> str:
    settings = [f"{name}={getattr(config, name, None)}" for name in SETTINGS]
    return " ".join([f"numba {numba.__version__}", f"llvmlite {llvmlite.__version__}", *settings])


@lru_cache(None)
def kernel_directory(chosen: str, flags: str) -> Path | None:
    """Directory for kernels that are compiled with ``flags``; None if none can be kept.

    Parameters
    ----------
    chosen : str
        Where the user wants numba's caches (``NUMBA_CACHE_DIR``), or empty; the directory is made in it.
    flags : str
        Whatever else the machine code depends on: numba's version and settings.
    """
    name = f"kernels-{_digest(flags)}"
    try:
        return next((path for root in _roots(chosen) if _usable(path := (root / name).resolve())), None)
    except OSError:  # not even a directory for temporary files
        return None


def is_current(directory: Path, flags: str) -> bool:
    """Whether no file with kernels was edited since this process named the directory."""
    return directory.name == f"kernels-{_digest(flags)}"


def _roots(chosen: str) -> Iterator[Path]:
    if chosen:
        yield Path(chosen)
    with contextlib.suppress(ImportError):  # a GPU's benchmark runs without it
        import platformdirs

        yield Path(platformdirs.user_cache_dir("hogwild"))
    yield Path(tempfile.gettempdir(), f"hogwild-{os.getuid()}")


def _digest(flags: str) -> str:
    digest = hashlib.sha256(flags.encode())
    package = Path(__file__).parents[1]
    for path in sorted((*package.glob("kernels/*.py"), *package.glob("*/**/*kernel.py"))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _usable(directory: Path) -> bool:
    """Make the directory; return False if it cannot be written or another user could have put code in it."""
    try:
        fresh = not directory.exists()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not all(map(_ours, (directory, *directory.parents))) or not os.access(directory, os.W_OK | os.X_OK):
            return False
        if fresh:
            _prune(directory)
    except OSError:
        return False
    return True


def _ours(directory: Path) -> bool:
    """Whether no other user but root can replace what lies in a directory: cached kernels are pickles, so whoever can
    put one there, or put another directory in the place of this one, could run code as this user.
    """
    facts = directory.stat()
    closed = not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or facts.st_mode & stat.S_ISVTX
    return bool(closed) and facts.st_uid in (0, os.getuid())


def _prune(directory: Path) -> None:
    """Remove all but the latest caches of other versions; one still in use is made again."""
    others = [path for path in directory.parent.glob("kernels-*") if path != directory]
    for path in sorted(others, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]:
        shutil.rmtree(path, ignore_errors=True)


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
        except BaseException:
            if os.path.exists(temporary):
                os.unlink(temporary)
            raise


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
        if not is_current(Path(self.cache_path), _flags()):
            return
        try:
            super().save_overload(sig, data)
        except OSError as error:
            warn_once(f"{self.cache_path}: {error.strerror or error}")


def warn_once(reason: str) -> None:
    """Warn, once and in one process only, that kernels are not kept."""
    global _warned
    if not _warned:
        warnings.warn(f"no kernel cache ({reason}): kernels are compiled in every run", HogwildWarning, stacklevel=2)
    _warned = True


def _enable_caching(self: Any) -> None:
    if not self.py_func.__module__.startswith(NAMES):
        return _numbas(self)
    try:
        self._cache = KernelCache(self.py_func)
    except RuntimeError:  # no directory can be written
        warn_once("no directory that only this user can write to")
        self._cache = NullCache()


@contextlib.contextmanager
def signals_held_back() -> Iterator[None]:
    """Within this block the first signal that a handler would act upon waits for the end, the second does not.

    LLVM calls Python back while it compiles, where what a handler raises would be printed and lost.
    """
    noted: list[tuple[int, Any]] = []
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    handlers = {number: handler for number, handler in handlers.items() if callable(handler)}

    def note(number: int, frame: Any) -> None:
        noted.append((number, frame))
        if len(noted) > 1:
            handlers[number](number, frame)

    for number in handlers:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if len(noted) == 1:
            number, frame = noted[0]
            handlers[number](number, frame)


def _compile(self: Any, sig: Any) -> Any:
    global _compiling
    outer = self.py_func.__module__.startswith(NAMES) and not _compiling
    if not outer or threading.current_thread() is not threading.main_thread():
        return _numbas_compile(self, sig)
    _compiling = True
    try:
        with signals_held_back():
            return _numbas_compile(self, sig)
    finally:
        _compiling = False


_numbas, Dispatcher.enable_caching = Dispatcher.enable_caching, _enable_caching
_numbas_compile, Dispatcher.compile = Dispatcher.compile, _compile
for _name, _address in _nrt_python.c_helpers.items():  # compiled code calls these; numba registers them late
    llvmlite.binding.add_symbol(_name if _name.startswith("_") else f"NRT_{_name}", _address)
