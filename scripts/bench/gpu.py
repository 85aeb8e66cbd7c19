"""What this machine's NVIDIA GPU computes and how fast, in one run: correctness first, then each rate beside its limit.

    python scripts/bench/gpu.py [--quick]

Everything runs as a user's program does (``train`` and ``train_module`` with ``device="cuda"``) and is timed by the
runs' own clocks, in rounds in which the rivals take turns. It needs numpy, numba and a CUDA build of torch, which
brings Triton. The exit status is 1 if the GPU computes something else than the CPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import numpy as np
import torch
from rounds import ENDLESS, Training, interleaved, ratio
from torch import nn

from hogwild import open_data, open_ratings, train, train_module
from hogwild.data.rows.container import Rows
from hogwild.machine import physical_cores

ALLOWED = 1e-4  # relative difference of objectives: float32 sums in another order
DEVICE, STEP = "cuda", 0.05
CUDA: dict[str, Any] = {"device": "cuda"}
CORES: dict[str, Any] = {"workers": physical_cores(), "host": "threads"}
SERIAL: dict[str, Any] = {"workers": 1, "discipline": "serial", "host": "threads"}
INPUTS, HIDDEN, CLASSES, BATCH = 784, 512, 10, 128
RANKS = (8, 64, 128)  # of completion; the last two are timed
GOAL_EPOCHS, MOST_EPOCHS = 10, 50  # of the CPU, whose loss is the goal; of each run, to reach it
COPIED, COPIES = 1 << 30, 10  # bytes of the array that is copied; copies timed together
RATINGS = "synthetic:ratings?rank=16&zipf=1.5&shift=208&user_shift=350&noise=0.8"
SIZES = {  # rows, ratings, samples, rows of a check
    False: ("synthetic:rcv1?rows=300000", f"{RATINGS}&users=480189&items=17770&ratings=20000000", 1 << 16, 4096),
    True: ("synthetic:rcv1?rows=20000", f"{RATINGS}&users=6000&items=4000&ratings=500000", 1 << 13, 512),
}


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)
    )


def images(samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random inputs of length 10, labelled by the largest of ten random linear functions, a fifth at random."""
    random = np.random.default_rng(0)
    X = random.standard_normal((samples, INPUTS), dtype=np.float32) * np.float32(10 / INPUTS**0.5)
    y = (X @ random.standard_normal((INPUTS, CLASSES), dtype=np.float32)).argmax(1)
    y[: samples // 5] = random.integers(0, CLASSES, samples // 5)
    return X, y


# ---- what it computes


def correctness(n: int) -> bool:
    """Set the objective beside that of one worker of the CPU after the same epochs; return whether all agree.

    With one example in flight both visit the examples in the same order. Where all rows are equal, and far from the
    hinge's kink, each of many equal changes counts: what is lost is missing from the sum.
    """
    same: dict[str, Any] = {"epochs": 2, "schedule": "constant", "order": "file"}
    one = same | {"step": 0.1, "in_flight": 1}
    equal = Rows(np.arange(n + 1) * 33, np.tile(np.arange(33), n), np.ones(n * 33), np.arange(n) % 4 > 0, 33)
    text, classes = (open_data(f"synthetic:rcv1?rows={n}&classes={count}") for count in (2, 5))
    ratings = open_ratings(f"{RATINGS}&users=500&items=300&ratings={4 * n}")
    module: dict[str, Any] = {"epochs": 1, "batch": 16, "order": "file", "step": STEP, "discipline": "serial"}
    checks: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
        **{f"linear, {loss}": (partial(train, text), one | {"loss": loss}) for loss in ("log", "hinge")},
        "linear, 5 classes": (partial(train, classes), one),
        "linear, all rows in flight": (
            partial(train, equal),
            same | {"step": 2.0**-9 / n, "loss": "hinge", "l2": 0.0, "intercept": False, "in_flight": n},
        ),
        **{
            f"completion, rank {rank}": (partial(train, ratings, problem="completion"), one | {"rank": rank})
            for rank in RANKS
        },
        "module": (partial(train_module, network(), "cross-entropy", images(n)), module),
    }
    wrong = 0
    print("correctness: relative difference of the objective from the CPU's")
    for name, (start, options) in checks.items():
        on_cpu = {key: value for key, value in options.items() if key != "in_flight"}
        objectives = []
        for way in (options | CUDA, on_cpu | SERIAL):
            with start(**way) as run:
                run.finish()
                objectives.append(run.history[-1]["objective"])
        difference = abs(objectives[0] / objectives[1] - 1)
        wrong += not difference <= ALLOWED
        print(f"  {name:32}{difference:9.1e}{'' if difference <= ALLOWED else '  WRONG'}", flush=True)
    return not wrong


# ---- how fast


def rates(title: str, sides: dict[str, Any], works: dict[str, float], unit: str, asked: str, repeats: int) -> None:
    """Time the sides in turns and print the rate of each, and as a multiple of the first side's."""
    times = interleaved(sides, repeats)
    rate = {name: timing.per_second(works[name]) for name, timing in times.items()}
    first = next(iter(rate.values()))
    print(f"{title} (asked: {asked})")
    for name, side in sides.items():
        learned = getattr(side, "last", {})
        loss = learned.get("test_rmse") or learned.get("objective")
        figures = f"{rate[name] or 0:12.4g} {unit}{ratio(rate[name], first) or 0:9.3g}x{loss or 0:10.4f}"
        print(f"  {name:32}{figures}  {times[name].status}", flush=True)


def copied() -> float:
    """Return the seconds of a copy from the device's memory to itself, the limit of what is bound by memory."""
    source = torch.zeros(COPIED // 4, dtype=torch.float32, device=DEVICE)
    out = torch.empty_like(source)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(COPIES):
        out.copy_(source)
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / COPIES


def completion(name: str, repeats: int) -> None:
    data, test = open_ratings(name).split(0.01)
    for rank in RANKS[-2:]:
        options = {"problem": "completion", "rank": rank, "step": 0.03, "evaluate_every": 2}
        ways = {"added": CUDA, "stored": CUDA | {"discipline": "hogwild"}, f"{physical_cores()} CPU cores": CORES}
        with ExitStack() as stack:
            sides = {
                way: stack.enter_context(closing(Training.of(data, test, **options, **more)))
                for way, more in ways.items()
            }
            moved = len(data) * (4 * 4 * (rank + 1) + 12)  # two rows and biases read and written, and a rating
            works = {"copy": 2.0 * COPIED} | dict.fromkeys(sides, moved)
            title = f"matrix completion, rank {rank}"
            rates(title, {"copy": copied} | sides, works, "bytes/s", "0.9 of the copy, RMSE within 1 %", repeats)


def linear(name: str, repeats: int) -> None:
    """Print the rates, and the seconds of the GPU and of all cores to the loss that the cores reach."""
    rows = open_data(name)
    options = {"step": 0.5, "evaluate_every": 10}
    ways = {f"{physical_cores()} CPU cores": CORES, "default": CUDA, "stored": CUDA | {"discipline": "hogwild"}}
    ways |= {f"{count:,} rows in flight": CUDA | {"in_flight": count} for count in (300, 1200, 4224)}
    with ExitStack() as stack:
        sides = {way: stack.enter_context(closing(Training.of(rows, **options, **more))) for way, more in ways.items()}
        works = dict.fromkeys(sides, float(rows.nnz))
        rates("sparse logistic regression", sides, works, "nonzeros/s", "24e9 by default", repeats)
    seconds: list[float] = []
    goal = None
    for more in (CORES, CUDA):
        epochs = GOAL_EPOCHS if goal is None else MOST_EPOCHS
        with train(rows, step=0.5, schedule="constant", epochs=epochs, target=goal, **more) as run:
            run.finish()
        goal = goal or run.history[-1]["objective"]
        seconds.append(run.history[-1]["train_seconds"])
        print(f"  to loss {goal:.5f}: {run.history[-1]['objective']:.5f} after {seconds[-1]:.4g} s")
    print(f"  {seconds[0] / seconds[1]:.3g} times as fast to that loss as all cores (asked: 8)")


class Eager:
    """A side that does an epoch as one writes it with torch alone."""

    def __init__(self, data: tuple[np.ndarray, np.ndarray]) -> None:
        self._model = network().to(DEVICE)
        self._X, self._y = (torch.from_numpy(array).to(DEVICE) for array in data)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=STEP)

    def __call__(self) -> float:
        start = time.perf_counter()
        for rows in torch.randperm(len(self._y), device=DEVICE).split(BATCH):
            self._optimizer.zero_grad()
            nn.functional.cross_entropy(self._model(self._X[rows]), self._y[rows]).backward()
            self._optimizer.step()
        torch.cuda.synchronize()
        return time.perf_counter() - start

    @property
    def last(self) -> dict[str, float]:
        with torch.no_grad():
            return {"objective": float(nn.functional.cross_entropy(self._model(self._X), self._y))}


def streams(samples: int, repeats: int) -> None:
    data = images(samples)
    ways: dict[str, dict[str, Any]] = {
        "one graph": {"workers": 1},
        **{f"{count} replicas": {"workers": count} for count in (4, 8, 16)},
        "one batch of 16": {"workers": 1, "batch": 16 * BATCH, "step": 16 * STEP},  # its mean is their sum
    }
    options: dict[str, Any] = {"batch": BATCH, "step": STEP, "epochs": ENDLESS} | CUDA
    with ExitStack() as stack:
        sides: dict[str, Any] = {}
        for name, way in ways.items():
            run = train_module(network(), "cross-entropy", data, **options | way)
            sides[name] = stack.enter_context(closing(Training(run)))
        sides["eager torch"] = Eager(data)
        works = dict.fromkeys(sides, float(samples))
        asked = "2.5 times one graph, 20 times eager, loss within 2 %"
        rates(f"network {INPUTS}-{HIDDEN}-{HIDDEN}-{CLASSES}", sides, works, "samples/s", asked, repeats)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller data")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--correctness", action="store_true", help="only that")
    asked = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        raise SystemExit("gpu.py needs a GPU; this torch finds none: install a CUDA build of torch")
    rows, ratings, samples, checked = SIZES[asked.quick]
    print(torch.cuda.get_device_name(), torch.__version__)
    right = correctness(checked)
    if not asked.correctness:
        streams(samples, asked.repeats)
        linear(rows, asked.repeats)
        completion(ratings, asked.repeats)
    return not right


if __name__ == "__main__":
    sys.exit(main())
