"""A replica's module on the device: its parameters are views of the one flat array there, all else is private.

A parameter gets its piece of the array by ``.data``, which starts a version counter of its own: autograd then never
takes another replica's update for an error. Gradients are requested by ``torch.autograd.grad``, so no thread
accumulates them on another stream.

Buffers (batch norm's) are not views: most dtypes other than float32 lie in the array as sums of two numbers. They are
copied from it when a segment begins and back when it ends.
"""

from __future__ import annotations

import functools
import io
import pickle
from typing import Any

import torch
from torch import nn

from hogwild.cuda.module import rules as module_rules
from hogwild.problems.module.layout import Layout
from hogwild.problems.module.problem import ModuleProblem


class _Unpacker(pickle.Unpickler):
    """Replaces parameters by views of the array, and moves every other packed tensor to a device."""

    def __init__(self, program: bytes, parameters: list[nn.Parameter], device: torch.device) -> None:
        super().__init__(io.BytesIO(program))
        self._parameters, self._device = parameters, device

    def persistent_load(self, number: int) -> nn.Parameter:
        return self._parameters[number]

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch.storage", "_load_from_bytes"):
            return functools.partial(_load, device=self._device)
        return super().find_class(module, name)


def _load(data: bytes, device: torch.device) -> Any:
    """Load a tensor's storage as torch pickles it."""
    return torch.load(io.BytesIO(data), map_location=device, weights_only=False)


def unpack(program: bytes, layout: Layout, flat: torch.Tensor) -> tuple[nn.Module, Any]:
    """Like ``layout.unpack``, but for an array on a device, to which the model and the loss are moved."""
    views = [flat[place.begin : place.end].view(place.shape).data for place in layout.places]
    parameters = [nn.Parameter(view, place.trained) for view, place in zip(views, layout.places)]
    found, loss = _Unpacker(program, parameters, flat.device).load()
    if isinstance(found, nn.Module):
        return found, loss
    with torch.random.fork_rng(devices=[]):
        model: nn.Module = found()
    model.to(flat.device)
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor):  # a constant not registered as a buffer
                setattr(module, name, value.to(flat.device))
    for parameter, view, place in zip(model.parameters(), views, layout.places):
        parameter.data = view
        parameter.requires_grad_(place.trained)
    return model, loss


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
        self._buffers = Buffers(self.model, self.layout, self._slot)
        self.writes = [flat[: self.layout.size - self.layout.workers * self.layout.slot_size], self._slot]

    def enter(self) -> None:
        """Load this replica's state from the array."""
        self._buffers.enter()

    def leave(self) -> None:
        """Record the work done and the buffers' state in the array."""
        self._buffers.leave()
        self._slot[:1].fill_(1.0)

    def step(self, inputs: tuple[torch.Tensor, ...], target: torch.Tensor, step: torch.Tensor) -> None:
        """Process one minibatch: forward, backward, and the update."""
        with torch.enable_grad():
            loss = self.loss(self.model(*inputs), target)
            grads = torch.autograd.grad(loss, self._parameters, allow_unused=True)
        module_rules.land(self._rule, self._trained, grads, step, self._betas)
        self._buffers.settle()


class Buffers:
    """A model's buffers, in memory of their own; ``slot`` is their place in the flat array."""

    def __init__(self, model: nn.Module, layout: Layout, slot: Any) -> None:
        numbers: Any = layout.slot_buffers(slot)
        self._plain: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._pairs: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []  # kept as sums of two numbers
        for buffer, place in zip(model.buffers(), layout.buffers):
            first, end = numbers[place.begin : place.begin + place.size].view(place.shape), place.begin + place.size
            if place.pair:
                self._pairs.append((buffer, first, numbers[end : end + place.size].view(place.shape)))
            else:
                self._plain.append((buffer, first))
        self._held = [
            (module, name, buffer)
            for module in model.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]

    def enter(self) -> None:
        """Copy the buffers from the array."""
        if self._plain:
            torch._foreach_copy_([buffer for buffer, _ in self._plain], [first for _, first in self._plain])
        for buffer, first, rest in self._pairs:
            buffer.copy_(first.double() + rest)

    def leave(self) -> None:
        """Copy the buffers into the array."""
        if self._plain:
            torch._foreach_copy_([first for _, first in self._plain], [buffer for buffer, _ in self._plain])
        for buffer, first, rest in self._pairs:
            wide = buffer.double()
            first.copy_(wide)
            rest.copy_(wide - first.double())

    def settle(self) -> None:
        """Copy tensors that a module has put in a buffer's place, instead of writing into it."""
        for module, name, buffer in self._held:
            now = module._buffers[name]
            if now is not buffer and now is not None:
                buffer.copy_(now.detach())
            module._buffers[name] = buffer
