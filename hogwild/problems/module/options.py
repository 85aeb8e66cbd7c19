"""Options of torch modules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from hogwild.config import MODULE, TrainConfig, inherited, option
from hogwild.methods import OPTIMIZERS

LOSSES = ("custom", "cross-entropy", "mse", "bce")


@dataclass(frozen=True)
class ModuleConfig(TrainConfig):
    """Options of torch modules, besides those of :class:`hogwild.TrainConfig`.

    Attributes
    ----------
    loss : str, default custom
        Loss of an example: custom, cross-entropy, mse, bce.
    step : float or None, default auto: 0.1 for sgd, 0.01 for momentum and adagrad, 0.001 for adam
        First step size; 'auto' probes for one. It is for the gradient of one example, or a minibatch's mean gradient.
    schedule : str, default constant
        How the step falls: constant, epoch, round, inverse, adaptive.
    discipline : str, default serial for one worker, else by the data
        How an update reaches a shared weight: serial, hogwild, atomic, locked. ``auto`` is ``serial`` for one worker;
        for more, ``tiered`` if the data make workers contend for cache lines, else ``hogwild``.
    epochs : int, default 10
        Passes over the data in all. Those before a resume count.
    optimizer : str, default sgd
        Rule of the updates: sgd, momentum, adagrad, adam. As in ``torch.optim``. For a sparse gradient
        (``nn.EmbeddingBag(sparse=True)``) only the rows that a minibatch names are read and written; momentum then
        decays only with them, as in ``SparseAdam``.
    batch : int, default 64
        Examples in a minibatch.
    momentum : float, default 0.9
        Momentum of optimizer momentum.
    """

    on_gpu: ClassVar[tuple[str, ...]] = ("hogwild", "locked", "serial")
    distributed: ClassVar[bool] = True
    compiled: ClassVar[bool] = False

    loss: str = inherited("loss", "custom", choices=LOSSES)
    step: float | None = inherited(
        "step", None, usual="auto: 0.1 for sgd, 0.01 for momentum and adagrad, 0.001 for adam"
    )
    schedule: str = inherited("schedule", "constant")
    discipline: str = inherited("discipline", "auto", choices=("serial", "hogwild", "atomic", "locked"))
    epochs: int = inherited("epochs", 10)
    optimizer: str = option(
        "sgd",
        "Rule of the updates",
        MODULE,
        choices=OPTIMIZERS,
    )
    batch: int = option(64, "Examples in a minibatch.", MODULE, least=1, most=2**31 - 1)
    momentum: float = option(0.9, "Momentum of optimizer momentum.", MODULE, least=0, most=1)

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        if self.device == "cuda" and self.in_flight is not None:
            yield "device='cuda' takes in_flight for other problems: a module has a minibatch in hand a worker"
