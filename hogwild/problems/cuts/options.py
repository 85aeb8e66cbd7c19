"""Options of graph cuts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hogwild.config import TrainConfig, documented, inherited
from hogwild.methods import UNTIERED


@documented
@dataclass(frozen=True)
class CutsConfig(TrainConfig):
    """Options of graph cuts, where they differ from those of :class:`hogwild.TrainConfig`."""

    sums: ClassVar[bool] = False  # labels of a vertex stay in a simplex
    # Step, decay and epochs: on grids with little and much noise and on a stereo problem, all end within 0.3 % of the
    # minimum cut.
    usual_decay: ClassVar[float | None] = 0.95

    loss: str = inherited("loss", "cut", choices=("cut",), usual="")
    step: float | None = inherited("step", 1.0, usual="")
    discipline: str = inherited("discipline", "auto", choices=UNTIERED)
    epochs: int = inherited("epochs", 100)
