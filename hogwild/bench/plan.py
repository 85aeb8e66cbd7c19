"""Options of a benchmark: workers, repeats, and the data sets that all sections share.

A data set must exceed the cores' own caches, because data that fit in them answer another question; ``quick`` gives
that up where it must, to end within two minutes on two cores.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hogwild import machine

if TYPE_CHECKING:
    from hogwild.data.cache import Cache
    from hogwild.data.rows.container import Rows

L2 = 1e-5
ROWS = {"rcv1": 200_000, "uniform": 400_000, "ctr": 200_000}
QUICK_ROWS = {"rcv1": 60_000, "uniform": 100_000, "ctr": 50_000}
FEATURES = {"ctr": 1 << 24}
STEPS = {"rcv1": 0.5, "uniform": 0.05, "ctr": 0.05}  # rows of norm 1; rows of 32 and of 39 ones
REPEATS, QUICK_REPEATS = 9, 3


def data_names(quick: bool = False, rows: int | None = None) -> dict[str, str]:
    """Return the name of each generated set, as ``hogwild.open_data`` reads it."""
    names = {}
    for family, usual in (QUICK_ROWS if quick else ROWS).items():
        names[family] = f"synthetic:{family}?rows={rows or usual}"
        if family in FEATURES:
            names[family] += f"&features={FEATURES[family]}"
    return names


def doubling(cores: int) -> tuple[int, ...]:
    """Return 1, 2, 4 ... and, last, all cores."""
    powers = [1]
    while 2 * powers[-1] <= cores:
        powers.append(2 * powers[-1])
    return tuple(sorted({*powers, cores}))


@dataclass(frozen=True)
class BenchPlan:
    """Options of one benchmark.

    Attributes
    ----------
    workers : tuple of int
        Numbers of workers to measure, ascending.
    repeats : int
        Rounds that count; one more precedes them.
    quick : bool
        Make everything smaller.
    against : bool
        Measure other programs too, where they are installed.
    host : str
        Host of the training runs: ``threads`` or ``processes``.
    names : dict
        Data name of each family.
    cache : Cache or None
        Cache for generated data.
    ratings : str or None
        Ratings, as ``hogwild.open_ratings`` reads them, on which completion is also measured.
    rows : str or None
        Rows, as ``hogwild.open_data`` reads them, on which estimators are also measured.
    note : callable
        Called often with a few words about the current work.
    """

    workers: tuple[int, ...] = field(default_factory=lambda: doubling(machine.physical_cores()))
    repeats: int = REPEATS
    quick: bool = False
    against: bool = False
    host: str = "threads"
    names: dict[str, str] = field(default_factory=data_names)
    cache: Cache | None = None
    ratings: str | None = None
    rows: str | None = None
    note: Callable[[str], None] = lambda text: None

    def open(self, family: str, **dials: Any) -> Rows:
        """Return the rows of a family, with other ``dials`` (see ``hogwild.data.rows.synthetic``) if given."""
        from hogwild.data.rows.source import open_data
        from hogwild.data.rows.synthetic import SyntheticSpec

        name = self.names[family]
        if dials:
            name = str(dataclasses.replace(SyntheticSpec.parse(name), **dials))
        self.note(f"opening {name}")
        return open_data(name, cache=self.cache)


def about(name: str, rows: Rows) -> dict[str, Any]:
    """Return the fields about a row's data; ``beyond_cache``: whether the entries exceed the last-level cache."""
    return {
        "data": name,
        "rows": len(rows),
        "features": rows.width,
        "nonzeros": rows.nnz,
        "megabytes": 8 * rows.nnz / 1e6,
        "beyond_cache": 8 * rows.nnz > (machine.cache_bytes() or 0),
    }
