"""Held-out loss of default fits, with l2 chosen and not, beside other programs' defaults and small grids.

    python scripts/defaults_others.py [SET ...] [--data DIR] [--seeds 5] [--splits 9] [--losses 2]

For each data set of ``scripts/defaults.py`` with classes: log loss (hinge: share of errors) on rows that nothing was
trained on or chosen by. ``hogwild`` is ``train(..., l2="auto")``, median and worst of the seeds; ``1e-5`` is the fixed
penalty of the library. The others are scikit-learn's estimators and, for two classes, Vowpal Wabbit: with their
defaults, and after ``/`` with the best of a grid of five penalties by a fifth of the training rows, trained on all.

The 30 to 400 test rows of small sets say little: by luck of the division a penalty ten times too weak wins. So below
that line are medians over several divisions into training and test rows, the same for all programs.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from defaults import SETS, Data, opened, parsed
from sklearn import linear_model, metrics, svm

import hogwild

GRID = (1e-2, 1e-1, 1.0, 1e1, 1e2)  # times the default penalty
VW_CONSTANT = 11650396  # index of its intercept
SMALL = 4000  # rows, up to which one division into training and test rows says little


class VowpalWabbit:
    """Two classes, with its defaults; ``strength`` is an l2 penalty and brings ten passes."""

    def __init__(self, loss: str, l2: float = 0.0) -> None:
        self.loss, self.l2 = loss, l2

    def fit(self, X: Any, y: np.ndarray, sample_weight: np.ndarray | None = None) -> None:
        from vowpalwabbit import Workspace

        self.classes_ = np.unique(y)
        bits = max(18, int(X.shape[1]).bit_length())
        weights = np.ones(len(y)) if sample_weight is None else sample_weight
        order = np.random.default_rng(0).permutation(len(y))
        with tempfile.TemporaryDirectory(prefix="hogwild-defaults-") as folder:
            path = Path(folder, "rows.vw")
            with path.open("w") as file:
                for k in order:
                    i, j = X.indptr[k], X.indptr[k + 1]
                    pairs = zip(X.indices[i:j].tolist(), X.data[i:j].tolist())
                    label = 1 if y[k] == self.classes_[-1] else -1
                    file.write(f"{label} {weights[k]:.9g} | " + " ".join(f"{u}:{x:.7g}" for u, x in pairs) + "\n")
            more = f" --l2 {self.l2} --passes 10 -k --cache_file {path}.bin" if self.l2 else ""
            solver = Workspace(f"--quiet --holdout_off -b {bits} --loss_function {self.loss} -d {path}{more}")
            self.coef = np.array([solver.get_weight(feature) for feature in range(X.shape[1])])
            self.intercept = solver.get_weight(VW_CONSTANT & (2**bits - 1))
            solver.finish()

    def decision_function(self, X: Any) -> np.ndarray:
        return np.asarray(X @ self.coef + self.intercept)

    def predict_proba(self, X: Any) -> np.ndarray:
        p = 1.0 / (1.0 + np.exp(-np.clip(self.decision_function(X), -50, 50)))
        return np.column_stack((1 - p, p))

    def predict(self, X: Any) -> np.ndarray:
        return self.classes_[(self.decision_function(X) > 0).astype(int)]


def others(loss: str, classes: int) -> dict[str, Callable[[float | None], Any]]:
    """Programs, made with a multiple of their default penalty; None: with their defaults."""
    found: dict[str, Callable[[float | None], Any]] = {}
    if loss == "log":
        found["LogisticRegression"] = lambda t: linear_model.LogisticRegression(C=1 / (t or 1.0))
        found["SGDClassifier"] = lambda t: linear_model.SGDClassifier(
            loss="log_loss", alpha=1e-4 * (t or 1.0), random_state=0
        )
    else:
        found["LinearSVC"] = lambda t: svm.LinearSVC(C=1 / (t or 1.0))
        found["SGDClassifier"] = lambda t: linear_model.SGDClassifier(alpha=1e-4 * (t or 1.0), random_state=0)
    if classes == 2:
        name = "logistic" if loss == "log" else "hinge"
        found["VW"] = lambda t: VowpalWabbit(name, 1e-6 * t if t else 0.0)
    return found


def score(model: Any, test: Data, loss: str, labels: Sequence[float]) -> float:
    """Log loss, or the share of errors."""
    if loss == "log":
        return float(metrics.log_loss(test.y, model.predict_proba(test.X), labels=labels, sample_weight=test.weights))
    return float(1.0 - metrics.accuracy_score(test.y, model.predict(test.X), sample_weight=test.weights))


def fitted(make: Callable[[float | None], Any], penalty: float | None, train: Data) -> Any:
    model = make(penalty)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(train.X, train.y, sample_weight=train.weights)
    return model


def part(data: Data, rows: np.ndarray) -> Data:
    return data._replace(X=data.X[rows], y=data.y[rows], weights=None if data.weights is None else data.weights[rows])


def both(
    make: Callable[[float | None], Any], train: Data, test: Data, loss: str, labels: Sequence[float]
) -> tuple[float, float]:
    """Scores with the defaults and after the grid; infinite where it diverges, as they do on unscaled data."""
    try:
        usual = score(fitted(make, None, train), test, loss, labels)
        held = np.random.default_rng(7).random(train.X.shape[0]) < 0.2
        rest, own = part(train, ~held), part(train, held)
        tried = [(score(fitted(make, penalty, rest), own, loss, labels), penalty) for penalty in GRID]
        return usual, score(fitted(make, min(tried)[1], train), test, loss, labels)
    except ValueError:
        return math.inf, math.inf


class Scores(NamedTuple):
    """What one division into training and test rows says."""

    own: list[float]  # by seed
    chosen: list[float]  # l2 by seed
    seconds: list[float]
    fixed: float
    others: dict[str, tuple[float, float]]


def measured(loss: str, train: Data, test: Data, seeds: int) -> Scores:
    labels = np.unique(train.y)
    rows = hogwild.Rows.from_scipy(train.X, train.y, weights=train.weights)
    options = {"loss": "softmax" if loss == "log" and len(labels) > 2 else loss, **train.options}
    found, chosen, seconds = [], [], []
    for seed in range(seeds):
        began = time.perf_counter()
        try:
            run = hogwild.train(rows, seed=seed, **options | {"l2": "auto"})
        except hogwild.HogwildError:  # a class of one row: then the command takes 1e-5, too
            run = hogwild.train(rows, seed=seed, **options)
        found.append(score(run.finish(), test, loss, labels))
        chosen.append(run.config.l2)
        seconds.append(time.perf_counter() - began)
    fixed = score(hogwild.train(rows, seed=0, **options).finish(), test, loss, labels)
    rivals = {each: both(make, train, test, loss, labels) for each, make in others(loss, len(labels)).items()}
    return Scores(found, chosen, seconds, fixed, rivals)


def told(name: str, loss: str, all_scores: list[Scores]) -> str:
    """One line of the table: scores of a division, and medians of several."""
    own = [statistics.median(each.own) for each in all_scores]
    first = all_scores[0]
    spread = f"{min(first.own):7.4f} {own[0]:7.4f} {max(first.own):7.4f}"
    if len(all_scores) > 1:
        spread = f"{len(all_scores):2} splits {statistics.median(own):7.4f}       "
    rivals = {
        name: [statistics.median(each.others[name][k] for each in all_scores) for k in (0, 1)] for name in first.others
    }
    best = min(usual for usual, _ in rivals.values())
    said = "  ".join(f"{each} {usual:.4f}/{tuned:.4f}" for each, (usual, tuned) in rivals.items())
    fixed, over = statistics.median(each.fixed for each in all_scores), statistics.median(own) - best
    about = f"{statistics.median(first.chosen):8.1g} {statistics.median(first.seconds):6.2f} s"
    return f"{name:26} {loss:6} {spread} {about}  1e-5 {fixed:.4f}  {said}  over the best {over:+.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--splits", type=int, default=9, help="divisions of small sets")
    parser.add_argument("--losses", type=int, default=2, help="1: only log loss")
    asked = parsed(parser)
    print(f"{'set':26} {'loss':6} {'best':>7} {'median':>7} {'worst':>7} {'l2':>8}  seconds")
    for name in asked.sets:
        train, test = opened(name, asked.data)
        small = name in SETS and len(train.y) + len(test.y) <= SMALL
        for loss in ("log", "hinge")[: asked.losses] if train.task == "classes" else ():
            scores = [measured(loss, train, test, asked.seeds)]
            print(told(name, loss, scores), flush=True)
            if small and asked.splits > 1:
                for split in range(1, asked.splits):
                    scores.append(measured(loss, *opened(name, None, split), seeds=1))
                print(told(name, loss, scores), flush=True)


if __name__ == "__main__":
    main()
