"""A worker's own copy of a module: its parameters are views of the shared array, everything else is its own.

One step assembles a minibatch, runs the module forward and back, and adds the update to the shared array. Nothing is
waited for and nothing copied: while the module runs, its parameters may change, as Hogwild! intends. The gradients come
from ``torch.autograd.grad``, so none is accumulated, zeroed or kept; writes go through NumPy views, past autograd's
version counters, which would report another thread's update as an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from hogwild.problems.module import kernel as modules
from hogwild.problems.module.layout import Layout, Trained, unpack


class BoundModule:
    """A module over a flat array or tensor on any device, with one worker's slot of the array ``slots``."""

    def __init__(self, program: bytes, layout: Layout, flat: Any, slots: Any, worker: int) -> None:
        self.layout = layout
        self.flat = flat
        self.model, self._loss = unpack(program, layout, flat)
        self._parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.slot = layout.slot(slots, worker)
        self.trained = layout.trained(flat, self.slot)

    def enter(self) -> None:
        """Load the buffers that this worker left in its slot."""
        self.model.train()
        self.layout.write_buffers(self.model, self.layout.slot_buffers(self.slot))

    def leave(self) -> None:
        """Record that the worker has done something, and its current buffers."""
        self.layout.read_buffers(self.model, self.layout.slot_buffers(self.slot))
        self.slot[:1] = 1.0

    def gradients(self, inputs: Sequence[torch.Tensor], target: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Gradients of a minibatch's loss for each trained parameter."""
        with torch.enable_grad():
            loss = self._loss(self.model(*inputs), target)
            return torch.autograd.grad(loss, self._parameters, allow_unused=True)


class ModuleReplica(BoundModule):
    """The module as one worker on the CPU has it, with the kernels that update its parameters."""

    def __init__(
        self, program: bytes, layout: Layout, flat: np.ndarray, slots: np.ndarray, worker: int, atomic: bool
    ) -> None:
        super().__init__(program, layout, flat, slots, worker)
        self._updates = [Update(part, layout.rule, atomic) for part in self.trained]

    def land(self, grads: tuple[torch.Tensor | None, ...], numbers: tuple[np.float32, ...]) -> None:
        """Add the update to the shared array; ``numbers`` are the step and both betas."""
        for update, grad in zip(self._updates, grads):
            if grad is not None:
                update(grad, numbers)


class Update:
    """The kernels that update one trained parameter."""

    def __init__(self, part: Trained, rule: str, atomic: bool) -> None:
        self.part = part
        self.rule = modules.RULES[rule]
        self.n_rows = part.place.shape[0] if part.place.shape else 1
        self.dense, self.rows = modules.dense(self.rule, int(atomic)), modules.rows(self.rule, int(atomic))
        self.places = np.empty(0, np.int32)

    def __call__(self, grad: torch.Tensor, numbers: tuple[np.float32, ...]) -> None:
        """Apply a gradient of the whole array, or of the rows that a sparse one names."""
        place, weights, *state = self.part
        if grad.layout == torch.sparse_coo and grad.sparse_dim() == 1:
            indices, values = grad._indices()[0].contiguous().numpy(), grad._values().reshape(-1).numpy()
            most = 0
            if self.rule != modules.SGD:  # other rules add up the entries of a row first
                most = min(len(indices), self.n_rows)
                if not self.places.size:
                    self.places = np.full(self.n_rows, -1, np.int32)
            work = self.places, np.empty(most * place.dim, np.float32), np.empty(most, np.int64)
            self.rows(weights, indices, values, *state, *work, place.dim, *numbers)
            return
        grad = grad if grad.layout == torch.strided else grad.to_dense()
        self.dense(weights, grad.reshape(-1).contiguous().numpy(), *state, *numbers)
