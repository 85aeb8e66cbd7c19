"""Pictures of segmented images: the labels beside the image.

Matplotlib draws them, and is imported here only. Points are not blended into each other, so that a single wrong one is
visible; the first axis runs downwards, as in an array.
"""

from __future__ import annotations

from pathlib import Path

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
    import matplotlib
    from matplotlib.figure import Figure  # without pyplot: no window, no state, and only Agg
    from matplotlib.patches import Patch

    from hogwild.model_file import save_figure

    labels = segmentation.grid()
    image = segmentation.image
    count = segmentation.n_labels
    if labels.ndim != 2:
        raise UsageError(f"--plot needs a grid of two dimensions; got {labels.ndim}")
    height, width = labels.shape
    panels = 1 if image is None else 2
    tall = INCHES * min(max(height / width, 0.2), 5.0)
    figure = Figure(figsize=(INCHES * panels + 1.2, tall + 0.7), layout="constrained")
    *beside, panel = figure.subplots(1, panels, squeeze=False)[0]
    for axes in beside:
        axes.imshow(image, interpolation="nearest", cmap="gray")
        axes.set_title("image", fontsize="small")
    colours = matplotlib.colormaps["tab10" if count <= FEW else "viridis"].resampled(max(count, FEW))
    panel.imshow(labels, interpolation="nearest", cmap=colours, vmin=-0.5, vmax=max(count, FEW) - 0.5)
    panel.set_title("labels", fontsize="small")
    for axes in (*beside, panel):
        axes.set_xticks([])
        axes.set_yticks([])
    if count <= FEW:
        names = range(count) if segmentation.label_ids is None else segmentation.label_ids.names()
        patches = [Patch(color=colours(label), label=str(name)) for label, name in enumerate(names)]
        figure.legend(handles=patches, loc="outside right center", fontsize="small", title="label")
    figure.suptitle(f"cut {segmentation.cut_value:,.8g}, relaxed {segmentation.objective:,.8g}", fontsize="small")
    save_figure(figure, path)
