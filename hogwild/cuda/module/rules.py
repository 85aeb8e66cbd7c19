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
    for one, grad in zip(trained, grads):
        if grad is None:
            continue
        if grad.layout != torch.strided:
            if grad.layout == torch.sparse_coo and grad.sparse_dim() == 1:
                _rows(rule, one, grad._indices()[0], grad._values().reshape(-1, one.place.dim), step, betas)
                continue
            grad = grad.to_dense()
        if one.place.size:
            moved.append(one)
            dense.append(_flat(grad))
    if moved:
        _whole(rule, moved, dense, step, betas)


def _flat(grad: torch.Tensor) -> torch.Tensor:
    """Make a gradient's strides equal to its weights', since the fused kernels compare strides.

    The gradient of a sum has strides 0, and torch considers a single element contiguous with any stride.
    """
    return grad.reshape(()).view(1) if grad.numel() == 1 else grad.reshape(-1).contiguous()


def changes(
    rule: str, g: torch.Tensor, first: torch.Tensor, second: torch.Tensor, t: torch.Tensor, step: torch.Tensor,
    betas: Betas,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:  # fmt: skip
    """The changes of the weights and of both parts of the state for a gradient ``g``; ``t`` already counts it."""
    beta1, beta2 = betas
    if rule == "sgd":
        return -step * g, None, None
    if rule == "momentum":
        dm = g + (beta1 - 1.0) * first
        return -step * (first + dm), dm, None
    if rule == "adagrad":
        dv = g * g
        return -step * g / ((first + dv).sqrt() + ADAGRAD_EPS), dv, None
    dm, dv = (1.0 - beta1) * (g - first), (1.0 - beta2) * (g * g - second)
    root = (1.0 - beta2 ** t.double()).sqrt()  # powers near one need float64, here as elsewhere
    scaled = (step.double() * root / (1.0 - beta1 ** t.double())).float()
    return -scaled * (first + dm) / ((second + dv).sqrt() + (ADAM_EPS * root).float()), dm, dv


def _whole(rule: str, moved: list[Trained], grads: list[torch.Tensor], step: torch.Tensor, betas: Betas) -> None:
    """Update whole parameters."""
    weights, first = [one.weights for one in moved], [one.first for one in moved]
    if rule == "adam":
        counts = [one.counts for one in moved]
        torch._foreach_add_(counts, 1.0)
        torch._fused_adam_(
            weights, grads, first, [one.second for one in moved], [], counts, lr=step, beta1=betas[0], beta2=betas[1],
            weight_decay=0.0, eps=ADAM_EPS, amsgrad=False, maximize=False,
        )  # fmt: skip
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
            weights, grads, first if beta else [], weight_decay=0.0, momentum=beta, lr=step, dampening=0.0,
            nesterov=False, maximize=False, is_first_step=False,
        )  # fmt: skip


def _rows(
    rule: str, one: Trained, indices: torch.Tensor, values: torch.Tensor, step: torch.Tensor, betas: Betas
) -> None:
    """Update the rows of a parameter at ``indices`` (nnz,) by gradients ``values`` (nnz, dim)."""
    dim = one.place.dim
    table = one.weights.view(-1, dim) if dim else one.weights
    if rule == "sgd":
        table.index_add_(0, indices, values * -step)
        return
    if rule == "adam":
        one.counts.add_(1.0)
    if not len(indices) or not dim:
        return
    named, sums, used = coalesced(indices, values)
    states = [part.view(-1, dim) if part.numel() else part for part in (one.first, one.second)]
    first, second = (state.index_select(0, named) if state.numel() else state for state in states)
    found = changes(rule, sums, first, second, one.counts, step, betas)
    for array, change in zip((table, *states), found):
        if change is not None:
            array.index_add_(0, named, change * used)


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
