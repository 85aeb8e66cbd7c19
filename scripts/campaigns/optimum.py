"""Optima of random linear problems, held against scipy's L-BFGS in float64 (``scripts/defaults_optima.py``).

Shape, scale, sparsity, weights, loss and penalty are drawn. A problem is noted if the finder ends more than 1 % and a
ten-thousandth of the start's objective above what scipy finds and does not say so, or if scipy passes its bound. The
tests hold the other losses, l1 and l2 of zero against linear programs and scikit-learn.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from common import Campaign

import hogwild
from hogwild.methods import DEFAULT_PARAM
from hogwild.problems.linear.optimum.finder import FitProblem

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from defaults_optima import LOSSES, Binary

TOLERANCE, NEGLIGIBLE = 0.01, 1e-4  # share of the optimum, and of the start's objective
LABELLED = ("log", "hinge")


def drawn(random: np.random.Generator) -> tuple[str, np.ndarray, np.ndarray, np.ndarray, float]:
    """A loss, rows, targets, weights and a penalty."""
    n, width = int(np.exp(random.uniform(2.5, 4.6))), int(np.exp(random.uniform(0, 4.8)))
    X = random.normal(size=(n, width))
    if random.random() < 0.3:  # dependent columns
        X = X @ (np.ones((width, width)) + 0.3 * random.normal(size=(width, width))) / np.sqrt(width)
    z = X @ random.normal(size=width) / np.sqrt(width) + random.choice((0.0, 0.5, 3.0)) * random.normal(size=n)
    X *= random.random((n, width)) < random.choice((0.1, 0.5, 1.0))
    X *= 10.0 ** (random.choice((0, 0, 1, 3)) * random.uniform(-1, 1, size=width))
    if random.random() < 0.2:  # far from zero
        X += 10.0
    loss = str(random.choice([*LOSSES]))
    y = np.where(z > np.quantile(z, random.choice((0.5, 0.9))), 1.0, -1.0) if loss in LABELLED else z
    y = random.poisson(np.exp(np.clip(z, -3, 3))).astype(float) if loss == "poisson" else y
    weights = np.exp(random.normal(size=n)) if random.random() < 0.5 else np.ones(n)
    return loss, X.astype(np.float32), y.astype(np.float32).astype(float), weights, 10.0 ** random.uniform(-6, -1)


def main(arguments: list[str]) -> int:
    campaign = Campaign("optimum", arguments, 200)
    for number in campaign.rounds():
        loss, X, y, weights, l2 = drawn(np.random.default_rng((campaign.asked.seed, number)))
        binary = Binary(X, y, weights, loss, l2)
        rows = hogwild.Rows.from_scipy(binary.X[:, :-1].tocsr(), y)
        shares = len(y) * binary.shares
        posed = FitProblem(rows, loss, DEFAULT_PARAM.get(loss, 0.0), 0.0, l2, y, shares, None, True)
        found = posed.lowered(np.zeros(rows.width), np.zeros(1))
        flat = np.append(found.coef, found.intercept)
        value, (theirs, _) = binary(flat)[0], binary.solve(np.zeros(len(flat)))
        campaign.tried[loss] += 1
        near = found.is_near(TOLERANCE)
        campaign.ended["near" if near else "warned"] += 1
        slack = max(TOLERANCE * abs(theirs), NEGLIGIBLE * found.start)
        about = f"{number}: {loss} {X.shape} l2 {l2:g}: {value:.7g}"
        if near and value > theirs + slack:
            campaign.problem(f"{about} is above {theirs:.7g}, gap {found.gap:.2g}")
        if theirs < value - found.gap - slack:
            campaign.problem(f"{about}: {theirs:.7g} is below the bound {value - found.gap:.7g}")
        if not near and found.value - slack <= theirs:
            campaign.problem(f"{about} is near {theirs:.7g}, and the gap said to be {found.gap:.2g}")
        if not np.isclose(value, found.value, rtol=1e-6, atol=1e-9):
            campaign.problem(f"{about}: the finder says {found.value:.9g}")
    return campaign.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
