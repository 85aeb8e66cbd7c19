"""The tables of a report as text: the page, the terminal and a reader's spreadsheet all show the same one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hogwild.compare.report.cells import (
    NONE,
    digits,
    duration,
    figure,
    listed,
    millions,
    percent,
    quartiles,
    times,
)
from hogwild.compare.report.results import METRICS, ComparisonResult, Group, Row, number, paired_ratio, speedup
from hogwild.compare.report.verdict import choice, first, verdict

Cells = tuple[str, ...]
#: Columns of words rather than figures.
WORDS = {"comparison", "method", "phase", "what", "why", "value"}
#: Fields of the first row by the line in which they are shown.
FACTS = {
    "began": "began",
    "data": "data rows width nnz test_rows ratings users items test_ratings vertices edges labels terminals examples "
    "test_examples parameters omega delta rho",
    "minimised": "loss l1 l2 l2_factors rank loss_param normalize class_weight penalty negatives intercept biases "
    "model optimizer batch",
    "optimum": "start_objective objective optimum_how",
    "plan": "epochs seeds_list step_grid schedule order link",
    "machine": "cpu cores caches load load_after affinity gpu host",
    "command": "command",
    "commit": "commit",
}
#: Ways to a target beside the clock by which methods are compared: how it is headed, a field, and its form.
WAYS = (("epochs ", "epoch", digits), ("from call ", "call_seconds", duration), ("MB ", "bytes_sent", millions))
TARGETS = (
    "Medians over the seeds, quartiles in brackets; runs that did not get there are in no median: 3/5 says how many "
    "did. At a target of 1 %, 1 % of the way from the start to the optimum is left. When it was reached is "
    "interpolated between two evaluations, linear in the logarithm of what is left. The verdict takes the best of each "
    "kind by these medians, which favours a kind of which more methods were compared."
)
FROM_CALL = (
    "Everything until the model is there, where the other tables count training alone; without Python's start and its "
    "imports."
)
#: What columns mean, which is said below the tables that have them.
MEANINGS = {
    "behind the first": "how many times as long as the first it took to the verdict's target, with the 95 % interval "
    "over the seeds; 'unclear', 'same' and 'noise': it may be as soon",
    "left at the end": "of the way to the optimum, in runs that ended ok, as in the columns after it",
    "once": "reading the data, starting workers, and compiling kernels or loading compiled ones",
    "set-up": "laying the data out in the program's own form; Vowpal Wabbit and LIBMF read their text here",
    "at": "the hardest target that half of the runs of both serial and the method reached, for the columns after it",
    "statistical": "epochs of serial over those of the method",
    "hardware": "time of an epoch of serial over that of the method; the speed-up over serial is the product of both",
    "in flight": "examples that a GPU has in hand at the same time",
    "staleness": "updates of others between the reading of a row's weights and the storing of its update",
    "lost": "weights whose update was overwritten by another's, for each update of a row",
    "messages an epoch": "of all replicas; each takes the link's latency, and occupies both sides' lines for its bytes",
    "waited": "share of the replicas' virtual time in which they waited for messages",
}


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


def cells_of(source: ComparisonResult, group: Group, targets: list[float]) -> dict[str, str]:
    """Return what tables show of a group, by heading."""
    at, statistical, hardware = speedup(group, source)
    cells = {
        "comparison": source.label,
        "method": group.method,
        "workers": str(group.workers),
        "step": figure(number(group.first, "step")),
        "ended ok": f"{sum(run['status'] == 'ok' for run in group.runs)}/{len(group.runs)}",
        "left at the end": quartiles(group.of("last gap"), percent),
        "objective": figure(group.median("last objective")),
        "at": NONE if math.isnan(at) else percent(at),
        "statistical": times(statistical),
        "hardware": times(hardware),
        "speed-up": times(statistical * hardware),
        "in flight": quartiles(group.of("last in_flight"), digits),
        "staleness": quartiles(group.of("mean staleness_mean"), digits),
        "at most": quartiles(group.of("mean staleness_max"), "{:.0f}".format),
        "lost": quartiles(group.of("mean lost"), digits),
        "peak MB": quartiles(group.of("last peak_memory_mb"), digits),
        "an epoch": quartiles(group.of("epoch_seconds"), duration),
        "set-up": quartiles(group.of("last setup_seconds"), duration),
        "once": quartiles(group.of("last once_seconds"), duration) if group.median("last once_seconds") else NONE,
    }
    name, _, share = source.metric or METRICS[0]
    if score := group.of(f"last {name}"):
        cells["metric"] = f"{100 * score.median:.2f} %" if share else figure(score.median)
    for words in ("nonzeros", "updates", "samples"):
        if speed := group.of(f"mean {words}_per_second"):
            cells["speed"] = f"{quartiles(speed, millions)} M {words}/s"
    if group.median("last bytes_sent") > 0:
        total = group.median("last virtual_seconds") * number(group.first, "replicas")
        cells["messages an epoch"] = digits(group.median("last messages") / group.median("epochs"))
        cells["MB an epoch"] = digits(1e-6 * group.median("last bytes_sent") / group.median("epochs"))
        cells["waited"] = percent(group.median("last waited_seconds") / total)
    race, best = first(source) or (None, group)
    if race is not None and group in source.racing:
        kind, _ = race.against(best, group)
        value, low, high, _ = paired_ratio(group, best, race.eps, source.clock)
        unsure = f" {kind}" * (kind != "sooner")
        cells["behind the first"] = NONE if math.isnan(low) else f"{value:.2f}x [{low:.2f}–{high:.2f}]{unsure}"
        if group is best:
            cells["behind the first"] = "first"
    show = digits if source.clock == "epoch" else duration
    never = NONE if group.first.get("own_objective") else "never"
    for eps in targets:
        count = sum(run.get(f"epoch to {eps:g}") is not None for run in group.runs)
        some = "" if count == len(group.runs) else f" {count}/{len(group.runs)}"
        for words, clock, form in (("", source.clock, show), *WAYS):
            reached = group.of(f"{clock} to {eps:g}")
            missing = never if clock in (source.clock, "epoch") else NONE
            cells[f"{words}to {percent(eps)}"] = quartiles(reached, form) + some if reached else missing
    return cells


def tables(sources: Sequence[ComparisonResult]) -> list[Table]:
    """Return all tables that have rows; rows of several comparisons follow one another."""
    eps = sorted({each for source in sources for each in source.eps}, reverse=True)
    groups = [(source, group) for source in sources for group in source.groups]
    cells = [cells_of(source, group, eps) for source, group in groups]
    several = len(sources) > 1
    metrics = " / ".join(dict.fromkeys((source.metric or METRICS[0])[1] for source in sources))
    ways = ("", *(way[0] for way in WAYS))
    to, epochs_to, from_call, megabytes_to = ([f"{way}to {percent(each)}" for each in eps] for way in ways)

    def view(title: str, columns: list[str], *notes: str) -> Table:
        """Return these columns of the methods that have any of them."""
        shown = [each for each in cells if any(each.get(name, NONE) not in (NONE, "never") for name in columns)]
        columns = ["comparison", "method", "workers", *columns]
        rows = [tuple(each.get(name, NONE) for name in columns) for each in shown]
        return Table(title, tuple(metrics if name == "metric" else name for name in columns), rows, [*notes])

    tuned = any(source.of_phase("tuning") for source in sources)
    title = "Time to target, " + ("each method at its own best step" if tuned else "everyone at the given step")
    notes = [f"{source.label}: " * several + note for source in sources for note in notes_of(source)]
    reached = ["behind the first", *to, "left at the end", "objective", "metric", "step", "ended ok"]
    factors = [*epochs_to, "an epoch", "at", "statistical", "hardware", "speed-up"]
    traded = [*megabytes_to, "messages an epoch", "MB an epoch", "waited"]
    conflicts = ["speed", *traded, "in flight", "staleness", "at most", "lost", "peak MB"]
    made = [
        _index(sources if several else []),
        view(title, reached, TARGETS, *notes),
        view("Time from the call", [*from_call, "once", "set-up"], FROM_CALL),
        view("Epochs, their time, and the speed-up over serial", factors),
        view("Speed and conflicts", conflicts),
        _failed(sources),
        _conditions(sources),
    ]
    for each in made:
        columns = [(name, *column) for name, column in zip(each.columns, zip(*each.rows)) if {*column} - {NONE, ""}]
        columns = columns[columns[0][0] == "comparison" and not several :] if columns else []
        each.columns, *each.rows = zip(*columns) if columns else [each.columns]
        each.notes += [f"{name}: {MEANINGS[name]}." for name in each.columns if name in MEANINGS]
    return [each for each in made if each.rows]


def _index(sources: Sequence[ComparisonResult]) -> Table:
    """Return a line a comparison, the newest first."""
    names = ("began", "data", "machine", "versions")
    rows = []
    for source in sources:
        facts = facts_of(source.head)
        rows.append((source.label, choice(source) or verdict(source)[0], *(facts.get(name, NONE) for name in names)))
    return Table("The comparisons", ("what", "which method", *names), rows)


def notes_of(source: ComparisonResult) -> Iterator[str]:
    """Return what there is to say of the targets of one comparison."""
    best, looked = source.optimum, number(source.head, "objective")
    if source.head.get("optimum_seen") is True:
        yield (
            f"The optimum is not known ({source.head.get('optimum_how')}). Targets are measured against the best "
            f"objective that any run of this comparison reached, {best:.9g}, so that run ends at 0 % by definition."
        )
    if looked > best:
        below = (looked - best) / (source.start - best)
        yield (
            f"A run got below the optimum that was looked for ({looked:.9g}), by {below:.1e} of the way from the "
            f"start: its {best:.9g} is taken for the optimum."
        )
    if source.start <= best:
        yield f"No run got below the objective of the start ({source.start:.6g}), so no target has a meaning."
    yield from filter(None, dict.fromkeys(group.first.get("own_objective") for group in source.groups))
    if alone := [group.method for group in source.groups if group.first.get("restarts")]:
        yield f"Each point of {listed(alone)} is a run of its own from the start, for it cannot go on."
    steps = sorted({run["step"] for run in source.of_phase("tuning")})
    if len(steps) > 1:
        tried = " ".join(map(figure, steps))
        yield f"Every method was tried at the steps {tried}, on a seed that is not among those reported."
        ends = (steps[0], steps[-1])
        at_end = [f"{each.method} on {each.workers}" for each in source.groups if each.first["step"] in ends]
        if at_end:
            yield f"These steps end at the best of {listed(at_end)}: one beyond may do better."


def _failed(sources: Sequence[ComparisonResult]) -> Table:
    """Return every cell that did not end ok; seeds that ended alike share a line."""
    alike: dict[Cells, list[str]] = {}
    for source in sources:
        for run in source.runs:
            if run["status"] != "ok":
                line = (source.label, run["phase"], run["method"], str(run["workers"]), figure(number(run, "step")))
                alike.setdefault((*line, run["status"]), []).append(str(run["seed"]))
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
    facts = {}
    versions = " ".join(name for name in head if name.startswith("version_"))
    for line, fields in (FACTS | {"versions": versions}).items():
        known = [name for name in fields.split() if head.get(name) not in (None, "none", "")]
        words = [name.removeprefix("version_").removesuffix("_list").replace("_", " ") for name in known]
        facts[line] = ", ".join(
            f"{word * (word != line)} {_shown(head[name])}".strip() for word, name in zip(words, known)
        )
    return {name: text for name, text in (facts | {"in memory": memory(head)}).items() if text}


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name} {size}" for name, size in value.items())
    if isinstance(value, list):
        return " ".join(map(_shown, value))
    return f"{value:.9g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)


def memory(head: Row) -> str:
    """Return whether the data fit in the cache, in words."""
    size, cache = number(head, "megabytes"), number(head, "cache_megabytes")
    if math.isnan(size + cache):
        return ""
    return f"{size:,.3g} MB, {'within' if size <= cache else 'beyond'} the last cache ({cache:,.3g} MB)"
