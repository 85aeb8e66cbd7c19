"""``hogwild info DATA --machines P --link LINK``: whether more machines can pay, and by which exchange."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hogwild.errors import UsageError
from hogwild.methods import parse_link

if TYPE_CHECKING:
    from hogwild.data.rows.container import Rows

COLUMNS = ("exchange", "moved", "MB an epoch", "bytes a nonzero", "most nonzeros/s", "an epoch")


def check_between(machines: int | None, link: str) -> None:
    """Raise UsageError unless several machines and their link are given together."""
    if link and machines is None:
        raise UsageError(f"--link {link}: say how many machines it joins: --machines 2")
    if machines is not None and parse_link(link).bandwidth == float("inf"):
        raise UsageError(f"--machines {machines}: say what joins them: --link latency=0.2ms,bandwidth=1Gbit")


def machines_facts(rows: Rows, labels: bool, machines: int, link: str) -> dict[str, Any]:
    """Return what the exchanges send on these data, how long an epoch takes, and the verdict."""
    from hogwild.training.traffic import DegreeCounts, SharedWork, TimedEpoch, timed_epoch, traffic, verdict

    wire = parse_link(link)
    if "row=" in link:
        epoch = TimedEpoch(len(rows) * wire.row, rows.width, "as the link says")
    else:
        epoch = timed_epoch(rows, "log" if labels else "squared-error")
    load = SharedWork(epoch.width, len(rows), rows.nnz, epoch.seconds, machines, wire)
    found = traffic(load, DegreeCounts.of(rows.degrees()))
    return {
        "count": machines,
        "link": link,
        "epoch_seconds": epoch.seconds,
        "how": epoch.how,
        "nonzeros_per_second": rows.nnz / epoch.seconds if epoch.seconds else None,
        "exchanges": [dataclasses.asdict(each) for each in found],
        "verdict": verdict(load, found),
    }


def machines_lines(facts: dict[str, Any]) -> Iterator[str]:
    """Yield a heading, a line for each exchange, and the verdict."""
    speed = "" if facts["nonzeros_per_second"] is None else f", {facts['nonzeros_per_second']:.3g} nonzeros/s"
    yield f"{'machines':<14}{facts['count']} over {facts['link']}"
    yield f"{'an epoch':<14}{facts['epoch_seconds']:.3g} s on this one{speed} ({facts['how']})"
    yield " " * 14 + f"{COLUMNS[0]:<26}" + "".join(f"{name:>17}" for name in COLUMNS[1:])
    for each in facts["exchanges"]:
        cells = (
            f"{100 * each['moved']:.3g} %",
            f"{1e-6 * each['bytes']:.3g}",
            f"{each['per_nonzero']:.2g}",
            f"{each['most']:.2g}",
            f"{each['seconds']:.3g} s",
        )
        yield " " * 14 + f"{each['exchange']:<26}" + "".join(f"{cell:>17}" for cell in cells)
    yield from textwrap.wrap(
        facts["verdict"], 118, initial_indent=" " * 14, subsequent_indent=" " * 14, break_on_hyphens=False
    )
