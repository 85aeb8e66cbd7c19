"""Estimators: whole fits of ``HogwildClassifier`` beside scikit-learn's ``SGDClassifier``, from call to return.

Both use their defaults (hinge, l2, alpha 1e-4) except ``n_jobs`` and the seed, which differs in every round. Both stop
by themselves, so the result stands beside the time: the hinge loss on held-out rows, summed over classes.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from hogwild.bench.plan import BenchPlan
from hogwild.bench.rounds import interleaved, ratio
from hogwild.data.rows.container import Rows
from hogwild.errors import InputError

HELD = 1 / 11  # of the rows are held out
CLASSES = {"classes": 20, "rows": 12_500, "nnz": 150}  # a set the size of 20 newsgroups
TOYS = ("breast cancer", "digits", "wine")  # included in scikit-learn
OURS, THEIRS = "HogwildClassifier", "SGDClassifier"


def measure(plan: BenchPlan) -> Iterator[dict[str, Any]]:
    """Yield seconds, held-out loss and accuracy of a fit, on sets beyond the cache, of many classes, and small ones."""
    yield from _of_data(plan, "rcv1", *_parts(plan.open("rcv1")))
    yield from _of_data(plan, "20 classes", *_parts(plan.open("rcv1", **CLASSES)))
    for name in TOYS:
        yield from _of_data(plan, name, *_toy(name))
    if plan.rows is not None:
        from hogwild.data.rows.source import open_data

        plan.note(f"opening {plan.rows}")
        rows = open_data(plan.rows, cache=plan.cache)
        if (rows.targets % 1 != 0).any():
            raise InputError(f"{plan.rows}: its targets are no classes: expected whole numbers")
        yield from _of_data(plan, plan.rows, *_parts(rows))


def _parts(rows: Rows) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    """Return matrices and labels to train and to test on."""
    (X, y), (held, labels) = (part.to_scipy() for part in rows.split(HELD, seed=1))
    return X, y, held, labels


def _toy(name: str) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    from sklearn import datasets
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import scale

    X, y = getattr(datasets, f"load_{name.replace(' ', '_')}")(return_X_y=True)
    X, held, y, labels = train_test_split(scale(X), y, test_size=0.2, random_state=0)
    return X, y, held, labels


def _of_data(
    plan: BenchPlan, name: str, X: Any, y: np.ndarray, held: Any, labels: np.ndarray
) -> Iterator[dict[str, Any]]:
    from sklearn.linear_model import SGDClassifier

    from hogwild.estimators.classifier import HogwildClassifier

    jobs, classes = plan.workers[-1], len(np.unique(y))
    sides = {
        OURS: _Fits(HogwildClassifier(n_jobs=jobs), X, y, held, labels),
        THEIRS: _Fits(SGDClassifier(n_jobs=jobs if classes > 2 else None), X, y, held, labels),
    }
    times = interleaved(sides, plan.repeats, lambda text: plan.note(f"estimators, {name}, {text}"))
    for solver, side in sides.items():
        yield times[solver].fields() | {
            "data": name,
            "rows": X.shape[0],
            "features": X.shape[1],
            "classes": classes,
            "solver": solver,
            "n_jobs": side.model.n_jobs,
            "held_out": float(np.median(side.losses[1:])),
            "accuracy": float(np.median(side.scores[1:])),
            "ours_faster": ratio(times[solver].seconds, times[OURS].seconds) if solver == THEIRS else None,
        }


class _Fits:
    """One fit per call, each with another seed; the evaluation on held-out rows is not on the clock."""

    def __init__(self, model: Any, X: Any, y: np.ndarray, held: Any, labels: np.ndarray) -> None:
        self.model, self._data, self._held = model, (X, y), (held, labels)
        self.losses: list[float] = []
        self.scores: list[float] = []

    def __call__(self) -> float:
        self.model.set_params(random_state=len(self.losses))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about convergence: both have the same limit
            start = time.perf_counter()
            self.model.fit(*self._data)
            seconds = time.perf_counter() - start
        held, labels = self._held
        margins, classes = self.model.decision_function(held), self.model.classes_
        if margins.ndim == 1:
            margins, classes = margins[:, None], classes[1:]
        signs = np.where(labels[:, None] == classes, 1, -1)
        self.losses.append(float(np.maximum(0, 1 - signs * margins).sum(axis=1).mean()))
        self.scores.append(float(self.model.score(held, labels)))
        return seconds
