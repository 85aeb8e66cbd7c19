"""Small models and rows that the tests of all formats share."""

from __future__ import annotations

import numpy as np
import scipy.sparse

from hogwild.methods import LABEL_LOSSES, LOSSES
from hogwild.problems.linear.model import LinearModel

WIDTH = 30
LABELS = {1: [], 2: [-1.0, 1.0], 3: [2.0, 5.0, 9.0], 5: [0.0, 1.0, 2.0, 3.0, 4.0]}
#: Each loss with each number of classes it can have.
KINDS = [(loss, classes) for loss in LOSSES for classes in ((2, 3, 5) if loss in LABEL_LOSSES else (1,))]


def made(loss: str, classes: int, normalize: str = "none", bias: bool = True, seed: int = 1) -> LinearModel:
    """A model of random weights; one class stands for real targets."""
    rng = np.random.default_rng(seed)
    rows = 1 if classes == 2 else classes
    coef, intercept = rng.standard_normal((rows, WIDTH)), rng.standard_normal(rows) * bias
    coef[:, 3] = 0.0
    param = 0.25 if loss in ("huber", "epsilon-insensitive") else 0.0
    return LinearModel(coef, intercept, loss, param, LABELS[classes], normalize)


def rows(count: int = 100) -> scipy.sparse.csr_matrix:
    """Sparse rows of both signs in float32, the first one empty."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((count, WIDTH)) * (rng.random((count, WIDTH)) < 0.3)
    X[0] = 0.0
    return scipy.sparse.csr_matrix(X.astype(np.float32))


def size(model: LinearModel, X: scipy.sparse.csr_matrix) -> np.ndarray:
    """What the error of float32 margins is relative to: ``1 + sum |w x|`` of each row, of the largest class."""
    return 1.0 + (abs(X) @ np.abs(model.coef_).T).max(axis=1)
