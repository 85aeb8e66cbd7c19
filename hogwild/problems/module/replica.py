"""A worker's own copy of a module: its parameters are views of the shared array, everything else is its own.

One step assembles a minibatch, runs the module forward and back, and adds the update to the shared array. Nothing is
waited for and nothing copied: while the module runs, its parameters may change, as Hogwild! intends. The gradients come
from ``torch.autograd.grad``, so none is accumulated, zeroed or kept; writes go through NumPy views, past autograd's
version counters, which would report another thread's update as an error.
"""

from __future__ import annotations

import numpy as np
import torch

from hogwild.problems.module import kernel as modules
from hogwild.problems.module.feed import Batch
from hogwild.problems.module.layout import Layout, Place, State, unpack


class _Weights:
    """One trained parameter: its place, the state of its rule, and the kernels that update it."""

    def __init__(self, place: Place, weights: np.ndarray, state: State, rule: int, atomic: int) -> None:
        self.weights = weights
        self.state = state
        self.rule = rule
        self.dim = place.dim
        self.n_rows = place.shape[0] if place.shape else 1
        self.dense, self.rows = modules.dense(rule, atomic), modules.rows(rule, atomic)
        self.places = np.empty(0, np.int32)
        self.sums, self.named = np.empty(0, np.float32), np.empty(0, np.int64)

    def move(self, grad: torch.Tensor, numbers: tuple[np.float32, ...]) -> None:
        """Apply a gradient of the whole array."""
        if grad.layout != torch.strided:
            if grad.sparse_dim() == 1 and grad.layout == torch.sparse_coo:
                indices, values = grad._indices()[0].contiguous().numpy(), grad._values().reshape(-1).numpy()
                self.move_rows(indices, values, numbers)
                return
            grad = grad.to_dense()
        first, second, counts = self.state
        self.dense(self.weights, grad.reshape(-1).contiguous().numpy(), first, second, counts, *numbers)

    def move_rows(self, indices: np.ndarray, grads: np.ndarray, numbers: tuple[np.float32, ...]) -> None:
        """Apply the gradient of the rows that ``indices`` name."""
        if self.rule != modules.SGD:
            if not self.places.size:
                self.places = np.full(self.n_rows, -1, np.int32)
            most = min(len(indices), self.n_rows)  # distinct rows
            if most > len(self.named):
                room = min(2 * most, self.n_rows)
                self.sums, self.named = np.empty(room * self.dim, np.float32), np.empty(room, np.int64)
        work = self.places, self.sums, self.named
        self.rows(self.weights, indices, grads, *self.state, *work, self.dim, *numbers)


class ModuleReplica:
    """The module as one worker has it; completed by ``bind``."""

    def __init__(self, program: bytes, layout: Layout, atomic: int) -> None:
        self._program = program
        self._layout = layout
        self._atomic = atomic
        self._flat: np.ndarray | None = None
        self._worker = -1

    def bind(self, flat: np.ndarray, worker: int) -> None:
        """Place the module over ``flat``, once, and load the buffers that this worker left there."""
        layout = self._layout
        if self._flat is not flat or self._worker != worker:
            self.model, self.loss = unpack(self._program, layout, flat)
            self._parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
            rule, states = modules.RULES[layout.rule], layout.states(flat, worker)
            self._weights = [
                _Weights(place, flat[place.begin : place.end], next(states), rule, self._atomic)
                for place in layout.places
                if place.trained
            ]
            self._flat = flat
            self._worker = worker
            self._slot = layout.slot(flat, worker)
        self.model.train()
        layout.write_buffers(self.model, layout.slot_buffers(self._slot))

    def leave(self) -> None:
        """Record that the worker has done something, and its current buffers."""
        self._layout.read_buffers(self.model, self._layout.slot_buffers(self._slot))
        self._slot[0] = 1.0

    def gradients(self, batch: Batch) -> tuple[torch.Tensor | None, ...]:
        """Gradients of the batch's loss for each trained parameter."""
        loss = self.loss(self.model(*batch.inputs), batch.target)
        return torch.autograd.grad(loss, self._parameters, allow_unused=True)

    def land(self, grads: tuple[torch.Tensor | None, ...], numbers: tuple[np.float32, ...]) -> None:
        """Add the update to the shared array; ``numbers`` are the step and both betas."""
        for weights, grad in zip(self._weights, grads):
            if grad is not None:
                weights.move(grad, numbers)
