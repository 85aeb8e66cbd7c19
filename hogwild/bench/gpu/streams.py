"""A small network on a GPU: replicas on streams, beside a single replica, plain torch, and one large batch.

The task is to learn labels of random inputs, some of them wrong. All runs see equally many samples in the same epochs
at the same step; where minibatches are combined (``synchronous``, ``vmap``) the step is such that their gradients are
added, as replicas add theirs, and not averaged.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from hogwild.bench.gpu.sides import race, worse
from hogwild.bench.gpu.sizes import BATCHES, LOCKED, MEGA, MODULE_STEP, REPLICAS, Size
from hogwild.bench.plan import BenchPlan
from hogwild.bench.rounds import ratio
from hogwild.bench.sides import ENDLESS, Running
from hogwild.errors import HogwildWarning
from hogwild.problems.module.feed import Examples, take_data
from hogwild.problems.module.training import train_module

INPUTS, HIDDEN, CLASSES = 784, 512, 10
LENGTH = 10.0  # norm of an input
WRONG = 0.2  # share of wrong labels: they give the loss a floor, without which it keeps falling, depending on the order
ONE, EAGER = "one graph", "eager"


def measure(plan: BenchPlan, size: Size, copy: Any) -> Iterator[dict[str, Any]]:
    """Yield samples per second of every way, by minibatch size."""
    examples = taught(size.samples)
    for batch in BATCHES:
        yield from _of_batch(plan, size, examples, batch)


def ways(batch: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return kind and options of each way; all are compared with the first."""
    most = REPLICAS[-1]
    found: dict[str, tuple[str, dict[str, Any]]] = {
        ONE: ("one", {"workers": 1}), EAGER: ("eager", {"workers": 1, "launch": "eager"}),
    }  # fmt: skip
    found |= {f"{count} replicas": ("replicas", {"workers": count}) for count in REPLICAS}
    together = {"workers": 1, "batch": most * batch, "step": most * MODULE_STEP}
    return found | {
        f"{LOCKED} replicas, locked": ("locked", {"workers": LOCKED, "discipline": "locked"}),
        f"synchronous, {most} x {batch}": ("synchronous", together),
        f"vmap of {most}": ("vmap", {"workers": most, "launch": "vmap"}),
    }


def _of_batch(plan: BenchPlan, size: Size, examples: Examples, batch: int) -> Iterator[dict[str, Any]]:
    all_ways, usual = ways(batch), {"batch": batch, "step": MODULE_STEP, "evaluate_every": size.epochs["streams"]}
    starts = {name: partial(_start, examples, usual | way) for name, (_, way) in all_ways.items()}
    rounds = min(plan.repeats, size.rounds)
    found, _ = race(starts, "objective", rounds, lambda text: plan.note(f"streams, batch {batch}, {text}"))
    for name, row in found.items():
        rate = ratio(len(examples), row["seconds"])
        yield row | {
            "part": "streams", "what": f"streams {batch}: {name}", "kind": all_ways[name][0], "batch": batch,
            "samples": len(examples), "samples_per_second": rate, "measured": None if rate is None else rate / MEGA,
            "unit": "M samples/s", "rival": ONE, "ratio": ratio(found[ONE]["seconds"], row["seconds"]),
            "over_eager": ratio(found[EAGER]["seconds"], row["seconds"]),
            "worse": worse(row.get("loss"), found[ONE].get("loss")),
        }  # fmt: skip


def _start(examples: Examples, options: dict[str, Any]) -> Running:
    """Start a run; without a captured graph it would not measure graphs, so that warning is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", HogwildWarning)
        return Running(train_module(network, "cross-entropy", examples, device="cuda", epochs=ENDLESS, **options))


def network() -> nn.Module:
    """Return the small network that is trained."""
    return nn.Sequential(
        nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)
    )


def taught(samples: int, seed: int = 0) -> Examples:
    """Return random inputs, labelled by the largest of ten random linear functions or, for one in five, at random."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((samples, INPUTS), dtype=np.float32) * np.float32(LENGTH / INPUTS**0.5)
    functions = random.standard_normal((INPUTS, CLASSES), dtype=np.float32)
    y = (torch.from_numpy(X) @ torch.from_numpy(functions)).argmax(1).numpy()
    wrong = random.random(samples) < WRONG
    y[wrong] = random.integers(0, CLASSES, int(wrong.sum()))
    return take_data((X, y), "cross-entropy")
