"""A rival of replicas on streams: one captured step of plain torch over a stack of minibatches, by ``torch.func.vmap``.

All gradients are taken at the same parameters and added. There is one stream, and no race.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from hogwild.cuda.backend import Backend

LOSS = nn.functional.cross_entropy


class Stacked:
    """A side that trains ``model`` by SGD for an epoch of stacks of ``count`` minibatches of ``batch`` rows."""

    def __init__(
        self, model: nn.Module, X: np.ndarray, y: np.ndarray, count: int, batch: int, step: float, backend: Backend
    ) -> None:
        self._model, self._step, self._stream = model.to(backend.device), step, backend.stream()
        self._X, self._y = (torch.from_numpy(array).to(backend.device) for array in (X, y))
        self._shape = count, batch
        self._rows = torch.zeros(count * batch, dtype=torch.int64, device=backend.device)
        self._weights = {name: weight.detach() for name, weight in model.named_parameters()}
        self._gradients = vmap(grad(self._loss), in_dims=(None, 0, 0))
        before = {name: weight.clone() for name, weight in self._weights.items()}
        self._replay = self._stream.capture(self._next)
        self._stream.record().wait()
        for name, weight in self._weights.items():
            weight.copy_(before[name])

    def __call__(self) -> float:
        order = torch.randperm(len(self._y), device=self._rows.device)
        begin = time.perf_counter()
        for rows in order.split(len(self._rows)):
            self._stream.run(lambda rows=rows: self._rows.copy_(rows))  # type: ignore[misc]
            self._stream.run(self._replay)
        self._stream.record().wait()
        return time.perf_counter() - begin

    def facts(self) -> dict[str, Any]:
        """Return the mean loss, and the rows in flight."""
        with torch.no_grad():
            return {"loss": float(LOSS(self._model(self._X), self._y)), "in_flight": len(self._rows)}

    def close(self) -> None:
        """Give the stream back."""
        del self._replay
        self._stream.close()

    def _loss(self, weights: dict[str, torch.Tensor], inputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = LOSS(functional_call(self._model, weights, (inputs,)), target)
        return found

    def _next(self) -> None:
        inputs, target = (array.index_select(0, self._rows).unflatten(0, self._shape) for array in (self._X, self._y))
        for weight, gradient in zip(self._weights.values(), self._gradients(self._weights, inputs, target).values()):
            weight.sub_(self._step * gradient.sum(0))
