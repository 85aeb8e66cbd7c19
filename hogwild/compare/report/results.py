"""Reads rows of a comparison back as runs, and computes their statistics: medians, speed-ups, confidence intervals.

The rows file is the only input, so a report can be made anywhere and repeated, without the programs that trained. Rows
that are missing cannot be computed again, so a line that is not a row is an error that names it; only an incomplete
last line, which a killed run leaves, is skipped.

Seconds and epochs to a target are medians over the runs that reached it, always shown with the share that did: a median
over all runs would not exist if half of them fail, and one without the share would flatter. The verdict needs nothing
but NumPy; :func:`frame` gives the same runs to pandas.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hogwild.errors import HogwildWarning, InputError

if TYPE_CHECKING:
    import pandas

ROWS = "rows.jsonl"
Row = dict[str, Any]
NUMBER = (int, float)
RUN_FIELDS = ("cell", "method", "kind", "workers", "seed", "epoch", "status")
FIELDS = {  # required fields of a row, by its phase
    "optimum": ("start_objective", "eps"),
    "tuning": RUN_FIELDS,
    "reported": RUN_FIELDS,
    "delay": ("method", "kind", "workers", "seed", "gradient_delay", "status"),
}
#: Options that say what is minimised, as fields of the first row.
OBJECTIVE = ("loss l1 l2 l2_factors loss_param normalize class_weight intercept rank penalty biases negatives").split()
#: Fields that two comparisons must have in common to have the same optimum.
PROBLEM = (*OBJECTIVE, *"data fingerprint rows width nnz examples parameters".split())
#: The order in which methods are listed; "in step": on a GPU, with one replica or several that do not race.
KINDS = ("serial", "lock-free", "locks", "blocks", "exchange", "in step", "outside")
REFERENCES = ("serial", "outside")
FEWEST_PAIRS = 3
CONFIDENCE = 0.95
WIDE = 0.25  # ratio of the quartile distance to the median above which a time is doubtful
METRICS = (  # (field, name, whether it is a share); the first one measured is shown
    ("test_accuracy", "test accuracy", True),
    ("test_rmse", "test RMSE", False),
    ("test_ndcg_at_10", "test NDCG at 10", False),
    ("cut_value", "cut value", False),
    ("test_loss", "test loss", False),
)


# ---- rows


def read_rows(path: str | Path) -> list[Row]:
    """Return all rows of a file, checked for the fields that their phases require.

    Raises
    ------
    InputError
        If the file cannot be read, or a line is not the JSON of a row; the message names the line.
    """
    try:
        lines = Path(path).read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(f"{path}: cannot read the rows of a comparison: {error.strerror or error}") from None
    rows = []
    for place, line in enumerate(lines, 1):
        if not line.strip():
            continue
        reason = "is no JSON"
        try:
            rows.append(json.loads(line))
            reason = _fault(rows[-1])
        except ValueError:  # this includes a wrong encoding
            if place == len(lines):
                text = f"{path}, line {place}: the last line is torn (a run was killed there?) and is passed over"
                warnings.warn(text, HogwildWarning, stacklevel=2)
                break
        if reason:
            raise InputError(f"{path}, line {place}: {reason}: expected a row as hogwild compare writes them")
    return rows


def _fault(row: Any) -> str:
    """Return what is wrong with a row, or an empty text."""
    phase = str(row.get("phase")) if isinstance(row, dict) else None
    if phase not in FIELDS:
        return f"has the phase {phase!r}, not one of {', '.join(FIELDS)}"
    return next((f"has no {name}" for name in FIELDS[phase] if row.get(name) is None), "")


def number(row: Row | None, name: str) -> float:
    """Return a field as a float; NaN if there is no row, or the field is absent, null or not a number."""
    value = row.get(name) if row else None
    return float(value) if isinstance(value, NUMBER) and not isinstance(value, bool) else math.nan


def lowest(rows: Iterable[Row], start: float) -> float:
    """Lowest objective of any row, at most that of the start: it replaces the optimum if that is unknown."""
    return min([start, *(value for row in rows if math.isfinite(value := number(row, "objective")))])


def with_gaps(rows: Iterable[Row], start: float, optimum: float) -> list[Row]:
    """Add two fields to rows: ``gap``, the sub-optimality, which is 1 at the start, 0 at the optimum and NaN if it is
    unknown; and ``call_seconds``, the time from the call, in which the run was set up and trained.
    """
    span = start - optimum if start > optimum else math.nan
    return [
        row
        | {
            "gap": (number(row, "objective") - optimum) / span,
            "call_seconds": number(row, "setup_seconds") + number(row, "train_seconds"),
        }
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
            high = math.log(before[1])
            low = math.log(max(gap, 1e-3 * eps))
            share = (high - math.log(eps)) / (high - low) if high > low else 1.0
            return before[0] + min(max(share, 0.0), 1.0) * (at - before[0])
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


# ---- runs


@dataclass(frozen=True)
class Spread:
    """Median and quartiles."""

    median: float
    q25: float
    q75: float

    @property
    def wide(self) -> bool:
        return self.median > 0 and (self.q75 - self.q25) / self.median > WIDE


def spread(values: Iterable[float]) -> Spread | None:
    """Return the spread of the values that are numbers; None if there are none."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return None
    return Spread(*np.quantile(finite, (0.5, 0.25, 0.75)).tolist())


@dataclass(frozen=True)
class ReportedRun:
    """One cell: the rows of a training run, with their gaps, from epoch 0 on."""

    rows: Sequence[Row]

    @property
    def first(self) -> Row:
        return self.rows[0]

    @property
    def device(self) -> str:
        return self.first.get("device") or "cpu"

    @property
    def step(self) -> float | None:
        """The step asked for; None for a program that has none."""
        return step_of(self.first)

    @property
    def status(self) -> str:
        return self.rows[-1]["status"]

    @property
    def ran(self) -> bool:
        """Whether the run counts: it was not refused."""
        return math.isfinite(number(self.first, "objective"))

    def over(self, name: str) -> np.ndarray:
        """Values of a field, (n,) float64; NaN where it is not a number."""
        return np.array([number(row, name) for row in self.rows])

    @property
    def final(self) -> Row | None:
        """The last row with an objective, if the run ended normally."""
        return self.rows[-1] if self.status == "ok" and math.isfinite(number(self.rows[-1], "objective")) else None

    @property
    def epoch_seconds(self) -> float:
        """Clock seconds for one pass over the data; NaN for a run without one."""
        last = self.rows[-1]
        passes = number(last, "epoch") - number(self.first, "epoch")
        seconds = number(last, "train_seconds") - number(self.first, "train_seconds")
        return seconds / passes if passes > 0 else math.nan

    @property
    def lost_share(self) -> float:
        """Lost updates of single weights for each update of a row; NaN if they were not counted."""
        lost = self.over("lost_updates")
        updates = self.over("updates")
        counted = np.isfinite(lost) & (updates > 0)
        return float(lost[counted].sum() / updates[counted].sum()) if counted.any() else math.nan

    def reached(self, eps: float, clock: str) -> float:
        """Value of a field, such as ``train_seconds``, when the gap first was ``eps``; NaN: never."""
        at = crossing(self.rows, eps, clock)
        return math.nan if at is None else at


def step_of(row: Row) -> float | None:
    """Return the step that a cell was given; None for a program that has none."""
    step = number(row, "cell_step" if "cell_step" in row else "step")
    return None if math.isnan(step) else step


@dataclass(frozen=True)
class Group:
    """The runs of one method with one number of workers, at its own best step: one run per seed."""

    method: str
    kind: str
    workers: int
    runs: tuple[ReportedRun, ...]  # those that ran

    @property
    def replicas(self) -> int:
        """Number of replicas that trade; without an exchange, of workers."""
        count = number(self.runs[0].first, "replicas")
        return self.workers if math.isnan(count) else int(count)

    @property
    def step(self) -> float | None:
        return self.runs[0].step

    @property
    def device(self) -> str:
        return self.runs[0].device

    @property
    def ended_well(self) -> int:
        return sum(run.status == "ok" for run in self.runs)

    @cached_property
    def epoch_seconds(self) -> Spread | None:
        return spread(run.epoch_seconds for run in self.runs)

    @cached_property
    def lost_share(self) -> Spread | None:
        return spread(run.lost_share for run in self.runs)

    def last(self, name: str) -> Spread | None:
        """Spread of a field of the last row, over the runs that ended normally."""
        return spread(number(run.final, name) for run in self.runs)

    def over_epochs(self, name: str) -> Spread | None:
        """Spread of a field's mean over a run's epochs."""
        values = [run.over(name) for run in self.runs]
        return spread(float(np.nanmean(each)) for each in values if np.isfinite(each).any())

    def reached(self, eps: float, clock: str) -> Spread | None:
        """Spread of ``train_seconds`` or ``epoch`` to the target, over the runs that reached it."""
        return spread(run.reached(eps, clock) for run in self.runs)

    def arrivals(self, eps: float) -> int:
        """Number of runs that reached the target."""
        return sum(math.isfinite(run.reached(eps, "epoch")) for run in self.runs)

    def share(self, eps: float) -> float:
        """Share of the runs that reached the target."""
        return self.arrivals(eps) / len(self.runs)

    @property
    def best_gap(self) -> float:
        return min(
            (gap for run in self.runs for gap in run.over("gap").tolist() if math.isfinite(gap)), default=math.nan
        )

    @property
    def most_epochs(self) -> float:
        return max(number(run.rows[-1], "epoch") for run in self.runs)


@dataclass
class ComparisonResult:
    """One comparison: a directory's rows."""

    label: str
    path: Path  # of the rows
    head: Row  # the row of phase "optimum": data, machine and plan
    tuning: list[ReportedRun]
    reported: list[ReportedRun]
    delays: list[Row]
    start: float  # objective
    optimum: float  # objective, or the lowest that was seen
    notes: list[str]

    @property
    def eps(self) -> list[float]:
        """Targets, the easiest first."""
        return sorted((float(value) for value in self.head["eps"]), reverse=True)

    @property
    def timed(self) -> bool:
        """Whether seconds are meaningful."""
        return self.head.get("host") != "simulator"

    @property
    def linked(self) -> bool:
        """Whether replicas traded over a simulated link, so that virtual seconds are meaningful."""
        return bool(self.head.get("link"))

    @property
    def in_seconds(self) -> bool:
        """Whether methods are compared by seconds, real or virtual, rather than by epochs."""
        return self.timed or self.linked

    @property
    def clock(self) -> str:
        """The field by which methods are compared."""
        return "train_seconds" if self.timed else "virtual_seconds" if self.linked else "epoch"

    @property
    def goal(self) -> str:
        """What targets are measured against, in words."""
        return "the best seen" if self.head.get("optimum_seen") is True else "the optimum"

    @property
    def crowd(self) -> str:
        """A warning in capitals if more workers ran than there are cores and that matters; otherwise empty."""
        most = max((run.first["workers"] for run in self.reported if run.ran and run.device == "cpu"), default=0)
        cores = self.head.get("cores") or most
        return f"MORE WORKERS THAN CORES ({most} on {cores})" if self.timed and most > cores else ""

    @cached_property
    def groups(self) -> list[Group]:
        """All groups, by kind and by the order of the rows."""
        runs: dict[tuple[str, str, int], list[ReportedRun]] = {}
        for run in self.reported:
            if run.ran:
                runs.setdefault((run.first["kind"], run.first["method"], run.first["workers"]), []).append(run)
        groups = [Group(method, kind, workers, tuple(members)) for (kind, method, workers), members in runs.items()]
        return sorted(groups, key=lambda group: (*KINDS, group.kind).index(group.kind))

    def noise(self, eps: float) -> Ratio:
        """Ratio of serial to itself under another seed: 1, with the interval of what chance alone makes of it."""
        alone = serial(self.groups)
        reached = [run.reached(eps, self.clock) for run in alone.runs] if alone else []
        return ratio_of(zip(reached[1:] + reached[:1], reached))

    @property
    def tuned(self) -> bool:
        """Whether every method ran at its own best step; otherwise at a step that was given."""
        return bool(self.tuning)

    @cached_property
    def metric(self) -> tuple[str, str, bool] | None:
        """The metric on test data to show, a row of ``METRICS``."""
        ends = [run.final for run in self.reported]
        return next((each for each in METRICS if any(math.isfinite(number(row, each[0])) for row in ends)), None)

    @property
    def not_ok(self) -> list[Row]:
        """First rows of all cells that did not end ok, with the status of their last."""
        runs = [run for run in self.tuning + self.reported if run.status != "ok"]
        return [run.first | {"status": run.status, "epoch": run.rows[-1]["epoch"]} for run in runs] + [
            row for row in self.delays if row["status"] != "ok"
        ]


def serial(groups: Iterable[Group]) -> Group | None:
    """Return the group that speed-ups refer to."""
    return next((group for group in groups if group.kind == "serial"), None)


# ---- statistics of two groups


def speedup(group: Group, over: Group | None, source: ComparisonResult) -> tuple[float, float, float]:
    """Return a target and two factors of the speed-up over serial to it: statistical, of epochs, and hardware, of time.

    More workers gain time per epoch, but may need more epochs. The target is the hardest that at least half of both
    sides reached; NaN if there is none, and for the hardware where seconds mean nothing.
    """
    for eps in reversed(source.eps if over is not None else []):
        assert over is not None
        epochs = group.reached(eps, "epoch")
        base = over.reached(eps, "epoch")
        if min(group.share(eps), over.share(eps)) < 0.5 or epochs is None or base is None or not epochs.median:
            continue
        hardware = math.nan
        if source.timed and group.epoch_seconds and over.epoch_seconds and group.epoch_seconds.median:
            hardware = over.epoch_seconds.median / group.epoch_seconds.median
        return eps, base.median / epochs.median, hardware
    return math.nan, math.nan, math.nan


@dataclass(frozen=True)
class Ratio:
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
    logs = [math.log(a / b) for a, b in pairs if math.isfinite(a) and math.isfinite(b) and a > 0 and b > 0]
    mean = float(np.mean(logs)) if logs else math.nan
    half = math.nan
    if len(logs) >= FEWEST_PAIRS:
        from scipy.special import stdtrit  # the quantile of scipy.stats.t, without half a second of importing it

        half = float(stdtrit(len(logs) - 1, (1 + CONFIDENCE) / 2) * np.std(logs, ddof=1)) / math.sqrt(len(logs))
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half), len(logs))


def paired_ratio(other: Group, group: Group, eps: float, clock: str) -> Ratio:
    """Ratio of ``other`` to ``group``, with runs of one seed as pairs."""
    by_seed = {run.first["seed"]: run.reached(eps, clock) for run in other.runs}
    return ratio_of((by_seed.get(run.first["seed"], math.nan), run.reached(eps, clock)) for run in group.runs)


def frame(groups: Iterable[Group]) -> pandas.DataFrame:
    """Return every evaluation of the groups' runs as a frame of pandas: the rows' fields, ``gap`` among them."""
    import pandas

    return pandas.DataFrame([row for group in groups for run in group.runs for row in run.rows])


# ---- directories


def load(directories: Sequence[str | Path]) -> list[ComparisonResult]:
    """Load comparisons from several directories, the newest first; those of one problem have the same optimum.

    Raises
    ------
    InputError
        If a directory holds no rows of a comparison.
    """
    paths = [path for directory in directories for path in _rows_files(Path(directory))]
    comparisons = [_checked(path, read_rows(path)) for path in paths]
    optima: dict[tuple[Any, ...], float] = {}
    for rows in comparisons:
        start = rows[0]["start_objective"] if rows[0].get("optimum_seen") else math.inf
        seen = lowest((row for row in rows if row["phase"] != "delay"), math.inf)  # the others have fewer rows
        optima[_problem(rows[0])] = min(start, seen, optima.get(_problem(rows[0]), math.inf))
    names = [path.parent.resolve().name for path in paths]
    labels = [name if names.count(name) == 1 else f"{name} ({place})" for place, name in enumerate(names, 1)]
    sources = [
        _comparison(label, path, rows, optima[_problem(rows[0])])
        for label, path, rows in zip(labels, paths, comparisons)
    ]
    return sorted(sources, key=lambda source: source.head.get("began") or "", reverse=True)


def _rows_files(directory: Path) -> list[Path]:
    """Return the rows of a directory, or of the folders in it."""
    paths = [directory / ROWS] if (directory / ROWS).is_file() else sorted(directory.glob(f"*/{ROWS}"))
    if not paths:
        reason = (
            f"no {ROWS} in it" if directory.is_dir() else "is a file" if directory.exists() else "no such directory"
        )
        raise InputError(f"{directory}: {reason}: expected a directory that hogwild compare --out wrote")
    return paths


def _checked(path: Path, rows: list[Row]) -> list[Row]:
    """Return the rows of one comparison, which begin with the row of phase optimum."""
    if [row["phase"] for row in rows].count("optimum") != 1 or rows[0]["phase"] != "optimum":
        raise InputError(f"{path}: needs one row of phase optimum, in line 1: expected one comparison to a file")
    head = rows[0]
    unknown = math.isnan(number(head, "objective")) and head.get("optimum_seen") is not True
    if unknown or not math.isfinite(number(head, "start_objective")):
        raise InputError(f"{path}, line 1: the objective of the optimum or of the start is no finite number")
    return rows


def _problem(head: Row) -> tuple[Any, ...]:
    """Return what two comparisons must have in common to have the same optimum."""
    seeded = head.get("problem") in ("completion", "module")  # the start of a run depends on the seed
    start = () if seeded else (str(head.get("start_objective")),)
    return (head.get("problem") or "linear", *start, *(str(head.get(name)) for name in PROBLEM))


def _comparison(label: str, path: Path, rows: list[Row], best: float) -> ComparisonResult:
    head = dict(rows[0])
    head["load_after"] = next((row["load"] for row in reversed(rows[1:]) if "load" in row), None)
    start = float(head["start_objective"])
    cells: dict[tuple[str, str], list[Row]] = {}
    for row in with_gaps(rows[1:], start, best):
        cells.setdefault((row["phase"], row.get("cell", "")), []).append(row)
    tuning, reported = (
        [ReportedRun(members) for (phase, _), members in cells.items() if phase == name]
        for name in ("tuning", "reported")
    )
    notes = []
    if head.get("optimum_seen") is True:
        head["objective"] = best
        notes.append(
            f"The optimum is not known ({head.get('optimum_how')}). Targets are measured against the best objective "
            f"that any run of this comparison reached, {best:.9g}, so that run ends at 0 % by definition."
        )
    if head["objective"] > best:
        below = with_gaps([head], start, best)[0]["gap"]
        notes.append(
            f"A run got below the optimum that was looked for ({head['objective']:.9g}), by {below:.1e} of the way "
            f"from the start: its {best:.9g} is taken for the optimum."
        )
    if start <= best:
        notes.append(f"No run got below the objective of the start ({start:.6g}), so no target has a meaning.")
    delays = [row for row in rows if row["phase"] == "delay"]
    return ComparisonResult(label, path, head, tuning, reported, delays, start, best, notes)
