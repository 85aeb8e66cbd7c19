"""What ``partial_fit`` keeps from batch to batch, so that a batch costs what is in it and not the width of the model.

The one decision: nothing here passes over all weights. Degrees are counted as rows arrive, and ``N / d_u`` is brought
up to date for the features of the batch only; the weights lie in one array that a batch changes in place and of which
``coef_`` is a view. With 2^20 hashed features that is most of the time of a batch of a thousand short texts.

The first ``ENOUGH`` rows are kept until there are so many, whatever the batches: the problem is posed on them, and the
step of ``auto`` tried, from where it all began. (Until then it is one over the mean squared length of those that were,
with their intercept, so that no row moves its own margin much further than it asks for.) It falls as
``step / (1 + step alpha t)`` (Bottou 2012), t rows later, whatever the penalty: nobody looks whether a stream stalls. A
model may be asked after any batch, so each ends with ``COOL`` of its rows at a small share of the step: without it the
noise of the last rows moves the accuracy on hashed film reviews by several points from batch to batch, as it does with
scikit-learn's.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from hogwild.data.examples import EMPTY, Rows
from hogwild.data.order import Order
from hogwild.data.picked import joined
from hogwild.errors import TrainingError
from hogwild.estimators.crew import Crew, Solo, Step
from hogwild.estimators.descent import mean_square, try_steps
from hogwild.estimators.gauge import mean_weight
from hogwild.estimators.options import Options
from hogwild.estimators.posing import loss_here, problem_of
from hogwild.estimators.steps import Steps
from hogwild.kernels.rows import count_features
from hogwild.probe import HIGHEST
from hogwild.problems.linear import LinearProblem, aligned
from hogwild.training import tail_share

ENOUGH = 256  # rows, at least, on which the problem is posed and steps are tried
MOST = 2_048  # of a batch that are kept with those before
COOL, COOLER = 0.25, 0.1  # share of a batch that ``auto`` passes over last, and its share of the step


class Diverged(TrainingError):
    """Weights of a stream are not finite."""


class Stream:
    """The state of a model that learns batch by batch.

    Parameters
    ----------
    width, classes : int
        Features, and classes; 0 for real targets.
    before : int
        Rows that ``fit`` had visited, for the schedules that go by their number.
    """

    def __init__(self, width: int, classes: int, before: int = 0) -> None:
        self.width, self.classes, self.before = width, classes, before
        self.problem: LinearProblem | None = None
        self.flat: np.ndarray | None = None  # the parameters that learn
        self.mean: np.ndarray | None = None  # and, with average, those that are shown
        self.shown: tuple[Any, Any] = (None, None)  # the estimator's coef_ and intercept_: views of flat
        self.seed: int | None = None
        self.seen = self.batches = self.averaged = 0  # rows, batches, and those in the mean
        self.step: float | None = None  # found by trial,
        self.since = 0  # rows before those of the batch it was found with
        self.first: Rows | None = None  # rows that it is going to be found on,
        self.origin: np.ndarray | None = None  # and the parameters before them, if not zeros
        self.share = 0.0  # of the step that an intercept takes
        self.degrees = np.zeros(width, dtype=np.int32)
        self.rates = np.ones(width, dtype=np.float32)  # N / d_u as of the last batch with u in it

    def take(self, options: Options, rows: Rows) -> LinearProblem:
        """The problem of this batch, posed on the first rows, under the options of today."""
        posed = self.problem
        if posed is None or self.seen < ENOUGH:
            always = dataclasses.replace(options, intercept=True)  # it may be wanted later
            posed = problem_of(always, self._known(rows), self.classes, "serial", whole=False)
            posed = dataclasses.replace(posed, unit=False)  # another batch may have other values
            self.share = posed.intercept
        self.problem = dataclasses.replace(
            posed, loss=loss_here(options, self.classes), loss_param=options.loss_param, l1=options.l1, l2=options.l2,
            intercept=self.share if options.intercept else 0.0, passive=options.passive,
        )  # fmt: skip
        if self.flat is None:
            self.flat = aligned(self.problem.size)
        return self.problem

    def begin(self, flat: np.ndarray | None) -> None:
        """Go on from these parameters, which are not those that the stream left."""
        self.mean, self.averaged, self.first, self.origin = None, 0, None, flat
        self.restore(flat)

    def restore(self, flat: np.ndarray | None) -> None:
        """Take back the parameters, which a pickle has in ``coef_`` only."""
        self._raw[:] = 0 if flat is None else flat

    def learn(self, options: Options, rows: Rows, workers: int) -> None:
        """Pass over a batch once, of which :meth:`take` has made the problem.

        Raises
        ------
        Diverged
            If the weights are no finite numbers any more.
        """
        self._count(rows)
        seed, known = (self.seed or 0) + self.batches, None
        few = self.seen + len(rows) < ENOUGH
        if few or self._trying(options):
            known = self._known(rows)
        scale, offset, power = self._step(options, rows, known, seed)
        last = int(COOL * len(rows)) if options.learning_rate == "auto" else 0
        if not last:
            self._pass(options, rows, seed, workers, (scale, offset, power))
        else:
            ids = np.random.default_rng(seed).permutation(len(rows)) if options.shuffle else np.arange(len(rows))
            self._pass(options, rows.select(ids[:-last]), seed, workers, (scale, offset, power))
            step = scale * COOLER, offset + len(rows) - last, power
            self._pass(options, rows.select(ids[-last:]), seed, workers, step)
        self.first = known if few or self._trying(options) else None
        if self.first is None:
            self.origin = None
        self.batches += 1
        self.seen += len(rows)
        self._check(options, rows)
        if options.average and self.seen >= options.average:
            self._average()

    def _trying(self, options: Options) -> bool:
        """Whether a step has yet to be found."""
        return options.learning_rate == "auto" and self.step is None

    def _known(self, rows: Rows) -> Rows:
        """The first rows, with some of a batch; a copy where they are kept."""
        if self.first is None and len(rows) >= ENOUGH:
            return rows
        return joined([*([] if self.first is None else [self.first]), rows.block(0, min(len(rows), MOST))])

    def views(self) -> tuple[np.ndarray, np.ndarray]:
        """``coef_`` and ``intercept_`` as views of the parameters that learn, or of their mean."""
        p = self._posed
        parts = p.parameters(self._raw if self.mean is None else self.mean)
        coef = parts.coef.reshape(p.width, p.stride)[:, : p.classes].T if self.classes else parts.coef
        self.shown = coef, parts.intercept[: p.classes]
        return self.shown

    def _check(self, options: Options, rows: Rows) -> None:
        """The intercept is in every row and catches whatever is not finite; else the weights of the batch are asked."""
        p = self._posed
        parts = p.parameters(self._raw)
        found = parts.intercept
        if not p.intercept:
            found = parts.coef.reshape(p.width, p.stride)[np.unique(rows.indices[rows.begin[0] : rows.end[-1]])]
        if not np.isfinite(found).all():
            other = "" if options.learning_rate == "auto" else ", try an eta0 that is smaller, or learning_rate='auto'"
            said = f"diverged in batch {self.batches}: weights are not finite any more; scale the columns of X{other}"
            raise Diverged(said)

    def _average(self) -> None:
        """Move the tail mean over batches."""
        self.averaged += 1
        if self.mean is None:
            self.mean = aligned(len(self._raw))
        self.mean += np.float32(tail_share(self.averaged)) * (self._raw - self.mean)

    def _count(self, rows: Rows) -> None:
        """Bring degrees up to date, and ``N / d_u`` of the features in these rows."""
        count_features(rows.begin, rows.end, rows.indices, self.degrees)
        entries = rows.indices[rows.begin[0] : rows.end[-1]]
        self.rates[entries] = (self.seen + len(rows)) / self.degrees[entries]

    def _pass(self, options: Options, rows: Rows, seed: int, workers: int, step: Step) -> None:
        weights = EMPTY if rows.weights is None else rows.weights
        arrays = {"targets": rows.targets, "weights": weights, "scales": EMPTY, "rates": self.rates}
        order = Order.of(len(rows), options.shuffle)
        if workers == 1 and options.host == "threads":
            Solo(self._posed, order, rows, arrays, seed, self._raw).run(0, step)
            return
        racing = dataclasses.replace(self._posed, discipline="hogwild" if workers > 1 else "serial")
        crew = Crew(racing, order, rows, arrays, seed, min(workers, len(rows)), options.host, None, self._raw)
        try:
            crew.run(0, step)
            self._raw[:] = crew.parameters()
        finally:
            crew.close()

    def _step(self, options: Options, rows: Rows, known: Rows | None, seed: int) -> Step:
        if options.learning_rate != "auto":
            return Steps(options, 0.0, self._posed.slope, len(rows), options.alpha, self.before + self.seen).plan()
        step = self.step
        if step is None:
            assert known is not None
            if self.first is None and self.seen:  # after other schedules
                self.origin = self._raw.copy()
            if len(known) >= ENOUGH:
                step = try_steps(self._posed, known, seed, self.origin, cooler=COOLER, whole=False)
                self.step, self.since = step, self.seen
            else:
                length = mean_square(known) + mean_weight(known) * self._posed.intercept
                step = min(1 / length, 2.0**HIGHEST) if length > 0 else 1.0
        return Steps(options, step, self._posed.slope, len(rows), options.alpha, self.seen - self.since).plan()

    @property
    def _raw(self) -> np.ndarray:
        assert self.flat is not None
        return self.flat

    @property
    def _posed(self) -> LinearProblem:
        assert self.problem is not None
        return self.problem

    def __getstate__(self) -> dict[str, Any]:
        """Without what the estimator's ``coef_`` holds too."""
        return self.__dict__ | {"shown": (None, None)} | ({"flat": None} if self.mean is None else {})

    def __setstate__(self, state: dict[str, Any]) -> None:
        """With arrays that can be written: joblib maps those of a model it sends or loads."""
        for name, value in state.items():
            mapped = isinstance(value, np.ndarray) and not value.flags.writeable
            self.__dict__[name] = np.array(value) if mapped else value
