"""A disk that keeps no kernels costs a warning, and only of our kernels."""

from __future__ import annotations

import resource
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
import pytest
from numba.core.caching import CacheImpl

from hogwild.errors import HogwildWarning
from hogwild.kernels import cache
from hogwild.kernels.options import JIT

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


@contextmanager
def full_disk() -> Iterator[None]:
    """No file can grow."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_costs_one_warning(disk: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with full_disk():
            assert kernel()(1) == kernel()(1) == 2
    assert [warning.category for warning in caught] == [HogwildWarning]
    assert str(caught[0].message).startswith(f"no kernel cache ({disk}/")
    with full_disk(), pytest.raises(OSError, match="File too large"):
        kernel("their.module")(1)


def test_no_directory_for_it(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CacheImpl, "_locator_classes", [])
    with pytest.warns(HogwildWarning, match="no directory"):
        assert kernel()(1) == 2


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_a_damaged_file_is_made_anew(disk: Path, kind: str) -> None:
    assert kernel()(1) == 2
    (damaged,) = disk.glob(f"*/*.{kind}")
    size = damaged.stat().st_size
    damaged.write_bytes(b"")
    first, second = kernel(), kernel()
    assert first(1) == second(1) == 2
    assert damaged.stat().st_size == size
    assert (sum(first.stats.cache_hits.values()), sum(second.stats.cache_hits.values())) == (0, 1)
