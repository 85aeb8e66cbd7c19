"""Sparse ``nn.EmbeddingBag`` layers without gradient arrays: their sums are leaves of autograd's graph.

torch's backward pass makes a row of gradient for every entry of every bag, and an optimiser then sorts and adds them.
Here the layer's forward is a kernel outside autograd, and its result, one sum per bag, is a leaf that requires a
gradient; autograd stops there, and ``kernel.rows`` takes the sums' gradients to the rows. Measured on rows of 76
features this takes about a fifth off a step at 128 numbers a row, and little at 32: what torch makes then fits in the
cache. It is done for layers in mode "sum" with offsets and no options that change the weights or the gradient, and only
if nothing else uses the weights; otherwise torch does the work.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from hogwild.problems.module import kernel as modules

NONE = np.empty(0, np.float32)


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
        self.layer, self.place, self.weights, self.calls = layer, place, weights, calls
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
        found = self.kernel(self.weights, indices, begins, coefficients, out.numpy().reshape(-1), self.dim)
        if found != modules.FINE:
            _refuse(found, indices, begins, self.layer)
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


def _refuse(found: int, indices: np.ndarray, begins: np.ndarray, layer: nn.EmbeddingBag) -> None:
    if found < 0:
        raise IndexError(f"offsets of bags: expected to ascend from 0 to {begins[-1]}")
    raise IndexError(f"feature {indices[found]}: expected 0 to {layer.num_embeddings - 1}, the rows of the embedding")


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


def together(calls: list[Summed], grads: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Several calls of one layer merged into one: indices, begins, coefficients, gradients."""
    if len(calls) == 1:
        return calls[0].indices, calls[0].begins, calls[0].coefficients, grads[0]
    begins, before = [np.zeros(1, np.int64)], 0
    for call in calls:
        begins.append(call.begins[1:] + before)
        before += len(call.indices)
    weighted = any(call.coefficients.size for call in calls)
    ones = [call.coefficients if call.coefficients.size else np.ones(len(call.indices), np.float32) for call in calls]
    coefficients = np.concatenate(ones) if weighted else NONE
    return np.concatenate([call.indices for call in calls]), np.concatenate(begins), coefficients, np.concatenate(grads)
