"""Processes of one machine that send through a slow network, for the examples beside this file.

Messages go by torch.distributed (gloo, over the loopback), and a thread holds each back: it arrives ``latency + bytes /
bandwidth`` seconds after it was sent, and a process has one line out, so a second message waits until the first has
left. A process computes while its messages travel. Receiving is torch's own ``dist.recv`` and ``dist.irecv``.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


class Link:
    """One process's line out, and how many messages and bytes have left by it."""

    def __init__(self, latency: float, bandwidth: float) -> None:
        self.latency, self.bandwidth = latency, bandwidth  # seconds, bytes a second
        self.messages = self.bytes = 0
        self._free = 0.0  # when the last message has left
        self._line, self._sent = ThreadPoolExecutor(1), list[Future]()

    def send(self, tensor: torch.Tensor, to: int, tag: int = 0) -> None:
        """Send a copy of ``tensor`` as it is now, and return at once."""
        self.messages, self.bytes = self.messages + 1, self.bytes + tensor.nbytes
        self._free = max(time.monotonic(), self._free) + tensor.nbytes / self.bandwidth
        self._sent.append(self._line.submit(self._deliver, self._free + self.latency, tensor.detach().clone(), to, tag))

    def sum(self, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
        """Replace ``tensor`` by its sum over the group, in the time that a ring of messages takes."""
        others = group.size() - 1
        if others:
            size = 2 * others * tensor.nbytes // (others + 1)
            self.messages, self.bytes = self.messages + 2 * others, self.bytes + size
            time.sleep(2 * others * self.latency + size / self.bandwidth)
            dist.all_reduce(tensor, group=group)

    def finish(self) -> None:
        """Wait until all has arrived, and raise what went wrong on the way."""
        for sent in self._sent:
            sent.result()

    def _deliver(self, due: float, tensor: torch.Tensor, to: int, tag: int) -> None:
        time.sleep(max(0.0, due - time.monotonic()))
        dist.send(tensor, to, tag=tag)


def run(work: Callable[..., Any], processes: int, *args: Any, latency: float, bandwidth: float) -> list[Any]:
    """Call ``work(link, *args)`` in every process, and return what each returned (as JSON has it), by rank."""
    with tempfile.TemporaryDirectory() as folder:
        given = (work, processes, folder, latency, bandwidth, args)
        mp.start_processes(_process, given, processes, start_method="fork")  # what is imported need not be again
        return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(processes)]


def _process(rank: int, work: Callable, processes: int, folder: str, latency: float, rate: float, args: tuple) -> None:
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = dist.FileStore(f"{folder}/store", processes)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=processes, timeout=timedelta(seconds=60))
    link = Link(latency, rate)
    found = work(link, *args)
    link.finish()
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    dist.barrier()  # nobody leaves while others still send
    dist.destroy_process_group()


def options() -> dict[str, bool]:
    """Read the command line that all examples share."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a size for tests, too small to measure a time")
    return vars(parser.parse_args())
