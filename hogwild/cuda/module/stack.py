"""All replicas as one stacked computation: ``vmap`` over a minibatch each, from the same parameters, updates summed.

It is the alternative to replicas on streams: one stream, as few launches as for one replica, each over all
minibatches, and no race. The costs: every gradient of a stack is as old as all others', and only models that
``torch.func`` can transform work, without buffers and sparse gradients. With a stateful optimiser each replica has its
own state, and the updates that all would make from the same parameters are summed.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.func import functional_call, grad, vmap

from hogwild.cuda.module import rules as module_rules
from hogwild.cuda.module.replica import unpack
from hogwild.errors import UsageError
from hogwild.problems.module.problem import ModuleProblem


class Stack:
    """Like ``replica.Replica``, for up to one minibatch of ``batch`` rows for each worker of the layout."""

    def __init__(self, problem: ModuleProblem, flat: torch.Tensor, batch: int) -> None:
        self.layout = layout = problem.layout
        self.rows, self._batch, self._n = batch * layout.workers, batch, layout.workers
        self._rule, self._betas = layout.rule, module_rules.as_kernels(problem.betas)
        self.model, self.loss = unpack(problem.program, layout, flat)
        self.model.train()
        named = dict(self.model.named_parameters())
        self._wanted = {name: parameter.detach() for name, parameter in named.items() if parameter.requires_grad}
        self._others = {name: parameter.detach() for name, parameter in named.items() if not parameter.requires_grad}
        self._slots = flat[layout.size - self._n * layout.slot_size :].view(self._n, layout.slot_size)
        self._trained = [self._across(one) for one in module_rules.trained_of(layout, flat, 0)]
        each = functools.partial(_loss_of, self.model, self.loss, self._others)  # a method would keep the stack alive
        self._each = vmap(grad(each), in_dims=(None, 0, 0), randomness="different")
        self.writes = [flat]

    def _across(self, one: module_rules.Trained) -> module_rules.Trained:
        """Extend a parameter to all workers' states, (workers, size)."""
        parts = []
        for part in (one.first, one.second, one.counts):
            begin = part.storage_offset() - self._slots.storage_offset()
            parts.append(self._slots[:, begin : begin + part.numel()] if part.numel() else part)
        return module_rules.Trained(one.place, one.weights, *parts)

    def next(self, left: int) -> int:
        """Number of rows, out of ``left``, that the next step takes: a short minibatch is a stack of its own."""
        return min(left // self._batch * self._batch or left, self.rows)

    def enter(self) -> None:
        """Do nothing: there are no buffers."""

    def leave(self) -> None:
        """Record the work done."""
        self._slots[:, :1].fill_(1.0)

    def step(self, inputs: tuple[torch.Tensor, ...], target: torch.Tensor, step: torch.Tensor) -> None:
        """Process a minibatch of every replica, from the same parameters."""
        height = max(len(target) // self._batch, 1)
        inputs, target = tuple(part.unflatten(0, (height, -1)) for part in inputs), target.unflatten(0, (height, -1))
        found = self._each(self._wanted, inputs, target)
        grads = [gradient.reshape(height, -1) for gradient in found.values()]
        if self._rule == "sgd":
            module_rules.land("sgd", self._trained, [gradient.sum(0) for gradient in grads], step, self._betas)
            return
        for one, gradient in zip(self._trained, grads):
            first, second, counts = (part[:height] for part in (one.first, one.second, one.counts))
            if self._rule == "adam":
                counts.add_(1.0)
            dw, dfirst, dsecond = module_rules.changes(self._rule, gradient, first, second, counts, step, self._betas)
            one.weights.add_(dw.sum(0))
            for state, change in ((first, dfirst), (second, dsecond)):
                if change is not None:
                    state.add_(change)


def _loss_of(
    model: Any, loss: Any, others: dict[str, Any], wanted: dict[str, Any], inputs: tuple[torch.Tensor, ...],
    target: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    found: torch.Tensor = loss(functional_call(model, wanted | others, inputs), target)
    return found


def check(problem: ModuleProblem) -> None:
    """Refuse what is known to be unstackable without a trial.

    Raises
    ------
    UsageError
        If it cannot be stacked, with the reason.
    """
    layout = problem.layout
    reasons = (
        (problem.kind == "sparse", "sparse rows have different numbers of entries"),
        (bool(layout.buffers), f"the buffers of the module ({', '.join(b.name for b in layout.buffers[:3])}) cannot"),
        (layout.shared_state, "state='shared' is for replicas that race"),
    )
    for applies, why in reasons:
        if applies:
            raise UsageError(f"launch='vmap' stacks minibatches: {why}; choose launch='graphs' or 'eager'")
