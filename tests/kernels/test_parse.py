"""The parser's numbers against Python's ``float``, which is exact."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hogwild.data.text import parse_kernel as parse

EDGES = """
0 -0 +1 1. .5 -.5 00012 0.0 0e5 -0e999999999999 1e0 1E+2 1e-2 12345678901234567 9007199254740992 9007199254740993
9007199254740993e1 1e22 1e23 -1e-22 1e-23 123456789012345678 1234567890123456789 12345678901234567890123456789e-20
0.1 0.3333333333333333 0.333333333333333333333 2.2250738585072014e-308 1e-45 7e-46 7.1e-46 1.4e-45 1e-46 1e-400 1e38
3.4028234663852886e38 3.4028235e38 3.40282356e38 3.4028235677973365e38 340282346638528859811704183484516925440
16777217 16777217.0000000000000000000000000001 0.000000000000000000000000000000000000000000001
1000000000000000000000e-21
4.9999999999999999999999999e-324
0.00000000000000000000000000000000000001175494350822287507968736537222245677818
""".split()
#: Those too near a tie of float32, or its end, to be decided in double precision.
NEAR = "3.4028235677973365e38 16777217.0000000000000000000000000001".split()
TOO_LARGE = (
    "3.4028235677973366e38 3.5e38 -1e39 1e99999999999999999999 340282356779733661637539395458142568448 9e38".split()
)
NOT_NUMBERS = ["", ".", "-", "+", "e5", "1e", "1e+", "--1", "+-1", ".e1", "nan", "inf", "-inf", "abc", "é"]


def number(text: str) -> tuple[bool, int, float]:
    return parse.number(bytearray(text.encode() + b"\n"), 0)


def check(text: str) -> bool:
    """Compare with ``float`` what the kernel does not leave to it; return whether it does."""
    good, end, value = number(text)
    assert end == len(text)
    if good:
        assert abs(float(text)) < parse.FLOAT32_END, text
        assert np.float32(value).tobytes() == np.float32(float(text)).tobytes(), text
    return not good


@pytest.mark.parametrize("text", EDGES)
def test_edges(text: str) -> None:
    assert check(text) == check("-" + text.lstrip("+-")) == (text in NEAR)


@pytest.mark.parametrize("text", [*TOO_LARGE, *NOT_NUMBERS])
def test_no_numbers_of_float32(text: str) -> None:
    assert not number(text)[0]


@pytest.mark.parametrize("text", ["0x10", "1_000", "1,5", "1.2.3", "1e5.0", "1-2", "1f", "1:2"])
def test_other_spellings_end_early(text: str) -> None:
    good, end, _ = number(text)
    assert good
    assert end < len(text)  # the caller sees that no blank follows


def digits(least: int, most: int) -> st.SearchStrategy[str]:
    return st.text("0123456789", min_size=least, max_size=most)


@given(
    st.tuples(
        st.sampled_from(["", "+", "-"]),
        digits(1, 25) | st.tuples(digits(1, 25), digits(0, 25)).map(".".join) | digits(1, 25).map(".{}".format),
        st.just("") | st.tuples(st.sampled_from(["e", "E", "e+", "e-"]), digits(1, 3)).map("".join),
    ).map("".join)
)
@settings(max_examples=400, deadline=None)
def test_any_decimal(text: str) -> None:
    check(text)


@given(st.floats(width=32, min_value=0, max_value=2.0**126), st.integers(-1, 1), st.integers(18, 150))
@settings(max_examples=200, deadline=None)
def test_close_to_a_tie(value: float, side: int, digits: int) -> None:
    """Halfway between two float32 and a hair beside it: what double precision cannot decide is left to Python."""
    following = float(np.nextafter(np.float32(value), np.float32(np.inf)))
    with localcontext() as context:
        context.prec = 200
        tie = (Decimal(value) + Decimal(following)) / 2
        check(f"{tie + side * tie.scaleb(-digits):e}")
