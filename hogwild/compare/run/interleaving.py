"""Figures of how lock-free workers affect each other: staleness and lost updates.

Only the simulator counts these, so these figures appear only for comparisons with simulated workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from hogwild.compare.report.results import ComparisonResult
from hogwild.compare.report.styles import grid, heading, legend, style, with_quartiles, workers_axis
from hogwild.compare.report.summary import Group, Spread, own
from hogwild.compare.report.tables import lost_share
from hogwild.compare.report.verdict import crew

MEASURES = (("stale", "staleness: updates of others in between"), ("lost", "lost updates of weights, for each update"))
DODGE = 1.03  # offset between methods that would hide each other


def interleaving(sources: Sequence[ComparisonResult]) -> Any:
    """Plot staleness and lost updates against workers."""
    figure = None
    for measure, source in enumerate(sources):
        lines: dict[str, dict[str, list[tuple[int, Spread]]]] = {"stale": {}, "lost": {}}
        for group in own(source):
            for name, found in (("stale", group.over_epochs("staleness_mean")), ("lost", lost_share(group))):
                if found is not None:
                    lines[name].setdefault(group.method, []).append((group.workers, found))
        if not lines["stale"] and not lines["lost"]:
            continue
        if figure is None:
            figure, panels = grid(len(sources), 2, 2.7)
        counts = sorted({count for each in lines.values() for points in each.values() for count, _ in points})
        for panel, (name, title) in zip(panels[measure], MEASURES):
            for place, (method, points) in enumerate(lines[name].items()):
                apart = DODGE ** (place - (len(lines[name]) - 1) / 2)
                dodged = sorted(((count * apart, found) for count, found in points), key=lambda point: point[0])
                with_quartiles(panel, dodged, style(method))
            workers_axis(panel, counts)
            panel.set_ylim(bottom=0)
            panel.set_title(heading(source, sources, title), loc="left")
    if figure is not None:
        for panel in panels.flat:
            if not panel.lines:
                panel.axis("off")
        legend(figure, panels)
    return figure


def on_the_most(source: ComparisonResult, measured: Any) -> dict[str, Any]:
    """Return, by method, what was measured on the largest number of workers that has measurements."""
    found = [(group, value) for group in own(source) if (value := measured(group))]
    most = max((group.workers for group, _ in found), default=0)
    return {group.method: (most, value) for group, value in found if group.workers == most}


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
    chosen = [(source, found) for source in sources if (found := on_the_most(source, stale_counts))]
    if not chosen:
        return None
    figure, panels = grid(1, len(chosen), 3.0, sharey=True)
    for panel, (source, found) in zip(panels[0], chosen):
        for place, (method, (_, counts)) in enumerate(found.items()):
            stale = np.array(sorted(counts))
            share = np.cumsum([counts[value] for value in stale[::-1]])[::-1] / counts.total()
            look = style(method) | {"marker": "", "linewidth": 1.4 + 1.2 * (len(found) - 1 - place)}  # some coincide
            panel.step(np.append(stale, stale[-1]) + 1, np.append(share, share[-1] / 10), where="pre", **look)
        panel.set(xscale="log", yscale="log", xlabel="staleness + 1")
        panel.xaxis.set_major_formatter("{x:,.0f}")
        panel.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
        most = next(iter(found.values()))[0]
        panel.set_title(heading(source, sources, crew(most, source.timed)), loc="left")
    panels[0][0].set_ylabel("updates at least so stale")
    legend(figure, panels)
    return figure
