"""Any ``torch.nn.Module`` on a device: replicas on streams that race on one flat array, with a CUDA graph per step.

A step is dozens of small kernels, which Python and torch launch at a fifth of the rate at which the device could run
them. So each replica's step is captured once and then replayed, on its own stream and in its own memory pool. A graph
reads fixed memory only: the same stream puts minibatches there, several at a time, and a number in the device's memory
selects the next. So a minibatch costs one launch, whether data stay on the device or come part by part. The step size
lies there too.

Capturing runs the step a few times without effect: what it writes, including the parameters, is copied before and
restored after it on the same stream, and the replica is not returned before the device has reached that point.

A short minibatch runs without a graph, and so does everything that cannot be captured, after one warning with the
reason. Noise (dropout) comes from the device's own generator, which replays advance too: such runs are not
reproducible, and with older versions of torch, whose graphs share the generator's position, two replicas may draw the
same numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from hogwild.cuda.backend import Backend, DeviceStream
from hogwild.cuda.module import stack as module_stack
from hogwild.cuda.module.feed import DeviceArrayFeed, DeviceSparseFeed, exact, filled
from hogwild.cuda.module.replica import DeviceReplica
from hogwild.cuda.module.stack import Stack
from hogwild.cuda.module.steps import DeviceSteps
from hogwild.cuda.work import Segment
from hogwild.errors import HogwildWarning, UsageError, expected_one_of
from hogwild.methods import LAUNCHES
from hogwild.problems.module.layout import unpack
from hogwild.problems.module.problem import ModuleProblem, describe

MORE = 8  # entries of weight zero in the trial
TRIED = 64  # rows of the trial on the CPU


class ModuleLauncher:
    """See :class:`hogwild.cuda.work.Launcher`.

    Parameters
    ----------
    batch : int
        Rows of a minibatch; at most the number of rows.
    launch : str
        "graphs"; "eager", each kernel by itself; or "vmap", a captured stack (see ``stack.py``) of a minibatch for
        each worker of the problem's layout, on one stream: then ``streams`` is 1, and only replica 0 exists.

    Raises
    ------
    UsageError
        If the data, or a module under "vmap", cannot be trained on a device, with the reason.
    """

    block = 1  # neighbouring examples would not make a random minibatch

    def __init__(
        self, problem: ModuleProblem, arrays: Mapping[str, np.ndarray], backend: Backend, replicas: int, *, batch: int,
        launch: str = "graphs",
    ) -> None:  # fmt: skip
        if launch not in LAUNCHES:
            raise UsageError(f"launch={launch!r}: {expected_one_of(LAUNCHES, launch)}")
        if problem.kind == "items":
            raise UsageError(
                "device cuda: a Dataset is fetched item by item, on the CPU: give tensors or arrays (X, y), or Rows"
            )
        self._problem, self._backend, self._batch, self._stacked = problem, backend, batch, launch == "vmap"
        self.streams = 1 if self._stacked else replicas  # number of replicas
        self._feed: Any = DeviceSparseFeed(arrays, batch) if problem.kind == "sparse" else DeviceArrayFeed(arrays)
        self._n, self._graphs = len(arrays["target"]), launch != "eager"
        if self._stacked:
            module_stack.check(problem)
            self._try_stack()
        if problem.kind == "sparse":
            self._try_filling()
        # by a copy, which waits: other streams would not wait for zeros set on the default stream
        self.flat = torch.zeros(problem.size).to(backend.device)

    def part(self, first: int, last: int) -> dict[str, np.ndarray]:
        """The host's arrays of examples ``first`` to ``last`` (exclusive)."""
        found: dict[str, np.ndarray] = self._feed.part(first, last)
        return found

    def bytes_of(self, first: int, last: int) -> int:
        """Bytes that :meth:`part` would have."""
        return int(self._feed.bytes_of(first, last))

    def granule(self) -> int:
        """Rows of a minibatch; for a stack, of one for each of its workers."""
        return self._batch * (self._problem.layout.workers if self._stacked else 1)

    def room(self) -> int:
        """A minibatch for each replica."""
        return self.granule() * self.streams

    def in_flight(self, step: float) -> int:
        """A minibatch for each replica, whatever the step: the curvature of a module is unknown."""
        return self.room()

    def replica(self, number: int, stream: DeviceStream, in_flight: int) -> Callable[[Segment], None]:
        """Return a function that runs a segment for one replica; makes its module and captures its step."""
        if number >= self.streams:
            raise UsageError(f"launch='vmap' runs all its workers on one stream, got stream {number}")
        steps = DeviceSteps(self._make, number, self._feed, self._backend)
        stream.run(steps.begin)
        if self._graphs and self.granule() <= self._n:
            try:
                stream.run(steps.prepare)
                steps.replay = stream.capture(steps.next)
            except RuntimeError as error:
                self._give_up(describe(error))
            finally:
                stream.run(steps.restore)
        stream.record().wait()
        return steps

    def _make(self, number: int) -> DeviceReplica | Stack:
        if self._stacked:
            return Stack(self._problem, self.flat, self._batch)
        return DeviceReplica(self._problem, self.flat, number, self._batch)

    def _give_up(self, why: str) -> None:
        """Use no graphs from now on."""
        if self._graphs:
            self._graphs = False
            what = f"the module's steps are not captured as CUDA graphs, and will run several times slower: {why}"
            warnings.warn(what, HogwildWarning, stacklevel=3)

    def _try_filling(self) -> None:
        """Pad minibatches with entries of weight zero, if possible and harmless to the module."""
        feed = self._feed
        if feed.uneven:
            why = f"up to {feed.room} entries in a minibatch are many times the usual number"
        elif self._problem.layout.rule != "sgd" and feed.empties >= self._batch:
            why = "whole minibatches of rows may have no entries"
        elif not self._same_when_filled():
            why = "entries of weight zero (per_sample_weights) make a difference to the module"
        else:
            return
        feed.room = None
        self._give_up(why)

    def _same_when_filled(self) -> bool:
        """Whether gradients are unchanged by padding, tested on the CPU on rows with entries and random parameters."""
        data = as_tensors(self._feed.select(self._feed.longest[:TRIED]))
        rows = torch.arange(len(data["target"]))
        without = exact(data, rows)
        with_some = [part[0] for part in filled(data, rows[None], len(without[0]) + MORE)]
        found: list[Any] = []
        for parts in (without, with_some):
            try:
                found.append(self._gradients(parts))
            except Exception:  # from the user's module; if both fail, it shows as soon as training begins
                found.append(None)
        if found[0] is None or found[1] is None:
            return found[0] is None
        return all(_alike(one, other) for one, other in zip(*found))

    def _gradients(self, parts: list[torch.Tensor]) -> tuple[torch.Tensor | None, ...]:
        layout, flat = self._problem.layout, np.zeros(self._problem.size, np.float32)
        flat[: layout.parameters_size] = np.random.default_rng(0).normal(scale=0.1, size=layout.parameters_size)
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.manual_seed(0)
            model, loss = unpack(self._problem.program, layout, flat)
            wanted = [parameter for parameter in model.parameters() if parameter.requires_grad]
            inputs, target = self._feed.given(parts)
            return torch.autograd.grad(loss(model.train()(*inputs), target), wanted, allow_unused=True)

    def _try_stack(self) -> None:
        """Run a stack of two small minibatches on the CPU as a trial."""
        size = min(self._batch, TRIED)
        height = min(max(self._n // size, 1), 2, self._problem.layout.workers)
        data = as_tensors(self.part(0, min(size * height, self._n)))
        try:
            with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch will repeat its performance warnings
                stack = Stack(self._problem, torch.zeros(self._problem.size), size)
                inputs, target = self._feed.one(data, torch.arange(len(data["target"])), False)
                stack.step(inputs, target, torch.zeros(()))
        except Exception as error:
            raise UsageError(
                f"launch='vmap': torch.func.vmap cannot run this module ({describe(error)}): choose launch='graphs' or "
                "'eager'"
            ) from error


def as_tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Copy arrays to CPU tensors."""
    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def _alike(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None or one.layout != other.layout:
        return one is other
    if one.layout != torch.strided:
        a, b = one.coalesce(), other.coalesce()
        return torch.equal(a.indices(), b.indices()) and _alike(a.values(), b.values())
    size = float(one.abs().max()) if one.numel() else 0.0
    return torch.allclose(one, other, rtol=1e-3, atol=1e-5 * size)
