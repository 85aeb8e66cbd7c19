"""The experiments of the Hogwild paper's table 2: its measurements, and synthetic stand-ins for its data at any scale.

Figures are those of Recht, Re, Wright, Niu, "Hogwild!: A Lock-Free Approach to Parallelizing Stochastic Gradient
Descent", NIPS 2011 (arXiv:1106.5730v2), tables 1 and 2 and section 5: two X5650 processors of six cores each, ten
threads, 20 epochs, a step multiplied by 0.9 after each. Two slips of the paper are corrected here, as the notes say:
rho and Delta of RCV1 are swapped, since rho >= Delta by their definitions; and so are RCV1's numbers of training and
test examples.

Stand-ins keep what determines how workers collide: Omega and, as far as possible at their size, Delta and rho. Scaled
to a share s, a set has s times the examples; both sides of a matrix shrink by the root of s, so that its density is
unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

SOURCE = "Recht, Re, Wright, Niu (2011), tables 1 and 2"
THREADS, EPOCHS, DECAY = 10, 20, 0.9
HELD_OUT = 0.1  # share of ratings
ERRATA = (
    "The paper prints rho = 0.44 and Delta = 1.0 for RCV1, which its own definitions exclude (rho is never below "
    "Delta): they are swapped here. It also has RCV1's training and test sets swapped: 781,265 train, 23,149 test.",
)


@dataclass(frozen=True)
class PaperResult:
    """Results of one method: seconds of 20 epochs, and errors at the end; None if the paper has no figure."""

    seconds: float
    train: float
    test: float | None = None


@dataclass(frozen=True)
class PaperSet:
    """One line of the table.

    Attributes
    ----------
    rho, delta : float
    size : str
        Size, in words.
    hogwild, round_robin : PaperResult or None
    name_at : function of a float
        Returns the stand-in at a scale, as a ``synthetic:`` name.
    options : dict
        Training options, in addition to those common to all sets.
    held_out : function of a float, or float
        The share to test on, or the name of the test set at a scale; None: there is no test set.
    error : str
        Content of the columns train and test, computed from our rows.
    """

    name: str
    problem: str
    rho: float
    delta: float
    size: str
    hogwild: PaperResult
    round_robin: PaperResult | None
    name_at: Callable[[float], str]
    options: dict[str, Any] = field(default_factory=dict)
    held_out: Callable[[float], str] | float | None = None
    error: str = "RMSE"

    @property
    def ratio(self) -> float:
        """Ratio of round-robin's seconds to Hogwild's; NaN if either is unknown."""
        return self.round_robin.seconds / self.hogwild.seconds if self.round_robin else math.nan

    @property
    def key(self) -> str:
        return self.name.lower().replace(" ", "-")


def shift_for(share: float, size: int, zipf: float) -> float:
    """Find the shift that gives the most popular of ``size`` that share of ``1 / (rank + shift)^zipf``, at most 1e9.

    As the shift grows, all shares approach ``1 / size``, which is the lower limit.
    """
    ranks = np.arange(1, size + 1, dtype=np.float64)

    def top(shift: float) -> float:
        popularity = (ranks + shift) ** -zipf
        return float(popularity[0] / popularity.sum())

    low, high = -3.0, 9.0  # powers of ten
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if top(10**middle) > share else (low, middle)
    return float(f"{10**high:.4g}")


def _rcv1(rows: int, skip: int = 0) -> Callable[[float], str]:
    def name(scale: float) -> str:
        less = f"&skip={max(round(scale * skip), 1)}" if skip else ""
        return f"synthetic:rcv1?rows={max(round(scale * rows), 50)}{less}"

    return name


def _ratings(
    family: str, users: int, items: int, ratings: int, delta: float, rho: float, zipf: float = 1.0, share: float = 1.0
) -> Callable[[float], str]:
    """``share`` multiplies the scale, for a set that is out of proportion."""

    def name(scale: float) -> str:
        scale = scale * share
        side = math.sqrt(scale)
        m, n, count = max(round(users * side), 40), max(round(items * side), 40), max(round(ratings * scale), 400)
        dials = f"users={m}&items={n}&ratings={min(count, m * n // 2)}"
        if zipf:
            shifts = shift_for(delta, n, zipf), shift_for(rho - delta, m, 0.8)
            dials += f"&zipf={zipf:g}&shift={shifts[0]:g}&user_zipf=0.8&user_shift={shifts[1]:g}"
        return f"synthetic:{family}?{dials}"

    return name


def _clusters(scale: float) -> str:
    return f"synthetic:clusters?entities={max(round(18_167 * scale), 4)}&mentions={max(round(180_110 * scale), 40)}"


def _volume(scale: float) -> str:
    return f"synthetic:volume?side={max(round((512 * 512 * 551 * scale) ** (1 / 3)), 8)}"


PAPER: tuple[PaperSet, ...] = (
    PaperSet(
        "RCV1",
        "linear",
        rho=1.0,
        delta=0.44,
        size="781,265 rows x 47,236 features",
        hogwild=PaperResult(9.5, 0.297, 0.339),
        round_robin=PaperResult(61.8, 0.297, 0.339),
        name_at=_rcv1(781_265),
        options={"loss": "hinge", "l2": 1e-5},
        held_out=_rcv1(23_149, skip=781_265),
        error="root of the mean hinge loss",
    ),
    PaperSet(
        "Netflix",
        "completion",
        rho=2.5e-3,
        delta=2.3e-3,
        size="100,198,805 ratings, 480,189 x 17,770",
        hogwild=PaperResult(301.0, 0.754, 0.928),
        round_robin=PaperResult(2569.1, 0.754, 0.927),
        name_at=_ratings("netflix", 480_189, 17_770, 100_198_805, 2.3e-3, 2.5e-3, zipf=1.5),
        options={"rank": 30, "l2": 0.1},
        held_out=HELD_OUT,
    ),
    PaperSet(
        "KDD",
        "completion",
        rho=3.0e-3,
        delta=1.8e-3,
        size="252,800,275 ratings, 1,000,990 x 624,961",
        hogwild=PaperResult(877.5, 19.5, 22.6),
        round_robin=PaperResult(7139.0, 19.5, 22.6),
        name_at=_ratings("kdd", 1_000_990, 624_961, 252_800_275, 1.8e-3, 3.0e-3),
        options={"rank": 30, "l2": 0.1},
        held_out=HELD_OUT,
    ),
    PaperSet(
        "Jumbo",
        "completion",
        rho=2.6e-7,
        delta=1.4e-7,
        size="2,000,000,000 ratings, 1e7 x 1e7",
        hogwild=PaperResult(9453.5, 0.031, 0.013),
        round_robin=None,
        name_at=_ratings("jumbo", 10_000_000, 10_000_000, 2_000_000_000, 1.4e-7, 2.6e-7, zipf=0.0, share=0.1),
        options={"rank": 10},
        held_out=HELD_OUT,
    ),
    PaperSet(
        "DBLife",
        "cuts",
        rho=8.6e-3,
        delta=4.3e-3,
        size="18,167 entities, 180,110 mentions",
        hogwild=PaperResult(230.0, 10.6),
        round_robin=PaperResult(413.5, 10.5),
        name_at=_clusters,
        error="value of the rounded cut, an edge",
    ),
    PaperSet(
        "Abdomen",
        "cuts",
        rho=9.2e-4,
        delta=9.2e-4,
        size="512 x 512 x 551 voxels",
        hogwild=PaperResult(1181.4, 3.99),
        round_robin=PaperResult(7467.25, 3.99),
        name_at=_volume,
        error="value of the rounded cut, an edge",
    ),
)
