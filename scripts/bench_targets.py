"""The project's performance targets, beside what ``hogwild bench`` measured: ratios of medians within one run.

    hogwild bench --against --json ROWS && hogwild bench wide --json WIDE && python scripts/bench_defaults.py > DEFAULTS
    python scripts/bench_targets.py ROWS WIDE DEFAULTS
    scripts/bench-gpu --json ROWS && python scripts/bench_targets.py ROWS

A line is computed from rows alone; a missing measurement is shown as a dash. Because updates that overwrite one another
are fast, a rate counts only if the run has learned as well as its rival. On a GPU each row gives in ``worse`` the
fraction by which its loss exceeds the rival's after the same number of epochs, and a target sets a limit on it; for
sparse rows, which learn more slowly with more in flight, any rate counts, but so does the time to reach a loss.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hogwild.bench.rounds import ratio

SAME = 1.01  # objectives within 1 % count as equal
NONZEROS_PER_SECOND = 24e9  # of sparse logistic regression on a GPU
Row = dict[str, Any]
Measure = Callable[[list[Row]], float | None]


@dataclass(frozen=True)
class Target:
    """One line: the measured figure must be at least (or at most) ``asked``."""

    name: str
    asked: float
    measure: Measure
    most: bool = False  # whether ``asked`` is an upper limit
    form: str = "{:.2f}x"

    def line(self, rows: list[Row]) -> tuple[str, str, str, str]:
        """Return the target, what it asks, what was measured, and whether that is enough."""
        measured, asked = self.measure(rows), self.form.format(self.asked)
        if measured is None:
            return self.name, f"{self.sign} {asked}", "-", "-"
        met = measured <= self.asked if self.most else measured >= self.asked
        return self.name, f"{self.sign} {asked}", self.form.format(measured), "yes" if met else "no"

    @property
    def sign(self) -> str:
        """Return how the figure must relate to what is asked."""
        return "<=" if self.most else ">="


def matching(rows: Iterable[Row], **fields: Any) -> list[Row]:
    """Return the good rows with these fields; a tuple allows any of its values."""
    asked = {name: value if isinstance(value, tuple) else (value,) for name, value in fields.items()}
    return [
        row
        for row in rows
        if row.get("status", "ok") == "ok" and all(row.get(name) in values for name, values in asked.items())
    ]


def value(rows: Iterable[Row], name: str, **fields: Any) -> float | None:
    """Return a field of the first row that matches."""
    return next((row.get(name) for row in matching(rows, **fields)), None)


def times(slow: Row, fast: Row, field: str = "seconds", **common: Any) -> Measure:
    """Return a function for how many times faster one row is than another; ``common`` are fields of both."""
    return lambda rows: ratio(*(value(rows, field, **common, **fields) for fields in (slow, fast)))


def cell(name: str, workers: int) -> Measure:
    """Return a function for a figure of tiered workers, if their objective equals one worker's."""

    def measure(rows: list[Row]) -> float | None:
        found = matching(rows, section="scaling", family="rcv1", discipline="tiered", workers=workers)
        return next((row[name] for row in found if (row["objective_ratio"] or SAME + 1) <= SAME), None)

    return measure


def fit(data: str) -> Measure:
    """Return a function for how many times faster a whole fit is than SGDClassifier's, to a held-out loss as low."""

    def measure(rows: list[Row]) -> float | None:
        ours, theirs = (
            matching(rows, section="estimators", data=data, solver=solver)[:1]
            for solver in ("HogwildClassifier", "SGDClassifier")
        )
        if not ours or not theirs or ours[0]["held_out"] > theirs[0]["held_out"]:
            return None
        return ratio(theirs[0]["seconds"], ours[0]["seconds"])

    return measure


def best(name: str, worse: float | None = None, unit: float = 1.0, **fields: Any) -> Measure:
    """Return a function for the best figure of the rows that match and, if a limit is given, have learned as well."""

    def measure(rows: list[Row]) -> float | None:
        found = [row for row in matching(rows, **fields) if row.get(name) is not None]
        if worse is not None:
            found = [row for row in found if row.get("worse") is not None and row["worse"] <= worse]
        return max((row[name] / unit for row in found), default=None)

    return measure


KERNEL: Row = {"section": "kernel", "family": "rcv1"}
AGAINST: Row = {"section": "against", "what": "time to loss"}
DEFAULTS: Row = {"section": "against", "what": "default fit to loss"}
STREAMS: Row = {"section": "gpu", "part": "streams", "batch": 128, "kind": "replicas", "worse": 0.02}
TARGETS = (
    Target(
        "one worker against SGDClassifier, an epoch, both shuffling",
        5.0,
        times({"solver": "scikit-learn SGD"}, {"solver": "hogwild"}, section="against", what="epoch", order="shuffled"),
    ),
    *(
        Target(
            f"one worker against snapml, {name}: time to the same held-out loss",
            2.0,
            times({"solver": "snapml"}, {"solver": "hogwild"}, **AGAINST, loss=loss),
        )
        for loss, name in (("log", "logistic"), ("hinge", "SVM"))
    ),
    Target(
        "one worker, defaults, against SGDClassifier's: time to the same held-out loss, interpolated",
        2.5,
        times({"solver": "scikit-learn SGD"}, {"solver": "hogwild"}, **DEFAULTS, family="rcv1"),
    ),
    Target(
        "2^24 weights: defaults, search included, against a pass of Vowpal Wabbit: time to its held-out loss",
        5.0,
        times({"solver": "Vowpal Wabbit"}, {"solver": "hogwild"}, "seconds_with_search", **DEFAULTS, family="ctr"),
    ),
    Target(
        "2^24 weights, l2: one worker's epoch by popularity against the user's numbering",
        2.0,
        best("faster", section="wide", family="ctr", kind="l2", features=1 << 24, workers=1, numbering="by popularity"),
    ),
    Target(
        "one worker against the fast-math twin, file order",
        1.8,
        times({"loop": "naive fastmath twin"}, {"loop": "kernel"}, **KERNEL, order="file"),
    ),
    Target(
        "one worker, shuffled against file order",
        0.75,
        times({"order": "file"}, {"order": "shuffled"}, **KERNEL, loop="kernel"),
    ),
    Target(
        "2^24 weights: with weight prefetch against without, shuffled",
        1.5,
        times(
            {"loop": "kernel without prefetch"},
            {"loop": "kernel with prefetch"},
            section="kernel",
            family="ctr",
            order="shuffled",
        ),
    ),
    Target("two workers, tiered, against one, objective within 1 %", 1.7, cell("speedup", 2)),
    Target(
        "16 workers, tiered against hogwild",
        12.0,
        times({"discipline": "hogwild"}, {"discipline": "tiered"}, section="scaling", family="rcv1", workers=16),
    ),
    Target("16 workers, tiered, against one, objective within 1 %", 8.0, cell("speedup", 16)),
    Target("16 workers, tiered, share of the streaming rate", 0.45, cell("share_of_streaming", 16), form="{:.1%}"),
    *(
        Target(
            f"matrix completion, rank {rank}: one worker against cornac on one core",
            1.5,
            times({"kind": "cornac"}, {"kind": "serial"}, section="completion", rank=rank, workers=1),
        )
        for rank in (32, 64)
    ),
    *(
        Target(
            f"matrix completion, rank {rank}: two workers against one",
            1.8,
            best("speedup", section="completion", rank=rank, workers=2, kind=("hogwild", "blocks")),
        )
        for rank in (32, 64)
    ),
    Target("a fit of two classes beyond the cache against SGDClassifier, held-out loss as low", 5.0, fit("rcv1")),
    Target("a fit of twenty classes against SGDClassifier, held-out loss as low", 5.0, fit("20 classes")),
    *(
        Target(
            f"data ready to first update, {host}",
            most,
            lambda rows, host=host: value(rows, "seconds", section="startup", host=host, part="again"),  # type: ignore[misc]
            most=True,
            form="{:.3f} s",
        )
        for host, most in (("processes", 0.5), ("threads", 0.05))
    ),
    *(
        Target(
            f"GPU: completion {rank}, RMSE within 1 %, share of the device's copy bandwidth",
            0.9,
            best("ratio", worse=0.01, section="gpu", part="completion", what=f"{rank}: added"),
        )
        for rank in (64, 128)
    ),
    Target(
        f"GPU: logistic by default, any loss, against {NONZEROS_PER_SECOND / 1e9:g} G nonzeros/s",
        1.0,
        best("nonzeros_per_second", unit=NONZEROS_PER_SECOND, section="gpu", part="linear", what="default"),
    ),
    Target(
        "GPU: logistic by default to the CPU's loss, against all CPU cores",
        8.0,
        best("ratio", section="gpu", part="to loss", what="default"),
    ),
    Target("GPU: replicas of a network, batch 128, loss within 2 %, against one graph", 2.5, best("ratio", **STREAMS)),
)


def main(paths: list[str]) -> None:
    """Print the table for these files of rows."""
    if not paths:
        raise SystemExit("expected files that `hogwild bench --json FILE` wrote")
    rows = [json.loads(line) for path in paths for line in Path(path).read_text().splitlines()]
    lines = [("target", "asked", "measured", "met"), *(target.line(rows) for target in TARGETS)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    for first, *others in lines:
        print(first.ljust(widths[0]), *(text.rjust(width) for text, width in zip(others, widths[1:])), sep="  ")


if __name__ == "__main__":
    main(sys.argv[1:])
