"""Options of graph cuts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hogwild.config import TrainConfig, inherited
from hogwild.methods import UNTIERED


@dataclass(frozen=True)
class CutsConfig(TrainConfig):
    """Options of graph cuts, where they differ from those of :class:`hogwild.TrainConfig`.

    Attributes
    ----------
    loss : str, default cut
        Loss of an example: cut.
    step : float or None, default 1.0
        First step size; 'auto' probes for one. It is for the gradient of one example, or a minibatch's mean gradient.
    discipline : str, default serial for one worker, else by the data
        How an update reaches a shared weight: serial, hogwild, atomic, aig, locked, round-robin. ``auto`` is
        ``serial`` for one worker; for more, ``tiered`` if the data make workers contend for cache lines, else
        ``hogwild``.
    epochs : int, default 100
        Passes over the data in all. Those before a resume count.
    """

    sums: ClassVar[bool] = False  # labels of a vertex stay in a simplex
    # Step, decay and epochs: on grids with little and much noise and on a stereo problem, all end within 0.3 % of the
    # minimum cut.
    usual_decay: ClassVar[float | None] = 0.95

    loss: str = inherited("loss", "cut", choices=("cut",), usual="")
    step: float | None = inherited("step", 1.0, usual="")
    discipline: str = inherited("discipline", "auto", choices=UNTIERED)
    epochs: int = inherited("epochs", 100)
