"""Options of matrix completion."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from hogwild.config import COMPLETION, GOAL, LARGEST_FLOAT32, TrainConfig, documented, inherited, option
from hogwild.methods import EXCHANGES, ORDERS, PENALTIES, UNTIERED, parse_exchange

L2_PER_ROW = 2e-5  # counts once a row, not once a rating
RATING = {"l2": 0.05, "step": 0.05, "negatives": 1}  # what is usual for ratings, and for choices, by NDCG
RANKING = {"l2": 0.01, "step": 0.07, "negatives": 4}


@documented
@dataclass(frozen=True)
class CompletionConfig(TrainConfig):
    """Options of matrix completion, besides those of :class:`hogwild.TrainConfig`."""

    on_gpu: ClassVar[tuple[str, ...]] = ("atomic", "hogwild")
    distributed: ClassVar[bool] = True
    rotates: ClassVar[bool] = True

    loss: str = inherited(
        "loss",
        "squared-error",
        choices=("squared-error", "log", "bpr"),
        more="``squared-error`` is for ratings, ``log`` and ``bpr`` for implicit feedback, where every entry is "
        "a choice.",
    )
    l2: float = option(
        None,
        "L2 penalty.",
        GOAL,
        least=0,
        most=LARGEST_FLOAT32,
        usual=f"{RATING['l2']:g}, for losses log and bpr {RANKING['l2']:g}; {L2_PER_ROW:g} with penalty per-row",
    )
    step: float | None = inherited(
        "step", None, usual=f"{RATING['step']:g}, for losses log and bpr {RANKING['step']:g}"
    )
    discipline: str = inherited("discipline", "auto", choices=UNTIERED)
    order: str = inherited(
        "order",
        "shuffled",
        choices=ORDERS,
        more="``shuffled`` is anew each epoch, without replacement; in ``blocks`` no two workers ever share a user or "
        "an item.",
    )
    rank: int = option(32, "Numbers in a factor.", COMPLETION, least=1, most=1024)
    penalty: str = option(
        "per-rating",
        "L2 penalty",
        COMPLETION,
        choices=PENALTIES,
        more="``per-rating`` is l2/2 of the squares of both factors for every rating (weighted lambda); ``per-row`` is "
        "l2/2 of the squares of all factors (the paper's; each rating pays its share, by the degree).",
    )
    nonnegative: bool = option(False, "Factors at or above zero.", COMPLETION)
    biases: bool = option(
        True,
        "A bias for each user and item beside the factors.",
        COMPLETION,
        without="No number for each user and item beside the factors.",
    )
    negatives: int = option(
        None,
        "Items drawn for each rating under loss log or bpr.",
        COMPLETION,
        least=1,
        most=64,
        usual=str(RANKING["negatives"]),
        more="They are drawn among those that the user has not chosen.",
    )

    def __post_init__(self) -> None:
        usual = RANKING if self.loss in ("log", "bpr") else RATING
        for name, value in (usual | ({"l2": L2_PER_ROW} if self.penalty == "per-row" else {})).items():
            if getattr(self, name) is None or (name == "step" and self.step == "auto"):
                self._set(name, value)
        super().__post_init__()

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        name, numbers = parse_exchange(self.exchange)
        beyond = EXCHANGES[name].sums or numbers.get("outer", 1) > 1 or numbers.get("momentum", 0) > 0
        if self.nonnegative and beyond:
            yield f"exchange={self.exchange!r} may end below zero, where nonnegative allows nothing: choose averaging"
        if name == "rotation" and self.loss != "squared-error":
            yield (
                f"exchange={self.exchange!r}: loss {self.loss!r} draws items that other machines hold: choose averaging"
            )
