"""``l2="auto"``: the penalty with the lowest loss on held-out rows, among candidates that are trained in one pass.

The candidates are lanes of a vector (``problems/linear/lanes``): each has its own penalty and step, all see the same
rows in the same order. They are trained on a part of the training rows and judged on the others. Whoever asks then
trains a model on all of them with the penalty that was chosen, as if it had been given. No two threads share a
candidate, so the choice depends on rows, options and seed alone. Test rows have no part in it.

Of those within ``NEAR`` of the lowest loss the strongest wins. The rows held out tell no smaller difference, and weak
penalties look better than they are: after ten epochs their weights are still on the way to an optimum that fits noise.

A step suits a penalty: three of the path's penalties are probed for theirs, as by ``--step auto``, and those between
get one in between.
"""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.config import TrainConfig
from hogwild.data.order import Order
from hogwild.data.rows.container import Rows
from hogwild.errors import InputError
from hogwild.model_file import has_checkpoint, load_checkpoint
from hogwild.problems.linear.case import scaled_for
from hogwild.problems.linear.lanes.candidates import NONE, Candidate, Candidates, steps_between
from hogwild.problems.linear.objective import Objective
from hogwild.problems.linear.problem import LinearProblem
from hogwild.problems.linear.rows import labels_of
from hogwild.training.checkpoint import resumable
from hogwild.training.probe import Probe
from hogwild.training.schedule import make_schedule, usual_schedule

HELD_OUT = 0.2  # of the training rows, if nothing else is asked for
EPOCHS = 10  # at most
NEAR = 0.01  # share of the lowest held-out loss


@dataclass(frozen=True)
class L2Choice:
    """The penalty that was chosen, and by what.

    Attributes
    ----------
    l2 : float
    path : list of dict
        ``l2``, ``step`` and ``held_out_loss`` of each candidate, by ascending penalty; the loss of one that diverged is
        None, and so is the step of a schedule that has its own.
    rows, held_out, epochs : int
        Numbers of rows that were trained on and held out, and of epochs.
    seconds : float
    """

    l2: float
    path: list[dict[str, float | None]]
    rows: int
    held_out: int
    epochs: int
    seconds: float

    @property
    def fields(self) -> dict[str, Any]:
        """What the first row of the run says: the held-out losses are of these fits, before that on all rows."""
        about = {"l2_rows": self.rows, "l2_held_out": self.held_out, "l2_epochs": self.epochs}
        return {"l2_path": self.path, "l2_seconds": self.seconds} | about

    def loss(self, l2: float) -> float | None:
        """The held-out loss of a penalty of the path; None if it is none, or diverged."""
        return next((each["held_out_loss"] for each in self.path if each["l2"] == l2), None)


def settle_l2(
    config: TrainConfig, rows: Any, resumed: str | Path | None = None, fraction: float | None = None
) -> tuple[TrainConfig, L2Choice | None]:
    """Return the config with the penalty that was chosen, and how.

    ``resumed`` is the directory of a checkpoint: what the run there has is not chosen again.
    """
    found = None
    if resumed is not None and has_checkpoint(resumed):
        _, header = load_checkpoint(resumed)
        with resumable(Path(resumed)):
            l2 = header["config"]["l2"]
        if l2 not in (config.l2_path or ()):
            raise InputError(f"{resumed}: cannot resume with other options: l2 was {l2!r}, which is not to choose now")
    else:
        found = choose_l2(config, rows, fraction)
        l2 = found.l2
    return dataclasses.replace(config, l2=l2, l2_path=None), found


def choose_l2(config: TrainConfig, rows: Rows, fraction: float | None = None) -> L2Choice:
    """Return the best of ``config.l2_path`` for these training rows, of which ``fraction`` is held out.

    Raises
    ------
    InputError
        If the part that is trained on lacks a class, the other one has no weight, or no candidate has a finite loss.
    UsageError
        If the candidates take too much memory.
    """
    began, config = time.perf_counter(), _alone(config, len(rows))
    rest, held = rows.split(HELD_OUT if fraction is None else fraction, config.seed)
    labels = [float(label) for label in labels_of(rows.targets, config.loss, rows.table)]
    penalties = list(config.l2_path or ())
    if len(np.unique(rest.targets)) < len(labels):
        raise InputError("l2='auto': all rows of a class were held out: give another seed, or l2 as a number")
    if held.weights is not None and not held.weights.any():
        raise InputError(f"the {len(held):,} rows held out to choose l2 have no weight: hold more out, or give l2")
    columns, own, _ = scaled_for(config, rest)
    problem = LinearProblem.of(config, own, "serial")
    arrays = problem.row_arrays(own, config.class_weight)
    steps = _steps(config, own, arrays["weights"], penalties)
    of_classes = range(problem.classes) if problem.classes > 1 else [NONE]
    more: dict[str, Any] = {"decay": config.decay, "power": config.power, "dloss": problem.slope, "tol": config.tol}
    lanes = [
        Candidate(make_schedule(config.schedule, step, l2=l2, **more), config.l1, l2, label=label)
        for step, l2 in zip(steps, penalties, strict=True)
        for label in of_classes
    ]
    found = Candidates(problem, own, arrays, lanes, Order.of(len(own), config.order == "shuffled"), config.seed)
    epochs = min(config.epochs, EPOCHS)
    found.train(epochs)
    judge = Objective(held, config.loss, problem.loss_param, normalize=config.normalize, labels=labels)
    losses = []
    for k in range(len(penalties)):
        solution = found.model(range(k * len(of_classes), (k + 1) * len(of_classes)))
        loss = judge.evaluate(*(solution if columns is None else columns.back(*solution)))["loss"]
        losses.append(loss if loss is not None and math.isfinite(loss) else None)
    if not any(loss is not None for loss in losses):
        raise InputError("every candidate for l2 diverged: give a smaller step, or adagrad")
    path = [dict(zip(("l2", "step", "held_out_loss"), each)) for each in zip(penalties, steps, losses, strict=True)]
    finite = [(loss, l2) for loss, l2 in zip(losses, penalties) if loss is not None]
    lowest = min(finite)[0]  # which may be negative, of counts
    best = max(l2 for loss, l2 in finite if loss <= lowest + NEAR * abs(lowest))
    return L2Choice(best, path, len(rest), len(held), epochs, time.perf_counter() - began)


def _alone(config: TrainConfig, n: int) -> TrainConfig:
    """The same objective and steps for one worker of this process."""
    schedule = usual_schedule(config.schedule, n, config.settles_schedule)
    return dataclasses.replace(
        config, schedule=schedule, discipline="serial", workers=1, host="threads", device="cpu", in_flight=None,
        exchange="none", link="", delay="round-robin", gradient_delay=0.0,
    )  # fmt: skip


def _steps(config: TrainConfig, rows: Rows, weights: np.ndarray, penalties: list[float]) -> list[float | None]:
    """A first step for each penalty; None where the schedule has its own."""
    if config.schedule == "optimal" or config.step is not None:
        return [config.step] * len(penalties)

    def probe(l2: float) -> float:
        return Probe(dataclasses.replace(config, l2=l2), rows, weights if weights.size else None).search()

    return list(steps_between(probe, penalties))
