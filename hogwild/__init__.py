"""Sparse models trained on every core at once, without locks.

    import hogwild

    run = hogwild.train((X, y), loss="log", epochs=10)  # X: scipy sparse or dense, y: labels
    for row in run:                                     # one dict of measurements per epoch
        print(row["epoch"], row["objective"])
    run.model.predict(X)

    run = hogwild.train(hogwild.open_ratings("ratings.csv"), problem="completion", rank=32)
    run.finish().recommend(["ann"], n=10)

    hogwild.HogwildClassifier(n_jobs=-1).fit(X, y).predict(X)  # in place of sklearn.linear_model.SGDClassifier

Names are imported when first used: torch, numba and scikit-learn cost seconds that a look at ``hogwild.__version__``
should not. (Recht, Re, Wright, Niu: Hogwild!, NIPS 2011.)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hogwild.errors import HogwildError, HogwildWarning, InputError, OutputError, TrainingError, UsageError

if TYPE_CHECKING:
    from hogwild.config import TrainConfig
    from hogwild.data.examples import Rows
    from hogwild.data.graphs import Graph, open_graph
    from hogwild.data.rating_source import open_ratings
    from hogwild.data.ratings import Ratings
    from hogwild.data.source import open_data
    from hogwild.data.tables import open_table
    from hogwild.estimators import HogwildClassifier, HogwildFactorizer, HogwildRegressor
    from hogwild.model import LinearModel
    from hogwild.model_file import load_model as load
    from hogwild.module_model import ModuleModel
    from hogwild.module_training import train_module
    from hogwild.recommender import CompletionModel
    from hogwild.segmentation import Segmentation
    from hogwild.training import Run, train

__version__ = "0.1.0"

__all__ = [
    "CompletionModel",
    "Graph",
    "HogwildClassifier",
    "HogwildError",
    "HogwildFactorizer",
    "HogwildRegressor",
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
    "load",
    "open_data",
    "open_graph",
    "open_ratings",
    "open_table",
    "train",
    "train_module",
]

_PLACES = {
    "CompletionModel": ("hogwild.recommender", "CompletionModel"),
    "Graph": ("hogwild.data.graphs", "Graph"),
    "HogwildClassifier": ("hogwild.estimators", "HogwildClassifier"),
    "HogwildFactorizer": ("hogwild.estimators", "HogwildFactorizer"),
    "HogwildRegressor": ("hogwild.estimators", "HogwildRegressor"),
    "LinearModel": ("hogwild.model", "LinearModel"),
    "ModuleModel": ("hogwild.module_model", "ModuleModel"),
    "Ratings": ("hogwild.data.ratings", "Ratings"),
    "Rows": ("hogwild.data.examples", "Rows"),
    "Run": ("hogwild.training", "Run"),
    "Segmentation": ("hogwild.segmentation", "Segmentation"),
    "TrainConfig": ("hogwild.config", "TrainConfig"),
    "load": ("hogwild.model_file", "load_model"),
    "open_data": ("hogwild.data.source", "open_data"),
    "open_graph": ("hogwild.data.graphs", "open_graph"),
    "open_ratings": ("hogwild.data.rating_source", "open_ratings"),
    "open_table": ("hogwild.data.tables", "open_table"),
    "train": ("hogwild.training", "train"),
    "train_module": ("hogwild.module_training", "train_module"),
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'hogwild' has no attribute {name!r}")
    module, attribute = _PLACES[name]
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value  # looked up once
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
