"""The verdict in words: whether leaving out locks paid off, on these data and this machine, and what it cost.

Every sentence is computed and may say the opposite. "Sooner" is only used when the whole confidence interval of the
ratio, over pairs of runs with the same seed, is on that side of 1. The best of each side is picked by its median, which
favours the side with more methods to pick from: here the lock-free and the locked side have three each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from hogwild.compare.report.cells import megabytes
from hogwild.compare.report.results import ComparisonResult
from hogwild.compare.report.summary import (
    FEWEST_PAIRS,
    Group,
    Ratio,
    delay_points,
    groups,
    lock_caught_up,
    metric,
    of_rule,
    own,
    paired_ratio,
    serial,
)

NARROW = (0.8, 1.25)  # an interval within this shows no notable difference
CLOSE_POINTS, CLOSE_SHARE = 0.5, 0.01  # differences of a metric that one figure can represent: points, or relative
MOST_SAID = 3  # methods, beside serial, that the sentences about exchanges name
MEETING = 0.1  # share of an epoch above which the synchronisation at its end is mentioned
#: What is said of one side against another, where seconds are compared and where epochs are; first the phrases.
OUTCOMES = {
    "sooner": ("{times} sooner than {other}", "{times} fewer epochs than {other}"),
    "later": ("{times} later than {other}", "{times} more epochs than {other}"),
    "same": (
        "as soon as {other} ({ratio}: no difference shown)",
        "as many epochs as {other} ({ratio}: no difference shown)",
    ),
    "unclear": (
        "neither clearly sooner nor later than {other} ({ratio}: too wide to tell)",
        "about as many epochs as {other} ({ratio}: too wide to tell)",
    ),
    "few": 2
    * (
        "there are too few seeds for a verdict against {other} ({pairs} on which both got there, of "
        f"{FEWEST_PAIRS} that are needed; medians {{medians}})",
    ),
    "never": 2 * ("{never}",),
}
PHRASES = tuple(OUTCOMES)[:4]  # the others are clauses of their own
#: What follows from the outcome against the best locks, and against serial.
MORALS = {
    ("locks", "later"): "Locks were not the problem: leaving them out did not make training sooner.",
    ("locks", "same"): "Locks were not the problem: leaving them out did not make training sooner.",
    ("serial", "later"): "It was not worth it: one serial worker is there first.",
    ("serial", "same"): "It was not worth it: one serial worker is there as soon.",
}
BUSY = 0.5  # load over cores at the start above which the machine was not idle


def verdict(source: ComparisonResult) -> list[str]:
    """Return sentences, the most important first."""
    return [*trading(source), *_races(source), *_delay(source), *conditions(source)]


def _races(source: ComparisonResult) -> list[str]:
    best = own(source)
    free = [group for group in best if group.kind == "lock-free"]
    if not free and source.linked:
        return []
    if not free:
        return ["No lock-free method has results, so there is no verdict."]
    device = "cuda" if any(group.device == "cuda" for group in free) else "cpu"  # the verdict's device
    here, free = _of_device(best, device), _of_device(free, device)
    most = max(group.workers for group in free)
    both = {group.workers for group in free} & {group.workers for group in here if group.kind == "locks"} - {1}
    workers = max(both, default=most)
    over = serial(best)
    locks = [group for group in here if (group.kind, group.workers) == ("locks", workers)]
    eps = target(source, over or fastest(locks, source.eps[0], source.clock))
    if eps is None:
        return [_no_target(source, over)]
    race = Race(source, eps)
    mine, lock = race.best([group for group in free if group.workers == workers]), race.best(locks)
    assert mine is not None  # there is one with that many workers
    sentences = race.main(mine, lock, over, f"On {staff(source, workers, device)}")
    if workers < most:
        rest = f"On {staff(source, most, device)} no method with locks has results, so this is about {workers}."
        sentences.append(rest)
    exchange = race.best([group for group in here if (group.kind, group.workers) == ("exchange", workers)])
    blocks = race.best([group for group in here if (group.kind, group.workers) == ("blocks", workers)])
    in_step = [group for group in here if group.kind == "in step"]
    beside = (
        ("Outside solvers", race.best([group for group in best if group.kind == "outside"])),
        ("Exchange of whole models", exchange),
        ("Blocks nobody shares", blocks),
        ("On the same GPU without a race", race.best([group for group in in_step if group.workers in (1, workers)])),
        ("On the processor's cores", race.best(_rivals_on_cores(best)) if device == "cuda" else None),
    )
    for topic, other in beside:
        if other is not None:
            sentences.append(f"{topic}: {race.beside(mine, other)}.")
    if best[0].rule == "tuned":
        same = _of_device(of_rule(groups(source), "serial"), device)
        sentences += race.at_serials_step(same, mine, lock, workers)
    return sentences


def _of_device(found: Iterable[Group], device: str) -> list[Group]:
    """Return groups on one device, and serial, the reference for all."""
    return [group for group in found if group.device == device or group.kind == "serial"]


def _rivals_on_cores(found: Iterable[Group]) -> list[Group]:
    """Return our own parallel methods that do not use a GPU."""
    kinds = ("lock-free", "locks", "blocks", "exchange")
    return [group for group in found if group.device == "cpu" and group.kind in kinds]


def target(source: ComparisonResult, reference: Group | None) -> float | None:
    """Return the hardest target that the reference reaches in all its runs."""
    reached = [eps for eps in source.eps if reference is not None and reference.share(eps) == 1]
    return min(reached, default=None)


def fastest(found: Iterable[Group], eps: float, clock: str) -> Group | None:
    """Return the group with the lowest median if half its runs get there; else the most frequent or nearest."""

    def rank(group: Group) -> tuple[float, ...]:
        share, reached = group.share(eps), group.reached(eps, clock)
        if reached is not None and share >= 0.5:
            return 0, reached.median
        return 1, -share, group.best_gap if math.isfinite(group.best_gap) else math.inf

    return min(found, key=rank, default=None)


@dataclass(frozen=True)
class Outcome:
    """Result of one side against another, in words."""

    kind: str  # a key of OUTCOMES
    text: str


@dataclass(frozen=True)
class Race:
    """Groups of one comparison on their way to one target."""

    source: ComparisonResult
    eps: float

    @property
    def aim(self) -> str:
        return f"{aim(self.eps)} of {self.source.goal}"

    def best(self, found: list[Group]) -> Group | None:
        return fastest(found, self.eps, self.source.clock)

    def reaches(self, group: Group) -> bool:
        return group.share(self.eps) > 0

    def time(self, group: Group) -> str:
        """Return the median time to the target."""
        reached = group.reached(self.eps, self.source.clock)
        if reached is None:
            return "never"
        return duration(reached.median) if self.source.in_seconds else f"{reached.median:.3g} epochs"

    def against(self, mine: Group, other: Group) -> Outcome:
        """Return which of two sides was ahead, in words."""
        ratio, seeds = paired_ratio(other, mine, self.eps, self.source.clock), max(len(mine.runs), len(other.runs))
        if not self.reaches(other) or not ratio.sure:
            kind = "few" if self.reaches(other) else "never"
        elif ratio.low > 1 or ratio.high < 1:
            kind = "sooner" if ratio.low > 1 else "later"
        else:
            kind = "same" if NARROW[0] <= ratio.low and ratio.high <= NARROW[1] else "unclear"
        some = f", on the {ratio.pairs} of {seeds} seeds where both got there" if ratio.pairs < seeds else ""
        text = OUTCOMES[kind][not self.source.in_seconds].format(
            other=other.method,
            never=never(other, self.eps),
            pairs=ratio.pairs,
            times=_times(ratio, some),
            medians=f"{self.time(mine)} and {self.time(other)}",
            ratio=f"ratio {ratio.value:.2f}, 95 % CI {ratio.low:.2f}–{ratio.high:.2f}{some}",
        )
        return Outcome(kind, text)

    def main(self, mine: Group, lock: Group | None, over: Group | None, where: str) -> list[str]:
        """Return the main sentence, and its consequences."""
        rivals = [group for group in (lock, over) if group is not None]
        asked = mine.device == "cpu" or any(run.kind == "locks" for run in self.source.reported)
        missing = [f"{where} no method with locks has results."] if lock is None and asked else []
        if not self.reaches(mine):
            others = "; ".join(f"{group.method} {self._fate(group)}" for group in rivals)
            text = f"{where} no lock-free method gets to {self.aim}: {never(mine, self.eps)}" + (
                f"; {others}" if others else ""
            )
            moral = ["Locks were not the problem."] if lock is not None and self.reaches(lock) else []
            return [text + ".", *missing, *moral]
        outcomes = [self.against(mine, rival) for rival in rivals]
        if outcomes:
            text = self._sentence(where, mine, outcomes)
        else:
            text = f"{where} {mine.method} reaches {self.aim} in {self.time(mine)} (median); there is nothing beside it"
        if difference := self._metric([mine, *rivals]):
            text += f"; {difference}"
        follows = [MORALS.get((rival.kind, outcome.kind)) for rival, outcome in zip(rivals, outcomes)]
        return [text + ".", *missing, *(moral for moral in follows if moral and self.source.timed)]

    def _fate(self, group: Group) -> str:
        return f"does, after {self.time(group)} (median)" if self.reaches(group) else "does not either"

    def _sentence(self, where: str, mine: Group, outcomes: list[Outcome]) -> str:
        phrases = [outcome.text for outcome in outcomes if outcome.kind in PHRASES]
        clauses = [outcome.text for outcome in outcomes if outcome.kind not in PHRASES]
        how = " and ".join(phrases)
        if phrases and not self.source.in_seconds:
            text = f"{where} {mine.method} needs {how} to reach {self.aim}"
        else:
            text = f"{where} {mine.method} reaches {self.aim} {how or f'in {self.time(mine)} (median)'}"
        return "; ".join([text, *clauses])

    def _metric(self, found: list[Group]) -> str:
        chosen = metric(self.source)
        if chosen is None:
            return ""
        name, words, share = chosen
        values = {group.method: last.median for group in found if (last := group.last(name)) is not None}
        if len(values) < 2:
            return ""
        gap = max(values.values()) - min(values.values())
        if share and 100 * gap <= CLOSE_POINTS:
            return f"final {words} differs by {_at_most(100 * gap)} points"
        if not share and 0 < max(values.values()) >= gap / CLOSE_SHARE:
            return f"final {words} differs by {_at_most(100 * gap / max(values.values()))} %"
        shown = [
            f"{method} {100 * value:.1f} %" if share else f"{method} {value:.4g}" for method, value in values.items()
        ]
        return f"final {words}: {', '.join(shown)}"

    def beside(self, mine: Group, other: Group) -> str:
        """Return a sentence on the best of another kind."""
        if not self.reaches(other):
            return f"{never(other, self.eps)}, and none of them does"
        if not self.reaches(mine):
            return f"{other.method} reaches {self.aim} in {self.time(other)} (median)"
        outcome = self.against(mine, other)
        if outcome.kind not in PHRASES:
            return outcome.text
        return f"{mine.method} {'gets there' if self.source.in_seconds else 'needs'} {outcome.text}, the best of them"

    def at_serials_step(self, found: list[Group], mine: Group, lock: Group | None, workers: int) -> list[str]:
        """Return the results with every method at the step that serial was tuned to."""
        here = [group for group in found if group.workers == workers]
        free = self.best([group for group in here if group.kind == "lock-free"])
        locks = self.best([group for group in here if group.kind == "locks"])
        over = serial(found)
        if free is None or over is None:
            return []
        where = f"With all at the step tuned for serial ({over.step:g})" if over.step else "With all at serial's step"
        same = (free.key, free.step) == (mine.key, mine.step)
        if same and (locks is None or (lock is not None and (locks.key, locks.step) == (lock.key, lock.step))):
            return [f"{where} it is the same: their own best steps are no others."]
        rivals = [group for group in (locks, over) if group is not None]
        if not self.reaches(free):
            return [f"{where} {never(free, self.eps)}."]
        return [self._sentence(where + ",", free, [self.against(free, rival) for rival in rivals]) + "."]


def trading(source: ComparisonResult) -> list[str]:
    """Return which exchanges reached the hardest target that half of serial's runs reach, and when; else nothing."""
    found = own(source) if source.linked else []
    over = serial(found)
    eps = min((each for each in source.eps if over is not None and over.share(each) >= 0.5), default=None)
    exchanges = [group for group in found if group.kind == "exchange" and group.replicas > 1]
    if over is None or eps is None or not exchanges:
        return []
    race = Race(source, eps)
    there = [
        (reached.median, group)
        for group in exchanges
        if group.share(eps) >= 0.5 and (reached := group.reached(eps, source.clock))
    ]
    said = [f"By the simulator's clock serial reaches {race.aim} in {race.time(over)} (median)."]
    for _, group in sorted(there, key=lambda pair: pair[0])[:MOST_SAID]:
        sent = group.reached(eps, "bytes_sent")
        size = f", after sending {megabytes(sent.median)} MB" if sent else ""
        outcome = race.against(group, over)
        said.append(
            f"{group.replicas} replicas with {group.method} get there in {race.time(group)}{size}: {outcome.text}."
        )
    if missing := [f"{group.method} ({group.replicas})" for group in exchanges if group.share(eps) < 0.5]:
        said.append(f"Most runs of these do not get there: {', '.join(missing)}.")
    return said


def _no_target(source: ComparisonResult, over: Group | None) -> str:
    aims = ", ".join(aim(eps) for eps in source.eps)
    if over is None:
        return f"Neither serial nor a method with locks reaches a target ({aims}) in all its runs: there is no verdict."
    epochs = f"{over.most_epochs:g} epoch{'s' * (over.most_epochs != 1)}"
    return (
        f"Serial does not reach any target ({aims} of {source.goal}) in all its runs (best: "
        f"{percent(over.best_gap)}, in {epochs}), so there is no verdict: give it more epochs or other steps."
    )


def _delay(source: ComparisonResult) -> list[str]:
    points = delay_points(source)
    workers = max((point.workers for point in points), default=0)
    kinds = {point.kind for point in points if point.workers == workers}
    if not {"lock-free", "locks"} <= kinds:
        return []
    caught, unit = lock_caught_up(points, workers), unit_of(source)
    if caught is None:
        most = duration(max(point.cost for point in points))
        return [f"Even with the most expensive gradient ({most} a {unit}) no locks come within 10 % of lock-free."]
    return [
        f"Once a {unit} costs {duration(caught.cost)} of gradient or more, the best locks ({caught.method}) on "
        f"{crew(workers)} are within 10 % of the best lock-free method: from there on locks need not hurt."
    ]


def unit_of(source: ComparisonResult) -> str:
    """Return what a gradient is computed for."""
    return "minibatch" if source.problem == "module" else "row"


def conditions(source: ComparisonResult) -> list[str]:
    """Return conditions of the machine that make the figures doubtful."""
    about, cores = source.about, source.cores
    found = []
    if source.linked:
        return ["Seconds are the simulator's: rows and messages take the time that the link says."]
    if not source.timed:
        found.append("The workers were simulated on one core, so seconds mean nothing: only epochs are compared.")
        return found
    if source.crowd:
        found.append(f"{source.crowd}: the scheduler decided who worked, not the method.")
    if sentence := _meetings(source):
        found.append(sentence)
    load = about.get("load")
    if cores and isinstance(load, (int, float)) and load > BUSY * cores:
        found.append(f"The machine was not quiet: a load of {load:g} on {cores} cores when the comparison began.")
    return found


def _meetings(source: ComparisonResult) -> str:
    """Say that epochs are so short that starting and ending them is a large part of what was measured."""
    costs = source.about.get("meeting_seconds") or {}
    shares: list[tuple[float, str]] = []
    for group in own(source):
        cost, epoch = costs.get(str(group.workers)), group.epoch_seconds
        on_cores = group.kind in ("serial", "lock-free") and group.device == "cpu"
        if on_cores and isinstance(cost, (int, float)) and epoch and epoch.median > 0:
            one, whole = f"of {group.method} on {crew(group.workers)}", duration(epoch.median)
            what = f"of the {whole} of one {one}, {duration(cost)}"
            if cost >= epoch.median:
                what = f"one {one} took {whole}, and the workers' meeting alone, when it was measured, {duration(cost)}"
            shares.append((cost / epoch.median, what))
    share, what = max(shares, default=(0.0, ""))
    if share < MEETING:
        return ""
    if share >= 1:  # measured separately, at another time
        return f"Epochs are short, no longer than beginning and ending them takes: {what}. Larger data would show more."
    return f"Epochs are short: {what} are the workers' meeting at its end, which larger data would not show."


def never(group: Group, eps: float) -> str:
    """Say that the group did not reach the target, and how near it came."""
    best = f"best: {_nearest(group.best_gap, eps)}" if math.isfinite(group.best_gap) else "it diverged"
    return (
        f"{group.method} never gets there in its {group.most_epochs:g} epoch{'s' * (group.most_epochs != 1)} ({best})"
    )


def _nearest(gap: float, eps: float) -> str:
    """Return the gap with as many digits as distinguish it from the target."""
    texts = (f"{100 * gap:.{digits}g} %" for digits in range(3, 9))
    return percent(gap) if percent(gap) != aim(eps) else next((text for text in texts if text != aim(eps)), aim(eps))


def crew(workers: int, timed: bool = True) -> str:
    simulated = "" if timed else "simulated "
    return f"{workers} {simulated}worker{'s' * (workers != 1)}"


def staff(source: ComparisonResult, workers: int, device: str) -> str:
    """Describe who did the work: workers, or replicas on a named GPU."""
    if device == "cpu":
        return crew(workers, source.timed)
    return f"{workers} replica{'s' * (workers != 1)} ({source.gpu or 'a GPU'})"


def aim(eps: float) -> str:
    """Return a target as it was given: ``12.5 %``."""
    return f"{100 * eps:.6g} %"


def percent(share: float) -> str:
    """Return ``3 %`` or ``0.35 %``, with no more digits than show how near a run came."""
    value = 100 * share
    return f"{value:.0f} %" if value >= 99.5 else f"{value:.2g} %"


def duration(seconds: float) -> str:
    """Return three digits with a unit that needs no powers of ten."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)):
        if seconds >= 0.9995 * size or unit == "ns":
            value = seconds / size
            return f"{value:,.0f} {unit}" if value >= 100 else f"{value:#.3g} {unit}".replace(". ", " ")
    return ""


def _times(ratio: Ratio, some: str) -> str:
    """Return the ratio, or its inverse below 1, with as many decimals as show that the interval excludes 1."""
    value, low, high = ratio.value, ratio.low, ratio.high
    if high < 1:
        value, low, high = 1 / value, 1 / high, 1 / low
    decimals = 1 if low >= 1.05 else 2 if low >= 1.005 else 3
    return f"{value:.{decimals}f}x (95 % CI {low:.{decimals}f}–{high:.{decimals}f}{some})"


def _at_most(value: float) -> str:
    return "less than 0.1" if value < 0.05 else f"at most {math.ceil(10 * value - 1e-9) / 10:.1f}"
