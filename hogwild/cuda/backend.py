"""Streams, events and graphs of a CUDA device, behind the few calls that replicas need.

A replica passes all its work to ``DeviceStream.run``; nothing else touches a device during an epoch. So the loop that
drives the replicas (``streams.py``) is tested without a GPU, on a substitute with the methods of :class:`Backend` and
:class:`DeviceStream`, whose streams are queues, processed in any order that events allow.
"""

from __future__ import annotations

import importlib.util
import os
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch

from hogwild.errors import InputError
from hogwild.methods import located

WARM_UP = 3  # runs before a capture: cuBLAS and autograd initialise themselves in the first

MOST_BLOCKS = 32  # most blocks per multiprocessor of sm_80, sm_90 or sm_100, however small they are

LAUNCHERS = {  # by the problem's class; those that need Triton import it
    "LinearProblem": "hogwild.cuda.linear:LinearLauncher",
    "CompletionProblem": "hogwild.cuda.completion:CompletionLauncher",
    "ModuleProblem": "hogwild.cuda.module:ModuleLauncher",
}


class Graphs(list[Any]):
    """Graphs captured on one stream."""


class Lane:
    """The graphs captured on one of a device's streams.

    Destroying a graph clears the cuBLAS workspace of its stream, which other graphs captured there may use (pytorch
    issue 193402): so each keeps all, until none is in use.
    """

    def __init__(self) -> None:
        self._graphs: Callable[[], Graphs | None] = lambda: None

    def keep(self, graph: Any) -> Callable[[], None]:
        """Return a function that launches the graph."""
        graphs = self._graphs() or Graphs()
        self._graphs = weakref.ref(graphs)
        number = len(graphs)
        graphs.append(graph)
        return lambda: graphs[number].replay()


LANES: dict[tuple[int, int], Lane] = {}  # by a device's number and a stream's handle


class DeviceStream:
    """A queue of work that runs in order, concurrently with other streams.

    torch hands out 32 in turn, and then the same again. Replicas of different runs on one of them wait for each other,
    and do no other harm.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)
        self._lane = LANES.setdefault((device.index, self._stream.cuda_stream), Lane())

    def run(self, work: Callable[[], Any]) -> None:
        """Queue a function that launches kernels and does not wait. Memory it allocates belongs to the stream.

        A device runs the function at once and its kernels later; the tests' substitute runs all of it later.
        """
        with torch.cuda.stream(self._stream):
            work()

    def record(self) -> torch.cuda.Event:
        """Return the point after everything queued so far."""
        event = torch.cuda.Event()
        event.record(self._stream)
        return event

    def after(self, event: torch.cuda.Event) -> None:
        """Let work queued from now on wait until another stream has reached ``event``."""
        self._stream.wait_event(event)

    def capture(self, work: Callable[[], Any]) -> Callable[[], None]:
        """Capture ``work`` as one launch (a CUDA graph in its own memory pool), to be passed to this stream's ``run``.

        It is first run a few times, which does change what it writes to. Raises RuntimeError for work that cannot be
        captured: it waits for the device, or its allocations depend on the data.
        """
        for _ in range(WARM_UP - 1):
            self.run(work)
        before = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that this mode does not detect every wait
            torch.cuda.set_sync_debug_mode("error")  # a capture, which follows, cannot recover from a wait
        try:
            self.run(work)
        finally:
            torch.cuda.set_sync_debug_mode(before)
        self._stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        # On this stream and in its own pool: graphs captured on the default capture stream share one cuBLAS workspace
        # and would race for it. Twice, because the inner context does not leave the stream if a capture fails.
        with torch.cuda.stream(self._stream):
            with torch.cuda.graph(graph, pool=torch.cuda.graph_pool_handle(), stream=self._stream):
                work()
        return self._lane.keep(graph)


class Backend:
    """A device: ``device`` for torch, ``name`` for display."""

    def __init__(self, index: int = 0) -> None:
        self.device = torch.device("cuda", index)
        self.name = torch.cuda.get_device_name(index)

    def stream(self) -> DeviceStream:
        """Return the next of the device's streams."""
        return DeviceStream(self.device)

    def free(self) -> int:
        """Bytes that can be allocated."""
        torch.cuda.empty_cache()  # memory cached by torch, such as from an earlier run, counts as in use
        return int(torch.cuda.mem_get_info(self.device)[0])

    def programs(self) -> int:
        """Number of one-warp programs that the device can run at once."""
        properties = torch.cuda.get_device_properties(self.device)
        warps = properties.max_threads_per_multi_processor // 32
        return int(properties.multi_processor_count * min(warps, MOST_BLOCKS))

    def launcher(self, problem: Any) -> Any:
        """Return the class that puts this problem on the device."""
        name = type(problem).__name__
        if name != "ModuleProblem" and importlib.util.find_spec("triton") is None:
            raise InputError("device cuda: its kernels need Triton, which is not installed: pip install triton")
        return located(LAUNCHERS[name])


def connect() -> Backend:
    """Return the machine's first CUDA device.

    Raises
    ------
    InputError
        If torch can use none; the message gives the reason.
    """
    if not torch.backends.cuda.is_built():
        raise InputError(
            f"device cuda: this torch ({torch.__version__}) is a CPU build: install one for CUDA from pytorch.org, or "
            "train on the CPU"
        )
    if not torch.cuda.is_initialized():  # by default 8 queues to the device, where more streams would wait
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    if not torch.cuda.is_available():
        raise InputError("device cuda: torch finds no NVIDIA GPU with a working driver: train on the CPU")
    return Backend()
