"""The figures of a report, each answering one question; a figure without data is left out, never drawn empty.

Lines are medians over the seeds, of seconds and of sub-optimality at the same epoch, because runs of different seeds
are never at the same second; bands reach from quartile to quartile.

Each method has one colour and marker everywhere, at the width of an A4 page. Colours are those of Okabe and Ito, which
the colour-blind can distinguish; the line shows the kind (solid: lock-free, dashed: locks and blocks, dash-dotted:
exchanges and methods in step, dotted: other programs), which also works in greyscale. What could differ between two
renderings is fixed: matplotlib's settings, the salt of SVG names, dates.
"""

from __future__ import annotations

import contextlib
import io
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hogwild.compare.report.cells import aim, crew, digits, duration
from hogwild.compare.report.results import (
    REFERENCES,
    ComparisonResult,
    Group,
    Spread,
    delay_points,
    frame,
    lock_caught_up,
    serial,
    speedup,
    spread,
)
from hogwild.compare.report.tables import clock_scale

if TYPE_CHECKING:
    import pandas

WIDTH = 7.1  # inches: A4 without its margins, so that 8 pt are 8 pt in print
DPI = 200
LINES: dict[str, Any] = {  # of kinds; others have a solid line
    "locks": (0, (4, 1.5)),
    "blocks": (0, (3, 1)),
    "exchange": (0, (5, 1.2, 1, 1.2)),
    "in step": (0, (5, 1.2, 1, 1.2)),
    "outside": (0, (1, 1.2)),
}
STYLES = {  # colour and marker
    "serial": "#000000 s",
    "hogwild": "#0072B2 o",
    "tiered": "#D55E00 ^",
    "atomic": "#009E73 D",
    "aig": "#CC79A7 v",
    "locked": "#E69F00 P",
    "round-robin": "#56B4E9 >",
    "blocks": "#117733 <",
    "averaging": "#8C510A p",
    "one-shot-averaging": "#A89000 h",
    "gossip": "#44AA99 *",
    "server": "#AA4499 s",
    "consensus": "#332288 d",
    "sklearn-sgd": "#6A6A6A X",
    "liblinear": "#9C9C9C d",
    "cornac": "#6A6A6A X",
    "cuda-atomic": "#009E73 *",
    "cuda-hogwild": "#0072B2 *",
    "cuda-locked": "#E69F00 *",
    "cuda-synchronous": "#882255 p",
    "cuda-one-stream": "#117733 X",
}
GUIDE: dict[str, Any] = {"color": "0.35", "linewidth": 0.9, "linestyle": (0, (2, 2)), "zorder": 1}  # of ideals, targets
MARKERS = "o^v<>PXD8"  # of an exchange with parameters, which has its colour
OTHERS = ("#332288", "#882255", "#117733", "#44AA99", "#AA4499", "#661100")  # for methods added later
SETTINGS: dict[str, Any] = {
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
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
LOG_FROM = 12.0  # slowest over fastest run from which seconds are drawn on a logarithmic scale
DODGE = 1.03  # offset between methods that would hide each other
#: Fields against which sub-optimality is drawn: the axis' label, and how many of its units are one of the field's.
CLOCKS = {
    "train_seconds": ("seconds", 1.0),
    "epoch": ("epochs", 1.0),
    "virtual_seconds": ("virtual milliseconds", 1e3),
    "bytes_sent": ("megabytes sent by all replicas", 1e-6),
}
APART = "Each point of liblinear's curve is a run of its own from the start, timed by itself, for it cannot go on."
Sources = Sequence[ComparisonResult]


@dataclass(frozen=True)
class Drawing:
    """A figure with its title and caption."""

    name: str  # name of its files
    title: str
    caption: str
    figure: Any


def draw(sources: Sources) -> list[Drawing]:
    """Draw all figures that have data. Call within :func:`settings`."""
    figures = [(name, title, caption, make(sources)) for name, title, caption, make in FIGURES]
    where = "; ".join(dict.fromkeys(_machine(source, len(sources) > 1) for source in sources))
    apart = any(run.key[0] == "liblinear" and run.ran for source in sources for run in source.reported)
    more = dict.fromkeys(("gap-seconds", "gap-epochs"), f" {APART}") if apart else {}
    return [
        Drawing(name, title, f"{caption}{more.get(name, '')} {where}.", figure)
        for name, title, caption, figure in figures
        if figure
    ]


def _machine(source: ComparisonResult, named: bool) -> str:
    """Describe data and machine in a few words."""
    head = source.head
    cores = f"{source.cores} cores" if source.cores else ""
    parts = [head.get("data") or "data", head.get("cpu") or "unknown processor", cores, source.gpu]
    return (f"{source.label}: " if named else "") + ", ".join(str(part) for part in parts if part)


# ---- matplotlib


@contextlib.contextmanager
def settings() -> Iterator[None]:
    """Use matplotlib's defaults with our settings, ignoring the user's; missing glyphs draw boxes without a warning."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)  # type: ignore[arg-type]
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def save(figure: Any, kind: str) -> bytes:
    """Return the figure's file, "svg" or "png"; the same figure gives the same bytes."""
    if figure.get_layout_engine() is not None:  # once, and not once for each file and once more to draw it
        figure.draw_without_rendering()
        figure.set_layout_engine(None)
    target = io.BytesIO()
    undated = {"svg": dict.fromkeys(("Date", "Creator", "Format", "Type")), "png": {"Software": None}}
    figure.savefig(target, format=kind, dpi=DPI, metadata=undated[kind])
    return target.getvalue()


def style(method: str, kind: str) -> dict[str, Any]:
    """Return the keyword arguments of a line."""
    number = zlib.crc32(method.encode())
    base = STYLES.get(method.partition(":")[0], f"{OTHERS[number % len(OTHERS)]} *")  # of an exchange with parameters
    colour, marker = STYLES.get(method, base).split()
    if ":" in method:
        marker = MARKERS[number % len(MARKERS)]
    return {"color": colour, "marker": marker, "linestyle": LINES.get(kind, "-"), "label": method, "markeredgewidth": 0}


def grid(rows: int, columns: int, height: float, extra: float = 0.75, **shared: Any) -> tuple[Any, Any]:
    """Return a figure and its panels, (rows, columns); ``height`` is the inches of a row."""
    from matplotlib.figure import Figure  # without pyplot: no window, no state, and always Agg
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    size = (WIDTH * max(columns / 3, 1), height * rows + extra)
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06))
    return figure, figure.subplots(rows, columns, squeeze=False, **shared)


def legend(figure: Any, panels: Any) -> Any:
    """Draw one legend for all panels, below them; return the figure."""
    handles = {handle.get_label(): handle for panel in panels.flat for handle in panel.get_legend_handles_labels()[0]}
    order = list(STYLES)
    names = sorted(handles, key=lambda name: order.index(name) if name in order else len(order))
    if names:
        most = min(max(int(WIDTH / (0.5 + 0.065 * max(map(len, names)))), 1), 5)  # inches of a handle, a character
        columns = -(-len(names) // -(-len(names) // most))
        figure.legend([handles[name] for name in names], names, loc="outside lower center", ncols=columns)
    return figure


def heading(source: ComparisonResult, sources: Sources, text: str) -> str:
    """Return a panel's title, with the comparison's name, shortened, if there are several."""
    name = "".join(char if char.isprintable() else " " for char in source.label)
    name = name if len(name) <= 34 else f"{name[:16]}…{name[-17:]}"
    return f"{name}: {text}" if len(sources) > 1 else text


def with_quartiles(panel: Any, points: Sequence[tuple[float, Spread]], look: dict[str, Any]) -> None:
    """Draw a line of medians with a band from quartile to quartile."""
    at = [place for place, _ in points]
    panel.plot(at, [each.median for _, each in points], **look)
    low = [each.q25 for _, each in points]
    panel.fill_between(at, low, [each.q75 for _, each in points], color=look["color"], alpha=0.15, linewidth=0)


# ---- sub-optimality


def is_fixed(group: Group, groups: Sequence[Group]) -> bool:
    """Whether a method runs on one worker while others run on several."""
    alone = group.kind in (*REFERENCES, "in step")
    return alone and all(each.workers == 1 for each in groups if each.method == group.method)


def counts(source: ComparisonResult) -> set[int]:
    """Numbers of workers of the methods that run with several."""
    groups = source.best
    return {group.workers for group in groups if group.kind not in REFERENCES and not is_fixed(group, groups)}


def beside(source: ComparisonResult, count: int) -> list[Group]:
    """Groups on ``count`` workers, and those that always run on one."""
    return [group for group in source.best if group.workers == count or is_fixed(group, source.best)]


def curve(group: Group, clock: str) -> pandas.DataFrame:
    """Return quartiles of the sub-optimality (0.25, 0.5, 0.75) and the median of the clock (``at``), a row an epoch.

    Epochs count for which at least half of the runs have a figure.
    """
    points = frame([group]).assign(at=lambda rows: rows.get(clock))  # epochs may be the clock
    epochs = points[["epoch", "at", "gap"]].astype(float).dropna().groupby("epoch")
    lines = epochs["gap"].quantile([0.25, 0.5, 0.75]).unstack().assign(at=epochs["at"].median())
    return lines[2 * epochs.size() >= len(group.runs)]


def curves(sources: Sources, everyone: Sources, clock: str) -> Any:
    """Plot a panel for each number of workers and each comparison; serial and other programs are in all of them.

    ``clock`` is the field below, a key of ``CLOCKS``; a method that has none of it is left out.
    """
    cells = [(source, count) for count in sorted(set().union(*map(counts, sources))) or [1] for source in sources]
    lines = [[(group, curve(group, clock)) for group in beside(source, count)] for source, count in cells]
    lines = [[(group, line) for group, line in panel if line["at"].any()] for panel in lines]
    if not any(lines):
        return None
    columns = len(sources) if len(sources) > 1 else min(len(cells), 2)
    shared: dict[str, Any] = {"sharex": "col" if len(sources) > 1 else True, "sharey": True}
    figure, panels = grid(-(-len(cells) // columns), columns, 3.0 if columns < 3 else 2.7, **shared)
    unit, scale = CLOCKS[clock]
    if clock == "train_seconds" and clock_scale(sources) > 1:
        unit, scale = "milliseconds", 1000.0
    logarithmic = clock == "bytes_sent" or (clock == "train_seconds" and any(map(_differ_much, sources)))
    targets = sorted({eps for source in sources for eps in source.eps})
    least = min((line[0.5][line[0.5] > 0].min() for panel in lines for _, line in panel), default=1.0)
    for panel, (source, count), drawn in zip(panels.flat, cells, lines):
        for group, line in drawn:
            look = style(group.method, group.kind)
            seen = line[line["at"] > 0] if logarithmic else line
            at = scale * seen["at"]
            panel.plot(at, seen[0.5], markevery=max(1, len(at) // 8), zorder=3 - (group.kind in REFERENCES), **look)
            if len(group.runs) > 1:
                panel.fill_between(at, seen[0.25], seen[0.75], color=look["color"], alpha=0.15, linewidth=0, zorder=2)
        for eps in targets:
            panel.axhline(eps, label="target", **GUIDE)
        panel.set(yscale="log", ylim=(max(np.fmin(least, targets[0]) * 0.7, targets[0] / 30), 1.6))
        if logarithmic:
            panel.set_xscale("log")
            panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panel.yaxis.set_major_formatter(lambda value, _: aim(value))
        panel.tick_params(labelbottom=True)
        panel.set_title(heading(source, everyone, crew(count, source.timed)))
        panel.set_xlabel(f"{unit}{' (logarithmic)' * logarithmic}")
    for panel in panels.flat[len(cells) :]:
        panel.remove()
    for panel in panels[:, 0]:
        panel.set_ylabel("sub-optimality (f − f*) / (f₀ − f*)")
    return legend(figure, panels)


def _differ_much(source: ComparisonResult) -> bool:
    """Whether the fastest runs would be a spike at the left of the slowest."""
    ends = [group.runs[0].final["train_seconds"] for group in source.best if group.runs[0].final]
    return bool(ends) and max(ends) > LOG_FROM * min(ends) > 0


# ---- time to target


def bars(sources: Sources) -> Any:
    """Plot bars by target, for the largest number of workers of each comparison, beside serial and other programs."""
    chosen = [(source, beside(source, max(counts(source), default=1))) for source in sources]
    chosen = [(source, groups) for source, groups in chosen if groups]
    if not chosen:
        return None
    targets = sorted({eps for source in sources for eps in source.eps}, reverse=True)
    heights = [0.23 * len(groups) + 0.75 for _, groups in chosen]
    figure, panels = grid(
        len(chosen), len(targets), sum(heights) / len(heights), 0.2, gridspec_kw={"height_ratios": heights}
    )
    for line, (source, groups) in zip(panels, chosen):
        for panel, eps in zip(line, targets):
            _bars(panel, source, groups, eps, clock_scale(sources))
        line[0].set_yticks(range(len(groups)), [group.method for group in groups])
        line[0].set_ylabel(heading(source, sources, crew(max(group.workers for group in groups), source.timed)))
    return figure


def _bars(panel: Any, source: ComparisonResult, groups: list[Group], eps: float, milliseconds: float) -> None:
    unit, scale = CLOCKS[source.clock]
    if source.timed and milliseconds > 1:
        unit, scale = "milliseconds", milliseconds
    arrivals = [group.reached(eps, source.clock) for group in groups]
    longest = scale * max((each.q75 for each in arrivals if each), default=0.0) or 1.0
    for place, (group, each) in enumerate(zip(groups, arrivals)):
        count = f"{group.arrivals(eps)}/{len(group.runs)}"
        failing = group.share(eps) < 1
        end, text = 0.015 * longest, f"not reached  {count}"
        if each is not None:
            end, text = scale * each.q75 + 0.025 * longest, f"{digits(scale * each.median)}  {count}"
            look = {"alpha": 0.45, "hatch": "////"} if failing else {"alpha": 0.85}
            colour = style(group.method, group.kind)["color"]
            width = scale * each.median
            panel.barh(place, width, height=0.68, color=colour, edgecolor="white", linewidth=0, zorder=2, **look)
            panel.plot([scale * each.q25, scale * each.q75], [place, place], color="0.2", linewidth=1.0, zorder=3)
        panel.text(end, place, text, va="center", fontsize=8, color="#B00020" if failing else "black")
    panel.set(xlim=(0, 1.62 * longest), ylim=(len(groups) - 0.5, -0.5), xlabel=unit)
    panel.locator_params(axis="x", nbins=4)
    panel.set_yticks(range(len(groups)), [""] * len(groups))
    panel.tick_params(axis="y", length=0)
    panel.grid(visible=False, axis="y")
    panel.set_title(f"to {aim(eps)} of {source.goal}")


# ---- expensive gradients


def delays(sources: Sources) -> Any:
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
        for method, kind in dict.fromkeys((point.method, point.kind) for point in shown):
            line = [(point.cost, point.speedup) for point in shown if point.method == method]
            with_quartiles(panel, line, style(method, kind))
        if (caught := lock_caught_up(shown, most)) is not None:
            panel.axvline(caught.cost, color="0.35", linewidth=0.9)
            text = f"from here on {caught.method}\nis within 10 % of lock-free"
            panel.annotate(text, (caught.cost, 1), (4, -2), ("data", "axes fraction"), "offset points", va="top")
        panel.set(xscale="log", ylim=(0, most * 1.3), xlabel=f"cost of a {source.unit} (serial)")
        panel.xaxis.set_major_formatter(lambda value, _: duration(value).replace(".00", "").replace(".0", ""))
        panel.yaxis.set_major_formatter("{x:g}x")
        panel.set_title(heading(source, sources, f"{crew(most)}, over serial"))
    panels[0][0].set_ylabel("speed-up")
    return legend(figure, panels)


# ---- what more workers do; only the simulator counts stale gradients and lost updates


def _factor(name: str) -> Callable[[Group, ComparisonResult], Spread | None]:
    """Return the measure of a part of the speed-up."""

    def measure(group: Group, source: ComparisonResult) -> Spread | None:
        gain = speedup(group, serial(source.best), source)
        return spread([getattr(gain, name)]) if gain else None

    return measure


#: Titles and measures, and the ideal for so many workers.
Measures = dict[str, tuple[Callable[[Group, ComparisonResult], Spread | None], Callable[[int], float] | None]]
FACTORS: Measures = {
    "speed-up": (_factor("total"), float),
    "statistical factor": (_factor("statistical"), lambda workers: 1.0),
    "hardware factor": (_factor("hardware"), float),
}
INTERLEAVING: Measures = {
    "staleness: updates of others in between": (lambda group, _: group.over_epochs("staleness_mean"), None),
    "lost updates of weights, for each update": (lambda group, _: group.lost_share, None),
}


def by_workers(sources: Sources, measures: Measures) -> Any:
    """Plot a panel for each measure, a line of them for each comparison, against workers."""
    chosen = [(source, [_lines(source, measure) for measure, _ in measures.values()]) for source in sources]
    chosen = [(source, lines) for source, lines in chosen if any(lines)]
    if not chosen:
        return None
    figure, panels = grid(len(chosen), len(measures), 2.7)
    for row, (source, of_measures) in zip(panels, chosen):
        workers = sorted({1, *(count for lines in of_measures for points in lines.values() for count, _ in points)})
        for panel, (title, (_, ideal)), lines in zip(row, measures.items(), of_measures):
            if ideal is not None:
                panel.plot(workers, [ideal(count) for count in workers], label="ideal", **GUIDE)
                panel.yaxis.set_major_formatter("{x:g}x")
            for place, ((method, kind), points) in enumerate(lines.items()):
                apart = 1.0 if ideal is not None else DODGE ** (place - (len(lines) - 1) / 2)
                with_quartiles(panel, [(count * apart, each) for count, each in points], style(method, kind))
            panel.set_xscale("log", base=2)
            panel.set_xticks(workers, [str(count) for count in workers])
            panel.set_xticks([], minor=True)
            panel.set(xlabel="workers", xlim=(2**-0.25, max(workers) * 2**0.25), ylim=(0, 1.06 * panel.get_ylim()[1]))
            panel.set_title(heading(source, sources, title) if panel is row[0] else title)
            if not lines:
                panel.axis("off")
    return legend(figure, panels)


def _lines(source: ComparisonResult, measure: Any) -> dict[tuple[str, str], list[tuple[int, Spread]]]:
    """Return the points of each method, by its name and kind."""
    lines: dict[tuple[str, str], list[tuple[int, Spread]]] = {}
    for group in sorted(source.best, key=lambda group: group.workers):
        fixed = group.kind in REFERENCES or is_fixed(group, source.best)
        if not fixed and (value := measure(group, source)) is not None:
            lines.setdefault((group.method, group.kind), []).append((group.workers, value))
    return lines


def histogram(sources: Sources) -> Any:
    """Plot the share of updates with at least a given staleness, one panel per comparison (cumulative: no bins)."""
    chosen = []
    for source in sources:
        totals = [(group, _staleness(group)) for group in source.best]
        most = max((group.workers for group, total in totals if total), default=0)
        shown = [(group, total) for group, total in totals if total and group.workers == most]
        chosen += [(source, shown)] if shown else []
    if not chosen:
        return None
    figure, panels = grid(1, len(chosen), 3.0, sharey=True)
    for panel, (source, shown) in zip(panels[0], chosen):
        for place, (group, total) in enumerate(shown):
            stale = np.array(sorted(total))
            share = np.cumsum([total[value] for value in stale[::-1]])[::-1] / total.total()
            width = 1.4 + 1.2 * (len(shown) - 1 - place)  # some coincide
            look = style(group.method, group.kind) | {"marker": "", "linewidth": width}
            panel.step(np.append(stale, stale[-1]) + 1, np.append(share, share[-1] / 10), where="pre", **look)
        panel.set(xscale="log", yscale="log", xlabel="staleness + 1")
        panel.xaxis.set_major_formatter("{x:,.0f}")
        panel.xaxis.set_minor_formatter("")
        panel.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
        panel.set_title(heading(source, sources, crew(shown[0][0].workers, source.timed)))
    panels[0][0].set_ylabel("updates at least so stale")
    return legend(figure, panels)


def _staleness(group: Group) -> Counter[int]:
    """Count updates by their staleness, over all runs."""
    total: Counter[int] = Counter()
    for run in group.runs:
        total.update({int(stale): count for stale, count in (run.rows[-1].get("staleness") or {}).items()})
    return total


# Name of the files, title, caption and drawing function, which returns None without data.
FIGURES: tuple[tuple[str, str, str, Callable[[Sources], Any]], ...] = (
    (
        "gap-seconds",
        "How near to the optimum, and when",
        "Sub-optimality (what is left of the way from the start to the optimum) against seconds of training; lower "
        "left is better.",
        lambda sources: curves([source for source in sources if source.timed], sources, "train_seconds"),
    ),
    (
        "gap-epochs",
        "How near to the optimum, by passes over the data",
        "The same against epochs: what parallel updates cost in progress, whatever the speed.",
        lambda sources: curves(sources, sources, "epoch"),
    ),
    (
        "gap-virtual",
        "How near to the optimum, by the simulator's time",
        "The same against virtual seconds: rows, and messages over the simulated link, take their time.",
        lambda sources: curves([source for source in sources if source.linked], sources, "virtual_seconds"),
    ),
    (
        "gap-bytes",
        "How near to the optimum, by what was sent",
        "The same against the bytes that all replicas have sent, headers included, on a logarithmic scale.",
        lambda sources: curves([source for source in sources if source.linked], sources, "bytes_sent"),
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
        lambda sources: by_workers(sources, FACTORS),
    ),
    (
        "staleness",
        "Staleness and lost updates",
        "How many updates of others fall between reading and writing, and how many weights' updates are overwritten, "
        "for each update of a row.",
        lambda sources: by_workers(sources, INTERLEAVING),
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
