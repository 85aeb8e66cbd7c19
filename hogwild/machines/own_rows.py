"""Machines that have rows of their own: what they tell each other of them, at the start and at every evaluation.

At the start all tell each other counts of their rows, and from the sums pose the same problem: classes, features,
weights of rows, shares of the penalty. If all have opened the same rows, to train or to test on, each keeps a range of
them for the whole run. In an evaluation every machine sums the losses of its own rows; machine 0 adds the sums up in
the order of the machines, so the objective is that of all rows together, to the rounding of float64. The area under the
ROC curve is no sum, and not measured.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from hogwild.config import TrainConfig
from hogwild.data.rows.container import Rows, shortest
from hogwild.data.rows.degrees import Totals
from hogwild.errors import HogwildWarning, InputError, TrainingError
from hogwild.machines.cluster import Cluster
from hogwild.problems.protocol import Sums, case_of
from hogwild.training.checkpoint import fingerprint

CODINGS = ((-1.0, 1.0), (0.0, 1.0), (1.0, 2.0))  # of two classes, which data must not mix


def settle(cluster: Cluster, rows: Rows, test: Rows | None, config: TrainConfig) -> tuple[Rows, Rows | None]:
    """Return this machine's training rows, with the totals of all machines, and its test rows.

    Raises
    ------
    InputError
        One line, the same on all machines, if their rows cannot be trained on together.
    """
    share, test = _shares_of(cluster, rows, test)
    rows = rows if share is None else share
    case: Any = case_of(config.problem)  # that of linear models, which has sums; others are refused by the config
    facts, degrees = case.own_facts(config, rows)
    every = cluster.gather_notes({"kind": "facts", "tested": test is not None} | facts, degrees)
    if why := _unlike([cluster.name(k) for k in range(cluster.machines)], every, config):
        raise InputError(why)
    total = np.zeros(max(each["width"] for each in every), np.int64)
    for each in every:
        total[: each["width"]] += each["arrays"][0]
    return Totals(every, total).given_to(rows), test


def _shares_of(cluster: Cluster, *examples: Rows | None) -> list[Rows | None]:
    """Return the training rows and the test rows, or this machine's range of those that all machines have opened."""
    prints = [None if rows is None else fingerprint(rows) for rows in examples]
    columns = [*zip(*(note["prints"] for note in cluster.gather_notes({"kind": "rows", "prints": prints})))]
    same, trained = [len(set(column)) == 1 for column in columns], columns[0]
    twice = next((k for k, each in enumerate(trained) if trained.index(each) < k), None)
    if twice is not None and not same[0]:
        names = cluster.name(twice), cluster.name(trained.index(trained[twice]))
        raise InputError(f"{names[0]} and {names[1]} opened the same rows: give every machine its own, or all the same")
    return [_range_of(rows, cluster) if shared else rows for rows, shared in zip(examples, same)]


def _range_of(rows: Rows | None, cluster: Cluster) -> Rows | None:
    if rows is None or len(rows) < cluster.machines:
        return rows
    first, last = (len(rows) * k // cluster.machines for k in (cluster.number, cluster.number + 1))
    return rows.block(first, last)


def _unlike(names: list[str], every: list[dict[str, Any]], config: TrainConfig) -> str:
    """Return why the machines' rows cannot be trained on together; empty if they can."""
    first, labels = every[0], [facts["labels"] for facts in every]
    for name, facts in zip(names, every):
        if facts["features"] != first["features"]:
            return (
                f"{name} differs from {names[0]}: the features of its rows were hashed, or made of a table's columns, "
                "in another way: give all of them one store, of which each keeps a range"
            )
        if facts["tested"] and not first["tested"]:
            return f"{name} has test rows and {names[0]} has none: give machine 0 some too"
    if not any(labels):
        return ""
    coded = [k for k, each in enumerate(labels) if tuple(each) in CODINGS]
    unlike = next((k for k in coded if labels[k] != labels[coded[0]]), None)
    if unlike is not None and all(len(each) < 3 for each in labels):
        strange, usual = (", ".join(map(shortest, labels[k])) for k in (unlike, coded[0]))
        return f"{names[unlike]} has the labels {strange}, and {names[coded[0]]} {usual}: write them alike"
    only = shortest(labels[0][0])
    if len({label for each in labels for label in each}) < 2:
        rows = sum(facts["rows"] for facts in every)
        return f"all {rows} rows of all machines have the label {only}: loss {config.loss} needs two or more classes"
    if len(labels[0]) < 2 and config.step is None and config.schedule != "optimal":
        return (
            f"{names[0]}, which finds the step, has rows of the label {only} only: give step (--step), or have a "
            "machine with more classes be machine 0"
        )
    return ""


class Evaluation:
    """Machine 0's evaluation of rows that lie on all machines.

    Rows of a machine that is gone are left out from then on, with a warning.
    """

    def __init__(self, cluster: Cluster, totals: Totals) -> None:
        self._cluster = cluster
        self._each = totals.each
        self._number = 0
        self._gone: set[int] = set()

    def __call__(self, case: Any, solution: tuple[np.ndarray, ...], known: bool) -> dict[str, float | None]:
        """Evaluate; ``known`` says whether the solution is that of the array that all machines have."""
        cluster, number = self._cluster, self._number + 1
        self._number = number
        cluster.tell({"kind": "evaluate", "number": number}, None, *(() if known else solution))
        parts = [case.sums(solution)]
        for other in range(1, cluster.machines):
            try:
                note: dict[str, Any] = {}
                while note.get("number") != number:
                    note = cluster.next_note(other, ("sums",))
                parts.append([Sums(np.array(totals), rows) for totals, rows in note["parts"]])
            except TrainingError as error:
                self._miss(other, str(error))
        return case.facts(solution, parts)

    def _miss(self, machine: int, reason: str) -> None:
        if machine not in self._gone:
            self._gone.add(machine)
            rest = sum(rows for k, rows in enumerate(self._each) if k not in self._gone)
            message = f"{reason}; its {self._each[machine]:,} rows are lost: what follows is of the other {rest:,}"
            warnings.warn(message, HogwildWarning, stacklevel=2)


def answer(cluster: Cluster, case: Any, note: dict[str, Any], own: tuple[np.ndarray, ...]) -> None:
    """Do a machine's part of an evaluation, of the solution that was sent, or else of its ``own``."""
    parts = [(part.totals.tolist(), part.rows) for part in case.sums(tuple(note["arrays"]) or own)]
    cluster.tell({"kind": "sums", "number": note["number"], "parts": parts}, [0])
