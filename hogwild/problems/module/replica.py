"""A worker's own copy of a module: its parameters are views of the shared array, everything else is its own.

One step assembles a minibatch, runs the module forward and back, and adds the update to the shared array. Nothing is
waited for and nothing copied: while the module runs, its parameters may change, as Hogwild! intends. The gradients come
from ``torch.autograd.grad``, so none is accumulated, zeroed or kept; writes go through NumPy views, past autograd's
version counters, which would report another thread's update as an error.

Sparse ``nn.EmbeddingBag`` layers have no gradient arrays: their sums are leaves of autograd's graph.
torch's backward pass makes a row of gradient for every entry of every bag, and an optimiser then sorts and adds them.
Here the layer's forward is a kernel outside autograd, and its result, one sum per bag, is a leaf that requires a
gradient; autograd stops there, and ``kernel.rows`` takes the sums' gradients to the rows. Measured on rows of 76
features this takes about a fifth off a step at 128 numbers a row, and little at 32: what torch makes then fits in the
cache. It is done for layers in mode "sum" with offsets and no options that change the weights or the gradient, and only
if nothing else uses the weights and each is called once; otherwise torch does the work.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from hogwild.problems.module import kernel as modules
from hogwild.problems.module.feed import Batch
from hogwild.problems.module.layout import Layout, Place, State, unpack

NONE, SOME = np.empty(0, np.float32), np.empty(0, np.int64)


class _Weights:
    """One trained parameter: its place, the state of its rule, and the kernels that update it."""

    def __init__(self, place: Place, weights: np.ndarray, state: State, rule: int, atomic: int) -> None:
        self.weights = weights
        self.state = state
        self.rule = rule
        self.dim = place.dim
        self.n_rows = place.shape[0] if place.shape else 1
        whole = modules.whole(self.dim)
        self.dense, self.rows = modules.dense(rule, atomic), modules.rows(rule, atomic, whole)
        self.places = np.empty(0, np.int32)
        self.sums, self.named = NONE, SOME

    def move(self, grad: torch.Tensor, numbers: tuple[np.float32, ...]) -> None:
        """Apply a gradient of the whole array."""
        if grad.layout != torch.strided:
            if grad.sparse_dim() == 1 and grad.layout == torch.sparse_coo:
                indices, values = grad._indices()[0].contiguous().numpy(), grad._values().reshape(-1).numpy()
                self.move_rows(indices, np.arange(len(indices) + 1), NONE, values, numbers)
                return
            grad = grad.to_dense()
        first, second, counts = self.state
        self.dense(self.weights, grad.reshape(-1).contiguous().numpy(), first, second, counts, *numbers)

    def move_rows(
        self,
        indices: np.ndarray,
        begins: np.ndarray,
        coefficients: np.ndarray,
        grads: np.ndarray,
        numbers: tuple[np.float32, ...],
    ) -> None:
        """Apply the gradient of the rows that ``indices`` name."""
        if self.rule != modules.SGD:
            if not self.places.size:
                self.places = np.full(self.n_rows, -1, np.int32)
            most = min(len(indices), self.n_rows)  # distinct rows
            if most > len(self.named):
                room = min(2 * most, self.n_rows)
                self.sums, self.named = np.empty(room * self.dim, np.float32), np.empty(room, np.int64)
        self.rows(
            self.weights,
            indices,
            begins,
            coefficients,
            grads,
            *self.state,
            self.places,
            self.sums,
            self.named,
            self.dim,
            *numbers,
        )


class ModuleReplica:
    """The module as one worker has it; completed by ``bind``."""

    def __init__(self, program: bytes, layout: Layout, atomic: int, bagged: bool) -> None:
        self._program = program
        self._layout = layout
        self._atomic = atomic
        self._bagged = bagged
        self._flat: np.ndarray | None = None
        self._worker = -1

    def bind(self, flat: np.ndarray, worker: int) -> None:
        """Place the module over ``flat``, once, and load the buffers that this worker left there."""
        layout = self._layout
        if self._flat is not flat or self._worker != worker:
            self.model, self.loss = unpack(self._program, layout, flat)
            self._parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
            arrays = [flat[place.begin : place.end] for place in layout.places]
            rule, states = modules.RULES[layout.rule], layout.states(flat, worker)
            trained = [number for number, place in enumerate(layout.places) if place.trained]
            self._weights = {
                k: _Weights(layout.places[k], arrays[k], next(states), rule, self._atomic) for k in trained
            }
            self._calls: list[Summed] = take_over(self.model, arrays) if self._bagged else []
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
        """Gradients of the batch's loss: for each trained parameter, then for each call of a ``Bag``."""
        self._calls.clear()
        loss = self.loss(self.model(*batch.inputs), batch.target)
        if len({call.place for call in self._calls}) < len(self._calls):
            raise TypeError("a layer of sparse rows is called twice, which its kernels do not take")
        wanted = [*self._parameters, *(call.sums for call in self._calls)]
        return torch.autograd.grad(loss, wanted, allow_unused=True)

    def land(self, grads: tuple[torch.Tensor | None, ...], numbers: tuple[np.float32, ...]) -> None:
        """Add the update to the shared array; ``numbers`` are the step and both betas."""
        for weights, grad in zip(self._weights.values(), grads):
            if grad is not None:
                weights.move(grad, numbers)
        for call, grad in zip(self._calls, grads[len(self._weights) :]):
            if grad is not None:
                sums = grad.reshape(-1).numpy()
                self._weights[call.place].move_rows(call.indices, call.begins, call.coefficients, sums, numbers)
        self._calls.clear()  # they hold the batch


class Summed(NamedTuple):
    """One call of a layer: its entries, and the sums that autograd gives a gradient for."""

    place: int  # position of the weights among the parameters
    indices: np.ndarray  # (nnz,) int64
    begins: np.ndarray  # (bags + 1,) int64
    coefficients: np.ndarray  # (nnz,) float32; empty: all 1
    sums: torch.Tensor  # (bags, dim) float32


class Bag:
    """Replacement for the ``forward`` of one layer; it records its calls in ``calls``."""

    def __init__(self, layer: nn.EmbeddingBag, place: int, weights: np.ndarray, calls: list[Summed]) -> None:
        self.layer = layer
        self.place = place
        self.weights = weights
        self.calls = calls
        self.dim = layer.embedding_dim
        self.kernel = modules.bags(modules.whole(self.dim))

    def __call__(self, input: Any, offsets: Any = None, per_sample_weights: Any = None) -> torch.Tensor:
        if not self._fits(input, offsets, per_sample_weights):
            return type(self.layer).forward(self.layer, input, offsets, per_sample_weights)
        indices = input.numpy()
        begins = np.empty(len(offsets) + 1, np.int64)
        begins[:-1], begins[-1] = offsets.numpy(), len(indices)
        coefficients = NONE if per_sample_weights is None else per_sample_weights.numpy()
        out = torch.zeros(len(offsets), self.dim, dtype=torch.float32)
        if not self.kernel(self.weights, indices, begins, coefficients, out.numpy().reshape(-1), self.dim):
            return type(self.layer).forward(self.layer, input, offsets, per_sample_weights)  # which says what is wrong
        out.requires_grad_()
        self.calls.append(Summed(self.place, indices, begins, coefficients, out))
        return out

    @staticmethod
    def _fits(input: Any, offsets: Any, weights: Any) -> bool:
        if not torch.is_grad_enabled() or offsets is None or input.dim() != 1 or not len(offsets):
            return False
        if input.dtype != torch.int64 or offsets.dtype != torch.int64 or not input.is_contiguous():
            return False
        plain = weights is None or (
            weights.dtype == torch.float32
            and weights.is_contiguous()
            and not weights.requires_grad
            and weights.shape == input.shape
        )
        return bool(plain)


def take_over(model: nn.Module, views: list[np.ndarray]) -> list[Summed]:
    """Replace suitable layers of the model by kernels; return the list that records their calls."""
    calls: list[Summed] = []
    uses: dict[int, int] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            uses[id(parameter)] = uses.get(id(parameter), 0) + 1
    numbers = {id(parameter): k for k, parameter in enumerate(model.parameters())}
    for layer in model.modules():
        if type(layer) is not nn.EmbeddingBag or not layer.sparse or layer.mode != "sum":
            continue
        options = layer.max_norm, layer.padding_idx, layer.scale_grad_by_freq or None, layer.include_last_offset or None
        if any(option is not None for option in options) or uses[id(layer.weight)] > 1:
            continue
        if layer.weight.requires_grad:
            place = numbers[id(layer.weight)]
            layer.forward = Bag(layer, place, views[place], calls)
    return calls
