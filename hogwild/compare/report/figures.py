"""The figures of a report: curves that a reader explores in the page, and the same as files for papers.

A curve is one method on so many workers: the median over its seeds of the distance from the optimum (from the best that
any run saw, where nobody knows the optimum), evaluation by evaluation, with a band from quartile to quartile. Plotly
draws them in the page, with its script inside, so the page needs no network; matplotlib draws the files.
"""

from __future__ import annotations

import contextlib
import html
import io
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hogwild.compare.report.cells import aim, crew
from hogwild.compare.report.results import REFERENCES, ComparisonResult, Group, frame, serial
from hogwild.rows_file import printable

if TYPE_CHECKING:
    import pandas

#: Fields against which curves are drawn: a name, the axis' title, how many of its units are one of the field's, and
#: its scale at first. Seconds of methods differ by powers of ten, so the fastest would be a spike on a linear one.
AXES = {
    "train_seconds": ("seconds", "seconds of training", 1.0, "log"),
    "call_seconds": ("from call", "seconds of set-up and training", 1.0, "log"),
    "epoch": ("epochs", "epochs", 1.0, "linear"),
    "updates": ("updates", "million updates", 1e-6, "linear"),
    "virtual_seconds": ("virtual", "virtual milliseconds", 1e3, "log"),
    "bytes_sent": ("bytes", "megabytes sent by all replicas", 1e-6, "log"),
}
#: Of methods in their order, on white paper and on black; after Paul Tol's and Okabe and Ito's for the colour-blind.
COLOURS = (
    "#8a8a8a #0077bb #ee7733 #009988 #cc3311 #ee3377 #b8860b #8866cc #33aadd #66a61e #a0522d #999933 #5566aa".split()
)
#: Lines of kinds as plotly calls them, and as matplotlib does.
LINES = {"lock-free": "solid", "serial": "solid", "exchange": "dashdot", "in step": "dashdot", "outside": "dot"}
DASHES = {"solid": "-", "dash": "--", "dashdot": "-.", "dot": ":"}
HEIGHTS = ("", "metric ")  # columns of a curve's points begin with these: of the distance, and of the metric
GUIDE = {"color": "#888888", "dash": "dot"}  # of targets and the ideal
BUTTONS = {"type": "buttons", "direction": "right", "x": 0, "xanchor": "left", "yanchor": "bottom", "pad": {"b": 4}}
CONFIG = {"responsive": True, "displayModeBar": False}  # its buttons would hide ours on a telephone


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
        for group in source.groups:
            name = group.method if group.kind in REFERENCES else f"{group.method}, {crew(group.workers, source.timed)}"
            name = f"{source.label}: {name}" if len(sources) > 1 else name
            colour = colour_of(group.method, sources)
            first = group.workers == max(each.workers for each in source.groups if each.method == group.method)
            curves.append(Curve(name, colour, LINES.get(group.kind, "dash"), first, median_run(source, group)))
    return [curve for curve in curves if len(curve.points)]


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
    rows["updates"] = rows.groupby("seed")["updates"].cumsum()
    if not source.timed:
        rows[["train_seconds", "call_seconds"]] = float("nan")
    if not source.linked:
        rows[["virtual_seconds", "bytes_sent"]] = float("nan")
    epochs = rows.dropna(subset="gap").assign(at=rows["epoch"]).groupby("at")
    points = epochs[[*AXES]].median()
    for kind, field in zip(HEIGHTS, ("gap", metric), strict=True):
        points[[kind + "low", kind + "median", kind + "high"]] = epochs[field].quantile([0.25, 0.5, 0.75]).unstack()
    return points[2 * epochs.size() >= len(group.runs)]


def axes_of(curves: Sequence[Curve], sources: Sequence[ComparisonResult]) -> list[str]:
    """Return the axes that any curve has, the one that methods are compared by first."""
    there = [axis for axis in AXES if any((curve.points[axis] > 0).any() for curve in curves)]
    return sorted(there, key=lambda axis: axis != sources[0].clock)


def title(sources: Sequence[ComparisonResult]) -> str:
    return f"distance from {' or '.join(dict.fromkeys(source.goal for source in sources))}"


def targets(sources: Sequence[ComparisonResult]) -> list[float]:
    return sorted({eps for source in sources for eps in source.eps})


# ---- to explore, in the page


def explorable(sources: Sequence[ComparisonResult]) -> list[str]:
    """Return the figures as HTML: the curves and, where methods ran on several numbers of workers, their speeds."""
    from plotly.io import to_html

    options: dict[str, Any] = {"full_html": False, "include_mathjax": False, "default_height": "100%"}
    figures = [figure for figure in (_curves(sources), _speeds(sources)) if figure]
    return [
        to_html(figure, CONFIG, validate=False, div_id=f"figure{place}", include_plotlyjs=place == 0, **options)
        for place, figure in enumerate(figures)
    ]


def _text(words: str) -> str:
    """Return a name for plotly, which reads tags in it."""
    return html.escape(printable(words))


def _numbers(values: Any) -> list[float | None]:
    return [None if value != value else float(f"{value:.6g}") for value in values]  # NaN differs from itself


def _layout(x: str, y: str, top: int) -> dict[str, Any]:
    grid: dict[str, Any] = {"gridcolor": "rgba(128,128,128,0.25)", "zeroline": False, "automargin": True}
    return {
        "autosize": True,
        "hovermode": "closest",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 10, "r": 10, "t": top, "b": 10},
        "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0},
        "xaxis": grid | {"title": {"text": x}},
        "yaxis": grid | {"title": {"text": y}},
    }


def _curves(sources: Sequence[ComparisonResult]) -> dict[str, Any] | None:
    curves = curves_of(sources)
    axes = axes_of(curves, sources)
    if not axes:
        return None
    traces: list[dict[str, Any]] = []
    at: dict[str, list[list[float | None]]] = {axis: [] for axis in (*axes, *HEIGHTS)}
    for curve in curves:
        points = curve.points
        shared = {"legendgroup": _text(curve.name), "visible": True if curve.first else "legendonly"}
        band = {"fill": "toself", "line": {"width": 0}}
        fill = {"fillcolor": curve.colour, "opacity": 0.15, "mode": "lines", "showlegend": False, "hoverinfo": "skip"}
        line: dict[str, Any] = {"mode": "lines+markers", "name": _text(curve.name)}
        line |= {"line": {"color": curve.colour, "dash": curve.line}, "marker": {"color": curve.colour, "size": 5}}
        line |= {"hovertemplate": "%{y:.4g} at %{x:.4g}<extra>%{fullData.name}</extra>"}
        traces += [shared | band | fill, shared | line]
        for axis in axes:
            seen = AXES[axis][2] * points[axis]
            seen = seen if (seen > 0).any() else seen[:0]  # serial sends nothing
            seen = seen.where(seen > 0) if AXES[axis][3] == "log" else seen
            at[axis] += [_numbers([*seen, *seen[::-1]]), _numbers(seen)]
        for kind in HEIGHTS:
            band_of = [*points[kind + "high"], *points[kind + "low"][::-1]]
            at[kind] += [_numbers(band_of), _numbers(points[kind + "median"])]
    for trace, x, y in zip(traces, at[axes[0]], at[HEIGHTS[0]], strict=True):
        trace |= {"x": x, "y": y}
    by_axis = [
        {
            "label": AXES[axis][0],
            "method": "update",
            "args": [
                {"x": at[axis]},
                {"xaxis.title.text": AXES[axis][1], "xaxis.type": AXES[axis][3], "xaxis.autorange": True},
            ],
        }
        for axis in axes
    ]
    metrics = " or ".join(dict.fromkeys(source.metric[1] for source in sources if source.metric))
    across = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "line": GUIDE | {"width": 1}}
    shapes = [across | {"y0": eps, "y1": eps} for eps in targets(sources)]
    heights = [("distance", "log", title(sources), "~%", shapes), (metrics, "linear", metrics, "", [])]
    by_height = [
        {
            "label": label,
            "method": "update",
            "args": [
                {"y": at[kind]},
                {
                    "yaxis.title.text": words,
                    "yaxis.type": scale,
                    "yaxis.tickformat": form,
                    "yaxis.dtick": 1 if scale == "log" else None,
                    "yaxis.autorange": True,
                    "shapes": lines,
                },
            ],
        }
        for kind, (label, scale, words, form, lines) in zip(HEIGHTS, heights, strict=True)
        if label
    ]
    by_scale = [
        {
            "label": f"{side} {kind}",
            "method": "relayout",
            "args": [{f"{side}axis.type": kind, f"{side}axis.autorange": True}],
        }
        for side in ("x", "y")
        for kind in ("linear", "log")
    ]
    layout = _layout(AXES[axes[0]][1], title(sources), 112)
    layout["updatemenus"] = [
        BUTTONS | {"buttons": by_axis, "y": 1.0, "pad": {"b": 68}},
        BUTTONS | {"buttons": by_height, "y": 1.0, "pad": {"b": 36}},
        BUTTONS | {"buttons": by_scale, "y": 1.0, "showactive": False},
    ]
    layout["xaxis"]["type"] = AXES[axes[0]][3]
    layout["yaxis"] |= {"type": "log", "tickformat": "~%", "dtick": 1}
    layout["shapes"] = shapes
    return {"data": traces, "layout": layout}


def _speeds(sources: Sequence[ComparisonResult]) -> dict[str, Any] | None:
    """Return a line for each method that ran on three numbers of workers: epochs in the time of one of serial."""
    traces: list[dict[str, Any]] = []
    for source in sources:
        alone = serial(source.groups)
        pace = alone.epoch_seconds if alone and source.timed else None
        if pace is None:
            continue
        for method in dict.fromkeys(group.method for group in source.groups if group.kind not in REFERENCES):
            paces = {group.workers: group.epoch_seconds for group in source.groups if group.method == method}
            speeds = {count: pace.median / each.median for count, each in sorted(paces.items()) if each and each.median}
            if len(speeds) > 2:
                name = f"{source.label}: {method}" if len(sources) > 1 else method
                line = {"color": colour_of(method, sources)}
                axes = {"x": [*speeds], "y": _numbers(speeds.values())}
                traces.append(axes | {"name": _text(name), "mode": "lines+markers", "line": line})
    if not traces:
        return None
    counts = sorted({count for trace in traces for count in trace["x"]})
    ideal = {"name": "ideal", "x": counts, "y": counts, "mode": "lines", "line": GUIDE}
    layout = _layout("workers", "epochs in the time of one of serial", 30)
    layout["xaxis"] |= {"tickvals": counts, "type": "log"}
    layout["yaxis"]["rangemode"] = "tozero"
    return {"data": [*traces, ideal], "layout": layout}


# ---- for papers


@contextlib.contextmanager
def settings() -> Iterator[None]:
    """Use matplotlib's defaults and a fixed salt of names, so that the same rows give the same bytes everywhere."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        fixed: dict[Any, Any] = {"svg.hashsalt": "hogwild", "text.parse_math": False, "font.size": 8.5}
        matplotlib.rcParams.update(fixed)
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def drawn(sources: Sequence[ComparisonResult]) -> dict[str, bytes]:
    """Return the curves that the page shows at first, as SVG and PNG by the files' names, a pair for each axis."""
    curves = curves_of(sources)
    shown = [curve for curve in curves if curve.first]
    return {
        f"curves-{AXES[axis][0]}.{kind}": save(draw(sources, shown, axis), kind)
        for axis in axes_of(shown, sources)
        if axis != "call_seconds"
        for kind in ("svg", "png")
    }


def draw(sources: Sequence[ComparisonResult], curves: Sequence[Curve], axis: str) -> Any:
    """Draw curves against an axis, at the width of an A4 page."""
    from matplotlib.figure import Figure  # without pyplot: no window, no state, and always Agg

    figure = Figure(figsize=(7.1, 4.5), layout="constrained")
    panel = figure.subplots()
    _, words, scale, kind = AXES[axis]
    for curve in curves:
        points = curve.points
        at = scale * points[axis]
        if (at > 0).any():
            panel.plot(at, points["median"], DASHES[curve.line], color=curve.colour, label=printable(curve.name))
            panel.fill_between(at, points["low"], points["high"], color=curve.colour, alpha=0.15, linewidth=0)
    if kind == "log":
        panel.set_xscale("log", nonpositive="mask")
        panel.xaxis.set_major_formatter("{x:g}")
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter(lambda value, _: aim(value))
    for eps in targets(sources):
        panel.axhline(eps, color="0.5", linewidth=0.8, linestyle="dotted")
    panel.set(xlabel=words, ylabel=title(sources))
    panel.grid(alpha=0.25)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return figure


def save(figure: Any, kind: str) -> bytes:
    """Return the figure's file, "svg" or "png"; the same figure gives the same bytes."""
    target = io.BytesIO()
    undated = {"svg": dict.fromkeys(("Date", "Creator", "Format", "Type")), "png": {"Software": None}}
    figure.savefig(target, format=kind, dpi=200, metadata=undated[kind])
    return target.getvalue()
