"""Streams, events and graphs of a CUDA device, behind the few calls that replicas make.

Everything a replica does it hands to ``Stream.run``; nothing else touches a device during an epoch. So the loop that
drives the replicas (``streams.py``) is tested without a GPU, on a stand-in whose streams are queues that are worked off
in any order that events allow.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import torch

from hogwild.errors import InputError

WARM_UP = 3  # times that work is run before it is captured: cuBLAS, and autograd, set themselves up in the first

MOST_BLOCKS = 32  # that a multiprocessor of sm_80, sm_90 or sm_100 takes, however small they are

#: Graphs whose capture failed: the allocator goes on asking them which streams are theirs.
ABANDONED: list[Any] = []


class Event(Protocol):
    """A point in a stream's work."""

    def done(self) -> bool:
        """Whether the stream has come to it; does not wait."""

    def wait(self) -> None:
        """Wait for it."""


class Stream(Protocol):
    """Work that is done in the order in which it is given, while other streams do theirs."""

    def run(self, work: Callable[[], Any]) -> None:
        """Give it work: a function that launches kernels and waits for nothing. What it allocates stays the stream's.

        A device runs the function at once and its kernels later; the stand-in runs all of it later.
        """

    def record(self) -> Event:
        """The point behind everything given so far."""

    def after(self, event: Event) -> None:
        """Keep what is given from now on until another stream has come to ``event``."""

    def capture(self, work: Callable[[], Any]) -> Callable[[], None]:
        """``work`` as one launch (a CUDA graph in a memory pool of its own), to be given to ``run`` of this stream.

        It is run a few times first, which does change what it writes to. Raises RuntimeError for what cannot be
        captured: whatever waits for the device, or allocates by size of its data.
        """


class Backend(Protocol):
    """A device."""

    device: torch.device
    name: str  # as people call it

    def stream(self) -> Stream:
        """A new one; there are 32 different ones."""

    def free(self) -> int:
        """Bytes that may be allocated."""

    def programs(self) -> int:
        """Programs of one warp that run at once: what the device has room for."""

    def stage(self, array: np.ndarray) -> torch.Tensor:
        """The array in memory that the device can copy from while it computes (pinned, by a copy)."""


class CudaStream:
    """See :class:`Stream`."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)

    def run(self, work: Callable[[], Any]) -> None:
        with torch.cuda.stream(self._stream):
            work()

    def record(self) -> CudaEvent:
        event = torch.cuda.Event()
        event.record(self._stream)
        return CudaEvent(event)

    def after(self, event: Any) -> None:
        self._stream.wait_event(event.event)

    def capture(self, work: Callable[[], Any]) -> Callable[[], None]:
        for _ in range(WARM_UP - 1):
            self.run(work)
        with waits_refused():
            self.run(work)
        self._stream.synchronize()
        try:
            return self._capture(work)
        except BaseException:
            with contextlib.suppress(RuntimeError):  # torch's generator believes itself captured until a capture ends
                self._capture(torch.zeros(1, device=self._stream.device).zero_)
            raise

    def _capture(self, work: Callable[[], Any]) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        ABANDONED.append(graph)
        # on this stream and in a pool of its own: graphs captured on the default capture stream share one cuBLAS
        # workspace, and would race for it; twice, for the inner context does not leave the stream where a capture fails
        with torch.cuda.stream(self._stream):
            with torch.cuda.graph(graph, pool=torch.cuda.graph_pool_handle(), stream=self._stream):
                work()
        ABANDONED.remove(graph)
        replay: Callable[[], None] = graph.replay
        return replay


@contextlib.contextmanager
def waits_refused() -> Iterator[None]:
    """Raise RuntimeError where torch would wait for the device: before a capture, which does not recover from that."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it does not notice everything
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


class CudaEvent:
    """See :class:`Event`."""

    def __init__(self, event: torch.cuda.Event) -> None:
        self.event = event

    def done(self) -> bool:
        return bool(self.event.query())

    def wait(self) -> None:
        self.event.synchronize()


class Cuda:
    """See :class:`Backend`."""

    def __init__(self, index: int = 0) -> None:
        self.device = torch.device("cuda", index)
        self.name = torch.cuda.get_device_name(index)

    def stream(self) -> CudaStream:
        return CudaStream(self.device)

    def free(self) -> int:
        torch.cuda.empty_cache()  # what torch holds on to, of an earlier run say, counts as taken
        return int(torch.cuda.mem_get_info(self.device)[0])

    def programs(self) -> int:
        about = torch.cuda.get_device_properties(self.device)
        return int(about.multi_processor_count * min(about.max_threads_per_multi_processor // 32, MOST_BLOCKS))

    def stage(self, array: np.ndarray) -> torch.Tensor:
        out = torch.empty(array.shape, dtype=dtype_of(array), pin_memory=True)
        out.numpy()[...] = array
        return out


def dtype_of(array: np.ndarray) -> torch.dtype:
    """What torch calls the array's dtype."""
    return torch.from_numpy(np.empty(0, array.dtype)).dtype


def runs_triton(device: torch.device) -> bool:
    """Whether kernels on the device are Triton's; else they are torch's own."""
    return device.type == "cuda" and importlib.util.find_spec("triton") is not None


def connect() -> Backend:
    """The machine's first CUDA device.

    Raises
    ------
    InputError
        If there is none that torch can use, with the reason.
    """
    if not torch.backends.cuda.is_built():
        raise InputError(
            f"device cuda: this torch ({torch.__version__}) is a CPU build: install one for CUDA from pytorch.org, or "
            "train on the CPU"
        )
    if not torch.cuda.is_initialized():  # else there are 8 queues to the device, and more streams wait for one another
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    if not torch.cuda.is_available():
        raise InputError("device cuda: torch finds no NVIDIA GPU with a working driver: train on the CPU")
    return Cuda()
