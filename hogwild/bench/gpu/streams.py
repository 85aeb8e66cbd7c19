"""A small network on a GPU: replicas on streams, beside a single replica, plain torch, and one large batch.

The task is to learn labels of random inputs, some of them wrong. All runs see equally many samples in the same epochs
at the same step; where minibatches are combined (``synchronous``) the step is such that their gradients are added, as
replicas add theirs, and not averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from hogwild.bench.gpu.sides import Pace, Row, Side, continued, race
from hogwild.bench.gpu.sizes import BATCHES, LOCKED, MODULE_STEP, REPLICAS, Size
from hogwild.bench.sides import ENDLESS, Running
from hogwild.problems.module.feed import Examples, take_data
from hogwild.problems.module.training import train_module

INPUTS, HIDDEN, CLASSES = 784, 512, 10
LENGTH = 10.0  # norm of an input
WRONG = 0.2  # share of wrong labels: they give the loss a floor, without which it keeps falling, depending on the order
ONE, EAGER = "one graph", "eager"


def measure(size: Size, pace: Pace) -> Iterator[Row]:
    """Yield samples per second of every way, by minibatch size."""
    examples = take_data(taught(size.samples), "cross-entropy")
    for batch in BATCHES:
        about = {"batch": batch, "unit": "samples/s"}
        usual = {"batch": batch, "step": MODULE_STEP, "evaluate_every": size.epochs["streams"]}
        sides = {
            f"{batch}: {name}": Side(
                partial(start, examples, usual | way), len(examples),
                about | {"kind": kind, "rival": f"{batch}: {ONE}", "eager": f"{batch}: {EAGER}"},
            )
            for name, (kind, way) in ways(batch).items()
        }  # fmt: skip
        yield from race("streams", sides, pace)


def ways(batch: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return kind and options of each way; all are compared with the first."""
    most = REPLICAS[-1]
    found: dict[str, tuple[str, dict[str, Any]]] = {ONE: ("one", {"workers": 1})}
    found |= {f"{count} replicas": ("replicas", {"workers": count}) for count in REPLICAS}
    together = {"workers": 1, "batch": most * batch, "step": most * MODULE_STEP}
    return found | {
        EAGER: ("eager", {"workers": 1, "launch": "eager"}),
        f"synchronous, {most} x {batch}": ("synchronous", together),
        f"{LOCKED} replicas, locked": ("locked", {"workers": LOCKED, "discipline": "locked"}),
    }


def start(examples: Examples, options: dict[str, Any], stack: ExitStack) -> Callable[[], Row]:
    """Start a run."""
    run = train_module(network, "cross-entropy", examples, device="cuda", epochs=ENDLESS, **options)
    return continued(stack, Running(run), "objective")


def network() -> nn.Module:
    """Return the small network that is trained."""
    return nn.Sequential(
        nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)
    )


def taught(samples: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return random inputs, labelled by the largest of ten random linear functions or, for one in five, at random."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((samples, INPUTS), dtype=np.float32) * np.float32(LENGTH / INPUTS**0.5)
    functions = random.standard_normal((INPUTS, CLASSES), dtype=np.float32)
    y = (torch.from_numpy(X) @ torch.from_numpy(functions)).argmax(1).numpy()
    wrong = random.random(samples) < WRONG
    y[wrong] = random.integers(0, CLASSES, int(wrong.sum()))
    return X, y
