"""A stereo picture cut into labels
================================

Two eyes see a near point at places that lie further apart. Which shift fits best at every pixel, if neighbours should
have the same one, is a multi-way cut of a graph::

    python scripts/examples/stereo.py

The vertices are the pixels and a terminal for each shift. An edge to a terminal weighs what that shift explains of the
pixel, an edge between neighbours what a border between them costs. Lock-free workers minimise the relaxation.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import uniform_filter

import hogwild

SIDE = 96  # pixels
SHIFTS = 4  # labels: how many pixels apart a point is seen
BORDER = 0.35  # cost of an edge between pixels of different labels


def make_pictures(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Left and right picture of random dots, with noise, and the true shift of each pixel of the left one."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:SIDE, :SIDE]
    truth = np.zeros((SIDE, SIDE), dtype=int)
    truth[20:76, 14:60] = 1
    truth[(y - 56) ** 2 + (x - 62) ** 2 < 24**2] = 2
    truth[30:50, 30:50] = 3
    left = random.random((SIDE, SIDE))
    right = random.random((SIDE, SIDE))
    for shift in range(SHIFTS):  # what is near hides what is far
        rows, columns = np.nonzero((truth == shift) & (x >= shift))
        right[rows, columns - shift] = left[rows, columns]
    noise = random.normal(0, 0.1, (2, SIDE, SIDE))
    return left + noise[0], right + noise[1], truth


def make_graph(left: np.ndarray, right: np.ndarray) -> hogwild.Graph:
    misfit = np.stack([np.abs(left - np.roll(right, shift, axis=1)) for shift in range(SHIFTS)])
    misfit = np.stack([uniform_filter(one, 3) for one in misfit])  # (labels, side, side)
    explained = misfit.max() - misfit  # weight of a pixel's edge to each terminal
    pixel = np.arange(SIDE * SIDE).reshape(SIDE, SIDE)
    beside = np.concatenate((pixel[:, :-1].ravel(), pixel[:-1].ravel()))
    other = np.concatenate((pixel[:, 1:].ravel(), pixel[1:].ravel()))
    terminals = SIDE * SIDE + np.arange(SHIFTS)
    u = np.concatenate((beside, np.tile(pixel.ravel(), SHIFTS)))
    v = np.concatenate((other, np.repeat(terminals, SIDE * SIDE)))
    weights = np.concatenate((np.full(len(beside), BORDER * explained.std()), explained.ravel()))
    return hogwild.Graph(
        u, v, weights, weights, SIDE * SIDE + SHIFTS, terminals, np.arange(SHIFTS), SHIFTS, shape=(SIDE, SIDE)
    )


def main() -> None:
    left, right, truth = make_pictures()
    graph = make_graph(left, right)
    model = hogwild.train(graph, problem="cuts", epochs=150, decay=0.97).finish()
    labels = model.grid()
    print(f"{graph}: cut value {model.cut_value:.1f}, {np.mean(labels == truth):.1%} of the pixels right")
    figure, axes = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
    pictures = {"left picture": left, "true shift": truth, "labels of the cut": labels}
    for axis, (title, picture) in zip(axes, pictures.items(), strict=True):
        shown = axis.imshow(picture, cmap="gray" if picture is left else "viridis")
        axis.set(title=title, xticks=[], yticks=[])
    figure.colorbar(shown, label="shift (pixels)", ticks=range(SHIFTS))
    plt.show()


if __name__ == "__main__":
    main()
