"""The tables of a report, as text: what the page, the terminal and a reader's spreadsheet show is one and the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hogwild.compare.results import Row, Source, number
from hogwild.compare.summary import (
    METRICS,
    Group,
    Spread,
    delay_points,
    groups,
    metric,
    not_ok,
    of_rule,
    own_rule,
    serial,
    speedup,
    trials,
)
from hogwild.compare.verdict import aim, crew, duration, percent

Cells = tuple[str, ...]
NONE = "–"
PAPER = (("omega", "Ω"), ("delta", "Δ"), ("rho", "ρ"))  # of Recht et al., equation 2.6


@dataclass
class Table:
    """Rows of text under headings, and sentences below."""

    title: str
    columns: Cells
    rows: list[Cells]
    notes: list[str] = field(default_factory=list)

    @property
    def texts(self) -> tuple[bool, ...]:
        """Which columns hold words and not figures."""
        return tuple(name in WORDS for name in self.columns)


WORDS = {"comparison", "method", "phase", "what", "why", "grid", "note", "value"}


def tables(sources: Sequence[Source]) -> list[Table]:
    """All tables that have rows; with several comparisons their rows stand one below the other."""
    made = [
        to_target(sources, own=True), speedups(sources), to_target(sources, own=False), tuned(sources),
        interleaving(sources), delayed(sources), failed(sources), facts(sources),
    ]  # fmt: skip
    for table in made:
        if len(sources) == 1 and table.columns[0] == "comparison":
            table.columns, table.rows = table.columns[1:], [row[1:] for row in table.rows]
    return [table for table in made if table.rows]


def to_target(sources: Sequence[Source], own: bool) -> Table:
    """Time to each target, and how the runs ended; ``own``: each method at its own best step."""
    eps = _all_eps(sources)
    timed = any(source.timed for source in sources)
    chosen = [metric(source) or METRICS[0] for source in sources]
    columns = ["comparison", "method", "workers", "step", "ended ok"]
    scale = clock_scale(sources) if timed else 1.0
    columns += [f"{('s' if scale == 1 else 'ms') if timed else 'epochs'} to {aim(each)}" for each in eps]
    columns += ["left", "objective", " / ".join(dict.fromkeys(words for _, words, _ in chosen))]
    rows: list[Cells] = []
    clock = "train_seconds" if timed else "epoch"
    for source, (name, _, share) in zip(sources, chosen):
        found = groups(source)
        rule = own_rule(found) if own else "serial"
        for group in of_rule(found, rule) if own or own_rule(found) == "tuned" else []:
            last, score = group.last("objective"), group.last(name)
            rows.append((
                source.label, group.method, str(group.workers), _step(group.step),
                f"{group.ended_well}/{len(group.runs)}",
                *(_reached(group, each, clock, source.timed or not timed, scale) for each in eps),
                _spread(group.final_gap, percent), f"{last.median:.5g}" if last else NONE,
                NONE if score is None else f"{100 * score.median:.2f} %" if share else f"{score.median:.4g}",
            ))  # fmt: skip
    title = "Time to target, each method at its own best step" if own else "Everyone at the step tuned for serial"
    if own and not any(own_rule(groups(source)) == "tuned" for source in sources):
        title = "Time to target, everyone at the given step"
    notes = [
        "Medians over the seeds, quartiles in brackets. A target of 1 % is the objective with 1 % of the way from the "
        "start to the optimum left. When it was reached is interpolated between two evaluations, linear in seconds (or "
        "epochs) on the logarithm of what is left. Runs that did not get there are not in a median: 3/5 says how many "
        "are. The last columns are of the last evaluation of runs that ended ok. The verdict takes the best of each "
        "kind by these medians, which favours a kind of which more methods were compared.",
        *dict.fromkeys(note for source in sources for note in source.notes),
    ]  # fmt: skip
    return Table(title, tuple(columns), rows, notes if own else [])


def clock_scale(sources: Sequence[Source]) -> float:
    """1000, for milliseconds, where every run is over within a second; else 1."""
    seconds = [float(run.seconds[-1]) for source in sources for run in source.reported if run.final]
    return 1000.0 if max(seconds, default=1.0) < 1 else 1.0


def speedups(sources: Sequence[Source]) -> Table:
    """Over serial, and the two factors of it."""
    eps, wide = _all_eps(sources), []
    rows: list[Cells] = []
    for source in sources:
        found = groups(source)
        rule = own_rule(found)
        for group in of_rule(found, rule):
            gain = speedup(group, serial(found, rule), source)
            pace = group.epoch_seconds if source.timed else None
            if pace and pace.wide:
                wide.append(f"{group.method} on {group.workers}")
            rows.append((
                source.label, group.method, str(group.workers), *(_reached(group, each, "epoch") for each in eps),
                _spread(pace, duration), _spread(group.last("setup_seconds"), duration),
                aim(gain.eps) if gain else NONE,
                _times(gain.statistical if gain else math.nan), _times(gain.hardware if gain else math.nan),
                _times(gain.total if gain else math.nan),
            ))  # fmt: skip
    columns = ("comparison", "method", "workers", *(f"epochs to {aim(each)}" for each in eps), "an epoch", "set-up",
               "at", "statistical", "hardware", "speed-up")  # fmt: skip
    notes = [
        "Speed-up over serial = statistical factor (epochs that serial needs over epochs of the method) x hardware "
        "factor (time of a serial epoch over time of an epoch), at the hardest target that at least half of the runs "
        "of both reached."
    ]
    if wide:
        notes.append(
            f"WARNING: the times of an epoch of {_list(wide)} spread by more than 25 % of their median (quartile to "
            "quartile): the machine was not quiet."
        )
    return Table("Epochs, their time, and the speed-up over serial", columns, rows, notes + _crowded(sources))


def tuned(sources: Sequence[Source]) -> Table:
    """Steps that were tried, and which won."""
    rows: list[Cells] = []
    for source in sources:
        for each in trials(source):
            note = f"the {each.edge} step won: a {'smaller' if each.edge == 'smallest' else 'larger'} one may do better"
            rows.append((
                source.label, each.method, str(each.workers), str(len(each.steps)), _grid(each.steps),
                str(each.failed), _step(each.winner), note if each.edge else "",
            ))  # fmt: skip
    columns = ("comparison", "method", "workers", "trials", "grid", "failed", "winner", "note")
    notes = ["Every method was tried at the same steps, on a seed that is not among those reported."]
    return Table("Tuning of the step", columns, rows, notes)


def interleaving(sources: Sequence[Source]) -> Table:
    """Staleness and lost updates, where they were measured."""
    rows: list[Cells] = []
    for source in sources:
        found = groups(source)
        for group in of_rule(found, own_rule(found)):
            stale, lost = group.over_epochs("staleness_mean"), lost_share(group)
            if stale is None and lost is None:
                continue
            rows.append((
                source.label, group.method, str(group.workers), _spread(stale, digits),
                _spread(group.over_epochs("staleness_max"), ".0f"), _spread(lost, digits),
            ))  # fmt: skip
    columns = ("comparison", "method", "workers", "staleness", "at most", "lost")
    notes = [
        "Staleness: how many updates of others fall between the reading of a row's weights and the storing of its "
        "update. Lost: weights whose update was overwritten by another's, for each update of a row."
    ]
    return Table("Staleness and lost updates", columns, rows, notes)


def lost_share(group: Group) -> Spread | None:
    """Lost updates of single weights for each update of a row."""
    from hogwild.compare.summary import spread

    shares = []
    for run in group.runs:
        pairs = [(number(row, "lost_updates"), number(row, "updates")) for row in run.rows]
        pairs = [(lost, updates) for lost, updates in pairs if math.isfinite(lost) and updates > 0]
        if pairs:
            shares.append(sum(lost for lost, _ in pairs) / sum(updates for _, updates in pairs))
    return spread(shares)


def delayed(sources: Sequence[Source]) -> Table:
    """Speed-up where gradients cost more, a column for each delay."""
    found = [(source, delay_points(source)) for source in sources]
    delays = sorted({point.delay for _, points in found for point in points})
    rows: list[Cells] = []
    for source, points in found:
        costs = {point.delay: duration(point.cost) for point in points}
        if points:
            rows.append((source.label, "serial, a row", "1", *(costs.get(delay, NONE) for delay in delays)))
        for method, workers in dict.fromkeys((point.method, point.workers) for point in points):
            gains = {
                point.delay: point.speedup for point in points if (point.method, point.workers) == (method, workers)
            }
            shown = [_spread(gains.get(delay), ".2f", "x") for delay in delays]
            rows.append((source.label, method, str(workers), *shown))
    columns = (
        "comparison",
        "method",
        "workers",
        *(f"+ {duration(delay)}" if delay else "as it is" for delay in delays),
    )
    notes = ["The delay is spent in every gradient, within the kernel. Speed-ups are over serial with the same delay."]
    return Table("Speed-up where gradients cost more", columns, rows, notes)


def failed(sources: Sequence[Source]) -> Table:
    """Every cell that did not end ok; seeds that ended alike share a line."""
    rows: list[Cells] = []
    for source in sources:
        alike: dict[tuple[Any, ...], list[int]] = {}
        for row in not_ok(source):
            kind = row["phase"], row["method"], row["workers"], _step_of(row), _delay_of(row), row["status"]
            alike.setdefault(kind, []).append(row["seed"])
        for (phase, method, workers, step, delay, status), seeds in alike.items():
            where = f"{step}, delay {delay}" if delay else step
            rows.append((source.label, phase, method, str(workers), where, _list(map(str, seeds)), status))
    columns = ("comparison", "phase", "method", "workers", "step", "seeds", "why")
    return Table("Runs that did not end ok", columns, rows, ["Nothing is dropped."])


def facts(sources: Sequence[Source]) -> Table:
    """Data, machine and plan, a column for each comparison."""
    columns = [facts_of(source.about) for source in sources]
    names = list(dict.fromkeys(name for column in columns for name in column))
    rows = [(name, *(column.get(name, NONE) for column in columns)) for name in names]
    headings = ("what", *(source.label for source in sources)) if len(sources) > 1 else ("what", "value")
    return Table("What was compared, and where", headings, rows, _crowded(sources))


def facts_of(about: Row) -> dict[str, str]:
    """Conditions of one comparison, by name."""
    versions = [f"{name.removeprefix('version_')} {about[name]}" for name in about if name.startswith("version_")]
    meetings = {count: number(about["meeting_seconds"], count) for count in about.get("meeting_seconds") or {}}
    how = about.get("optimum_how")
    sizes = (("rows", ""), ("width", "features"), ("nnz", "nonzeros"), ("test_rows", "rows to test on"))
    found = {
        "data": _joined(about.get("data"), *(_counted(about, name, words) for name, words in sizes)),
        "sparsity": _joined(*(_valued(about, name, sign) for name, sign in PAPER)),
        "in memory": memory(about),
        "minimised": _joined(
            about.get("loss"), *(_valued(about, name, name) for name in ("l1", "l2")), *_unusual(about)
        ),
        "objective": f"{number(about, 'start_objective'):.6g} at the start, {number(about, 'objective'):.9g} at the "
        f"optimum{f': {how}' if how else ''}",
        "plan": _joined(
            _counted(about, "epochs"), f"seeds {_list(map(str, about.get('seeds_list') or []))}",
            f"steps {_grid(about.get('step_grid') or [])}",
            *(f"{name} {about[name]}" for name in ("schedule", "order") if about.get(name)),
        ),
        "left out": "; ".join(about.get("left_out") or []),
        "processor": _joined(
            about.get("cpu"), _counted(about, "cores"),
            f"load {about['load']:g} at the start" if math.isfinite(number(about, "load")) else None,
            f"may use CPUs {' '.join(map(str, about['affinity']))}" if about.get("affinity") else None,
            _counted(about, "blas_threads", "threads for linear algebra"),
        ),
        "host": about.get("host"),
        "a meeting costs": _joined(*(f"{duration(seconds)} with {crew(int(count))}"
                                     for count, seconds in meetings.items() if math.isfinite(seconds))),
        "command": about.get("command"),
        "versions": _joined(*versions),
    }  # fmt: skip
    return {name: str(value) for name, value in found.items() if value}


def _unusual(about: Row) -> list[str]:
    """What else makes the objective another one than it usually is."""
    found = [
        f"{name.replace('_', ' ')} {about[name]}"
        for name in ("loss_param", "normalize", "class_weight")
        if about.get(name) not in (None, "none")
    ]
    return found + ["no intercept"] * (about.get("intercept") is False)


def memory(about: Row) -> str:
    """Whether the data fit in the cache, in words."""
    size, cache = number(about, "megabytes"), number(about, "cache_megabytes")
    if math.isnan(size):
        return ""
    if math.isnan(cache):
        return f"{size:,.3g} MB"
    if size <= cache:
        return f"{size:,.3g} MB: fits in the last cache ({cache:,.3g} MB), so memory does not limit these speeds"
    return f"{size:,.3g} MB: does not fit in the last cache ({cache:,.3g} MB)"


def _crowded(sources: Sequence[Source]) -> list[str]:
    return list(
        dict.fromkeys(f"{source.crowd}: these times are the scheduler's." for source in sources if source.crowd)
    )


def _all_eps(sources: Iterable[Source]) -> list[float]:
    return sorted({eps for source in sources for eps in source.eps}, reverse=True)


def _reached(group: Group, eps: float, name: str, means: bool = True, scale: float = 1.0) -> str:
    found = group.reached(eps, name) if means else None
    count = round(group.share(eps) * len(group.runs))
    if found is None:
        return NONE if not means or count else "never"
    some = "" if count == len(group.runs) else f" {count}/{len(group.runs)}"
    return _spread(found, lambda value: digits(scale * value)) + some


def _spread(found: Spread | None, form: str | Callable[[float], str], unit: str = "") -> str:
    """``2.1 [2.0–2.3]``; quartiles that show no other figure than the median are left out."""
    if found is None:
        return NONE
    show = form if callable(form) else lambda value: f"{value:{form}}"
    middle, low, high = show(found.median), show(found.q25), show(found.q75)
    if low == high == middle:
        return middle + unit
    shared = middle.rpartition(" ")[2] if " " in middle else ""  # a unit is said once
    if shared and low.endswith(f" {shared}") and high.endswith(f" {shared}"):
        low, middle = low.removesuffix(f" {shared}"), middle.removesuffix(f" {shared}")
        return f"{middle} [{low}–{high.removesuffix(f' {shared}')}] {shared}"
    return f"{middle}{unit} [{low}–{high}]"


def digits(value: float) -> str:
    """Three of them, and no powers of ten for what is large."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}"


def _times(value: float) -> str:
    return f"{value:.2f}x" if math.isfinite(value) else NONE


def _step(step: float | None) -> str:
    return NONE if step is None else f"{step:.4g}"


def _step_of(row: Row) -> str:
    step = number(row, "cell_step" if "cell_step" in row else "step")
    return _step(None if math.isnan(step) else step)


def _delay_of(row: Row) -> str:
    delay = number(row, "gradient_delay")
    return duration(delay) if row["phase"] == "delay" and delay > 0 else ""


def _grid(steps: Iterable[float]) -> str:
    return " ".join(f"{step:.4g}" for step in steps)


def _counted(about: Row, name: str, words: str = "") -> str | None:
    value = number(about, name)
    return f"{value:,.0f} {words or name}" if math.isfinite(value) else None


def _valued(about: Row, name: str, sign: str) -> str | None:
    value = number(about, name)
    return f"{sign} = {value:.4g}" if math.isfinite(value) else None


def _joined(*parts: Any) -> str:
    return ", ".join(str(part) for part in parts if part)


def _list(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))
