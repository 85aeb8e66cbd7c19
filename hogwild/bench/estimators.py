"""Whole fits of ``HogwildClassifier`` beside scikit-learn's ``SGDClassifier``, from call to return.

Both use their defaults (hinge, l2, alpha 1e-4) except ``n_jobs`` and the seed, which differs in every round. Both stop
by themselves, so the result stands beside the time: the hinge loss on held-out rows, summed over classes.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from hogwild.bench.rounds import BenchPlan, Row, interleaved, ratio
from hogwild.data.rows.container import Rows
from hogwild.errors import InputError

MOST_CLASSES = 1000
OURS, THEIRS = "HogwildClassifier", "SGDClassifier"


def measure(plan: BenchPlan, train: Rows, test: Rows) -> Iterator[Row]:
    """Yield seconds, held-out loss and accuracy of a fit of each.

    Raises
    ------
    InputError
        If the targets are no classes.
    """
    from sklearn.linear_model import SGDClassifier

    from hogwild.estimators.classifier import HogwildClassifier

    classes = len(np.unique(train.targets))
    if (train.targets % 1 != 0).any() or classes > MOST_CLASSES:
        raise InputError("a classifier needs classes; the targets are other numbers")
    data = train.to_scipy()
    held_out = test.to_scipy()
    jobs = plan.workers[-1]
    fits = {
        OURS: _Fits(HogwildClassifier(n_jobs=jobs), data, held_out),
        THEIRS: _Fits(SGDClassifier(n_jobs=jobs if classes > 2 else None), data, held_out),
    }
    times = interleaved(fits, plan.repeats, lambda text: plan.note(f"estimators, {text}"))
    for method, fit in fits.items():
        yield times[method].fields() | {
            "classes": classes,
            "method": method,
            "workers": fit.model.n_jobs,
            "held_out": float(np.median(fit.losses[1:])),
            "accuracy": float(np.median(fit.scores[1:])),
            "ours_faster": ratio(times[method].seconds, times[OURS].seconds) if method == THEIRS else None,
        }


class _Fits:
    """One fit per call, each with another seed; the evaluation on held-out rows is not on the clock."""

    def __init__(self, model: Any, data: tuple[Any, np.ndarray], held_out: tuple[Any, np.ndarray]) -> None:
        self.model = model
        self._data = data
        self._held_out = held_out
        self.losses: list[float] = []
        self.scores: list[float] = []

    def __call__(self) -> float:
        self.model.set_params(random_state=len(self.losses))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about convergence: both have the same limit
            start = time.perf_counter()
            self.model.fit(*self._data)
            seconds = time.perf_counter() - start
        X, y = self._held_out
        margins, classes = self.model.decision_function(X), self.model.classes_
        if margins.ndim == 1:
            margins, classes = margins[:, None], classes[1:]
        signs = np.where(y[:, None] == classes, 1, -1)
        self.losses.append(float(np.maximum(0, 1 - signs * margins).sum(axis=1).mean()))
        self.scores.append(float(self.model.score(X, y)))
        return seconds
