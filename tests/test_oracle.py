"""What judges a rewrite: the verdicts of same_bits and same_speed, and the stored optima of the sets of defaults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hogwild
from scripts import defaults_optima, same_bits

BITS: dict[str, Any] = {"bits": "a", "objectives": [1.0, 0.5]}
RACE = {"race": [1.0, 0.5, 0.5, 0.51, 0.52, 0.5]}


@pytest.mark.parametrize(
    ("before", "now", "verdict"),
    [
        (BITS, {"bits": "a", "objectives": [1.0, 0.5 + 1e-14]}, "equal bits"),
        (BITS, {"bits": "a", "objectives": [1.0, 0.6]}, "different"),
        (BITS, {"bits": "b", "objectives": [1.0, 0.5 + 1e-14]}, "other bits"),
        (BITS, {"bits": "b", "objectives": [1.0, 0.5 + 1e-9]}, "different"),
        (BITS, {"bits": "b", "objectives": [1.0]}, "different"),
        (BITS, {"gone": "unknown option"}, "gone"),
        (BITS, {"failed": "OSError"}, "failed"),
        (RACE, {"race": [1.0, 0.1, 0.1, 0.1, 9.0, 9.0]}, "race no worse"),
        (RACE, {"race": [1.0, 0.6, 0.6, 0.6, 0.1, 0.1]}, "race worse"),
    ],
)
def test_verdicts(before: dict[str, Any], now: dict[str, Any], verdict: str) -> None:
    assert same_bits.judged(before, now)[0] == verdict


def test_an_unknown_option_is_gone_and_a_run_repeats_its_bits() -> None:
    assert "gone" in same_bits.measured(lambda: same_bits.trained(lambda: same_bits.rows("numbers"), no_option=1))
    run = dict(same_bits.linear_cases())["linear, numbers, huber"]
    assert same_bits.judged(same_bits.measured(run), same_bits.measured(run)) == ("equal bits", "")


@pytest.mark.parametrize("loss", defaults_optima.LOSSES)
def test_an_optimum_is_between_its_bound_and_a_run(loss: str) -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(80, 4))
    y = X[:, 0] + random.normal(size=80)
    y = np.floor(np.exp(y)) if loss == "poisson" else np.sign(y) if loss in ("log", "hinge") else y
    weights = 1.0 + np.arange(80) % 3
    rows = hogwild.Rows.from_scipy(X, y, weights=weights)
    run = hogwild.train(rows, loss=loss, l2=0.01, workers=1, host="threads", epochs=3, step=0.05, keep="last")
    model = run.finish()
    binary = defaults_optima.Binary(X, y, weights, loss, 0.01)
    flat = np.append(np.ravel(model.coef_), model.intercept_)
    assert binary(flat)[0] == pytest.approx(run.history[-1]["objective"], rel=1e-7)  # of weights before float32
    least, bound = binary.solve(flat)
    assert least < binary(flat)[0]
    assert -1e-12 <= (least - bound) / abs(least) <= 1e-3
