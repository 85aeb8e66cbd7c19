"""Speed-up against workers: a panel per data set, a line per discipline, and the ideal line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hogwild.model_file import save_figure


def draw(rows: Iterable[dict[str, Any]], path: str) -> None:
    """Draw the section ``scaling`` into a PNG file.

    Raises
    ------
    OutputError
        If the file cannot be written.
    """
    from matplotlib.figure import Figure  # without pyplot: no window, no state, and Agg by default

    rows = [row for row in rows if row["section"] == "scaling" and row.get("speedup")]
    families = list(dict.fromkeys(row["family"] for row in rows)) or [""]
    figure = Figure(figsize=(4.6 * len(families), 4.4), layout="constrained")
    panels = figure.subplots(1, len(families), squeeze=False)[0]
    for panel, family in zip(panels, families):
        _panel(panel, [row for row in rows if row["family"] == family])
    handles = {line.get_label(): line for panel in panels for line in panel.get_lines()}  # one legend for all panels
    figure.legend(handles.values(), handles.keys(), loc="outside right center", fontsize="small")
    panels[0].set_ylabel("speed-up over one serial worker, an epoch")
    save_figure(figure, path)


def _panel(panel: Any, rows: list[dict[str, Any]]) -> None:
    counts = sorted({row["workers"] for row in rows}) or [1]
    panel.plot(counts, counts, color="0.6", linestyle="--", label="ideal")
    for discipline in dict.fromkeys(row["discipline"] for row in rows):
        points = sorted((row["workers"], row["speedup"]) for row in rows if row["discipline"] == discipline)
        panel.plot(*zip(*points), marker="o", markersize=4, label=discipline)
    panel.set_xscale("log", base=2)
    panel.set_yscale("log", base=2)
    panel.set_xticks(counts, [str(count) for count in counts])
    panel.yaxis.set_major_formatter("{x:g}x")
    panel.set_xlabel("workers")
    if rows:
        panel.set_title(rows[0]["data"].removeprefix("synthetic:").replace("?", "\n"), fontsize="small")
    panel.grid(alpha=0.3)
