"""A module posed on examples: its layout, a trial minibatch, evaluation by torch, and the model of a run.

The first minibatch is run forward and back in this process, on a copy, so that a mistake in the module, the loss or the
data shows in one line before a worker is started. The user's module is never touched: the trained one is in
``run.model``, whose ``into(module)`` copies the state to it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from hogwild.config import TrainConfig
from hogwild.data.order import Order
from hogwild.data.rows.container import readonly
from hogwild.errors import InputError, UsageError
from hogwild.exchanges import make_exchange
from hogwild.hosts.job import Job
from hogwild.problems.module.feed import Examples, Feed, feed_of
from hogwild.problems.module.layout import Layout, pack, unpack
from hogwild.problems.module.model import ModuleModel
from hogwild.problems.module.problem import ModuleProblem, describe_users
from hogwild.problems.module.replica import BoundModule
from hogwild.problems.protocol import Case, with_discipline
from hogwild.training.checkpoint import fingerprint_of


def _like(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The output without a last dimension of 1, if the target has none."""
    return output.squeeze(-1) if output.dim() == target.dim() + 1 and output.shape[-1] == 1 else output


def mse(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return functional.mse_loss(_like(output, target), target.to(output.dtype))


def bce(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return functional.binary_cross_entropy_with_logits(_like(output, target), target.to(output.dtype))


LOSSES: dict[str, Callable[..., torch.Tensor]] = {"cross-entropy": functional.cross_entropy, "mse": mse, "bce": bce}
#: Default steps.
STEPS = {"sgd": 0.1, "momentum": 0.01, "adagrad": 0.01, "adam": 1e-3}
BETAS = (0.9, 0.999)  # decays of adam's mean gradient and mean square
EVALUATED = 1024  # examples at a time
TRIED = 64  # most examples, before training


@dataclass(frozen=True)
class Posed:
    """A module with its loss and its training examples."""

    model: nn.Module
    loss: Callable[..., torch.Tensor]
    examples: Examples
    loss_name: str  # one of ``LOSSES``, or "custom"

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def store(self) -> Any:
        return self.examples.store

    def select(self, ids: np.ndarray) -> Posed:
        """The same module with the examples ``ids``."""
        return dataclasses.replace(self, examples=self.examples.select(ids))


class ModuleCase(Case):
    """See :class:`hogwild.problems.protocol.Case`."""

    names = ("parameters", "buffers")

    def __init__(self, config: TrainConfig, train: Posed, test: Examples | None) -> None:
        self.n = len(train)
        if not self.n:
            raise InputError("the data have no examples")
        self.config = c = with_discipline(config)
        self._examples, self._test = train.examples, test
        self.layout = layout = Layout.of(train.model, c.optimizer or "", c.workers or 1)
        self._initial = np.zeros(layout.size, np.float32)
        for view, parameter in zip(layout.views(self._initial), train.model.parameters()):
            view.copy_(parameter.detach())
        for worker in range(layout.workers):
            layout.read_buffers(train.model, layout.slot_buffers(layout.slot(self._initial, worker)))
        self.problem = ModuleProblem(
            c.discipline,
            layout,
            pack(train.model, train.loss),
            (c.momentum or 0.0, 0.0) if c.optimizer == "momentum" else BETAS,
            threads=torch.get_num_threads(),
        )
        self._batch = min(c.batch or 1, self.n)
        self.order: Any = Order(self.n, 1, c.order == "shuffled", self._batch)
        self._feed = self._feed_of(train.examples)
        self._try()
        parts = [f"{place.name}{place.shape}{place.trained}".encode() for place in layout.places]
        parts += [f"{one.shape}{one.kind}".encode() for one in layout.buffers]  # whose bytes are read as they lie
        names = [np.frombuffer(part, np.uint8) for part in parts]
        self.fingerprint = fingerprint_of((self.n, *map(len, parts)), names + train.examples.sample_arrays())

    @staticmethod
    def take(data: Any) -> Posed:
        if not isinstance(data, Posed):
            raise UsageError("problem 'module' is trained by hogwild.train_module(model, loss, data)")
        return data

    def _feed_of(self, examples: Examples) -> Feed:
        arrays, _ = examples.lay_out(shared=False)
        kept = {name: readonly(array) for name, array in arrays.items()}
        return feed_of(kept)

    def _try(self) -> None:
        """Run a minibatch forward and back."""
        batch = self._feed(np.arange(min(self._batch, TRIED, self.n), dtype=np.int32))
        try:
            with torch.random.fork_rng(devices=[]):
                initial = self._initial.copy()
                replica = BoundModule(self.problem.program, self.layout, initial, initial, 0)
                replica.enter()
                replica.gradients(batch.inputs, batch.target)
        except Exception as error:
            problem = describe_users(error)
            raise InputError(f"the model fails on the first {len(batch.target)} examples: {problem}") from error

    def cut(self) -> dict[str, Any]:
        return {"batch": self._batch}

    def recut(self, saved: dict[str, Any]) -> None:
        self._batch = saved["batch"]
        self.order = dataclasses.replace(self.order, blocks=self._batch)

    def make_evaluator(self, like: Any = None) -> None:
        self._flat = np.zeros(self.layout.size, np.float32)
        self._judge, self._loss = unpack(self.problem.program, self.layout, self._flat)
        self._judge.eval()
        self._test_feed = None
        if self._test is not None:
            if not len(self._test):
                raise InputError("the test data have no examples")
            self._test_feed = self._feed_of(self._test)
            self._measure("test", self._test_feed, min(len(self._test), TRIED))

    def lay_out(self, shared: bool) -> Job:
        c = self.config
        arrays, mapped = self._examples.lay_out(shared)
        batch = self._batch
        if c.device == "cuda":
            from hogwild.cuda import streams as on_device

            job = on_device.lay_out(c, self.problem, self.n, arrays, batch=batch)
        else:
            exchange = make_exchange(c.between_workers, self.n / c.replicas)
            work = (self.problem, self.order, c.seed, c.workers or 1)
            job = Job.of(*work, arrays, shared, mapped, exchange=exchange)
        job.flat[:], self._initial = self._initial, self._initial[:0]
        return job

    def search_step(self) -> Callable[[], Any]:
        return lambda: (STEPS[self.config.optimizer or ""], {})

    def solution(self, flat: np.ndarray) -> tuple[np.ndarray, ...]:
        return flat[: self.layout.parameters_size].copy(), self.layout.model_buffers(flat)

    def evaluate(self, solution: tuple[Any, ...]) -> dict[str, float | None]:
        parameters, buffers = solution
        self._flat[: len(parameters)] = parameters
        self.layout.write_buffers(self._judge, buffers)
        metrics = self._measure("train", self._feed, self.n)
        row = {"objective": metrics["train_loss"], **metrics}
        if self._test_feed is not None:
            row |= self._measure("test", self._test_feed, len(self._test or ()))
        return row

    def _measure(self, name: str, feed: Feed, n: int) -> dict[str, float | None]:
        """Mean loss, and accuracy or root mean squared error if they make sense, summed in float64."""
        total = 0.0
        summed = 0.0
        seen = 0
        kind = ""
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            for first in range(0, n, EVALUATED):
                chosen = np.arange(first, min(first + EVALUATED, n), dtype=np.int32)
                try:
                    batch = feed(chosen)
                    output = self._judge(*batch.inputs)
                    total += float(self._loss(output, batch.target)) * len(chosen)
                except Exception as error:
                    where = f"the model fails on {name} examples {first} to {first + len(chosen) - 1}"
                    raise InputError(f"{where}: {describe_users(error)}") from error
                kind, value = measured(output, batch.target, self.config.loss)
                summed += value
                seen += batch.target.numel()
        metrics: dict[str, float | None] = {f"{name}_loss": total / n}
        if kind == "accuracy":
            metrics[f"{name}_accuracy"] = summed / max(seen, 1)
        if kind == "rmse" and name == "test":
            metrics["test_rmse"] = float(np.sqrt(summed / max(seen, 1)))
        return metrics

    def speed(self, updates: int, nonzeros: int, seconds: float) -> dict[str, float | None]:
        return {"samples_per_second": updates / seconds if seconds else None}

    def model(
        self, solution: tuple[np.ndarray, ...], config: TrainConfig, history: list[dict[str, Any]]
    ) -> ModuleModel:
        flat = np.zeros(self.layout.size, np.float32)
        flat[: self.layout.parameters_size] = solution[0]
        module, _ = unpack(self.problem.program, self.layout, flat)
        self.layout.write_buffers(module, solution[1])
        facts = {"config": config.to_json(), "fingerprint": self.fingerprint, "history": history}
        return ModuleModel.of(module.eval(), **facts)


def measured(output: Any, target: torch.Tensor, loss: str) -> tuple[str, float]:
    """The metric of an output and its sum: right ones for classes ("accuracy"), squared errors for real targets of the
    output's shape ("rmse"), else none ("").
    """
    if not isinstance(output, torch.Tensor):
        return "", 0.0
    if not target.is_floating_point():
        classes = output.dim() == target.dim() + 1 and output.shape[1] > 1
        return ("accuracy", float((output.argmax(dim=1) == target).sum())) if classes else ("", 0.0)
    output = _like(output, target)
    if output.shape != target.shape:
        return "", 0.0
    if loss == "bce":
        return "accuracy", float(((output > 0) == (target > 0.5)).sum())
    return "rmse", float((output.double() - target.double()).square().sum())
