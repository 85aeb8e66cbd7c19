"""Our kernels are kept in one place, and a disk that keeps none costs a warning; the caller's stay numba's affair."""

from __future__ import annotations

import gc
import os
import resource
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numba
import pytest

from hogwild.errors import HogwildWarning
from hogwild.kernels import cache
from hogwild.kernels.options import JIT
from tests.runs import limited

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, and nothing warned of yet."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cache, "_warned", False)
    return tmp_path


def kernel(module: str = "hogwild.something") -> Any:
    """A new function to compile."""

    def add_one(number):
        return number + 1

    add_one.__module__ = module
    return numba.njit(**JIT)(add_one)


def test_a_full_disk_or_no_directory_costs_one_warning(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with limited(resource.RLIMIT_FSIZE, 0):
            assert kernel()(1) == kernel()(1) == 2
    assert [warning.category for warning in caught] == [HogwildWarning]
    assert str(caught[0].message).startswith(f"no kernel cache ({disk}/")
    with limited(resource.RLIMIT_FSIZE, 0), pytest.raises(OSError, match="File too large"):
        kernel("their.module")(1)
    monkeypatch.setattr(cache, "_warned", False)
    monkeypatch.setattr(cache, "directory", lambda: None)
    with pytest.warns(HogwildWarning, match="no directory that only this user"):
        assert kernel()(1) == 2


def test_nothing_is_kept_once_a_file_with_kernels_was_edited(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edited = kernel()
    monkeypatch.setattr("hogwild.kernels.cache._digest", lambda flags: "other")
    assert edited(1) == 2
    assert not [*disk.rglob("*.nbc")]
    monkeypatch.undo()
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(disk))
    assert kernel()(1) == 2
    assert [*disk.rglob("*.nbc")]


def test_a_damaged_file_is_made_anew(disk: Path) -> None:
    assert kernel()(1) == 2
    (damaged,) = disk.glob("kernels-*/*.nbc")
    size = damaged.stat().st_size
    damaged.write_bytes(b"")
    first, second = kernel(), kernel()
    assert first(1) == second(1) == 2
    assert damaged.stat().st_size == size
    assert (sum(first.stats.cache_hits.values()), sum(second.stats.cache_hits.values())) == (0, 1)


def test_one_file_a_form_whoever_writes_beside_it(disk: Path) -> None:
    """Of an index that two processes read and then write, one would lose the other's entry."""
    one, other = kernel(), kernel()
    assert (one(1), other(1.5)) == (2, 2.5)
    again = kernel()
    assert (again(1), again(1.5)) == (2, 2.5)
    assert sum(again.stats.cache_hits.values()) == 2


def test_a_signal_waits_until_a_kernel_is_compiled(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM calls Python back, where an exception would be lost."""
    interrupted, load = kernel(), cache.KernelCache.load_overload

    def load_overload(self: Any, *about: Any) -> Any:
        time.sleep(0.1)  # until the main thread waits
        os.kill(os.getpid(), signal.SIGINT)
        return load(self, *about)

    monkeypatch.setattr(cache.KernelCache, "load_overload", load_overload)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored here
    compiled = cache.compiling_seconds
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted(1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert interrupted.overloads
    assert cache.compiling_seconds > compiled + 0.09
    assert gc.isenabled()  # again


def test_a_callers_kernel_may_call_ours(disk: Path) -> None:
    """The thread that compiles the caller compiles both: it holds the compiler's lock."""
    ours = kernel()
    assert numba.njit(lambda number: ours(number))(1) == 2


FRESH = """
import sys, numpy as np
from numba import config
config.CACHE_DIR = sys.argv[1]
from hogwild.kernels.order import shuffle_blocks
blocks = np.arange(10, dtype=np.int32)
shuffle_blocks(blocks, 10, 1, 1, 0, 0)
print(sum(shuffle_blocks.stats.cache_hits.values()), "scipy.linalg" in sys.modules, "numba.np.arraymath" in sys.modules)
"""


def test_a_kept_kernel_is_loaded_without_setting_up_the_compiler(disk: Path) -> None:
    """Also outside the command: the library finds what was compiled before, and needs neither scipy nor a compiler."""
    words = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", FRESH, str(disk)], cwd=disk, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        words.append(done.stdout.split())
    assert words == [["0", "True", "True"], ["1", "False", "False"]]
