"""The state of ``partial_fit`` between batches, such that a batch costs its own size and not the width of the model.

Nothing here passes over all weights. Degrees are counted as rows arrive, and ``N / d_u`` is updated for the features of
the batch only; the weights lie in one array that a batch changes in place and of which ``coef_`` is a view. With 2^20
hashed features this saves most of the time of a batch of a thousand short texts.

The first ``ENOUGH`` rows are kept until they are complete, whatever the batches: the problem is posed on them, and the
step of ``auto`` tried, from the initial parameters. (Until then the step is one over the mean squared length of the
rows so far, with their intercept, so that no row moves its own margin much further than it asks for.) It falls as
``step / (1 + step alpha t)`` (Bottou 2012), t rows later, whatever the penalty: nothing detects that a stream stalls. A
model may be used after any batch, so each batch ends with ``COOL`` of its rows at a small share of the step: without it
the noise of the last rows moves the accuracy on hashed film reviews by several points from batch to batch, as it does
with scikit-learn's.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from hogwild.data.order import Order
from hogwild.data.rows.container import Rows, joined
from hogwild.data.rows.counts_kernel import count_features
from hogwild.data.tables.plan import shown
from hogwild.errors import TrainingError
from hogwild.estimators.arrays import converted, loss_here, mean_weight, problem_of
from hogwild.estimators.fit import racing, schedule_of, try_steps
from hogwild.estimators.options import Options
from hogwild.problems.linear.problem import LinearProblem, aligned
from hogwild.training.schedule import Step, move_mean
from hogwild.training.step_search import HIGHEST, mean_square
from hogwild.training.workers import InlineWorker

ENOUGH = 256  # fewest rows on which the problem is posed and steps are tried
MOST = 2_048  # most rows of a batch that are kept with those before
SAMPLED = 64  # rows that tell whether a column is far larger than the others:
LARGE, AWAY = 1000.0, 30.0  # so many times these together in mean square, the latter of columns away from zero
COOL, COOLER = 0.25, 0.1  # share of a batch that ``auto`` takes last, and the factor on its step


class Diverged(TrainingError):
    """The weights of a stream are not finite."""


def far_larger(rows: Rows, names: np.ndarray | None) -> str:
    """What to say of columns beside which steps that suit the rows teach next to nothing of the others; often nothing.

    Each column's mean square is held against the sum of those of all smaller ones, if these are as many and fill
    an entry of each row, and where a column counts with its entries: rare ones are not small. Popular words do not come
    near, as they are among thousands.
    """
    some = rows.select(rows.evenly(SAMPLED)).compact()
    columns, of, count = np.unique(some.indices, return_inverse=True, return_counts=True)
    values = some.values.astype(np.float64)
    sums, squares = np.bincount(of, values), np.bincount(of, values * values)
    held = np.flatnonzero(squares)
    held = held[np.argsort(squares[held] / count[held], kind="stable")]
    squares, count = squares[held], count[held]
    half = max(len(held) - len(held) // 2, int(np.searchsorted(np.cumsum(count), len(some))) + 1)
    factors = squares[half:] / len(some) / np.cumsum(squares / count)[half - 1 : -1]
    away = np.square(sums[held[half:]]) > len(some) * squares[half:] / 2  # from zero, further than they vary
    over = factors / np.where(away, AWAY, LARGE)
    if not over.max(initial=0.0) > 1.0:
        return ""
    first = int(over.argmax())
    far = np.sort(columns[held[half + first :]])
    large = shown([str(column if names is None else names[column]) for column in far])
    return (
        f"partial_fit learns little beside large columns of X: {large}. Their mean square is {factors[first]:,.0f} "
        "times that of all smaller columns together: scale the columns (StandardScaler), or use fit, which does"
    )


class Stream:
    """The state of a model that learns batch by batch.

    Parameters
    ----------
    width, classes : int
        Number of features, and of classes; 0 for real targets.
    before : int
        Number of rows that ``fit`` had visited, for schedules that depend on it.
    """

    def __init__(self, width: int, classes: int, before: int = 0) -> None:
        self.width = width
        self.classes = classes
        self.before = before
        self.problem: LinearProblem | None = None
        self.flat: np.ndarray | None = None  # the parameters that are trained
        self.mean: np.ndarray | None = None  # and, with average, those that coef_ shows
        self.shown: tuple[Any, Any] = (None, None)  # the estimator's coef_ and intercept_, views of flat
        self.seed: int | None = None
        self.seen = self.batches = self.averaged = 0  # rows, batches, and batches in the mean
        self.step: float | None = None  # found by trial,
        self.since = 0  # rows before the batch that it was found with
        self.first: Rows | None = None  # rows that it will be found on,
        self.origin: np.ndarray | None = None  # and the parameters before them, if not zeros
        self.share = 0.0  # share of the step that an intercept takes
        self.degrees = np.zeros(width, dtype=np.int32)
        self.rates = np.ones(width, dtype=np.float32)  # N / d_u at the last batch with u in it

    def take(self, options: Options, rows: Rows) -> LinearProblem:
        """The problem of this batch, posed on the first rows, under the current options."""
        posed = self.problem
        if posed is None or self.seen < ENOUGH:
            always = dataclasses.replace(options, intercept=True)  # it may be wanted later
            posed = problem_of(always, self.first_with(rows), self.classes, "serial", whole=False)
            posed = dataclasses.replace(posed, unit=False)  # another batch may have other values
            self.share = posed.intercept
        self.problem = dataclasses.replace(
            posed,
            loss=loss_here(options, self.classes),
            loss_param=options.loss_param,
            l1=options.l1,
            l2=options.l2,
            intercept=self.share if options.intercept else 0.0,
            passive=options.passive,
        )
        if self.flat is None:
            self.flat = aligned(self.problem.size)
        return self.problem

    def begin(self, flat: np.ndarray | None) -> None:
        """Continue from these parameters, which are not those that the stream left."""
        self.mean = None
        self.averaged = 0
        self.first = None
        self.origin = flat
        self.restore(flat)

    def restore(self, flat: np.ndarray | None) -> None:
        """Restore the parameters, which a pickle has in ``coef_`` only."""
        self._raw[:] = 0 if flat is None else flat

    def learn(self, options: Options, rows: Rows, workers: int) -> None:
        """Pass once over a batch whose problem :meth:`take` has made.

        Raises
        ------
        Diverged
            If the weights are no longer finite.
        """
        self._count(rows)
        seed = (self.seed or 0) + self.batches
        few = self.seen + len(rows) < ENOUGH
        first = self.first_with(rows) if few or self._trying(options) else None
        scale, offset, power = self._step(options, rows, first, seed)
        last = int(COOL * len(rows)) if options.learning_rate == "auto" else 0
        if not last:
            self._pass(options, rows, seed, workers, (scale, offset, power))
        else:
            ids = np.random.default_rng(seed).permutation(len(rows)) if options.shuffle else np.arange(len(rows))
            self._pass(options, rows.select(ids[:-last]), seed, workers, (scale, offset, power))
            step = scale * COOLER, offset + len(rows) - last, power
            self._pass(options, rows.select(ids[-last:]), seed, workers, step)
        self.first = first if few or self._trying(options) else None
        if self.first is None:
            self.origin = None
        self.batches += 1
        self.seen += len(rows)
        self._check(options, rows)
        if options.average and self.seen >= options.average:
            self._average()

    def _trying(self, options: Options) -> bool:
        """Whether a step is still to be found."""
        return options.learning_rate == "auto" and self.step is None

    def first_with(self, rows: Rows) -> Rows:
        """The first rows, with some of a batch; a copy while they are kept."""
        if self.first is None and len(rows) >= ENOUGH:
            return rows
        return joined([*([] if self.first is None else [self.first]), rows.block(0, min(len(rows), MOST))])

    def views(self) -> tuple[np.ndarray, np.ndarray]:
        """``coef_`` and ``intercept_`` as views of the trained parameters, or of their mean."""
        p = self._posed
        parts = p.parameters(self._raw if self.mean is None else self.mean)
        coef = parts.coef.reshape(p.width, p.stride)[:, : p.classes].T if self.classes else parts.coef
        self.shown = coef, parts.intercept[: p.classes]
        return self.shown

    def _check(self, options: Options, rows: Rows) -> None:
        """Check that the intercept, which every row moves, is finite; without one, check the batch's weights."""
        p = self._posed
        parts = p.parameters(self._raw)
        weights = parts.intercept
        if not p.intercept:
            weights = parts.coef.reshape(p.width, p.stride)[np.unique(rows.indices[rows.begin[0] : rows.end[-1]])]
        if not np.isfinite(weights).all():
            other = "" if options.learning_rate == "auto" else ", try an eta0 that is smaller, or learning_rate='auto'"
            raise Diverged(
                f"diverged in batch {self.batches}: weights are not finite any more; scale the columns of X{other}"
            )

    def _average(self) -> None:
        """Update the tail mean over batches."""
        self.averaged += 1
        if self.mean is None:
            self.mean = aligned(len(self._raw))
        move_mean(self.mean, self._raw, self.averaged)

    def _count(self, rows: Rows) -> None:
        """Update degrees, and ``N / d_u`` of the features in these rows."""
        count_features(rows.begin, rows.end, rows.indices, self.degrees)
        entries = rows.indices[rows.begin[0] : rows.end[-1]]
        self.rates[entries] = (self.seen + len(rows)) / self.degrees[entries]

    def _pass(self, options: Options, rows: Rows, seed: int, workers: int, step: Step) -> None:
        arrays = converted(rows, self.rates)
        order = Order.of(len(rows), options.shuffle)
        if workers == 1 and options.host == "threads":
            InlineWorker(self._posed, order, rows, arrays, seed, self._raw).run(0, step)
            return
        problem = dataclasses.replace(self._posed, discipline="hogwild" if workers > 1 else "serial")
        team = racing(problem, order, rows, arrays, seed, min(workers, len(rows)), options)
        try:
            team.reset(self._raw)
            team.run(0, step)
            self._raw[:] = team.parameters()
        finally:
            team.close()

    def _step(self, options: Options, rows: Rows, first: Rows | None, seed: int) -> Step:
        step = self.step or 0.0
        if options.learning_rate != "auto":
            visited = self.before + self.seen
            scale, offset, power = schedule_of(options, step, self._posed, len(rows), options.alpha).plan(0)
            return scale, offset + visited, power
        if self.step is None:
            assert first is not None
            if self.first is None and self.seen:  # after other schedules
                self.origin = self._raw.copy()
            if len(first) >= ENOUGH:
                step = try_steps(self._posed, first, seed, self.origin, cooler=COOLER, whole=False)
                self.step = step
                self.since = self.seen
            else:
                length = mean_square(first, first.weights) + mean_weight(first) * self._posed.intercept
                step = min(1 / length, 2.0**HIGHEST) if length > 0 else 1.0
        return schedule_of(options, step, self._posed, len(rows), options.alpha, self.seen - self.since).plan(0)

    @property
    def _raw(self) -> np.ndarray:
        assert self.flat is not None
        return self.flat

    @property
    def _posed(self) -> LinearProblem:
        assert self.problem is not None
        return self.problem

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what the estimator's ``coef_`` holds too."""
        return self.__dict__ | {"shown": (None, None)} | ({"flat": None} if self.mean is None else {})

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the arrays writable: joblib maps those of a model that it sends or loads."""
        for name, value in state.items():
            mapped = isinstance(value, np.ndarray) and not value.flags.writeable
            self.__dict__[name] = np.array(value) if mapped else value
