"""Pictures of segmented images: the labels beside the image.

Matplotlib draws them, and is imported here only. Points are not blended into each other, so that a single wrong one is
visible; the first axis runs downwards, as in an array.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hogwild.errors import UsageError
from hogwild.problems.cuts.model import Segmentation

INCHES = 3.2  # size of a panel
FEW = 10  # most labels that each have a colour of their own in the legend


def draw(segmentation: Segmentation, path: str | Path) -> None:
    """Draw a segmented grid into a PNG file.

    Raises
    ------
    UsageError
        If it is not a grid of two dimensions.
    OutputError
        If the file cannot be written; no partial file is left.
    """
    from matplotlib.figure import Figure  # without pyplot: no window, no state, and only Agg

    from hogwild.model_file import save_figure

    labels, image = segmentation.grid(), segmentation.image
    if labels.ndim != 2:
        raise UsageError(f"--plot needs a grid of two dimensions; got {labels.ndim}")
    pictures = {"labels": labels} if image is None else {"image": image, "labels": labels}
    height, width = labels.shape
    tall = INCHES * min(max(height / width, 0.2), 5.0)
    figure = Figure(figsize=(INCHES * len(pictures) + 1.2, tall + 0.7), layout="constrained")
    panels = figure.subplots(1, len(pictures), squeeze=False)[0]
    for panel, (title, picture) in zip(panels, pictures.items()):
        if picture is labels:
            count = segmentation.n_labels
            how = {"cmap": _colours(count), "vmin": -0.5, "vmax": max(count, FEW) - 0.5}
        else:
            how = {"cmap": "gray"}
        panel.imshow(picture, interpolation="nearest", **how)
        panel.set_title(title, fontsize="small")
        panel.set_xticks([])
        panel.set_yticks([])
    _legend(figure, segmentation)
    title = f"cut {segmentation.cut_value:,.8g}, relaxed {segmentation.objective:,.8g}"
    figure.suptitle(title, fontsize="small")
    save_figure(figure, path)


def _colours(count: int) -> Any:
    import matplotlib

    if count <= FEW:
        return matplotlib.colormaps["tab10"].resampled(FEW)
    return matplotlib.colormaps["viridis"].resampled(count)


def _legend(figure: Any, segmentation: Segmentation) -> None:
    from matplotlib.patches import Patch

    count = segmentation.n_labels
    if count > FEW:
        return
    names = range(count) if segmentation.label_ids is None else segmentation.label_ids.names()
    colours = _colours(count)
    patches = [Patch(color=colours(label), label=str(name)) for label, name in enumerate(names)]
    figure.legend(handles=patches, loc="outside right center", fontsize="small", title="label", title_fontsize="small")
