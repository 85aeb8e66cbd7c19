"""hogwild as a solver of benchopt's benchmark of l2-regularised logistic regression.

    pip install benchopt
    git clone https://github.com/benchopt/benchmark_logreg_l2
    cp solver.py benchmark_logreg_l2/solvers/hogwild.py
    benchopt run benchmark_logreg_l2 -s hogwild -s sklearn -d simulated

Its objective is ``sum log(1 + exp(-y x.w)) + lmbd/2 ||w||^2``, without an intercept; ours is the mean, so l2 is lmbd
over the number of rows. A point of the curve is a whole run of so many epochs, with the search for its step, and from
twenty epochs on with the exact steps that finish a run by default.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from benchopt import BaseSolver
from scipy.sparse import csr_matrix

import hogwild


class Solver(BaseSolver):  # type: ignore[misc]  # benchopt has no types
    name = "hogwild"
    sampling_strategy = "iteration"
    requirements = ("pip::hogwild",)
    parameters = {"workers": [1, 2]}  # noqa: RUF012  # benchopt reads it from the class

    def set_objective(self, X: Any, y: np.ndarray, lmbd: float, fit_intercept: bool = False) -> None:
        self.rows = hogwild.Rows.from_scipy(csr_matrix(X), y)
        self.options = {"loss": "log", "l2": lmbd / len(y), "intercept": fit_intercept, "workers": self.workers}

    def warm_up(self) -> None:
        self.run(20)  # compiles

    def run(self, stop_val: int) -> None:
        width = self.rows.width
        self.beta = np.zeros(width + self.options["intercept"])
        if stop_val > 0:
            model = hogwild.train(self.rows, epochs=stop_val, patience=0, **self.options).finish()
            self.beta[:width] = model.coef_[0]
            self.beta[width:] = model.intercept_

    def get_result(self) -> dict[str, np.ndarray]:
        return {"beta": self.beta}
