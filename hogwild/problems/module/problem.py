"""Any ``torch.nn.Module``: minibatches claimed one by one, gradients by torch, updates by a kernel, without a lock.

    parameters <- parameters - step * rule(gradient of the minibatch's mean loss)

Workers claim minibatches: ``batch`` rows of the epoch's permutation, as from a shuffling DataLoader, and fewer only at
the end. A claim is one atomic addition, so a worker that is killed loses one minibatch, and an epoch resumes at a
minibatch. A step is Python around torch, about 150 microseconds for a small network; that is why processes are the
recommended host (see ``training.py``).

The hogwild pattern in torch's own examples has an optimiser per process on ``model.share_memory()``. Noise (dropout)
comes from torch's generator, seeded for each minibatch with (seed, epoch, minibatch), whichever worker does it: one
worker's run can be stopped anywhere and resumes to the same bits. The threads of a process share that generator, so
with several threads the noise is not reproducible.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from hogwild.data.order import Order
from hogwild.errors import TrainingError, describe
from hogwild.kernels.control import ABORT, cells, count
from hogwild.kernels.locks import acquire, release
from hogwild.kernels.order import generator
from hogwild.kernels.steps import step_after
from hogwild.problems.module import kernel as modules
from hogwild.problems.module.feed import Feed, feed_of
from hogwild.problems.module.layout import Layout, Place
from hogwild.problems.module.replica import ModuleReplica, Update
from hogwild.problems.protocol import OrderSlice, Problem, Shared
from hogwild.training.schedule import Step

SEEDS = (1 << 63) - 1
#: Folders of files that a message about a mistake should not name.
NOT_THE_USERS = (os.path.dirname(torch.__file__), str(Path(__file__).resolve().parents[2]))
describe_users = partial(describe, libraries=NOT_THE_USERS)


class Parameters(NamedTuple):
    """The flat array itself, laid out as in ``layout.py``; a replica that trades has its own array of parameters."""

    flat: np.ndarray
    slots: np.ndarray  # array that ends with the workers' slots


@dataclass(frozen=True)
class ModuleProblem(Problem):
    """Everything a worker must know besides the arrays. See ``protocol.Problem`` for the methods."""

    discipline: str
    layout: Layout
    program: bytes  # see layout.pack
    betas: tuple[float, float]
    threads: int = 1  # torch's threads when no worker runs

    @property
    def size(self) -> int:
        return self.layout.size

    @property
    def trained(self) -> int:
        """Number of parameters; behind them stand the optimiser's state and the buffers."""
        return self.layout.parameters_size

    def parameters(self, flat: np.ndarray) -> Parameters:
        return Parameters(flat, flat)

    def replica(self, w: np.ndarray, flat: np.ndarray) -> Parameters:
        return Parameters(w, flat)

    def data(self, arrays: Mapping[str, np.ndarray]) -> Feed:
        """Function that assembles minibatches."""
        return feed_of(arrays)

    def scratch(self, order: Order, *_: Any) -> list[ModuleReplica]:
        """An empty list: the worker puts its replica here once it knows the replica's array."""
        return []

    def prepare(
        self, shared: Shared, scratch: list[ModuleReplica], data: Feed, part: OrderSlice, step: Step
    ) -> Callable[[], int]:
        return partial(self._turn, shared, scratch, data, part, step)

    def _turn(self, shared: Shared, scratch: list[ModuleReplica], data: Feed, part: OrderSlice, step: Step) -> int:
        random = torch.get_rng_state()
        torch.set_num_threads(1)
        try:
            return self._work(shared, scratch, data, part, step)
        except Exception as error:  # from the user's module, loss or data, on a later minibatch than the first
            raise TrainingError(describe_users(error)) from error
        finally:
            torch.set_num_threads(self.threads)
            torch.set_rng_state(random)

    def _work(self, shared: Shared, scratch: list[ModuleReplica], feed: Feed, part: OrderSlice, step: Step) -> int:
        order = part.order
        control = shared.control
        locked = self.discipline == "locked"
        done = 0
        own = shared.parameters
        if not scratch or scratch[0].flat is not own.flat:
            made = ModuleReplica(
                self.program, self.layout, own.flat, own.slots, part.worker, self.discipline == "atomic"
            )
            scratch[:] = [made]
        replica = scratch[0]
        replica.enter()
        beta1, beta2 = (np.float32(beta) for beta in self.betas)
        while done < part.limit and (chunk := modules.claim(control, order.n_chunks)) >= 0:
            first = chunk * order.chunk
            chosen = part.blocks[first : first + order.chunk]
            batch = feed(chosen)
            numbers = step_after(step, part.epoch * order.n_rows + first), beta1, beta2
            torch.default_generator.manual_seed(int(generator(part.seed, part.epoch, chunk)) & SEEDS)
            if locked and not acquire(shared.locks, 0, control, ABORT):
                return done
            grads = replica.gradients(batch.inputs, batch.target)
            replica.land(grads, numbers)
            if locked:
                release(shared.locks, 0)
            count(control, part.worker, len(chosen), batch.nonzeros)
            done += len(chosen)
        if done:
            replica.leave()
        return done

    def compile(self, *_: Any) -> None:
        """Compile the kernels, or load them from the disk cache, by updates of one parameter at a step of zero."""
        layout = Layout((Place("", (1, 1), 0, True),), (), self.layout.rule, 1)
        flat, numbers = np.zeros(layout.size, np.float32), (np.float32(0),) * 3
        (part,) = layout.trained(flat, layout.slot(flat, 0))
        for gradient in (torch.zeros(1, 1), torch.zeros(1, 1).to_sparse(1)):
            Update(part, self.layout.rule, self.discipline == "atomic")(gradient, numbers)
        control, locks = np.zeros(cells(1), np.int64), np.zeros(1, np.int32)
        modules.claim(control, 0)
        count(control, 0, 0, 0)
        acquire(locks, 0, control, ABORT)
        release(locks, 0)
        generator(0, 0, 0)
