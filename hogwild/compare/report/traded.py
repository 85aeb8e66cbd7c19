"""What replicas that trade over a link sent, and when they reached the targets: a table, and sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hogwild.compare.report.cells import NONE, digits, spread, step_text
from hogwild.compare.report.results import ComparisonResult
from hogwild.compare.report.summary import Group, own, serial
from hogwild.compare.report.tables import Table
from hogwild.compare.report.verdict import Race, aim, duration

MOST_SAID = 3  # methods, beside serial, that the sentences are about
FIELDS = ("messages", "bytes_sent", "waited_seconds")
#: Virtual milliseconds to 1 % and to 0.1 %, by the method without its period; None: not reached. Simulated before any
#: scheme was built, at scale 1, with another simulator and other generated data of these shapes.
BEFORE: dict[tuple[str, int], dict[str, tuple[float | None, float | None]]] = {
    ("serial", 1): {"rcv1": (38, 158), "rcv1 x10": (122, 368), "categories x10": (274, 574), "clicks": (63, 198)},
    ("averaging", 4): {"rcv1": (13.5, 58), "rcv1 x10": (48, 154), "categories x10": (142, None), "clicks": (133, 377)},
    ("averaging:mean=rows", 4): {"rcv1": (12.9, 56), "rcv1 x10": (53, None), "categories x10": (177, None)},
    ("averaging:period", 4): {
        "rcv1": (22.9, 119), "rcv1 x10": (91, 307), "categories x10": (243, None), "clicks": (349, 1022),
    },
    ("gossip", 4): {"rcv1": (9.9, 58), "rcv1 x10": (43.5, 106), "categories x10": (76, 156), "clicks": (19.1, 53)},
    ("server", 4): {
        "rcv1": (31.5, 82), "rcv1 x10": (59, None), "categories x10": (None, None), "clicks": (None, None),
    },
    ("averaging", 16): {"rcv1": (11.8, 39), "rcv1 x10": (45, None), "categories x10": (98, None),
                        "clicks": (117, None)},
    ("gossip", 16): {"rcv1": (11.5, None), "rcv1 x10": (None, None), "categories x10": (30, None),
                     "clicks": (None, None)},
}  # fmt: skip


def beside(sources: Sequence[ComparisonResult]) -> list[Table]:
    """Return the table of ``--suite exchanges``, with what was simulated before; none of other comparisons."""
    rows = []
    for source in sources:
        for group in own(source) if source.about.get("suite") == "exchanges" else ():
            cells = [source.about["data"], group.method, str(group.replicas), step_text(group.step)]
            simulated = _before(group.method, group.replicas, source.about["data"])
            for place, eps in enumerate(source.eps):
                reached = group.reached(eps, "virtual_seconds") if group.share(eps) >= 0.5 else None
                earlier = None if simulated is None else simulated[place]
                cells.append(digits(1e3 * reached.median) if reached else NONE)
                cells.append("" if simulated is None else NONE if earlier is None else f"{earlier:g}")
            sent = group.reached(source.eps[0], "bytes_sent") if group.share(source.eps[0]) >= 0.5 else None
            rows.append((*cells, _megabytes(sent.median) if sent and group.replicas > 1 else NONE))
    if not rows:
        return []
    aims = [aim(eps) for eps in next(source for source in sources if source.about.get("suite")).eps]
    timed = [name for eps in aims for name in (f"ms to {eps}", "before")]
    columns = ("data", "method", "replicas", "step", *timed, f"MB to {aims[0]}")
    notes = [
        "Virtual milliseconds and megabytes of all replicas; medians over seeds. Before: simulated before the schemes "
        "were built, by another program on other data of these shapes, with more rows if the scale is below 1."
    ]
    return [Table("Exchanges: here, and as simulated before", columns, rows, notes)]


def traded(sources: Sequence[ComparisonResult]) -> list[Table]:
    """Return the table of all comparisons over a link; none if there is no such comparison."""
    found = [source for source in sources if source.linked]
    eps = sorted({each for source in found for each in source.eps}, reverse=True)
    columns = ["comparison", "method", "replicas", "step", *(f"to {aim(each)}" for each in eps)]
    columns += [*(f"MB to {aim(each)}" for each in eps), "messages an epoch", "MB an epoch", "waited", "staleness"]
    rows = []
    for source in found:
        for group in own(source):
            passes = group.most_epochs or math.nan
            messages, size, waited = (group.last(name) for name in FIELDS)
            total = group.last(source.clock)
            share = waited.median / (total.median * group.replicas) if waited and total and total.median else None
            rows.append((
                source.label, group.method, str(group.replicas), step_text(group.step),
                *(_share(group, each, spread(group.reached(each, source.clock), duration)) for each in eps),
                *(spread(group.reached(each, "bytes_sent"), _megabytes) for each in eps),
                digits(messages.median / passes) if messages else NONE, digits(1e-6 * size.median / passes) if size
                else NONE, NONE if share is None else f"{100 * share:.0f} %",
                spread(group.over_epochs("staleness_mean"), digits),
            ))  # fmt: skip
    links = "; ".join(dict.fromkeys(f"{source.label}: {source.about['link']}" for source in found))
    notes = [
        f"Time and megabytes of all replicas until a target was reached: medians over seeds. Link: {links}. Messages "
        "take its latency, and occupy the lines of both sides for as long as its bandwidth says. Waited: share of the "
        "replicas' time in which they waited for messages.",
    ]
    if any(source.virtual for source in found):
        notes.append("Of the simulator's workers time is virtual: a row takes as long as the link says.")
    labelled = len(sources) > 1
    columns, rows = columns if labelled else columns[1:], rows if labelled else [row[1:] for row in rows]
    return [Table("Replicas that trade", tuple(columns), rows, notes)] if rows else []


def sentences(source: ComparisonResult) -> list[str]:
    """Return which exchanges reached the hardest target that half of serial's runs reach, and when; else nothing."""
    found = own(source) if source.linked else []
    over = serial(found, found[0].rule) if found else None
    eps = min((each for each in source.eps if over is not None and over.share(each) >= 0.5), default=None)
    exchanges = [group for group in found if group.kind == "exchange" and group.replicas > 1]
    if over is None or eps is None or not exchanges:
        return []
    race = Race(source, eps)
    there = [(reached.median, group) for group in exchanges
             if group.share(eps) >= 0.5 and (reached := group.reached(eps, source.clock))]  # fmt: skip
    clock = "By the simulator's clock" if source.virtual else f"Over {source.about['link']}"
    said = [f"{clock} serial reaches {race.aim} in {race.time(over)} (median)."]
    for _, group in sorted(there, key=lambda pair: pair[0])[:MOST_SAID]:
        sent = group.reached(eps, "bytes_sent")
        size = f", after sending {_megabytes(sent.median)} MB" if sent else ""
        outcome = race.against(group, over)
        said.append(
            f"{group.replicas} replicas with {group.method} get there in {race.time(group)}{size}: {outcome.text}."
        )
    if missing := [f"{group.method} ({group.replicas})" for group in exchanges if group.share(eps) < 0.5]:
        said.append(f"Most runs of these do not get there: {', '.join(missing)}.")
    return said


def _share(group: Group, eps: float, text: str) -> str:
    reached = round(group.share(eps) * len(group.runs))
    return text if reached in (0, len(group.runs)) else f"{text} ({reached}/{len(group.runs)})"


def _megabytes(size: float) -> str:
    return digits(1e-6 * size) if size else "0"


def _before(method: str, replicas: int, name: str) -> tuple[float | None, float | None] | None:
    """Return the milliseconds of the table simulated before, for the same kind of method; None if it has none."""
    scheme, _, parameters = method.partition(":")
    kind = method if parameters.startswith("mean") else scheme
    if scheme == "averaging" and parameters.startswith("period"):
        kind = "averaging:period"
    return BEFORE.get((kind, replicas), {}).get(name)
