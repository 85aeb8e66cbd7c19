"""``hogwild convert``, ``info``, ``cache`` and ``data``: stores, facts about data and machine, public data sets."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hogwild.cli.display import Display, Reading, fact_lines, show
from hogwild.cli.options import CACHE, COLUMNS, LAYOUT, Json, Quiet, takes
from hogwild.cli.sources import OF_ROWS, Sources, check_readable, check_vertices, check_width, chosen_problem, described
from hogwild.errors import UsageError
from hogwild.rows_file import Screen, printable

if TYPE_CHECKING:
    from hogwild.data.public.catalogue import Card

STATISTICS_BYTES = 32  # memory that ``describe`` needs per feature
NAMES = 14  # columns of the names of facts about data
LINE = 118  # columns of a line of them
CARD = 80  # columns of a line about a public data set
KIND = {"help": "linear for rows of features, completion for ratings, cuts for a graph.", "panel": None}


@takes(f"problem {LAYOUT} {COLUMNS}", problem=KIND)
def convert(
    source: Annotated[str, typer.Argument(metavar="SRC", help="Data of any kind.", show_default=False)],
    destination: Annotated[str, typer.Argument(metavar="DST", help="Directory to make.", show_default=False)],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace DST if it is a store.")] = False,
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Turn data into a store: a directory of plain arrays that opens at once and may be larger than memory."""
    sources = Sources.take(options | {"no_cache": True})
    problem = chosen_problem(options["problem"], source, sources.format)
    check_readable(source, problem)
    sources.check(problem)
    display = Display(quiet=quiet)
    reading = Reading(source)
    if problem == "cuts":
        raise UsageError(f"{source}: graphs are not kept in stores: train on the file itself")
    if problem == "completion":
        from hogwild.data.ratings.source import convert_ratings

        with display.live(reading.line):
            reads: dict[str, Any] = {"format": sources.format, "layout": sources.layout(), "progress": reading.update}
            meta = convert_ratings(source, destination, overwrite=overwrite, **reads)
        display.say(f"{destination}: {meta['rows']:,} ratings of {meta['users']:,} users x {meta['items']:,} items")
        return
    from hogwild.data.rows.source import convert as make_store
    from hogwild.data.rows.store import open_store
    from hogwild.data.text.hashing import collision_line, occupancy

    with display.live(reading.line):
        meta = make_store(source, destination, overwrite=overwrite, progress=reading.update, **sources.row_options())
    display.say(f"{destination}: {meta['rows']:,} rows x {meta['width']:,} features, {meta['nnz']:,} nonzeros")
    if meta.get("hash_bits") is not None:
        display.say(collision_line(occupancy(open_store(destination))))


@takes(f"problem {LAYOUT} {COLUMNS} {CACHE}", problem=KIND)
def info(
    path: Annotated[
        str | None,
        typer.Argument(metavar="PATH", help="Data.", show_default="this machine"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sample that statistics are estimated on.")] = 0,
    json: Json = False,
    **options: Any,
) -> None:
    """Print the facts of a data file or a store (whose checksums are compared), or of this machine."""
    from hogwild.data.public.catalogue import located
    from hogwild.data.rows.store import is_store, verify

    sources = Sources.take(options)
    if path is None:
        show(machine_facts(), json)
        return
    problem = chosen_problem(options["problem"], path, sources.format)
    check_readable(path, problem)
    sources.check(problem)
    if is_store(store := located(path)):
        verify(store)
    show(data_facts(path, sources, problem, seed, json), json, data_lines if problem in OF_ROWS else None)


def data_facts(path: str, sources: Sources, problem: str, seed: int, quiet: bool) -> dict[str, Any]:
    """Describe data, with the statistics that determine how often workers collide."""
    from hogwild.data.graphs.container import graph_statistics
    from hogwild.data.ratings.container import rating_statistics
    from hogwild.data.rows.statistics import describe

    reading = Reading(path)
    with Display(quiet=quiet).live(reading.line):
        examples = sources.open(problem, path, reading.update)
    if problem in OF_ROWS:
        check_width(path, examples.width, STATISTICS_BYTES)
        return {"data": path, **describe(examples, seed)}
    if problem == "cuts":
        check_vertices(path, examples)
    statistics = rating_statistics(examples) if problem == "completion" else graph_statistics(examples)
    return {"data": path, "problem": problem, "what": described(problem, examples), **statistics}


def machine_facts() -> dict[str, Any]:
    from hogwild import machine

    total, available = machine.memory()
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
    return facts | {f"{name}_version": version for name, version in machine.versions().items()}


def data_lines(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the facts of data, each with its meaning."""
    from hogwild.data.text.hashing import collision_line

    n = max(facts["rows"], 1)
    bound = "" if facts["rho_exact"] else "; at least, by 64 rows"
    shown = {
        "data": facts["data"],
        "rows": f"{facts['rows']:,}" + (f" ({facts['empty_rows']:,} empty)" if facts["empty_rows"] else ""),
        "features": f"{facts['width']:,} ({facts['used_features']:,} of them occur)",
        "nonzeros": f"{facts['nnz']:,} ({facts['nnz'] / n:.1f} a row, density {facts['density']:.3g})",
    }
    if "hashing" in facts:
        shown["hashing"] = collision_line(facts["hashing"])
    if "labels" in facts["targets"]:
        counts = facts["targets"]["labels"].items()
        shown["labels"] = ", ".join(f"{label}: {count:,} ({count / n:.1%})" for label, count in counts)
    else:
        shown["targets"] = ", ".join(f"{name} {value:.6g}" for name, value in facts["targets"].items())
    hottest = ", ".join(f"{feature} in {share:.1%} of rows" for feature, share in facts["hottest"])
    shown |= {
        "most popular": hottest + " (features counted from 0)" if hottest else "-",
        "Omega": f"{facts['omega']:,} (most features in a row)",
        "Delta": f"{facts['delta']:.4g} (share of rows that hold the most popular feature)",
        "rho": f"{facts['rho']:.4g} (largest share of rows that one row meets{bound})",
        "two rows meet": f"with probability {facts['collision']:.3g}",
    }
    yield from fact_lines(shown, NAMES, LINE)


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
def list_cache(**options: Any) -> None:
    """List what the cache holds, the newest first."""
    from hogwild.data.cache import Cache

    store = Cache(options["cache"])
    entries = store.entries()
    for entry in entries:
        made = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.made))
        typer.echo(f"{size(entry.bytes):>10}  {made}  {printable(entry.source)}")
    total = sum(entry.bytes for entry in entries)
    typer.echo(f"{len(entries)} entries, {size(total)} of at most {size(store.limit_bytes)}, in {store.directory}")


@cache.command("clear")
@takes("cache")
def clear_cache(**options: Any) -> None:
    """Remove everything the cache holds."""
    from hogwild.data.cache import Cache

    typer.echo(f"removed {Cache(options['cache']).clear()} entries")


# ---- public data sets


data = typer.Typer(help="Public data sets: list, describe and fetch them; their names then stand wherever data do.")
Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="A data set, or a part of one: rcv1, rcv1:test.", show_default=False),
]
CardJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@data.command("list")
def list_cards(json: CardJson = False) -> None:
    """List all data sets, and which of them are here."""
    from hogwild.data.public.catalogue import cards, data_folder

    all_cards = cards().values()
    show({card.name: card_facts(card) for card in all_cards}, json, lambda _: card_table(all_cards))
    if not json:
        typer.echo(f"{len(all_cards)} data sets; those fetched are in {data_folder()}")


def card_table(all_cards: Iterable[Card]) -> Iterator[str]:
    """Yield a line for each card, at most ``CARD`` columns wide."""
    cells = [("name", "task", "rows", "width", "size", "fetched"), *map(card_row, all_cards)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    for row in cells:
        yield " ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, "<<>>><", widths)).rstrip()


def card_row(card: Card) -> tuple[str, ...]:
    """Return name, task, rows, width, size and what has been fetched."""
    rows = [part.rows for part in card.parts if part.rows is not None]
    count = sum(rows) if len(rows) == len(card.parts) else card.arcs
    width = card.features or card.vertices
    sizes = [part.bytes for part in card.parts if part.bytes is not None]
    fetched = fetched_parts(card)
    return (
        card.name,
        card.task,
        f"{count:,}" if count else "-",
        f"{card.users:,} x {card.items:,}" if card.users and card.items else f"{width:,}" if width else "-",
        size(sum(sizes)) if len(sizes) == len(card.parts) else "-",
        "yes" if len(fetched) == len(card.roles) else ", ".join(fetched) or "no",
    )


def fetched_parts(card: Card) -> dict[str, str]:
    """Return the path of each part of a data set that has been fetched."""
    from hogwild.data.public.catalogue import is_fetched, place

    return {role: str(place(card, role)) for role in card.roles if is_fetched(place(card, role))}


def card_facts(card: Card) -> dict[str, Any]:
    """Return a card as JSON types, with the path of each part that has been fetched."""
    fields = {name: value for name, value in dataclasses.asdict(card).items() if value not in (None, "", ())}
    return fields | {"problem": card.problem, "fetched": fetched_parts(card)}


@data.command("info")
def info_card(name: Name, json: CardJson = False) -> None:
    """Print all that is known of a data set: files, counts, licence, citation."""
    from hogwild.data.public.catalogue import look_up

    card, _ = look_up(name)
    show(card_facts(card), json, lambda _: card_lines(card))


def card_lines(card: Card) -> Iterator[str]:
    """Yield all facts of a card, each after its name."""
    others = f" (also {', '.join(card.aliases)})" if card.aliases else ""
    task = f"{card.task}: hogwild train {card.name} (--problem {card.problem})"
    facts: dict[str, Any] = {"name": card.name + others, "title": card.title, "task": task}
    fetched = fetched_parts(card)
    for part in card.parts:
        noun = "ratings" if card.problem == "completion" else "rows"
        counts = [f"{count:,} {unit}" for unit, count in ((noun, part.rows), ("nonzeros", part.nonzeros)) if count]
        absent = f"not here (hogwild data fetch {card.title_of(part.role)})"
        facts[part.role] = [*counts, f"in {fetched[part.role]}" if part.role in fetched else absent]
    numbers = ("features", "classes", "users", "items", "vertices", "arcs")
    for name in (*numbers, "format", "licence", "note", "homepage", "source"):
        if value := getattr(card, name):
            facts[name] = value
    facts |= {"files": [part.url for part in card.parts], "citation": card.citation}
    yield from fact_lines(facts, 12, CARD)


@data.command("fetch")
def fetch(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME", help="Data sets, or parts: rcv1, rcv1:test.", show_default=False),
    ],
    force: Annotated[bool, typer.Option("--force", help="Fetch again what is here.")] = False,
    quiet: Quiet = False,
) -> None:
    """Download data sets, check them and make stores of them.

    A download that was interrupted goes on where it was. Data lie in the user's data directory, or in HOGWILD_DATA.
    """
    from hogwild.data.public.catalogue import look_up

    wanted = [look_up(name) for name in names]
    display = Display(Screen(sys.stdout), quiet)
    for card, role in wanted:
        try:
            fetch_one(card, role, force, display)
        except KeyboardInterrupt:
            display.say("interrupted: what has come is kept, and the same command goes on from there")
            raise
    display.finish()


def fetch_one(card: Card, role: str | None, force: bool, display: Display) -> None:
    from hogwild.data.public.fetch import fetch as parts

    reading = Reading(verb="fetching")
    display.say(f"{card.name}: {card.title}; terms: {card.licence}")
    with display.live(reading.line):
        for each, path, counts in parts(card, role, force=force, progress=reading.step):
            title = card.title_of(each)
            if not counts:
                display.say(f"{title}: is here, in {path} (--force fetches it again)")
                continue
            shown = ", ".join(f"{count:,} {name}" for name, count in counts.items())
            display.say(f"{title}: {shown}, in {path}")
    test = f" --test {card.name}:test" if "test" in fetched_parts(card) else ""
    display.say(f"cite it (hogwild data info {card.name}); train on it: hogwild train {card.name}{test}")
