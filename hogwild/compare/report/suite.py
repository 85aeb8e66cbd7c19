"""The paper's table and ours side by side, made from a suite's rows alone.

There are three tables: the stand-ins' hypergraphs compared with the paper's, what every method took and reached here,
and both tables of results side by side. Corresponding figures are in the same column, so that ratios are compared: the
machines are fifteen years apart, and the data are stand-ins of another size.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hogwild.compare.report.results import ROWS, Row, number, read_rows
from hogwild.compare.report.tables import NONE, Cells, Table
from hogwild.compare.report.verdict import crew, duration
from hogwild.compare.run.paper import ERRATA, PAPER, SOURCE, PaperResult, PaperSet
from hogwild.errors import InputError

RUN = {"set": str, "cell": str, "method": str, "workers": int, "seed": int, "epoch": (int, float), "status": str}
FIELDS: dict[str, dict[str, Any]] = {
    "suite": {"suite": str, "plan": dict},
    "data": {"set": str, "data": str},
    "tuning": RUN,
    "reported": RUN,
}


def is_suite(directory: str | Path) -> bool:
    """Return whether a directory holds the rows of a suite rather than those of one comparison."""
    try:
        with open(Path(directory, ROWS), "rb") as file:
            row = json.loads(file.readline())
    except (OSError, ValueError):
        return False  # the next reader reports the error
    return isinstance(row, dict) and row.get("phase") == "suite"


@dataclass(frozen=True)
class Result:
    """The runs of one method on one set: medians over the seeds."""

    method: str
    workers: int
    step: float | None
    epochs: int
    runs: tuple[list[Row], ...]

    @property
    def status(self) -> str:
        """ "ok", or the status of the first run that failed."""
        return next((rows[-1]["status"] for rows in self.runs if rows[-1]["status"] != "ok"), "ok")

    @property
    def reached(self) -> float:
        """Epochs completed by the run with the fewest."""
        return min(number(rows[-1], "epoch") for rows in self.runs)

    @property
    def seconds(self) -> float:
        """Training seconds of all epochs: extrapolated if a run was stopped early; NaN if no epoch was done."""
        found = []
        for rows in self.runs:
            done, seconds = number(rows[-1], "epoch"), number(rows[-1], "train_seconds")
            if done > 0 and math.isfinite(seconds):
                found.append(seconds / done * self.epochs)
        return statistics.median(found) if found else math.nan

    @property
    def whole(self) -> bool:
        return self.reached >= self.epochs

    def error(self, each: PaperSet, part: str, edges: float) -> float:
        """The column ``part`` of the paper's table: "train" or "test"."""
        if self.status != "ok" and not self.reached:
            return math.nan
        found = [_error(rows[-1], each, part, edges) for rows in self.runs]
        return statistics.median(found) if all(map(math.isfinite, found)) else math.nan


def _error(row: Row, each: PaperSet, part: str, edges: float) -> float:
    if each.problem == "cuts":
        return number(row, "cut_value") / edges if part == "train" else math.nan
    if each.problem == "completion":
        return number(row, f"{part}_rmse")
    return math.sqrt(max(number(row, f"{part}_loss"), 0.0)) if math.isfinite(number(row, f"{part}_loss")) else math.nan


@dataclass(frozen=True)
class Found:
    """Results on one set."""

    paper: PaperSet
    data: Row
    results: dict[str, Result]


def load_suite(directory: str | Path) -> tuple[Row, list[Found]]:
    """Return the first row and the results on every set, in the paper's order.

    Raises
    ------
    InputError
        If the rows are not those of a suite.
    """
    path = Path(directory, ROWS)
    rows = read_rows(path, FIELDS)
    about = rows[0]
    if about.get("suite") != "paper":
        raise InputError(f"{path}, line 1: a suite {about.get('suite')!r}: expected 'paper'")
    epochs = int(about["plan"]["epochs"])
    data = {row["set"]: row for row in rows if row["phase"] == "data"}
    cells: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        if row["phase"] == "reported":
            cells.setdefault(row["set"], {}).setdefault(row["cell"], []).append(row)
    return about, [
        Found(each, data[each.key], _results(cells.get(each.key, {}), epochs)) for each in PAPER if each.key in data
    ]


def _results(cells: dict[str, list[Row]], epochs: int) -> dict[str, Result]:
    runs: dict[str, list[list[Row]]] = {}
    for rows in cells.values():
        runs.setdefault(rows[0]["method"], []).append(rows)
    return {
        method: Result(method, found[0][0]["workers"], found[0][0].get("cell_step"), epochs, tuple(found))
        for method, found in runs.items()
    }


# ---- the tables


def suite_tables(about: Row, found: Sequence[Found]) -> list[Table]:
    """Return all tables that have rows."""
    made = [side_by_side(about, found), results(about, found), shapes(about, found), conditions(about)]
    return [table for table in made if table.rows]


def side_by_side(about: Row, found: Sequence[Found]) -> Table:
    """Return the paper's table 2, and ours in the same columns."""
    rows: list[Cells] = []
    for each in found:
        paper, ours = each.paper, each.results
        hw, rr = ours.get("hogwild"), ours.get("round-robin")
        edges = number(each.data, "edges")
        theirs = [text for outcome in (paper.hogwild, paper.round_robin) for text in _outcome(outcome)]
        rows.append((paper.name, "paper", *theirs, _times(paper.ratio)))
        cells = [
            text
            for result in (hw, rr)
            for text in (_seconds(result), *(_plain(_of(result, paper, part, edges)) for part in ("train", "test")))
        ]
        rows.append((paper.name, "here", *cells, _times(_ratio(rr, hw))))
    columns = ("data", "whose", "Hogwild s", "train", "test", "RR s", "train", "test", "RR/HW")
    notes = [
        f"Paper: {SOURCE}, ten threads. Here: stand-ins of {_scaled(about)} their size, {_crew(about)}. Seconds are of "
        f"{about['plan']['epochs']} epochs of training.",
        "Train and test: " + "; ".join(f"{each.paper.name}: {each.paper.error}" for each in found) + ". The paper does "
        "not say how it scaled the errors of cuts and of RCV1, so these columns tell methods apart, not machines.",
        *_stopped(about, found),
    ]  # fmt: skip
    return Table("The paper's table, and the same here", columns, rows, notes)


def results(about: Row, found: Sequence[Found]) -> Table:
    """Return the table of every method on every set."""
    rows: list[Cells] = []
    for each in found:
        serial, hogwild = each.results.get("serial"), each.results.get("hogwild")
        edges = number(each.data, "edges")
        for result in each.results.values():
            if result.status.startswith("refused"):
                rows.append((each.paper.name, result.method, str(result.workers), *(NONE,) * 6, result.status))
                continue
            errors = (_plain(_of(result, each.paper, part, edges)) for part in ("train", "test"))
            rows.append((
                each.paper.name, result.method, str(result.workers),
                NONE if result.step is None else f"{result.step:.4g}", _seconds(result), *errors,
                _times(_ratio(serial, result)), _times(_ratio(result, hogwild)),
                "" if result.status == "ok" else result.status,
            ))  # fmt: skip
    columns = ("data", "method", "workers", "step", "s", "train", "test", "over serial", "time / Hogwild's", "why")
    notes = [
        "One step for all methods: the largest that was tried and converges with one worker. Over serial: how many "
        "times as long serial took for the same epochs."
    ]
    return Table("Every method", columns, rows, notes)


def shapes(about: Row, found: Sequence[Found]) -> Table:
    """Return the table of sizes and hypergraphs, the paper's and the generated ones."""
    rows: list[Cells] = [
        (
            each.paper.name, each.paper.size, _size(each.data), each.data["data"], _plain(number(each.data, "omega")),
            f"{each.paper.delta:.2g}", _plain(number(each.data, "delta")), f"{each.paper.rho:.2g}",
            _plain(number(each.data, "rho")),
        )
        for each in found
    ]  # fmt: skip
    columns = ("data", "paper's size", "size here", "generated by", "Ω here", "Δ paper", "Δ here", "ρ paper", "ρ here")
    notes = [
        "Measured on the generated training data. A stand-in cannot be sparser than its size allows: the busiest of n "
        "users has 1/n of the ratings or more, and so on.",
        "Both sides of a matrix are scaled by the root of the scale, so that it is as full as the original; then "
        "users and items have fewer ratings each, and less can be learnt of them. Jumbo is scaled to a tenth of what "
        "the others are.",
        *ERRATA,
    ]
    return Table("The data: the paper's and the stand-ins", columns, rows, notes)


def conditions(about: Row) -> Table:
    """Return the table of machine, plan and command."""
    plan = about["plan"]
    versions = [f"{name.removeprefix('version_')} {about[name]}" for name in about if name.startswith("version_")]
    facts = {
        "processor": f"{about.get('cpu') or 'unknown'}, {about.get('cores')} cores",
        "plan": f"scale {plan['scale']}, {plan['epochs']} epochs, {_crew(about)}, seeds: {plan['seeds']}, "
        f"stopped after {plan['timeout']:g} s of training",
        "command": about.get("command"),
        "versions": ", ".join(versions),
    }  # fmt: skip
    return Table("Where and how", ("what", "value"), [(name, str(value)) for name, value in facts.items() if value])


def suite_verdict(about: Row, found: Sequence[Found]) -> list[str]:
    """Return sentences on which method was how much faster, and whether the errors differ."""
    said = []
    ratios = {each.paper.name: _ratio(each.results.get("round-robin"), each.results.get("hogwild")) for each in found}
    ratios = {name: value for name, value in ratios.items() if math.isfinite(value)}
    if ratios:
        listed = ", ".join(f"{name} {value:.1f}" for name, value in ratios.items())
        theirs = ", ".join(
            f"{each.paper.name} {each.paper.ratio:.1f}" for each in found if each.paper.round_robin
        )  # fmt: skip
        said.append(
            f"Round-robin takes so many times as long as Hogwild, on {_crew(about)}: {listed}; in the paper, on ten "
            f"threads: {theirs}."
        )
    gains = {each.paper.name: _ratio(each.results.get("serial"), each.results.get("hogwild")) for each in found}
    if listed := ", ".join(f"{name} {value:.2f}" for name, value in gains.items() if math.isfinite(value)):
        said.append(f"Hogwild is so many times as quick as one serial worker: {listed}.")
    missing = [each.name for each in PAPER if each.key not in {other.paper.key for other in found}]
    if missing:
        said.append(f"Not run yet: {', '.join(missing)}.")
    return said or ["Nothing has run yet."]


def markdown(made: Sequence[Table], said: Sequence[str]) -> str:
    """Return the report as text, for a README."""
    parts = ["\n".join(said)]
    for table in made:
        lines = [f"## {table.title}", "", "| " + " | ".join(table.columns) + " |",
                 "|" + "|".join("---" if text else "---:" for text in table.texts) + "|"]  # fmt: skip
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table.rows]
        parts.append("\n".join([*lines, *(f"\n{note}" for note in table.notes)]))
    return "\n\n".join(parts) + "\n"


# ---- figures


def _of(result: Result | None, paper: PaperSet, part: str, edges: float) -> float:
    return math.nan if result is None else result.error(paper, part, edges)


def _ratio(slow: Result | None, quick: Result | None) -> float:
    """Return how many times as long the first took."""
    if slow is None or quick is None or not quick.seconds > 0:
        return math.nan
    return slow.seconds / quick.seconds


def _outcome(outcome: PaperResult | None) -> Cells:
    """Return the paper's three columns."""
    return (NONE,) * 3 if outcome is None else tuple(map(_plain, (outcome.seconds, outcome.train, outcome.test)))


def _seconds(result: Result | None) -> str:
    """Return the seconds of all epochs as text, with a tilde if the run was stopped earlier."""
    if result is None or not math.isfinite(result.seconds):
        return NONE
    return ("" if result.whole else "~") + f"{result.seconds:.3g}"


def _plain(value: float | None) -> str:
    return NONE if value is None or not math.isfinite(value) else f"{value:.3g}" if value < 1e3 else f"{value:,.0f}"


def _times(value: float) -> str:
    return NONE if not math.isfinite(value) else f"{value:.1f}" if value >= 9.95 else f"{value:.2g}"


def _size(data: Row) -> str:
    names = {"rows": "rows", "width": "features", "edges": "edges", "vertices": "vertices", "labels": "labels"}
    names |= {name: name for name in ("ratings", "users", "items")}
    return ", ".join(f"{number(data, name):,.0f} {words}" for name, words in names.items() if name in data)


def _scaled(about: Row) -> str:
    return f"{100 * float(about['plan']['scale']):g} %"


def _crew(about: Row) -> str:
    return crew(int(about["plan"]["workers"]))


def _stopped(about: Row, found: Sequence[Found]) -> list[str]:
    late = [
        f"{result.method} on {each.paper.name} after {result.reached:.3g} epochs"
        for each in found
        for result in each.results.values()
        if 0 < result.reached < result.epochs and result.status.startswith("timed out")
    ]
    limit = duration(float(about["plan"]["timeout"]))
    return [f"Stopped after {limit} of training, and extrapolated (~): {', '.join(late)}."] if late else []
