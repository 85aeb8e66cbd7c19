"""The objective and its metrics: against a row-by-row twin for every loss, and on parameters that diverged."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from hogwild.data.rows import container
from hogwild.data.rows.container import Rows
from hogwild.errors import InputError
from hogwild.kernels.losses import LOSSES
from hogwild.methods import LABEL_LOSSES
from hogwild.problems.linear.objective import Objective, auc
from hogwild.problems.linear.rows import class_numbers
from tests import numpy_objective, reference


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(container.chunks, "__defaults__", (50,))


def example(loss, classes=2, n=60, width=9, seed=0):
    """``(rows, labels)``; labels are neither 0, 1 nor in order of size."""
    rng = np.random.default_rng(seed)
    dense = rng.normal(size=(n, width)) * (rng.random((n, width)) < 0.4)
    dense[[0, 9, n - 1]] = 0
    dense = dense.astype(np.float32)
    if loss in LABEL_LOSSES:
        labels = [3.0, -1.5, 7.0, 0.1][:classes]
        targets = np.array(labels)[rng.integers(classes, size=n)]
    else:
        labels, targets = [], rng.normal(size=n)
    return Rows.from_scipy(scipy.sparse.csr_array(dense), targets), labels


def parameters(width, classes=None, seed=1):
    rng = np.random.default_rng(seed)
    shape = (width,) if classes is None else (classes, width)
    return rng.normal(size=shape).astype(np.float32), rng.normal(size=shape[:-1]).astype(np.float32)


def test_softmax_of_two_is_log():
    rows, labels = example("log")
    w, b = parameters(rows.width)
    one = Objective(rows, "log", labels=labels).evaluate(w, b)
    assert Objective(rows, "softmax", labels=labels).evaluate(w, b) == one
    two = Objective(rows, "softmax", labels=labels).evaluate(np.stack((0 * w, w)), [0, b])
    assert two == pytest.approx(one, rel=1e-12)


def test_rows_own_weights_and_their_replacement():
    plain, labels = example("log")
    rows = plain.replace(weights=(np.arange(60) % 3).astype(np.float32))
    w, b = parameters(rows.width)
    repeated = plain.select(np.repeat(np.arange(60), np.arange(60) % 3))
    for mine, other in (
        (Objective(rows, "log", labels=labels), Objective(repeated, "log", labels=labels)),
        (Objective(rows, "log", labels=labels, weights=np.ones(60)), Objective(plain, "log", labels=labels)),
    ):
        assert mine.evaluate(w, b)["objective"] == pytest.approx(other.evaluate(w, b)["objective"], rel=1e-12)


def test_class_numbers():
    assert class_numbers(np.float32([7, 0.1, 3, 7]), [3.0, 7.0, 0.1]).tolist() == [1, 2, 0, 1]
    with pytest.raises(InputError, match="row 2 has label 5: the model knows 3, 7"):
        class_numbers(np.float32([7, 5]), [3.0, 7.0])
    with pytest.raises(InputError, match="row 12 has label 9"):
        class_numbers(np.float32([7, 9]), [3.0, 7.0], before=10)
    rows, _ = example("log")
    with pytest.raises(InputError, match="row 1 has label"):
        Objective(rows, "log", labels=[100.0, 200.0])


@st.composite
def odd_rows(draw):
    """Rows that may be empty, dense, tiny, huge, repeated or out of order."""
    seed, n = draw(st.integers(0, 2**32 - 1)), draw(st.integers(1, 40))
    width = draw(st.integers(1, 12))
    rng = np.random.default_rng(seed)
    scale = draw(st.sampled_from([1.0, 1e-30, 1e15, 1e30]))
    dense = rng.normal(size=(n, width)) * (rng.random((n, width)) < draw(st.sampled_from([0.0, 0.2, 1.0]))) * scale
    rows = Rows.from_scipy(scipy.sparse.csr_array(dense.astype(np.float32)), rng.integers(0, 3, size=n))
    return rows.select(rng.integers(0, n, size=draw(st.integers(1, 50)))) if draw(st.booleans()) else rows


@settings(max_examples=80, deadline=None)
@given(
    odd_rows(),
    st.sampled_from([*sorted(reference.TWINS), "softmax"]),
    st.sampled_from(["none", "l2"]),
    st.sampled_from([1.0, 1e4, math.inf, math.nan]),
    st.integers(-3, 3),
    st.booleans(),
)
def test_equal_to_numpy_on_odd_rows(rows, loss, normalize, size, wider, several):
    rng = np.random.default_rng(len(rows))
    labels = (0.0, 1.0, 2.0) if loss in LABEL_LOSSES else ()
    shape = (3,) if loss == "softmax" or (labels and several) else ()
    if labels and not shape:
        rows = Rows((rows.begin, rows.end), rows.indices, rows.values, rows.targets > 0, rows.width, check=False)
        labels = (0.0, 1.0)
    w = rng.normal(size=(*shape, max(rows.width + wider, 1))).astype(np.float32)
    w.flat[rng.integers(w.size)] *= size
    b, weights = rng.normal(size=shape), rng.random(len(rows)).astype(np.float32)
    same = {"l1": 0.01, "l2": 0.1, "normalize": normalize, "labels": labels, "weights": weights}
    param = float(np.clip(0.3, *LOSSES[loss].range))
    found = Objective(rows, loss, param, width=w.shape[-1], **same).evaluate(w, b)
    expected = numpy_objective.evaluate(rows, loss, w, b, param, **same)
    assert list(found) == list(expected)
    for name, value in expected.items():
        # a row's scale is a float32, which may round to either side; what cancels in a margin is lost to both
        assert found[name] == pytest.approx(value, rel=1e-12 if normalize == "none" else 1e-6, abs=1e-9, nan_ok=True)
    if normalize == "none" and np.isfinite(expected["objective"]):
        threads = [Objective(rows, loss, param, width=w.shape[-1], **same, threads=t).evaluate(w, b) for t in (1, 3)]
        assert threads == [found, found]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 300), st.sampled_from([0, 1, 4, 30]))
def test_auc_counts_every_pair(seed, n, different):
    """Ties count one half, 0 is -0, and the smallest and largest numbers of float32 have their place."""
    rng = np.random.default_rng(seed)
    kinds = np.float32([0.0, -0.0, 1e-45, -1e-45, 3.4e38, -3.4e38, 1.0, -1.0, *rng.normal(size=30)])
    scores = kinds[rng.integers(0, 8 + different, size=n)]
    positive = rng.random(n) < 0.4
    above, below = scores[positive][:, None].astype(float), scores[~positive].astype(float)
    found = auc(scores, positive)
    if not positive.any() or positive.all():
        assert found is None
    else:
        assert found == pytest.approx(np.mean((above > below) + (above == below) / 2), rel=1e-14)
    for bad in (np.nan, np.inf, -np.inf):
        scores[rng.integers(n)] = bad
        assert auc(scores, positive) is None
