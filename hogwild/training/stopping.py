"""Reasons for a run to end before its last epoch: Ctrl-C, a target, exhausted patience, or divergence.

Ctrl-C does not raise in the middle of an epoch. While the caller waits for the next row, the first one asks the workers
to end at the next chunk, the row is finished and saved, and ``KeyboardInterrupt`` follows it; only the second raises at
once. This applies only where Ctrl-C has Python's own handler, so a program with a handler of its own keeps it.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hogwild.config import TrainConfig
from hogwild.errors import TrainingError

DIVERGED = 100.0  # times the objective at the start
SMALLEST = 1e-3  # smallest initial objective to compare with


@contextlib.contextmanager
def held_back(ask: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Within this block the first Ctrl-C calls ``ask`` instead of raising; yields a function that tells if one came."""
    seen: list[int] = []

    def handle(number: int, frame: Any) -> None:
        if seen:
            signal.default_int_handler(number, frame)
        seen.append(number)
        ask()

    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not usual or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: bool(seen)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def has_diverged(objective: float, before: Sequence[float]) -> bool:
    """Whether the objective is no longer finite, or a hundred times the initial one.

    ``before`` holds the objectives of the rows so far. The perceptron starts at its lowest, zero: then the first epoch
    counts.
    """
    if not math.isfinite(objective):
        return True
    start = max((abs(value) for value in before[: 2 if before and before[0] == 0.0 else 1]), default=0.0)
    return start > 0.0 and objective > DIVERGED * max(start, SMALLEST)


def divergence(config: TrainConfig, row: dict[str, Any]) -> TrainingError:
    """Return the error to raise after a diverged row."""
    remedies = [f"a step below {config.step:g}" if config.step else "another schedule"]
    if config.problem == "linear":  # the only problem with these options
        remedies += [] if config.normalize != "none" else ["rows scaled to one length (normalize l2)"]
        remedies += [] if config.adagrad else ["adagrad"]
    said = diverged_in(row["epoch"], row["objective"])
    return TrainingError(f"{said}; try {', or '.join(remedies)}. The model is that of the epoch before")


def diverged_in(epoch: int, objective: float) -> str:
    """Say where the run diverged, for a message that says what to do."""
    return f"diverged in epoch {epoch}: the objective went to {objective:.4g}"


def is_whole(row: dict[str, Any]) -> bool:
    """Whether a row is of a complete epoch, even if the run was asked to stop there."""
    return isinstance(row["epoch"], int)


def enough(config: TrainConfig, history: list[dict[str, Any]]) -> bool:
    """Whether the target is reached or patience is exhausted; rows of interrupted epochs count for the target only."""
    if config.target is not None and history[-1]["objective"] <= config.target:
        return True
    if config.patience is None:
        return False
    best, since, epoch = math.inf, 0, 0
    for row in history:
        value = row["objective"]
        if not is_whole(row):
            continue
        epoch = row["epoch"]
        if value < best - config.tol * abs(best if math.isfinite(best) else 0.0):
            best, since = value, epoch
    return epoch - since >= config.patience
