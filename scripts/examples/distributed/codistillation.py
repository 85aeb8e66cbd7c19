"""Codistillation of two modules
==============================

Two workers train a module each, on images that the other never sees, and each also learns to predict what the
other's module predicts (Anil et al. 2018). They trade their weights every 50 steps only, and a copy that is up to 100
steps old teaches as well, so it travels while they train and nobody waits::

    python scripts/examples/distributed/codistillation.py

The first 100 steps use the labels alone, since a module that knows nothing teaches nothing.
"""

from __future__ import annotations

import slowed
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.utils import Bunch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

EACH, BATCH, PERIOD, ALONE, EVERY = 150, 32, 50, 100, 50  # images of a worker and of a step; the rest in steps
WEIGHTS = {"alone": 0.0, "codistilled": 0.5}  # of the other's predictions


def make_data(digits: Bunch) -> tuple[torch.Tensor, torch.Tensor]:
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    return torch.tensor(digits.data / 16, dtype=torch.float32)[order], torch.tensor(digits.target)[order]


def make_module() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def train(link: slowed.Link, digits: Bunch, steps: int, weight: float) -> dict[str, list[float]]:
    """Train with the other's predictions at ``weight``, and return loss and accuracy on what neither has seen."""
    rank, (x, y) = dist.get_rank(), make_data(digits)
    torch.manual_seed(rank)
    module, teacher, coming = make_module(), make_module(), None
    velocities = [torch.zeros_like(parameter) for parameter in module.parameters()]
    found: dict[str, list[float]] = {"losses": [], "accuracies": []}
    for step in range(steps):
        if weight and step % PERIOD == 0:
            if coming:
                coming[0].wait()
                vector_to_parameters(coming[1], teacher.parameters())
            weights = parameters_to_vector(module.parameters()).detach()
            link.send(weights, 1 - rank)
            fresh = torch.empty_like(weights)
            coming = dist.irecv(fresh, 1 - rank), fresh  # taken in a period later
        chosen = rank * EACH + torch.randint(EACH, (BATCH,))
        scores = module(x[chosen])
        loss = nn.functional.cross_entropy(scores, y[chosen])
        if weight and step >= ALONE:
            with torch.no_grad():
                taught = teacher(x[chosen]).softmax(1)
            loss = (1 - weight) * loss + weight * nn.functional.cross_entropy(scores, taught)
        module.zero_grad()
        loss.backward()
        for parameter, velocity in zip(module.parameters(), velocities):  # torch.optim takes seconds to import
            parameter.data -= 0.05 * velocity.mul_(0.9).add_(parameter.grad)
        if (step + 1) % EVERY == 0:
            with torch.no_grad():
                scores, labels = module(x[2 * EACH :]), y[2 * EACH :]
            found["losses"].append(nn.functional.cross_entropy(scores, labels).item())
            found["accuracies"].append((scores.argmax(1) == labels).float().mean().item())
    if coming:
        coming[0].wait()
    return found


def work(link: slowed.Link, digits: Bunch, steps: int) -> dict:
    found: dict = {name: train(link, digits, steps, weight) for name, weight in WEIGHTS.items()}
    return found | {"messages": link.messages, "bytes": link.bytes}


def main(quick: bool = False) -> list[dict]:
    steps = 400 if quick else 600
    found = slowed.run(work, 2, load_digits(), steps, latency=5e-3, bandwidth=10e6)
    for name in WEIGHTS:
        loss, accuracy = (sum(each[name][what][-1] for each in found) / 2 for what in ("losses", "accuracies"))
        print(f"{name:11} test loss {loss:.3f}, test accuracy {accuracy:.3f}, mean of both modules")
    print(f"{found[0]['messages']} messages of a worker in {steps} steps, {found[0]['bytes'] / 1e6:.2f} MB")
    return found


if __name__ == "__main__":
    main(**slowed.options())
