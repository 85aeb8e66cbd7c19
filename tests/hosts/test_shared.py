"""Blocks of arrays: aligned, shared, and refused in one line where there is no room for them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from hogwild.errors import OutputError
from hogwild.hosts.memory import CACHE_LINE, Block

SPEC = {
    "a": ((3,), np.int32),
    "empty": ((0,), np.float32),
    "b": ((7, 2), np.float32),
    "c": ((100,), np.int64),
}


@pytest.mark.parametrize("shared", [False, True])
def test_arrays_are_zero_aligned_and_apart(shared: bool) -> None:
    block = Block(SPEC, shared)
    for name, (shape, dtype) in SPEC.items():
        array = block[name]
        assert (array.shape, array.dtype) == (shape, dtype)
        assert array.size == 0 or array.__array_interface__["data"][0] % CACHE_LINE == 0
        assert not array.any()
        assert array.flags.writeable
    for number, name in enumerate(SPEC, 1):
        block[name][...] = number
    for number, name in enumerate(SPEC, 1):
        assert (block[name] == number).all()


def test_readonly_is_the_same_memory() -> None:
    block = Block(SPEC, shared=False)
    view = block.readonly()["b"]
    block["b"][2, 1] = 5
    assert view[2, 1] == 5
    assert not view.flags.writeable
    assert block["b"].flags.writeable


def test_private_block_is_not_sent() -> None:
    with pytest.raises(TypeError, match="private"):
        Block(SPEC, shared=False).descriptor()


def facts(blocks: int, free: int) -> SimpleNamespace:
    return SimpleNamespace(f_blocks=blocks, f_bavail=free, f_frsize=4096)


def test_too_small_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: facts(16384, 16))
    Block({"a": ((1000,), np.float32)}, shared=True)
    with pytest.raises(OutputError, match=r"/dev/shm has 0 MiB free and 4 MiB are needed: .*--host threads") as caught:
        Block({"a": ((1_000_000,), np.float32)}, shared=True)
    assert "\n" not in str(caught.value)
    Block({"a": ((1_000_000,), np.float32)}, shared=False)


def test_shared_memory_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: facts(0, 0))  # tmpfs with size=0
    Block(SPEC, shared=True)


LIMITED = """
import os, resource, torch
from hogwild.errors import OutputError
from hogwild.hosts.memory import Block
resource.setrlimit(getattr(resource, "RLIMIT_{name}"), ({limit},) * 2)
try:
    Block({{"a": ((1 << 24,), "u1")}}, shared=True)
except OutputError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("name", "limit", "why"),
    [
        ("FSIZE", "1 << 20", "unable to resize file .*File too large"),
        ("NOFILE", "3", "unable to open shared memory object .*Too many open files"),
    ],
)
def test_what_torch_refuses_is_one_line_and_nothing_is_left(name: str, limit: str, why: str) -> None:
    """The segment has a name until it is mapped (the fixture that looks for leaks finds it)."""
    code = LIMITED.format(name=name, limit=limit)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert re.fullmatch(f"cannot share 17 MiB: .*{why}.*; .*threads.*\n", result.stdout), result
