"""A parameter server that hears of each layer at once
====================================================

Two workers send their gradients to a server, which sums them, takes the step and sends the weights back. The last
layer's gradient exists long before backward ends, so its push can travel while the layers below are computed::

    python scripts/examples/distributed/layer_by_layer.py

A hook on each weight pushes its gradient, and one on each layer waits for its new weights. The losses stay the same.
"""

from __future__ import annotations

import statistics
import time

import slowed
import torch
import torch.distributed as dist
from torch import nn

WORKERS, SERVER, LAYERS, WIDTH, BATCH, STEP = 2, 2, 8, 256, 1024, 0.05  # the server is the last process


def make_layers() -> list[nn.Linear]:
    torch.manual_seed(0)
    for layer in (layers := [nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)]):
        nn.init.xavier_normal_(layer.weight)
    return layers


def serve(link: slowed.Link, steps: int) -> dict:
    weights = [layer.weight.data for layer in make_layers()]
    for _ in range(steps):
        for k in reversed(range(LAYERS)):  # as their gradients come
            pushes = [torch.empty_like(weights[k]) for _ in range(WORKERS)]
            for worker, push in enumerate(pushes):
                dist.recv(push, worker, tag=k)
            weights[k] -= STEP / WORKERS / BATCH * sum(pushes)
            for worker in range(WORKERS):
                link.send(weights[k], worker, tag=k)
    return {}


def train(link: slowed.Link, steps: int, overlapped: bool) -> dict[str, list]:
    """Return the losses, and what the last step did, in order."""
    layers, coming, events, losses = make_layers(), {}, [], []
    x, y = torch.randn(2, BATCH, WIDTH, generator=torch.Generator().manual_seed(dist.get_rank()))

    def push(k: int) -> None:
        events.append(f"push{k}")
        link.send(layers[k].weight.grad, SERVER, tag=k)
        layers[k].weight.grad, fresh = None, torch.empty(WIDTH, WIDTH)
        coming[k] = dist.irecv(fresh, SERVER, tag=k), fresh

    def pull(k: int) -> None:
        if k in coming:
            coming[k][0].wait()
            layers[k].weight.data.copy_(coming.pop(k)[1])

    for k, layer in enumerate(layers):
        layer.register_forward_pre_hook(lambda *_, k=k: pull(k))
        if overlapped:
            layer.weight.register_post_accumulate_grad_hook(lambda _, k=k: push(k))
    network = nn.Sequential(*[part for layer in layers for part in (layer, nn.Tanh())])
    for _ in range(steps):
        events.clear()
        loss = nn.functional.mse_loss(network(x), y, reduction="sum")
        loss.backward()
        events.append("end")
        for k in () if overlapped else reversed(range(LAYERS)):
            push(k)
        losses.append(loss.item() / BATCH)
    for k in range(LAYERS):
        pull(k)
    return {"losses": losses, "events": events}


def work(link: slowed.Link, rounds: int, steps: int) -> dict[str, dict]:
    found: dict[str, dict] = {name: {"seconds": []} for name in ("waiting", "overlapped")}
    for _ in range(rounds):
        for name, measured in found.items():
            dist.barrier()
            start, served = time.perf_counter(), dist.get_rank() == SERVER
            measured |= serve(link, steps) if served else train(link, steps, name == "overlapped")
            measured["seconds"].append((time.perf_counter() - start) / steps)
    return found


def main(quick: bool = False) -> list[dict]:
    found = slowed.run(work, WORKERS + 1, *((1, 2) if quick else (5, 5)), latency=1e-3, bandwidth=100e6)
    for name, measured in found[0].items():
        milliseconds, loss = 1e3 * statistics.median(measured["seconds"]), measured["losses"][-1]
        print(f"{name:10} {milliseconds:4.0f} ms a step, loss {loss:.2f}:", *measured["events"])
    return found


if __name__ == "__main__":
    main(**slowed.options())
