"""Kernels of deltas against NumPy, and the code of indices: what is read back, and how long it is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hogwild.exchanges import deltas_kernel as kernels
from hogwild.exchanges.gossip import pack_entries, parameter, unpack_entries

SIZES = (1, 2, 31, 32, 33, 64, 257)
SIGN = np.uint32(1 << 31)


def arrays(size, seed=0):
    """mine, base, moved, start of a replica that owes a third of its weights, some of them infinite or NaN."""
    rng = np.random.default_rng(seed)
    start, moved = rng.normal(size=(2, size)).astype(np.float32)
    base = start + moved
    mine = base + (rng.normal(size=size) * (rng.random(size) < 0.4)).astype(np.float32)
    mine[rng.random(size) < 0.02] = np.nan
    mine[rng.random(size) < 0.02] = np.inf
    return mine, base, moved, start


@pytest.mark.parametrize("size", SIZES)
def test_plus_or_minus_tau(size):
    mine, base, moved, start = arrays(size, size)
    old, tau, entries = moved.copy(), np.float32(0.375), np.zeros(size, np.uint32)
    with np.errstate(all="ignore"):
        owed = mine - base
        those = np.flatnonzero((np.abs(owed) > tau) & np.isfinite(owed))
        count = kernels.quantised(mine, base, moved, start, tau, entries)
    np.testing.assert_array_equal(entries[:count] & ~SIGN, those)
    np.testing.assert_array_equal(entries[:count] >= SIGN, owed[those] < 0)
    old[those] += np.where(owed[those] > 0, tau, -tau)
    np.testing.assert_array_equal(moved, old)
    np.testing.assert_array_equal(base[those], (start + old)[those])
    # Another replica takes them in.
    mine, base, moved, start = arrays(size, size + 1)
    before = mine.copy(), moved.copy()
    with np.errstate(all="ignore"):
        kernels.absorb_signs(mine, base, moved, start, entries, count, tau)
    delta = np.where(owed[those] > 0, tau, -tau)
    np.testing.assert_array_equal(mine[those], before[0][those] + delta)
    np.testing.assert_array_equal(moved[those], before[1][those] + delta)
    np.testing.assert_array_equal(base[those], (start + moved)[those])
    assert np.delete(mine, those).tobytes() == np.delete(before[0], those).tobytes()


@pytest.mark.parametrize(("size", "stride"), [(5000, 1), (5000, 3), (40, 1)])
@pytest.mark.parametrize("share", [0.001, 0.01, 0.3, 1.0])
def test_a_share_of_the_weights_owes_as_much(size, stride, share):
    rng = np.random.default_rng(size)
    mine = (rng.standard_cauchy(size) * (rng.random(size) < 0.5)).astype(np.float32)
    base, bins = np.zeros_like(mine), np.zeros(kernels.BINS, np.int64)
    found = np.float32(kernels.magnitude(mine, base, stride, share, bins))
    sample = np.abs(mine[::stride])
    wanted = min(share * len(sample), 0.5 * np.count_nonzero(sample))
    mantissa = found.view(np.int32) & 0x7FFFFF
    assert mantissa % (1 << kernels.SHIFT) == 0  # a power of two times 4, 5, 6 or 7
    lower = (found.view(np.int32) - (1 << kernels.SHIFT)).view(np.float32)
    most, least = np.count_nonzero(sample >= found), np.count_nonzero(sample >= lower)
    assert most <= wanted < least or (most > wanted and not (sample >= found * np.float32(1.5)).any())
    assert kernels.magnitude(mine, mine, stride, share, bins) == 0


# ---- the code


def entries_of(indices, signs):
    return np.array(indices, np.uint32) | np.where(signs, SIGN, np.uint32(0)).astype(np.uint32)


@given(st.sets(st.integers(0, 2**31 - 1), max_size=60), st.integers(0, 30), st.randoms())
@example({0}, 0, None)
@example({2000}, 0, None)
@example({94}, 0, None)  # three words to the bit
@example({2**31 - 1}, 20, None)
@settings(max_examples=60, deadline=None)
def test_whatever_is_coded_is_read_back(chosen, k, random):
    indices = sorted(chosen)
    if k < 16:  # or the unary part would be as long as the code of all indices
        indices = sorted({index % (4000 << k) for index in indices})
    entries = entries_of(indices, [random is not None and random.random() < 0.5 for _ in indices])
    words = np.full((max(indices, default=0) >> k) // 32 + len(entries) * (k + 2) // 32 + 3, 0xFFFFFFFF, np.uint32)
    used = kernels.rice_encode(entries, k, words)
    back = np.zeros_like(entries)
    kernels.rice_decode(words[: used + 1], k, back)
    np.testing.assert_array_equal(back, entries)
    gaps = np.diff(indices, prepend=-1) - 1
    assert used == -(-int(sum((gap >> k) + 1 + k + 1 for gap in gaps)) // 32)


@pytest.mark.parametrize(("density", "bits"), [(1e-2, 9.1), (1e-3, 12.5), (1e-4, 15.8)])
def test_bits_of_an_entry(density, bits):
    rng = np.random.default_rng(1)
    indices = np.cumsum(rng.geometric(density, size=5000)) - 1
    size = int(indices[-1]) + 1
    entries = entries_of(indices, rng.random(len(indices)) < 0.5)
    packed = pack_entries(entries, size)
    assert 32 * (len(packed) - 2) / len(entries) == pytest.approx(bits, rel=0.02)
    np.testing.assert_array_equal(unpack_entries(packed), entries)
    assert parameter(1, round(1 / density)) == {1e-2: 6, 1e-3: 9, 1e-4: 13}[density]
