"""Numbers as text: beside NumPy, of all bit patterns and of shapes that predictions have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hogwild.cli.models.predict import number_lines


def beside(values):
    values = np.asarray(values, np.float32)
    rows = (values[:, np.newaxis] if values.ndim == 1 else values).astype(str)
    return "".join(" ".join(row) + "\n" for row in rows).encode()


@given(st.lists(st.floats(width=32), max_size=40))
@settings(max_examples=300, deadline=None)
def test_any_number_beside_numpy(values):
    assert number_lines(np.array(values, np.float32)) == beside(values)


@pytest.mark.parametrize("kind", ["bits", "ratings", "log", "cents", "powers", "whole"])
def test_many_numbers_beside_numpy(kind):
    random = np.random.default_rng(0)
    values = {
        "bits": lambda: random.integers(0, 2**32, 30_000, dtype=np.uint32).view(np.float32),
        "ratings": lambda: random.normal(3.5, 1.0, 60_000),
        "log": lambda: np.exp(random.uniform(np.log(1e-14), np.log(2e6), 60_000)) * random.choice([-1, 1], 60_000),
        "cents": lambda: np.round(random.normal(0, 100, 30_000), 2),
        "powers": lambda: 2.0 ** np.arange(-149, 128),
        "whole": lambda: random.integers(-1_100_000, 1_100_000, 30_000),
    }[kind]().astype(np.float32)
    assert number_lines(values) == beside(values)
    rows = values[:270].reshape(-1, 3)
    assert number_lines(rows) == beside(rows)


def test_rows_of_several_and_none():
    rows = np.array([[0.0, -0.0, 1.5], [np.nan, np.inf, -np.inf], [1e-7, 999999.94, 1e6]])
    assert number_lines(rows) == beside(rows)
    assert number_lines(rows).startswith(b"0.0 -0.0 1.5\nnan inf -inf\n1e-07 999999.94 1")
    assert number_lines(np.empty(0)) == b""
