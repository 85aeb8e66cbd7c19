"""The figures of a GPU's benchmark from its timings: medians, ratios to rivals, losses after the same rounds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from hogwild.bench.gpu.sides import Row
from hogwild.bench.rounds import ratio


def summary(rows: Iterable[Row]) -> list[Row]:
    """Return a row for each side of each part, in the order of their beginnings; the first round does not count."""
    sides: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["what"] != "device":
            sides.setdefault((row["part"], row["what"]), []).append(row)
    return [_figures(sides, part, name) for part, name in sides]


def _figures(sides: dict[tuple[str, str], list[Row]], part: str, name: str) -> Row:
    taken = sides[part, name]
    last, seconds = taken[-1], _seconds(taken)
    kept = {field: value for field, value in last.items() if field not in ("seconds", "round")}
    found: Row = kept | {"summary": True, "rounds": len(taken), "measured": None}
    if part == "correctness":
        return found | {"measured": last.get("difference")}
    if seconds is None:
        return found
    rival = sides.get((part, str(last.get("rival"))), [])
    rate = last["work"] / seconds
    found |= {"seconds": seconds, "measured": rate, "ratio": ratio(rate, _rate(rival))}
    found["worse"] = _worse(taken, sides.get((part, str(last.get("against", last.get("rival")))), []))
    if "eager" in last:
        found["over_eager"] = ratio(rate, _rate(sides.get((part, last["eager"]), [])))
    return found | {"nonzeros_per_second": rate} if part == "linear" else found


def _seconds(taken: list[Row]) -> float | None:
    """The median of the rounds that count; nothing of a side that failed."""
    if not taken or any(row["status"] != "ok" for row in taken):
        return None
    counted = [row["seconds"] for row in taken if row["round"]]
    return statistics.median(counted) if counted else None


def _rate(taken: list[Row]) -> float | None:
    seconds = _seconds(taken)
    return taken[-1]["work"] / seconds if seconds else None


def _worse(mine: list[Row], theirs: list[Row]) -> float | None:
    """By what fraction my loss exceeds the rival's in the last round that both have."""
    losses = [{row["round"]: row.get("loss") for row in rows if row["status"] == "ok"} for rows in (mine, theirs)]
    common = max(losses[0].keys() & losses[1].keys(), default=None)
    found = None if common is None else ratio(losses[0][common], losses[1][common])
    return None if found is None else found - 1


COLUMNS = ("what", "in_flight", "measured", "unit", "rival", "ratio", "over_eager", "loss", "worse", "rounds", "status")


def table(rows: Iterable[Row]) -> str:
    """Return a table of figures as text."""
    cells = [COLUMNS, *(tuple(_text(row.get(name)) for name in COLUMNS) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip() for line in cells)


def _text(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
