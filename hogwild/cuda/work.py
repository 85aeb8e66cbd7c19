"""The interface between the host of replicas (``streams.py``) and a problem's kernels on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from hogwild.cuda.backend import Backend, DeviceStream


class Segment(NamedTuple):
    """Examples that one launch visits, from the part of the data in which ``rows`` are numbered."""

    data: Mapping[str, torch.Tensor]  # the part's arrays, on the device, as ``Launcher.part`` names them
    rows: torch.Tensor  # (m,) int32: the examples, in visiting order
    steps: torch.Tensor  # (m,) float32: the step at each visit
    visited: int = 0  # examples visited before the first of these, since the run began


class Launcher(Protocol):
    """A problem on a device: the flat parameter array and what runs over it."""

    flat: torch.Tensor  # (size,) float32, laid out as the host's; the host fills it after construction
    block: int  # neighbours that may stay together in a random order, for the sake of long reads; 1: none

    trials: int  # epochs that begin with a trial of how many examples may be in flight
    streams: int  # possible replicas, up to the number asked for: fewer if one does several workers' work

    def __init__(self, problem: Any, arrays: Mapping[str, np.ndarray], backend: Backend, replicas: int) -> None:
        """Allocate ``flat``, and copy the arrays that belong to no example (such as rates) to the device."""

    def part(self, first: int, last: int) -> dict[str, np.ndarray]:
        """The host's arrays of examples ``first`` to ``last`` (exclusive), which are examples 0, 1, ... of the part."""

    def bytes_of(self, first: int, last: int) -> int:
        """Bytes that :meth:`part` would have, without making it."""

    def granule(self) -> int:
        """Examples of a minibatch; 0 if one launch visits any number of examples."""

    def room(self) -> int:
        """Examples in flight when the device is full."""

    def judge(self, flat: np.ndarray) -> float:
        """Return the loss of these parameters on a sample, for trials of how many examples may be in flight."""

    def replica(self, number: int, stream: DeviceStream, in_flight: int) -> Callable[[Segment], None]:
        """Return a function that launches a segment for one replica, which has ``in_flight`` examples in flight."""
