"""Samples per second of ``train_module``, beside the pattern of torch's own ``mnist_hogwild`` example, on digits.

    python scripts/bench/modules.py [--repeats 9] [--workers 2]

That pattern is ``model.share_memory()`` and, in each process, a ``torch.optim.SGD`` and a ``DataLoader``. It is run
here as fast as possible: processes started before any clock, pinned to a core and with one thread each like ours, and
the same batches, steps and samples in an epoch. The loss over all rows after the same epochs stands beside each rate.
"""

from __future__ import annotations

import argparse
import copy
import time
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.multiprocessing as multiprocessing
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from hogwild import train_module
from hogwild.bench import ENDLESS, Training, interleaved
from hogwild.machine import cpus_of, pin

STEP, BATCH, COPIES = 0.1, 64, 20


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Return copies of scikit-learn's 1,797 8 x 8 digits."""
    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images / 16).float().repeat(COPIES, 1), torch.tensor(labels).repeat(COPIES)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


class Example:
    """Processes that each train the shared model with their own optimiser and loader, an epoch for each call."""

    def __init__(self, model: nn.Module, data: tuple[torch.Tensor, ...], workers: int) -> None:
        self.model = copy.deepcopy(model).share_memory()
        context = multiprocessing.get_context("forkserver")
        shared = [tensor.clone().share_memory_() for tensor in data]
        self._ends: list[Connection] = []
        for number, cpu in enumerate(cpus_of(workers)):
            end, other = context.Pipe()
            arguments = (other, cpu, number, self.model, shared, workers)
            context.Process(target=train_share, args=arguments, daemon=True).start()
            other.close()
            self._ends.append(end)
        for end in self._ends:
            end.recv()

    def __call__(self) -> float:
        start = time.perf_counter()
        for end in self._ends:
            end.send(True)
        for end in self._ends:
            end.recv()
        return time.perf_counter() - start

    def close(self) -> None:
        for end in self._ends:
            end.send(False)


def train_share(end: Any, cpu: int | None, number: int, model: nn.Module, data: list[torch.Tensor], n: int) -> None:
    """Run one process of the pattern: an epoch of its share for each message."""
    torch.set_num_threads(1)
    pin(cpu)
    torch.manual_seed(1 + number)
    examples = TensorDataset(*data)
    share = RandomSampler(range(len(examples)), num_samples=len(examples) // n)
    loader = DataLoader(examples, batch_size=BATCH, sampler=share)
    optimizer = torch.optim.SGD(model.parameters(), lr=STEP)
    end.send(True)
    while end.recv():
        for inputs, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
        end.send(True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    model, data = network(), digits()
    options: dict[str, Any] = {"workers": asked.workers, "host": "processes", "step": STEP, "batch": BATCH}
    ours = Training(train_module(model, "cross-entropy", data, epochs=ENDLESS, **options))
    example = Example(model, data, asked.workers)
    times = interleaved({"hogwild": ours, "mnist_hogwild": example}, asked.repeats)
    with torch.no_grad():
        losses = {
            "hogwild": ours.last["objective"],
            "mnist_hogwild": float(nn.functional.cross_entropy(example.model(data[0]), data[1])),
        }
    ours.close()
    example.close()
    for name, timing in times.items():
        print(f"{name:16}{timing.per_second(len(data[1])) or 0:12,.0f} samples/s, loss {losses[name]:.4f}")


if __name__ == "__main__":
    main()
