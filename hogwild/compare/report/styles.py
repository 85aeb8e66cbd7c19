"""The style of the figures: one colour, marker and line for each method everywhere, at the width of an A4 page.

Colours are those of Okabe and Ito, which the colour-blind can distinguish; the line shows the kind (solid: lock-free,
dashed: locks, dash-dotted: exchanges and methods in step, dotted: other programs and single replicas), which also works
in greyscale. What could differ between two renderings is fixed: matplotlib's settings, the salt of SVG names, dates.
"""

from __future__ import annotations

import contextlib
import io
import warnings
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from hogwild.compare.report.results import ComparisonResult
from hogwild.compare.report.summary import Spread

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
