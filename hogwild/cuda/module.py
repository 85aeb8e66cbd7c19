"""Any ``torch.nn.Module`` on a device: replicas on streams that race on one flat array, with a CUDA graph per step.

A step is dozens of small kernels, which Python and torch launch at a fifth of the rate at which the device could run
them. So each replica's step is captured once and then replayed, on its own stream and in its own memory pool. Capturing
runs the step a few times without effect: what it writes, including the parameters, is copied before and restored after
it on the same stream, and the replica is not returned before the device has reached that point. A graph reads and
writes the addresses that it was captured with, so each minibatch is put into the same memory, and so is its step, by
the stream that then replays the graph.

A step that cannot be captured runs eagerly, of which a warning tells; so does a short minibatch. Noise
(dropout) comes from the device's own generator, which replays advance too: such runs are not reproducible, and before
torch 2.13, whose graphs share the generator's position, replicas may draw the same numbers.

A parameter gets its piece of the flat array by ``.data``, which starts a version counter of its own: autograd then
never takes another replica's update for an error. Gradients are requested by ``torch.autograd.grad``, so no thread
accumulates them on another stream. Buffers (batch norm's) are not views, since a module may replace them: they are
copied from the array when a segment begins and back when it ends.

The rules are those of ``problems/module/kernel.py``. Dense gradients of all parameters are applied together, by the
kernels behind torch's fused optimisers, which read the step from the device and each weight just before they write it:
only a few cycles pass between a replica's read and its write. (There is no such kernel for adagrad on a GPU: it takes
six launches.) The changes of the rows of a sparse gradient, under sgd, are added atomically.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from hogwild.cuda.backend import Backend, DeviceStream
from hogwild.cuda.streams import Launcher, Visits
from hogwild.errors import HogwildWarning, InputError
from hogwild.kernels.steps import step_after
from hogwild.problems.module import kernel as on_cpu
from hogwild.problems.module.layout import Trained
from hogwild.problems.module.problem import ModuleProblem, describe_users
from hogwild.problems.module.replica import BoundModule

ADAGRAD_EPS, ADAM_EPS = float(on_cpu.ADAGRAD_EPS), float(on_cpu.ADAM_EPS)

Betas = tuple[float, float]


class ModuleLauncher(Launcher):
    """See :class:`hogwild.cuda.streams.Launcher`.

    Parameters
    ----------
    batch : int
        Rows of a minibatch; at most the number of rows.
    """

    problem: ModuleProblem

    def __init__(
        self, problem: ModuleProblem, arrays: Mapping[str, np.ndarray], backend: Backend, *, batch: int
    ) -> None:
        super().__init__(problem, backend)
        self.granule = batch
        self.rows: torch.Tensor  # (n,) int32: the examples of an epoch, in visiting order
        if "begin" in arrays:
            raise InputError("device cuda: a module needs dense inputs there; got sparse rows: train on the CPU")
        self.data = self.upload({name: array for name, array in arrays.items() if name.startswith(("input", "target"))})
        self.captures = batch <= len(arrays["target"])
        # by a copy, which waits: other streams would not wait for zeros set on the default stream
        self.flat = torch.zeros(problem.size).to(backend.device)

    def room(self) -> int:
        return self.granule * self.problem.layout.workers

    def shuffle(self, epoch: Visits) -> None:
        if epoch.shuffled:
            self.rows = self.permutation(epoch.n, epoch.key)
        else:
            self.rows = torch.arange(epoch.n, device=self.backend.device, dtype=torch.int32)

    def replica(self, number: int, stream: DeviceStream, in_flight: int) -> Callable[[Visits], None]:
        """Return a function that runs a segment for one replica; makes its module and captures its step."""
        replica = DeviceReplica(self, number)
        stream.run(replica.begin)
        if self.captures:
            stream.run(replica.prepare)
            try:
                replica.replay = stream.capture(replica.step)
            except RuntimeError as error:
                self.captures = False
                reason = describe_users(error)
                message = f"the module's step cannot be captured as a CUDA graph, and runs eagerly: {reason}"
                warnings.warn(message, HogwildWarning, stacklevel=2)
            stream.run(replica.restore)
        stream.record().synchronize()
        return replica


class DeviceReplica:
    """Runs segments on one stream, by replaying one captured step if there is one."""

    def __init__(self, launcher: ModuleLauncher, worker: int) -> None:
        self._launcher = launcher
        self._worker = worker
        self.replay: Callable[[], None] | None = None
        self._parts: list[torch.Tensor] = []  # the minibatch that a graph reads
        self._before: list[tuple[torch.Tensor, torch.Tensor]] = []  # arrays that a step writes, and their copies

    def __call__(self, visits: Visits) -> None:
        launcher, batch = self._launcher, self._launcher.granule
        self._module.enter()
        for k, rows in enumerate(launcher.rows[visits.first : visits.first + visits.size].split(batch)):
            if k == 0 or visits.power:
                step = visits.scale, visits.since, visits.power
                self._step.fill_(float(step_after(step, visits.first + k * batch)))
            if self.replay is not None and len(rows) == batch:
                for array, part in zip(launcher.data.values(), self._parts):
                    torch.index_select(array, 0, rows, out=part)
                self.replay()
            else:
                self._run([array.index_select(0, rows) for array in launcher.data.values()])
        self._module.leave()

    def _run(self, parts: Sequence[torch.Tensor]) -> None:
        """Process one minibatch, inputs and target: forward, backward, and the update."""
        *inputs, target = parts
        grads = self._module.gradients(inputs, target)
        land(self._module.layout.rule, self._module.trained, grads, self._step, self._betas)
        # a module may put a tensor in the place of a buffer, instead of writing into it
        for module, name, buffer in self._replaceable:
            now = module._buffers[name]
            if now is not buffer and now is not None:
                buffer.copy_(now.detach())
            module._buffers[name] = buffer

    # ---- run on the stream beforehand

    def begin(self) -> None:
        """Make the module, whose memory all belongs to the stream."""
        problem, flat = self._launcher.problem, self._launcher.flat
        first, second = problem.betas
        self._betas = float(np.float32(first)), float(np.float32(second))  # rounded as in the CPU's kernels
        self._module = BoundModule(problem.program, problem.layout, flat, flat, self._worker)
        modules = self._module.model.modules()
        self._replaceable = [
            (module, *pair) for module in modules for pair in module._buffers.items() if pair[1] is not None
        ]
        self._step = torch.zeros((), device=flat.device)

    def prepare(self) -> None:
        """Fill the memory that a graph reads with a minibatch, and copy what the step will write."""
        self._parts = [array[: self._launcher.granule].clone() for array in self._launcher.data.values()]
        shared = self._module.flat[: self._module.layout.parameters_size]
        self._before = [(array, array.clone()) for array in (shared, self._module.slot)]
        self._module.enter()

    def step(self) -> None:
        """Run one step on the minibatch in the graph's memory."""
        self._run(self._parts)

    def restore(self) -> None:
        """Restore what the step has written."""
        for array, before in self._before:
            array.copy_(before)
        self._before = []


def land(
    rule: str, trained: Sequence[Trained], grads: Sequence[torch.Tensor | None], step: torch.Tensor, betas: Betas
) -> None:
    """Update the parameters that have a gradient; ``step`` is a scalar tensor on the device."""
    moved, dense = [], []
    pairs = [(one, grad) for one, grad in zip(trained, grads) if grad is not None]
    if rule == "adam" and pairs:
        torch._foreach_add_([one.counts for one, _ in pairs], 1.0)
    for one, grad in pairs:
        if grad.layout == torch.sparse_coo and grad.sparse_dim() == 1:
            if rule != "sgd":
                raise InputError(f"device cuda: sparse gradients need optimizer sgd; got {rule}: make them dense")
            if one.place.size:
                values = grad._values().reshape(-1, one.place.dim)
                one.weights.view(-1, one.place.dim).index_add_(0, grad._indices()[0], values * -step)
        elif one.place.size:
            grad = grad if grad.layout == torch.strided else grad.to_dense()
            moved.append(one)
            # the fused kernels compare strides: the gradient of a sum has strides 0, and torch considers a single
            # element contiguous with any stride
            dense.append(grad.reshape(()).view(1) if grad.numel() == 1 else grad.reshape(-1).contiguous())
    if moved:
        update(rule, moved, dense, step, betas)


def update(rule: str, moved: list[Trained], grads: list[torch.Tensor], step: torch.Tensor, betas: Betas) -> None:
    """Update whole parameters."""
    weights, first = [one.weights for one in moved], [one.first for one in moved]
    usual: Any = {"lr": step, "weight_decay": 0.0, "maximize": False}
    if rule == "adam":
        second, counts = [one.second for one in moved], [one.counts for one in moved]
        usual |= {"beta1": betas[0], "beta2": betas[1], "eps": ADAM_EPS, "amsgrad": False}
        torch._fused_adam_(weights, grads, first, second, [], counts, **usual)
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
        usual |= {"momentum": beta, "dampening": 0.0, "nesterov": False, "is_first_step": False}
        torch._fused_sgd_(weights, grads, first if beta else [], **usual)
