"""How near the optimum a fit that nobody tuned ends, on data of many kinds, as lines of text.

    python scripts/defaults.py [SET ...] [--data DIR] [--seeds 3] [--losses 2]

For each data set and loss: the objective of a fit with default options over the certified optimum that
``scripts/defaults_optima.json`` holds (median and worst of the seeds), the run's own verdict where it is not "settled",
epochs and seconds. ``?`` marks an optimum that a fit passed by more than 0.1 %. Real data are read from DIR, which
holds one folder of SVMlight files a set.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import defaults_optima
import numpy as np
import scipy.sparse
from sklearn import datasets

import hogwild

LOSSES = {"classes": ("log", "hinge"), "numbers": ("squared-error", "huber"), "counts": ("poisson", "squared-error")}


class Data(NamedTuple):
    X: Any  # (n, width), dense or sparse
    y: np.ndarray  # (n,)
    task: str = "classes"  # a key of LOSSES
    weights: np.ndarray | None = None  # (n,)
    options: dict[str, Any] = {}  # noqa: RUF012  options of the fit that the set is about


def normal(n: int = 2000, width: int = 10, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Normal columns, and targets of a linear model with noise."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, width))
    return X, X @ random.normal(size=width) + random.normal(size=n), random


def sign(z: np.ndarray) -> np.ndarray:
    return np.where(z > np.median(z), 1.0, -1.0)


def year(task: str) -> Data:
    X, z, random = normal(width=5)
    X = np.column_stack((X, random.integers(1950, 2020, len(X))))
    z = z + 0.05 * (X[:, -1] - 1985)
    return Data(X, sign(z) if task == "classes" else z, task)


def moved(by: float, task: str = "classes") -> Data:
    X, z, _ = normal()
    return Data(X + by, sign(z) if task == "classes" else z, task)


def scaled(powers: np.ndarray) -> Data:
    X, z, _ = normal()
    return Data(X * 10.0**powers, sign(z))


def constant(value: float) -> Data:
    X, z, _ = normal(width=6)
    return Data(np.column_stack((X, np.full(len(X), value))), sign(z))


def rare() -> Data:
    X, z, _ = normal(20_000, 10)
    return Data(X, np.where(z >= np.sort(z)[-2], 1.0, -1.0))


def weighted(kind: str) -> Data:
    X, z, random = normal()
    weights = np.ones(len(X)) if kind == "one" else np.exp(2 * random.normal(size=len(X)))
    if kind == "one":
        weights[0] = 1e6  # a training row
    return Data(X, sign(z), weights=weights)


def duplicated() -> Data:
    X, z, random = normal(300)
    ids = np.repeat(np.arange(300), random.integers(1, 40, 300))
    return Data(X[ids], sign(z)[ids])


def separable(l2: float) -> Data:
    X, z, _ = normal()
    apart = np.abs(z) > 0.5
    return Data(X[apart] + 0.2 * np.sign(z[apart, None]), np.sign(z[apart]), options={"l2": l2})


def one_hot(columns: int, values: int, rate: float = 0.5, rows: int = 20_000) -> Data:
    """Rows of ``columns`` ones, each in a block of ``values`` categories whose popularity falls as 1 / rank."""
    random = np.random.default_rng(1)
    p = 1.0 / np.arange(1, values + 1)
    ids = random.choice(values, size=(rows, columns), p=p / p.sum()) + values * np.arange(columns)
    z = random.normal(size=columns * values)[ids].sum(axis=1) + random.logistic(size=rows)
    X = scipy.sparse.csr_matrix(
        (np.ones(ids.size), ids.ravel(), columns * np.arange(rows + 1)), (rows, columns * values)
    )
    return Data(X, np.where(z > np.quantile(z, 1 - rate), 1.0, -1.0))


def text_counts() -> Data:
    random = np.random.default_rng(2)
    p = 1.0 / np.arange(1, 3001)
    X = scipy.sparse.csr_matrix(random.poisson(60 * p / p.sum(), size=(3000, 3000)).astype(np.float64))
    z = X @ random.normal(size=3000) / 10
    return Data(X, sign(z + random.logistic(size=3000)))


def correlated() -> Data:
    X, z, random = normal()
    return Data(X @ (np.ones((10, 10)) + 0.1 * random.normal(size=(10, 10))), sign(z))


def wide() -> Data:
    X, z, _ = normal(60, 2000)
    return Data(X, sign(z))


def outliers() -> Data:
    X, z, random = normal()
    return Data(X, z + np.where(random.random(len(z)) < 0.02, 1000.0, 0.0), "numbers")


def counts() -> Data:
    X, z, random = normal()
    return Data(X, random.poisson(np.exp(np.clip(0.3 * z, -3, 3))).astype(np.float64), "counts")


def bundled(load: Callable[..., Any], task: str = "classes", standard: bool = False, **options: Any) -> Data:
    X, y = load(return_X_y=True, **options)
    y = y[:, 0] if y.ndim > 1 else y
    return Data((X - X.mean(axis=0)) / X.std(axis=0) if standard else X, y.astype(np.float64), task)


SETS: dict[str, Callable[[], Data]] = {
    "breast cancer": lambda: bundled(datasets.load_breast_cancer),
    "the same, standardised": lambda: bundled(datasets.load_breast_cancer, standard=True),
    "wine": lambda: bundled(datasets.load_wine),
    "digits": lambda: bundled(datasets.load_digits),
    "iris": lambda: bundled(datasets.load_iris),
    "diabetes": lambda: bundled(datasets.load_diabetes, "numbers"),
    "diabetes, unscaled": lambda: bundled(datasets.load_diabetes, "numbers", scaled=False),
    "linnerud": lambda: bundled(datasets.load_linnerud, "numbers"),
    "normal": lambda: moved(0.0),
    "normal, regression": lambda: moved(0.0, "numbers"),
    "a year among five": lambda: year("classes"),
    "a year, regression": lambda: year("numbers"),
    "shifted by 10": lambda: moved(10.0),
    "shifted by 10, regression": lambda: moved(10.0, "numbers"),
    "shifted by 100": lambda: moved(100.0),
    "all times 1e6": lambda: scaled(np.full(10, 6)),
    "all times 1e-6": lambda: scaled(np.full(10, -6)),
    "scales 1e-6 to 1e6": lambda: scaled(np.linspace(-6, 6, 10)),
    "a constant column of 100": lambda: constant(100.0),
    "one positive in 10,000": rare,
    "one weight of 1e6": lambda: weighted("one"),
    "weights lognormal": lambda: weighted("all"),
    "duplicated rows": duplicated,
    "separable": lambda: separable(1e-5),
    "separable, no penalty": lambda: separable(0.0),
    "ten ones a row": lambda: one_hot(10, 500),
    "ten ones, 1 % positive": lambda: one_hot(10, 500, 0.01),
    "word counts": text_counts,
    "correlated columns": correlated,
    "60 rows, 2,000 columns": wide,
    "outliers of 1000": outliers,
    "counts": counts,
}
REAL = {
    "rcv1": "rcv1/train.svm.gz rcv1/test.svm.gz",
    "20news": "20news/train.svm.gz 20news/test.svm.gz",
    "imdb": "imdb/train_counts.svm.gz imdb/test_counts.svm.gz",
    "a9a": "libsvm/a9a.gz",
    "w8a": "libsvm/w8a.gz",
    "mushrooms": "libsvm/mushrooms.gz",
    "amazon": "amazon-employee/train.svm.gz amazon-employee/test.svm.gz",
}


def opened(name: str, folder: Path | None, split: int = 0) -> tuple[Data, Data]:
    """Rows to train on and rows to test on, of a generated or bundled set by one of many divisions."""
    if name in SETS:
        data = SETS[name]()
        X = scipy.sparse.csr_matrix(data.X)
        held = np.random.default_rng(5 + split).random(X.shape[0]) < 0.2
        weights = [None if data.weights is None else data.weights[of] for of in (~held, held)]
        return data._replace(X=X[~held], y=data.y[~held], weights=weights[0]), data._replace(
            X=X[held], y=data.y[held], weights=weights[1]
        )
    assert folder is not None
    paths = [str(folder / path) for path in REAL[name].split()]
    found = datasets.load_svmlight_files(paths)
    for X in found[::2]:  # of which some of scikit-learn's estimators want 32 bits
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    if len(paths) == 1:
        held = np.random.default_rng(5).random(found[0].shape[0]) < 0.2
        found = [found[0][~held], found[1][~held], found[0][held], found[1][held]]
    return Data(found[0], found[1]), Data(found[2], found[3])


def measure(name: str, loss: str, train: Data, seeds: int) -> str:
    """One line of the table."""
    rows = hogwild.Rows.from_scipy(train.X, train.y, weights=train.weights)
    optimum = defaults_optima.stored()[f"{name}/{loss}"]
    found, verdicts, epochs, seconds = [], set(), [], []
    for seed in range(seeds):
        began = time.perf_counter()
        run = hogwild.train(rows, seed=seed, loss=loss, **train.options)
        run.finish()
        seconds.append(time.perf_counter() - began)
        if not math.isclose(run.history[0]["objective"], optimum["start"], rel_tol=1e-9):
            raise SystemExit(f"{name}: other data than scripts/defaults_optima.json was made for: record that again")
        row = run.history[-1]
        found.append(row["objective"])
        verdicts |= {row["verdict"]} - {"settled"}
        epochs.append(row["epoch"])
    least = min(optimum["objective"], *found)  # a fit may pass the solvers where data are badly scaled
    ratios = [value / least if least > 1e-12 else math.inf for value in found]
    mark = "?" if least < 0.999 * optimum["objective"] else " "
    facts = f"{statistics.median(ratios):9.4f} {max(ratios):9.4f}{mark} {statistics.median(epochs):4.0f}"
    said = f"  {min(verdicts)} ({len(verdicts)})" if verdicts else ""
    return f"{name:26} {loss:14} {facts} {statistics.median(seconds):7.2f}{said}"


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The arguments, with the names of the sets asked for, by default of all."""
    parser.add_argument("sets", nargs="*", help="names of sets; default: all")
    parser.add_argument("--data", type=Path, help="folder of real data")
    asked = parser.parse_args()
    known = [*SETS, *(REAL if asked.data else ())]
    if wrong := [name for name in asked.sets if name not in known]:
        parser.error(f"no set {wrong[0]!r}; there are {', '.join(known)}")
    asked.sets = asked.sets or known
    return asked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--losses", type=int, default=2, help="how many losses of each set")
    asked = parsed(parser)
    print(f"{'set':26} {'loss':14} {'over optimum':>9} {'worst':>7}  epochs seconds  verdict")
    for name in asked.sets:
        train, _ = opened(name, asked.data)
        for loss in LOSSES[train.task][: asked.losses]:
            print(measure(name, loss, train, asked.seeds), flush=True)


if __name__ == "__main__":
    main()
