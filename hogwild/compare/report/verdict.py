"""The verdict in words: whether leaving out locks paid off, on these data and this machine, and what it cost.

Every sentence is computed and may say the opposite; ``RULES`` lists what may be said, in order. "Sooner" is only used
when the whole confidence interval of the ratio, over pairs of runs with the same seed, is on that side of 1, and the
ratio is not among those of serial against itself under another seed, which are noise. The best of each side is picked
by its median, which favours the side with more methods to pick from: here the lock-free and the locked side have three
each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from hogwild.compare.report.cells import aim, crew, duration, listed, percent, plural
from hogwild.compare.report.results import (
    CONFIDENCE,
    FEWEST_PAIRS,
    REFERENCES,
    ComparisonResult,
    Group,
    number,
    paired_ratio,
    serial,
)

NARROW = (0.8, 1.25)  # an interval within this shows no notable difference
CLOSE_POINTS, CLOSE_SHARE = 0.5, 0.01  # differences of a metric that one figure can represent: points, or relative
SHORT = 0.01  # seconds of an epoch below which its beginning and end are a large part of it
BUSY = 0.5  # load over cores at the start above which the machine was not idle
#: What is said of one side against another, where seconds are compared and where epochs are; first the phrases.
OUTCOMES = {
    "sooner": ("{times} sooner than {other}", "{times} fewer epochs than {other}"),
    "later": ("{times} later than {other}", "{times} more epochs than {other}"),
    "same": (
        "as soon as {other} ({ratio}: no difference shown)",
        "as many epochs as {other} ({ratio}: no difference shown)",
    ),
    "noise": (
        "within noise of {other} ({ratio}; serial against itself: {floor})",
        "as many epochs as {other} within noise ({ratio}; serial against itself: {floor})",
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
PHRASES = tuple(OUTCOMES)[:5]  # the others are clauses of their own
#: What follows from the outcome against the best locks, and against serial.
MORALS = {
    **dict.fromkeys(
        (("locks", outcome) for outcome in ("later", "same", "noise")),
        "Locks were not the problem: leaving them out did not make training sooner.",
    ),
    ("serial", "later"): "It was not worth it: one serial worker is there first.",
    **dict.fromkeys(
        (("serial", outcome) for outcome in ("same", "noise")),
        "It was not worth it: one serial worker is there as soon.",
    ),
}


def verdict(source: ComparisonResult) -> list[str]:
    """Return sentences, the most important first."""
    race = Race.of(source)
    sentences = [race] if isinstance(race, str) else [text for rule in RULES for text in rule(race)]
    return [*filter(None, sentences), *(text for rule in CONDITIONS if (text := rule(source)))]


def choice(source: ComparisonResult) -> str:
    """Return one sentence: which method gets to the hardest target first, and which others may be as good."""
    eps = target(source, serial(source.groups))
    best = None if eps is None else fastest(source.groups, eps, source.clock)
    if best is None or eps is None:
        return ""
    race = Race(source, eps, best.workers, best.device)
    others = [each for each in source.groups if each.method != best.method]
    if not others:
        return ""
    outcomes = [(each.method, race.against(best, each)[0]) for each in others]
    alike = listed(method for method, outcome in outcomes if outcome not in ("sooner", "never"))
    clear = f"not clearly sooner than {alike}" if alike else "clearly sooner than all others"
    if len(best.runs) < FEWEST_PAIRS:
        clear = "of too few seeds to tell it from the others"
    where = "" if best.kind in REFERENCES else f" on {staff(source, best.workers, best.device)}"
    seeds = f"{plural(len(best.runs), 'seed')}, {100 * CONFIDENCE:.0f} % confidence"
    return f"First at {race.aim} is {best.method}{where}, in {race.time(best)}: {clear} ({seeds})."


@dataclass(frozen=True)
class Race:
    """Groups of one comparison on their way to one target."""

    source: ComparisonResult
    eps: float
    workers: int  # number at which lock-free methods and locks are compared
    device: str

    @classmethod
    def of(cls, source: ComparisonResult) -> Race | str:
        """Return the race of lock-free methods at the hardest target; a sentence if there is none."""
        free = [group for group in source.groups if group.kind == "lock-free"]
        if not free:
            return "" if source.linked else "No lock-free method has results, so there is no verdict."
        device = "cuda" if any(group.device == "cuda" for group in free) else "cpu"
        free = [group for group in free if group.device == device]
        locks = [group for group in source.groups if (group.kind, group.device) == ("locks", device)]
        both = {group.workers for group in free} & {group.workers for group in locks} - {1}
        workers = max(both, default=max(group.workers for group in free))
        alone = serial(source.groups)
        rivals = [group for group in locks if group.workers == workers]
        eps = target(source, alone or fastest(rivals, source.eps[0], source.clock))
        return _no_target(source, alone) if eps is None else cls(source, eps, workers, device)

    def best(self, groups: Iterable[Group], *kinds: str, anywhere: bool = False) -> Group | None:
        """Return the fastest of these kinds, by default with the race's number of workers on its device."""
        here = (self.device, self.workers)
        chosen = [
            group for group in groups if group.kind in kinds and (anywhere or (group.device, group.workers) == here)
        ]
        return fastest(chosen, self.eps, self.source.clock)

    @cached_property
    def free(self) -> Group:
        group = self.best(self.source.groups, "lock-free")
        assert group is not None  # there is one with that many workers
        return group

    @cached_property
    def rivals(self) -> list[Group]:
        """The best locks, and serial, if they have results."""
        return [group for group in (self.best(self.source.groups, "locks"), serial(self.source.groups)) if group]

    @property
    def aim(self) -> str:
        return f"{aim(self.eps)} of {self.source.goal}"

    @property
    def where(self) -> str:
        return f"On {staff(self.source, self.workers, self.device)}"

    def reaches(self, group: Group) -> bool:
        return group.share(self.eps) > 0

    def time(self, group: Group) -> str:
        """Return the median time to the target."""
        reached = group.reached(self.eps, self.source.clock)
        if reached is None:
            return "never"
        return duration(reached.median) if self.source.in_seconds else f"{reached.median:.3g} epochs"

    def against(self, group: Group, other: Group) -> tuple[str, str]:
        """Return which of two sides was ahead: a key of ``OUTCOMES``, and the words."""
        ratio = paired_ratio(other, group, self.eps, self.source.clock)
        floor = self.source.noise(self.eps)
        if not self.reaches(other) or not ratio.sure:
            kind = "few" if self.reaches(other) else "never"
        elif (ratio.low > 1 or ratio.high < 1) and floor.low <= ratio.value <= floor.high:
            kind = "noise"
        elif ratio.low > 1 or ratio.high < 1:
            kind = "sooner" if ratio.low > 1 else "later"
        else:
            kind = "same" if NARROW[0] <= ratio.low and ratio.high <= NARROW[1] else "unclear"
        seeds = max(len(group.runs), len(other.runs))
        some = f", on the {ratio.pairs} of {seeds} seeds where both got there" if ratio.pairs < seeds else ""
        low, times, high = ratio.low, ratio.value, ratio.high
        if high < 1:
            low, times, high = 1 / high, 1 / times, 1 / low
        decimals = 1 if low >= 1.05 else 2 if low >= 1.005 else 3  # that show that it is not 1
        return kind, OUTCOMES[kind][not self.source.in_seconds].format(
            other=other.method,
            never=never(other, self.eps),
            pairs=ratio.pairs,
            times=f"{times:.{decimals}f}x (95 % CI {low:.{decimals}f}–{high:.{decimals}f}{some})",
            medians=f"{self.time(group)} and {self.time(other)}",
            ratio=f"ratio {ratio.value:.2f}, 95 % CI {ratio.low:.2f}–{ratio.high:.2f}{some}",
            floor=f"{floor.low:.2f}–{floor.high:.2f}",
        )

    def sentence(self, where: str, group: Group, rivals: list[Group]) -> str:
        outcomes = [self.against(group, rival) for rival in rivals]
        how = " and ".join(text for kind, text in outcomes if kind in PHRASES)
        if how and not self.source.in_seconds:
            text = f"{where} {group.method} needs {how} to reach {self.aim}"
        else:
            text = f"{where} {group.method} reaches {self.aim} {how or f'in {self.time(group)} (median)'}"
        return "; ".join([text, *(text for kind, text in outcomes if kind not in PHRASES)])


# ---- rules of a race


def _main(race: Race) -> list[str]:
    """Say which side was ahead, and how their models differ."""
    if not race.reaches(race.free):
        text = f"{race.where} no lock-free method gets to {race.aim}: {never(race.free, race.eps)}"
        for group in race.rivals:
            fate = f"does, after {race.time(group)} (median)" if race.reaches(group) else "does not either"
            text += f"; {group.method} {fate}"
        return [text + "."]
    text = race.sentence(race.where, race.free, race.rivals) + "; there is nothing beside it" * (not race.rivals)
    return ["; ".join(filter(None, (text, _difference(race)))) + "."]


def _difference(race: Race) -> str:
    if race.source.metric is None:
        return ""
    name, words, share = race.source.metric
    values = {group.method: last.median for group in (race.free, *race.rivals) if (last := group.last(name))}
    if len(values) < 2:
        return ""
    most = max(values.values())
    gap = most - min(values.values())
    if share and 100 * gap <= CLOSE_POINTS:
        return f"final {words} differs by {_at_most(100 * gap)} points"
    if not share and 0 < most >= gap / CLOSE_SHARE:
        return f"final {words} differs by {_at_most(100 * gap / most)} %"
    shown = [f"{method} {100 * value:.1f} %" if share else f"{method} {value:.4g}" for method, value in values.items()]
    return f"final {words}: {', '.join(shown)}"


def _moral(race: Race) -> list[str]:
    if not race.reaches(race.free):
        locks = [group for group in race.rivals if group.kind == "locks" and race.reaches(group)]
        return ["Locks were not the problem."] if locks else []
    outcomes = [(rival.kind, race.against(race.free, rival)[0]) for rival in race.rivals if race.source.timed]
    return [MORALS[outcome] for outcome in outcomes if outcome in MORALS]


def _others(race: Race) -> list[str]:
    """Say how the best of every other kind did against the best lock-free method."""
    groups = race.source.groups if race.reaches(race.free) else []
    cores = [group for group in groups if group.device == "cpu" and race.device == "cuda"]
    in_step = [group for group in groups if group.device == race.device and group.workers in (1, race.workers)]
    others = (
        ("Outside solvers", race.best(groups, "outside", anywhere=True)),
        ("Exchange of whole models", race.best(groups, "exchange")),
        ("Blocks nobody shares", race.best(groups, "blocks")),
        ("On the same GPU without a race", race.best(in_step, "in step", anywhere=True)),
        ("On the processor's cores", race.best(cores, "lock-free", "locks", "blocks", "exchange", anywhere=True)),
    )
    gets = f"{race.free.method} {'gets there' if race.source.in_seconds else 'needs'} "
    sentences = []
    for topic, other in others:
        if other is not None:
            kind, text = race.against(race.free, other)
            sentences.append(f"{topic}: {gets if kind in PHRASES else ''}{text}, the best of them.")
    return sentences


RULES: tuple[Callable[[Race], list[str]], ...] = (_main, _moral, _others)


# ---- rules of a comparison


def _no_target(source: ComparisonResult, alone: Group | None) -> str:
    aims = listed(map(aim, source.eps))
    if alone is None:
        return f"Neither serial nor a method with locks reaches a target ({aims}) in all its runs: there is no verdict."
    return (
        f"Serial does not reach any target ({aims} of {source.goal}) in all its runs (best: "
        f"{percent(alone.best_gap)}, in {plural(alone.most_epochs, 'epoch')}), so there is no verdict: give it more "
        "epochs or other steps."
    )


def _no_seconds(source: ComparisonResult) -> str:
    if source.linked:
        return "Seconds are the simulator's: rows and messages take the time that the link says."
    simulated = "The workers were simulated on one core, so seconds mean nothing: only epochs are compared."
    return "" if source.timed else simulated


def _crowd(source: ComparisonResult) -> str:
    return f"{source.crowd}: the scheduler decided who worked, not the method." if source.crowd else ""


def _short(source: ComparisonResult) -> str:
    alone = serial(source.groups)
    if not source.timed or alone is None or not alone.epoch_seconds or alone.epoch_seconds.median > SHORT:
        return ""
    epoch = duration(alone.epoch_seconds.median)
    return f"Epochs are short (serial: {epoch}), so beginning and ending them weighs: larger data would show more."


def _load(source: ComparisonResult) -> str:
    load = number(source.head, "load")
    cores = number(source.head, "cores")
    text = f"The machine was not quiet: a load of {load:g} on {cores:g} cores when the comparison began."
    return text if source.timed and load > BUSY * cores else ""


CONDITIONS: tuple[Callable[[ComparisonResult], str], ...] = (_no_seconds, _crowd, _short, _load)


# ---- words


def target(source: ComparisonResult, reference: Group | None) -> float | None:
    """Return the hardest target that the reference reaches in all its runs."""
    return min((eps for eps in source.eps if reference is not None and reference.share(eps) == 1), default=None)


def fastest(groups: Iterable[Group], eps: float, clock: str) -> Group | None:
    """Return the group with the lowest median if half its runs get there; else the most frequent or nearest."""

    def rank(group: Group) -> tuple[float, ...]:
        share = group.share(eps)
        reached = group.reached(eps, clock)
        if reached is not None and share >= 0.5:
            return 0, reached.median
        return 1, -share, group.best_gap if math.isfinite(group.best_gap) else math.inf

    return min(groups, key=rank, default=None)


def never(group: Group, eps: float) -> str:
    """Say that the group did not reach the target, and how near it came."""
    near = group.best_gap
    texts = [percent(near), *(f"{100 * near:.{digits}g} %" for digits in range(3, 9)), aim(eps)]
    nearest = next((text for text in texts if text != aim(eps)), aim(eps))  # with digits that tell it from the target
    best = f"best: {nearest}" if math.isfinite(near) else "it diverged"
    return f"{group.method} never gets there in its {plural(group.most_epochs, 'epoch')} ({best})"


def staff(source: ComparisonResult, workers: int, device: str) -> str:
    """Describe who did the work: workers, or replicas on a named GPU."""
    if device == "cpu":
        return crew(workers, source.timed)
    return f"{plural(workers, 'replica')} ({source.head.get('gpu') or 'a GPU'})"


def _at_most(value: float) -> str:
    return "less than 0.1" if value < 0.05 else f"at most {math.ceil(10 * value - 1e-9) / 10:.1f}"
