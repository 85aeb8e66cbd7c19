"""Options of matrix completion."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from hogwild.config import COMPLETION, GOAL, LARGEST_FLOAT32, TrainConfig, inherited, option
from hogwild.methods import ORDERS, PENALTIES, UNTIERED
from hogwild.problems.linear.options import LinearConfig, path_of

RATING = {"step": 0.05, "negatives": 1}  # what is usual for ratings, and for choices, by NDCG
RANKING = {"step": 0.07, "negatives": 4}
SMOOTHING = 100  # ratings of a user or item that penalty "smoothed" adds to those there are
USUAL_L2 = {"smoothed": 0.03, "per-rating": 0.05, "ranking": 0.01}
# Multiples of the usual l2 and step that "auto" tries for ratings, and for choices: where users or items have few, rows
# must move farther in an epoch, and are held by a stronger penalty.
TRIED = {False: ((0.5, 1), (1, 1), (2, 1), (4, 1)), True: ((1, 1), (2, 1), (2, 3), (4, 5))}


@dataclass(frozen=True)
class CompletionConfig(TrainConfig):
    """Options of matrix completion, besides those of :class:`hogwild.TrainConfig`.

    Attributes
    ----------
    loss : str, default squared-error
        Loss of an example: squared-error, log, bpr. ``squared-error`` is for ratings, ``log`` and ``bpr`` for
        implicit feedback, where every entry is a choice.
    step : float or None, default 0.05, for losses log and bpr 0.07
        First step size; 'auto' probes for one. It is for the gradient of one example, or a minibatch's mean gradient.
    order : str, default shuffled
        Order of the examples: shuffled, file, blocks. ``shuffled`` is anew each epoch, without replacement; in
        ``blocks`` no two workers ever share a user or an item.
    discipline : str, default serial for one worker, else by the data
        How an update reaches a shared weight: serial, hogwild, atomic, aig, locked, round-robin. ``auto`` is
        ``serial`` for one worker; for more, ``tiered`` if the data make workers contend for cache lines, else
        ``hogwild``.
    l2 : float, default 0.03 smoothed, 0.05 per-rating, 0.01 ranking
        L2 penalty; 'auto' chooses it, and the epochs, by ratings held out, and .01,.02 among these. ``auto`` tries
        four values (for choices with larger steps too, for ratings beside biases alone) on nine tenths of the
        ratings, each up to the epoch with the best NDCG at 10 (or RMSE) on the rest; of those for choices the better
        half goes on after five epochs, and after ten. The best one then trains on all.
    l2_path : tuple[float, ...] or None, default None
        Values among which l2 is chosen. ``l2`` may be given as 'auto' or such values instead.
    rank : int, default 32
        Numbers in a factor; 0: biases alone.
    penalty : str, default smoothed, for losses log and bpr per-rating
        L2 penalty: per-rating, smoothed. ``per-rating`` is l2/2 of the squares of both factors for every rating
        (weighted lambda); ``smoothed`` is as if every user and item had 100 ratings more.
    biases : bool, default True
        A bias for each user and item beside the factors.
    negatives : int, default 4
        Items drawn for each rating under loss log or bpr. They are drawn among those that the user has not chosen.
    """

    on_gpu: ClassVar[tuple[str, ...]] = ("atomic", "hogwild")
    distributed: ClassVar[bool] = True
    rotates: ClassVar[bool] = True

    loss: str = inherited(
        "loss",
        "squared-error",
        choices=("squared-error", "log", "bpr"),
    )
    l2: float = option(
        None,
        "L2 penalty; 'auto' chooses it, and the epochs, by ratings held out, and .01,.02 among these.",
        GOAL,
        least=0,
        most=LARGEST_FLOAT32,
        metavar="NUMBER",
        usual=", ".join(f"{value:g} {name}" for name, value in USUAL_L2.items()),
    )
    l2_path: tuple[float, ...] | None = inherited("l2_path", None, LinearConfig)
    step: float | None = inherited(
        "step", None, usual=f"{RATING['step']:g}, for losses log and bpr {RANKING['step']:g}"
    )
    discipline: str = inherited("discipline", "auto", choices=UNTIERED)
    order: str = inherited(
        "order",
        "shuffled",
        choices=ORDERS,
    )
    rank: int = option(32, "Numbers in a factor; 0: biases alone.", COMPLETION, least=0, most=1024)
    penalty: str = option(
        None,
        "L2 penalty",
        COMPLETION,
        choices=PENALTIES,
        usual="smoothed, for losses log and bpr per-rating",
    )
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
    )

    def __post_init__(self) -> None:
        if self.penalty is None:
            self._set("penalty", "per-rating" if self.ranks else "smoothed")
        if isinstance(self.l2, str | tuple | list):
            self._set("l2_path", self.usual_path if self.l2 == "auto" else path_of(self.l2))
            self._set("l2", None)
        elif self.l2_path is not None:
            self._set("l2_path", path_of(self.l2_path))
        for name, value in ((RANKING if self.ranks else RATING) | {"l2": self.usual_l2}).items():
            if getattr(self, name) is None or (name == "step" and self.step == "auto"):
                self._set(name, value)
        super().__post_init__()

    @property
    def ranks(self) -> bool:
        """Whether entries are choices, and items are ranked by them."""
        return self.loss in ("log", "bpr")

    @property
    def candidates(self) -> list[tuple[float, float, int]]:
        """Penalties, steps and ranks that are to be tried; all steps are the one of the config if that is not usual.

        Biases alone, which a GPU does not train, are among them for ratings, if nobody said which penalties.
        """
        step = self.step or 0.0
        if self.l2_path != self.usual_path:
            return [(l2, step, self.rank) for l2 in self.l2_path or ()]
        tried = [
            (l2 * self.usual_l2, step * (times if step == RANKING["step"] else 1), self.rank)
            for l2, times in TRIED[self.ranks]
        ]
        alone = self.biases and not self.ranks and self.device == "cpu"
        return list(dict.fromkeys([*tried, (self.usual_l2, step, 0)] if alone else tried))

    @property
    def usual_l2(self) -> float:
        """The penalty where none is given."""
        return USUAL_L2.get("ranking" if self.ranks else str(self.penalty), 0.05)

    @property
    def usual_path(self) -> tuple[float, ...]:
        """The penalties that "auto" tries."""
        return path_of([l2 * self.usual_l2 for l2, _ in TRIED[self.ranks]])

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        if self.l2_path and self.machines > 1:
            yield "l2='auto' is chosen on one machine: give l2 as a number to several"
        if self.penalty == "smoothed" and self.loss != "squared-error":
            yield f"penalty='smoothed' is for loss squared-error, not for {self.loss!r}: choose per-rating"
        if self.rank == 0 and (self.device == "cuda" or not self.biases):
            yield "rank=0 leaves biases alone, on the CPU: give a rank"
        if self.exchange == "rotation" and self.loss != "squared-error":
            yield (
                f"exchange={self.exchange!r}: loss {self.loss!r} draws items that other machines hold: choose averaging"
            )
