"""Schemes by which replicas trade, one per file; ``methods.EXCHANGES`` lists them."""

from __future__ import annotations

import math

from hogwild.exchanges.trade import Exchange
from hogwild.kernels.control import NO_LIMIT
from hogwild.methods import EXCHANGES, Number, located, parse_exchange


def make_exchange(text: str, rows: float = 1.0, sums: bool = True, shrinks: bool = False) -> Exchange | None:
    """Return the scheme for a name such as ``averaging:period=1000``, or None for ``none``.

    ``rows`` is a replica's share of an epoch, of which a period below one is a part; ``sums`` is that of
    :func:`hogwild.methods.parse_exchange`. ``shrinks`` says that there is an l1 penalty.

    Raises
    ------
    UsageError
        If the scheme or one of its parameters is unknown.
    """
    name, numbers = parse_exchange(text, sums)
    row = EXCHANGES[name]
    if not row.place:
        return None
    for key, allowed in row.numbers.items():
        if isinstance(allowed, Number) and allowed.whole:
            numbers[key] = _whole(numbers[key], rows)
    exchange: Exchange = located(row.place)(**numbers, **row.fixed, **({"shrinks": True} if shrinks else {}))
    return exchange


def _whole(number: float, rows: float) -> int:
    if math.isinf(number):
        return NO_LIMIT
    return int(number) if number >= 1 or number == 0 else max(int(number * rows), 1)
