"""Reads rows of a comparison back as runs: what each did, and when it reached a target.

The rows file is the only input, so a report can be made anywhere and repeated, without the programs that trained. Rows
that are missing cannot be computed again, so a line that is not a row is an error that names it; only an incomplete
last line, which a killed run leaves, is skipped.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.compare.run.reached import crossing, lowest
from hogwild.errors import HogwildWarning, InputError

ROWS = "rows.jsonl"
Row = dict[str, Any]
NUMBER = (int, float)
RUN_FIELDS = {"cell": str, "method": str, "kind": str, "workers": int, "seed": int, "epoch": NUMBER, "status": str}
FIELDS: dict[str, dict[str, Any]] = {  # required fields of a row, by its phase
    "optimum": {"start_objective": NUMBER, "eps": list},
    "tuning": RUN_FIELDS,
    "reported": RUN_FIELDS,
    "delay": {"method": str, "kind": str, "workers": int, "seed": int, "gradient_delay": NUMBER, "status": str},
}


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
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            rows.append(_row(line))
        except ValueError as error:  # this includes a wrong encoding
            if number == len(lines) and not isinstance(error, InputError):
                text = f"{path}, line {number}: the last line is torn (a run was killed there?) and is passed over"
                warnings.warn(text, HogwildWarning, stacklevel=2)
                break
            reason = str(error) if isinstance(error, InputError) else "is no JSON"
            raise InputError(
                f"{path}, line {number}: {reason}: expected a row as hogwild compare writes them"
            ) from None
    return rows


def _row(line: bytes) -> Row:
    row = json.loads(line)
    if not isinstance(row, dict):
        raise InputError("is JSON but no object")
    phase = row.get("phase")
    if not isinstance(phase, str) or phase not in FIELDS:
        raise InputError(f"has the phase {phase!r}, not one of {', '.join(FIELDS)}")
    needed = dict(FIELDS[phase])
    if phase == "optimum" and row.get("optimum_seen") is not True:  # otherwise it is the lowest of the rows that follow
        needed["objective"] = NUMBER
    for name, kind in needed.items():
        if not isinstance(row.get(name), kind) or isinstance(row[name], bool):
            raise InputError(f"has {name} {row.get(name)!r}")
    if row.get("workers", 1) < 1:
        raise InputError(f"has workers {row['workers']!r}")
    for name in ("objective", "train_seconds"):  # null: it diverged, or never ran
        value = number(row, name)
        row[name] = value if math.isfinite(value) else None
    return row


def number(row: Row, name: str) -> float:
    """Return a field as a float; NaN if it is absent, null or not a number."""
    value = row.get(name)
    return float(value) if isinstance(value, NUMBER) and not isinstance(value, bool) else math.nan


@dataclass(frozen=True)
class Scale:
    """The objective at the start and at the optimum."""

    start: float
    optimum: float

    def gap(self, objective: Any) -> Any:
        """Sub-optimality: 1 at the start, 0 at the optimum."""
        span = self.start - self.optimum
        return (objective - self.optimum) / span if span > 0 else objective * math.nan


@dataclass(frozen=True)
class ReportedRun:
    """One cell: the rows of a training run, from epoch 0 on."""

    rows: Sequence[Row]
    scale: Scale

    @property
    def first(self) -> Row:
        return self.rows[0]

    @property
    def key(self) -> tuple[str, int]:
        """Method and number of workers."""
        return self.first["method"], self.first["workers"]

    @property
    def kind(self) -> str:
        return self.first["kind"]

    @property
    def device(self) -> str:
        return self.first.get("device") or "cpu"

    @property
    def seed(self) -> int:
        return self.first["seed"]

    @cached_property
    def step(self) -> float | None:
        """The step asked for; None for a program that has none."""
        value = number(self.first, "cell_step" if "cell_step" in self.first else "step")
        return None if math.isnan(value) else value

    @property
    def rules(self) -> list[str]:
        return self.first.get("step_rule") or []

    @property
    def status(self) -> str:
        return self.rows[-1]["status"]

    @property
    def ran(self) -> bool:
        """Whether the run counts: it was not refused, left out or interrupted by the user."""
        return math.isfinite(number(self.first, "objective")) and self.status != "interrupted"

    @cached_property
    def epochs(self) -> np.ndarray:  # (n,) float64
        return np.array([number(row, "epoch") for row in self.rows])

    @cached_property
    def seconds(self) -> np.ndarray:  # (n,) float64
        return self.over("train_seconds")

    def over(self, name: str) -> np.ndarray:
        """Values of a field, (n,) float64; NaN where it is not a number."""
        return np.array([number(row, name) for row in self.rows])

    @cached_property
    def gaps(self) -> np.ndarray:
        """(n,) float64: sub-optimality; NaN where the objective is not a number."""
        return self.scale.gap(np.array([number(row, "objective") for row in self.rows]))

    @property
    def final(self) -> Row | None:
        """The last row with an objective, if the run ended normally."""
        return self.rows[-1] if self.status == "ok" and math.isfinite(number(self.rows[-1], "objective")) else None

    @property
    def best_gap(self) -> float:
        finite = self.gaps[np.isfinite(self.gaps)]
        return float(finite.min()) if finite.size else math.nan

    @property
    def epoch_seconds(self) -> float:
        """Clock seconds for one pass over the data; NaN for a run without one."""
        passes = self.epochs[-1] - self.epochs[0]
        return float((self.seconds[-1] - self.seconds[0]) / passes) if passes > 0 else math.nan

    def reached(self, eps: float, name: str = "train_seconds") -> float:
        """Value of a field, such as ``train_seconds``, when the sub-optimality first was ``eps``; NaN: never."""
        target = self.scale.optimum + eps * (self.scale.start - self.scale.optimum)
        found = crossing(self.rows, target, self.scale.optimum, name)
        return math.nan if found is None else found


@dataclass
class ComparisonResult:
    """One comparison: a directory's rows."""

    label: str
    about: Row  # the row of phase "optimum"
    tuning: list[ReportedRun]
    reported: list[ReportedRun]
    delays: list[Row]
    scale: Scale
    notes: list[str] = field(default_factory=list)

    @property
    def eps(self) -> list[float]:
        """Targets, the easiest first."""
        return sorted((float(value) for value in self.about["eps"]), reverse=True)

    @property
    def timed(self) -> bool:
        """Whether seconds are meaningful."""
        return self.about.get("host") != "simulator"

    @property
    def in_seconds(self) -> bool:
        """Whether methods are compared by seconds, real or virtual, rather than by epochs."""
        return self.timed or self.linked

    @property
    def linked(self) -> bool:
        """Whether replicas traded over a simulated link, so that virtual seconds are meaningful."""
        return bool(self.about.get("link"))

    @property
    def clock(self) -> str:
        """The field by which methods are compared."""
        return "train_seconds" if self.timed else "virtual_seconds" if self.linked else "epoch"

    @property
    def problem(self) -> str:
        return self.about.get("problem") or "linear"

    @property
    def goal(self) -> str:
        """What targets are measured against, in words."""
        return "the best seen" if self.about.get("optimum_seen") is True else "the optimum"

    @property
    def cores(self) -> int | None:
        return self.about.get("cores")

    @property
    def gpu(self) -> str:
        """Name of the GPU that some methods ran on; empty if none did."""
        return str(self.about.get("gpu") or "")

    @property
    def crowd(self) -> str:
        """A warning in capitals if more workers ran than there are cores and that matters; otherwise empty."""
        most = max((run.first["workers"] for run in self.reported if run.ran and run.device == "cpu"), default=0)
        crowded = self.timed and self.cores and most > self.cores
        return f"MORE WORKERS THAN CORES ({most} on {self.cores})" if crowded else ""


def load(directories: Sequence[str | Path]) -> list[ComparisonResult]:
    """Load comparisons from several directories; those of the same problem are measured against the same optimum.

    Raises
    ------
    InputError
        If a directory holds no rows of a comparison.
    """
    paths = [_rows_file(folder) for directory in directories for folder in _folders(Path(directory))]
    found = [(path, read_rows(path)) for path in paths]
    bests: dict[tuple[Any, ...], float] = {}
    for path, rows in found:
        problem = _problem(_about(path, rows))
        whole = [row for row in rows if row["phase"] != "delay"]  # the others have fewer rows
        best = min(lowest(whole, math.inf), rows[0]["start_objective"] if rows[0].get("optimum_seen") else math.inf)
        bests[problem] = min(best, bests.get(problem, math.inf))
    labels = _labels(paths)
    return [_source(label, rows, bests[_problem(rows[0])]) for label, (_, rows) in zip(labels, found)]


def _folders(directory: Path) -> list[Path]:
    """Return a directory of rows, or the folders in it that hold rows."""
    if (directory / ROWS).is_file():
        return [directory]
    return sorted(path.parent for path in directory.glob(f"*/{ROWS}")) or [directory]


def _rows_file(directory: Path) -> Path:
    if not directory.is_dir():
        reason = "is a file" if directory.exists() else "no such directory"
        raise InputError(f"{directory}: {reason}: expected a directory that hogwild compare --out wrote")
    if not (directory / ROWS).is_file():
        raise InputError(f"{directory}: no {ROWS} in it: expected a directory that hogwild compare --out wrote")
    return directory / ROWS


def _about(path: Path, rows: list[Row]) -> Row:
    if not rows:
        raise InputError(f"{path}: no rows: expected what hogwild compare writes; run it again with the same --out")
    if rows[0]["phase"] != "optimum":
        raise InputError(
            f"{path}, line 1: a row of phase {rows[0]['phase']}: expected the row of phase optimum, which opens every "
            "comparison"
        )
    eps = rows[0]["eps"]
    if not eps or any(isinstance(value, bool) or not isinstance(value, NUMBER) or not 0 < value < 1 for value in eps):
        raise InputError(f"{path}, line 1: has eps {eps!r}: expected numbers between 0 and 1")
    known = rows[0]["objective"] is not None or rows[0].get("optimum_seen") is True
    if not known or not math.isfinite(rows[0]["start_objective"]):
        raise InputError(f"{path}, line 1: the objective of the optimum or of the start is no finite number")
    for row in rows[1:]:
        if row["phase"] == "optimum":
            raise InputError(f"{path}: two rows of phase optimum: expected one comparison to a file")
    return rows[0]


def _problem(about: Row) -> tuple[Any, ...]:
    """Return what two comparisons must have in common to have the same optimum."""
    names = (
        "data",
        "fingerprint",
        "rows",
        "width",
        "nnz",
        "loss",
        "loss_param",
        "l1",
        "l2",
        "normalize",
        "class_weight",
        "intercept",
        "rank",
        "penalty",
        "nonnegative",
        "biases",
        "negatives",
        "examples",
        "parameters",
    )
    seeded = about.get("problem") in ("completion", "module")  # the start of a run depends on the seed
    start = () if seeded else (str(about.get("start_objective")),)
    return (about.get("problem") or "linear", *start, *(str(about.get(name)) for name in names))


def _labels(paths: list[Path]) -> list[str]:
    """Return the shortest distinct names of the directories."""
    parts = [path.parent.resolve().parts for path in paths]
    for depth in range(1, 1 + max(map(len, parts))):
        labels = ["/".join(part[-depth:]) for part in parts]
        if len(set(labels)) == len(labels):
            return labels
    return [f"{label} ({index})" for index, label in enumerate(labels, 1)]


def _source(label: str, rows: list[Row], best: float) -> ComparisonResult:
    about, cells = rows[0], {}  # type: ignore[var-annotated]
    scale = Scale(float(about["start_objective"]), best)
    for row in rows[1:]:
        if row["phase"] != "delay":
            if row["epoch"] == 0:  # if a cell was begun twice, the last beginning counts
                cells[row["phase"], row["cell"]] = []
            cells.setdefault((row["phase"], row["cell"]), []).append(row)
    runs = {
        name: [ReportedRun(found, scale) for (phase, _), found in cells.items() if phase == name]
        for name in ("tuning", "reported")
    }
    seen = about.get("optimum_seen") is True
    about = about | {"objective": best} if seen else about
    source = ComparisonResult(
        label, about, runs["tuning"], runs["reported"], [r for r in rows if r["phase"] == "delay"], scale
    )
    lower = float(about["objective"]) - best
    if seen:
        source.notes.append(
            f"The optimum is not known ({about.get('optimum_how')}). Targets are measured against the best objective "
            f"that any run of this comparison reached, {best:.9g}, so that run ends at 0 % by definition."
        )
    if lower > 0:
        source.notes.append(
            f"A run got below the optimum that was looked for ({about['objective']:.9g}), by "
            f"{scale.gap(best + lower):.1e} of the way from the start: its {best:.9g} is taken for the optimum."
        )
    if scale.start <= best:
        source.notes.append(
            f"No run got below the objective of the start ({scale.start:.6g}), so no target has a meaning."
        )
    return source
