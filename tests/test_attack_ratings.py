"""Ratings and calls that are wrong or odd: one line that says so; each was once a traceback or a wrong model."""

from __future__ import annotations

import io

import numpy as np
import pytest
import scipy.sparse

from hogwild import train
from hogwild.cli.models import named
from hogwild.data.ratings.container import Ids, Ratings
from hogwild.errors import InputError, UsageError

USERS, ITEMS = np.repeat(np.arange(6), 4), np.tile(np.arange(4), 6)
VALUES = np.cos(np.arange(24.0))


def complete(data, test=None, **options):
    return train(data, test, problem="completion", **{"epochs": 1, "workers": 1, "rank": 2} | options)


@pytest.mark.parametrize(
    ("users", "values", "said"),
    [
        (USERS * np.nan, VALUES, "users: expected whole numbers"),
        (np.array([None] * 24), VALUES, "users: expected whole numbers"),
        (USERS.astype(np.uint64) + np.uint64(2**63), VALUES, "users run from"),
        (USERS, VALUES * 1j, "values: expected real numbers"),
    ],
)
def test_arrays_of_other_types(users, values, said):
    with pytest.raises(InputError, match=said):
        complete((users, ITEMS, values))


def test_test_ratings_that_name_others_are_refused():
    """Numbers mean names: the same numbers for other names gave errors of nobody's ratings."""
    ours = Ratings(USERS, ITEMS, VALUES, (6, 4), None, Ids(range(6)), Ids(range(4)))
    theirs = Ratings(USERS, ITEMS, VALUES, (6, 4), None, Ids([5, 4, 3, 2, 1, 0]), Ids(range(4)))
    with pytest.raises(UsageError, match="test needs the training user names"):
        complete(ours, theirs)
    equal = Ratings(USERS, ITEMS, VALUES, (6, 4), None, Ids(range(6)), Ids(range(4)))
    assert complete(ours, equal).finish().history[-1]["test_rmse"] > 0


def test_test_arrays_may_show_fewer_users():
    run = complete((USERS, ITEMS, VALUES), (USERS[:8], ITEMS[:8], VALUES[:8]))
    model = run.finish()
    errors = model.predict(USERS[:8], ITEMS[:8]) - VALUES[:8].astype(np.float32)
    assert run.history[-1]["test_rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)))
    matrix = scipy.sparse.csr_array((VALUES, (USERS, ITEMS)))
    assert complete(matrix, matrix).finish().history[-1]["test_rmse"] > 0


def test_names_from_a_pipe(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("a\u2028b\n\n c \n"))
    assert named(["-"], Ids(["c", "x"]), 2).tolist() == ["a\u2028b", "c"]
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert len(named(["-"], Ids(["c", "x"]), 2)) == 0  # nobody, not everybody
