"""Any ``torch.nn.Module``: minibatches claimed one by one, gradients by torch, updates by a kernel, without a lock.

    parameters <- parameters - step * rule(gradient of the minibatch's mean loss)

The unit that workers claim is a minibatch: of ``batch`` rows of the epoch's permutation, as a DataLoader that shuffles
gives them, and never shorter but at the end. A claim is one atomic addition, so a worker that is killed loses one
minibatch, and an epoch resumes at one. A step is Python around torch, about 150 microseconds of a small network; that
is why processes are the host to take (see ``hogwild/module_training.py``).

The hogwild pattern of torch's own examples, an optimiser a process on ``model.share_memory()``, is the rival that
``bench/modules.py`` runs beside this. Noise (dropout) comes from torch's generator, set anew for each minibatch by
(seed, epoch, minibatch), whoever does it: one worker's run can be stopped anywhere and goes on to the same bits. The
threads of a process share that generator, so of several of them the noise is anybody's.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from hogwild.errors import TrainingError
from hogwild.kernels import modules
from hogwild.kernels.control import cells
from hogwild.kernels.cycles import spin
from hogwild.kernels.order import generator
from hogwild.problems.module_data import Feed, feed_of
from hogwild.problems.module_layout import Layout
from hogwild.problems.module_replica import Replica
from hogwild.problems.work import InChunks, OrderSlice, Shared

SEEDS = (1 << 63) - 1
#: Where files lie that a message about a mistake should not name.
NOT_THE_USERS = (os.path.dirname(torch.__file__), os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@dataclass(frozen=True)
class Minibatches:
    """The cut of ``n_rows`` rows into minibatches of ``batch`` rows, the last maybe shorter: a permutation of rows."""

    n_rows: int
    batch: int
    shuffled: bool
    block: int = 1  # rows that stay together: for ``InChunks.shuffle``

    @property
    def chunk(self) -> int:
        return self.batch

    @property
    def n_blocks(self) -> int:
        return self.n_rows

    @property
    def n_chunks(self) -> int:
        return -(-self.n_rows // self.batch)


class Parameters(NamedTuple):
    """The flat array itself: ``module_layout`` knows what lies where."""

    flat: np.ndarray


@dataclass(frozen=True)
class ModuleProblem(InChunks):
    """Everything a worker must know beside the arrays."""

    discipline: str
    layout: Layout
    program: bytes  # see module_layout.pack
    kind: str  # of examples, and their program: see module_data.feed_of
    items: bytes
    betas: tuple[float, float]
    bagged: bool = True  # whether module_bags may take over layers
    delay: int = 0  # ticks that a gradient costs extra, see kernels/cycles.py
    threads: int = 1  # of torch, where nobody works

    @property
    def size(self) -> int:
        """Length of the flat float32 array."""
        return self.layout.size

    @property
    def locks(self) -> int:
        """One, whether or not the discipline takes it."""
        return 1

    def parameters(self, flat: np.ndarray) -> Parameters:
        """The named view of the flat array."""
        return Parameters(flat)

    def per_feature(self, flat: np.ndarray) -> list[np.ndarray]:
        """No parts that tiers keep by rank."""
        return []

    def start(self, flat: np.ndarray, seed: int) -> None:
        """Nothing: the case copies the module's parameters there."""

    def data(self, arrays: Mapping[str, np.ndarray]) -> Feed:
        """What puts minibatches together."""
        return feed_of(self.kind, arrays, self.items)

    def scratch(self, order: Minibatches, tiers: int = 0) -> Replica:
        """A worker's own memory."""
        return Replica(self.program, self.layout, int(self.discipline == "atomic"), self.bagged)

    def work(
        self, shared: Shared, scratch: Replica, data: Feed, part: OrderSlice, step: tuple[float, float, float]
    ) -> None:
        """Run one worker until its share of the epoch is done or the stop flag is up; counts go to ``control``."""
        random = torch.get_rng_state()
        torch.set_num_threads(1)
        try:
            self._work(shared, scratch, data, part, step)
        except Exception as error:  # of the user's module, loss or data, on a later minibatch than the first
            raise TrainingError(describe(error)) from error
        finally:
            torch.set_num_threads(self.threads)
            torch.set_rng_state(random)

    def _work(
        self, shared: Shared, replica: Replica, feed: Feed, part: OrderSlice, step: tuple[float, float, float]
    ) -> None:
        order, control, locked, done = part.order, shared.control, self.discipline == "locked", 0
        replica.bind(shared.parameters.flat, part.worker)
        beta1, beta2 = (np.float32(beta) for beta in self.betas)
        while (chunk := modules.claim(control, order.n_chunks)) >= 0:
            first = chunk * order.batch
            chosen = part.blocks[first : first + order.batch]
            batch = feed(chosen)
            numbers = step_at(step, part.epoch * order.n_rows + first), beta1, beta2
            torch.default_generator.manual_seed(int(generator(part.seed, part.epoch, chunk)) & SEEDS)
            if locked and not modules.lock(shared.locks, control):
                return
            grads = replica.gradients(batch)
            if self.delay:
                spin(control, self.delay)
            replica.land(grads, numbers)
            if locked:
                modules.unlock(shared.locks)
            modules.count(control, part.worker, len(chosen), batch.nonzeros)
            done += 1
        if done:
            replica.leave()

    def prepare(
        self, shared: Shared, scratch: Replica, data: Feed, part: OrderSlice, step: tuple[float, float, float]
    ) -> Callable[[], Any]:
        """``work`` as a function of nothing."""
        return partial(self.work, shared, scratch, data, part, step)

    def compile(self) -> None:
        """Compile the kernels, or load them from the disk cache, by running them over nothing."""
        rule, atomic = modules.RULES[self.layout.rule], int(self.discipline == "atomic")
        none, some, one = np.zeros(1, np.float32), np.zeros(1, np.int64), np.float32(0)
        state = none[:0], none[:0], none
        modules.dense(rule, atomic)(none[:0], none[:0], *state, one, one, one)
        for whole in {modules.whole(place.dim) for place in self.layout.places if place.trained}:
            places = np.zeros(1, np.int32) if rule else np.empty(0, np.int32)
            modules.rows(rule, atomic, whole)(
                none[:0], some[:0], some, none[:0], none[:0], *state, places, none[:0], some, 16, one, one, one
            )
            modules.bags(whole)(none, some[:0], some, none[:0], none[:0], 16)
        control, locks = np.zeros(cells(1), np.int64), np.zeros(1, np.int32)
        modules.claim(control, 0)
        modules.count(control, 0, 0, 0)
        modules.lock(locks, control)
        modules.unlock(locks)
        generator(0, 0, 0)


def describe(error: BaseException) -> str:
    """One line: what went wrong, and where in the user's code, if it was there."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(NOT_THE_USERS)]
    text = " ".join(f"{type(error).__name__}: {error}".split())[:400]
    return text + (f" ({os.path.basename(theirs[-1].filename)}, line {theirs[-1].lineno})" if theirs else "")


def step_at(step: tuple[float, float, float], visited: int) -> np.float32:
    """``scale / (offset + visited)**power``."""
    scale, offset, power = step
    return np.float32(scale if power == 0.0 else scale * (offset + visited) ** -power)
