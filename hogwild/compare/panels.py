"""How the figures look: one colour, marker and line for each method everywhere, made for the width of an A4 page.

Colours are those of Okabe and Ito, which stay apart for the colour-blind; the line says the kind (full: lock-free,
dashed: locks, dash-dotted: exchanges and what goes in step, dotted: other programs and single replicas), so that they
stay apart on grey paper too. What could differ between two renderings is pinned: matplotlib's settings, the salt of SVG
names, dates.
"""

from __future__ import annotations

import contextlib
import io
import warnings
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from hogwild.compare.results import Source
from hogwild.compare.summary import Spread

WIDTH = 7.1  # inches: a page of A4 without its margins, so that 8 pt are 8 pt in print
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
    "sklearn-sgd": ("#6A6A6A", "X", DOTTED),
    "liblinear": ("#9C9C9C", "d", DOTTED),
    "cornac": ("#6A6A6A", "X", DOTTED),
    "cuda-atomic": ("#009E73", "*", FULL),
    "cuda-hogwild": ("#0072B2", "*", FULL),
    "cuda-locked": ("#E69F00", "*", DASHED),
    "cuda-synchronous": ("#882255", "p", DASH_DOT),
    "cuda-vmap": ("#332288", "h", DASH_DOT),
    "cuda-one-stream": ("#117733", "X", DOTTED),
    "cuda-eager": ("#8C510A", "d", DOTTED),
}
OTHERS = ("#332288", "#882255", "#117733", "#44AA99", "#AA4499", "#661100")  # of methods that came later
SETTINGS: dict[str, Any] = {
    "font.size": 8.5, "axes.titlesize": 9, "axes.labelsize": 8.5, "xtick.labelsize": 8, "ytick.labelsize": 8,
    "legend.fontsize": 8, "legend.frameon": False, "legend.handlelength": 2.6, "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25, "grid.linewidth": 0.6, "lines.linewidth": 1.5,
    "lines.markersize": 4.5, "text.parse_math": False, "svg.hashsalt": "hogwild", "svg.fonttype": "path",
}  # fmt: skip


def style(method: str) -> dict[str, Any]:
    """Keywords of a line."""
    fallback = OTHERS[zlib.crc32(method.encode()) % len(OTHERS)], "*", FULL
    colour, marker, line = STYLES.get(method, fallback)
    return {"color": colour, "marker": marker, "linestyle": line, "label": method}


@contextlib.contextmanager
def settings() -> Iterator[None]:
    """Matplotlib as it comes, whatever the user has set, with ours; names without a glyph draw boxes in silence."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        for name, value in SETTINGS.items():
            matplotlib.rcParams[name] = value  # type: ignore[index]
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def grid(rows: int, columns: int, height: float, extra: float = 0.75, **shared: Any) -> tuple[Any, Any]:
    """A figure and its panels, (rows, columns); ``height``: inches of a row."""
    from matplotlib.figure import Figure  # without pyplot: no window, no state, and Agg by itself
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    width = WIDTH if columns <= 3 else WIDTH / 3 * columns
    layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06)
    figure = Figure(figsize=(width, height * rows + extra), layout=layout)
    return figure, figure.subplots(rows, columns, squeeze=False, **shared)


def legend(figure: Any, panels: Any) -> None:
    """One for all panels, below them."""
    handles = {handle.get_label(): handle for panel in panels.flat for handle in panel.get_legend_handles_labels()[0]}
    order = {name: place for place, name in enumerate(STYLES)}
    names = sorted(handles, key=lambda name: order.get(name, len(order)))
    if names:
        lines = -(-len(names) // 5)
        columns = -(-len(names) // lines)
        figure.legend([handles[name] for name in names], names, loc="outside lower center", ncols=columns)


def workers_axis(panel: Any, counts: Sequence[int]) -> None:
    """Numbers of workers, doubling."""
    panel.set_xscale("log", base=2)
    panel.set_xticks(counts, [str(count) for count in counts])
    panel.set_xticks([], minor=True)
    margin = 2**0.25
    panel.set_xlim(min(counts) / margin, max(counts) * margin)
    panel.set_xlabel("workers")


def with_quartiles(panel: Any, points: Sequence[tuple[float, Spread]], look: dict[str, Any]) -> None:
    """A line of medians with a band from quartile to quartile."""
    at = [place for place, _ in points]
    panel.plot(at, [found.median for _, found in points], markeredgewidth=0, **look)
    panel.fill_between(at, [found.q25 for _, found in points], [found.q75 for _, found in points], color=look["color"],
                       alpha=0.15, linewidth=0)  # fmt: skip


def short(text: str, most: int = 34) -> str:
    """For a title: on one line, its middle left out where it is long."""
    text = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return text if len(text) <= most else f"{text[: most // 2 - 1]}…{text[-(most - most // 2) :]}"


def heading(source: Source, sources: Sequence[Source], text: str) -> str:
    """A panel's title, with the comparison's name where there are several."""
    return f"{short(source.label)}: {text}" if len(sources) > 1 else text


def save(figure: Any, kind: str) -> bytes:
    """The figure's file: "svg" or "png"; the same bytes for the same figure."""
    target = io.BytesIO()
    nothing = {"svg": dict.fromkeys(("Date", "Creator", "Format", "Type")), "png": {"Software": None}}
    figure.savefig(target, format=kind, dpi=DPI, metadata=nothing[kind])
    return target.getvalue()
