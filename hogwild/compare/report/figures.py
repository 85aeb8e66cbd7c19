"""The figures of a report, each answering one question; a figure without data is left out, never drawn empty.

Lines are medians over the seeds, of seconds and of sub-optimality at the same epoch, because runs of different seeds
are never at the same second; bands reach from quartile to quartile.

Each method has one colour, marker and line everywhere, at the width of an A4 page. Colours are those of Okabe and Ito,
which the colour-blind can distinguish; the line shows the kind (solid: lock-free, dashed: locks, dash-dotted: exchanges
and methods in step, dotted: other programs and single replicas), which also works in greyscale. What could differ
between two renderings is fixed: matplotlib's settings, the salt of SVG names, dates.
"""

from __future__ import annotations

import contextlib
import io
import math
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hogwild.compare.report.cells import digits
from hogwild.compare.report.results import ComparisonResult
from hogwild.compare.report.summary import (
    REFERENCES,
    DelayPoint,
    Group,
    Spread,
    beside,
    counts,
    delay_points,
    is_fixed,
    lock_caught_up,
    own,
    serial,
    speedup,
)
from hogwild.compare.report.tables import clock_scale, lost_share
from hogwild.compare.report.verdict import aim, crew, duration, unit_of

WIDTH = 7.1  # inches: A4 without its margins, so that 8 pt are 8 pt in print
DPI = 200
FULL, DASHED, DASH_DOT, DOTTED = "-", (0, (4, 1.5)), (0, (5, 1.2, 1, 1.2)), (0, (1, 1.2))
STYLES: dict[str, tuple[str, str, Any]] = {  # colour, marker, line
    "serial": ("#000000", "s", FULL),
    "hogwild": ("#0072B2", "o", FULL),
    "tiered": ("#D55E00", "^", FULL),
    "atomic": ("#009E73", "D", FULL),
    "aig": ("#CC79A7", "v", DASHED),
    "locked": ("#E69F00", "P", DASHED),
    "round-robin": ("#56B4E9", ">", DASHED),
    "blocks": ("#117733", "<", (0, (3, 1))),
    "averaging": ("#8C510A", "p", DASH_DOT),
    "one-shot-averaging": ("#A89000", "h", DASH_DOT),
    "gossip": ("#44AA99", "*", DASH_DOT),
    "server": ("#AA4499", "s", DASH_DOT),
    "consensus": ("#332288", "d", DASH_DOT),
    "sklearn-sgd": ("#6A6A6A", "X", DOTTED),
    "liblinear": ("#9C9C9C", "d", DOTTED),
    "cornac": ("#6A6A6A", "X", DOTTED),
    "cuda-atomic": ("#009E73", "*", FULL),
    "cuda-hogwild": ("#0072B2", "*", FULL),
    "cuda-locked": ("#E69F00", "*", DASHED),
    "cuda-synchronous": ("#882255", "p", DASH_DOT),
    "cuda-one-stream": ("#117733", "X", DOTTED),
}
GUIDE: dict[str, Any] = {"color": "0.35", "linewidth": 0.9, "linestyle": (0, (2, 2)), "zorder": 1}  # of ideals, targets
MARKERS = "o^v<>PXD8"  # of an exchange with parameters, which has its colour
OTHERS = ("#332288", "#882255", "#117733", "#44AA99", "#AA4499", "#661100")  # for methods added later
SETTINGS: dict[str, Any] = {
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.labelsize": 8.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.5,
    "text.parse_math": False,
    "svg.hashsalt": "hogwild",
    "svg.fonttype": "path",
}


def style(method: str) -> dict[str, Any]:
    """Return the keyword arguments of a line."""
    number = zlib.crc32(method.encode())
    fallback = OTHERS[number % len(OTHERS)], "*", FULL
    if (base := STYLES.get(method.partition(":")[0])) is not None:  # an exchange with parameters
        fallback = base[0], MARKERS[number % len(MARKERS)], base[2]
    colour, marker, line = STYLES.get(method, fallback)
    return {"color": colour, "marker": marker, "linestyle": line, "label": method}


@contextlib.contextmanager
def settings() -> Iterator[None]:
    """Use matplotlib's defaults with our settings, ignoring the user's; missing glyphs draw boxes without a warning."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        for name, value in SETTINGS.items():
            matplotlib.rcParams[name] = value  # type: ignore[index]
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def grid(rows: int, columns: int, height: float, extra: float = 0.75, **shared: Any) -> tuple[Any, Any]:
    """Return a figure and its panels, (rows, columns); ``height`` is the inches of a row."""
    from matplotlib.figure import Figure  # without pyplot: no window, no state, and always Agg
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    width = WIDTH if columns <= 3 else WIDTH / 3 * columns
    layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06)
    figure = Figure(figsize=(width, height * rows + extra), layout=layout)
    return figure, figure.subplots(rows, columns, squeeze=False, **shared)


def legend(figure: Any, panels: Any) -> None:
    """Draw one legend for all panels, below them."""
    handles = {handle.get_label(): handle for panel in panels.flat for handle in panel.get_legend_handles_labels()[0]}
    order = {name: place for place, name in enumerate(STYLES)}
    names = sorted(handles, key=lambda name: order.get(name, len(order)))
    if names:
        most = max(int(WIDTH / (0.5 + 0.065 * max(map(len, names)))), 1)  # inches of a handle and of a character
        lines = -(-len(names) // min(most, 5))
        columns = -(-len(names) // lines)
        figure.legend([handles[name] for name in names], names, loc="outside lower center", ncols=columns)


def workers_axis(panel: Any, counts: Sequence[int]) -> None:
    """Label the axis with numbers of workers, on a doubling scale."""
    panel.set_xscale("log", base=2)
    panel.set_xticks(counts, [str(count) for count in counts])
    panel.set_xticks([], minor=True)
    margin = 2**0.25
    panel.set_xlim(min(counts) / margin, max(counts) * margin)
    panel.set_xlabel("workers")


def with_quartiles(panel: Any, points: Sequence[tuple[float, Spread]], look: dict[str, Any]) -> None:
    """Draw a line of medians with a band from quartile to quartile."""
    at = [place for place, _ in points]
    panel.plot(at, [found.median for _, found in points], markeredgewidth=0, **look)
    panel.fill_between(
        at,
        [found.q25 for _, found in points],
        [found.q75 for _, found in points],
        color=look["color"],
        alpha=0.15,
        linewidth=0,
    )


def short(text: str, most: int = 34) -> str:
    """Shorten text to one line for a title, leaving out its middle."""
    text = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return text if len(text) <= most else f"{text[: most // 2 - 1]}…{text[-(most - most // 2) :]}"


def heading(source: ComparisonResult, sources: Sequence[ComparisonResult], text: str) -> str:
    """Return a panel's title, with the comparison's name if there are several."""
    return f"{short(source.label)}: {text}" if len(sources) > 1 else text


def save(figure: Any, kind: str) -> bytes:
    """Return the figure's file, "svg" or "png"; the same figure gives the same bytes."""
    if figure.get_layout_engine() is not None:  # once, and not once for each file and once more to draw it
        figure.draw_without_rendering()
        figure.set_layout_engine(None)
    target = io.BytesIO()
    nothing = {"svg": dict.fromkeys(("Date", "Creator", "Format", "Type")), "png": {"Software": None}}
    figure.savefig(target, format=kind, dpi=DPI, metadata=nothing[kind])
    return target.getvalue()


# ---- all figures


LOG_FROM = 12.0  # slowest over fastest run from which seconds are drawn on a logarithmic scale
APART = "Each point of liblinear's curve is a run of its own from the start, timed by itself, for it cannot go on."


@dataclass(frozen=True)
class Drawing:
    """A figure with its title and caption."""

    name: str  # name of its files
    title: str
    caption: str
    figure: Any


def draw(sources: Sequence[ComparisonResult]) -> list[Drawing]:
    """Draw all figures that have data. Call within :func:`hogwild.compare.report.styles.settings`."""
    found = [(name, title, caption, make(sources)) for name, title, caption, make in FIGURES]
    where = "; ".join(dict.fromkeys(machine(source, len(sources) > 1) for source in sources))
    methods = {run.key[0] for source in sources for run in source.reported if run.ran}
    more = dict.fromkeys(("gap-seconds", "gap-epochs"), f" {APART}" if "liblinear" in methods else "")
    return [
        Drawing(name, title, f"{caption}{more.get(name, '')} {where}.", figure)
        for name, title, caption, figure in found
        if figure
    ]


def machine(source: ComparisonResult, named: bool) -> str:
    """Describe data and machine in a few words."""
    about = source.about
    parts = [str(about.get("data") or "data"), str(about.get("cpu") or "unknown processor")]
    if source.cores:
        parts.append(f"{source.cores} cores")
    if source.gpu:
        parts.append(source.gpu)
    return (f"{source.label}: " if named else "") + ", ".join(parts)


# ---- sub-optimality


@dataclass(frozen=True)
class Curve:
    """Medians and quartiles of a group by epoch, (n,) each; ``at``: values of the field below."""

    at: np.ndarray
    gap: np.ndarray
    low: np.ndarray
    high: np.ndarray


def curve(group: Group, field: str = "train_seconds") -> Curve:
    """Return the curve against a field, from the epochs for which at least half of the runs have a figure."""
    by_epoch: dict[float, list[tuple[float, float]]] = {}
    for run in group.runs:
        for epoch, seconds, gap in zip(run.epochs, run.over(field), run.gaps):
            if math.isfinite(gap) and math.isfinite(seconds):
                by_epoch.setdefault(float(epoch), []).append((float(seconds), float(gap)))
    enough = sorted(epoch for epoch, pairs in by_epoch.items() if 2 * len(pairs) >= len(group.runs))
    kept = {epoch: np.array(by_epoch[epoch]) for epoch in enough}
    if not kept:
        return Curve(*(np.empty(0) for _ in range(4)))
    quartiles = [np.quantile(pairs[:, 1], (0.25, 0.5, 0.75)) for pairs in kept.values()]
    low, gap, high = np.array(quartiles).T
    return Curve(np.array([np.median(pairs[:, 0]) for pairs in kept.values()]), gap, low, high)


UNITS = {
    "train_seconds": "seconds",
    "epoch": "epochs",
    "virtual_seconds": "virtual milliseconds",
    "bytes_sent": "megabytes sent by all replicas",
}
SCALES = {"virtual_seconds": 1e3, "bytes_sent": 1e-6}


def curves(sources: Sequence[ComparisonResult], all_sources: Sequence[ComparisonResult], clock: str) -> Any:
    """Plot a panel for each number of workers and each comparison; serial and other programs are in all of them.

    ``clock`` is the field below: seconds, epochs, virtual seconds or bytes; a method that has none of it is left out.
    """
    cells = [(source, count) for count in sorted(set().union(*map(counts, sources))) or [1] for source in sources]
    drawn = [[(group, curve(group, clock)) for group in beside(source, count)] for source, count in cells]
    drawn = [[(group, line) for group, line in lines if line.at.any()] for lines in drawn]
    if not any(drawn):
        return None
    columns = len(sources) if len(sources) > 1 else min(len(cells), 2)
    rows = -(-len(cells) // columns)
    figure, panels = grid(
        rows, columns, 3.0 if columns < 3 else 2.7, sharex="col" if len(sources) > 1 else True, sharey=True
    )
    seconds = clock == "train_seconds"
    scale = clock_scale(sources) if seconds else SCALES.get(clock, 1.0)
    unit = "milliseconds" if seconds and scale > 1 else UNITS[clock]
    is_log = clock == "bytes_sent" or (seconds and any(map(_differ_much, sources)))
    targets = sorted({eps for source in sources for eps in source.eps})
    lowest = [value for lines in drawn for _, line in lines for value in line.gap[line.gap > 0]]
    for panel, (source, count), lines in zip(panels.flat, cells, drawn):
        for group, line in lines:
            _curve(panel, group, scale * line.at, line, is_log)
        for eps in targets:
            panel.axhline(eps, label="target", **GUIDE)
        panel.set_yscale("log")
        if is_log:
            panel.set_xscale("log")
            panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panel.set_ylim(max(min([*lowest, targets[0]]) * 0.7, targets[0] / 30), 1.6)
        panel.yaxis.set_major_formatter(lambda value, _: aim(value))
        panel.tick_params(labelbottom=True)
        panel.set_title(heading(source, all_sources, crew(count, source.timed)), loc="left")
        panel.set_xlabel(f"{unit}{' (logarithmic)' if is_log else ''}")
    for panel in list(panels.flat)[len(cells) :]:
        panel.remove()
    for panel in panels[:, 0]:
        panel.set_ylabel("sub-optimality (f − f*) / (f₀ − f*)")
    legend(figure, panels)
    return figure


def _differ_much(source: ComparisonResult) -> bool:
    """Whether the fastest runs would be a spike at the left of the slowest."""
    ends = [group.runs[0].seconds[-1] for group in own(source) if group.runs[0].final]
    return bool(ends) and max(ends) > LOG_FROM * min(ends) > 0


def _curve(panel: Any, group: Group, at: np.ndarray, line: Curve, is_log: bool) -> None:
    shown = at > 0 if is_log else at >= 0
    at, gap, low, high = (values[shown] for values in (at, line.gap, line.low, line.high))
    look = style(group.method)
    below = 1 if group.kind in REFERENCES else 0
    panel.plot(at, gap, markevery=max(1, len(at) // 8), zorder=3 - below, markeredgewidth=0, **look)
    if len(group.runs) > 1:
        panel.fill_between(at, low, high, color=look["color"], alpha=0.15, linewidth=0, zorder=2)


# ---- time to target


def bars(sources: Sequence[ComparisonResult]) -> Any:
    """Plot bars by target, for the largest number of workers of each comparison, beside serial and other programs."""
    chosen = [(source, _largest(source)) for source in sources]
    chosen = [(source, found) for source, found in chosen if found]
    if not chosen:
        return None
    targets = sorted({eps for source in sources for eps in source.eps}, reverse=True)
    heights = [0.23 * len(found) + 0.75 for _, found in chosen]
    figure, panels = grid(
        len(chosen), len(targets), sum(heights) / len(heights), 0.2, gridspec_kw={"height_ratios": heights}
    )
    for line, (source, found) in zip(panels, chosen):
        for panel, eps in zip(line, targets):
            _bars(panel, source, found, eps, clock_scale(sources) if source.timed else SCALES.get(source.clock, 1.0))
            panel.set_title(f"to {aim(eps)} of {source.goal}", loc="left")
        line[0].set_yticks(range(len(found)), [group.method for group in found])
        count = max((group.workers for group in found), default=1)
        line[0].set_ylabel(heading(source, sources, crew(count, source.timed)))
    return figure


def _largest(source: ComparisonResult) -> list[Group]:
    return beside(source, max(counts(source), default=1))


def _bars(panel: Any, source: ComparisonResult, found: list[Group], eps: float, scale: float) -> None:
    reached = [group.reached(eps, source.clock) for group in found]
    unit = UNITS[source.clock] if scale == 1 or source.linked else "milliseconds"
    longest = scale * max((each.q75 for each in reached if each), default=0.0) or 1.0
    for place, (group, each) in enumerate(zip(found, reached)):
        count = f"{round(group.share(eps) * len(group.runs))}/{len(group.runs)}"
        if each is None:
            panel.text(0.015 * longest, place, f"not reached  {count}", va="center", fontsize=8, color="#B00020")
            continue
        failing = group.share(eps) < 1
        median, low, high = (scale * value for value in (each.median, each.q25, each.q75))
        panel.barh(
            place,
            median,
            height=0.68,
            color=style(group.method)["color"],
            alpha=0.45 if failing else 0.85,
            hatch="////" if failing else None,
            edgecolor="white",
            linewidth=0,
            zorder=2,
        )
        panel.plot([low, high], [place, place], color="0.2", linewidth=1.0, zorder=3)
        panel.text(
            high + 0.025 * longest,
            place,
            f"{digits(median)}  {count}",
            va="center",
            fontsize=8,
            color="#B00020" if failing else "black",
        )
    panel.set_xlim(0, 1.62 * longest)
    panel.locator_params(axis="x", nbins=4)
    panel.set_ylim(len(found) - 0.5, -0.5)
    panel.set_yticks(range(len(found)), [""] * len(found))
    panel.tick_params(axis="y", length=0)
    panel.grid(visible=False, axis="y")
    panel.set_xlabel(unit)


# ---- expensive gradients


def delays(sources: Sequence[ComparisonResult]) -> Any:
    """Plot speed-up against the cost of a gradient, for the largest number of workers."""
    chosen = [(source, points) for source in sources if (points := delay_points(source))]
    if not chosen:
        return None
    figure, panels = grid(1, len(chosen), 3.3, sharey=True)
    for panel, (source, points) in zip(panels[0], chosen):
        most = max(point.workers for point in points)
        shown = [point for point in points if point.workers == most]
        panel.axhline(most, label="ideal", **GUIDE)
        panel.axhline(1, color="0.7", linewidth=0.8, zorder=1)
        for method in dict.fromkeys(point.method for point in shown):
            found = sorted((point.cost, point.delay, point.speedup) for point in shown if point.method == method)
            with_quartiles(panel, [(cost, gain) for cost, _, gain in found], style(method))
        panel.set_xscale("log")
        panel.xaxis.set_major_formatter(lambda value, _: duration(value).replace(".00", "").replace(".0", ""))
        panel.set_ylim(0, most * (1.22 if len(chosen) == 1 else 1.32))
        panel.yaxis.set_major_formatter("{x:g}x")
        panel.set_xlabel(f"cost of a {unit_of(source)} (serial)")
        panel.set_title(heading(source, sources, f"{crew(most)}, over serial"), loc="left")
        _say_where_locks_catch_up(panel, shown, most, "\n" if len(chosen) > 1 else " ")
    panels[0][0].set_ylabel("speed-up")
    legend(figure, panels)
    return figure


def _say_where_locks_catch_up(panel: Any, points: Sequence[DelayPoint], workers: int, gap: str) -> None:
    if not {"lock-free", "locks"} <= {point.kind for point in points}:
        return
    caught = lock_caught_up(points, workers)
    if caught is None:
        text = f"even at the right no locks{gap}come within 10 % of lock-free"
    else:
        panel.axvline(caught.cost, color="0.35", linewidth=0.9)
        text = f"from {duration(caught.cost)} on\n{short(caught.method)} is within{gap}10 % of lock-free"
    paper = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5}
    panel.text(0.02, 0.98, text, transform=panel.transAxes, va="top", fontsize=8, bbox=paper)


# ---- what more workers do; only the simulator counts stale gradients and lost updates

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


# Name of the files, title, caption and drawing function, which returns None without data.
FIGURES: tuple[tuple[str, str, str, Callable[[Sequence[ComparisonResult]], Any]], ...] = (
    (
        "gap-seconds",
        "How near to the optimum, and when",
        "Sub-optimality (what is left of the way from the start to the optimum) against seconds of training; lower "
        "left is better.",
        lambda given: curves([source for source in given if source.timed], given, "train_seconds"),
    ),
    (
        "gap-epochs",
        "How near to the optimum, by passes over the data",
        "The same against epochs: what parallel updates cost in progress, whatever the speed.",
        lambda given: curves(given, given, "epoch"),
    ),
    (
        "gap-virtual",
        "How near to the optimum, by the simulator's time",
        "The same against virtual seconds: rows, and messages over the simulated link, take their time.",
        lambda given: curves([source for source in given if source.linked], given, "virtual_seconds"),
    ),
    (
        "gap-bytes",
        "How near to the optimum, by what was sent",
        "The same against the bytes that all replicas have sent, headers included, on a logarithmic scale.",
        lambda given: curves([source for source in given if source.linked], given, "bytes_sent"),
    ),
    (
        "target",
        "Time to target",
        "Median time to each target on the most workers (serial and other programs: on one), whiskers from quartile "
        "to quartile, and how many of the runs got there; shorter is better.",
        bars,
    ),
    (
        "speedup",
        "Speed-up and its two factors",
        "Speed-up over serial is the statistical factor (fewer epochs) times the hardware factor (shorter epochs), at "
        "the hardest target that at least half of the runs of both reached.",
        lambda given: by_workers(given, FACTORS),
    ),
    (
        "staleness",
        "Staleness and lost updates",
        "How many updates of others fall between reading and writing, and how many weights' updates are overwritten, "
        "for each update of a row.",
        lambda given: by_workers(given, INTERLEAVING),
    ),
    (
        "staleness-histogram",
        "How stale gradients were",
        "Share of the last epoch's updates that were at least so stale: with so many updates of others between "
        "reading and writing, on the most workers.",
        histogram,
    ),
    (
        "delay",
        "When gradients cost more",
        "Speed-up over serial with the same delay in every gradient, against what a row then costs serial (on a "
        "logarithmic scale).",
        delays,
    ),
)
