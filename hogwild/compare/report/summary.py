"""Statistics of a comparison's runs: medians and quartiles over its seeds, speed-ups, confidence intervals.

Seconds and epochs to a target are medians over the runs that reached it, always shown with the share that did: a median
over all runs would not exist if half of them fail, and one without the share would flatter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hogwild.compare.report.results import ComparisonResult, ReportedRun, Row, number

#: The order in which methods are listed; "in step": on a GPU, with one replica or several that do not race.
KINDS = ("serial", "lock-free", "locks", "blocks", "exchange", "in step", "outside")
REFERENCES = ("serial", "outside")
ALONE = (*REFERENCES, "in step")  # kinds with some methods that run on one worker only
FEWEST_PAIRS = 3
CONFIDENCE = 0.95
WIDE = 0.25  # ratio of the quartile distance to the median above which a time is doubtful
AS_GOOD = 0.9  # share of the best lock-free speed from which locks count as equal
METRICS = (  # (field, name, whether it is a share); the first one measured is shown
    ("test_accuracy", "test accuracy", True),
    ("test_rmse", "test RMSE", False),
    ("test_ndcg_at_10", "test NDCG at 10", False),
    ("cut_value", "cut value", False),
    ("test_loss", "test loss", False),
)


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of ``n`` values."""

    median: float
    q25: float
    q75: float
    n: int

    @property
    def wide(self) -> bool:
        return self.median > 0 and (self.q75 - self.q25) / self.median > WIDE


def spread(values: Iterable[float]) -> Spread | None:
    """Return the spread of the values that are numbers; None if there are none."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return None
    q25, median, q75 = (float(value) for value in np.quantile(finite, (0.25, 0.5, 0.75)))
    return Spread(median, q25, q75, len(finite))


@dataclass(frozen=True)
class Group:
    """The runs of one method with one number of workers, at steps chosen by one rule: one run per seed."""

    method: str
    kind: str
    workers: int
    rule: str
    runs: tuple[ReportedRun, ...]  # those that ran

    @property
    def key(self) -> tuple[str, int]:
        return self.method, self.workers

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
    def final_gap(self) -> Spread | None:
        return spread(float(run.scale.gap(number(run.final, "objective"))) for run in self.runs if run.final)

    def last(self, name: str) -> Spread | None:
        """Spread of a field of the last row, over the runs that ended normally."""
        return spread(number(run.final, name) for run in self.runs if run.final)

    def over_epochs(self, name: str) -> Spread | None:
        """Spread of a field's mean over a run's epochs."""
        means = [[value for row in run.rows if math.isfinite(value := number(row, name))] for run in self.runs]
        return spread(sum(values) / len(values) for values in means if values)

    def reached(self, eps: float, name: str) -> Spread | None:
        """Spread of ``train_seconds`` or ``epoch`` to the target, over the runs that reached it."""
        return spread(run.reached(eps, name) for run in self.runs)

    def share(self, eps: float) -> float:
        """Share of the runs that reached the target."""
        return sum(math.isfinite(run.reached(eps, "epoch")) for run in self.runs) / len(self.runs)

    @property
    def best_gap(self) -> float:
        return min((gap for run in self.runs if math.isfinite(gap := run.best_gap)), default=math.nan)

    @property
    def most_epochs(self) -> float:
        return max(float(run.epochs[-1]) for run in self.runs)


def groups(source: ComparisonResult) -> list[Group]:
    """Return all groups, by rule, kind and order of the rows."""
    found: dict[tuple[str, str, int], list[ReportedRun]] = {}
    for run in source.reported:
        for rule in run.rules:
            found.setdefault((rule, *run.key), [])
            if run.ran:
                found[rule, *run.key].append(run)
    stepped = {rule for run in source.reported if run.step is not None for rule in run.rules}
    made = [
        Group(method, runs[0].kind, workers, rule, tuple(runs))
        for (rule, method, workers), runs in found.items()
        if runs and (rule in stepped or not stepped)
    ]
    place = {kind: index for index, kind in enumerate(KINDS)}
    return sorted(made, key=lambda group: (group.rule != "tuned", group.rule, place.get(group.kind, len(KINDS))))


def own_rule(found: Sequence[Group]) -> str:
    """Return the rule of methods' own best steps: "tuned", or "given" if nothing was tuned."""
    rules = [group.rule for group in found]
    return next((rule for rule in ("tuned", "given") if rule in rules), rules[0] if rules else "tuned")


def of_rule(found: Iterable[Group], rule: str) -> list[Group]:
    return [group for group in found if group.rule == rule]


def own(source: ComparisonResult) -> list[Group]:
    """Groups at their own best step."""
    found = groups(source)
    return of_rule(found, own_rule(found))


def counts(source: ComparisonResult) -> set[int]:
    """Numbers of workers of the methods that run with several."""
    found = own(source)
    return {group.workers for group in found if group.kind not in REFERENCES and not is_fixed(group, found)}


def is_fixed(group: Group, found: Sequence[Group]) -> bool:
    """Whether a method runs on one worker while others run on several."""
    return group.kind in ALONE and all(each.workers == 1 for each in found if each.method == group.method)


def beside(source: ComparisonResult, count: int) -> list[Group]:
    """Groups on ``count`` workers, and those that always run on one."""
    found = own(source)
    return [group for group in found if group.workers == count or is_fixed(group, found)]


def serial(found: Iterable[Group]) -> Group | None:
    """Return the group that speed-ups refer to, of groups at steps chosen by one rule."""
    return next((group for group in found if group.kind == "serial"), None)


@dataclass(frozen=True)
class Speedup:
    """Speed-up over serial to the same target: more workers gain time per epoch, but may need more epochs."""

    eps: float
    statistical: float
    hardware: float  # NaN if seconds are meaningless

    @property
    def total(self) -> float:
        return self.statistical * self.hardware


def speedup(group: Group, over: Group | None, source: ComparisonResult) -> Speedup | None:
    """Return the speed-up at the hardest target that at least half of both sides reached; None if there is none."""
    if over is None:
        return None
    for eps in reversed(source.eps):
        if min(group.share(eps), over.share(eps)) < 0.5:
            continue
        mine, theirs = group.reached(eps, "epoch"), over.reached(eps, "epoch")
        if mine is None or theirs is None or not mine.median:
            continue
        hardware = math.nan
        if source.timed and group.epoch_seconds and over.epoch_seconds and group.epoch_seconds.median:
            hardware = over.epoch_seconds.median / group.epoch_seconds.median
        return Speedup(eps, theirs.median / mine.median, hardware)
    return None


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


def paired_ratio(other: Group, mine: Group, eps: float, name: str) -> Ratio:
    """Ratio of ``other`` to ``mine``: Student's interval of the mean logarithm, with runs of one seed as pairs."""
    theirs = {run.seed: run.reached(eps, name) for run in other.runs}
    pairs = [(theirs.get(run.seed, math.nan), run.reached(eps, name)) for run in mine.runs]
    logs = [math.log(a / b) for a, b in pairs if math.isfinite(a) and math.isfinite(b) and a > 0 and b > 0]
    if len(logs) < FEWEST_PAIRS:
        value = math.exp(sum(logs) / len(logs)) if logs else math.nan
        return Ratio(value, math.nan, math.nan, len(logs))
    from scipy.special import stdtrit  # the quantile of scipy.stats.t, without the half second of importing scipy.stats

    mean, deviation = float(np.mean(logs)), float(np.std(logs, ddof=1))
    half = float(stdtrit(len(logs) - 1, (1 + CONFIDENCE) / 2)) * deviation / math.sqrt(len(logs))
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half), len(logs))


@dataclass(frozen=True)
class Trials:
    """Trials by which one method's step was chosen."""

    method: str
    workers: int
    steps: tuple[float, ...]
    failed: int
    winner: float | None

    @property
    def edge(self) -> str:
        """ "smallest" or "largest" if the winner is at an end of what was tried."""
        if self.winner is None or len(self.steps) < 2 or self.winner not in self.steps:
            return ""
        return {self.steps[0]: "smallest", self.steps[-1]: "largest"}.get(self.winner, "")


def trials(source: ComparisonResult) -> list[Trials]:
    """Return the trials of every tuned method and number of workers, in the order of the rows."""
    found: dict[tuple[str, int], list[ReportedRun]] = {}
    for run in source.tuning:
        if run.ran:
            found.setdefault(run.key, []).append(run)
    winners = {run.key: run.step for run in source.reported if "tuned" in run.rules}
    return [
        Trials(
            method,
            workers,
            tuple(sorted({run.step for run in runs if run.step is not None})),
            sum(run.status != "ok" for run in runs),
            winners.get((method, workers)),
        )
        for (method, workers), runs in found.items()
    ]


@dataclass(frozen=True)
class DelayPoint:
    """Speed of one method with more expensive gradients."""

    method: str
    kind: str
    workers: int
    delay: float  # seconds, as requested
    cost: float  # seconds per row that serial takes with it
    speedup: Spread  # over serial, by repeat


def delay_points(source: ComparisonResult) -> list[DelayPoint]:
    """Return points in the order of methods, then of delays; none without serial to compare with."""
    found: dict[tuple[str, int, float], dict[int, float]] = {}
    kinds: dict[str, str] = {}
    for row in source.delays:
        seconds = number(row, "epoch_seconds") / number(row, "delay_rows") if row.get("delay_rows") else math.nan
        if seconds > 0:
            kinds[row["method"]] = row["kind"]
            found.setdefault((row["method"], row["workers"], float(row["gradient_delay"])), {})[row["seed"]] = seconds
    base = {delay: times for (method, _, delay), times in found.items() if kinds[method] == "serial"}
    points = []
    for (method, workers, delay), times in found.items():
        ratios = spread(base.get(delay, {}).get(seed, math.nan) / seconds for seed, seconds in times.items())
        reference = spread(base.get(delay, {}).values())
        if kinds[method] != "serial" and ratios and reference:
            points.append(DelayPoint(method, kinds[method], workers, delay, reference.median, ratios))
    order = list(dict.fromkeys(point.method for point in points))
    return sorted(points, key=lambda point: (order.index(point.method), point.workers, point.delay))


def lock_caught_up(points: Sequence[DelayPoint], workers: int) -> DelayPoint | None:
    """Best locks at the cheapest gradient from which on they stay within 10 % of the best lock-free method."""
    caught = None
    for delay in sorted({point.delay for point in points if point.workers == workers}, reverse=True):
        here = [point for point in points if (point.workers, point.delay) == (workers, delay)]
        free = [point for point in here if point.kind == "lock-free"]
        locks = [point for point in here if point.kind == "locks"]
        if not free or not locks:
            continue
        best = max(locks, key=lambda point: point.speedup.median)
        if best.speedup.median < AS_GOOD * max(point.speedup.median for point in free):
            break
        caught = best
    return caught


def metric(source: ComparisonResult) -> tuple[str, str, bool] | None:
    """Return the metric on test data to show."""
    last = [run.final for run in source.reported if run.final]
    return next((each for each in METRICS if any(math.isfinite(number(row, each[0])) for row in last)), None)


def not_ok(source: ComparisonResult) -> list[Row]:
    """Return the first rows of all cells that did not end ok, with the status of their last."""
    runs = [run for run in source.tuning + source.reported if run.status != "ok"]
    return [run.first | {"status": run.status, "epoch": run.rows[-1]["epoch"]} for run in runs] + [
        row for row in source.delays if row["status"] != "ok"
    ]


def numbers(value: Any) -> Any:
    """Convert to plain JSON: NaN and infinities become null, dataclasses their fields."""
    if isinstance(value, (Spread, Speedup, Ratio)):
        named = vars(value) | ({"total": value.total} if isinstance(value, Speedup) else {})
        return numbers(named)
    if isinstance(value, dict):
        return {str(name): numbers(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [numbers(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
