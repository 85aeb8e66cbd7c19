"""Figures of what more workers do: the speed-up and its factors, and how lock-free workers affect each other.

Only the simulator counts stale gradients and lost updates, so figures of these appear only for simulated workers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hogwild.compare.report.results import ComparisonResult
from hogwild.compare.report.styles import GUIDE, grid, heading, legend, style, with_quartiles, workers_axis
from hogwild.compare.report.summary import REFERENCES, Group, Spread, is_fixed, own, serial, speedup
from hogwild.compare.report.tables import lost_share
from hogwild.compare.report.verdict import crew

DODGE = 1.03  # offset between methods that would hide each other
Measure = Callable[[Group, Group | None, ComparisonResult], Spread | None]  # of a group, beside serial


def _factor(name: str) -> Measure:
    """Return the measure of a part of the speed-up."""

    def measure(group: Group, over: Group | None, source: ComparisonResult) -> Spread | None:
        gain = speedup(group, over, source)
        value = getattr(gain, name) if gain else math.nan
        return Spread(value, value, value, 1) if math.isfinite(value) else None

    return measure


#: Titles, measures, and the ideal for so many workers.
Measures = tuple[tuple[str, Measure, Callable[[int], float] | None], ...]
FACTORS: Measures = (
    ("speed-up", _factor("total"), float),
    ("statistical factor", _factor("statistical"), lambda workers: 1.0),
    ("hardware factor", _factor("hardware"), float),
)
INTERLEAVING: Measures = (
    ("staleness: updates of others in between", lambda group, *_: group.over_epochs("staleness_mean"), None),
    ("lost updates of weights, for each update", lambda group, *_: lost_share(group), None),
)


def by_workers(sources: Sequence[ComparisonResult], measures: Measures) -> Any:
    """Plot a panel for each measure, a line of them for each comparison, against workers."""
    chosen = [(source, [_lines(source, measure) for _, measure, _ in measures]) for source in sources]
    chosen = [(source, lines) for source, lines in chosen if any(lines)]
    if not chosen:
        return None
    figure, panels = grid(len(chosen), len(measures), 2.7)
    for line, (source, found) in zip(panels, chosen):
        numbers = sorted({1, *(count for lines in found for points in lines.values() for count, _ in points)})
        for panel, (title, _, ideal), lines in zip(line, measures, found):
            if ideal is not None:
                panel.plot(numbers, [ideal(count) for count in numbers], label="ideal", **GUIDE)
                panel.yaxis.set_major_formatter("{x:g}x")
            for place, (method, points) in enumerate(lines.items()):
                apart = 1.0 if ideal is not None else DODGE ** (place - (len(lines) - 1) / 2)
                with_quartiles(panel, [(count * apart, found) for count, found in points], style(method))
            workers_axis(panel, numbers)
            panel.set_ylim(0, 1.06 * panel.get_ylim()[1])
            panel.set_title(heading(source, sources, title) if panel is line[0] else title, loc="left")
            if not lines:
                panel.axis("off")
    legend(figure, panels)
    return figure


def _lines(source: ComparisonResult, measure: Measure) -> dict[str, list[tuple[int, Spread]]]:
    found, lines = own(source), dict[str, list[tuple[int, Spread]]]()
    for group in found:
        value = None if group.kind in REFERENCES or is_fixed(group, found) else measure(group, serial(found), source)
        if value is not None:
            lines.setdefault(group.method, []).append((group.workers, value))
    return {method: sorted(points, key=lambda point: point[0]) for method, points in lines.items()}


def stale_counts(group: Group) -> Counter[int]:
    """Count updates by their staleness, over all runs."""
    total: Counter[int] = Counter()
    for run in group.runs:
        counts = run.rows[-1].get("staleness")
        if isinstance(counts, dict):
            total.update({int(stale): count for stale, count in counts.items()})
    return total


def histogram(sources: Sequence[ComparisonResult]) -> Any:
    """Plot the share of updates with at least a given staleness, one panel per comparison (cumulative: no bins)."""
    measured = [
        (source, [(group, counts) for group in own(source) if (counts := stale_counts(group))]) for source in sources
    ]
    chosen = [(source, found, max(group.workers for group, _ in found)) for source, found in measured if found]
    if not chosen:
        return None
    figure, panels = grid(1, len(chosen), 3.0, sharey=True)
    for panel, (source, found, most) in zip(panels[0], chosen):
        shown = [(group.method, counts) for group, counts in found if group.workers == most]
        for place, (method, counts) in enumerate(shown):
            stale = np.array(sorted(counts))
            share = np.cumsum([counts[value] for value in stale[::-1]])[::-1] / counts.total()
            look = style(method) | {"marker": "", "linewidth": 1.4 + 1.2 * (len(shown) - 1 - place)}  # some coincide
            panel.step(np.append(stale, stale[-1]) + 1, np.append(share, share[-1] / 10), where="pre", **look)
        panel.set(xscale="log", yscale="log", xlabel="staleness + 1")
        panel.xaxis.set_major_formatter("{x:,.0f}")
        panel.xaxis.set_minor_formatter("")
        panel.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
        panel.set_title(heading(source, sources, crew(most, source.timed)), loc="left")
    panels[0][0].set_ylabel("updates at least so stale")
    legend(figure, panels)
    return figure
