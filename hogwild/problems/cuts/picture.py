"""Pictures of segmented grids: the labels beside the image; in three dimensions, a few slices of both.

Matplotlib draws them, and is imported here only. Points are not blended into each other, so that a single wrong one is
visible; the first axis runs downwards, as in an array.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hogwild.errors import UsageError
from hogwild.problems.cuts.model import Segmentation

SLICES = 4  # across the first of three axes
INCHES = 3.2  # size of a panel
FEW = 10  # most labels that each have a colour of their own in the legend


def draw(segmentation: Segmentation, path: str | Path) -> None:
    """Draw a segmented grid into a PNG file.

    Raises
    ------
    UsageError
        If it is not a grid of two or three dimensions.
    OutputError
        If the file cannot be written; no partial file is left.
    """
    from matplotlib.figure import Figure  # without pyplot: no window, no state, and only Agg

    from hogwild.model_file import save_figure

    labels, image = segmentation.grid(), segmentation.image
    if labels.ndim not in (2, 3):
        raise UsageError(f"--plot: expected a grid of two or three dimensions, got {labels.ndim}")
    cuts = [slice(None)] if labels.ndim == 2 else _slices(len(labels))
    rows = [labels] if image is None else [image, labels]
    height, width = labels.shape[-2:]
    tall = INCHES * min(max(height / width, 0.2), 5.0)
    if labels.ndim == 2:  # panels side by side; slices in columns
        size, panels = (INCHES * len(rows) + 1.2, tall + 0.7), (1, len(rows))
    else:
        size, panels = (INCHES * len(cuts) + 1.2, tall * len(rows) + 0.7), (len(rows), len(cuts))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(*panels, squeeze=False).reshape(len(rows), len(cuts))
    for line, picture in zip(axes, rows):
        for panel, cut in zip(line, cuts):
            _panel(panel, picture, cut, segmentation.n_labels, picture is labels)
    _legend(figure, segmentation)
    figure.suptitle(_title(segmentation), fontsize="small")
    save_figure(figure, path)


def _slices(depth: int) -> list[int]:
    """Evenly spaced slices, without the outermost."""
    return sorted({int(at) for at in np.linspace(0, depth - 1, SLICES + 2)[1:-1].round()})


def _colours(count: int) -> Any:
    import matplotlib

    if count <= FEW:
        return matplotlib.colormaps["tab10"].resampled(FEW)
    return matplotlib.colormaps["viridis"].resampled(count)


def _panel(panel: Any, picture: np.ndarray, cut: Any, count: int, is_labels: bool) -> None:
    part = picture[cut]
    if is_labels:
        panel.imshow(part, cmap=_colours(count), vmin=-0.5, vmax=max(count, FEW) - 0.5, interpolation="nearest")
    else:
        panel.imshow(part, cmap="gray", vmin=float(picture.min()), vmax=float(picture.max()), interpolation="nearest")
    what = "labels" if is_labels else "image"
    panel.set_title(what if picture.ndim == 2 else f"{what}, slice {cut}", fontsize="small")
    panel.set_xticks([])
    panel.set_yticks([])


def _legend(figure: Any, segmentation: Segmentation) -> None:
    from matplotlib.patches import Patch

    count = segmentation.n_labels
    if count > FEW:
        return
    names = range(count) if segmentation.label_ids is None else segmentation.label_ids.names()
    colours = _colours(count)
    patches = [Patch(color=colours(label), label=str(name)) for label, name in enumerate(names)]
    figure.legend(handles=patches, loc="outside right center", fontsize="small", title="label", title_fontsize="small")


def _title(segmentation: Segmentation) -> str:
    return f"cut {segmentation.cut_value:,.8g}, relaxed {segmentation.objective:,.8g}"
