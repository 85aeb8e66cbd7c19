"""What this project asks of itself, beside what was measured: ratios of interleaved medians within one run.

A line is computed from rows alone, so it can be had from a file of them; what was not measured stays, with a dash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from hogwild.bench.rounds import ratio

SAME = 1.01  # objectives within 1 % are the same
Row = dict[str, Any]


@dataclass(frozen=True)
class Target:
    """One line: the measured figure must be at least (or at most) what is asked."""

    name: str
    asked: float
    measure: Callable[[list[Row]], float | None]
    most: bool = False  # asked is a ceiling
    unit: str = "x"

    def row(self, rows: list[Row]) -> Row:
        """The line as a row; ``met`` is None where nothing was measured."""
        measured = self.measure(rows)
        met = None if measured is None else bool(measured <= self.asked if self.most else measured >= self.asked)
        return {
            "section": "targets", "target": self.name, "asked": self.asked, "most": self.most, "unit": self.unit,
            "measured": measured, "met": met,
        }  # fmt: skip


def find(rows: Iterable[Row], **fields: Any) -> Row | None:
    """The first good row with these fields."""
    for row in rows:
        if row.get("status", "ok") == "ok" and all(row.get(name) == value for name, value in fields.items()):
            return row
    return None


def value(rows: Iterable[Row], name: str, **fields: Any) -> float | None:
    """A field of that row."""
    row = find(rows, **fields)
    return None if row is None else row.get(name)


def _kernel(family: str, slow: tuple[str, str], fast: tuple[str, str]) -> Callable[[list[Row]], float | None]:
    """How many times faster one loop is than another; each is (loop, order)."""

    def measure(rows: list[Row]) -> float | None:
        return ratio(*(value(rows, "seconds", section="kernel", family=family, loop=loop, order=order)
                       for loop, order in (slow, fast)))  # fmt: skip

    return measure


def _cell(rows: list[Row], name: str, discipline: str, workers: int) -> float | None:
    """A figure of a cell of the scaling section whose objective is serial's."""
    row = find(rows, section="scaling", family="rcv1", discipline=discipline, workers=workers)
    if row is None or (row["objective_ratio"] or SAME + 1) > SAME:
        return None
    return row[name]


def _tiered_over_hogwild(rows: list[Row]) -> float | None:
    cells = [
        find(rows, section="scaling", family="rcv1", discipline=name, workers=16) for name in ("hogwild", "tiered")
    ]
    return None if None in cells else ratio(*(cell["seconds"] for cell in cells if cell))


def _epoch_against_sklearn(rows: list[Row]) -> float | None:
    return ratio(*(value(rows, "seconds", section="against", what="epoch", order="shuffled", solver=solver)
                   for solver in ("scikit-learn SGD", "hogwild")))  # fmt: skip


def _loss_against_snapml(loss: str) -> Callable[[list[Row]], float | None]:
    def measure(rows: list[Row]) -> float | None:
        return ratio(*(value(rows, "seconds", section="against", what="time to loss", loss=loss, solver=solver)
                       for solver in ("snapml", "hogwild")))  # fmt: skip

    return measure


def _against_cornac(rank: int) -> Callable[[list[Row]], float | None]:
    return lambda rows: ratio(*(value(rows, "seconds", section="completion", rank=rank, kind=kind, workers=1)
                                for kind in ("cornac", "serial")))  # fmt: skip


def _completion_scaling(rank: int) -> Callable[[list[Row]], float | None]:
    """The better of plain lock-free workers and of workers that share neither users nor items."""

    def measure(rows: list[Row]) -> float | None:
        kinds = (value(rows, "speedup", section="completion", rank=rank, kind=kind, workers=2)
                 for kind in ("hogwild", "blocks"))  # fmt: skip
        return max((speedup for speedup in kinds if speedup is not None), default=None)

    return measure


def _startup(host: str) -> Callable[[list[Row]], float | None]:
    return lambda rows: value(rows, "seconds", section="startup", host=host, part="again")


def _fit(data: str) -> Callable[[list[Row]], float | None]:
    """How many times faster a whole fit is than SGDClassifier's, to a held-out loss as low."""

    def measure(rows: list[Row]) -> float | None:
        ours, theirs = (find(rows, section="estimators", data=data, solver=solver)
                        for solver in ("HogwildClassifier", "SGDClassifier"))  # fmt: skip
        if ours is None or theirs is None or ours["held_out"] > theirs["held_out"]:
            return None
        return ratio(theirs["seconds"], ours["seconds"])

    return measure


TARGETS = (
    Target("one worker against SGDClassifier, an epoch, both shuffling", 5.0, _epoch_against_sklearn),
    Target("one worker against snapml, logistic: time to the same held-out loss", 2.0, _loss_against_snapml("log")),
    Target("one worker against snapml, SVM: time to the same held-out loss", 2.0, _loss_against_snapml("hinge")),
    Target("one worker against the fast-math twin, file order", 1.8,
           _kernel("rcv1", ("naive fastmath twin", "file"), ("kernel", "file"))),
    Target("one worker, shuffled against file order", 0.75,
           _kernel("rcv1", ("kernel", "file"), ("kernel", "shuffled"))),
    Target("2^24 weights: with weight prefetch against without, shuffled", 1.5,
           _kernel("ctr", ("kernel without prefetch", "shuffled"), ("kernel with prefetch", "shuffled"))),
    Target("two workers, tiered, against one, objective within 1 %", 1.7,
           lambda rows: _cell(rows, "speedup", "tiered", 2)),
    Target("16 workers, tiered against hogwild", 12.0, _tiered_over_hogwild),
    Target("16 workers, tiered, against one, objective within 1 %", 8.0,
           lambda rows: _cell(rows, "speedup", "tiered", 16)),
    Target("16 workers, tiered, share of the streaming rate", 0.45,
           lambda rows: _cell(rows, "share_of_streaming", "tiered", 16), unit="share"),
    *(Target(f"matrix completion, rank {rank}: one worker against cornac on one core", 1.5, _against_cornac(rank))
      for rank in (32, 64)),
    *(Target(f"matrix completion, rank {rank}: two workers against one", 1.8, _completion_scaling(rank))
      for rank in (32, 64)),
    Target("a fit of two classes beyond the cache against SGDClassifier, held-out loss as low", 5.0, _fit("rcv1")),
    Target("a fit of twenty classes against SGDClassifier, held-out loss as low", 5.0, _fit("20 classes")),
    Target("data ready to first update, processes", 0.5, _startup("processes"), most=True, unit="s"),
    Target("data ready to first update, threads", 0.05, _startup("threads"), most=True, unit="s"),
)  # fmt: skip


def targets(rows: list[Row]) -> list[Row]:
    """All lines for these rows."""
    return [target.row(rows) for target in TARGETS]
