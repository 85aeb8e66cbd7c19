"""hogwild as a solver in a benchmark of benchopt, where that is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOLVER = Path(__file__).resolve().parents[1] / "scripts" / "examples" / "benchopt" / "solver.py"
OBJECTIVE = """
import numpy as np
from benchopt import BaseObjective

class Objective(BaseObjective):
    name = "logistic regression"
    def set_data(self, X, y): self.X, self.y = X, y
    def get_objective(self): return {"X": self.X, "y": self.y, "lmbd": 1.0}
    def evaluate_result(self, beta):
        return {"value": np.logaddexp(0, -self.y * (self.X @ beta)).sum() + beta @ beta / 2}
    def get_one_result(self): return {"beta": np.zeros(self.X.shape[1])}
"""
DATASET = """
import numpy as np
from benchopt import BaseDataset

class Dataset(BaseDataset):
    name = "normal"
    def get_data(self):
        X = np.random.default_rng(0).normal(size=(200, 5))
        return {"X": X, "y": np.where(X[:, 0] + X[:, 1] ** 2 > 1, 1.0, -1.0)}
"""


def test_the_solver_reaches_the_optimum(tmp_path: Path) -> None:
    pytest.importorskip("benchopt")
    import numpy as np
    import pandas
    from sklearn.linear_model import LogisticRegression

    for folder in ("solvers", "datasets"):
        (tmp_path / folder).mkdir()
    shutil.copy(SOLVER, tmp_path / "solvers" / "hogwild.py")
    (tmp_path / "objective.py").write_text(OBJECTIVE)
    (tmp_path / "datasets" / "normal.py").write_text(DATASET)
    arguments = "run . -s hogwild[workers=1] -n 9 -r 1 --no-plot --no-cache --no-html".split()
    done = subprocess.run([sys.executable, "-m", "benchopt", *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    values = pandas.read_parquet(next((tmp_path / "outputs").glob("*.parquet")))["objective_value"]
    X = np.random.default_rng(0).normal(size=(200, 5))
    y = np.where(X[:, 0] + X[:, 1] ** 2 > 1, 1.0, -1.0)
    w = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10).fit(X, y).coef_[0]
    best = np.logaddexp(0, -y * (X @ w)).sum() + w @ w / 2
    assert best * (1 - 1e-9) <= values.min() < 1.001 * best
    assert values.iloc[0] == pytest.approx(200 * np.log(2))
