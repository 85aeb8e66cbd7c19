"""``hogwild convert``, ``info`` and ``cache``: data made into stores, and facts about data, models and this machine."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hogwild.cli.data.sources import CONTAINERS, Sources, check_memory, check_readable, chosen
from hogwild.cli.display import Display, Reading, fact_lines, show
from hogwild.cli.options import CACHE, COLUMNS, LAYOUT, Json, Quiet, takes
from hogwild.errors import UsageError
from hogwild.methods import parse_link
from hogwild.rows_file import printable

if TYPE_CHECKING:
    from hogwild.data.rows.container import Rows

STATISTICS_BYTES = 32  # memory that ``describe`` needs per feature

TRAFFIC = ("exchange", "moved", "MB an epoch", "bytes a nonzero", "most nonzeros/s", "an epoch")  # columns
KIND = {"help": "linear for rows of features, completion for ratings, cuts for a graph.", "panel": None}


@takes(f"problem {LAYOUT} {COLUMNS}", problem=KIND)
def convert(
    source: Annotated[str, typer.Argument(metavar="SRC", help="Data of any kind.", show_default=False)],
    destination: Annotated[str, typer.Argument(metavar="DST", help="Directory to make.", show_default=False)],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace DST if it is a store.")] = False,
    quiet: Quiet = False,
    **given: Any,
) -> None:
    """Turn data into a store: a directory of plain arrays that opens at once and may be larger than memory."""
    sources = Sources.take(given | {"no_cache": True})
    problem, format = chosen(given["problem"], source, given["format"]), given["format"]
    check_readable(source, problem)
    sources.check(problem)
    display, reading = Display(quiet=quiet), Reading(source)
    if problem == "cuts":
        raise UsageError(f"{source}: graphs are not kept in stores: train on the file itself")
    if problem == "completion":
        from hogwild.data.ratings.source import convert_ratings

        with display.live(reading.line):
            how = {"format": format, "layout": sources.layout(), "overwrite": overwrite}
            made = convert_ratings(source, destination, progress=reading.update, **how)
        display.say(f"{destination}: {made['rows']:,} ratings of {made['users']:,} users x {made['items']:,} items")
        return
    from hogwild.data.rows.source import convert as make_store
    from hogwild.data.text.hashing import collision_line

    with display.live(reading.line):
        meta = make_store(source, destination, overwrite=overwrite, progress=reading.update, **sources.options())
    display.say(f"{destination}: {meta['rows']:,} rows x {meta['width']:,} features, {meta['nnz']:,} nonzeros")
    if "hashing" in meta:
        display.say(collision_line(meta["hashing"]))


@takes(f"problem {LAYOUT} {COLUMNS} {CACHE}", problem=KIND)
def info(
    path: Annotated[
        str | None,
        typer.Argument(metavar="PATH", help="Data or a model.", show_default="this machine"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sample that statistics are estimated on.")] = 0,
    machines: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=1024,
            help="Say whether so many machines would train on the data sooner than one.",
            show_default=False,
        ),
    ] = None,
    link: Annotated[
        str,
        typer.Option(
            metavar="LINK",
            show_default=False,
            help="What lies between them, such as latency=0.2ms,bandwidth=1Gbit; with row=2us an epoch is not timed.",
        ),
    ] = "",
    json: Json = False,
    **given: Any,
) -> None:
    """Print the facts of a data file, a store (whose checksums are compared) or a model, or of this machine."""
    from hogwild.data.public.catalogue import located
    from hogwild.data.rows.store import is_store, verify

    lines: Callable[[dict[str, Any]], Iterator[str]] = fact_lines
    sources = Sources.take(given)
    if link and machines is None:
        raise UsageError(f"--link {link}: say how many machines it joins: --machines 2")
    if machines is not None and parse_link(link).bandwidth == float("inf"):
        raise UsageError(f"--machines {machines}: say what joins them: --link latency=0.2ms,bandwidth=1Gbit")
    if path is None:
        if machines is not None:
            raise UsageError(f"--machines {machines}: give the data too: hogwild info DATA --machines {machines}")
        facts = machine_facts()
    else:
        kind = chosen(given["problem"], path, sources.format)
        check_readable(path, kind)
        sources.check(kind)
        if is_store(located(path)):
            verify(located(path))
        if machines is not None and (is_model(path) or kind != "linear"):
            raise UsageError(f"--machines {machines}: is for rows of features, and {path} holds something else")
        if is_model(path):
            from hogwild.cli.models.inspect import inspect

            inspect(path, json=json)
            return
        if kind == "linear":
            facts = data_facts(path, sources, seed, json, machines, link)
            lines = data_lines
        else:
            facts = other_facts(path, sources, kind, json)
    show(facts, json, lines)


def other_facts(path: str, sources: Sources, problem: str, quiet: bool) -> dict[str, Any]:
    """Describe ratings or a graph, with the statistics that determine how often workers collide."""
    from hogwild.data.graphs.container import graph_statistics
    from hogwild.data.ratings.container import rating_statistics

    container, display, reading = CONTAINERS[problem], Display(quiet=quiet), Reading(path)
    with display.live(reading.line):
        examples = container.open(sources, path, reading.update)
    statistics = rating_statistics(examples) if problem == "completion" else graph_statistics(examples)
    return {"data": path, "problem": problem, "what": container.facts(examples), **statistics}


def is_model(path: str) -> bool:
    """Whether a file begins like a safetensors file: an 8-byte length, then a JSON object."""
    if not os.path.isfile(path):  # a directory, generated data, or a pipe, whose first bytes must not be consumed
        return False
    with open(path, "rb") as file:
        start = file.read(9)
    return len(start) == 9 and start[8:] == b"{" and int.from_bytes(start[:8], "little") < 1 << 28


def data_facts(
    path: str, sources: Sources, seed: int, quiet: bool, machines: int | None = None, link: str = ""
) -> dict[str, Any]:
    from hogwild.data.rows.statistics import describe

    display, reading = Display(quiet=quiet), Reading(path)
    with display.live(reading.line):
        rows = sources.open(path, reading.update)
    check_memory(path, rows.width, STATISTICS_BYTES)
    facts = {"data": path, **describe(rows, seed)}
    if machines is not None:
        with display.live(lambda: "timing an epoch"):
            facts["machines"] = machines_facts(rows, "labels" in facts["targets"], machines, link)
    return facts


def machine_facts() -> dict[str, Any]:
    from hogwild import machine

    total, available = machine.memory()
    shared = machine.shared_memory()
    facts: dict[str, Any] = {
        "cpu": machine.cpu_model(),
        "physical_cores": machine.physical_cores(),
        "cpus_allowed": " ".join(map(str, sorted(os.sched_getaffinity(0)))),
        "caches": ", ".join(f"{level} {size}" for level, size in machine.caches().items()),
        "load": f"{os.getloadavg()[0]:.2f}",
    }
    if (quota := machine.cpu_quota()) is not None:
        facts["cpu_quota"] = quota
    if total is not None and available is not None:
        facts["memory"] = f"{size(total)}, {size(available)} available"
    if shared is not None:
        facts["shared_memory"] = f"{size(shared[0])}, {size(shared[1])} free in /dev/shm"
    return facts | {f"{name}_version": version for name, version in machine.versions().items()}


def data_lines(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the facts of data, each with its meaning."""
    from hogwild.data.text.hashing import collision_line

    n = max(facts["rows"], 1)
    exact = "" if facts["rho_exact"] else f" to {facts['rho_upper']:.4g}"
    shown = {
        "data": facts["data"],
        "rows": f"{facts['rows']:,}" + (f" ({facts['empty_rows']:,} empty)" if facts["empty_rows"] else ""),
        "features": f"{facts['width']:,} ({facts['used_features']:,} of them occur)",
        "nonzeros": f"{facts['nnz']:,} ({facts['nnz_mean']:.1f} a row, density {facts['density']:.3g})",
    }
    if "hashing" in facts:
        shown["hashing"] = collision_line(facts["hashing"])
    if "labels" in facts["targets"]:
        counts = facts["targets"]["labels"].items()
        shown["labels"] = ", ".join(f"{label}: {count:,} ({count / n:.1%})" for label, count in counts)
        if "others" in facts["targets"]:
            shown["labels"] += f", and {facts['targets']['others']:,} others"
    else:
        shown["targets"] = ", ".join(f"{name} {value:.6g}" for name, value in facts["targets"].items())
    hottest = ", ".join(f"{feature} in {share:.1%} of rows" for feature, share in facts["hottest"])
    shown |= {
        "most popular": hottest + " (features counted from 0)" if hottest else "-",
        "Omega": f"{facts['omega']:,} (most features in a row)",
        "Delta": f"{facts['delta']:.4g} (share of rows that hold the most popular feature)",
        "rho": f"{facts['rho']:.4g}{exact} (largest share of rows that one row meets; {facts['rho_how']})",
        "two rows meet": f"with probability {facts['collision']:.3g} +- {facts['collision_stderr']:.1g}, "
        f"sharing {facts['shared']:.3g} features on average",
        "contended": f"{facts['contended']:.1%} of a row's updates go to a weight another random row also holds",
    }
    yield from fact_lines(shown | {"in parallel": facts["meaning"]}, 14, 118)
    if "machines" in facts:
        yield from machines_lines(facts["machines"])


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
    epoch = f"{facts['epoch_seconds']:.3g} s on this one{speed} ({facts['how']})"
    yield from fact_lines({"machines": f"{facts['count']} over {facts['link']}", "an epoch": epoch}, 14, 118)
    yield " " * 14 + f"{TRAFFIC[0]:<26}" + "".join(f"{name:>17}" for name in TRAFFIC[1:])
    for each in facts["exchanges"]:
        cells = (
            f"{100 * each['moved']:.3g} %",
            f"{1e-6 * each['bytes']:.3g}",
            f"{each['per_nonzero']:.2g}",
            f"{each['most']:.2g}",
            f"{each['seconds']:.3g} s",
        )
        yield " " * 14 + f"{each['exchange']:<26}" + "".join(f"{cell:>17}" for cell in cells)
    yield from fact_lines({"": facts["verdict"]}, 14, 118)


def size(count: int) -> str:
    """Format bytes in the unit that leaves one to three digits before the point."""
    amount = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


cache = typer.Typer(help="Parsed text and generated data that are kept between runs.")


@cache.command("list")
@takes("cache")
def list_(**given: Any) -> None:
    """List what the cache holds, the latest used first."""
    from hogwild.data.cache import Cache

    store = Cache(given["cache"])
    entries = store.entries()
    for entry in entries:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.last_used))
        typer.echo(f"{size(entry.bytes):>10}  {used}  {printable(entry.source)}")
    total = sum(entry.bytes for entry in entries)
    typer.echo(f"{len(entries)} entries, {size(total)} of at most {size(store.limit_bytes)}, in {store.directory}")


@cache.command("clear")
@takes("cache")
def clear(**given: Any) -> None:
    """Remove everything the cache holds."""
    from hogwild.data.cache import Cache

    typer.echo(f"removed {Cache(given['cache']).clear()} entries")
