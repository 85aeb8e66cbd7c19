"""Reads rows of a comparison back, and makes one frame of them: a row for each run, with what tables and verdict show.

The rows file is the only input, so a report can be made anywhere and repeated, without the programs that trained. Rows
that are missing cannot be computed again, so a line that is not a row is an error that names it; only an incomplete
last line, which a killed run leaves, is skipped.

Seconds and epochs to a target are medians over the runs that reached it, always shown with the share that did: a median
over all runs would not exist if half of them fail, and one without the share would flatter. The verdict needs nothing
but NumPy; :func:`frame` gives the evaluations to pandas.
"""

from __future__ import annotations

import itertools
import json
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hogwild.errors import HogwildWarning, InputError

if TYPE_CHECKING:
    import pandas

ROWS = "rows.jsonl"
Row = dict[str, Any]
RUN_FIELDS = ("cell", "method", "kind", "workers", "seed", "epoch", "status")
#: Required fields of a row, by its phase.
FIELDS = {"optimum": ("start_objective", "eps"), "tuning": RUN_FIELDS, "reported": RUN_FIELDS}
#: Options that say what is minimised, as fields of the first row.
OBJECTIVE = ("loss l1 l2 l2_factors loss_param normalize class_weight intercept rank penalty biases negatives").split()
#: Fields that two comparisons must have in common to have the same optimum.
PROBLEM = (*OBJECTIVE, *"data fingerprint rows width nnz examples parameters".split())
#: The order in which methods are listed; "in step": on a GPU, with one replica or several that do not race.
KINDS = ("serial", "lock-free", "locks", "blocks", "exchange", "in step", "outside")
REFERENCES = ("serial", "outside")
#: Fields in which the way to a target is measured.
CLOCKS = ("train_seconds", "call_seconds", "virtual_seconds", "epoch", "bytes_sent")
#: Fields of which a run has the mean of its epochs, as "mean staleness_max".
MEANS = "staleness_mean staleness_max lost nonzeros_per_second updates_per_second samples_per_second".split()
#: Fields that mean nothing, by the clock that methods are compared by: they are taken for missing.
REAL, VIRTUAL = ("train_seconds", "setup_seconds", "once_seconds"), ("virtual_seconds", "bytes_sent")
MEANINGLESS = {"train_seconds": VIRTUAL, "virtual_seconds": REAL, "epoch": (*REAL, *VIRTUAL)}
FEWEST_PAIRS = 3
CONFIDENCE = 0.95
METRICS = (  # (field, name, whether it is a share); the first one measured is shown
    ("test_accuracy", "test accuracy", True),
    ("test_rmse", "test RMSE", False),
    ("test_ndcg_at_10", "test NDCG at 10", False),
    ("cut_value", "cut value", False),
    ("test_loss", "test loss", False),
)


# ---- rows


def read_rows(path: str | Path) -> list[Row]:
    """Return all rows of a comparison, the one of phase "optimum" first.

    Raises
    ------
    InputError
        If the file cannot be read, or a line is not the JSON of a row; the message names the line.
    """
    try:
        lines = Path(path).read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(f"{path}: no comparison to read: {error.strerror or error}") from None
    rows: list[Row] = []
    for place, line in enumerate(lines, 1):
        try:
            row = json.loads(line or "{}")
            reason = line and _fault(row, first=place == 1)
        except ValueError:  # this includes a wrong encoding
            reason = "is no JSON"
            if place == len(lines):
                text = f"{path}, line {place}: the last line is torn (a run was killed there?) and is passed over"
                warnings.warn(text, HogwildWarning, stacklevel=2)
                break
        if reason:
            raise InputError(f"{path}, line {place}: {reason}: expected a row as hogwild compare writes them")
        if line:
            rows.append(row)
    if not rows:
        raise InputError(f"{path}: is empty: expected rows as hogwild compare writes them")
    return rows


def _fault(row: Any, first: bool) -> str:
    """Return what is wrong with a row, or an empty text."""
    phase = row.get("phase") if isinstance(row, dict) else None
    if phase not in FIELDS or first != (phase == "optimum"):
        return f"has the phase {phase!r}, not {'optimum' if first else 'tuning or reported'}"
    if first:
        known = row.get("optimum_seen") is True or math.isfinite(number(row, "objective"))
        if not known or not math.isfinite(number(row, "start_objective")):
            return "the objective of the optimum or of the start is no finite number"
    return next((f"has no {name}" for name in FIELDS[phase] if row.get(name) is None), "")


def number(row: Row | None, name: str) -> float:
    """Return a field as a float; NaN if there is no row, or the field is absent, null or not a number."""
    value = row.get(name) if row else None
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan


def finite(rows: Iterable[Row], name: str) -> list[float]:
    """Return the values of a field where they are finite numbers."""
    return [value for row in rows if math.isfinite(value := number(row, name))]


def lowest(rows: Iterable[Row], start: float) -> float:
    """Lowest objective of any row, at most that of the start: it replaces the optimum if that is unknown."""
    return min([start, *finite(rows, "objective")])


def with_gaps(rows: Iterable[Row], start: float, optimum: float) -> list[Row]:
    """Add to rows the field ``gap``, the sub-optimality, which is 1 at the start, 0 at the optimum and NaN if it is
    unknown or the method has an objective of its own.
    """
    span = start - optimum if start > optimum else math.nan
    return [
        row | {"gap": math.nan if row.get("own_objective") else (number(row, "objective") - optimum) / span}
        for row in rows
    ]


def crossing(rows: Iterable[Row], eps: float, clock: str) -> float | None:
    """Value of the field ``clock`` ("epoch" or "train_seconds") when the gap of the rows first was ``eps``, or None.

    Between two evaluations the logarithm of the gap is interpolated linearly.
    """
    before: tuple[float, float] | None = None
    for row in rows:
        at, gap = number(row, clock), row["gap"]
        if not math.isfinite(gap) or not math.isfinite(at):
            break
        if gap <= eps:
            if before is None:
                return at
            share = math.log(before[1] / eps) / math.log(before[1] / max(gap, 1e-3 * eps))
            return before[0] + share * (at - before[0])
        before = at, gap
    return None


def best_step(trials: Mapping[float, Sequence[Row]], optimum: float, start: float, eps: Sequence[float]) -> float:
    """Return the step with the best trial.

    It reaches the hardest target in the fewest epochs; among steps that never reach it, the next target decides, and if
    none is reached, the lowest objective. Epochs count rather than seconds, since one trial's seconds are noisy, and a
    step does not change the cost of an epoch.

    Parameters
    ----------
    trials : mapping
        Rows of each step's trial, from epoch 0 on.
    optimum, start : float
        The optimum f*, and the objective at the start.
    eps : sequence of float
        Targets, as shares of ``start - optimum``.
    """

    def rank(step: float) -> tuple[float, ...]:
        rows = with_gaps(trials[step], start, optimum)
        epochs = [crossing(rows, share, "epoch") for share in sorted(eps)]
        last = rows[-1]["objective"] if rows[-1]["status"] == "ok" else None
        return (*(math.inf if value is None else value for value in (*epochs, last)), step)

    return min(trials, key=rank)


# ---- a row a run


def run_of(rows: list[Row], eps: Sequence[float]) -> Row:
    """Return one cell's run as a row: the fields of its first evaluation, and figures of the whole.

    Fields of the last evaluation are named "last objective" (absent if the run did not end ok), means of its epochs
    "mean staleness_max", and ways to a target "epoch to 0.01". ``rows`` are its evaluations, with their gaps; each gets
    ``call_seconds``, the time from the call: what is done once (the data read, workers started, kernels compiled),
    set-up and training, and ``lost``, the share of its updates that others have overwritten.
    """
    before = number(rows[-1], "setup_seconds") + (rows[-1].get("once_seconds") or 0.0)
    rows = [
        row
        | {"call_seconds": before + number(row, "train_seconds")}
        | {"lost": number(row, "lost_updates") / (number(row, "updates") or math.nan)}
        for row in rows
    ]
    first, last = rows[0], rows[-1]
    ended = last["status"] == "ok" and math.isfinite(number(last, "objective"))
    passes = last["epoch"] - first["epoch"]
    spent = number(last, "train_seconds") - number(first, "train_seconds")
    return {
        **first,
        **{f"mean {name}": float(np.mean(finite(rows, name) or math.nan)) for name in MEANS},
        **{f"{clock} to {each:g}": crossing(rows, each, clock) for clock in CLOCKS for each in eps},
        **({f"last {name}": value for name, value in last.items()} if ended else {}),
        "rows": rows,
        "device": first.get("device") or "cpu",
        "step": first.get("cell_step", first.get("step")),
        "status": last["status"],
        "epochs": last["epoch"],
        "best_gap": min(finite(rows, "gap"), default=math.nan),
        "epoch_seconds": spent / passes if passes > 0 else math.nan,
    }


class Spread(NamedTuple):
    """Median and quartiles."""

    median: float
    q25: float
    q75: float


@dataclass(frozen=True)
class Group:
    """The runs of one method with one number of workers, at its own best step: one run for each seed."""

    kind: str
    method: str
    workers: int
    runs: list[Row]

    @property
    def first(self) -> Row:
        return self.runs[0]

    def of(self, name: str) -> Spread | None:
        """Return the spread of a figure over the runs that have it; None if there are none."""
        values = finite(self.runs, name)
        return Spread(*np.quantile(values, (0.5, 0.25, 0.75)).tolist()) if values else None

    def median(self, name: str) -> float:
        """Return the median of a figure over the runs that have it; NaN if there are none."""
        values = self.of(name)
        return values.median if values else math.nan

    def share(self, eps: float) -> float:
        """Return the share of the runs that reached the target."""
        return sum(run[f"epoch to {eps:g}"] is not None for run in self.runs) / len(self.runs)


@dataclass
class ComparisonResult:
    """One comparison: a directory's rows."""

    label: str
    path: Path  # of the rows
    head: Row  # the row of phase "optimum": data, machine and plan
    runs: list[Row]  # every cell, trials and what was refused too
    start: float  # objective
    optimum: float  # objective, or the lowest that was seen

    @property
    def eps(self) -> list[float]:
        """Targets, the easiest first."""
        return sorted((float(value) for value in self.head["eps"]), reverse=True)

    @property
    def clock(self) -> str:
        """The field by which methods are compared: seconds of a simulator have a meaning with a link only."""
        if self.head.get("host") != "simulator":
            return "train_seconds"
        return "virtual_seconds" if self.head.get("link") else "epoch"

    @property
    def timed(self) -> bool:
        """Whether real seconds are meaningful."""
        return self.clock == "train_seconds"

    @property
    def goal(self) -> str:
        """What targets are measured against, in words."""
        return "the best seen" if self.head.get("optimum_seen") is True else "the optimum"

    def of_phase(self, phase: str) -> list[Row]:
        """Return the runs of a phase that were not refused."""
        return [run for run in self.runs if run["phase"] == phase and not run["status"].startswith("refused")]

    @cached_property
    def groups(self) -> list[Group]:
        """All groups of reported runs, by kind and by the order of the rows."""
        groups: dict[tuple[str, str, int], list[Row]] = {}
        for run in self.of_phase("reported"):
            groups.setdefault((run["kind"], run["method"], run["workers"]), []).append(run)
        return sorted((Group(*key, runs) for key, runs in groups.items()), key=lambda each: KINDS.index(each.kind))

    @property
    def racing(self) -> list[Group]:
        """The groups that minimise the objective of the comparison."""
        return [group for group in self.groups if not group.first.get("own_objective")]

    @property
    def serial(self) -> Group | None:
        """The group that speed-ups refer to."""
        return next((group for group in self.groups if group.kind == "serial"), None)

    def noise(self, eps: float) -> Ratio:
        """Ratio of serial to itself under another seed: 1, with the interval of what chance alone makes of it."""
        reached = [number(run, f"{self.clock} to {eps:g}") for run in self.serial.runs] if self.serial else []
        return ratio_of(zip(reached[1:] + reached[:1], reached))

    @cached_property
    def metric(self) -> tuple[str, str, bool] | None:
        """The metric on test data to show, a row of ``METRICS``."""
        measured = (each for each in METRICS if any(group.of(f"last {each[0]}") for group in self.groups))
        return next(measured, None)


# ---- statistics of two groups


def speedup(group: Group, source: ComparisonResult) -> tuple[float, float, float]:
    """Return a target and two factors of the speed-up over serial to it: statistical, of epochs, and hardware, of time.

    More workers gain time per epoch, but may need more epochs. The target is the hardest that at least half of both
    sides reached; NaN if there is none, and for the hardware where seconds mean nothing.
    """
    alone = source.serial
    for eps in reversed(source.eps if alone else []):
        assert alone is not None
        epochs = group.median(f"epoch to {eps:g}")
        if min(group.share(eps), alone.share(eps)) >= 0.5 and epochs:
            pace = group.median("epoch_seconds")
            hardware = alone.median("epoch_seconds") / pace if pace else math.nan
            return eps, alone.median(f"epoch to {eps:g}") / epochs, hardware
    return math.nan, math.nan, math.nan


class Ratio(NamedTuple):
    """How many times more the other side took, over the pairs of runs of one seed that both reached the target."""

    value: float
    low: float
    high: float
    pairs: int

    @property
    def sure(self) -> bool:
        """Whether there are enough pairs for an interval."""
        return self.pairs >= FEWEST_PAIRS


def ratio_of(pairs: Iterable[tuple[float, float]]) -> Ratio:
    """Ratio of the first to the second of pairs: Student's interval of the mean logarithm; NaN counts for nothing."""
    logs = [math.log(a / b) for a, b in pairs if a > 0 and b > 0]
    mean = float(np.mean(logs)) if logs else math.nan
    half = math.nan
    if len(logs) >= FEWEST_PAIRS:
        from scipy.special import stdtrit  # the quantile of scipy.stats.t, without half a second of importing it

        half = float(stdtrit(len(logs) - 1, (1 + CONFIDENCE) / 2) * np.std(logs, ddof=1)) / math.sqrt(len(logs))
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half), len(logs))


def paired_ratio(other: Group, group: Group, eps: float, clock: str) -> Ratio:
    """Ratio of ``other`` to ``group``, with runs of one seed as pairs."""
    name = f"{clock} to {eps:g}"
    by_seed = {run["seed"]: number(run, name) for run in other.runs}
    return ratio_of((by_seed.get(run["seed"], math.nan), number(run, name)) for run in group.runs)


def frame(groups: Iterable[Group]) -> pandas.DataFrame:
    """Return every evaluation of the groups' runs as a frame of pandas: the rows' fields, ``gap`` among them."""
    import pandas

    return pandas.DataFrame([row for group in groups for run in group.runs for row in run["rows"]])


# ---- directories


def load(directories: Sequence[str | Path]) -> list[ComparisonResult]:
    """Load comparisons from several directories, the newest first; those of one problem have the same optimum.

    Raises
    ------
    InputError
        If a directory holds no rows of a comparison, which ``hogwild compare --out`` writes.
    """
    paths = [Path(directory, ROWS) for directory in directories]
    comparisons = [read_rows(path) for path in paths]
    optima: dict[tuple[Any, ...], float] = {}
    for rows in comparisons:
        best = lowest(rows, rows[0]["start_objective"] if rows[0].get("optimum_seen") else math.inf)
        optima[_problem(rows[0])] = min(best, optima.get(_problem(rows[0]), math.inf))
    names = [path.parent.resolve().name for path in paths]
    labels = [name if names.count(name) == 1 else f"{name} ({place})" for place, name in enumerate(names, 1)]
    sources = [
        _comparison(label, path, rows, optima[_problem(rows[0])])
        for label, path, rows in zip(labels, paths, comparisons)
    ]
    return sorted(sources, key=lambda source: source.head.get("began") or "", reverse=True)


def _problem(head: Row) -> tuple[Any, ...]:
    """Return what two comparisons must have in common to have the same optimum."""
    seeded = head.get("problem") in ("completion", "module")  # the start of a run depends on the seed
    return (
        head.get("problem") or "linear",
        seeded or head["start_objective"],
        *(str(head.get(name)) for name in PROBLEM),
    )


def _comparison(label: str, path: Path, rows: list[Row], best: float) -> ComparisonResult:
    head = dict(rows[0])
    head["load_after"] = next((row["load"] for row in reversed(rows[1:]) if "load" in row), None)
    start = float(head["start_objective"])
    head |= {"objective": best} if head.get("optimum_seen") is True else {}
    source = ComparisonResult(label, path, head, [], start, best)
    meant = [row | dict.fromkeys(MEANINGLESS[source.clock]) for row in rows[1:]]
    by_cell = itertools.groupby(with_gaps(meant, start, best), key=lambda row: row["cell"])
    source.runs = [run_of([*cell], source.eps) for _, cell in by_cell]
    return source
