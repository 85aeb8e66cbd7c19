"""The tables of a report as text: the page, the terminal and a reader's spreadsheet all show the same one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hogwild.compare.report.cells import (
    NONE,
    aim,
    digits,
    duration,
    listed,
    millions,
    percent,
    quartiles,
    step_text,
    times,
)
from hogwild.compare.report.results import (
    METRICS,
    ComparisonResult,
    Group,
    Row,
    number,
    serial,
    speedup,
    spread,
    step_of,
)
from hogwild.compare.report.verdict import choice, verdict

Cells = tuple[str, ...]
#: Columns of words rather than figures.
WORDS = {"comparison", "method", "phase", "what", "why", "value"}
#: Fields of the first row by the line in which they are shown.
FACTS = {
    "began": "began",
    "data": "data rows width nnz test_rows ratings users items test_ratings vertices edges labels terminals examples "
    "test_examples parameters",
    "sparsity": "omega delta rho",
    "minimised": "loss l1 l2 l2_factors rank loss_param normalize class_weight penalty negatives intercept biases",
    "module": "model optimizer batch",
    "objective": "start_objective objective optimum_how",
    "plan": "epochs seeds_list step_grid schedule order link",
    "machine": "cpu cores caches load load_after affinity gpu host",
    "command": "command",
}
NAMES = {
    **dict.fromkeys(["began", "data", "cpu", "command", "gpu", "model", "optimum_how"], ""),
    "width": "features",
    "nnz": "nonzeros",
    "omega": "Ω",
    "delta": "Δ",
    "rho": "ρ",
    "start_objective": "at the start",
    "objective": "at the optimum",
    "seeds_list": "seeds",
    "step_grid": "steps",
    "load": "load before",
    "affinity": "may use CPUs",
}
TRADED = ("messages", "bytes_sent", "waited_seconds")
TARGETS = (
    "Medians over the seeds, quartiles in brackets. A target of 1 % is the objective with 1 % of the way from the "
    "start to the optimum left. When it was reached is interpolated between two evaluations, linear in seconds (or "
    "epochs) on the logarithm of what is left. Runs that did not get there are not in a median: 3/5 says how many "
    "are. The last columns are of the last evaluation of runs that ended ok. The verdict takes the best of each "
    "kind by these medians, which favours a kind of which more methods were compared."
)
FACTORS = (
    "Set-up: from the call to the first epoch, with workers that run, compiled kernels and data in memory: laying the "
    "data out in the program's own form. The clock of all other tables leaves it out, and the figure has both. "
    "Speed-up over serial = statistical factor (epochs that serial needs over epochs of the method) x hardware "
    "factor (time of a serial epoch over time of an epoch), at the hardest target that at least half of the runs "
    "of both reached."
)
UNSTEADY = (
    "WARNING: the times of an epoch of {} spread by more than 25 % of their median (quartile to quartile): the machine "
    "was not quiet."
)
CONFLICTS = (
    "Staleness: how many updates of others fall between the reading of a row's weights and the storing of its update. "
    "Lost: weights whose update was overwritten by another's, for each update of a row. In flight: examples that a GPU "
    "has in hand at the same time. The speed is millions a second."
)
TRADING = (
    "Time and megabytes of all replicas until a target was reached: medians over seeds. Link: {}. Messages take its "
    "latency, and occupy the lines of both sides for as long as its bandwidth says. Waited: share of the replicas' "
    "time in which they waited for messages. Time is virtual: a row takes as long as the link says."
)


@dataclass
class Table:
    """Rows of text with headings, and sentences below."""

    title: str
    columns: Cells
    rows: list[Cells]
    notes: list[str] = field(default_factory=list)

    @property
    def texts(self) -> tuple[bool, ...]:
        """Which columns hold words rather than figures."""
        return tuple(name in WORDS or self.columns[0] == "what" for name in self.columns)


def cells_of(source: ComparisonResult, group: Group, targets: Iterable[float]) -> dict[str, str]:
    """Return what tables show of a group, by heading."""
    last = {
        name: group.last(name) for name in (*TRADED, "objective", "gap", "in_flight", "setup_seconds", source.clock)
    }
    at, statistical, hardware = speedup(group, serial(source.groups), source)
    batch = number(group.runs[0].first, "batch")
    cells = {
        "comparison": source.label,
        "method": group.method,
        "workers": str(group.workers),
        "replicas": str(group.replicas),
        "step": step_text(group.step),
        "ended ok": f"{group.ended_well}/{len(group.runs)}",
        "left at the end": quartiles(last["gap"], percent),
        "objective": f"{last['objective'].median:.5g}" if last["objective"] else NONE,
        "an epoch": quartiles(group.epoch_seconds if source.timed else None, duration),
        "set-up": quartiles(last["setup_seconds"] if source.timed else None, duration),
        "at": NONE if math.isnan(at) else aim(at),
        "statistical": times(statistical),
        "hardware": times(hardware),
        "speed-up": times(statistical * hardware),
        "minibatch": NONE if math.isnan(batch) else f"{batch:,.0f}",
        "in flight": quartiles(last["in_flight"], digits),
        "staleness": quartiles(group.over_epochs("staleness_mean"), digits),
        "at most": quartiles(group.over_epochs("staleness_max"), "{:.0f}".format),
        "lost": quartiles(group.lost_share, digits),
    }
    name, _, share = source.metric or METRICS[0]
    if score := group.last(name):
        cells["metric"] = f"{100 * score.median:.2f} %" if share else f"{score.median:.4g}"
    for words in ("nonzeros", "updates", "samples"):
        if speed := group.over_epochs(f"{words}_per_second"):
            cells["speed"] = f"{quartiles(speed, millions)} {words}"
    messages, size, waited, total = (last[name] for name in (*TRADED, source.clock))
    if messages and size and group.most_epochs:
        cells["messages an epoch"] = digits(messages.median / group.most_epochs)
        cells["MB an epoch"] = digits(1e-6 * size.median / group.most_epochs)
    if waited and total and total.median:
        cells["waited"] = f"{100 * waited.median / (total.median * group.replicas):.0f} %"
    show = duration if source.in_seconds else digits
    for eps in targets:
        count = group.arrivals(eps)
        some = "" if count in (0, len(group.runs)) else f" {count}/{len(group.runs)}"
        reached = group.reached(eps, source.clock)
        cells[f"to {aim(eps)}"] = quartiles(reached, show) + some if reached or count else "never"
        epochs = group.reached(eps, "epoch")
        cells[f"epochs to {aim(eps)}"] = quartiles(epochs, digits) + some if epochs else "never"
        cells[f"MB to {aim(eps)}"] = quartiles(group.reached(eps, "bytes_sent"), millions)
    return cells


def tables(sources: Sequence[ComparisonResult]) -> list[Table]:
    """Return all tables that have rows; rows of several comparisons follow one another."""
    eps = sorted({each for source in sources for each in source.eps}, reverse=True)
    best = [(source, group, cells_of(source, group, eps)) for source in sources for group in source.groups]
    several = len(sources) > 1
    metrics = " / ".join(dict.fromkeys((source.metric or METRICS[0])[1] for source in sources))
    to, epochs_to, megabytes_to = ([f"{what}to {aim(each)}" for each in eps] for what in ("", "epochs ", "MB "))

    def view(title: str, names: list[str], *notes: str, linked: bool = False) -> Table:
        """Return these columns of the methods that have any of their figures."""
        shown = [cells for source, _, cells in best if source.linked or not linked]
        shown = [cells for cells in shown if any(cells.get(name, NONE) != NONE for name in names)]
        names = ["comparison", "method", "workers", *names]
        rows = [tuple(cells.get(name, NONE) for name in names) for cells in shown]
        return Table(title, tuple(metrics if name == "metric" else name for name in names), rows, list(notes))

    links = dict.fromkeys(f"{source.label}: {source.head['link']}" for source in sources if source.linked)
    tuned = any(source.tuned for source in sources)
    title = "Time to target, " + ("each method at its own best step" if tuned else "everyone at the given step")
    notes = [f"{source.label}: " * several + note for source in sources for note in notes_of(source)]
    paces = [(group, group.epoch_seconds) for source, group, _ in best if source.timed]
    wide = listed(f"{group.method} on {group.workers}" for group, pace in paces if pace and pace.wide)
    warnings = [f"{source.crowd}: these times are the scheduler's." for source in sources if source.crowd]
    warnings += [UNSTEADY.format(wide)] if wide else []
    traded = ["replicas", "step", *to, *megabytes_to, "messages an epoch", "MB an epoch", "waited", "staleness"]
    factors = ["set-up", *epochs_to, "an epoch", "at", "statistical", "hardware", "speed-up"]
    made = [
        _index(sources if several else []),
        view("Replicas that trade", traded, TRADING.format("; ".join(links)), linked=True),
        view(title, [*to, "left at the end", "objective", "metric", "step", "ended ok"], TARGETS, *notes),
        view("Epochs, their time, and the speed-up over serial", factors, FACTORS, *dict.fromkeys(warnings)),
        view("Speed and conflicts", ["speed", "minibatch", "in flight", "staleness", "at most", "lost"], CONFLICTS),
        _delayed(sources),
        _failed(sources),
        _conditions(sources),
    ]
    for each in made:
        empty = [{*column} <= {NONE, ""} for column in zip(*each.rows)]
        empty[:1] = [not several and each.columns[0] == "comparison"]
        kept = [place for place, none in enumerate(empty) if not none]
        each.columns = tuple(each.columns[place] for place in kept)
        each.rows = [tuple(row[place] for place in kept) for row in each.rows]
    return [each for each in made if each.rows]


def _index(sources: Sequence[ComparisonResult]) -> Table:
    """Return a line a comparison, the newest first."""
    names = ("began", "data", "machine", "versions")
    rows = []
    for source in sources:
        facts = facts_of(source.head)
        rows.append((source.label, choice(source) or verdict(source)[0], *(facts.get(name, NONE) for name in names)))
    return Table("The comparisons", ("what", "which method", *names), rows)


def notes_of(source: ComparisonResult) -> list[str]:
    """Return what there is to say of the targets of one comparison."""
    return [*source.notes, *floor_of(source), *tuning_of(source)]


def floor_of(source: ComparisonResult) -> Iterator[str]:
    """Say what serial differs from itself by, at the hardest target at which enough seeds tell."""
    for eps in reversed(source.eps):
        if (floor := source.noise(eps)).sure:
            yield (
                f"Serial against serial under another seed: ratios of {floor.low:.2f}–{floor.high:.2f} to {aim(eps)}, "
                "which are noise."
            )
            return


def tuning_of(source: ComparisonResult) -> Iterator[str]:
    """Say which steps were tried, and whose best one is at an end of them."""
    steps = sorted({run.step for run in source.tuning if run.step is not None})
    if len(steps) > 1:
        tried = " ".join(map(step_text, steps))
        yield f"Every method was tried at the steps {tried}, on a seed that is not among those reported."
        at_end = [
            f"{group.method} on {group.workers}" for group in source.groups if group.step in (steps[0], steps[-1])
        ]
        if at_end:
            yield f"These steps end at the best of {listed(at_end)}: one beyond may do better."


def _delayed(sources: Sequence[ComparisonResult]) -> Table:
    """Return speed-ups with more expensive gradients, one column per delay."""
    delays = sorted({float(row["gradient_delay"]) for source in sources for row in source.delays})
    rows: list[Cells] = []
    for source in sources:
        spent: dict[tuple[str, int], dict[tuple[float, int], float]] = {}  # seconds of an example by delay and seed
        for row in source.delays:
            seconds = number(row, "epoch_seconds") / number(row, "delay_rows")
            by_delay = spent.setdefault((row["method"], row["workers"]), {})
            by_delay[float(row["gradient_delay"]), row["seed"]] = seconds
        alone = spent.get(("serial", 1), {})
        for (method, workers), by_delay in spent.items():
            serially = method == "serial"
            cells = []
            for delay in delays:
                each = {key: seconds for key, seconds in by_delay.items() if key[0] == delay}
                ratios = (alone.get(key, math.nan) / seconds for key, seconds in each.items())
                cells.append(
                    quartiles(spread(each.values()), duration) if serially else quartiles(spread(ratios), times)
                )
            rows.append((source.label, method + ", an example" * serially, str(workers), *cells))
    headings = [f"+ {duration(delay)}" if delay else "as it is" for delay in delays]
    return Table(
        "Speed-up where gradients cost more",
        ("comparison", "method", "workers", *headings),
        rows,
        ["The delay is spent in every gradient, within the kernel. Speed-ups are over serial with the same delay."],
    )


def _failed(sources: Sequence[ComparisonResult]) -> Table:
    """Return every cell that did not end ok; seeds that ended alike share a line."""
    alike: dict[Cells, list[str]] = {}
    for source in sources:
        for row in source.not_ok:
            delay = number(row, "gradient_delay")
            more = f", delay {duration(delay)}" if row["phase"] == "delay" and delay > 0 else ""
            step = step_text(step_of(row)) + more
            line = source.label, row["phase"], row["method"], str(row["workers"]), step, row["status"]
            alike.setdefault(line, []).append(str(row["seed"]))
    rows = [(*line[:-1], listed(seeds), line[-1]) for line, seeds in alike.items()]
    columns = ("comparison", "phase", "method", "workers", "step", "seeds", "why")
    return Table("Runs that did not end ok", columns, rows, ["Nothing is dropped."])


def _conditions(sources: Sequence[ComparisonResult]) -> Table:
    """Return data, machine and plan, one column per comparison."""
    columns = [facts_of(source.head) for source in sources]
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [(name, *(column.get(name, NONE) for column in columns)) for name in names]
    headings = ("what", *(source.label for source in sources)) if len(sources) > 1 else ("what", "value")
    return Table("What was compared, and where", headings, rows)


def facts_of(head: Row) -> dict[str, str]:
    """Return the conditions of one comparison, by name."""
    lines = {
        line: [name for name in names.split() if head.get(name) not in (None, "none", "")]
        for line, names in FACTS.items()
    }
    facts = {
        line: ", ".join(f"{NAMES.get(name, name.replace('_', ' '))} {_shown(head[name])}".strip() for name in names)
        for line, names in lines.items()
        if names
    }
    versions = (f"{name.removeprefix('version_')} {head[name]}" for name in head if name.startswith("version_"))
    facts |= {"versions": ", ".join(versions), "in memory": memory(head)}
    return {name: text for name, text in facts.items() if text}


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name} {size}" for name, size in value.items())
    if isinstance(value, list):
        return " ".join(map(_shown, value))
    return f"{value:.9g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)


def memory(head: Row) -> str:
    """Return whether the data fit in the cache, in words."""
    size = number(head, "megabytes")
    cache = number(head, "cache_megabytes")
    if math.isnan(size) or math.isnan(cache):
        return "" if math.isnan(size) else f"{size:,.3g} MB"
    fits = "fits" if size <= cache else "does not fit"
    rest = ", so memory does not limit these speeds" if size <= cache else ""
    return f"{size:,.3g} MB: {fits} in the last cache ({cache:,.3g} MB){rest}"
