"""``l2="auto"``: the penalty with the lowest loss on held-out rows, among candidates that are trained in one pass.

The candidates are lanes of a vector (``problems/linear/lanes``): each has its own penalty and step, all see the same
rows in the same order. They are judged on rows that were held out before, or else on a fifth of the training rows,
which is held out for that alone: whoever asks then trains a model on all training rows with the penalty that was
chosen, as if it had been given. Of few rows each is held out once: by five candidates for each penalty, which share its
step and leave a fifth each. No two threads share a candidate, so the choice depends on rows, options and seed
alone. Test rows have no part in it.

Of fewer rows still, candidates are the optima without each fold (``problems/linear/exact/folds``), where the loss has
them: lanes of weak penalties are far from theirs even after a hundred epochs, and look much better than what a fit ends
at. There the choice depends on rows and options alone.

Of the lanes near the lowest loss (``NEAR``, ``LEARNED``) the strongest wins. The rows held out tell no smaller
difference, and weak penalties look better than they are: after ten epochs their weights are still on the way to an
optimum that fits noise.

A step suits a penalty: three of the path's penalties are probed for theirs, as by ``--step auto`` but each on a third
of its sample, and those between get one in between. One vector holds sixteen candidates of two classes, and costs the
same however few it holds; several classes take a lane each, and there the better half goes on, twice.
"""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.config import L2_PATH, TrainConfig
from hogwild.data.order import Order
from hogwild.data.rows.container import Rows
from hogwild.errors import InputError, NoChoice
from hogwild.methods import PROBLEMS
from hogwild.model_file import has_checkpoint, load_checkpoint
from hogwild.problems.linear.case import scaled_for
from hogwild.problems.linear.exact.folds import Folds, are_few, divisions
from hogwild.problems.linear.exact.walk import CHANCE, best_of, rounded, unit_of
from hogwild.problems.linear.lanes.candidates import NONE, PROBED, Candidate, Candidates, steps_between
from hogwild.problems.linear.objective import Objective
from hogwild.problems.linear.problem import LinearProblem
from hogwild.problems.linear.rows import labels_of
from hogwild.training.checkpoint import resumable
from hogwild.training.probe import Probe
from hogwild.training.schedule import make_schedule, usual_schedule

HELD_OUT = 0.2  # of the training rows, if none are held out already
FEW = 1_000_000  # entries (times classes) up to which each row is held out once
VISITS, MOST_EPOCHS = 100_000, 100  # of rows by a candidate then: so many, in at most so many epochs
EPOCHS = 10  # at most, of more rows
LOOKS = (3, 6)  # epochs after which the better half of the candidates goes on, where there are several classes
NEAR = 0.01  # share of the lowest held-out loss,
NO_WEIGHT = "the {:,} rows held out to choose l2 have no weight: hold more out, or give l2"
LEARNED = 0.05  # and of its distance from the loss of the strongest penalty, which learns next to nothing


@dataclass(frozen=True)
class L2Choice:
    """The penalty that was chosen, and by what.

    Attributes
    ----------
    l2 : float
    path : list of dict
        ``l2``, ``step``, ``held_out_loss`` and ``epochs`` of each candidate, by ascending penalty; the loss of one that
        diverged is None, and so is the step of a schedule that has its own, and of exact fits.
    refitted : bool
        Whether the run trains on the rows held out as well, so that the losses are those of fits before it.
    folds : int
        Number of parts of which each was held out once; 1: only one was.
    rounds : int
        Number of divisions into such parts.
    step : float or None
        The step of the candidate that won, with which its loss can be expected again; None if the run must search for
        its own, since the candidates were optima, or told one class from the others for ``softmax``, or replicas trade.
    rows, held_out, epochs : int
        Numbers of rows that were trained on and held out, and of epochs of those that were not left out before; 0
        epochs: candidates are optima.
    seconds : float
    """

    l2: float
    path: list[dict[str, Any]]
    rows: int
    held_out: int
    epochs: int
    seconds: float
    refitted: bool = False
    folds: int = 1
    rounds: int = 1
    step: float | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """What the first row of the run says: the held-out losses are of these fits, before that on all rows."""
        about = {"l2_rows": self.rows, "l2_held_out": self.held_out, "l2_epochs": self.epochs, "l2_folds": self.folds}
        about["l2_rounds"] = self.rounds
        return {"l2_path": self.path, "l2_seconds": self.seconds} | about

    def loss(self, l2: float) -> float | None:
        """The held-out loss of a penalty of the path; None if it is none, or diverged."""
        return next((each["held_out_loss"] for each in self.path if each["l2"] == l2), None)


def settle_l2(
    config: TrainConfig, rows: Rows, resumed: str | Path | None = None, held: Rows | None = None
) -> tuple[TrainConfig, L2Choice | None]:
    """Return the config with the penalty that was chosen, and how.

    ``resumed`` is the directory of a checkpoint: what the run there has is not chosen again.
    """
    found = None
    if resumed is not None and has_checkpoint(resumed):
        _, header = load_checkpoint(resumed)
        with resumable(Path(resumed)):
            l2 = header["config"]["l2"]
        if l2 not in (config.l2_path or ()) and config.l2_path != L2_PATH:
            raise InputError(f"{resumed}: cannot resume with other options: l2 was {l2!r}, which is not to choose now")
    else:
        found = choose_l2(config, rows, held)
        l2 = found.l2
    return dataclasses.replace(config, l2=l2, l2_path=None), found


def choose_l2(config: TrainConfig, rows: Rows, held: Rows | None = None) -> L2Choice:
    """Return the best of ``config.l2_path`` for these training rows.

    Parameters
    ----------
    config : TrainConfig
    rows : Rows
    held : Rows, optional
        Rows to judge the candidates by, which are not among ``rows``; else a fifth of ``rows`` is held out.

    Raises
    ------
    NoChoice
        If the part that is trained on lacks a class, the other one has no weight, or no candidate has a finite loss.
    UsageError
        If the candidates take too much memory.
    """
    began, refitted, trades = time.perf_counter(), held is None, config.exchange != "none"
    config = _alone(config, len(rows))
    labels = [float(label) for label in labels_of(rows.targets, config.loss, rows.table)]
    several = len(labels) if len(labels) > 2 else 1
    meant = config.epochs >= PROBLEMS["linear"]["defaults"]["epochs"]  # fewer are meant to end early
    if held is None and meant and config.keep != "last" and are_few(rows, config.loss, config.l1, several):
        return _by_optima(config, rows, len(labels), began)
    fold_of, epochs = None, min(config.epochs, EPOCHS)
    if held is not None:
        rest, parts = rows, [held]
    elif rows.nnz * several <= FEW:
        rest, fold_of = rows, divisions(rows.targets, len(labels), rows.nnz * several)[0]
        parts = [rows.select(np.flatnonzero(fold_of == fold)) for fold in range(fold_of.max() + 1)]
        epochs = max(config.epochs, min(VISITS // len(rows), MOST_EPOCHS)) if meant else epochs
    else:
        rest, held = rows.split(HELD_OUT, config.seed)
        parts = [held]
    if len(np.unique(rest.targets)) < len(labels):
        raise NoChoice("l2='auto': all rows of a class were held out: give another seed, or l2 as a number")
    if any(part.weights is not None and not part.weights.any() for part in parts):
        raise NoChoice(NO_WEIGHT.format(len(parts[0])))
    found = _Path(config, rest, parts, fold_of, labels)
    for look in LOOKS if len(labels) > 2 else ():
        if look < epochs:
            found.train(look)
            found.halve()
    found.train(epochs)
    best = found.ranked()[0]
    if found.losses[best] is None:
        raise NoChoice("every candidate for l2 diverged: give a smaller step, or adagrad")
    trained, seconds = len(rest) - len(parts[0]) * (fold_of is not None), time.perf_counter() - began
    step = None if trades or (config.loss == "softmax" and several > 1) else found.steps[best]
    return L2Choice(
        found.penalties[best], found.path, trained, len(parts[0]), epochs, seconds, refitted, len(parts), step=step
    )


def _by_optima(config: TrainConfig, rows: Rows, classes: int, began: float) -> L2Choice:
    """The best penalty by the optima without each fold."""
    if config.loss == "softmax" and classes == 2:
        config = dataclasses.replace(config, loss="log")
    folds = divisions(rows.targets, classes, rows.nnz * (classes if classes > 2 else 1))
    _, own, _ = scaled_for(config, rows)
    problem = LinearProblem.of(config, own, "serial")
    fits = Folds(own, problem, problem.row_arrays(own, config.class_weight), rows.weights, folds)
    if not fits.sizes.all():
        raise NoChoice(NO_WEIGHT.format(-(-len(rows) // len(fits.sizes))))
    if config.l2_path == L2_PATH:
        found = fits.walk(_unit(config, rows))
    else:
        found = dict([(l2, fits.fit(l2)) for l2 in sorted(config.l2_path or (), reverse=True)][::-1])
    losses = {l2: fits.mean(each) for l2, each in found.items()}
    best = best_of(losses)
    if not math.isfinite(losses[best]):
        raise NoChoice("no penalty has a finite loss on the rows held out: scale the columns, or give l2")
    tried = [
        {"l2": l2, "step": None, "held_out_loss": loss if math.isfinite(loss) else None, "epochs": 0}
        for l2, loss in losses.items()
    ]
    held, many, seconds = int((folds[0] == 0).sum()), int(folds[0].max()) + 1, time.perf_counter() - began
    return L2Choice(best, tried, len(rows) - held, held, 0, seconds, True, folds=many, rounds=len(folds))


def _unit(config: TrainConfig, rows: Rows) -> float:
    """What the penalties to choose among are multiples of: those of ``auto``, of a row's squared length."""
    return unit_of(rows) if config.l2_path == L2_PATH and config.normalize == "none" else 1.0


class _Path:
    """The candidates of a choice, by number, and what the rows held out have said of each."""

    def __init__(
        self, config: TrainConfig, rest: Rows, parts: list[Rows], fold_of: np.ndarray | None, labels: list[float]
    ) -> None:
        if config.loss == "softmax":
            config = dataclasses.replace(config, loss="log")
        unit = _unit(config, rest)
        self.penalties = [l2 if unit == 1.0 else rounded(l2 * unit) for l2 in config.l2_path or ()]
        self.columns, own, _ = scaled_for(config, rest)
        problem = LinearProblem.of(config, own, "serial")
        arrays = problem.row_arrays(own, config.class_weight)
        self.steps = _steps(config, own, arrays["weights"], self.penalties)
        own_classes = range(problem.classes) if problem.classes > 1 else [NONE]
        more: dict[str, Any] = {"decay": config.decay, "power": config.power, "dloss": problem.slope, "tol": config.tol}
        lanes = [
            Candidate(make_schedule(config.schedule, step, l2=l2, **more), config.l1, l2, fold, label)
            for step, l2 in zip(self.steps, self.penalties, strict=True)
            for fold in (range(len(parts)) if fold_of is not None else [NONE])
            for label in own_classes
        ]
        self.each = len(own_classes)  # lanes of a model
        order = Order.of(len(own), config.order == "shuffled")
        self.candidates = Candidates(problem, own, arrays, lanes, order, config.seed, fold_of)
        about: dict[str, Any] = {"normalize": config.normalize, "labels": labels}
        self.judges = [Objective(part, config.loss, problem.loss_param, **about) for part in parts]
        self.sizes = [len(part) if part.weights is None else float(part.weights.sum()) for part in parts]
        self.left = list(range(len(self.penalties)))
        self.losses: list[float | None] = [None] * len(self.left)
        self.epochs = [0] * len(self.left)

    def train(self, until: int) -> None:
        """Train those that are left up to an epoch, and judge them."""
        self.candidates.train(until - self.candidates.epoch)
        for place, k in enumerate(self.left):
            losses = [self._loss(place, fold) for fold in range(len(self.judges))]
            whole = [loss for loss in losses if loss is not None]
            self.losses[k] = float(np.average(whole, weights=self.sizes)) if len(whole) == len(losses) else None
            self.epochs[k] = until

    def _loss(self, place: int, fold: int) -> float | None:
        """The loss of a candidate on the part that it left out; None if it diverged."""
        first = (place * len(self.judges) + fold) * self.each
        solution = self.candidates.model(range(first, first + self.each))
        loss = self.judges[fold].evaluate(*(solution if self.columns is None else self.columns.back(*solution)))["loss"]
        return loss if loss is not None and math.isfinite(loss) else None

    def ranked(self) -> list[int]:
        """Those that are left, the best first; within ``NEAR`` of the lowest loss that is the strongest."""
        losses = {k: math.inf if (loss := self.losses[k]) is None else loss for k in self.left}
        lowest, strongest = min(losses.values()), losses[max(self.left, key=lambda k: self.penalties[k])]
        gained = strongest - lowest if math.isfinite(strongest) else math.inf  # by all that is learned, more or less
        near = lowest + max(min(NEAR * abs(lowest), LEARNED * gained), CHANCE * abs(lowest))  # negative, of counts
        return sorted(self.left, key=lambda k: (max(losses[k], near), -self.penalties[k]))

    def halve(self) -> None:
        """Go on with the better half, and with the default, which the winner is compared with."""
        usual = PROBLEMS["linear"]["defaults"]["l2"]
        better = self.ranked()[: -(-len(self.left) // 2)]
        kept = [k for k in self.left if k in better or self.penalties[k] == usual]
        places = [self.left.index(k) for k in kept]
        each = self.each * len(self.judges)
        self.candidates.keep([place * each + lane for place in places for lane in range(each)])
        self.left = kept

    @property
    def path(self) -> list[dict[str, Any]]:
        columns = zip(self.penalties, self.steps, self.losses, self.epochs, strict=True)
        return [dict(zip(("l2", "step", "held_out_loss", "epochs"), each, strict=True)) for each in columns]


def _alone(config: TrainConfig, n: int) -> TrainConfig:
    """The same objective and steps for one worker of this process."""
    schedule = usual_schedule(config.schedule, n, config.settles_schedule)
    return dataclasses.replace(
        config,
        schedule=schedule,
        discipline="serial",
        workers=1,
        host="threads",
        device="cpu",
        in_flight=None,
        exchange="none",
        link="",
        delay="round-robin",
        gradient_delay=0.0,
    )


def _steps(config: TrainConfig, rows: Rows, weights: np.ndarray, penalties: list[float]) -> list[float | None]:
    """A first step for each penalty; None where the schedule has its own."""
    if config.schedule == "optimal" or config.step is not None:
        return [config.step] * len(penalties)

    def probe(l2: float) -> float:
        return Probe(dataclasses.replace(config, l2=l2), rows, weights if weights.size else None, 1 / PROBED).search()

    return list(steps_between(probe, penalties))
