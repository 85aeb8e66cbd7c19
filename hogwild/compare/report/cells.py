"""Numbers as tables, figures and sentences show them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable

from hogwild.compare.report.results import Spread

NONE = "–"
UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}


def quartiles(values: Spread | None, show: Callable[[float], str]) -> str:
    """``2.1 [2.0–2.3]``; quartiles that show no other figure than the median are left out."""
    if values is None:
        return NONE
    texts = [show(value) for value in (values.median, values.q25, values.q75)]
    if len(set(texts)) == 1:
        return texts[0]
    units = {text.lstrip("0123456789.,e+-") for text in texts}
    unit = units.pop() if len(units) == 1 else ""  # said once
    middle, low, high = (text.removesuffix(unit) for text in texts)
    return f"{middle} [{low}–{high}]{unit}"


def digits(value: float) -> str:
    """Three of them, and no powers of ten for what is large."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}"


def millions(value: float) -> str:
    return digits(1e-6 * value) if value else "0"


def times(value: float) -> str:
    return f"{value:.2f}x" if math.isfinite(value) else NONE


def step_text(step: float | None) -> str:
    return NONE if step is None else f"{step:.4g}"


def listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def plural(count: float, noun: str) -> str:
    return f"{count:g} {noun}{'s' * (count != 1)}"


def crew(workers: int, timed: bool = True) -> str:
    return plural(workers, "worker" if timed else "simulated worker")


def aim(eps: float) -> str:
    """Return a target as it was given: ``12.5 %``."""
    return f"{100 * eps:.6g} %"


def percent(share: float) -> str:
    """Return ``3 %`` or ``0.35 %``, with no more digits than show how near a run came."""
    value = 100 * share
    return f"{value:.0f} %" if value >= 99.5 else f"{value:.2g} %"


def duration(seconds: float) -> str:
    """Return three digits with a unit that needs no powers of ten."""
    unit = next((unit for unit, size in UNITS.items() if seconds >= 0.9995 * size), "ns")
    value = seconds / UNITS[unit]
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:#.3g} {unit}".replace(". ", " ")


def place(cell: str) -> float:
    """Return the number by which a cell of figures is sorted: seconds for a time; what has none comes last."""
    figure = re.match(r"(-?[\d,]+\.?\d*(?:e[+-]?\d+)?)(?: \[.*\])? ?(.*)", cell)
    return float(figure[1].replace(",", "")) * UNITS.get(figure[2][:2].strip(), 1.0) if figure else 1e300
