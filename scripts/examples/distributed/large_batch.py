"""A large batch with a scaled step and a warm-up
===============================================

Two workers sum their gradients over a slow link after every batch, so a batch sixteen times as large takes a
sixteenth of the messages. With the small batch's step it learns as much a step and so a sixteenth an epoch; with
sixteen times that step it nearly keeps up, and ends nearer still after a warm-up of three epochs, in which the step
grows (Goyal et al. 2017)::

    python scripts/examples/distributed/large_batch.py

Weights begin twice as large as usual here, since from the usual ones a warm-up mattered less. Twice this step diverged
even with it, for one seed of three: scaling has an end, which only trying finds.
"""

from __future__ import annotations

import slowed
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.utils import Bunch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

WORKERS, IMAGES, SMALL, STEP, SCALE, WARM_UP = 2, 1536, 16, 0.1, 16, 3
RUNS = {  # images of a batch, step, epochs of warm-up
    "small batch": (SMALL, STEP, 0),
    "large batch, same step": (SMALL * SCALE, STEP, 0),
    "large batch, scaled step": (SMALL * SCALE, STEP * SCALE, 0),
    "large batch, scaled step, warm-up": (SMALL * SCALE, STEP * SCALE, WARM_UP),
}


def make_data(digits: Bunch) -> tuple[torch.Tensor, torch.Tensor]:
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))[:IMAGES]
    images = torch.tensor(digits.data / 8, dtype=torch.float32)[order]
    return images - images.mean(), torch.tensor(digits.target)[order]


def make_module() -> nn.Module:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    for layer in (module[0], module[2]):
        nn.init.kaiming_normal_(layer.weight)
        layer.weight.data *= 2
        nn.init.zeros_(layer.bias)
    return module


def train(link: slowed.Link, digits: Bunch, epochs: int, batch: int, full_step: float, warm_up: int) -> list[float]:
    """Return the loss on all images after each epoch."""
    module, (x, y), losses = make_module(), make_data(digits), []
    order = torch.Generator().manual_seed(0)
    rank, warming, done = dist.get_rank(), warm_up * IMAGES // batch, 0
    for _ in range(epochs):
        for images in torch.randperm(IMAGES, generator=order).split(batch):
            mine = images.chunk(WORKERS)[rank]
            module.zero_grad()
            nn.functional.cross_entropy(module(x[mine]), y[mine]).backward()
            gradient = parameters_to_vector(parameter.grad for parameter in module.parameters())
            link.sum(gradient, dist.group.WORLD)
            done += 1
            step = full_step * min(1.0, done / warming) if warming else full_step
            weights = parameters_to_vector(module.parameters()).detach()
            vector_to_parameters(weights - step / WORKERS * gradient, module.parameters())
        with torch.no_grad():
            losses.append(nn.functional.cross_entropy(module(x), y).item())
    return losses


def work(link: slowed.Link, digits: Bunch, epochs: int) -> dict[str, dict]:
    found = {}
    for name, options in RUNS.items():
        messages, size = link.messages, link.bytes
        losses = train(link, digits, epochs, *options)
        messages, size = link.messages - messages, link.bytes - size
        seconds = messages * link.latency + size / link.bandwidth
        found[name] = {"losses": losses, "messages": messages, "bytes": size, "seconds": seconds}
    return found


def main(quick: bool = False) -> dict[str, dict]:
    epochs = 5 if quick else 8
    found = slowed.run(work, WORKERS, load_digits(), epochs, latency=2e-4, bandwidth=100e6)[0]
    for name, measured in found.items():
        losses = " ".join(f"{loss:.3f}" for loss in measured["losses"])
        print(f"{name:33} {measured['messages']:4} messages, {measured['seconds']:.2f} s of them, loss {losses}")
    return found


if __name__ == "__main__":
    main(**slowed.options())
