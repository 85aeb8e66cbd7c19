"""A network for handwritten digits
================================

All cores train a small network on scikit-learn's digits at once, without locks::

    python scripts/examples/digits.py

The picture shows test images that the network takes for another digit.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import hogwild

HELD_OUT = 5  # every fifth image


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def make_data(test: bool) -> tuple[np.ndarray, np.ndarray]:
    digits = load_digits()
    chosen = (np.arange(len(digits.target)) % HELD_OUT == 0) == test
    return digits.data[chosen] / 16, digits.target[chosen]  # (n, 64) from 0 to 1, (n,) from 0 to 9


def make_train() -> tuple[np.ndarray, np.ndarray]:
    return make_data(test=False)


def make_test() -> tuple[np.ndarray, np.ndarray]:
    return make_data(test=True)


def draw(model: nn.Module) -> None:
    images, digits = make_test()
    with torch.no_grad():
        told = model(torch.as_tensor(images, dtype=torch.float32)).argmax(dim=1).numpy()
    wrong = np.flatnonzero(told != digits)[:8]
    figure, axes = plt.subplots(1, 8, figsize=(9, 1.8), layout="constrained")
    figure.suptitle(f"{np.mean(told == digits):.1%} of the test images are told; these are not")
    for axis in axes:
        axis.axis("off")
    for axis, k in zip(axes, wrong, strict=False):
        axis.imshow(images[k].reshape(8, 8), cmap="gray_r")
        axis.set_title(f"{digits[k]}, told {told[k]}", fontsize="small")
    plt.show()


def main() -> None:
    model = make_model()
    run = hogwild.train_module(model, "cross-entropy", make_train(), make_test(), optimizer="adam", epochs=20)
    for row in run:
        print(f"epoch {row['epoch']:2}  loss {row['objective']:.4f}  test accuracy {row['test_accuracy']:.4f}")
    run.model.into(model)  # the module itself is as it was until now
    print(f"{run.config.workers} workers, {run.history[-1]['samples_per_second']:,.0f} images a second")
    draw(model)


if __name__ == "__main__":
    main()
