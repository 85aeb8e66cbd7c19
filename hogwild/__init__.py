"""Sparse models trained on every core at once, without locks.

    import hogwild

    run = hogwild.train((X, y), loss="log", epochs=10)  # X: scipy sparse or dense, y: labels
    for row in run:                                     # one dict of measurements per epoch
        print(row["epoch"], row["objective"])
    run.model.predict(X)

    run = hogwild.train(hogwild.open_ratings("ratings.csv"), problem="completion", rank=32)
    run.finish().recommend(["ann"], n=10)

    hogwild.HogwildClassifier(n_jobs=-1).fit(X, y).predict(X)  # in place of sklearn.linear_model.SGDClassifier

Names are imported when first used, because torch, numba and scikit-learn cost seconds that reading
``hogwild.__version__`` should not. (Recht, Re, Wright, Niu: Hogwild!, NIPS 2011.)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hogwild.errors import HogwildError, HogwildWarning, InputError, OutputError, TrainingError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hogwild.config import TrainConfig
    from hogwild.data.graphs.container import Graph
    from hogwild.data.graphs.source import open_graph
    from hogwild.data.ratings.container import Ratings
    from hogwild.data.ratings.source import open_ratings
    from hogwild.data.rows.container import Rows
    from hogwild.data.rows.source import open_data
    from hogwild.data.tables.source import open_table
    from hogwild.estimators import (
        HogwildClassifier,
        HogwildClassifierCV,
        HogwildFactorizer,
        HogwildRegressor,
        HogwildRegressorCV,
    )
    from hogwild.exchanges.deepdist import serve
    from hogwild.machines.cluster import gather
    from hogwild.problems.completion.model import CompletionModel
    from hogwild.problems.cuts.model import Segmentation
    from hogwild.problems.fm.model import FMModel
    from hogwild.problems.linear.model import LinearModel
    from hogwild.problems.module.model import ModuleModel
    from hogwild.problems.module.training import train_module
    from hogwild.training.run import Run, train

    load: Callable[[str | Path], LinearModel | CompletionModel | FMModel | Segmentation | ModuleModel]

__version__ = "0.1.0"

__all__ = [
    "CompletionModel",
    "FMModel",
    "Graph",
    "HogwildClassifier",
    "HogwildClassifierCV",
    "HogwildError",
    "HogwildFactorizer",
    "HogwildRegressor",
    "HogwildRegressorCV",
    "HogwildWarning",
    "InputError",
    "LinearModel",
    "ModuleModel",
    "OutputError",
    "Ratings",
    "Rows",
    "Run",
    "Segmentation",
    "TrainConfig",
    "TrainingError",
    "UsageError",
    "__version__",
    "gather",
    "load",
    "open_data",
    "open_graph",
    "open_ratings",
    "open_table",
    "serve",
    "train",
    "train_module",
]

_PLACES = {
    "CompletionModel": ("hogwild.problems.completion.model", "CompletionModel"),
    "FMModel": ("hogwild.problems.fm.model", "FMModel"),
    "Graph": ("hogwild.data.graphs.container", "Graph"),
    "HogwildClassifier": ("hogwild.estimators", "HogwildClassifier"),
    "HogwildClassifierCV": ("hogwild.estimators", "HogwildClassifierCV"),
    "HogwildFactorizer": ("hogwild.estimators", "HogwildFactorizer"),
    "HogwildRegressor": ("hogwild.estimators", "HogwildRegressor"),
    "HogwildRegressorCV": ("hogwild.estimators", "HogwildRegressorCV"),
    "LinearModel": ("hogwild.problems.linear.model", "LinearModel"),
    "ModuleModel": ("hogwild.problems.module.model", "ModuleModel"),
    "Ratings": ("hogwild.data.ratings.container", "Ratings"),
    "Rows": ("hogwild.data.rows.container", "Rows"),
    "Run": ("hogwild.training.run", "Run"),
    "Segmentation": ("hogwild.problems.cuts.model", "Segmentation"),
    "TrainConfig": ("hogwild.config", "TrainConfig"),
    "gather": ("hogwild.machines.cluster", "gather"),
    "load": ("hogwild.model_file", "load_model"),
    "open_data": ("hogwild.data.rows.source", "open_data"),
    "open_graph": ("hogwild.data.graphs.source", "open_graph"),
    "open_ratings": ("hogwild.data.ratings.source", "open_ratings"),
    "open_table": ("hogwild.data.tables.source", "open_table"),
    "serve": ("hogwild.exchanges.deepdist", "serve"),
    "train": ("hogwild.training.run", "train"),
    "train_module": ("hogwild.problems.module.training", "train_module"),
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'hogwild' has no attribute {name!r}")
    module, attribute = _PLACES[name]
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value  # cached for later look-ups
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
