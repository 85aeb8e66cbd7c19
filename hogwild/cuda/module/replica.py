"""A replica's module on the device: its parameters are views of the one flat array there, all else is private.

A parameter gets its piece of the array by ``.data``, which starts a version counter of its own: autograd then never
takes another replica's update for an error. Gradients are requested by ``torch.autograd.grad``, so no thread
accumulates them on another stream.

Buffers (batch norm's) are not views: most dtypes other than float32 lie in the array as sums of two numbers. They are
copied from it when a segment begins and back when it ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from hogwild.cuda.module import rules as module_rules
from hogwild.problems.module.layout import unpack
from hogwild.problems.module.problem import ModuleProblem


class DeviceReplica:
    """The module of one stream."""

    def __init__(self, problem: ModuleProblem, flat: torch.Tensor, worker: int, batch: int) -> None:
        self.layout, self.rows = problem.layout, batch
        self._rule, self._betas = problem.layout.rule, module_rules.as_kernels(problem.betas)
        self.model, self.loss = unpack(problem.program, self.layout, flat)
        self.model.train()
        self._parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self._trained = module_rules.trained_of(self.layout, flat, worker)
        array: Any = flat  # only slices of it are taken
        self._slot: Any = self.layout.slot(array, worker)
        self._numbers = self.layout.slot_buffers(self._slot)
        modules = self.model.modules()
        self._held = [(module, *pair) for module in modules for pair in module._buffers.items() if pair[1] is not None]
        self.writes = [flat[: self.layout.size - self.layout.workers * self.layout.slot_size], self._slot]

    def enter(self) -> None:
        """Load this replica's buffers from the array."""
        self.layout.write_buffers(self.model, self._numbers)

    def leave(self) -> None:
        """Record the work done and the buffers in the array."""
        self.layout.read_buffers(self.model, self._numbers)
        self._slot[:1].fill_(1.0)

    def step(self, parts: Sequence[torch.Tensor], step: torch.Tensor) -> None:
        """Process one minibatch, inputs and target: forward, backward, and the update."""
        *inputs, target = parts
        with torch.enable_grad():
            loss = self.loss(self.model(*inputs), target)
            grads = torch.autograd.grad(loss, self._parameters, allow_unused=True)
        module_rules.land(self._rule, self._trained, grads, step, self._betas)
        for module, name, buffer in self._held:  # a module may put a tensor in its place, instead of writing into it
            now = module._buffers[name]
            if now is not buffer and now is not None:
                buffer.copy_(now.detach())
            module._buffers[name] = buffer
