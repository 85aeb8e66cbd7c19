"""An embedding of sparse rows
===========================

Each row has 76 of 47,236 features, and only their embeddings are read and written::

    python scripts/examples/sparse_embedding.py

The picture shows how far from its start each embedding came: features of many rows moved most.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

import hogwild

ROWS = 20_000


class Embedded(nn.Module):
    """The weighted sum of a row's embeddings, and a linear layer on top."""

    def __init__(self, features: int, dim: int = 32) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(features, dim, mode="sum", sparse=True)
        self.out = nn.Linear(dim, 1)
        nn.init.normal_(self.bag.weight, std=0.05)

    def forward(self, indices: torch.Tensor, offsets: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return self.out(torch.relu(self.bag(indices, offsets, weights)))


def main() -> None:
    rows = hogwild.open_data(f"synthetic:rcv1?rows={ROWS}", cache=None)
    train, test = rows.block(0, ROWS * 4 // 5), rows.block(ROWS * 4 // 5, ROWS)
    model = Embedded(rows.width)
    start = model.bag.weight.detach().clone()
    run = hogwild.train_module(model, "bce", train, test, optimizer="adagrad", step=0.05, epochs=4)
    for row in run:
        print(f"epoch {row['epoch']}  loss {row['objective']:.4f}  test accuracy {row['test_accuracy']:.4f}")
    print(f"{run.config.workers} workers, {run.history[-1]['samples_per_second']:,.0f} rows a second")
    run.model.into(model)
    moved = (model.bag.weight.detach() - start).norm(dim=1).numpy()
    count = np.bincount(train.indices, minlength=rows.width)
    _, axis = plt.subplots(figsize=(6, 3.5), layout="constrained")
    axis.scatter(count[count > 0], moved[count > 0], s=2, alpha=0.3)
    axis.set(
        xscale="log",
        xlabel="rows that have the feature",
        ylabel="distance from the start",
        title="Each dot an embedding",
    )
    plt.show()


if __name__ == "__main__":
    main()
