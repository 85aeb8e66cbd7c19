"""What is timed on a GPU: replicas of a network, sparse rows and matrix completion, each beside its limit or rival.

Everything runs as a user's program does (``train`` and ``train_module`` with ``device="cuda"``) and is timed by the
runs' own clocks, in rounds in which the rivals take turns. Runs are evaluated off the clock, and only once in several
epochs (``Size``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from hogwild import machine
from hogwild.bench.gpu.sides import CPU, Pace, Row, Side, Timings, continued, race, trained
from hogwild.bench.plan import L2, STEPS
from hogwild.bench.sides import ENDLESS, Running, Training
from hogwild.cuda import backend as backends
from hogwild.cuda.completion.launcher import SIDES
from hogwild.data.ratings.source import open_ratings
from hogwild.data.rows.container import Rows
from hogwild.data.rows.source import open_data
from hogwild.errors import TrainingError
from hogwild.problems.module.feed import take_data
from hogwild.problems.module.training import train_module

BATCHES, REPLICAS, LOCKED = (128, 32), (4, 8, 16), 8
INPUTS, HIDDEN, CLASSES = 784, 512, 10
MODULE_STEP = 0.05
LENGTH = 10.0  # norm of an input
WRONG = 0.2  # share of wrong labels: they give the loss a floor, without which it keeps falling, depending on the order

IN_FLIGHT = (300, 1200, 4224)  # rows; 4,224 fill an H100 or H200
LINEAR: Row = {"step": STEPS["rcv1"], "l2": L2}

RANKS = (64, 128)
COMPLETION: Row = {"problem": "completion", "step": 0.03, "l2": 0.05}  # as in the section completion
HELD_OUT = 0.01
FLOAT, RATING = 4, 12  # bytes of a number; of a user, an item and a value
COPIES = 10  # copies timed together: one takes a millisecond or two
SHARE = 8  # at most 1 / SHARE of the free memory is copied


@dataclass(frozen=True)
class Size:
    """Sizes of the measurements."""

    copied: int  # bytes of the array that is copied, if the device has room
    ratings: str  # names of synthetic sets
    rows: str
    samples: int  # of the network, a multiple of the largest batch
    epochs: Mapping[str, int]  # of one timing of a part: some 20 ms or more on an H200
    goal: int = 10  # epochs after which the CPU's loss becomes the goal
    most: int = 50  # epochs in which to reach it
    checked: int = 4096  # examples of a check of correctness


#: Factors of 480,189 users take 123 MB at rank 64, more than an L2 cache holds; 300,000 rows have 21.8M nonzeros.
#: A fifth of Netflix's ratings: all evaluations on the CPU then take a minute.
FULL = Size(
    1 << 32,
    "synthetic:netflix?ratings=20000000&shift=137",
    "synthetic:rcv1?rows=300000",
    1 << 16,
    {"completion": 5, "linear": 30, "streams": 2},
)
QUICK = Size(
    1 << 28,
    "synthetic:netflix?users=60000&items=4000&ratings=1000000",
    "synthetic:rcv1?rows=60000",
    1 << 14,
    {"completion": 2, "linear": 5, "streams": 1},
    goal=5,
)


def streams(size: Size, pace: Pace) -> Iterator[Row]:
    """Yield samples per second of a small network in every way, by minibatch size.

    All see equally many samples in the same epochs at the same step; where minibatches are combined (``synchronous``)
    the step is such that their gradients are added, as replicas add theirs, and not averaged.
    """
    examples, most = take_data(taught(size.samples), "cross-entropy"), REPLICAS[-1]
    for batch in BATCHES:
        ways: dict[str, tuple[str, Row]] = {
            "one graph": ("one", {}),
            **{f"{count} replicas": ("replicas", {"workers": count}) for count in REPLICAS},
            f"synchronous, {most} x {batch}": ("synchronous", {"batch": most * batch, "step": most * MODULE_STEP}),
            f"{LOCKED} replicas, locked": ("locked", {"workers": LOCKED, "discipline": "locked"}),
        }
        usual = {"workers": 1, "batch": batch, "step": MODULE_STEP, "evaluate_every": size.epochs["streams"]}
        about = {"batch": batch, "unit": "samples/s", "rival": f"{batch}: one graph"}
        sides = {
            f"{batch}: {name}": Side(replicas(examples, usual | way), len(examples), about | {"kind": kind})
            for name, (kind, way) in ways.items()
        }
        yield from race("streams", sides, pace)


def replicas(examples: Any, options: Row) -> Timings:
    """Timings of a run of the network."""
    run = train_module(network, "cross-entropy", examples, device="cuda", epochs=ENDLESS, **options)
    yield from continued(Running(run), "objective")


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


def linear(size: Size, pace: Pace) -> Iterator[Row]:
    """Yield nonzeros per second of logistic regression, and the times to reach the CPU's loss.

    That loss is the objective after a few epochs of the CPU's default discipline on all its cores, at the same constant
    step. It is the goal of all runs, the CPU's included: each trains anew until the first evaluation, after any epoch,
    that is not above it.
    """
    rows, gpu = open_data(size.rows), {"device": "cuda"}
    cpu: Row = {"workers": machine.physical_cores(), "host": "threads"}
    ways: dict[str, Row] = {"default": gpu, CPU: cpu}
    for more, options in (("", {}), (", no intercept", {"intercept": False})):
        ways |= {f"{count} in flight{more}": gpu | options | {"in_flight": count} for count in IN_FLIGHT}
    ways["stored, default"] = gpu | {"discipline": "hogwild"}
    about: Row = {"unit": "nonzeros/s", "rival": CPU}
    usual = LINEAR | {"evaluate_every": size.epochs["linear"]}
    sides = {name: Side(trained(rows, "objective", usual | way), rows.nnz, about) for name, way in ways.items()}
    yield from race("linear", sides, pace)
    with Training(rows, **LINEAR, **cpu) as first:
        for _ in range(size.goal):
            first()
        goal = first.objective
    fits = {"unit": "fits/s", "rival": CPU, "goal": goal}
    again = {name: Side(to_loss(rows, goal, size.most, ways[name]), 1, fits) for name in ("default", CPU)}
    yield from race("to loss", again, pace)


def to_loss(rows: Rows, goal: float, most: int, way: Row) -> Timings:
    """Timings of training anew until a goal for the objective is reached, by the runs' clocks."""
    while True:
        with Training(rows, **LINEAR | way | {"epochs": most, "target": goal}) as training:
            *_, last = training.run
        if not last["objective"] <= goal:
            raise TrainingError(f"loss {last['objective']:.5f} after {last['epoch']:g} epochs, {goal:.5f} was asked")
        fields = {"seconds": "train_seconds", "kind": "discipline", "epochs": "epoch", "loss": "objective"}
        yield {name: last[fields.get(name, name)] for name in (*fields, "in_flight", "workers", "device")}


def completion(size: Size, pace: Pace) -> Iterator[Row]:
    """Yield bytes per second of a copy, and of matrix completion at every rank in every way of writing.

    The changes of both sides are added, or those of the items only, or rows are stored. Errors on held-out ratings are
    compared after the same epochs at the same step.
    """
    train, test = open_ratings(size.ratings).split(HELD_OUT)
    for rank in RANKS:
        options = COMPLETION | {"rank": rank, "test": test, "evaluate_every": size.epochs["completion"]}
        start = partial(trained, train, "test_rmse")
        on_gpu = options | {"device": "cuda"}
        ways = {
            "added": start(on_gpu),
            "items added": with_sides((False, True), start(on_gpu)),
            "stored": start(on_gpu | {"discipline": "hogwild"}),
            "added, file order": start(on_gpu | {"order": "file"}),
            CPU: start(options | {"workers": machine.physical_cores(), "host": "threads"}),
        }
        about: Row = {"unit": "bytes/s", "rank": rank, "rival": f"{rank}: copy", "against": f"{rank}: {CPU}"}
        sides = {f"{rank}: copy": Side(copied(size.copied), 1, {"unit": "bytes/s", "kind": "copy"})} | {
            f"{rank}: {name}": Side(way, len(train) * update_bytes(rank), about | {"updates": len(train)})
            for name, way in ways.items()
        }
        yield from race("completion", sides, pace)


def update_bytes(rank: int) -> int:
    """Bytes that an update logically moves: a rating, and two rows with their biases, read and written."""
    return 2 * 2 * FLOAT * (rank + 1) + RATING


def with_sides(added: tuple[bool, bool], timings: Timings) -> Timings:
    """Timings of a run on the device that adds the changes of users, and of items, or stores rows."""
    usual, SIDES["atomic"] = SIDES["atomic"], added
    try:
        first = next(timings)  # which starts the run
    finally:
        SIDES["atomic"] = usual
    yield first
    yield from timings


def copied(size: int) -> Timings:
    """The limit of a memory-bound kernel: a copy of at most ``size`` bytes from the device's memory to itself."""
    device = backends.connect()
    stream, count = device.stream(), max(min(size, device.free() // SHARE) // FLOAT, 1)
    source = torch.zeros(count, dtype=torch.float32, device=device.device)
    out = torch.empty_like(source)
    while True:
        start = time.perf_counter()
        stream.run(lambda: [out.copy_(source) for _ in range(COPIES)])
        stream.record().synchronize()
        yield {"seconds": (time.perf_counter() - start) / COPIES, "work": 2 * FLOAT * count, "bytes": FLOAT * count}
