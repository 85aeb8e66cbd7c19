"""A replica of a module on a stream of the device: its parameters are views of the one flat array there.

A parameter gets its piece of the array by ``.data``, which starts a version counter of its own: autograd then never
takes another replica's update for an error. Gradients are requested by ``torch.autograd.grad``, so no thread
accumulates them on another stream. Buffers (batch norm's) are not views: most dtypes other than float32 lie in the
array as sums of two numbers. They are copied from it when a segment begins and back when it ends.

A graph reads and writes the addresses that it was captured with, so each minibatch is put into the same memory, and so
is its step, by the stream that then replays the graph.

Only the device knows how many entries a minibatch of sparse rows has: their number is asked for, which waits for the
stream, and steps run eagerly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from hogwild.cuda.module import rules as module_rules
from hogwild.cuda.work import Segment
from hogwild.problems.module.layout import unpack
from hogwild.problems.module.problem import ModuleProblem, step_at

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
    batch : int
        Rows of a minibatch.
    minibatch : callable
        Makes the minibatch of some rows of the data.
    """

    def __init__(
        self,
        problem: ModuleProblem,
        flat: torch.Tensor,
        worker: int,
        batch: int,
        minibatch: Callable[[Data, torch.Tensor], list[torch.Tensor]],
    ) -> None:
        self._problem, self._flat, self._worker = problem, flat, worker
        self._layout, self._batch, self._minibatch = problem.layout, batch, minibatch
        self.replay: Callable[[], None] | None = None
        self._parts: list[torch.Tensor] = []  # the minibatch that a graph reads
        self._before: list[tuple[torch.Tensor, torch.Tensor]] = []  # arrays that a step writes, and their copies

    def __call__(self, segment: Segment) -> None:
        self._layout.write_buffers(self._model, self._numbers)
        assert segment.rows is not None
        visits = segment.visits
        for k, rows in enumerate(segment.rows.split(self._batch)):
            if k == 0 or visits.power:
                step = visits.scale, visits.since, visits.power
                self._step.fill_(float(step_at(step, visits.first + k * self._batch)))
            if self.replay is not None and len(rows) == self._batch:
                for array, part in zip(segment.data.values(), self._parts):
                    torch.index_select(array, 0, rows, out=part)
                self.replay()
            else:
                self._run(self._minibatch(segment.data, rows))
        self._layout.read_buffers(self._model, self._numbers)
        self._slot[:1].fill_(1.0)  # it has done something

    def _run(self, parts: Sequence[torch.Tensor]) -> None:
        """Process one minibatch, inputs and target: forward, backward, and the update."""
        *inputs, target = parts
        with torch.enable_grad():
            loss = self._loss(self._model(*inputs), target)
            grads = torch.autograd.grad(loss, self._parameters, allow_unused=True)
        module_rules.land(self._layout.rule, self._trained, grads, self._step, self._betas)
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
        self._step = torch.zeros((), device=self._flat.device)

    def prepare(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Fill the memory that a graph reads with a minibatch, and copy what the step will write."""
        self._parts = [torch.from_numpy(np.array(array)).to(self._flat.device) for array in arrays.values()]
        shared = self._flat[: self._layout.size - self._layout.workers * self._layout.slot_size]
        self._before = [(array, array.clone()) for array in (shared, self._slot)]
        self._layout.write_buffers(self._model, self._numbers)

    def step(self) -> None:
        """Run one step on the minibatch in the graph's memory."""
        self._run(self._parts)

    def restore(self) -> None:
        """Restore what the step has written."""
        for array, before in self._before:
            array.copy_(before)
        self._before = []
