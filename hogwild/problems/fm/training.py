"""The step, the penalty of the factors and maybe the number of epochs, found by serial runs before the run itself.

Good steps differ by sixteen times between sets, and four times a good one diverges; penalties do not transfer between
sets either. Each trial trains a sample of the rows, epoch by epoch, until the loss on rows held out rises, and its
lowest loss counts, as it does in the run. The search starts at two points that are often near and goes, as long as the
loss falls, to four times the step or a quarter of it, and to stronger or weaker penalties, until nothing helps; of the
two the powers of two next to the better one's step are tried. On 15 kinds of sets of 4,000 to 33,000 rows this ends .06
% below a search of the step for every penalty, in two thirds of its epochs; from the first point alone it takes half of
them, and ends .02 % below, but is caught far from the best of some. Following penalties only upwards is .2 % worse, and
so is giving a trial up because others are ahead of it, for the best may be slow at first.

The strongest penalty is so strong that factors vanish where pairs do not matter, and then the model is as good as the
linear one: on such tables of 26,000 rows within .0001 of its log loss, in the mean of four below it. Three things made
it .001 worse. The penalty of the weights was a tenth of that of the factors; what suits it does not depend on them. The
step fell by a fifth an epoch only, so that a run may end in the noise of its last epochs; now two fifths are tried too.
And steps of four and eight may win by chance, as rows held out are few. At last twice the penalty of the weights is
tried: .0025 better where pairs count. On a real table (Employee access) all this gains .0001 field-aware and .003
plain.

Where trials train on all rows that are not held out, the run is on all rows, for as many epochs as the best trial: on
26,000 rows of categories a tenth more is worth .003 in log loss. Else the rows held out choose the run's epoch as well.
Penalties are for all rows, so on a sample they are stronger by as much as it is smaller: a feature's prior weighs as
much against the rows that hold it. The step for all rows is the sample's over the root of that ratio, for an epoch
makes so many more visits: on a click log the sample's own step ended .01 to .02 higher in log loss, for plain and
field-aware machines, at 270,000 and 900,000 rows.

A row or two held out say little of a step, and a row more can be one too many. So the run on few rows is tried as a
whole, with a smaller step until it does not diverge, before it begins.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.config import TrainConfig
from hogwild.data.order import Order
from hogwild.data.rows.container import Rows, drawn
from hogwild.errors import NoChoice
from hogwild.methods import LABEL_LOSSES
from hogwild.problems.fm.objective import FMObjective
from hogwild.problems.fm.options import PATH
from hogwild.problems.fm.problem import FMProblem, without_gaps
from hogwild.problems.linear.coordinates import Numbering
from hogwild.problems.linear.problem import aligned
from hogwild.training.checkpoint import chosen_before
from hogwild.training.keep import has_diverged
from hogwild.training.l2_choice import L2Choice
from hogwild.training.schedule import make_schedule
from hogwild.training.workers import InlineWorker

#: Step, penalty of the factors, decay of the step if it is not the usual, and times the usual penalty of the weights.
Settings = tuple[float, float, float | None, float]

BUDGET = 30_000_000  # nonzeros of an epoch of a trial, times the numbers of a feature and eight more
HELD_OUT = 0.1  # share of the rows that judge, if nobody says
FEWEST = 20_000  # rows of a trial, if there are as many: with half, 150,000 rows of 39 fields end .2 % higher
FEWEST_HELD = 5_000  # rows that judge it, or a quarter of those that it trains on
STARTS = (-1, 1), (1, 2)  # power of two of the step and place of the penalty, from which the search starts
MOVES = (2, 0), (-2, 0), (0, 1), (0, -1)  # of these that are tried
FEW = 2_000  # rows that a run is tried on before it begins, lest it diverge
FASTER = 0.6  # decay of the step that is tried at last, from there and from twice there
HEAVIER = 2.0  # times the usual penalty of the weights that is tried after that
LONGEST = 60  # powers of two that the step may fall at the start, while runs end worse than they began
HIGHEST = 1  # power of two of a step for rows of length one: with eight a margin of log loss no longer settles
SLACK = 10.0  # a trial must stay that far from what ends a run as diverged


def occurring(rows: Rows, numbering: Numbering | None) -> np.ndarray:
    """Numbers of the features that the rows hold, in the order of the user's numbers."""
    features = np.arange(rows.width) if numbering is None else np.argsort(numbering.features, kind="stable")
    held: np.ndarray = features[rows.degrees()[features] > 0]
    return held


def sampled(config: TrainConfig, rows: Rows) -> int:
    """Number of these rows that a trial trains on."""
    fields = 1 if rows.fields is None or not config.field_aware else len(np.unique(rows.fields))
    numbers = (fields * config.rank + 8) * rows.nnz / len(rows)
    return min(len(rows), max(int(BUDGET / max(numbers, 1.0)), FEWEST))


class Trials:
    """Short runs with one step and one penalty each, on a sample of the rows, judged by those ``held`` out of them.

    If none are, a tenth is held out here. ``tried`` has the lowest loss on rows held out, and the number of epochs
    until then, by settings.
    """

    def __init__(
        self, config: TrainConfig, rows: Rows, held: Rows | None, report: Callable[[str], None] | None = None
    ) -> None:
        rows = without_gaps(config, rows)
        if held is None:
            rows, held = _apart(config, rows)
        count = sampled(config, rows)
        sample = drawn(rows, count, config.seed)
        held = drawn(held, min(len(held), max(count // 4, FEWEST_HELD)), config.seed)
        numbering = Numbering.by_popularity(sample)
        self.config = config
        self.rows = numbering.rows(sample)
        self.held = held
        l2_factors = 1.0 if config.l2_factors is None else config.l2_factors  # any penalty has rates
        posed = FMProblem.of(config.settled(l2_factors=l2_factors), rows, "hogwild")
        self.problem = p = posed.narrowed(self.rows.width, numbering.popular)
        self.stronger = len(rows) / count
        self.rate = math.sqrt(self.stronger) if config.step is None else 1.0  # of the step over that for all rows
        self.report = report or (lambda text: None)
        self.tried: dict[Settings, tuple[float, int]] = {}
        lines, free = p.lines(self.rows, p.scale), dict.fromkeys(p.penalties, 0.0)
        self.objective: Any = p.objective(numbering.rows(held), FMObjective, lines=lines, **free)
        self.arrays = p.row_arrays(self.rows, None)
        self.start, self.flat = aligned(p.size), aligned(p.size)
        p.begin(self.start, occurring(self.rows, numbering), config, rows)
        self.before = self.judge(self.start)

    def judge(self, flat: np.ndarray) -> float:
        """The loss on the rows held out."""
        parameters = self.problem.parameters(flat)
        lines = parameters.coef.reshape(-1, self.problem.stride)
        return float(self.objective.evaluate(lines.T, parameters.intercept[:1])["loss"] or 0.0)

    def lowest(self, step: float, l2_factors: float, decay: float | None = None, heavier: float = 1.0) -> float:
        """The lowest loss on rows held out in a run with these ``Settings``; inf if it diverges."""
        settings = step, l2_factors, decay, heavier
        if settings not in self.tried:
            self.report(f"run {len(self.tried) + 1}, l2_factors {l2_factors:.2g}, step {step:g}")
            self.tried[settings] = self.run(*settings)
        return self.tried[settings][0]

    @np.errstate(all="ignore")  # parameters of a run that diverges
    def run(
        self, step: float, l2_factors: float, decay: float | None = None, heavier: float = 1.0
    ) -> tuple[float, int]:
        """Train with these; return what ``tried`` has of it."""
        c, p = self.config, self.problem
        p = dataclasses.replace(p, l2=p.l2 * heavier * self.stronger, l2_factors=l2_factors * self.stronger)
        self.flat[:] = self.start
        worker = InlineWorker(p, Order.of(len(self.rows)), self.rows, self.arrays, c.seed, self.flat)
        steps = make_schedule(c.schedule, step, decay=decay or c.falls_by, power=c.power, tol=c.tol)
        pull = max(p.l2 * p.scale, p.l2_factors) * p.scale / self.stronger / 2

        def bound(flat: np.ndarray) -> float:
            """Of the penalty, which shows if parameters diverge."""
            lines = p.parameters(flat).coef  # without sums of squared gradients
            return pull * float(np.einsum("i,i->", lines, lines))

        before = self.before + bound(self.start)
        best, last = math.inf, 0
        for epoch in range(c.epochs):
            worker.run(epoch, steps.plan(epoch))
            loss = self.judge(self.flat)
            better = loss < best
            counts = better or not c.patience  # else the run ends before this epoch
            if has_diverged(SLACK * (loss + bound(self.flat) if counts else loss), [before]):
                return math.inf, 0
            best, last = (loss, epoch) if better else (best, last)
            if epoch - last == c.patience and c.patience:
                break
        return best, last + 1

    def best(self, penalties: Sequence[float]) -> Settings:
        """The best step, unless it is given, and penalty among some that ascend, and the rest; see the module."""
        given = self.config.step
        first, second = ((power, min(place, len(penalties) - 1)) for power, place in STARTS)
        highest = HIGHEST if self.config.normalize == "l2" and not self.config.adagrad else math.inf

        def value(at: tuple[int, int]) -> float:
            power, place = at
            if not 0 <= place < len(penalties):
                return math.inf
            if given is not None:
                return self.lowest(given, penalties[place]) if power == STARTS[0][0] else math.inf
            return self.lowest(2.0**power, penalties[place]) if power <= highest else math.inf

        def descended(best: tuple[int, int]) -> tuple[int, int]:
            before = None
            while best != before:
                before = best
                for power, place in MOVES:
                    while value(near := (best[0] + power, best[1] + place)) < value(best):
                        best = near
            return best

        while given is None and value(first) > self.before and first[0] > STARTS[0][0] - LONGEST:
            first = first[0] - 2, first[1]
        best = min(descended(first), descended(second), key=value)
        power, place = min(best, (best[0] - 1, best[1]), (best[0] + 1, best[1]), key=value)
        step, l2_factors = 2.0**power if given is None else given, penalties[place]
        best_of, c = partial(min, key=lambda settings: self.lowest(*settings)), self.config
        end: Settings = step, l2_factors, None, 1.0
        if given is None and c.l2_factors is None and c.decay is None and c.schedule == "epoch":
            end = best_of([end, (step, l2_factors, FASTER, 1.0), (2 * step, l2_factors, FASTER, 1.0)])
        return end if c.l2 is not None else best_of([end, (*end[:3], HEAVIER)])

    def path(self) -> list[dict[str, Any]]:
        """What was tried, by ascending penalty and step, as fields of a row; steps are for all rows."""
        tried = [(l2, step / self.rate, *run) for (step, l2, *_), run in self.tried.items()]
        names = "l2", "step", "held_out_loss", "best_epoch"
        path = [dict(zip(names, each)) | {"epochs": self.config.epochs} for each in sorted(tried)]
        return [each | {"held_out_loss": None} if math.isinf(each["held_out_loss"]) else each for each in path]


def settle(
    config: TrainConfig,
    rows: Rows,
    resumed: str | Path | None,
    held: Rows | None,
    report: Callable[[str], None] | None = None,
) -> tuple[TrainConfig, L2Choice | None]:
    """Return the config with the penalty of the factors that does best, maybe with its epochs, and how it was chosen.

    ``resumed`` is the directory of a checkpoint: what the run there has is not chosen again.
    """
    if saved := chosen_before(resumed, "l2", "l2_factors", "decay", "epochs", "keep"):
        if saved["keep"] != config.keep:  # which is the last epoch of a run on all rows
            config = on_all(config, saved["epochs"])
        given = {name: value for name in ("l2", "decay") if (value := getattr(config, name)) is not None}
        chosen = {name: saved[name] for name in ("l2", "l2_factors", "decay")}
        return config.settled(**chosen | given), None
    began = time.perf_counter()
    trials = Trials(config, rows, held, report)
    step, l2_factors, decay, heavier = best = trials.best([each / len(rows) * trials.problem.units[1] for each in PATH])
    if math.isinf(trials.lowest(*best)):
        other = ", or adagrad" * (not config.adagrad)
        raise NoChoice(f"every candidate for l2_factors diverged: give a smaller step{other}")
    sizes = len(trials.rows), len(trials.held), config.epochs
    settled = config.settled(l2=trials.problem.l2 * heavier, l2_factors=l2_factors, decay=decay or config.decay)
    if held is None and trials.stronger == 1.0 and config.keep != "last":
        settled = on_all(settled, trials.tried[best][1])
    step = steady(settled, rows, step / trials.rate)
    seconds = time.perf_counter() - began
    return settled, L2Choice(l2_factors, trials.path(), *sizes, seconds, held is None, step=step, name="l2_factors")


def on_all(config: TrainConfig, epochs: int) -> TrainConfig:
    """The config of a run on all rows for as many epochs."""
    return config.settled(epochs=epochs, keep="last", patience=0)


def steady(config: TrainConfig, rows: Rows, step: float) -> float:
    """The step, or a part of it with which a run on all of few rows does not diverge."""
    if config.step is None and len(rows) <= FEW:
        trials = Trials(config.settled(patience=0), rows, rows)
        while math.isinf(trials.lowest(step, config.l2_factors or 0.0)) and step > 2.0**-LONGEST:
            step /= 4
    return step


def _apart(config: TrainConfig, rows: Rows) -> tuple[Rows, Rows]:
    """Rows to train on and rows to judge by; the same ones if there is one, or one class would be left."""
    if len(rows) > 1:
        rest, judges = rows.split(max(HELD_OUT, 1 / len(rows)), config.seed)
        if config.loss not in LABEL_LOSSES or rest.targets.min() < rest.targets.max():
            return rest, judges
    return rows, rows
