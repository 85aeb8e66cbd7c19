"""Updates of a module's parameters by torch: the rules of ``kernels/modules.py``, on whichever device they lie.

The decision that matters: dense gradients of all parameters land together, by the kernels behind torch's fused
optimisers, which read the step from the device and each weight just before they write it. A step has dozens of small
launches, and these are one or two of them; what comes between a replica's reading and its writing is a few cycles.
(There is no such kernel for adagrad on a GPU: it takes six launches.)

Rows of a sparse gradient that are the same are added up first, except under sgd, in tables of a size that is known
without looking at the data: so it can be captured, and nothing waits. What a rule adds to a row it adds atomically.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from hogwild.kernels import modules
from hogwild.problems.module_layout import Layout, Place

ADAGRAD_EPS, ADAM_EPS = float(modules.ADAGRAD_EPS), float(modules.ADAM_EPS)
Betas = tuple[float, float]


class Trained(NamedTuple):
    """One trained parameter and what its rule keeps, as views of the flat array."""

    place: Place
    weights: torch.Tensor  # (size,)
    first: torch.Tensor  # (size,) or no elements
    second: torch.Tensor
    counts: torch.Tensor  # (1,) or no elements


def trained_of(layout: Layout, flat: torch.Tensor, worker: int) -> list[Trained]:
    """The trained parameters in turn, with the optimiser's state that this worker has."""
    places = [place for place in layout.places if place.trained]
    array: Any = flat  # slices of it are all that is taken
    states = layout.states(array, worker)
    return [Trained(place, flat[place.begin : place.end], *state) for place, state in zip(places, states)]


def as_kernels(betas: Betas) -> Betas:
    """The betas as the CPU's kernels have them: rounded to float32."""
    return float(np.float32(betas[0])), float(np.float32(betas[1]))


def land(
    rule: str, trained: Sequence[Trained], grads: Sequence[torch.Tensor | None], step: torch.Tensor, betas: Betas
) -> None:
    """Move the parameters that have a gradient; ``step`` is on the device and has no dimensions."""
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
    """A gradient in memory like its weights', element by element, for the fused kernels compare strides.

    Those of a sum's gradient are 0, and for torch a single element is contiguous with any.
    """
    return grad.reshape(()).view(1) if grad.numel() == 1 else grad.reshape(-1).contiguous()


def changes(
    rule: str, g: torch.Tensor, first: torch.Tensor, second: torch.Tensor, t: torch.Tensor, step: torch.Tensor,
    betas: Betas,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:  # fmt: skip
    """What an update by ``g`` adds to the weights and to both parts of the state; ``t`` counts it already."""
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
    root = (1.0 - beta2 ** t.double()).sqrt()  # of powers near one: in float64, as everywhere
    scaled = (step.double() * root / (1.0 - beta1 ** t.double())).float()
    return -scaled * (first + dm) / ((second + dv).sqrt() + (ADAM_EPS * root).float()), dm, dv


def _whole(rule: str, moved: list[Trained], grads: list[torch.Tensor], step: torch.Tensor, betas: Betas) -> None:
    """Whole parameters."""
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
        # not in place: gradients of two parameters may be the same memory
        torch._foreach_addcdiv_(weights, torch._foreach_mul(grads, step), roots, -1.0)
    else:
        beta = betas[0] if rule == "momentum" else 0.0
        if rule == "momentum" and beta == 0.0:  # which torch does not call momentum
            torch._foreach_copy_(first, grads)
        torch._fused_sgd_(
            weights, grads, first if beta else [], weight_decay=0.0, momentum=beta, lr=step, dampening=0.0,
            nesterov=False, maximize=False, is_first_step=False,
        )  # fmt: skip


def _rows(
    rule: str, one: Trained, indices: torch.Tensor, values: torch.Tensor, step: torch.Tensor, betas: Betas
) -> None:
    """The rows of a parameter that ``indices`` (nnz,) name, by gradients ``values`` (nnz, dim)."""
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
    """Rows without their duplicates, of the same number all the same: (row, sum of its values, 1 or, unused, 0)."""
    ordered, order = indices.sort()
    new = torch.ones_like(ordered)
    new[1:] = ordered[1:] != ordered[:-1]
    slot = new.cumsum(0) - 1
    named = ordered[:1].repeat(len(ordered)).scatter_(0, slot, ordered)  # unused ones name the first row, and add 0
    sums = torch.zeros_like(values).index_add_(0, slot, values.index_select(0, order))
    used = (torch.arange(len(ordered), device=ordered.device) <= slot[-1:]).to(values.dtype).unsqueeze(1)
    return named, sums, used
