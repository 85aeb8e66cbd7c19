"""Updates of a module's parameters by torch: the rules of ``problems/module/kernel.py``, on any device.

Dense gradients of all parameters are applied together, by the kernels behind torch's fused optimisers, which read the
step from the device and each weight just before they write it. A step has dozens of small launches, of which these are
one or two; only a few cycles pass between a replica's read and its write.
(There is no such kernel for adagrad on a GPU: it takes six launches.)

Duplicate rows of a sparse gradient are added up first, except under sgd, in tables whose size is known without looking
at the data: so the step can be captured, and nothing waits. The changes of a row are added atomically.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from hogwild.problems.module import kernel as modules
from hogwild.problems.module.layout import Layout, Place

ADAGRAD_EPS, ADAM_EPS = float(modules.ADAGRAD_EPS), float(modules.ADAM_EPS)
Betas = tuple[float, float]


class Trained(NamedTuple):
    """One trained parameter and its optimiser's state, as views of the flat array."""

    place: Place
    weights: torch.Tensor  # (size,)
    first: torch.Tensor  # (size,) or empty
    second: torch.Tensor
    counts: torch.Tensor  # (1,) or empty


def trained_of(layout: Layout, flat: torch.Tensor, worker: int) -> list[Trained]:
    """The trained parameters in order, with this worker's optimiser state."""
    places = [place for place in layout.places if place.trained]
    states: Any = layout.states(flat, worker)
    return [Trained(place, flat[place.begin : place.end], *state) for place, state in zip(places, states)]


def land(
    rule: str, trained: Sequence[Trained], grads: Sequence[torch.Tensor | None], step: torch.Tensor, betas: Betas
) -> None:
    """Update the parameters that have a gradient; ``step`` is a scalar tensor on the device."""
    moved, dense = [], []
    found = [(one, grad) for one, grad in zip(trained, grads) if grad is not None]
    if rule == "adam" and found:
        torch._foreach_add_([one.counts for one, _ in found], 1.0)
    for one, grad in found:
        if grad.layout == torch.sparse_coo and grad.sparse_dim() == 1:
            if one.place.size:
                _rows(rule, one, grad._indices()[0], grad._values().reshape(-1, one.place.dim), step, betas)
        elif one.place.size:
            moved.append(one)
            dense.append(_flat(grad if grad.layout == torch.strided else grad.to_dense()))
    if moved:
        _whole(rule, moved, dense, step, betas)


def _flat(grad: torch.Tensor) -> torch.Tensor:
    """Make a gradient's strides equal to its weights', since the fused kernels compare strides.

    The gradient of a sum has strides 0, and torch considers a single element contiguous with any stride.
    """
    return grad.reshape(()).view(1) if grad.numel() == 1 else grad.reshape(-1).contiguous()


def _whole(rule: str, moved: list[Trained], grads: list[torch.Tensor], step: torch.Tensor, betas: Betas) -> None:
    """Update whole parameters."""
    weights, first = [one.weights for one in moved], [one.first for one in moved]
    if rule == "adam":
        second, counts = [one.second for one in moved], [one.counts for one in moved]
        torch._fused_adam_(
            weights,
            grads,
            first,
            second,
            [],
            counts,
            lr=step,
            beta1=betas[0],
            beta2=betas[1],
            weight_decay=0.0,
            eps=ADAM_EPS,
            amsgrad=False,
            maximize=False,
        )
    elif rule == "adagrad":
        torch._foreach_addcmul_(first, grads, grads)
        roots = torch._foreach_sqrt(first)
        torch._foreach_add_(roots, ADAGRAD_EPS)
        # not in place: two parameters' gradients may share memory
        torch._foreach_addcdiv_(weights, torch._foreach_mul(grads, step), roots, -1.0)
    else:
        beta = betas[0] if rule == "momentum" else 0.0
        if rule == "momentum" and beta == 0.0:  # torch does not accept it as momentum
            torch._foreach_copy_(first, grads)
        torch._fused_sgd_(
            weights,
            grads,
            first if beta else [],
            weight_decay=0.0,
            momentum=beta,
            lr=step,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=False,
        )


def _rows(
    rule: str, one: Trained, indices: torch.Tensor, values: torch.Tensor, step: torch.Tensor, betas: Betas
) -> None:
    """Update the rows of a parameter at ``indices`` (nnz,) by gradients ``values`` (nnz, dim)."""
    dim = one.place.dim
    if rule == "sgd":
        one.weights.view(-1, dim).index_add_(0, indices, values * -step)
    elif len(indices):
        named, sums, used = coalesced(indices, values)
        tables = [array.view(-1, dim) for array in (one.weights, one.first, one.second) if array.numel()]
        old = [table.index_select(0, named) for table in tables]
        new = [rows.clone() for rows in old]
        names = ("weights", "first", "second")
        picked = one._replace(**{name: rows.view(-1) for name, rows in zip(names, new)})
        _whole(rule, [picked], [sums.view(-1)], step, betas)
        for table, before, after in zip(tables, old, new):
            table.index_add_(0, named, (after - before) * used)


def coalesced(indices: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Merge duplicate rows without changing the length: (row, sum of its values, 1 or, for unused entries, 0)."""
    ordered, order = indices.sort()
    new = torch.ones_like(ordered)
    new[1:] = ordered[1:] != ordered[:-1]
    slot = new.cumsum(0) - 1
    named = ordered[:1].repeat(len(ordered)).scatter_(0, slot, ordered)  # unused entries name the first row, and add 0
    sums = torch.zeros_like(values).index_add_(0, slot, values.index_select(0, order))
    used = (torch.arange(len(ordered), device=ordered.device) <= slot[-1:]).to(values.dtype).unsqueeze(1)
    return named, sums, used
