"""A view of shared memory in which some pages are the viewer's own."""

from __future__ import annotations

import gc
import mmap
import os
from pathlib import Path

import numpy as np
import pytest

from hogwild.errors import OutputError
from hogwild.hosts import memory as module
from hogwild.hosts.memory import PAGE, Block, can_overlay, overlaid

pytestmark = pytest.mark.skipif(not can_overlay(), reason="this system does not map memory twice")


def block(pages: int = 4, shared: bool = False) -> Block:
    return Block({"flat": ((pages * PAGE,), np.float32)}, shared, mapped=True)


def mapped(address: int) -> bool:
    """Whether this process has memory there."""
    ranges = [line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines()]
    return any(int(begin, 16) <= address < int(end, 16) for begin, end in ranges)


@pytest.mark.parametrize("shared", [False, True])
def test_own_pages_replace_shared_ones(shared: bool) -> None:
    held = block(shared=shared)
    flat = held["flat"]
    flat[:] = 1
    one, two = (overlaid(flat, [(PAGE, 2 * PAGE), (3 * PAGE, 4 * PAGE)]) for _ in range(2))
    assert one.dtype == np.float32
    assert one.shape == flat.shape
    assert one.flags.writeable
    np.testing.assert_array_equal(one.reshape(4, PAGE).sum(axis=1), [PAGE, 0, PAGE, 0])
    one[::PAGE] = 5
    np.testing.assert_array_equal(flat[::PAGE], [5, 1, 5, 1])
    np.testing.assert_array_equal(two[::PAGE], [5, 0, 5, 0])
    two[PAGE] = flat[2 * PAGE] = 7
    np.testing.assert_array_equal(one[::PAGE], [5, 5, 7, 5])


def test_a_view_outlives_the_array_and_is_given_back() -> None:
    held = block()
    held["flat"][:] = 2
    view = overlaid(held["flat"], [(0, PAGE)])[PAGE:]
    del held
    gc.collect()
    assert np.all(view == 2)
    address = view.__array_interface__["data"][0]
    assert mapped(address)
    del view
    gc.collect()
    assert not mapped(address)


def test_another_process_writes_the_shared_pages_only() -> None:
    held = block(shared=True)
    child = os.fork()
    if child == 0:
        view = overlaid(held["flat"], [(0, PAGE)])
        view[0] = view[PAGE] = 9
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert held["flat"][0] == 0
    assert held["flat"][PAGE] == 9


def test_parts_are_pages() -> None:
    flat = block()["flat"]
    for array, parts in ((flat, [(3, PAGE)]), (flat[1:], [])):
        with pytest.raises(ValueError, match="no whole pages"):
            overlaid(array, parts)


def test_a_system_without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    held = block()

    class Full:
        @staticmethod
        def mremap(*arguments: int) -> int:
            return 2**64 - 1

    monkeypatch.setattr(module, "_libc", lambda: Full)
    with pytest.raises(OutputError, match=rf"cannot map {4 * mmap.PAGESIZE} bytes: .*--renumber never"):
        overlaid(held["flat"], [])
