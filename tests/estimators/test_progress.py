"""The bar of ``verbose=1`` in a notebook: one output, updated in place; in a terminal see test_linear.py."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import rich

from hogwild import HogwildClassifier
from hogwild.estimators import progress


class Output:
    """What ``display`` gives back, and what it has shown."""

    def __init__(self, first: dict[str, str]) -> None:
        self.shown = [first]

    def update(self, data: dict[str, str], raw: bool) -> None:
        assert raw
        self.shown.append(data)

    @property
    def texts(self) -> list[str]:
        return [data["text/plain"] for data in self.shown]


@pytest.fixture
def outputs(monkeypatch: pytest.MonkeyPatch) -> list[Output]:
    """Pretend to be a notebook; every bar is an output of it."""
    found: list[Output] = []

    def display(data: dict[str, str], raw: bool, display_id: bool) -> Output:
        assert raw
        assert display_id
        found.append(Output(data))
        return found[-1]

    module = ModuleType("IPython.display")
    module.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr(rich.get_console(), "is_jupyter", True)
    return found


def fit(**options: Any) -> HogwildClassifier:
    X = np.random.default_rng(0).normal(size=(200, 3))
    return HogwildClassifier(random_state=0, **options).fit(X, X[:, 0] > 0)


def test_one_output_that_ends_complete(outputs: list[Output], capsys: pytest.CaptureFixture[str]) -> None:
    fit()
    assert not outputs
    model = fit(verbose=1)
    (bar,) = outputs
    done = model.n_iter_
    assert bar.texts[0].startswith("HogwildClassifier 0/1000 epochs")
    assert bar.texts[-1].startswith(f"HogwildClassifier {done}/{done} epochs")
    assert f"objective {model.loss_curve_[-1]:.6g}" in bar.texts[-1]
    assert f'<progress value="{done}" max="{done}"></progress>' in bar.shown[-1]["text/html"]
    assert capsys.readouterr() == ("", "")


def test_it_is_drawn_a_few_times_a_second(outputs: list[Output], monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(np.arange(0, 1000, 0.001))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(now)))
    with progress.shown("Fit", 2000, 1) as report:
        for epoch in range(1, 2001):
            report(epoch, 0.5)
    assert 10 < len(outputs[0].shown) < 100


def interrupted() -> None:
    with progress.shown("Fit", 9, 1) as report:
        report(1, 0.5)
        report(2, 0.25)
        raise KeyboardInterrupt


def test_what_is_interrupted_stays_where_it_was(outputs: list[Output]) -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert outputs[0].texts[-1].startswith("Fit 2/9 epochs")
    assert "objective 0.25" in outputs[0].texts[-1]
