"""Data and model parallelism together
====================================

Four processes can be four replicas, four stages of one replica, or two replicas of two stages each. Replicas hold
every weight and trade gradients of every weight; stages hold a part each and trade activations of every row. Two by
two, a process holds half of the weights, and trades half of the gradients and half of the rows::

    python scripts/examples/distributed/two_by_two.py

All of them train the same network on the same batch, and end with the same weights.
"""

from __future__ import annotations

import time

import slowed
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss as squared_error
from torch.nn.utils import parameters_to_vector

LAYERS, WIDTH, BATCH, STEP = 8, 256, 1024, 0.05


def make_layers() -> list[nn.Module]:
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(LAYERS)]
    for layer in layers:
        nn.init.xavier_normal_(layer[0].weight)
    return layers


def descend(part: nn.Module) -> None:
    for parameter in part.parameters():
        parameter.data -= STEP / BATCH * parameter.grad
        parameter.grad = None


def train_alone(steps: int) -> list[nn.Module]:
    layers = make_layers()
    x, y = torch.randn(2, BATCH, WIDTH)
    whole = nn.Sequential(*layers)
    for _ in range(steps):
        squared_error(whole(x), y, reduction="sum").backward()
        descend(whole)
    return layers


def received(shape: torch.Size, source: int) -> torch.Tensor:
    tensor = torch.empty(shape)
    dist.recv(tensor, source)
    return tensor


def work(link: slowed.Link, replicas: int, stages: int, steps: int) -> dict[str, float]:
    rank = dist.get_rank()
    replica, stage = divmod(rank, stages)
    groups = [dist.new_group([r * stages + s for r in range(replicas)]) for s in range(stages)]  # one a stage
    placed = slice(stage * LAYERS // stages, (stage + 1) * LAYERS // stages)
    mine = nn.Sequential(*make_layers()[placed])
    x, y = (rows.chunk(replicas)[replica] for rows in torch.randn(2, BATCH, WIDTH))
    dist.barrier()
    start = time.perf_counter()
    for _ in range(steps):
        given = x if stage == 0 else received(x.shape, rank - 1).requires_grad_()
        output = mine(given)
        if stage == stages - 1:
            squared_error(output, y, reduction="sum").backward()
        else:
            link.send(output, rank + 1)
            output.backward(received(output.shape, rank + 1))
        if stage > 0:
            link.send(given.grad, rank - 1)
        for parameter in mine.parameters():
            link.sum(parameter.grad, groups[stage])
        descend(mine)
    dist.barrier()
    seconds = (time.perf_counter() - start) / steps
    parts = mine, nn.Sequential(*train_alone(steps)[placed]), nn.Sequential(*make_layers()[placed])
    here, alone, before = (parameters_to_vector(part.parameters()) for part in parts)
    off = (here - alone).abs().max() / (alone - before).abs().max()
    return {"weights": len(here), "bytes": link.bytes // steps, "seconds": seconds, "off": off.item()}


def main(quick: bool = False) -> dict[tuple[int, int], list[dict]]:
    found, steps = {}, 1 if quick else 5
    for replicas, stages in ((1, 1), (4, 1), (1, 4), (2, 2)):
        given = replicas * stages, replicas, stages, steps
        found[replicas, stages] = slowed.run(work, *given, latency=1e-3, bandwidth=50e6)
        weights, sent, seconds, off = (max(each[name] for each in found[replicas, stages]) for name in found[1, 1][0])
        print(f"{replicas} replicas of {stages} stages: a process holds {weights:7,} weights and sends", end=" ")
        print(f"{sent / 1e6:.2f} MB a step, {seconds * 1e3:4.0f} ms a step, weights within {off:.0e} of one process's")
    return found


if __name__ == "__main__":
    main(**slowed.options())
