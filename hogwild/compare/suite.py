"""Runs the paper's experiments: six data sets, the methods of the table, one protocol, rows kept cell by cell.

The protocol is the paper's: 20 epochs, a step that falls to 0.9 of itself at each, and the largest step of a grid that
converges with one worker, the same for all methods. Here a step converges if the serial run with it ends ok and within
``SLACK`` of the way of the best of them, and a grid grows at an end that was best or still converged. Seconds are those
of training alone, of all epochs.

What is finished is not run again, so the same command goes on after an interruption; tables are made of the rows alone
(``suite_report.py``).
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
from hogwild.compare.harness import Progress
from hogwild.compare.ledger import Ledger
from hogwild.compare.methods import METHODS
from hogwild.compare.paper import DECAY, PAPER, PaperSet
from hogwild.compare.plan import FACTORS, TUNING_SEED, Cell
from hogwild.compare.runner import Judge, Pools, Row, Task, refused, run_cell
from hogwild.compare.subjects import SUBJECTS
from hogwild.config import TrainConfig
from hogwild.errors import UsageError

if TYPE_CHECKING:
    from hogwild.data.cache import Cache

RIVALS = ("hogwild", "tiered", "aig", "round-robin", "locked")  # beside serial
SLACK = 0.05  # of the way from the start to the best end of a trial
EXTENSIONS = 4  # steps by which a grid grows at most
FORMAT = 1


@dataclass(frozen=True)
class SuitePlan:
    """What one run of the suite measures.

    Attributes
    ----------
    scale : float
        Share of the paper's sizes.
    epochs, workers, seeds, first_seed : int
        Of the runs; serial has one worker.
    methods : tuple of str
    host : str
    timeout : float
        Seconds of training after which a run is stopped; its seconds are then extrapolated, and it is said.
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
        """What is minimised on one set, by the paper's schedule."""
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
    """The paper's table, with stand-ins for its data.

    Parameters
    ----------
    plan : SuitePlan
    cache : Cache, optional
        Where generated data are kept.
    command : str
        For the report.
    """

    def __init__(self, plan: SuitePlan, cache: Cache | None = None, command: str = "") -> None:
        self.plan, self.cache, self.command = plan, cache, command
        self.cores = machine.physical_cores()
        self.progress = Progress("starting")
        self._spent = self._done = self._all = 0.0  # seconds, and units of work

    @property
    def identity(self) -> str:
        """A hash of everything that decides which cells there are and what they mean."""
        asked = dataclasses.asdict(self.plan) | {
            "suite": "paper", "format": FORMAT, "cpu": machine.cpu_model(), "cores": self.cores,
            "sets": [(each.name_at(self.plan.scale), self.plan.base(each).to_json()) for each in PAPER],
            **machine.versions(),
        }  # fmt: skip
        return hashlib.blake2b(json.dumps(asked, sort_keys=True).encode(), digest_size=12).hexdigest()

    def listed(self) -> Iterator[tuple[str, str, int]]:
        """Of each set its name, its data, and how many runs there are, those that are refused included."""
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
        task = Task(train, test, base, each.name_at(plan.scale), plan.timeout)
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
        """All runs on a set in their order, decided from the ledger as it is when the one before has been run."""
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
            Cell("reported", name, plan.workers if METHODS[name].parallel else 1, step, plan.first_seed + k, ("given",))
            for k in range(plan.seeds)
            for name in plan.methods
        )

    def _run_cell(self, cell: Cell, each: PaperSet, task: Task, ledger: Ledger, pools: Pools, judge: Judge) -> None:
        method = METHODS[cell.method]
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
        """Whether nothing of a set is missing: then its data are not even made."""
        if each.key + "/data" not in ledger.cells:
            return False
        return all(f"{each.key}/{cell.name}" in ledger.cells for cell in self._cells(each, ledger))

    def _data(self, each: PaperSet) -> tuple[Any, Any]:
        """Data to train and to test on."""
        name, held, seed = each.name_at(self.plan.scale), each.held_out, self.plan.first_seed
        if each.problem == "linear":
            from hogwild.data.source import open_data

            assert callable(held)
            train = open_data(name, cache=self.cache)
            return train, open_data(held(self.plan.scale), cache=self.cache, width=train.width, beyond="ignore")
        if each.problem == "completion":
            from hogwild.data.rating_source import open_ratings

            assert isinstance(held, float)
            return open_ratings(name, cache=self.cache).split(held, seed)
        from hogwild.data.graphs import open_graph

        return open_graph(name), None

    # ---- what is said

    def _about(self) -> Row:
        plan = self.plan
        return {
            "phase": "suite", "suite": "paper", "comparison": self.identity, "command": self.command,
            "plan": dataclasses.asdict(plan), "sets": [each.key for each in PAPER], **machine.machine_fields(),
        }  # fmt: skip

    def _work(self, each: PaperSet) -> float:
        """Units of work of all runs on a set."""
        plan = self.plan
        return _units(each) * (len(FACTORS) + plan.seeds * sum(METHODS[name].cost for name in plan.methods))

    def _note(self, label: str) -> None:
        self.progress.label = label
        left = self._all - self._done
        self.progress.left = left * self._spent / self._done if self._done else None


def largest_that_converges(trials: dict[float, list[Row]]) -> float:
    """The largest step whose serial run ended ok and within ``SLACK`` of the way of the best; else the smallest."""
    ends = {step: rows[-1]["objective"] for step, rows in trials.items() if rows[-1]["status"] == "ok"}
    ends = {step: value for step, value in ends.items() if value is not None}
    if not ends:
        return min(trials)
    start = max(rows[0]["objective"] for rows in trials.values() if rows[0]["objective"] is not None)
    best = min(ends.values())
    return max(step for step, value in ends.items() if value - best <= SLACK * max(start - best, 0.0))


def beyond(trials: dict[float, list[Row]]) -> list[float]:
    """The next step to try, if the best lies at the lower end of what was tried, or the largest still converges."""
    ok = {step: rows[-1]["objective"] for step, rows in trials.items() if rows[-1]["status"] == "ok"}
    smallest, largest = min(trials), max(trials)
    if not ok or min(ok, key=lambda step: (ok[step], step)) == smallest:
        return [smallest / 2]
    return [2 * largest] if largest_that_converges(trials) == largest else []


def _named(each: PaperSet, row: Row) -> Row:
    """A row of one set: its cell's name is unique in the suite."""
    return row | {"set": each.key, "cell": f"{each.key}/{row['cell']}"}


def _units(each: PaperSet) -> float:
    """About what a run on a set costs, in any unit."""
    return {"RCV1": 8.0, "Netflix": 10.0, "KDD": 25.0, "Jumbo": 15.0, "DBLife": 5.0, "Abdomen": 15.0}[each.name]
