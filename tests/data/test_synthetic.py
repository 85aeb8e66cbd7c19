"""Synthetic data: the same bits everywhere, shaped as the dials say, learnable by a linear model."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from hogwild.data import synthetic as common
from hogwild.data.cache import Cache
from hogwild.data.rows import synthetic
from hogwild.data.rows.container import Rows
from hogwild.data.rows.source import open_data
from hogwild.data.rows.statistics import describe
from hogwild.errors import InputError
from tests.runs import line_of

CLICKS = "synthetic:ctr?rows=400&features=900&fields=12&rank=2"
SMALL = "synthetic:rcv1?rows=400&features=900&nnz=12"  # small enough for Python without the JIT


def generate(name, cache=None, progress=None):
    return open_data(name, cache=cache, progress=progress)


def arrays(rows: Rows) -> tuple[np.ndarray, ...]:
    return rows.begin, rows.indices, rows.values, rows.targets


# CRC-32 of begin, indices, values, targets. Another sum, on another machine or after a change, is another data set
# under the same name: then raise synthetic.GENERATOR, or find the operation that is not rounded exactly.
PINNED = {
    SMALL: (810508877, 1807187530, 3198648870, 680644759),
    SMALL + "&seed=1&values=counts&classes=5&zipf=1.3": (3132698697, 4217978672, 3297612707, 2798902916),
    SMALL + "&values=real&task=regress": (810508877, 1807187530, 1289417949, 1804595347),
    SMALL + "&values=binary&skip=1000000": (273910443, 3620294302, 3360909010, 3761166959),
    "synthetic:dense?rows=100&features=10": (2749237767, 4110519513, 2583028630, 2361165085),
    "synthetic:ctr?rows=200&features=5000": (2289463816, 1133849321, 1910240998, 566499531),
    CLICKS: (766578847, 3834991809, 3302381042, 976129854),
}


@pytest.mark.parametrize("name", PINNED)
def test_the_bits_are_those_of_every_machine(name):
    assert tuple(zlib.crc32(np.ascontiguousarray(array)) for array in arrays(generate(name))) == PINNED[name]


@pytest.mark.parametrize("name", ["synthetic:uniform?rows=300&features=500", CLICKS])
def test_rows_are_well_formed(name):
    rows = generate(name)
    rows._check()  # ascending without repeats, finite, inside the width
    assert rows.width == common.parse(name, "rows").features
    assert set(rows.targets) == {-1.0, 1.0}


@pytest.mark.parametrize("name", [SMALL, CLICKS])
def test_chunks_and_neighbours_do_not_matter(name, monkeypatch):
    whole = generate(name)
    monkeypatch.setattr(synthetic, "CHUNK", 12 * 37)
    for a, b in zip(arrays(whole), arrays(generate(name))):
        assert np.array_equal(a, b)
    tail = generate(name.replace("rows=400", "rows=150") + "&skip=250")
    for a, b in zip(arrays(whole.block(250, 400).compact()), arrays(tail)):
        assert np.array_equal(a, b)


def test_a_row_has_a_feature_of_each_field():
    rows = generate(CLICKS)
    assert (np.sort(rows.fields[rows.indices].reshape(-1, 12), axis=1) == np.arange(12)).all()
    sizes = np.bincount(rows.fields)
    assert (sizes.sum(), sizes.min()) == (900, 2)
    assert (np.diff(sizes) <= 0).all()
    assert 0.2 < (rows.targets > 0).mean() < 0.4  # a quarter, and a tenth are flipped


def test_noise_is_the_share_of_wrong_labels():
    clean, noisy = (generate(f"{SMALL.replace('400', '5000')}&noise={noise}") for noise in (0, 0.2))
    assert np.array_equal(clean.indices, noisy.indices)
    assert abs((clean.targets != noisy.targets).mean() - 0.2) < 0.02


def test_the_default_is_shaped_like_rcv1():
    from numba import config

    if config.DISABLE_JIT:
        pytest.skip("takes the JIT")
    facts = describe(generate("synthetic:rcv1?rows=5000"))
    assert facts["width"] == 47_236
    assert abs(facts["nnz"] / facts["rows"] - 73) < 1.5
    assert 0.38 < facts["delta"] < 0.5  # 0.43 in the original
    uniform = describe(generate("synthetic:uniform?rows=20000"))
    assert uniform["delta"] < 0.002
    assert uniform["rho"] < 0.03


def test_through_the_cache(tmp_path):
    cache, seen = Cache(tmp_path), []
    first = generate(SMALL, cache, lambda done, total: seen.append((done, total)))
    assert seen[-1] == (400, 400)
    assert generate(SMALL + "&seed=0", cache).store == first.store
    assert generate(SMALL + "&seed=2", cache).store != first.store
    assert len(cache.entries()) == 2


def test_names():
    dials = common.parse("synthetic:rcv1?rows=2e5&seed=9223372036854775807", "rows")
    assert (dials.rows, dials.seed, dials.features, dials.values) == (200_000, 2**63 - 1, 47_236, "tfidf")
    assert common.parse("synthetic:dense?features=5", "rows").nnz == 5
    assert common.parse("synthetic:rcv1?task=regress", "rows").noise == 0.1
    assert common.parse("synthetic:rcv1?task=regress&noise=0.03", "rows").noise == 0.03


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("rcv2", "no such synthetic rows; there are synthetic:rcv1, synthetic:uniform"),
        ("rcv1?row=5", "no dial 'row': did you mean rows?"),
        ("rcv1?rows=2.5", "expected a whole number"),
        ("rcv1?rows=0", "rows=0: expected a whole number from 1 to"),
        ("rcv1?zipf=nan", "zipf=nan: expected a number from 0 to 4"),
        ("rcv1?values=idf", "expected one of tfidf, binary, counts, real"),
        ("rcv1?nnz=50&features=49", "expected nnz up to features"),
        ("rcv1?noise=0.6", "noise up to 0.5 for labels"),
        ("ctr?rank=2", "rank needs fields"),
        ("ctr?fields=9&nnz=8", "fields need values=binary, spread=0, two classes"),
        ("ctr?fields=9&features=17", "two features each"),
    ],
)
def test_bad_names(name, said):
    assert said in line_of(InputError, generate, f"synthetic:{name}")


def test_the_exact_functions_are_close_to_the_real_ones():
    x = np.linspace(-20, 20, 999)
    assert np.allclose(common.portable_exp(x), np.exp(x), rtol=1e-9)
    x = np.geomspace(1e-12, 1e12, 999)
    assert np.allclose(common.portable_log(x), np.log(x), rtol=1e-14, atol=1e-14)
