"""Synthetic ratings: the same bits everywhere, shaped as the dials say, no pair twice, learnable."""

from __future__ import annotations

import zlib

import pytest

from hogwild.data.ratings import synthetic as rating_synthetic
from hogwild.data.ratings.container import rating_statistics
from hogwild.data.ratings.source import open_ratings
from hogwild.errors import InputError

SMALL = "synthetic:ratings?users=60&items=40&ratings=700&rank=3"  # small enough for Python without the JIT

# CRC-32 of users, items, values. Another sum, on another machine or after a change, is another data set under the same
# name: then raise rating_synthetic.GENERATOR, or find the operation that is not rounded exactly.
PINNED: dict[str, tuple[int, int, int]] = {
    SMALL: (2815688464, 2301665203, 3914951951),
    SMALL + "&seed=1&values=real&noise=0": (3447398957, 4120943301, 4142696543),
    SMALL + "&scale=100&zipf=1.7&user_zipf=0": (1041658937, 3675827159, 3311948771),
}


def sums(ratings):
    return tuple(zlib.crc32(array.tobytes()) for array in (ratings.users, ratings.items, ratings.values))


@pytest.mark.parametrize("name", PINNED)
def test_the_bits_are_those_of_every_machine(name):
    assert sums(open_ratings(name)) == PINNED[name]


def test_chunks_do_not_matter(monkeypatch):
    ratings = open_ratings(SMALL)
    ratings._check()
    assert len(set(zip(ratings.users.tolist(), ratings.items.tolist(), strict=True))) == len(ratings) == 700
    whole = sums(ratings)
    monkeypatch.setattr(rating_synthetic, "CHUNK", 50)
    assert sums(open_ratings(SMALL)) == whole


SHAPE = "ratings=1000000&rank=16&noise=0.8"
NETFLIX = f"synthetic:ratings?users=480189&items=17770&zipf=1.5&shift=208&user_shift=350&{SHAPE}"


def test_dials_give_the_papers_statistics():
    found = rating_statistics(open_ratings(NETFLIX))
    assert found["delta"] == pytest.approx(2.3e-3, rel=0.2)  # a tenth less of it at ten million ratings
    assert found["rho"] == pytest.approx(2.5e-3, rel=0.2)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "no such synthetic ratings; there are synthetic:ratings"),
        ("ratings?ratings=2e6", "more than half of the 2,000 x 1,000 pairs"),
    ],
)
def test_names_that_are_wrong(name, message):
    with pytest.raises(InputError, match=message):
        open_ratings(f"synthetic:{name}")
