"""The verdict in words: whether leaving out locks paid off, on these data and this machine, and what it cost.

Every sentence is computed and may say the opposite. "Sooner" is only used when the whole confidence interval of the
ratio, over pairs of runs with the same seed, is on that side of 1, and the ratio is not among those of serial against
itself under another seed, which are noise. The best of each side is picked by its median, which favours the side with
more methods to pick from: here the lock-free and the locked side have three each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hogwild.compare.report.cells import crew, duration, listed, percent, plural
from hogwild.compare.report.results import (
    CONFIDENCE,
    FEWEST_PAIRS,
    REFERENCES,
    ComparisonResult,
    Group,
    number,
    paired_ratio,
)

NARROW = (0.8, 1.25)  # an interval within this shows no notable difference
NAMED = 4  # methods that are named at most; else the table says which they are
SHORT = 0.01  # seconds of an epoch below which its beginning and end are a large part of it
BUSY = 0.5  # load over cores at the start above which the machine was not idle
#: What is said of one side against another.
OUTCOMES = {
    "sooner": "{times} sooner than {other}",
    "later": "{times} later than {other}",
    "same": "as soon as {other} ({ratio}: no difference shown)",
    "noise": "as soon as {other}, within noise ({ratio}; serial against itself: {floor})",
    "unclear": "neither clearly sooner nor later than {other} ({ratio}: too wide to tell)",
    "few": "there are too few seeds for a verdict against {other} ({pairs} on which both got there, of "
    f"{FEWEST_PAIRS} that are needed; medians {{medians}})",
    "never": "{never}",
}
CLAUSES = ("few", "never")  # these stand for themselves; the others follow "comes within"
NOT_SOONER = ("later", "same", "noise")
#: What follows where the best lock-free method is not sooner than the best of a kind.
MORALS = {
    "locks": "Locks were not the problem: leaving them out did not make training sooner.",
    "serial": "It was not worth it: one serial worker is there as soon, or sooner.",
}


def verdict(source: ComparisonResult) -> list[str]:
    """Return sentences, the most important first."""
    return [*filter(None, _of_race(source)), *_conditions(source)]


def first(source: ComparisonResult) -> tuple[Race, Group] | None:
    """Return which group gets to the hardest target first, and the race for it; None if there is no such target."""
    eps = target(source, source.serial)
    best = None if eps is None else fastest(source.racing, eps, source.clock)
    return None if best is None or eps is None else (Race(source, eps), best)


def choice(source: ComparisonResult) -> str:
    """Return in words which method gets to the hardest target first, and which others may be as good."""
    race, best = first(source) or (None, None)
    others = [each for each in source.racing if best and each.method != best.method]
    if race is None or best is None or not others:
        return ""
    outcomes = [(each.method, race.against(best, each)[0]) for each in others]
    alike = {method: None for method, outcome in outcomes if outcome not in ("sooner", "never")}
    names = (
        listed(alike)
        if len(alike) <= NAMED
        else f"{len(alike)} of the {len(dict(outcomes))} others, see 'behind the first'"
    )
    clear = f"not clearly sooner than {names}" if alike else "clearly sooner than all others"
    if all(outcome == "never" for _, outcome in outcomes):
        clear = "no other method gets there"
    elif len(best.runs) < FEWEST_PAIRS:
        clear = "of too few seeds to tell it from the others"
    where = "" if best.kind in REFERENCES and best.workers == 1 else f" on {staff(source, best)}"
    seeds = f"{plural(len(best.runs), 'seed')}, {100 * CONFIDENCE:.0f} % confidence"
    said = f"First within {race.aim} is {best.method}{where}, in {race.time(best)}: {clear} ({seeds})."
    clock = "call_seconds"
    if math.isnan(best.median("once_seconds") + best.median(f"{clock} to {race.eps:g}")):
        return said
    soonest = fastest(source.racing, race.eps, clock) or best
    called, least = (duration(each.median(f"{clock} to {race.eps:g}")) for each in (best, soonest))
    sure = paired_ratio(best, soonest, race.eps, clock).low > 1
    sooner = f"; {soonest.method} is clearly sooner then, in {least}" * sure
    return f"{said} From the call, with reading, set-up and compiling, it takes {called}{sooner}."


@dataclass(frozen=True)
class Race:
    """Groups of one comparison on their way to one target."""

    source: ComparisonResult
    eps: float

    @property
    def aim(self) -> str:
        return f"{percent(self.eps)} of {self.source.goal}"

    def best(self, groups: Iterable[Group], *kinds: str) -> Group | None:
        """Return the fastest of these kinds."""
        return fastest((group for group in groups if group.kind in kinds), self.eps, self.source.clock)

    def time(self, group: Group) -> str:
        """Return the median time to the target."""
        median = group.median(f"{self.source.clock} to {self.eps:g}")
        if math.isnan(median):
            return "never"
        return f"{median:.3g} epochs" if self.source.clock == "epoch" else duration(median)

    def against(self, group: Group, other: Group) -> tuple[str, str]:
        """Return which of two sides was ahead: a key of ``OUTCOMES``, and the words."""
        ratio = paired_ratio(other, group, self.eps, self.source.clock)
        floor = self.source.noise(self.eps)
        if not other.share(self.eps) or not ratio.sure:
            kind = "few" if other.share(self.eps) else "never"
        elif ratio.low > 1 or ratio.high < 1:
            ahead = "sooner" if ratio.low > 1 else "later"
            kind = "noise" if floor.low <= ratio.value <= floor.high else ahead
        else:
            kind = "same" if NARROW[0] <= ratio.low and ratio.high <= NARROW[1] else "unclear"
        seeds = max(len(group.runs), len(other.runs))
        some = f", on the {ratio.pairs} of {seeds} seeds where both got there" if ratio.pairs < seeds else ""
        value, low, high = ratio[:3] if ratio.high >= 1 else (1 / each for each in (ratio.value, ratio.high, ratio.low))
        decimals = 1 if low >= 1.05 else 2 if low >= 1.005 else 3  # that show that it is not 1
        return kind, OUTCOMES[kind].format(
            other=other.method,
            never=never(other),
            pairs=ratio.pairs,
            times=f"{value:.{decimals}f}x (95 % CI {low:.{decimals}f}–{high:.{decimals}f}{some})",
            medians=f"{self.time(group)} and {self.time(other)}",
            ratio=f"ratio {ratio.value:.2f}, 95 % CI {ratio.low:.2f}–{ratio.high:.2f}{some}",
            floor=f"{floor.low:.2f}–{floor.high:.2f}",
        )


def _of_race(source: ComparisonResult) -> Iterator[str]:
    """Yield what is said of the best lock-free method against the best of the other kinds, at the hardest target."""
    free = [group for group in source.groups if group.kind == "lock-free"]
    if not free:
        yield "" if source.clock == "virtual_seconds" else "No lock-free method has results, so there is no verdict."
        return
    device = "cuda" if any(group.first["device"] == "cuda" for group in free) else "cpu"
    beside = [group for group in source.groups if group.first["device"] == device]
    raced = [{group.workers for group in beside if group.kind == kind} for kind in ("lock-free", "locks")]
    workers = max(raced[0] & raced[1] - {1}, default=max(raced[0]))
    here = [group for group in beside if group.workers == workers]
    locks = [group for group in here if group.kind == "locks"]
    eps = target(source, source.serial or fastest(locks, source.eps[0], source.clock))
    if eps is None:
        yield _no_target(source)
        return
    race = Race(source, eps)
    best = race.best(here, "lock-free")
    assert best is not None  # there is one with that many workers
    rivals = [group for group in (race.best(locks, "locks"), source.serial) if group]
    where = f"On {staff(source, best)}" + ", counted in epochs," * (source.clock == "epoch")
    if not best.share(eps):
        fates = [
            f"{each.method} does" + (f", after {race.time(each)}" if each.share(eps) else " not") for each in rivals
        ]
        yield "; ".join((f"{where} no lock-free method gets to {race.aim}: {never(best)}", *fates)) + "."
        if any(group.kind == "locks" and group.share(eps) for group in rivals):
            yield "Locks were not the problem."
        return
    outcomes = [race.against(best, rival) for rival in rivals]
    how = " and ".join(text for kind, text in outcomes if kind not in CLAUSES)
    clauses = [f"{where} {best.method} comes within {race.aim} {how or f'in {race.time(best)} (median)'}"]
    clauses += [text for kind, text in outcomes if kind in CLAUSES] if rivals else ["there is nothing beside it"]
    yield "; ".join([*clauses, *_difference(source, [best, *rivals])]) + "."
    for rival, (kind, _) in zip(rivals, outcomes, strict=True):
        yield MORALS[rival.kind] if kind in NOT_SOONER and source.clock != "epoch" else ""
    in_step = [group for group in beside if group.workers in (1, workers)]
    cores = [group for group in source.groups if device == "cuda" and group.first["device"] == "cpu"]
    for topic, other in (
        ("Outside solvers", race.best(source.racing, "outside")),
        ("Exchange of whole models", race.best(here, "exchange")),
        ("Blocks nobody shares", race.best(here, "blocks")),
        ("On the same GPU without a race", race.best(in_step, "in step")),
        ("On the processor's cores", race.best(cores, "lock-free", "locks", "blocks", "exchange")),
    ):
        if other is not None:
            kind, text = race.against(best, other)
            yield f"{topic}: {'' if kind in CLAUSES else f'{best.method} gets there '}{text}, the best of them."


def _difference(source: ComparisonResult, groups: list[Group]) -> Iterator[str]:
    """Say how the models differ on test data."""
    name, words, share = source.metric or ("", "", False)
    values = {group.method: group.median(f"last {name}") for group in groups}
    shown = [f"{method} {percent(value) if share else f'{value:.4g}'}" for method, value in values.items() if value > 0]
    if len(shown) > 1:
        yield f"final {words}: {', '.join(shown)}"


def _no_target(source: ComparisonResult) -> str:
    aims, alone = listed(map(percent, source.eps)), source.serial
    if source.start <= source.optimum:
        return "No run got below the objective of the start, so there is no verdict: give more epochs or other steps."
    if alone is None:
        return f"Neither serial nor a method with locks reaches a target ({aims}) in all its runs: there is no verdict."
    return (
        f"Serial does not reach any target ({aims} of {source.goal}) in all its runs ({_nearest(alone)}, "
        f"in {plural(alone.epochs, 'epoch')}), so there is no verdict: give it more "
        "epochs or other steps."
    )


def _conditions(source: ComparisonResult) -> Iterator[str]:
    """Yield what weakens or limits the verdict."""
    if source.clock == "virtual_seconds":
        yield "Seconds are the simulator's: rows and messages take the time that the link says."
    if source.clock == "epoch":
        yield "The workers were simulated on one core, so seconds mean nothing: only epochs are compared."
    if source.crowd:
        yield f"{source.crowd}: the scheduler decided who worked, not the method."
    epoch = source.serial.median("epoch_seconds") if source.serial else math.nan
    if epoch <= SHORT:
        yield f"Epochs are short (serial: {duration(epoch)}): beginning and ending them weighs; larger data show more."
    load, cores = number(source.head, "load"), number(source.head, "cores")
    if source.timed and load > BUSY * cores:
        yield f"The machine was not quiet: a load of {load:g} on {cores:g} cores when the comparison began."


# ---- words


def target(source: ComparisonResult, reference: Group | None) -> float | None:
    """Return the hardest target that the reference reaches in all its runs."""
    return min((eps for eps in source.eps if reference is not None and reference.share(eps) == 1), default=None)


def fastest(groups: Iterable[Group], eps: float, clock: str) -> Group | None:
    """Return the group with the lowest median if half its runs get there; else the most frequent or nearest."""

    def rank(group: Group) -> tuple[float, ...]:
        share, best = group.share(eps), group.best_gap
        if share >= 0.5 and not math.isnan(median := group.median(f"{clock} to {eps:g}")):
            return 0, median
        return 1, -share, math.inf if math.isnan(best) else best

    return min(groups, key=rank, default=None)


def never(group: Group) -> str:
    """Say that the group did not reach the target, and how near it came."""
    return f"{group.method} never gets there in its {plural(group.epochs, 'epoch')} ({_nearest(group)})"


def _nearest(group: Group) -> str:
    return f"best: {100 * group.best_gap:.4g} %" if math.isfinite(group.best_gap) else "it diverged"


def staff(source: ComparisonResult, group: Group) -> str:
    """Describe who did the work: workers, or replicas on a named GPU."""
    if group.first["device"] == "cpu":
        return crew(group.workers, source.timed)
    return f"{plural(group.workers, 'replica')} ({source.head.get('gpu') or 'a GPU'})"
