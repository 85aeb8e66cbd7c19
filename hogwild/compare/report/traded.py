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
            rows.append(
                (
                    source.label,
                    group.method,
                    str(group.replicas),
                    step_text(group.step),
                    *(_share(group, each, spread(group.reached(each, source.clock), duration)) for each in eps),
                    *(spread(group.reached(each, "bytes_sent"), _megabytes) for each in eps),
                    digits(messages.median / passes) if messages else NONE,
                    digits(1e-6 * size.median / passes) if size else NONE,
                    NONE if share is None else f"{100 * share:.0f} %",
                    spread(group.over_epochs("staleness_mean"), digits),
                )
            )
    links = "; ".join(dict.fromkeys(f"{source.label}: {source.about['link']}" for source in found))
    notes = [
        f"Time and megabytes of all replicas until a target was reached: medians over seeds. Link: {links}. Messages "
        "take its latency, and occupy the lines of both sides for as long as its bandwidth says. Waited: share of the "
        "replicas' time in which they waited for messages. Time is virtual: a row takes as long as the link says.",
    ]
    labelled = len(sources) > 1
    columns, rows = columns if labelled else columns[1:], rows if labelled else [row[1:] for row in rows]
    return [Table("Replicas that trade", tuple(columns), rows, notes)] if rows else []


def sentences(source: ComparisonResult) -> list[str]:
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
