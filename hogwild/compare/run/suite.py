"""Runs the paper's experiments: six data sets, the methods of the table, one protocol, rows saved cell by cell.

The protocol is the paper's: 20 epochs, a step multiplied by 0.9 after each, and the largest step of a grid that
converges with one worker, the same for all methods. Here a step converges if the serial run with it ends ok and within
``SLACK`` of the way of the best run, and a grid grows at an end that was best or still converged. Seconds are those of
training alone, over all epochs.

Finished runs are not repeated, so the same command resumes after an interruption; tables are made from the rows alone
(``compare/report/suite.py``).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hogwild import machine
from hogwild.compare.run.harness import ComparisonProgress
from hogwild.compare.run.ledger import Ledger
from hogwild.compare.run.methods import find
from hogwild.compare.run.paper import DECAY, PAPER, PaperSet
from hogwild.compare.run.plan import FACTORS, TUNING_SEED, Cell
from hogwild.compare.run.problems import SUBJECTS
from hogwild.compare.run.runner import ComparedData, Judge, Pools, Row, refused, run_cell
from hogwild.config import TrainConfig
from hogwild.errors import UsageError

if TYPE_CHECKING:
    from hogwild.data.cache import Cache

RIVALS = ("hogwild", "tiered", "aig", "round-robin", "locked")  # in addition to serial
SLACK = 0.05  # share of the way from the start to the best end of a trial
EXTENSIONS = 4  # most steps by which a grid grows
FORMAT = 1


@dataclass(frozen=True)
class SuitePlan:
    """Plan of one run of the suite.

    Attributes
    ----------
    scale : float
        Fraction of the paper's sizes.
    epochs, workers, seeds, first_seed : int
        Numbers for the runs; serial has one worker.
    methods : tuple of str
    host : str
    timeout : float
        Seconds of training after which a run is stopped; its seconds are then extrapolated and marked as such.
    oversubscribe : bool
        Also run methods that wait for locks with more workers than cores.
    """

    scale: float = 0.01
    epochs: int = 20
    workers: int = 2
    seeds: int = 1
    first_seed: int = 0
    methods: tuple[str, ...] = ("serial", *RIVALS)
    host: str = "threads"
    timeout: float = 60.0
    oversubscribe: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.scale <= 1:
            raise UsageError(f"scale={self.scale:g}: expected a share of the paper's sizes, above 0 and at most 1")
        for name in ("epochs", "workers", "seeds"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name}={getattr(self, name)}: expected at least 1")
        if self.host == "simulator":
            raise UsageError("host='simulator': the paper's table is of seconds, which it has none of")

    def base(self, each: PaperSet) -> TrainConfig:
        """Return the objective on one set, with the paper's schedule."""
        return TrainConfig(
            problem=each.problem,
            schedule="epoch",
            decay=DECAY,
            host=self.host,
            epochs=self.epochs,
            oversubscribe=self.oversubscribe,
            **each.options,
        )


class Suite:
    """Reproduces the paper's table with stand-ins for its data.

    Parameters
    ----------
    plan : SuitePlan
    cache : Cache, optional
        Where generated data are kept.
    command : str
        Command line, for the report.
    """

    def __init__(self, plan: SuitePlan, cache: Cache | None = None, command: str = "") -> None:
        self.plan, self.cache, self.command = plan, cache, command
        self.cores = machine.physical_cores()
        self.progress = ComparisonProgress("starting")
        self._spent = self._done = self._all = 0.0  # seconds, and units of work

    @property
    def identity(self) -> str:
        """Return a hash of everything that determines the cells and their meaning."""
        asked = dataclasses.asdict(self.plan) | {
            "suite": "paper", "format": FORMAT, "cpu": machine.cpu_model(), "cores": self.cores,
            "sets": [(each.name_at(self.plan.scale), self.plan.base(each).to_json()) for each in PAPER],
            **machine.versions(),
        }  # fmt: skip
        return hashlib.blake2b(json.dumps(asked, sort_keys=True).encode(), digest_size=12).hexdigest()

    def listed(self) -> Iterator[tuple[str, str, int]]:
        """Yield each set's name, its data, and its number of runs, including those that are refused."""
        runs = len(FACTORS) + len(self.plan.methods) * self.plan.seeds
        for each in PAPER:
            yield each.name, each.name_at(self.plan.scale), runs

    def run(self, out: str | Path) -> None:
        """Run every cell that ``out`` does not hold yet; results are in its ``rows.jsonl``.

        Raises
        ------
        UsageError
            If the directory holds another comparison.
        OutputError
            If it cannot be written.
        """
        ledger = Ledger(out, self.identity)
        self.progress.total = sum(runs for *_, runs in self.listed())
        self._all = sum(map(self._work, PAPER))
        try:
            if ledger.about is None:
                ledger.begin(self._about())
            with Pools(self.plan.host) as pools:
                for each in PAPER:
                    self._run_set(each, ledger, pools)
        finally:
            ledger.close()

    # ---- one set

    def _run_set(self, each: PaperSet, ledger: Ledger, pools: Pools) -> None:
        if self._finished(each, ledger):
            self._all -= self._work(each)
            self.progress.done += len(FACTORS) + len(self.plan.methods) * self.plan.seeds
            return
        base, plan = self.plan.base(each), self.plan
        self._note(f"{each.name}: making the data")
        train, test = self._data(each)
        subject = SUBJECTS[each.problem]
        task = ComparedData(train, test, base, each.name_at(plan.scale), plan.timeout)
        first = each.key + "/data"
        if first not in ledger.cells:
            facts = subject.facts(base, train, test) | {"data": task.data, "fingerprint": subject.fingerprint(train)}
            middle = subject.first_step(base, train)
            facts |= {"steps": [middle * factor for factor in FACTORS]}
            ledger.add([_named(each, {"phase": "data", "cell": "data", "cell_rows": 1, "epoch": 0} | facts)])
        judge = Judge(task)
        for count, cell in enumerate(self._cells(each, ledger), 1):
            if cell.phase == "tuning" and count > len(FACTORS):
                self.progress.total += 1
            self._run_cell(cell, each, task, ledger, pools, judge)

    def _cells(self, each: PaperSet, ledger: Ledger) -> Iterator[Cell]:
        """Yield all runs on a set in order; each is decided from the ledger after the one before."""
        plan = self.plan
        trials: dict[float, list[Row]] = {}
        missing = list(ledger.cells[each.key + "/data"][0]["steps"])
        while missing:
            for step in missing:
                cell = Cell("tuning", "serial", 1, step, plan.first_seed + TUNING_SEED)
                yield cell
                trials[step] = ledger.cells[f"{each.key}/{cell.name}"]
            missing = beyond(trials) if len(trials) < len(FACTORS) + EXTENSIONS else []
        step = largest_that_converges(trials)
        yield from (
            Cell("reported", name, plan.workers if find(name).parallel else 1, step, plan.first_seed + k, ("given",))
            for k in range(plan.seeds)
            for name in plan.methods
        )

    def _run_cell(
        self, cell: Cell, each: PaperSet, task: ComparedData, ledger: Ledger, pools: Pools, judge: Judge
    ) -> None:
        method = find(cell.method)
        if f"{each.key}/{cell.name}" not in ledger.cells:
            self._note(f"{each.name}: {cell.name.replace('/', ' ')}")
            began = time.monotonic()
            reason = method.refusal(task.base, task.rows, cell.workers, self.cores)
            if reason is None:
                found = run_cell(cell, task, self.plan.epochs, pools, judge)
            else:
                found = [refused(cell, task, f"refused: {reason}")]
            ledger.add([_named(each, row) for row in found])
            self._spent += time.monotonic() - began
            self._done += _units(each) * method.cost
        else:
            self._all -= _units(each) * method.cost
        self.progress.done += 1

    def _finished(self, each: PaperSet, ledger: Ledger) -> bool:
        """Return whether a set is complete, so that its data need not be made."""
        if each.key + "/data" not in ledger.cells:
            return False
        return all(f"{each.key}/{cell.name}" in ledger.cells for cell in self._cells(each, ledger))

    def _data(self, each: PaperSet) -> tuple[Any, Any]:
        """Return data to train and to test on."""
        name, held, seed = each.name_at(self.plan.scale), each.held_out, self.plan.first_seed
        if each.problem == "linear":
            from hogwild.data.rows.source import open_data

            assert callable(held)
            train = open_data(name, cache=self.cache)
            return train, open_data(held(self.plan.scale), cache=self.cache, width=train.width, beyond="ignore")
        if each.problem == "completion":
            from hogwild.data.ratings.source import open_ratings

            assert isinstance(held, float)
            return open_ratings(name, cache=self.cache).split(held, seed)
        from hogwild.data.graphs.source import open_graph

        return open_graph(name), None

    # ---- reporting

    def _about(self) -> Row:
        plan = self.plan
        return {
            "phase": "suite", "suite": "paper", "comparison": self.identity, "command": self.command,
            "plan": dataclasses.asdict(plan), "sets": [each.key for each in PAPER], **machine.machine_fields(),
        }  # fmt: skip

    def _work(self, each: PaperSet) -> float:
        """Units of work of all runs on a set."""
        plan = self.plan
        return _units(each) * (len(FACTORS) + plan.seeds * sum(find(name).cost for name in plan.methods))

    def _note(self, label: str) -> None:
        self.progress.label = label
        left = self._all - self._done
        self.progress.left = left * self._spent / self._done if self._done else None


def largest_that_converges(trials: dict[float, list[Row]]) -> float:
    """Largest step whose serial run ended ok and within ``SLACK`` of the way of the best run; else the smallest."""
    ends = {step: rows[-1]["objective"] for step, rows in trials.items() if rows[-1]["status"] == "ok"}
    ends = {step: value for step, value in ends.items() if value is not None}
    if not ends:
        return min(trials)
    start = max(rows[0]["objective"] for rows in trials.values() if rows[0]["objective"] is not None)
    best = min(ends.values())
    return max(step for step, value in ends.items() if value - best <= SLACK * max(start - best, 0.0))


def beyond(trials: dict[float, list[Row]]) -> list[float]:
    """Return the next step to try, if the best is the smallest tried so far, or the largest still converges."""
    ok = {step: rows[-1]["objective"] for step, rows in trials.items() if rows[-1]["status"] == "ok"}
    smallest, largest = min(trials), max(trials)
    if not ok or min(ok, key=lambda step: (ok[step], step)) == smallest:
        return [smallest / 2]
    return [2 * largest] if largest_that_converges(trials) == largest else []


def _named(each: PaperSet, row: Row) -> Row:
    """Return a row of one set with a cell name that is unique in the suite."""
    return row | {"set": each.key, "cell": f"{each.key}/{row['cell']}"}


def _units(each: PaperSet) -> float:
    """Approximate cost of a run on a set, in arbitrary units."""
    return {"RCV1": 8.0, "Netflix": 10.0, "KDD": 25.0, "Jumbo": 15.0, "DBLife": 5.0, "Abdomen": 15.0}[each.name]
