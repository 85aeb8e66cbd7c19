"""Ratings cut into tiles: a permutation, ranges that do not overlap, and a cut that fits the cache."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from hogwild.problems.completion.tiles import FLOATS, Tiles, cut, split, tile

# without the JIT, NumPy's scalars warn where machine numbers just overflow
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered")
SHAPE = (700, 300)


def some_ratings(n=20_000, shape=SHAPE, seed=0):
    rng = np.random.default_rng(seed)
    users = (rng.random(n) ** 2 * shape[0]).astype(np.int32)
    items = (rng.random(n) ** 3 * shape[1]).astype(np.int32)
    return users, items, np.arange(n, dtype=np.float32)


def cut_up(users, items, values, **options):
    known = {"shape": SHAPE, "row_bytes": 128, "cache_bytes": 1 << 16, "workers": 1, "seed": 3} | options
    return tile(users, items, values, **known)


@pytest.mark.parametrize("fenced", [False, True])
@pytest.mark.parametrize("workers", [1, 3])
def test_tiles_hold_every_rating_once_and_ranges_do_not_overlap(workers, fenced):
    users, items, values = some_ratings()
    order, arrays = cut_up(users, items, values, workers=workers, fenced=fenced)
    rows, columns = order.grid
    assert isinstance(order, Tiles)
    assert order.n_chunks == order.n_blocks == rows * columns == len(arrays["begin"]) - 1
    assert (order.n_rows, arrays["begin"][0], arrays["begin"][-1]) == (len(users), 0, len(users))
    came_from = arrays["values"].astype(int)
    np.testing.assert_array_equal(np.sort(came_from), np.arange(len(users)))
    np.testing.assert_array_equal(users[came_from], arrays["users"])
    np.testing.assert_array_equal(items[came_from], arrays["items"])
    at = np.repeat(np.arange(order.n_chunks), np.diff(arrays["begin"]))
    for name, ranges in (("users", at // columns), ("items", at % columns)):
        for members in (arrays[name], arrays[name] // FLOATS):  # nor cache lines of biases
            assert len(set(zip(members, ranges))) == len(set(members)), name
    if fenced:
        assert rows >= columns >= 2 * workers


def test_ratings_of_a_tile_are_shuffled_and_the_seed_says_how():
    ratings = some_ratings()
    first, again, other = (cut_up(*ratings, seed=seed)[1] for seed in (3, 3, 4))
    for name, array in first.items():
        np.testing.assert_array_equal(array, again[name])
    assert (first["users"] != other["users"]).any()
    values, begin = first["values"], first["begin"]
    rises = np.concatenate([np.diff(values[a:b]) > 0 for a, b in pairwise(begin)])
    assert 0.47 < rises.mean() < 0.53  # in the file's order all would


def test_ranges_hold_equal_shares():
    degree = np.random.default_rng(0).zipf(1.7, 5000).clip(max=2000)
    held = np.bincount(split(degree, 8, np.random.default_rng(1)), weights=degree, minlength=8)
    assert held.max() < 1.5 * held.mean()
    assert held.min() > 0.5 * held.mean()


def test_the_cut_fits_the_cache():
    n, cache = 9_600_000, 1 << 20
    for row_bytes in (64, 128, 512):
        rows, columns = cut(480_000, 17_770, n, row_bytes, cache, 1, False)
        assert 480_000 / rows * row_bytes <= cache / 3
        assert columns <= 2  # users have few ratings, and would be brought in again for each range of items
    rows, columns = cut(480_000, 17_770, n, 128, cache, 4, True)
    assert rows >= columns >= 8


def test_small_data_have_few_tiles_and_large_ones_enough_for_the_workers():
    assert cut(40, 20, 200, 64, 1 << 20, 1, False) == (1, 1)
    assert cut(40, 20, 200, 64, 1 << 20, 2, True) == (4, 4)
    for workers in (1, 2, 16):
        rows, columns = cut(4000, 2000, 200_000, 64, 1 << 20, workers, False)
        assert rows * columns >= max(64, 8 * workers)


def test_users_and_items_without_ratings():
    users, items = np.array([3, 3, 9], np.int32), np.array([0, 7, 7], np.int32)
    order, arrays = tile(users, items, np.ones(3, np.float32), (50, 40), 64, 1 << 20, 2, 0, fenced=True)
    assert order.grid == (4, 4)
    assert sorted(zip(arrays["users"], arrays["items"])) == [(3, 0), (3, 7), (9, 7)]
