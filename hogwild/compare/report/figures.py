"""The figures of a report, which a reader explores in the page.

A curve is one method on so many workers: the median over its seeds of the distance from the optimum (from the best that
any run saw, where nobody knows the optimum), evaluation by evaluation, with a band from quartile to quartile. Plotly
draws them in the page, with its script inside, so the page needs no network; a button saves what is shown as SVG.
"""

from __future__ import annotations

import functools
import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hogwild.compare.report.cells import crew
from hogwild.compare.report.results import REFERENCES, ComparisonResult, Group, frame
from hogwild.compare.report.verdict import target
from hogwild.rows_file import printable

if TYPE_CHECKING:
    import pandas

#: Fields against which curves are drawn: a name, the axis' title, how many of its units are one of the field's, and
#: its scale at first. Seconds of methods differ by powers of ten, so the fastest would be a spike on a linear one.
AXES = {
    "train_seconds": ("seconds", "seconds of training", 1.0, "log"),
    "call_seconds": ("from call", "seconds from the call: reading, set-up, compiling, training", 1.0, "log"),
    "epoch": ("epochs", "epochs", 1.0, "linear"),
    "virtual_seconds": ("virtual", "virtual milliseconds", 1e3, "log"),
    "bytes_sent": ("bytes", "megabytes sent by all replicas", 1e-6, "log"),
}
#: Of methods in their order, on white paper and on black; after Paul Tol's and Okabe and Ito's for the colour-blind.
COLOURS = (
    "#8a8a8a #0077bb #ee7733 #009988 #cc3311 #ee3377 #b8860b #8866cc #33aadd #66a61e #a0522d #999933 #5566aa".split()
)
#: Lines of kinds as plotly calls them; those of others are dashed.
LINES = {"lock-free": "solid", "serial": "solid", "exchange": "dashdot", "in step": "dashdot", "outside": "dot"}
HEIGHTS = ("", "metric ")  # columns of a curve's points begin with these: of the distance, and of the metric
GUIDE = {"color": "#888888", "dash": "dot"}  # of targets and the ideal
Part = dict[str, Any]  # of a figure as plotly takes it
CONFIG = {
    "responsive": True,
    "displaylogo": False,
    "modeBarButtons": [["toImage"]],
    "toImageButtonOptions": {"format": "svg"},
}
CAPTIONS = {
    "How near to the optimum, and when": "Each method at its own best step. The distance is (f - f*) / (f0 - f*), "
    "100 % at the start; the second row of buttons shows the metric on test data instead. A click in the legend shows "
    "or hides a method, two clicks show it alone; drag to zoom, and click twice to go back. Lines are medians over the "
    "seeds, bands reach from quartile to quartile, dotted lines are the targets.",
    "Seconds, loss and memory": "Medians over the seeds: the seconds to the hardest target that serial always reaches, "
    "of training or from the call, against the most memory; or the seconds of all epochs against the distance that is "
    "left. Memory is that of the whole process, with Python, the data and the evaluator, and of what worker processes "
    "have to themselves; that of a command is its own. No method is both left of and below those on the dotted line.",
}


@dataclass(frozen=True)
class Curve:
    """The median run of one group."""

    name: str
    colour: str
    line: str  # as plotly calls it
    first: bool  # whether it is shown until the reader chooses
    points: pandas.DataFrame  # a row an evaluation, with columns: AXES; low, median and high; and those of the metric


def curves_of(sources: Sequence[ComparisonResult]) -> list[Curve]:
    """Return the curves of every method at its own best step."""
    curves = []
    for source in sources:
        most = {group.method: group.workers for group in sorted(source.groups, key=lambda group: group.workers)}
        for group in source.groups:
            colour, line = colour_of(group.method, sources), LINES.get(group.kind, "dash")
            first = group.workers == most[group.method]
            curves.append(Curve(name_of(source, group, sources), colour, line, first, median_run(source, group)))
    return [curve for curve in curves if len(curve.points)]


def name_of(source: ComparisonResult, group: Group, sources: Sequence[ComparisonResult]) -> str:
    """Return the name of a group in legends."""
    alone = group.kind in REFERENCES and group.workers == 1
    name = group.method if alone else f"{group.method}, {crew(group.workers, source.timed)}"
    return f"{source.label}: {name}" if len(sources) > 1 else name


def colour_of(method: str, sources: Sequence[ComparisonResult]) -> str:
    """Return the colour that a method has in all figures."""
    names = list(dict.fromkeys(group.method for source in sources for group in source.groups))
    return COLOURS[names.index(method) % len(COLOURS)]


def median_run(source: ComparisonResult, group: Group) -> pandas.DataFrame:
    """Return medians of the axes, and quartiles of the distance and of the metric on test data, of evaluations that at
    least half of the runs have.
    """
    metric = source.metric[0] if source.metric else "no metric"
    rows = frame([group]).reindex(columns=["seed", *AXES, "gap", metric]).astype(float)
    epochs = rows.dropna(subset=["gap", metric], how="all").assign(at=rows["epoch"]).groupby("at")
    points = epochs[[*AXES]].median()
    for kind, field in zip(HEIGHTS, ("gap", metric), strict=True):
        points[[kind + "low", kind + "median", kind + "high"]] = epochs[field].quantile([0.25, 0.5, 0.75]).unstack()
    return points[2 * epochs.size() >= len(group.runs)]


def title(sources: Sequence[ComparisonResult]) -> str:
    return f"distance from {' or '.join(dict.fromkeys(source.goal for source in sources))}"


def explorable(sources: Sequence[ComparisonResult]) -> list[tuple[str, str, str]]:
    """Return titles, HTML and captions of the figures that have something to show."""
    from plotly.io import to_html

    options: Part = {"full_html": False, "include_mathjax": False, "default_height": "100%"}
    all_of = (curves_figure(sources), costs_figure(sources))
    drawn = [(name, figure) for name, figure in zip(CAPTIONS, all_of) if figure["data"]]
    return [
        (
            name,
            to_html(figure, CONFIG, validate=False, div_id=f"figure{place}", include_plotlyjs=not place, **options),
            CAPTIONS[name],
        )
        for place, (name, figure) in enumerate(drawn)
    ]


def _text(words: str) -> str:
    """Return a name for plotly, which reads tags in it."""
    return html.escape(printable(words))


def _figure(traces: list[Part], values: dict[str, list[Any]], changes: Part, top: int, menus: list[Part]) -> Part:
    """Return a figure as its first buttons show it: traces with their values, and changes of the layout."""
    for place, trace in enumerate(traces):
        trace |= {axis: each[place] for axis, each in values.items()}
    grid: Part = {"gridcolor": "rgba(128,128,128,0.25)", "zeroline": False, "automargin": True}
    clear = "rgba(0,0,0,0)"
    layout: Part = {
        "autosize": True,
        "hovermode": "closest",
        "paper_bgcolor": clear,
        "plot_bgcolor": clear,
        "margin": {"l": 10, "r": 10, "t": top, "b": 10},
        "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0, "maxheight": 0.3},
        "modebar": {"orientation": "v", "bgcolor": clear},
        "xaxis": grid | {"title": {}},
        "yaxis": grid | {"title": {"standoff": 12}},
        "updatemenus": menus,
    }
    for name, value in changes.items():
        *path, last = name.split(".")
        functools.reduce(dict.__getitem__, path, layout)[last] = value
    return {"data": traces, "layout": layout}


def _axis(side: str, words: str, kind: str) -> Part:
    """Return changes of the layout: an axis with this title and scale."""
    return {f"{side}axis.title.text": words, f"{side}axis.type": kind, f"{side}axis.autorange": True}


def _menu(above: int, buttons: Iterable[tuple[str, str, list[Any]]], **more: Any) -> Part:
    """Return a row of buttons, so many pixels above the figure: the label, plotly's method and its arguments."""
    place = {"x": 0, "xanchor": "left", "y": 1.0, "yanchor": "bottom", "pad": {"b": above}}
    made = [{"label": label, "method": method, "args": args} for label, method, args in buttons if label]
    return more | place | {"type": "buttons", "direction": "right", "buttons": made}


def curves_figure(sources: Sequence[ComparisonResult]) -> Part:
    """Return every method's curve with its band, and buttons for the axes."""
    curves = curves_of(sources)
    axes = [axis for axis in AXES if any((curve.points[axis] > 0).any() for curve in curves)]
    axes.sort(key=lambda axis: axis != sources[0].clock)  # what methods are compared by first
    traces: list[Part] = []
    at: dict[str, list[Any]] = {name: [] for name in (*axes, *HEIGHTS)}
    for curve in curves if axes else []:
        shared = {"legendgroup": _text(curve.name), "visible": True if curve.first else "legendonly"}
        band = {"fill": "toself", "line": {"width": 0}, "fillcolor": curve.colour, "opacity": 0.15, "mode": "lines"}
        line = {"mode": "lines+markers", "name": _text(curve.name), "marker": {"color": curve.colour, "size": 5}}
        line |= {"line": {"color": curve.colour, "dash": curve.line}}
        line |= {"hovertemplate": "%{y:.4g} at %{x:.4g}<extra>%{fullData.name}</extra>"}
        traces += [shared | band | {"showlegend": False, "hoverinfo": "skip"}, shared | line]
        for axis in axes:
            x = AXES[axis][2] * curve.points[axis]
            x = x.where(x > 0 if AXES[axis][3] == "log" else x >= 0).tolist()
            at[axis] += [x + x[::-1], x]
        for kind in HEIGHTS:
            low, median, high = (curve.points[kind + name].tolist() for name in ("low", "median", "high"))
            at[kind] += [high + low[::-1], median]
    if not traces:
        return {"data": []}
    metrics = " or ".join(dict.fromkeys(source.metric[1] for source in sources if source.metric))
    across = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "line": GUIDE | {"width": 1}}
    targets = [across | {"y0": y, "y1": y} for y in sorted({eps for source in sources for eps in source.eps})]
    across_axes = {axis: _axis("x", *AXES[axis][1::2]) for axis in axes}
    distance: Part = {"shapes": targets, "yaxis.tickformat": "~%", "yaxis.dtick": 1} | _axis("y", title(sources), "log")
    metric: Part = {"shapes": [], "yaxis.tickformat": "", "yaxis.dtick": None} | _axis("y", metrics, "linear")
    menus = [
        _menu(72, ((AXES[axis][0], "update", [{"x": at[axis]}, change]) for axis, change in across_axes.items())),
        _menu(
            40,
            [("distance", "update", [{"y": at[""]}, distance]), (metrics, "update", [{"y": at["metric "]}, metric])],
        ),
        _menu(
            4,
            [
                (f"{side} {kind}", "relayout", [{f"{side}axis.type": kind, f"{side}axis.autorange": True}])
                for side in ("x", "y")
                for kind in ("linear", "log")
            ],
            showactive=False,
        ),
    ]
    return _figure(traces, {"x": at[axes[0]], "y": at[""]}, across_axes[axes[0]] | distance, 112, menus)


def costs_figure(sources: Sequence[ComparisonResult]) -> Part:
    """Return a point for each method, and a line through those that no other one beats, in three views by buttons."""
    names, table = [], []
    for source in sources:
        eps = target(source, source.serial) or source.eps[0]
        fields = [f"{source.clock} to {eps:g}", f"call_seconds to {eps:g}", f"last {source.clock}"]
        fields += ["last peak_memory_mb", "last gap"]
        for group in source.racing:
            names.append((name_of(source, group, sources), colour_of(group.method, sources)))
            table.append([group.median(field) for field in fields])
    views = {
        "memory": (0, 3, "seconds to the target", "peak memory, MB", "linear"),
        "memory, from call": (1, 3, "seconds from the call to the target", "peak memory, MB", "linear"),
        "distance": (2, 4, "seconds of all epochs", f"{title(sources)} at the end", "log"),
    }
    buttons: list[tuple[str, str, list[Any]]] = []
    for label, (across, up, x_title, y_title, scale) in views.items():
        points = [(row[across], row[up]) for row in table]
        known = sorted(point for point in points if all(map(math.isfinite, point)))
        front = [point for place, point in enumerate(known) if all(point[1] < other[1] for other in known[:place])]
        data = {"x": [*([x] for x, _ in points), [x for x, _ in front]]}
        data |= {"y": [*([y] for _, y in points), [y for _, y in front]]}
        shown = _axis("x", x_title, "log") | _axis("y", y_title, scale)
        shown["yaxis.tickformat"] = "~%" if scale == "log" else ""
        if known and sources[0].clock != "epoch":
            buttons.append((label, "update", [data, shown]))
    if not buttons:
        return {"data": []}
    data, shown = buttons[0][2]
    traces: list[Part] = [
        {"name": _text(name), "mode": "markers", "marker": {"color": colour, "size": 10}} for name, colour in names
    ]
    traces.append({"mode": "lines", "line": GUIDE | {"shape": "hv"}, "showlegend": False, "hoverinfo": "skip"})
    return _figure(traces, data, shown, 56, [_menu(8, buttons)])
