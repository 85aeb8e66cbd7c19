"""Reasons for a run to end before its last epoch: Ctrl-C, a target, exhausted patience, or divergence.

Ctrl-C does not raise in the middle of an epoch. While the caller waits for the next row, the first one asks the workers
to end at the next chunk, the row is finished and saved, and ``KeyboardInterrupt`` follows it; only the second raises at
once. This applies only where Ctrl-C has Python's own handler, so a program with a handler of its own keeps it.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hogwild.config import TrainConfig
from hogwild.errors import TrainingError

DIVERGED = 100.0  # times the objective at the start
SMALLEST = 1e-3  # smallest initial objective to compare with
UNSETTLED = 0.01  # share of the objective that a settled run is at most above its optimum
MOST_LASTING = 9.0  # times the last falls: what they add up to at most
ROUNDING = 1e-13  # share of the first objective below which one is zero, but for weights that are float32
NEGLIGIBLE = 1e-4  # share of the first objective that nobody misses
SLIGHT = 0.1  # share of tol below which a fall an epoch is none


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


def enough(config: TrainConfig, history: list[dict[str, Any]], watched: str = "objective") -> bool:
    """Whether the target is reached or patience with the field ``watched`` is exhausted.

    Rows of interrupted epochs count for the target only.
    """
    if config.target is not None and history[-1]["objective"] <= config.target:
        return True
    if config.patience is None:
        return False
    best, since, epoch = math.inf, 0, 0
    for row in history:
        value = row.get(watched)
        if not is_whole(row) or value is None:
            continue
        epoch = row["epoch"]
        if value < best - config.tol * abs(best if math.isfinite(best) else 0.0):
            best, since = value, epoch
    return epoch - since >= config.patience


def unsettled(objectives: Sequence[float], tol: float, epochs: int = 1) -> str:
    """Say what the objective was doing in the end, by its values ``epochs`` epochs apart; "" if nothing of note.

    It was noisy if it has risen by ``tol`` or more in its last quarter, as it had before.
    """
    span = max((len(objectives) - 1) // 4, 1)
    if len(objectives) < 3 or not min(objectives) > 0.0:
        return ""
    rises = [now > before * (1.0 + tol) for before, now in itertools.pairwise(objectives)]
    if any(rises[-span:]) and sum(rises) > 1:
        return f"has risen in {sum(rises)} of {len(rises)} {'epochs' if epochs == 1 else 'looks'}: noise of the step"
    fall = 1.0 - (objectives[-1] / objectives[-1 - span]) ** (1.0 / (span * epochs))
    return f"still falling {_percent(fall)} an epoch" if fall > tol * SLIGHT else ""


def outlook(objectives: Sequence[float], span: int = 1) -> float:
    """Share of the objective that its falls add up to if they go on shrinking as in the last epochs; 0 if it rises."""
    last = objectives[-2 * span - 1 :]
    if len(objectives) < 3 or any(now > before for before, now in itertools.pairwise(last)):
        return 0.0
    first, second = last[0] - last[span], last[span] - last[-1]
    return second * second / max(first - second, second / MOST_LASTING, 1e-300) / max(abs(objectives[-1]), 1e-300)


def verdict(config: TrainConfig, history: list[dict[str, Any]], gain: float | None, bound: float | None = None) -> str:
    """Return "settled", or one line that says why a run has not settled and what to do.

    ``gain`` is by how much the model's objective can be lowered at least, relative to it. That decides, and not how the
    objective moved: it may rise and fall about an optimum that the model has all the same. Where it is unknown (None)
    the ``bound`` counts, by which it can be lowered at most, or if there is none an objective that falls, epoch after
    epoch.
    """
    whole = {row["epoch"]: float(row["objective"]) for row in history if is_whole(row)}  # each epoch once
    objectives = list(whole.values())
    sure = gain is not None or bound is None
    if gain is None:
        gain = outlook(objectives, max((len(objectives) - 1) // 4, 1)) if bound is None else bound
    if min(objectives) > 0.0:
        gain = max(gain, 1.0 - min(objectives) / objectives[-1])
    nothing = 0.0 <= objectives[-1] <= ROUNDING * objectives[0]
    nothing |= gain * abs(objectives[-1]) <= NEGLIGIBLE * abs(objectives[0])
    if nothing or gain < UNSETTLED or (config.target is not None and objectives[-1] <= config.target):
        return "settled"
    more = "more --epochs" if history[-1]["epoch"] >= config.epochs else "more --patience"
    found = unsettled(objectives, config.tol, config.evaluate_every)
    if found.startswith("still"):
        return f"{found}: give {more}"
    if found:
        return f"{found}; give {'' if config.adagrad else '--adagrad, '}a smaller --step or {more}"
    falls = f"{'can' if sure else 'may'} still fall by {_percent(gain)}"
    return f"{falls}: give {more}, a larger --step, or columns of one scale"


def _percent(share: float) -> str:
    return f"{100 * share:.{0 if share > 0.1 else 2}{'f' if share > 0.1 else 'g'}} %"
