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
        HogwildFactorizer,
        HogwildFMClassifier,
        HogwildFMRegressor,
        HogwildRegressor,
        HogwildTableEncoder,
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
    "HogwildError",
    "HogwildFMClassifier",
    "HogwildFMRegressor",
    "HogwildFactorizer",
    "HogwildRegressor",
    "HogwildTableEncoder",
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

#: Modules that names are imported from, and their names there if these differ.
_PLACES = {
    "CompletionModel": "hogwild.problems.completion.model",
    "FMModel": "hogwild.problems.fm.model",
    "Graph": "hogwild.data.graphs.container",
    "HogwildClassifier": "hogwild.estimators",
    "HogwildFMClassifier": "hogwild.estimators",
    "HogwildFMRegressor": "hogwild.estimators",
    "HogwildFactorizer": "hogwild.estimators",
    "HogwildRegressor": "hogwild.estimators",
    "HogwildTableEncoder": "hogwild.estimators",
    "LinearModel": "hogwild.problems.linear.model",
    "ModuleModel": "hogwild.problems.module.model",
    "Ratings": "hogwild.data.ratings.container",
    "Rows": "hogwild.data.rows.container",
    "Run": "hogwild.training.run",
    "Segmentation": "hogwild.problems.cuts.model",
    "TrainConfig": "hogwild.config",
    "gather": "hogwild.machines.cluster",
    "load": "hogwild.model_file:load_model",
    "open_data": "hogwild.data.rows.source",
    "open_graph": "hogwild.data.graphs.source",
    "open_ratings": "hogwild.data.ratings.source",
    "open_table": "hogwild.data.tables.source",
    "serve": "hogwild.exchanges.deepdist",
    "train": "hogwild.training.run",
    "train_module": "hogwild.problems.module.training",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'hogwild' has no attribute {name!r}")
    module, _, attribute = _PLACES[name].partition(":")
    value = getattr(importlib.import_module(module), attribute or name)
    globals()[name] = value  # cached for later look-ups
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
