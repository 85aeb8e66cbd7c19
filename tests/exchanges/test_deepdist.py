"""``hogwild.serve``: two functions of the user's own, at a server that only passes on arrays."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import hogwild
from hogwild.errors import UsageError
from hogwild.exchanges.server import RATE
from tests.runs import toy


def test_its_adagrad_is_the_servers() -> None:
    """The example of DeepDist: the descent keeps the sum of squares."""
    rows = toy(500, classes=0)
    options: dict[str, Any] = {"loss": "squared-error", "l2": 0.0, "schedule": "constant", "intercept": False}
    options |= {"step": 0.1, "epochs": 1, "workers": 1, "host": "threads", "order": "file"}
    model = hogwild.train(rows, exchange="server:push=1,rule=adagrad", **options | {"step": 0.1 / RATE}).finish()
    x, squares = rows.to_scipy()[0].toarray().astype(np.float64), np.zeros(rows.width)

    def gradient(w: np.ndarray, row: int) -> np.ndarray:
        return (x[row] @ w - rows.targets[row]) * x[row]

    def descent(w: np.ndarray, update: np.ndarray) -> None:
        squares[:] += update**2
        w -= 0.1 * update / (1e-6 + np.sqrt(squares))

    w = hogwild.serve(np.zeros(rows.width), range(len(rows)), gradient, descent, workers=1)
    np.testing.assert_allclose(w, model.coef_[0], rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize(("workers", "push"), [(1, 1), (3, 1), (4, 7)])
def test_every_part_is_pushed_once(workers: int, push: int) -> None:
    given = {"a": np.zeros(10), "b": np.zeros(1)}
    seen: list[dict[str, np.ndarray]] = []
    overlap = threading.Lock()

    def gradient(now: dict[str, np.ndarray], part: int) -> dict[str, np.ndarray]:
        seen.append(now)
        now["a"] += 100  # a copy
        return {"a": np.eye(10)[part % 10], "b": np.ones(1)}

    def descent(now: dict[str, np.ndarray], update: dict[str, np.ndarray]) -> None:
        assert overlap.acquire(blocking=False)
        assert update["b"][0] <= push
        for name in now:
            now[name] += update[name]
        overlap.release()

    found = hogwild.serve(given, iter(range(200)), gradient, descent, workers=workers, push=push)
    assert found is given
    assert found["a"].tolist() == [20] * 10
    assert found["b"][0] == len(seen) == 200
    assert all(now["a"] is not given["a"] for now in seen)


def test_what_goes_wrong_is_raised() -> None:
    done: list[int] = []

    def fails(w: np.ndarray, part: int) -> np.ndarray:
        done.append(part)
        if part == 5:
            raise ValueError("part 5")
        return w

    def descent(w: np.ndarray, update: np.ndarray) -> None:
        w += update

    with pytest.raises(ValueError, match="part 5"):
        hogwild.serve(np.zeros(2), range(1_000_000), fails, descent, workers=3)
    assert len(done) < 1_000_000
    for wrong in ({"workers": 0}, {"push": 0}):
        with pytest.raises(UsageError, match="whole number from 1"):
            hogwild.serve(np.zeros(2), [1], fails, descent, **wrong)
