"""The interface between the host of replicas (``streams.py``) and a problem's kernels on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from hogwild.cuda.backend import Backend, DeviceStream
from hogwild.data.rows.container import Rows

INT32 = 2**31 - 2**10  # kernels look a little beyond a row's end


class Visits(NamedTuple):
    """Positions in a sequence of epochs over one part of the data; ``order.visit_at`` computes what is visited there.

    The step at position v, in the e-th epoch, is ``scale * 2**(rate * e) / (since + v)**power``.
    """

    first: int  # position of the first visit
    size: int  # visits
    n: int  # examples of an epoch
    key: int  # of the order, uint32
    epoch: int  # number of the epoch of position 0
    scale: float
    rate: float = 0.0
    since: float = 1.0
    power: float = 0.0
    shuffled: bool = True
    together: int = 1  # neighbours that stay together

    @property
    def arguments(self) -> tuple[float, ...]:
        """Arguments of a kernel: these numbers, and the bits that a block's number has, after ``n``."""
        bits = max(self.n // self.together - 1, 0).bit_length()
        return (*self[:3], bits, *self[3:9])

    @property
    def constants(self) -> dict[str, int]:
        """Constants that a kernel is compiled for."""
        return {"SHUFFLED": self.shuffled, "TOGETHER": self.together}


class Segment(NamedTuple):
    """Examples that one launch visits."""

    data: Mapping[str, torch.Tensor]  # the part's arrays, on the device, as ``Launcher.part`` names them
    visits: Visits
    visited: int = 0  # examples visited before the first of these, since the run began
    rows: torch.Tensor | None = None  # (count,) int32: the examples in visiting order, if they come in minibatches


class Launcher:
    """A problem on a device: the flat parameter array and what runs over it; made of problem, arrays and device.

    What this class itself gives suits a problem with kernels, each launch of which visits any number of examples.
    """

    name: str  # of the folder that has the kernels
    backend: Backend
    flat: torch.Tensor  # (size,) float32, laid out as the host's; the host fills it after construction
    problem: Any
    objective: Any  # of a sample of the examples
    rows: Rows | None = None  # sparse rows, if examples are such
    unit = False  # whether all their values are one, and not needed
    arrays: Mapping[str, np.ndarray]  # of all examples, besides
    block = 1  # neighbours that may stay together in a random order, for the sake of long reads; 1: none
    granule = 0  # examples of a minibatch; 0: there are none
    trials = 1  # epochs that begin with a trial of how many examples may be in flight

    def part(self, first: int, last: int) -> dict[str, np.ndarray]:
        """The host's arrays of examples ``first`` to ``last`` (exclusive), which are examples 0, 1, ... of the part."""
        entries = {} if self.rows is None else part_of(self.rows, first, last, self.unit)
        return entries | {name: array[first:last] for name, array in self.arrays.items()}

    def bytes_of(self, first: int, last: int) -> int:
        """Bytes of :meth:`part`, without making it."""
        entries = 0 if self.rows is None else bytes_of(self.rows, first, last, self.unit)
        return entries + sum(array[first:last].nbytes for array in self.arrays.values())

    def room(self) -> int:
        """Examples in flight when the device is full."""
        raise NotImplementedError

    def replica(self, number: int, stream: DeviceStream, in_flight: int) -> Callable[[Segment], None]:
        """Return a function that launches a segment for one replica, which has ``in_flight`` examples in flight."""
        visit = self.backend.kernels(self.name).visit

        def launch(segment: Segment) -> None:
            if segment.visits.size:
                visit(self, segment, in_flight)

        return launch

    def judge(self, flat: np.ndarray) -> float:
        """Return the objective of these parameters on a sample, for trials of how many examples may be in flight."""
        with np.errstate(all="ignore"):  # a trial may diverge
            return float(self.objective.evaluate(*self.problem.solution(flat))["objective"])

    def sums(self, data: Mapping[str, torch.Tensor]) -> np.ndarray | None:
        """Sums over all examples, which are on the device, as the problem's evaluator makes them; None: it must."""
        return None


def part_of(rows: Rows, first: int, last: int, unit: bool = False) -> dict[str, np.ndarray]:
    """``begin end indices values`` of some rows: slices, but entries of rows not stored consecutively are copied.

    ``unit``: without the values, which are all one.
    """
    rows = rows.block(first, last)
    if rows.contiguous and len(rows):
        base = int(rows.begin[0])
        entries = slice(base, int(rows.end[-1]))
    else:
        rows, base, entries = rows.compact(), 0, slice(None)
    offsets = _offsets(rows.nnz)
    found = {
        "begin": (rows.begin - base).astype(offsets),
        "end": (rows.end - base).astype(offsets),
        "indices": rows.indices[entries],
    }
    return found if unit else found | {"values": rows.values[entries]}


def bytes_of(rows: Rows, first: int, last: int, unit: bool = False) -> int:
    """Bytes of :func:`part_of`, without making it."""
    nonzeros = int((rows.end[first:last] - rows.begin[first:last]).sum())
    return 2 * np.dtype(_offsets(nonzeros)).itemsize * (last - first) + (4 if unit else 8) * nonzeros


def _offsets(nonzeros: int) -> type[np.signedinteger[Any]]:
    return np.int32 if nonzeros < INT32 else np.int64
