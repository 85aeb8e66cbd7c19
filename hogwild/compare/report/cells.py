"""Numbers as the cells of tables show them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from hogwild.compare.report.results import Row, number
from hogwild.compare.report.summary import Spread

NONE = "–"


def spread(found: Spread | None, form: str | Callable[[float], str], unit: str = "") -> str:
    """``2.1 [2.0–2.3]``; quartiles that show no other figure than the median are left out."""
    if found is None:
        return NONE
    show = form if callable(form) else lambda value: f"{value:{form}}"
    middle, low, high = show(found.median), show(found.q25), show(found.q75)
    if low == high == middle:
        return middle + unit
    shared = middle.rpartition(" ")[2] if " " in middle else ""  # a unit is said once
    if shared and low.endswith(f" {shared}") and high.endswith(f" {shared}"):
        low, middle = low.removesuffix(f" {shared}"), middle.removesuffix(f" {shared}")
        return f"{middle} [{low}–{high.removesuffix(f' {shared}')}] {shared}"
    return f"{middle}{unit} [{low}–{high}]"


def millions(value: float) -> str:
    return digits(1e-6 * value)


def digits(value: float) -> str:
    """Three of them, and no powers of ten for what is large."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}"


def times(value: float) -> str:
    return f"{value:.2f}x" if math.isfinite(value) else NONE


def step_text(step: float | None) -> str:
    return NONE if step is None else f"{step:.4g}"


def grid_text(steps: Iterable[float]) -> str:
    return " ".join(f"{step:.4g}" for step in steps)


def counted(about: Row, name: str, words: str = "") -> str | None:
    value = number(about, name)
    return f"{value:,.0f} {words or name}" if math.isfinite(value) else None


def valued(about: Row, name: str, sign: str) -> str | None:
    value = number(about, name)
    return f"{sign} = {value:.4g}" if math.isfinite(value) else None


def joined(*parts: Any) -> str:
    return ", ".join(str(part) for part in parts if part)


def listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def megabytes(size: float) -> str:
    return digits(1e-6 * size) if size else "0"
