"""What the host of replicas (``streams.py``) and a problem's kernels on the device say to each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from hogwild.cuda.backend import Backend, Stream


class Segment(NamedTuple):
    """Examples that one launch visits, of the part of the data in which ``rows`` are numbered."""

    data: Mapping[str, torch.Tensor]  # the part's arrays, on the device: those that ``Launcher.part`` names
    rows: torch.Tensor  # (m,) int32: the examples, in the order of their visits
    steps: torch.Tensor  # (m,) float32: the step at each visit
    visited: int = 0  # examples visited before the first of these, since the run began


class Launcher(Protocol):
    """A problem on a device: the flat parameter array and what runs over it."""

    flat: torch.Tensor  # (size,) float32, laid out as the host's; the host fills it in after this was made
    block: int  # neighbours that may stay together in an order otherwise random, for the sake of long reads; 1: none

    streams: int  # replicas there can be, of those asked for: fewer where one of them does several workers' work

    def __init__(self, problem: Any, arrays: Mapping[str, np.ndarray], backend: Backend, replicas: int) -> None:
        """Allocate ``flat``, and copy there the arrays that belong to no example (rates, say)."""

    def part(self, first: int, last: int) -> dict[str, np.ndarray]:
        """The host's arrays of examples ``first`` to ``last`` (exclusive), which are examples 0, 1, ... of the part."""

    def bytes_of(self, first: int, last: int) -> int:
        """Bytes that :meth:`part` would have, without making it."""

    def granule(self) -> int:
        """Examples of a minibatch; 0 where one launch does any number of examples."""

    def room(self) -> int:
        """Examples in hand when the device is full."""

    def in_flight(self, step: float) -> int:
        """Examples that may be in hand at the same time without harm, at a step; at most what the device holds."""

    def replica(self, number: int, stream: Stream, in_flight: int) -> Callable[[Segment], None]:
        """What launches a segment for one replica, inside that stream's ``run``; ``in_flight``: its own share."""
