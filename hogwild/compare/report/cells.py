"""Numbers as tables, figures and sentences show them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable

from hogwild.compare.report.results import Spread

NONE = "–"
UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}


def quartiles(values: Spread | None, show: Callable[[float], str]) -> str:
    """``2.1 s [2.0–2.3]``; quartiles that show no other figure than the median are left out."""
    if values is None:
        return NONE
    middle, low, high = map(show, values)
    unit = "".join(middle.partition(" ")[1:])
    if low.endswith(unit) and high.endswith(unit):  # said once
        low, high = low.removesuffix(unit), high.removesuffix(unit)
    return middle if middle.removesuffix(unit) == low == high else f"{middle} [{low}–{high}]"


def digits(value: float) -> str:
    """Three of them, and no powers of ten for what is large."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}"


def millions(value: float) -> str:
    return digits(1e-6 * value) if value else "0"


def times(value: float) -> str:
    return f"{value:.2f}x" if math.isfinite(value) else NONE


def figure(value: float) -> str:
    return f"{value:.5g}" if math.isfinite(value) else NONE


def listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def plural(count: float, noun: str) -> str:
    return f"{count:g} {noun}{'s' * (count != 1)}"


def crew(workers: int, timed: bool = True) -> str:
    return plural(workers, "worker" if timed else "simulated worker")


def percent(share: float) -> str:
    """Return ``12.5 %``."""
    return f"{100 * share:.3g} %"


def duration(seconds: float) -> str:
    """Return three digits with a unit that needs no powers of ten."""
    unit = next((unit for unit, size in UNITS.items() if seconds >= 0.9995 * size), "ns")
    return f"{digits(seconds / UNITS[unit])} {unit}"


def place(cell: str) -> float:
    """Return the number by which a cell of figures is sorted: seconds for a time; what has none comes last."""
    figure = re.match(r"(-?[\d,]+\.?\d*(?:e[+-]?\d+)?) ?(\S*)", cell)
    return float(figure[1].replace(",", "")) * UNITS.get(figure[2], 1.0) if figure else 1e300
