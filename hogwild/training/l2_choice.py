"""``l2="auto"``: the penalty that does best on rows held out, for ``hogwild.train`` and for estimators alike.

One rule holds for any size: of the candidates whose held-out loss is within half a paired standard error of the
lowest, the strongest wins. Half an error, because a whole one gives away .01 of log loss on a few hundred rows whose
columns have other scales, and none at all takes penalties that only fit the rows held out. With the losses of
``BY_ERROR`` the share of errors stands in for the loss: a constant model can have the lowest hinge loss, and on 20
newsgroups that of one class against the others is lowest where most documents are mistaken. Errors tell few candidates
apart, so of those near the lowest share not the strongest wins but the one of the lowest loss, which makes .006 fewer
errors on 2,000 normal rows and as many on seven real sets.

Candidates come in two forms. Of few rows and a smooth loss they are optima without each of five folds
(``problems/linear/optimum/folds``), from strong to weak penalties until the loss rises: lanes of weak penalties are far
from their optima after a hundred epochs, and look better than what a fit ends at. Otherwise they are lanes of a vector
(``problems/linear/lanes``), which read the same rows in the same order, each with its own penalty and step. They are
judged on rows that were held out before, or on each of five folds where rows are few, or on a fifth of the rows. No two
threads share a candidate, so the choice depends on rows, options and seed alone. Test rows have no part in it, and the
model is then trained on all training rows as if the penalty had been given.

A step suits a penalty: three of the path's penalties are probed for theirs, as by ``--step auto`` but each on a third
of its sample, and those between get one in between. One vector holds sixteen candidates of two classes, and costs the
same however few it holds; several classes take a lane each, and there the better half goes on, twice.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.config import TrainConfig
from hogwild.data.order import Order
from hogwild.data.parallel import in_order
from hogwild.data.rows.container import Rows, readonly
from hogwild.data.rows.margins import margins
from hogwild.errors import NoChoice
from hogwild.kernels.losses import LOSSES, NUMBERS
from hogwild.problems.linear.coordinates import scaled_for
from hogwild.problems.linear.lanes.candidates import NONE, PROBED, Candidate, Candidates, steps_between
from hogwild.problems.linear.objective import loss_values, right_rows
from hogwild.problems.linear.optimum.folds import (
    ENTRIES,
    are_few,
    fits_without,
    rounded,
    unit_of,
    walked,
    weakest_of,
)
from hogwild.problems.linear.optimum.folds import divisions as divide
from hogwild.problems.linear.options import L2_PATH, LinearConfig
from hogwild.problems.linear.problem import LinearProblem
from hogwild.problems.linear.rows import few_labels, labels_of, lengths_of, like_counts, numbered, row_weights
from hogwild.training.checkpoint import chosen_before
from hogwild.training.schedule import make_schedule, usual_schedule
from hogwild.training.step_search import Probe

HELD_OUT = 0.2  # share of the training rows, if none are held out already
FEW = 1_000_000  # most entries (times classes) of data whose rows are each held out once
FEW_ROWS = 20_000  # most rows of such data: of more a fifth is enough to judge by
VISITS = 100_000  # visits of rows by a candidate on such data
MOST_EPOCHS = 100  # most epochs of a candidate on such data
EPOCHS = 10  # most epochs of a candidate on larger data
SCALED_PATH = L2_PATH[4:12:3]  # penalties that tell whether rows are better of length one
SCALED_ENTRIES = 100_000  # entries of the sample that tells it
STEEPEST = 4.0  # most of a step times a typical row's squared length: the log loss has a curvature of 1/4 at most
LOOKS = (0.125, 0.25, 0.5)  # shares of the epochs after which the better half of candidates with several lanes goes on
NEAR = 0.5  # paired standard errors above the lowest held-out metric within which the strongest penalty wins
EQUAL = 1e-4  # share of the lowest metric by which candidates may differ and are equal
BY_ERROR = ("hinge", "perceptron")  # losses whose candidates are judged by the share of errors

Solution = tuple[np.ndarray, np.ndarray]  # weights and intercepts
Penalties = Callable[[float], tuple[float, float]]  # l1 and l2 of a strength
Report = Callable[[int, int], None]  # steps done, and how many there are


@dataclass(frozen=True)
class L2Choice:
    """The penalty that was chosen, and by what.

    Attributes
    ----------
    l2 : float
    path : list of dict
        ``l2``, ``step``, ``held_out_loss`` and ``epochs`` of each candidate, by ascending penalty, and with the losses
        of ``BY_ERROR`` its ``held_out_error``. The loss of one that diverged is None, and so is the step of a schedule
        that has its own, and of exact fits.
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
        Seconds that it took; in a run without those in which kernels were compiled meanwhile.
    normalize : str
        The scale of rows, which belongs to the choice where it is "auto".
    name : str
        The option that was chosen.
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
    normalize: str = "none"
    name: str = "l2"

    @property
    def fields(self) -> dict[str, Any]:
        """What the first row of the run says: the held-out losses are of these fits, before that on all rows."""
        names = ("path", "seconds", "rows", "held_out", "epochs", "folds", "rounds")
        return {f"l2_{name}": getattr(self, name) for name in names}

    @property
    def metric(self) -> str:
        """The field of the path that the choice goes by: ``held_out_loss`` or, if there is one, another."""
        return next((name for name in reversed(self.path[0]) if name.startswith("held_out_")), "held_out_loss")

    def value(self, l2: float) -> float | None:
        """The metric of a penalty of the path; None if it is none, was left out before the end, or diverged."""
        ended = [each for each in self.path if (each["l2"], each["epochs"]) == (l2, self.epochs)]
        ended = [each for each in ended if each["held_out_loss"] is not None]
        return min(ended, key=lambda each: each["held_out_loss"])[self.metric] if ended else None


def settle_l2(
    config: TrainConfig,
    rows: Rows,
    resumed: str | Path | None = None,
    held: Rows | None = None,
    report: Report | None = None,
) -> tuple[TrainConfig, L2Choice | None]:
    """Return the config with the penalty that was chosen, and how.

    ``resumed`` is the directory of a checkpoint: what the run there has is not chosen again.
    """
    chosen = None
    path = None if config.l2_path == L2_PATH else config.l2_path or ()
    saved = chosen_before(resumed, "l2", "normalize", path=path)
    if saved is None:
        chosen = choose_l2(config, rows, held, report=report)
        saved = {"l2": chosen.l2, "normalize": chosen.normalize}
    if config.normalize != "auto":
        saved["normalize"] = config.normalize
    return config.settled(l2_path=None, **saved), chosen


def choose_l2(
    config: TrainConfig,
    rows: Rows,
    held: Rows | None = None,
    *,
    penalties: Penalties | None = None,
    exact: bool | None = None,
    intercept: float = 0.0,
    report: Report | None = None,
) -> L2Choice:
    """Return the best of ``config.l2_path`` for these training rows.

    Parameters
    ----------
    config : TrainConfig
    rows : Rows
    held : Rows, optional
        Rows to judge the candidates by, which are not among ``rows``.
    penalties : callable, optional
        Returns l1 and l2 of a value of the path. Default: the config's l1, and the value.
    exact : bool, optional
        Whether candidates may be optima. Default: if the run is meant to end at its optimum.
    intercept : float
        The intercepts that lanes start from.
    report : callable, optional
        Takes the number of steps done, and how many there are: penalties that are fitted, or epochs of lanes.

    Raises
    ------
    NoChoice
        If the part that is trained on lacks a class, the other one has no weight, or no candidate has a finite loss.
    UsageError
        If the candidates take too much memory.
    """
    began = time.perf_counter()
    refitted = held is None
    trades = config.exchange != "none"
    config = _alone(config, len(rows))
    rows = few_labels(rows)
    if config.normalize == "auto":
        config = config.settled(normalize=_normalize(config, rows))
    problem = LinearProblem.of(config, rows, "serial")
    if config.loss == "softmax" and len(problem.labels) == 2:
        config = config.settled(loss="log")
        problem = LinearProblem.of(config, rows, "serial")
    labels, classes, several = problem.labels, problem.classes, problem.multilabel
    meant = config.epochs >= LinearConfig.epochs  # fewer are meant to end early
    if exact is None:
        exact = meant and config.keep != "last"
    at: Penalties = penalties or (lambda l2: (config.l1, l2))
    exact = exact and held is None and are_few(rows, config.loss, at(1.0)[0], classes)
    rest = rows
    epochs = min(config.epochs, EPOCHS)
    divisions: Sequence[np.ndarray] = ()
    if held is None and (exact or (rows.nnz * classes <= FEW and len(rows) <= FEW_ROWS)):
        divisions = divide(rows.targets, 0 if several else len(labels), rows.nnz * classes)
        divisions = divisions if exact else divisions[:1]
        epochs = max(config.epochs, min(VISITS // len(rows), MOST_EPOCHS)) if meant else epochs
        judge = _Judge(problem, rows, divisions)
    else:
        if held is None:
            rest, held = rows.split(HELD_OUT, config.seed)
        judge = _Judge(problem, held)
    if len(labels) and not several and len(np.unique(rest.targets)) < len(labels):
        raise NoChoice("l2='auto': all rows of a class were held out: give another seed, or l2 as a number")
    if exact:
        epochs = 0
        path = ended = _optima(config, judge, report)
    else:
        path, ended = _lanes(config, rest, at, judge, intercept, epochs, report)
    best = _ranked(judge, ended)[0]
    if best.loss is None:
        advice = "scale the columns, or give l2" if exact else "give a smaller step, or adagrad"
        raise NoChoice(f"every candidate for l2 diverged, or no row held out has weight: {advice}")
    searches = trades or (config.loss == "softmax" and classes > 1)
    return L2Choice(
        best.l2,
        [each.fields(judge.by_error) for each in path],
        len(rest) - (judge.fewest if len(divisions) else 0),
        judge.fewest,
        epochs,
        time.perf_counter() - began,
        refitted,
        int(divisions[0].max()) + 1 if len(divisions) else 1,
        max(len(divisions), 1),
        None if searches else best.step,
        config.normalize,
    )


def _normalize(config: TrainConfig, rows: Rows) -> str:
    """``l2`` if each half of a sample of counts is better predicted by the other half's rows of length one.

    Candidates are optima, as lanes of rows of one length, whose columns are not scaled, need more epochs. Of several
    classes every other one stands against the rest: the answer is the same, and takes the time of two classes. Rows
    stay as they are with a loss that has a kink: on film reviews hinge makes .004 more errors of normalised ones.
    """
    if rows.table is not None or not LOSSES[config.loss].smooth or not like_counts(rows):
        return "none"
    labels = labels_of(rows.targets, config.loss, rows.table, sets=rows.labels)
    sample = rows.select(rows.spread(SCALED_ENTRIES)).compact()
    if len(labels):
        if sample.labels is None:
            codes = np.searchsorted(labels, sample.targets) % 2
        else:  # whether its first label stands at an odd place
            coded, sets = numbered(sample, labels, True)
            codes = sets.signs(coded).argmax(axis=1) % 2
        if np.bincount(codes, minlength=2).min() < 2:
            return "none"
        sample = sample.replace(targets=readonly(codes.astype(np.float32)), labels=None)
        labels = np.arange(2.0)
        config = config.settled(loss="log" if config.loss == "softmax" else config.loss)
    halves = divide(sample.targets, len(labels), ENTRIES, 2)
    tried = []
    for kind in ("none", "l2"):
        unit = unit_of(sample) if kind == "none" else 1.0
        one = config.settled(normalize=kind, l2_path=tuple(each * unit for each in SCALED_PATH))
        judge = _Judge(LinearProblem.of(one, sample, "serial"), sample, halves)
        tried.append(_ranked(judge, _optima(one, judge))[0])
    if tried[1].loss is None:
        return "none"
    near = tried[0].loss is not None and near_lowest([each.metrics for each in tried], judge.weights)[0]
    return "none" if near else "l2"


@dataclass(eq=False)
class _Tried:
    """A penalty, and what the rows held out say of its model."""

    l2: float
    step: float | None = None
    epochs: int = 0
    loss: float | None = None  # mean, None if it is not finite
    error: float | None = None  # share of errors
    metrics: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))  # of each row, by which it is judged

    def fields(self, by_error: bool) -> dict[str, Any]:
        """What the path of an :class:`L2Choice` says."""
        fields = {"l2": self.l2, "step": self.step, "held_out_loss": self.loss, "epochs": self.epochs}
        return fields | ({"held_out_error": self.error} if by_error else {})


class _Judge:
    """Rows held out in parts, and what each of them says of models of ``problem`` that have not seen it.

    ``rows`` are all held out, or each by its fold of each of the ``divisions``; a row that is held out several times
    says the mean.
    """

    def __init__(self, problem: LinearProblem, rows: Rows, divisions: Sequence[np.ndarray] = ()) -> None:
        self.problem = problem
        self.rows = rows
        self.divisions = divisions
        self.by_error = problem.loss in BY_ERROR
        self._targets, self._sets = problem.encode(rows)
        self.weights = np.ones(len(rows)) if rows.weights is None else rows.weights.astype(np.float64)
        folds = [np.flatnonzero(fold_of == fold) for fold_of in divisions for fold in range(int(fold_of.max()) + 1)]
        self.parts = [(ids, rows.select(ids)) for ids in folds] or [(np.arange(len(rows)), rows)]
        times = np.zeros(len(rows))
        for ids, _ in self.parts:
            times[ids] += 1
        self.weights[times == 0] = 0.0
        self._times = np.maximum(times, 1)

    @property
    def fewest(self) -> int:
        """Number of rows of the first part."""
        return len(self.parts[0][0])

    @np.errstate(all="ignore")
    def judge(self, tried: _Tried, solutions: Sequence[Solution]) -> None:
        """Judge the model of each part."""
        problem = self.problem
        losses = np.zeros(len(self.weights))
        errors = np.zeros(len(self.weights))
        for (ids, part), (coef, intercept) in zip(self.parts, solutions, strict=True):
            p, targets = margins(part, coef, intercept, problem.normalize), self._targets[ids]
            if problem.multilabel:
                targets = self._sets.signs(targets)
                errors[ids] += ((p > 0) != (targets > 0)).mean(axis=1)
            elif problem.labels:
                errors[ids] += ~right_rows(p, targets)
            losses[ids] += loss_values(problem.loss, p, targets, problem.loss_param)
        shares = self.weights / self.weights.sum()  # no numbers if none has weight
        tried.metrics = ((errors if self.by_error else losses) / self._times).astype(np.float32)
        loss, error = (float((values / self._times) @ shares) for values in (losses, errors))
        finite = math.isfinite(loss)
        tried.loss = loss if finite else None
        tried.error = error if finite else None


def near_lowest(metrics: Sequence[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """Whether each candidate is at most ``NEAR`` standard errors of their difference above the lowest, (k,) bool.

    Parameters
    ----------
    metrics : sequence of k arrays of float32, shape (n,)
        What each row held out says of a candidate.
    weights : array of shape (n,)
    """
    shares = weights / weights.sum()
    means = [float(shares @ each) for each in metrics]
    lowest = int(np.argmin(means))

    def is_near(k: int) -> bool:
        apart = metrics[k].astype(np.float64) - metrics[lowest]
        above = means[k] - means[lowest]
        error = math.sqrt(float(np.square(shares) @ np.square(apart - above)))
        return above <= max(NEAR * error, EQUAL * abs(means[lowest]))

    return np.array([is_near(k) for k in range(len(means))])


def _ranked(judge: _Judge, path: Sequence[_Tried]) -> list[_Tried]:
    """The candidates, best first, by the rule of this module."""
    best = [each for each in path if each.loss is not None]
    if not best:
        return list(path)
    best = list(itertools.compress(best, near_lowest([each.metrics for each in best], judge.weights)))
    first = min(best, key=lambda each: each.loss or 0.0) if judge.by_error else best[-1]

    def rank(tried: _Tried) -> tuple[Any, ...]:
        error = tried.error if judge.by_error else None
        return tried is not first, tried.loss is None, error, tried.loss, -tried.l2

    return sorted(path, key=rank)


def _optima(config: TrainConfig, judge: _Judge, report: Report | None = None) -> list[_Tried]:
    """Penalties, ascending, and what is said of the optima without each fold."""
    problem, rows = judge.problem, judge.rows
    objective = problem.objective(rows, weights=row_weights(rows, config.class_weight))
    optima = fits_without(objective, problem.classes, config.intercept, judge.divisions)
    path: dict[float, _Tried] = {}

    def loss(l2: float) -> float:
        path[l2] = _Tried(l2)
        judge.judge(path[l2], optima(l2))
        value = path[l2].loss
        if report is not None:
            report(len(path), max(len(path), len(L2_PATH)))
        return math.inf if value is None else value

    if config.l2_path == L2_PATH:
        unit = _unit(config, rows)
        smallest = scaled_for(config, rows)[0].smallest_scale
        walked(loss, rounded(L2_PATH[-1] * unit), weakest_of(L2_PATH[0] * unit, smallest))
    else:
        for l2 in sorted(config.l2_path or (), reverse=True):
            loss(l2)
    return [path[l2] for l2 in sorted(path)]


def _unit(config: TrainConfig, rows: Rows) -> float:
    """What the penalties to choose among are multiples of: those of ``auto``, of a row's squared length."""
    return unit_of(rows) if config.l2_path == L2_PATH and config.normalize == "none" else 1.0


def _lanes(
    config: TrainConfig,
    rows: Rows,
    penalties: Penalties,
    judge: _Judge,
    intercept: float,
    epochs: int,
    report: Report | None,
) -> tuple[list[_Tried], list[_Tried]]:
    """Candidates that are trained side by side, by ascending strength, and those of them that went on to the end."""
    if config.loss == "softmax":
        config = config.settled(loss="log")
    unit = _unit(config, rows)
    strengths = [each if unit == 1.0 else rounded(each * unit) for each in config.l2_path or ()]
    coordinates, _ = scaled_for(config, rows)
    rows = coordinates.rows(rows)
    l1, l2 = penalties(strengths[-1])
    problem = LinearProblem.of(config.settled(l1=l1, l2=l2), rows, "serial")
    arrays = problem.row_arrays(rows, config.class_weight)
    weighted = rows.replace(weights=arrays["weights"] if arrays["weights"].size else None)

    steps: Sequence[float | None] = [config.step] * len(strengths)
    if config.schedule != "optimal" and config.step is None:
        most = _steepest(config, rows)

        def probe(strength: float) -> float:
            l1, l2 = penalties(strength)
            return min(Probe(config.settled(l1=l1, l2=l2), weighted, 1 / PROBED).search(), most)

        steps = steps_between(probe, strengths)
    path = [_Tried(l2, step) for l2, step in zip(strengths, steps)]
    labels = range(problem.classes) if problem.classes > 1 else [NONE]
    parts = len(judge.parts)
    fold_of = judge.divisions[0] if judge.divisions else None
    more: dict[str, Any] = {"decay": config.decay, "power": config.power, "dloss": problem.slope, "tol": config.tol}
    lanes = [
        Candidate(
            make_schedule(config.schedule, each.step, l2=penalties(each.l2)[1], **more),
            *penalties(each.l2),
            fold,
            label,
        )
        for each in path
        for fold in (range(parts) if fold_of is not None else [NONE])
        for label in labels
    ]
    order = Order.of(len(rows), config.order == "shuffled")
    candidates = Candidates(problem, rows, arrays, lanes, order, config.seed, fold_of, intercept)
    width = parts * len(labels)  # lanes of a penalty
    going = path

    def judged(place: int) -> None:
        firsts = range(place * width, (place + 1) * width, len(labels))
        models = (candidates.model(range(first, first + len(labels))) for first in firsts)
        judge.judge(going[place], [coordinates.outward(*model) for model in models])

    for share in (*LOOKS, 1.0) if width > 1 else (1.0,):
        until = int(share * epochs)
        if not until:
            continue
        while candidates.epoch < until:
            candidates.train(1 if report else until - candidates.epoch)
            if report is not None:
                report(candidates.epoch, epochs)
        for _ in in_order(range(len(going)), judged):
            pass
        for each in going:
            each.epochs = until
        if share < 1.0:  # the better half goes on
            better = _ranked(judge, going)[: -(-len(going) // 2)]
            places = [k for k, each in enumerate(going) if each in better]
            candidates.keep([place * width + lane for place in places for lane in range(width)])
            going = [going[place] for place in places]
    return path, going


def _steepest(config: TrainConfig, rows: Rows) -> float:
    """The largest step that a typical row stands; without a bound where it must suit the size of the targets."""
    loss = LOSSES[config.loss]
    if config.adagrad or (loss.targets == NUMBERS and not loss.steep):
        return math.inf
    if config.normalize != "none":
        return STEEPEST
    lengths = lengths_of(rows.select(rows.spread(SCALED_ENTRIES)))
    return STEEPEST / float(np.median(lengths[lengths > 0.0])) if lengths.any() else math.inf


def _alone(config: TrainConfig, n: int) -> TrainConfig:
    """The same objective and steps for one worker of this process."""
    return config.settled(
        schedule=usual_schedule(config.schedule, n, config.settles_schedule),
        discipline="serial",
        workers=1,
        host="threads",
        device="cpu",
        in_flight=None,
        exchange="none",
        link="",
        delay="round-robin",
    )
