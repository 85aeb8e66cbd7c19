"""A replica of a module on a stream of the device: its parameters are views of the one flat array there.

A parameter gets its piece of the array by ``.data``, which starts a version counter of its own: autograd then never
takes another replica's update for an error. Gradients are requested by ``torch.autograd.grad``, so no thread
accumulates them on another stream. Buffers (batch norm's) are not views: most dtypes other than float32 lie in the
array as sums of two numbers. They are copied from it when a segment begins and back when it ends.

A graph reads and writes the addresses that it was captured with. So minibatches are put into the same memory again and
again, a few at a time, with the step of each; a number beside them selects the next, and a replay increments it. All of
that is queued on one stream, in order, so nothing is overwritten before it is read.

Only the device knows how many entries a minibatch of sparse rows has: their number is asked for, which waits for the
stream, and steps run eagerly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from hogwild.cuda.backend import WARM_UP, Backend
from hogwild.cuda.module import rules as module_rules
from hogwild.cuda.work import Segment, Visits
from hogwild.problems.module.layout import unpack
from hogwild.problems.module.problem import ModuleProblem

MOST = 8  # minibatches assembled at a time: a segment's
ROOM = 1 << 25  # most bytes for them per replica, unless one alone needs more

Data = Mapping[str, torch.Tensor]  # a part's arrays, the target last


def of_arrays(data: Data, rows: torch.Tensor) -> list[torch.Tensor]:
    """A minibatch of these rows: the module's inputs, and the loss's target."""
    return [array.index_select(0, rows) for array in data.values()]


def of_rows(data: Data, rows: torch.Tensor) -> list[torch.Tensor]:
    """The same of sparse rows, whose inputs are ``indices, offsets, per_sample_weights``."""
    begins = data["begin"].index_select(0, rows)
    lengths = data["end"].index_select(0, rows) - begins
    offsets = lengths.cumsum(0) - lengths
    total = int(lengths.sum())
    at = torch.repeat_interleave(begins - offsets, lengths, output_size=total)
    at += torch.arange(total, device=rows.device)
    indices = data["indices"].index_select(0, at).long()
    return [indices, offsets, data["values"].index_select(0, at), data["target"].index_select(0, rows)]


class DeviceReplica:
    """Runs segments on one stream, by replaying one captured step if there is one.

    Parameters
    ----------
    flat : torch.Tensor
        The one array of all replicas.
    worker : int
        Number of this one.
    rows : int
        Rows of a minibatch.
    minibatch : callable
        Makes the minibatch of some rows of the data.
    """

    def __init__(
        self, problem: ModuleProblem, flat: torch.Tensor, worker: int, rows: int,
        minibatch: Callable[[Data, torch.Tensor], list[torch.Tensor]],
    ) -> None:  # fmt: skip
        self._problem, self._flat, self._worker = problem, flat, worker
        self._layout, self._rows, self._minibatch = problem.layout, rows, minibatch
        self.replay: Callable[[], None] | None = None
        self._before: list[tuple[torch.Tensor, torch.Tensor]] = []  # arrays that a step writes, and their copies

    def __call__(self, segment: Segment) -> None:
        self._layout.write_buffers(self._model, self._numbers)
        assert segment.rows is not None
        m, done, rows = len(segment.rows), 0, self._rows
        while self.replay is not None and m - done >= rows:
            count = min(len(self._steps), (m - done) // rows)
            self._fill(segment.data, segment.rows[done : done + count * rows].view(count, rows))
            self._set_steps(segment.visits, done, count)
            for _ in range(count):
                self.replay()
            done += count * rows
        while done < m:
            count = min(m - done, rows)
            parts = self._minibatch(segment.data, segment.rows[done : done + count])
            self._set_steps(segment.visits, done, 1)
            self._step(parts, self._steps[0])
            done += count
        self._layout.read_buffers(self._model, self._numbers)
        self._slot[:1].fill_(1.0)  # it has done something

    def _step(self, parts: Sequence[torch.Tensor], step: torch.Tensor) -> None:
        """Process one minibatch, inputs and target: forward, backward, and the update."""
        *inputs, target = parts
        with torch.enable_grad():
            loss = self._loss(self._model(*inputs), target)
            grads = torch.autograd.grad(loss, self._parameters, allow_unused=True)
        module_rules.land(self._layout.rule, self._trained, grads, step, self._betas)
        for module, name, buffer in self._held:  # a module may put a tensor in its place, instead of writing into it
            now = module._buffers[name]
            if now is not buffer and now is not None:
                buffer.copy_(now.detach())
            module._buffers[name] = buffer

    # ---- run on the stream beforehand

    def begin(self) -> None:
        """Make the module, whose memory all belongs to the stream."""
        first, second = self._problem.betas
        self._betas = float(np.float32(first)), float(np.float32(second))  # rounded as in the CPU's kernels
        self._model, self._loss = unpack(self._problem.program, self._layout, self._flat)
        self._parameters = [parameter for parameter in self._model.train().parameters() if parameter.requires_grad]
        self._trained = module_rules.trained_of(self._layout, self._flat, self._worker)
        self._slot = self._layout.slot(self._flat, self._worker)
        self._numbers = self._layout.slot_buffers(self._slot)
        modules = self._model.modules()
        self._held = [(module, *pair) for module in modules for pair in module._buffers.items() if pair[1] is not None]
        self._steps = torch.zeros(1, device=self._flat.device)

    def prepare(self, arrays: Mapping[str, np.ndarray], backend: Backend) -> None:
        """Allocate the memory that a graph reads, fill it with one minibatch, and copy what the step will write."""
        device, rows, layout = backend.device, self._rows, self._layout
        count = min(ROOM // max(sum(array.nbytes for array in arrays.values()), 1), MOST)
        count = count if count >= WARM_UP else 1  # else the steps before a capture would run past the last minibatch
        some = {name: backend.stage(array).to(device) for name, array in arrays.items()}
        self._parts = [part.new_empty((count, *part.shape)) for part in some.values()]
        self._steps = torch.zeros(count, device=device)
        self._at = torch.zeros(1, dtype=torch.int64, device=device)
        self._fill(some, torch.arange(rows, dtype=torch.int32, device=device).repeat(count, 1))
        written = self._flat[: layout.size - layout.workers * layout.slot_size], self._slot
        self._before = [(array, array.clone()) for array in written]
        layout.write_buffers(self._model, self._numbers)

    def next(self) -> None:
        """Run one step on the next minibatch in the graph's memory."""
        if len(self._steps) == 1:
            self._step([part[0] for part in self._parts], self._steps[0])
            return
        parts = [part.index_select(0, self._at)[0] for part in self._parts]
        self._step(parts, self._steps.index_select(0, self._at)[0])
        self._at.add_(1)

    def restore(self) -> None:
        """Restore what the step has written."""
        for array, before in self._before:
            array.copy_(before)
        self._before = []

    def _set_steps(self, visits: Visits, done: int, count: int) -> None:
        """Set the steps of the next minibatches, ``done`` visits after the first one."""
        steps = self._steps[:count]
        if visits.power == 0.0:
            steps.fill_(visits.scale)
        else:
            times = torch.arange(count, dtype=torch.float64, device=steps.device) * self._rows
            steps.copy_(visits.scale * (visits.since + visits.first + done + times) ** -visits.power)

    def _fill(self, data: Data, rows: torch.Tensor) -> None:
        """Fill the first minibatches; ``rows`` are (minibatches, rows of each)."""
        flat = rows.flatten()
        for array, part in zip(data.values(), self._parts):
            torch.index_select(array, 0, flat, out=part[: len(rows)].flatten(0, 1))
        self._at.zero_()
