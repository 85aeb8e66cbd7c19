"""Modules: samples per second of ``train_module``, beside the pattern of torch's own ``mnist_hogwild`` example.

That pattern is ``model.share_memory()`` and, in each process, a ``torch.optim.SGD`` and a DataLoader. It is run here as
fast as possible: processes started before any clock, pinned to a core and with one thread each like ours, and the same
batches, steps and samples in an epoch (each process draws its share of the rows anew). ``official`` has the example's
loader, which fetches and stacks single items; ``official, whole batches`` has one that receives all rows of a batch at
once and builds it with our own kernel, which the example does not do, so that the remaining difference is the step
itself. The loss over all training rows after the same epochs stands beside each rate.
"""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, TensorDataset

from hogwild.bench.plan import BenchPlan
from hogwild.bench.rounds import Side, interleaved, ratio
from hogwild.bench.sides import ENDLESS, Running
from hogwild.errors import HogwildWarning
from hogwild.machine import cpus_of, one_cpu_a_core, pin
from hogwild.problems.module.case import NamedLoss
from hogwild.problems.module.feed import Batch, Examples, feed_of, take_data
from hogwild.problems.module.training import train_module

TILES = {False: 20, True: 8}  # copies of the 1,797 digits; True: quick
DIM = 32
#: Data: loss, step, batch.
CASES: dict[str, tuple[str, float, int]] = {"digits": ("cross-entropy", 0.1, 64), "rcv1": ("bce", 2.0, 64)}
OFFICIAL, BATCHED = "official", "official, whole batches"


def measure(plan: BenchPlan) -> Iterator[dict[str, Any]]:
    """Yield seconds per epoch, samples per second, and the rival's, for a dense and a sparse network."""
    workers = max(min(plan.workers[-1], max(len(one_cpu_a_core()), 1)), 1)
    for name in CASES:
        plan.note(f"opening {name}")
        yield from _of_data(plan, name, workers)


def _of_data(plan: BenchPlan, name: str, workers: int) -> Iterator[dict[str, Any]]:
    loss, step, batch = CASES[name]
    examples, model = digits(TILES[plan.quick]) if name == "digits" else sparse(plan)
    sides: dict[str, Any] = {"hogwild": _ours(model, loss, examples, step, batch, workers)}
    kinds = [OFFICIAL, BATCHED] if name == "digits" else [BATCHED]
    try:
        for kind in kinds:
            sides[kind] = _Official(model, loss, examples, step, batch, workers, kind == BATCHED)
        named: dict[str, Side] = {**sides}
        times = interleaved(named, plan.repeats, lambda text: plan.note(f"modules, {name}, {text}"))
        for kind, side in sides.items():
            timing = times[kind]
            yield timing.fields() | {
                "data": name,
                "kind": kind,
                "workers": workers,
                "batch": batch,
                "step": step,
                "samples": len(examples),
                "samples_per_second": timing.per_second(len(examples)),
                "speedup": ratio(timing.seconds, times["hogwild"].seconds),
                "epochs": plan.repeats + 1,
                "train_loss": side.objective,
            }
    finally:
        for side in sides.values():
            side.close()


def digits(tiles: int = 1) -> tuple[Examples, nn.Module]:
    """Return ``tiles`` copies of scikit-learn's 1,797 8 x 8 digits, and a network with one hidden layer."""
    from sklearn.datasets import load_digits

    found = load_digits()
    X, y = np.tile(found.data / 16, (tiles, 1)), np.tile(found.target, tiles)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    return take_data((X, y), "cross-entropy"), model


def sparse(plan: BenchPlan) -> tuple[Examples, nn.Module]:
    """Return rows like those of RCV1, and the network :class:`Embedded`."""
    rows = plan.open("rcv1")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return take_data(rows, "bce"), Embedded(rows.width)


class Embedded(nn.Module):
    """A sum of embeddings, followed by a linear layer."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(features, DIM, mode="sum", sparse=True)
        self.out = nn.Linear(DIM, 1)
        nn.init.normal_(self.bag.weight, std=0.05)

    def forward(self, indices: torch.Tensor, offsets: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        summed: torch.Tensor = self.out(torch.relu(self.bag(indices, offsets, weights)))
        return summed


def _ours(model: nn.Module, loss: str, examples: Examples, step: float, batch: int, workers: int) -> Running:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HogwildWarning)  # more workers than cores: the caller warns once
        return Running(
            train_module(
                model, loss, examples, workers=workers, host="processes", step=step, batch=batch, epochs=ENDLESS
            )
        )


class _Official:
    """The example's pattern: processes that each train the shared model with their own optimiser and loader."""

    def __init__(
        self, model: nn.Module, loss: str, examples: Examples, step: float, batch: int, workers: int, whole: bool
    ) -> None:
        import torch.multiprocessing as multiprocessing

        self._model, self._loss, self._examples = copy.deepcopy(model).share_memory(), NamedLoss(loss), examples
        context = multiprocessing.get_context("forkserver")
        arrays, _ = examples.lay_out(shared=False)
        tensors = {name: torch.from_numpy(np.array(array)).share_memory_() for name, array in arrays.items()}
        self._ends: list[Connection] = []
        self._processes = []
        for number, cpu in enumerate(cpus_of(workers)):
            mine, theirs = context.Pipe()
            about = self._model, self._loss, examples.kind, tensors, step, batch, workers, whole
            process = context.Process(target=_official, args=(theirs, cpu, number, *about), daemon=True)
            process.start()
            theirs.close()
            self._ends.append(mine)
            self._processes.append(process)
        for end in self._ends:
            end.recv()

    def __call__(self) -> float:
        start = time.perf_counter()
        for end in self._ends:
            end.send(True)
        for end in self._ends:
            end.recv()
        return time.perf_counter() - start

    @property
    def objective(self) -> float:
        arrays, _ = self._examples.lay_out(shared=False)
        feed, n, total = feed_of(self._examples.kind, arrays, b""), len(self._examples), 0.0
        with torch.no_grad():
            for first in range(0, n, 1024):
                batch = feed(np.arange(first, min(first + 1024, n), dtype=np.int32))
                total += float(self._loss(self._model(*batch.inputs), batch.target)) * len(batch.target)
        return total / n

    def close(self) -> None:
        for end in self._ends:
            end.close()
        for process in self._processes:
            process.join()


def _official(
    connection: Connection,
    cpu: int | None,
    number: int,
    model: nn.Module,
    loss: NamedLoss,
    kind: str,
    tensors: dict[str, torch.Tensor],
    step: float,
    batch: int,
    workers: int,
    whole: bool,
) -> None:
    """Run one process of the pattern: an epoch of its share for each message."""
    torch.set_num_threads(1)
    pin(cpu)
    torch.manual_seed(1 + number)
    loader = _loader(kind, tensors, batch, workers, whole)
    optimizer = torch.optim.SGD(model.parameters(), lr=step)
    model.train()
    for _ in zip(loader, range(2)):  # so that everything is compiled before the first epoch
        pass
    connection.send(True)
    while _asked(connection):
        for data in loader:
            optimizer.zero_grad()
            output = model(*data[0]) if isinstance(data, Batch) else model(data[0])
            loss(output, data[1]).backward()
            optimizer.step()
        connection.send(True)


def _asked(connection: Connection) -> bool:
    """Wait for the next message; False when there will be none."""
    try:
        return bool(connection.recv())
    except EOFError:
        return False


class _Whole(Dataset[Batch]):
    """Batches addressed by the numbers of their rows."""

    def __init__(self, feed: Any, n: int) -> None:
        self._feed, self._n = feed, n

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, rows: list[int]) -> Batch:
        batch: Batch = self._feed(np.array(rows, dtype=np.int32))
        return batch


def _loader(kind: str, tensors: dict[str, torch.Tensor], batch: int, workers: int, whole: bool) -> Any:
    n = len(tensors["target"])
    share = RandomSampler(range(n), num_samples=n // workers)
    if not whole:
        return DataLoader(TensorDataset(tensors["input0"], tensors["target"]), batch_size=batch, sampler=share)
    feed = feed_of(kind, {name: tensor.numpy() for name, tensor in tensors.items()}, b"")
    return DataLoader(_Whole(feed, n), batch_size=None, sampler=BatchSampler(share, batch, False))
