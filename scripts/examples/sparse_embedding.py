"""An embedding of sparse rows
===========================

Each row has 76 of 47,236 features, and only their embeddings are read and written::

    python scripts/examples/sparse_embedding.py
"""

from __future__ import annotations

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
    run = hogwild.train_module(Embedded(rows.width), "bce", train, test, optimizer="adagrad", step=0.05, epochs=4)
    for row in run:
        print(f"epoch {row['epoch']}  loss {row['objective']:.4f}  test accuracy {row['test_accuracy']:.4f}")
    print(f"{run.config.workers} workers, {run.history[-1]['samples_per_second']:,.0f} rows a second")


if __name__ == "__main__":
    main()
