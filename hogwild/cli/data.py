"""``hogwild convert``, ``info`` and ``data``: stores, facts about data and machine, public data sets."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hogwild import machine
from hogwild.cli.display import Display, Reading, fact_lines, show
from hogwild.cli.options import CACHE, LAYOUT, Json, Quiet, takes
from hogwild.cli.sources import COLUMNS, OF_ROWS, Sources, check_outputs, check_size, described
from hogwild.errors import InputError, UsageError
from hogwild.model_file import replacing
from hogwild.rows_file import Screen

if TYPE_CHECKING:
    from hogwild.data.public.catalogue import Card

TEXTS = (".svm", ".ffm")  # endings of the text that rows are written as
KIND = {"help": "linear for rows of features, completion for ratings, cuts for a graph.", "panel": "", "choices": ()}


@takes(f"problem {LAYOUT} {COLUMNS}", problem=KIND | {"help": "linear for rows of features, completion for ratings."})
def convert(
    source: Annotated[str, typer.Argument(metavar="SRC", help="Rows, a table or ratings.", show_default=False)],
    destination: Annotated[
        str, typer.Argument(metavar="DST", help="Directory to make, or text: .svm, .ffm.", show_default=False)
    ],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace DST if it is a store or text.")] = False,
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Turn rows or ratings into a store: a directory of plain arrays that opens at once and may exceed memory.

    Rows become text if DST ends in .svm (svmlight) or .ffm (libffm: label field:feature:value). Graphs are not kept.
    """
    from hogwild.data.ratings.source import convert_ratings
    from hogwild.data.rows.source import convert as convert_rows

    sources, display, reading = Sources(options, source), Display(quiet=quiet), Reading(source)
    if sources.problem == "cuts":
        raise UsageError(f"{source}: graphs are not kept in stores: train on the file itself")
    make: Any = convert_ratings if sources.problem == "completion" else convert_rows
    if os.path.splitext(destination)[1].lower() in TEXTS:
        if sources.problem == "completion":
            raise UsageError(f"{destination}: ratings are not written as such text: name a directory")
        make = convert_to_text
    with display.live(reading.line):
        meta = make(source, destination, overwrite=overwrite, progress=reading.update, **sources.reading())
    if sources.problem == "completion":
        display.say(f"{destination}: {meta['rows']:,} ratings of {meta['users']:,} users x {meta['items']:,} items")
        return
    display.say(f"{destination}: {meta['rows']:,} rows x {meta['width']:,} features, {meta['nnz']:,} nonzeros")


def convert_to_text(source: str, destination: str, overwrite: bool, **reading: Any) -> dict[str, Any]:
    """Write rows as svmlight or libffm text, by the name; return how many there are."""
    from hogwild.data.rows.source import open_data
    from hogwild.data.text.svmlight import write_text

    if os.path.lexists(destination) and not overwrite:
        raise InputError(f"{destination} exists: choose another name, or give --overwrite")
    check_outputs({"DST": destination}, [source])
    rows = open_data(source, **reading)
    with replacing(destination) as file:
        write_text(rows, file, fields=destination.lower().endswith(".ffm"))
    return {"rows": len(rows), "width": rows.width, "nnz": rows.nnz}


@takes(f"problem {LAYOUT} {COLUMNS} {CACHE}", problem=KIND)
def info(
    path: Annotated[str | None, typer.Argument(metavar="PATH", help="Data.", show_default="this machine")] = None,
    json: Json = False,
    **options: Any,
) -> None:
    """Print the facts of a data file or a store (whose checksums are compared), or of this machine."""
    if path is None:
        total, available = machine.memory()
        memory = f"{size(total or 0)}, {size(available or 0)} available"
        caches = ", ".join(f"{level} {each}" for level, each in machine.caches().items())
        show(machine.machine_fields() | {"caches": caches, "cpu_quota": machine.cpu_quota(), "memory": memory}, json)
        return
    from hogwild.data.graphs.container import graph_statistics
    from hogwild.data.public.catalogue import located
    from hogwild.data.ratings.container import rating_statistics
    from hogwild.data.rows.statistics import describe
    from hogwild.data.rows.store import is_store, verify

    sources = Sources(options, path)
    if is_store(store := located(path)):
        verify(store)
    examples = sources.open(display=Display(quiet=json))
    check_size(path, examples, 2)
    if sources.problem in OF_ROWS:
        show({"data": path, **describe(examples)}, json, data_lines)
        return
    statistics = rating_statistics if sources.problem == "completion" else graph_statistics
    show({"data": path, "problem": sources.problem, "what": described(examples), **statistics(examples)}, json)


def data_lines(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the facts of data, each with its meaning."""
    n, bits = max(facts["rows"], 1), facts["hash_bits"]
    hashed = "" if bits is None else f" = 2^{bits} buckets"
    shown = {
        "data": facts["data"],
        "rows": f"{facts['rows']:,} ({facts['empty_rows']:,} empty)",
        "features": f"{facts['width']:,}{hashed} ({facts['used_features']:,} of them occur)",
        "nonzeros": f"{facts['nnz']:,} ({facts['nnz'] / n:.1f} a row, density {facts['density']:.3g})",
        "targets": facts["targets"],
    }
    if "labels" in facts["targets"]:
        counts = facts["targets"]["labels"].items()
        shown["targets"] = [f"{label}: {count:,} ({count / n:.1%})" for label, count in counts]
    shown |= {
        "most popular": [f"feature {feature} (from 0) in {share:.1%} of rows" for feature, share in facts["hottest"]],
        "Omega": f"{facts['omega']:,} (most features in a row)",
        "Delta": f"{facts['delta']:.4g} (share of rows that hold the most popular feature)",
        "rho": f"{facts['rho']:.4g} ({'exact' if facts['rho_exact'] else 'at least'}; most rows that one row meets)",
        "two rows meet": f"with probability {facts['collision']:.3g}",
    }
    yield from fact_lines(shown)


def size(count: float) -> str:
    """Format bytes in the unit that leaves one to three digits before the point."""
    units = ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while count >= 1000 and len(units) > 1:
        count /= 1024
        units.pop(0)
    return f"{count:.0f} bytes" if units[0] == "bytes" else f"{count:.1f} {units[0]}"


# ---- public data sets


data = typer.Typer(help="Public data sets: list, describe and fetch them; their names then stand wherever data do.")
Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="A data set, or a part of one: rcv1, rcv1:test.", show_default=False),
]


@data.command("list")
def list_cards(json: Json = False) -> None:
    """List all data sets, and which of them are here."""
    from hogwild.data.public.catalogue import cards, data_folder

    all_cards = cards().values()
    if json:
        show({card.name: card_facts(card) for card in all_cards}, json)
        return
    heads = ("name", True), ("task", True), ("rows", False), ("width", False), ("size", False), ("fetched", True)
    Display().table(
        f"{len(all_cards)} data sets; those fetched are in {data_folder()}", heads, map(card_row, all_cards)
    )


def card_row(card: Card) -> tuple[str, ...]:
    """Return name, task, rows, width, size and what has been fetched."""
    rows = [part.rows for part in card.parts]
    sizes = [part.bytes for part in card.parts]
    width = f"{card.users:,} x {card.items:,}" if card.users and card.items else card.features or card.vertices
    count = card.arcs if None in rows else sum(filter(None, rows))
    return (
        card.name,
        card.task,
        f"{count:,}" if count else "-",
        f"{width:,}" if isinstance(width, int) else width or "-",
        "-" if None in sizes else size(sum(filter(None, sizes))),
        ", ".join(fetched_parts(card)) or "no",
    )


def fetched_parts(card: Card) -> dict[str, str]:
    """Return the path of each part of a data set that has been fetched."""
    from hogwild.data.public.catalogue import is_fetched, place

    return {role: str(place(card, role)) for role in card.roles if is_fetched(place(card, role))}


def card_facts(card: Card) -> dict[str, Any]:
    """Return a card as JSON types, each of its parts under its role, with the paths of what has been fetched."""
    facts = dataclasses.asdict(card)
    del facts["layout"]  # of the publisher's text
    facts |= {part.pop("role"): {name: value for name, value in part.items() if value} for part in facts.pop("parts")}
    facts |= {"problem": card.problem, "fetched": fetched_parts(card) or f"no: hogwild data fetch {card.name}"}
    return {name: value for name, value in facts.items() if value}


@data.command("info")
def info_card(name: Name, json: Json = False) -> None:
    """Print all that is known of a data set: files, counts, licence, citation."""
    from hogwild.data.public.catalogue import look_up

    show(card_facts(look_up(name)[0]), json)


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
    from hogwild.data.public.fetch import fetch as parts

    display = Display(Screen(sys.stdout), quiet)
    for card, role in [look_up(name) for name in names]:
        reading = Reading(verb="fetching")
        display.say(f"{card.name}: {card.title}; terms: {card.licence}")
        try:
            with display.live(reading.line):
                for each, path, counts in parts(card, role, force=force, progress=reading.step):
                    numbers = ", ".join(f"{count:,} {name}" for name, count in counts.items())
                    display.say(f"{card.title_of(each)}: {numbers or 'is here (--force fetches it again)'}, in {path}")
        except KeyboardInterrupt:
            display.say("interrupted: what has come is kept, and the same command goes on from there")
            raise
        test = f" --test {card.name}:test" if "test" in fetched_parts(card) else ""
        display.say(f"cite it (hogwild data info {card.name}); train on it: hogwild train {card.name}{test}")
    display.finish()
