"""The figures of a GPU's benchmark from its timings: medians, ratios to rivals, losses after the same rounds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from hogwild.bench.gpu.sides import Row
from hogwild.bench.rounds import ratio

COLUMNS = ("what", "in_flight", "measured", "unit", "rival", "ratio", "loss", "worse", "rounds", "status")


def summary(rows: Iterable[Row]) -> list[Row]:
    """Return a row for each side of each part, in the order of their beginnings; the first round does not count."""
    sides: dict[tuple[str, Any], list[Row]] = {}
    for row in rows:
        if row["what"] != "device":
            sides.setdefault((row["part"], row["what"]), []).append(row)
    return [_figures(sides, taken) for taken in sides.values()]


def _figures(sides: dict[tuple[str, Any], list[Row]], taken: list[Row]) -> Row:
    last = taken[-1]
    rival, against = (sides.get((last["part"], last.get(name)), []) for name in ("rival", "against"))
    found = {name: value for name, value in last.items() if name not in ("seconds", "round")}
    found |= {"summary": True, "rounds": len(taken), "measured": last.get("difference")}
    if (rate := _rate(taken)) is None:
        return found
    found |= {"seconds": last["work"] / rate, "measured": rate, "ratio": ratio(rate, _rate(rival))}
    found["worse"] = _worse(taken, against or rival)
    return found | {"nonzeros_per_second": rate} if last["part"] == "linear" else found


def _rate(taken: list[Row]) -> float | None:
    """Work per second, by the median of the rounds that count; nothing of a side that failed."""
    counted = [row["seconds"] for row in taken if row["round"] and row["status"] == "ok"]
    return taken[-1]["work"] / statistics.median(counted) if counted and taken[-1]["status"] == "ok" else None


def _worse(mine: list[Row], theirs: list[Row]) -> float | None:
    """By what fraction my loss exceeds the rival's in the last round that both have."""
    one, other = ({row["round"]: row.get("loss") for row in rows if row["status"] == "ok"} for rows in (mine, theirs))
    common = max(one.keys() & other.keys(), default=None)
    found = None if common is None else ratio(one[common], other[common])
    return None if found is None else found - 1


def table(rows: Iterable[Row]) -> str:
    """Return a table of figures as text."""
    cells = [COLUMNS, *(tuple(_text(row.get(name)) for name in COLUMNS) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip() for line in cells)


def _text(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
