"""The container of ratings: names, splits, degrees, lists, statistics; each beside its slow twin."""

from __future__ import annotations

import collections

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from hogwild.data.ratings.container import SPLITS, Ids, Ratings, last_of_repeats, rating_statistics
from hogwild.errors import InputError, UsageError
from tests.reference import hypergraph


def make(n=300, users=20, items=15, seed=0, times=True):
    random = np.random.default_rng(seed)
    pairs = (
        random.choice(users * items, n, replace=False) if n <= users * items else random.integers(0, users * items, n)
    )
    stamps = random.integers(0, 50, n) if times else None
    return Ratings(pairs // items, pairs % items, random.integers(1, 6, n), (users, items), stamps)


def triples(ratings):
    times = ratings.times if ratings.times is not None else np.zeros(len(ratings))
    return list(
        zip(ratings.users.tolist(), ratings.items.tolist(), ratings.values.tolist(), times.tolist(), strict=True)
    )


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [[5, -7, 2**40, 0], ["b", "a", "ü", "05", "x y"], ["1", "x"], []])
def test_names_are_found_and_come_back_from_a_file(names):
    ids = Ids(names)
    assert ids.lookup(names).tolist() == list(range(len(names)))
    assert ids.names().tolist() == names
    assert ids.lookup(["nobody", "9999"]).tolist() == [-1, -1]
    again = Ids.from_arrays({name: np.array(array) for name, array in ids.arrays().items()})
    assert again == ids
    assert all(array.dtype != object for array in ids.arrays().values())


def test_a_number_and_its_text_are_the_same_name():
    assert Ids([10, 7]).lookup(["7", "10", "07", "7.0", "٧"]).tolist() == [1, 0, -1, -1, -1]
    assert Ids(["7", "x"]).lookup(np.array([7, 8])).tolist() == [0, -1]
    assert Ids([10, 7]).lookup(7) == 1
    assert Ids([10, 7]).lookup([[7, 10], [3, 7]]).tolist() == [[1, 0], [-1, 1]]
    assert Ids([3]).lookup(2**70) == -1


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([1, 2, 1], "1 names more than one index"),
        (["a", "b", "a"], "a names more than one index"),
        (["a", ""], "a name is empty"),
        (np.zeros((2, 2), np.int64), "one dimension"),
    ],
)
def test_names_that_cannot_be(names, message):
    with pytest.raises(InputError, match=message):
        Ids(names)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"text": np.zeros(3, np.uint8)}, "damaged: no 'ends'"),
        ({"text": np.zeros(3, np.uint8), "ends": np.array([2])}, "do not ascend"),
        ({"text": np.full(3, 255, np.uint8), "ends": np.array([1, 3])}, "damaged: .*utf-8"),
        ({"numbers": np.zeros((1, 1), np.int64)}, "expected one dimension"),
    ],
)
def test_damaged_names(arrays, message):
    with pytest.raises(InputError, match=message):
        Ids.from_arrays(arrays)


# -- the container ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"users": [0, 2]}, "users run from 0 to 2, expected 0 to 1"),
        ({"items": [-2, 0]}, "items run from -2 to 0, expected 0 to 1"),
        ({"users": [0, None]}, "users: expected whole numbers"),
        ({"users": np.array([0, 2**63 + 1], np.uint64)}, "users run from"),
        ({"values": [1.0, 1j]}, "values: expected real numbers"),
        ({"values": [1.0, np.nan]}, "rating 1 is not a finite"),
        ({"values": [1.0]}, "values needs shape"),
        ({"times": [1]}, "times needs shape"),
        ({"times": [1.5, 2]}, "times: expected whole numbers"),
        ({"user_ids": Ids([1])}, "1 ids for 2 users"),
        ({"shape": (2, -1)}, "items run from 0 to 1, expected 0 to -2"),
    ],
)
def test_what_it_refuses(change, message):
    good = {"users": [0, 1], "items": [0, 1], "values": [1.0, 2.0], "shape": (2, 2)}
    with pytest.raises(InputError, match=message):
        Ratings(**{**good, **change})


def test_unknown_ones_may_be_predicted():
    ratings = Ratings([0, -1, 1], [-1, 0, 1], [1, 2, 3], (2, 2))
    assert [degree.tolist() for degree in ratings.degrees()] == [[1, 1], [1, 1]]
    assert [part.tolist() for part in ratings.user_lists()] == [[0, 0, 1], [1]]


def test_parts():
    ratings = make()
    assert triples(ratings.block(5, 9)) == triples(ratings)[5:9]
    assert triples(ratings.select([7, 3])) == [triples(ratings)[7], triples(ratings)[3]]
    assert np.shares_memory(ratings.block(5, 9).users, ratings.users)


def test_from_scipy():
    ratings = make(times=False)
    matrix = scipy.sparse.coo_array((ratings.values, (ratings.users, ratings.items)), ratings.shape)
    assert triples(Ratings.from_scipy(matrix)) == triples(ratings)
    assert sorted(triples(Ratings.from_scipy(matrix.tocsr()))) == sorted(triples(ratings))
    for wrong, said in (
        (np.eye(3), "expected a scipy sparse matrix"),
        (matrix.astype(complex), "expected real numbers"),
    ):
        with pytest.raises(InputError, match=said):
            Ratings.from_scipy(wrong)


# -- splits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", SPLITS)
@given(st.integers(2, 120), st.integers(1, 8), st.integers(1, 8), st.floats(0.05, 0.95), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_every_rating_is_in_one_part(by, n, users, items, fraction, seed):
    ratings = make(n, users, items, seed)
    try:
        rest, held = ratings.split(fraction, seed, by)
    except InputError as error:
        assert "both parts need at least one" in str(error)
        return
    assert collections.Counter(triples(rest) + triples(held)) == collections.Counter(triples(ratings))
    assert rest.shape == held.shape == ratings.shape
    if by == "user":
        for user, degree in enumerate(ratings.degrees()[0].tolist()):
            expected = min(round(fraction * degree), max(degree - 1, 0))
            assert int((held.users == user).sum()) == expected
    else:
        assert len(held) == round(fraction * n)
    if by == "time":
        assert held.times.min() >= rest.times.max()


def test_parts_keep_the_order_and_a_seed_is_a_split():
    ratings = make()
    order = {triple: place for place, triple in enumerate(triples(ratings))}
    for by in SPLITS:
        for part in ratings.split(0.3, 1, by):
            places = [order[triple] for triple in triples(part)]
            assert places == sorted(places)
        assert triples(ratings.split(0.3, 1, by)[1]) == triples(ratings.split(0.3, 1, by)[1])
    assert triples(ratings.split(0.3, 1)[1]) != triples(ratings.split(0.3, 2)[1])


def test_of_equal_times_the_later_ones_are_held_out():
    ratings = Ratings([0] * 6, range(6), [1] * 6, (1, 6), [5, 1, 5, 5, 1, 5])
    assert ratings.split(1 / 3, by="time")[1].items.tolist() == [3, 5]


def test_splits_that_cannot_be():
    with pytest.raises(UsageError, match="no times"):
        make(times=False).split(0.5, by="time")
    with pytest.raises(UsageError, match="expected one of row, user, time"):
        make().split(0.5, by="item")
    for fraction in (0, 1, -1, float("nan")):
        with pytest.raises(InputError, match="between 0 and 1"):
            make().split(fraction)
    with pytest.raises(InputError, match="both parts"):
        make(3, 3, 3).split(0.01)


# -- counts -----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 80), st.integers(1, 9), st.integers(1, 9), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_counts_beside_their_twins(n, users, items, seed):
    random = np.random.default_rng(seed)
    ratings = Ratings(random.integers(0, users, n), random.integers(0, items, n), random.random(n), (users, items))
    pairs = list(zip(ratings.users.tolist(), ratings.items.tolist(), strict=True))
    by_user, by_item = ratings.degrees()
    assert by_user.tolist() == [sum(u == user for u, _ in pairs) for user in range(users)]
    assert by_item.tolist() == [sum(i == item for _, i in pairs) for item in range(items)]
    begin, listed = ratings.user_lists()
    for user in range(users):
        assert listed[begin[user] : begin[user + 1]].tolist() == sorted({i for u, i in pairs if u == user})
    kept, repeats = last_of_repeats(ratings)
    last = {pair: place for place, pair in enumerate(pairs)}
    assert repeats == n - len(last)
    assert triples(kept) == [triples(ratings)[place] for place in sorted(last.values())]


@given(st.integers(1, 40), st.integers(0, 5))
@settings(max_examples=30, deadline=None)
def test_statistics_beside_the_definition(n, seed):
    ratings = make(n, 8, 6, seed)
    omega, delta, rho, _ = hypergraph([{u, 8 + i} for u, i, *_ in triples(ratings)])
    assert rating_statistics(ratings) == {"omega": omega, "delta": delta, "rho": rho, "density": n / 48}
