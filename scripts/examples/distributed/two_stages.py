"""A network in two stages on two workers
=======================================

The first worker holds the lower half of a network and the second one the upper half: activations go up, gradients
come down. With one batch at a time, one of the two always waits. Cut into micro-batches, the second works on the
first piece while the first computes the next one and while others travel (GPipe, Huang et al. 2019)::

    python scripts/examples/distributed/two_stages.py

The gradients of the pieces add up to the whole batch's, so nothing but the time changes.
"""

from __future__ import annotations

import statistics
import time

import slowed
import torch
import torch.distributed as dist
from torch import nn

LAYERS, WIDTH, BATCH = 8, 512, 512


def make_layers() -> list[nn.Module]:
    torch.manual_seed(0)
    return [part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]


def lower(link: slowed.Link, stage: nn.Module, x: torch.Tensor, pieces: int) -> list[str]:
    """Send up all pieces, then take their gradients in the same order; return what was done, in order."""
    events, outputs = [], []
    for piece in x.chunk(pieces):
        outputs.append(stage(piece))
        link.send(outputs[-1], to=1)
        events.append("send")
    for output in outputs:
        gradient = torch.empty_like(output)
        dist.recv(gradient, 1)
        events.append("take")
        output.backward(gradient)
    return events


def upper(link: slowed.Link, stage: nn.Module, y: torch.Tensor, pieces: int) -> list[str]:
    """Take a piece and send its gradient down before the next one is taken."""
    events = []
    for goal in y.chunk(pieces):
        given = torch.empty(len(goal), WIDTH)
        dist.recv(given, 0)
        events.append("take")
        loss = nn.functional.mse_loss(stage(given.requires_grad_()), goal) / pieces
        loss.backward()
        link.send(given.grad, to=0)
        events.append("send")
    return events


def work(link: slowed.Link, rounds: int, cuts: list[int]) -> list[dict]:
    rank, layers = dist.get_rank(), make_layers()
    x, y = torch.randn(2, BATCH, WIDTH)
    nn.functional.mse_loss(nn.Sequential(*layers)(x), y).backward()  # all on one worker, to compare with
    stage = nn.Sequential(*layers[rank * LAYERS : (rank + 1) * LAYERS])  # a half, since each layer is two modules
    expected = [parameter.grad for parameter in stage.parameters()]
    largest = max(gradient.abs().max() for gradient in expected)
    found: list[dict] = [{"pieces": pieces, "seconds": []} for pieces in cuts]
    for _ in range(rounds):
        for measured in found:
            stage.zero_grad()
            before = link.messages, link.bytes
            dist.barrier()
            start = time.perf_counter()
            measured["events"] = (upper, lower)[rank == 0](link, stage, (x, y)[rank], measured["pieces"])
            dist.barrier()
            measured["seconds"].append(time.perf_counter() - start)
            measured["messages"], measured["bytes"] = link.messages - before[0], link.bytes - before[1]
            off = max((p.grad - gradient).abs().max() for p, gradient in zip(stage.parameters(), expected))
            measured["off"] = (off / largest).item()
    return found


def main(quick: bool = False) -> list[list[dict]]:
    found = slowed.run(work, 2, 1 if quick else 5, [1, 4] if quick else [1, 2, 4, 8], latency=1e-3, bandwidth=50e6)
    for below, above in zip(*found):
        seconds, off = statistics.median(below["seconds"]), max(below["off"], above["off"])
        print(f"micro-batches: {below['pieces']}, {seconds * 1e3:4.0f} ms a step, gradients off by {off:.0e} at most")
    return found


if __name__ == "__main__":
    main(**slowed.options())
