"""The hash against whole-number arithmetic and its published first value, and the sort against a stable NumPy one."""

from __future__ import annotations

import numpy as np
import pytest

from hogwild.data.text import hashing_kernel as hashing
from hogwild.data.text import parse_kernel as parse
from tests.reference import bucket

EDGES = [0, 1, 2, 2**31 - 1, 2**31, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1]


@pytest.fixture(autouse=True)
def wrapping():
    """The hash wraps around, which NumPy tells of when the kernels run as plain Python."""
    with np.errstate(over="ignore"):
        yield


def test_published_first_output_of_splitmix64():
    assert bucket(0, 64) == 0xE220A8397B1DCDAF
    assert hashing.bucket(np.uint64(0), 30) == 0xE220A8397B1DCDAF >> 34


@pytest.mark.parametrize("base", [0, 1])
@pytest.mark.parametrize("digits", [str(e) for e in EDGES] + ["007", "0" * 18 + "12", "9" * 18, "1" + "0" * 18])
def test_bucket_of_digits(digits, base):
    text = bytearray(f"{digits}:1\n".encode())
    found, end = parse._bucket(text, 0, base, 24)
    assert end == len(digits) + 1
    assert found == (-1 if int(digits) < base else bucket(int(digits) - base, 24))


@pytest.mark.parametrize("digits", ["", "x", str(2**64), "2" * 20, "9" * 21])
def test_no_bucket(digits):
    assert parse._bucket(bytearray(f"{digits}:1\n".encode()), 0, 0, 24)[0] == -1


def sort(lengths, indices, values, bits):
    longest = max(lengths, default=0)
    spare = np.empty(longest, np.int32), np.empty(longest, np.float32), np.empty(hashing.BINS, np.int64)
    lengths, indices, values = np.array(lengths, np.int64), np.array(indices, np.int32), np.array(values, np.float32)
    nnz, summed, bad = hashing.sort_rows(lengths, indices, values, bits, *spare)
    return lengths.tolist(), indices[:nnz].tolist(), values[:nnz].tolist(), summed, bad


def twin(lengths, indices, values):
    out, begin = ([], [], []), 0
    for n in lengths:
        sums = {}
        for u, x in zip(indices[begin : begin + n].tolist(), values[begin : begin + n].tolist()):
            sums[u] = sums.get(u, 0.0) + x  # in float64, in the order of the row
        out[0].append(len(sums))
        out[1].extend(sorted(sums))
        out[2].extend(float(np.float32(sums[u])) for u in sorted(sums))
        begin += n
    return *out, sum(kept < n for kept, n in zip(out[0], lengths)), -1


@pytest.mark.parametrize("bits", [1, 5, 12, 30])
@pytest.mark.parametrize("kind", ["random", "one bin", "one bucket", "falling"])
def test_sort_is_its_twin(bits, kind):
    """Around the lengths from which rows are sorted in other ways, also rows written by someone who knows the hash."""
    random = np.random.default_rng(bits)
    lengths = [0, 1, 2, 0, hashing.FEW, hashing.FEW + 1, 17, 65, 200, 0]
    lengths += [hashing.SHORT - 1, hashing.SHORT, 900] if bits > 5 else []
    n = sum(lengths)
    indices = {
        "random": random.integers(0, 2**bits, n),
        "one bin": random.integers(0, min(40, 2**bits), n),
        "one bucket": np.full(n, 2**bits - 1),
        "falling": np.arange(n)[::-1] % 2**bits,
    }[kind]
    values = random.standard_normal(n).astype(np.float32)
    assert sort(lengths, indices, values, bits) == twin(lengths, indices, values)


def test_the_first_row_whose_sum_is_too_large():
    assert sort([1, 2, 2], [5, 1, 1, 1, 1], [3e38, 3e38, 3e38, 3e38, 3e38], 4)[4] == 1
    assert sort([3], [1, 1, 1], [3e38, 3e38, -3e38], 4)[2:] == ([float(np.float32(3e38))], 1, -1)  # in float64
