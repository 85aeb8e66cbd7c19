"""Blocks of arrays: aligned, shared, and refused in one line where there is no room for them."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import numpy as np
import pytest

from hogwild import machine
from hogwild.errors import InputError, OutputError
from hogwild.hosts.memory import CACHE_LINE, Block
from tests.runs import limited

SPEC = {
    "a": ((3,), np.int32),
    "empty": ((0,), np.float32),
    "b": ((7, 2), np.float32),
    "c": ((100_000,), np.int64),
}


@pytest.mark.parametrize("shared", [False, True])
def test_arrays_are_zero_aligned_and_apart(shared: bool) -> None:
    block = Block(SPEC, shared)
    if shared:  # by torch.multiprocessing, and by no name, so that the size of /dev/shm does not matter
        assert block.tensor.is_shared()
        assert not [name for name in os.listdir("/dev/shm") if name.startswith(f"torch_{os.getpid()}_")]
        assert "memfd:hogwild-arrays" in Path("/proc/self/maps").read_text()
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


def test_more_than_there_is_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "memory", lambda: (1 << 30, 1 << 10))
    with pytest.raises(InputError, match="shared arrays need .* are available; use host='threads'"):
        Block(SPEC, shared=True)


@pytest.mark.parametrize(
    ("name", "limit", "why"), [("FSIZE", 1 << 20, "File too large"), ("NOFILE", 3, "Too many open")]
)
def test_what_the_system_refuses_is_one_line(name: str, limit: int, why: str) -> None:
    with (
        limited(getattr(resource, f"RLIMIT_{name}"), limit),
        pytest.raises(OutputError, match=f"^cannot share 17 MiB: [^\n]*{why}[^\n]*; [^\n]*threads[^\n]*$"),
    ):
        Block({"a": ((1 << 24,), "u1")}, shared=True)
