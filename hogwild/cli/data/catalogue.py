"""``hogwild data list``, ``info``, ``fetch`` and ``path``: public data sets, by name."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hogwild.cli.data.commands import size
from hogwild.cli.display import Display, Reading, fact_lines, show
from hogwild.cli.options import Quiet
from hogwild.errors import HogwildError, InputError, UsageError
from hogwild.rows_file import Screen, printable

if TYPE_CHECKING:
    from hogwild.data.public.catalogue import Card

data = typer.Typer(help="Public data sets: list, describe and fetch them; their names then stand wherever data do.")

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A data set, or a part of one: rcv1, rcv1:test.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
WIDTH = 80  # columns of output


@data.command("list")
def list_(json: Json = False) -> None:
    """List all data sets, and which of them are here."""
    from hogwild.data.public.catalogue import cards, data_folder

    known = cards().values()
    show({card.name: facts(card) for card in known}, json, lambda _: table(list(known)))
    if not json:
        typer.echo(f"{len(known)} data sets; those fetched are in {data_folder()}")


def table(known: list[Card]) -> Iterator[str]:
    """Yield a line for each card, at most ``WIDTH`` columns wide."""
    cells = [("name", "task", "rows", "width", "size", "fetched"), *map(row_of, known)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    for row in cells:
        aligned = (f"{cell:{side}{width}}" for cell, side, width in zip(row, "<<>>><", widths))
        yield " ".join(aligned).rstrip()


def row_of(card: Card) -> tuple[str, ...]:
    """Return name, task, rows, width, size and what has been fetched."""
    from hogwild.data.public.catalogue import is_fetched, place

    rows = [part.rows for part in card.parts if part.rows is not None]
    count = sum(rows) if len(rows) == len(card.parts) else card.arcs
    width = card.features or card.vertices
    sizes = [file.bytes for file in card.files() if file.bytes is not None]
    here = [role for role in card.roles if is_fetched(place(card, role))]
    return (
        card.name,
        card.task,
        f"{count:,}" if count else "-",
        f"{card.users:,} x {card.items:,}" if card.users and card.items else f"{width:,}" if width else "-",
        size(sum(sizes)) if len(sizes) == len(card.files()) else "-",
        "yes" if len(here) == len(card.roles) else ", ".join(here) or "no",
    )


@data.command("info")
def info(name: Name, json: Json = False) -> None:
    """Print all that is known of a data set: files, counts, licence, citation."""
    from hogwild.data.public.catalogue import look_up

    card, _ = look_up(name)
    show(facts(card), json, lambda _: lines(card))


def facts(card: Card) -> dict[str, Any]:
    """Return a card as JSON types, with the path of each part that has been fetched."""
    from hogwild.data.public.catalogue import is_fetched, place

    given = {name: value for name, value in dataclasses.asdict(card).items() if value not in (None, "", ())}
    here = {role: str(place(card, role)) for role in card.roles if is_fetched(place(card, role))}
    return given | {"problem": card.problem, "fetched": here}


def lines(card: Card) -> Iterator[str]:
    """Yield all facts of a card, each after its name."""
    from hogwild.data.public.catalogue import is_fetched, place

    others = f" (also {', '.join(card.aliases)})" if card.aliases else ""
    task = f"{card.task}: hogwild train {card.name} (--problem {card.problem})"
    known: dict[str, Any] = {"name": card.name + others, "title": card.title, "task": task}
    for part in card.parts:
        noun = "ratings" if card.problem == "completion" else "rows"
        counts = [f"{count:,} {what}" for what, count in ((noun, part.rows), ("nonzeros", part.nonzeros)) if count]
        path = place(card, part.role)
        state = f"in {path}" if is_fetched(path) else f"not here (hogwild data fetch {card.title_of(part.role)})"
        known[part.role] = [*counts, state]
    numbers = ("features", "classes", "users", "items", "vertices", "arcs")
    for name in (*numbers, "format", "licence", "note", "homepage", "source"):
        if value := getattr(card, name):
            known[name] = value
    yield from fact_lines(known, 12, WIDTH)
    yield "files"
    for file in card.files():
        about = [f"{file.bytes:,} bytes"] if file.bytes is not None else []
        about += [f"{name} {value}" for name in ("sha256", "md5") if (value := getattr(file, name))]
        about += [f"of it {file.member}"] if file.member else []
        for text in (file.url, *file.mirrors, *about):
            yield f"    {text}"
    yield "citation"
    for line in card.citation.strip().splitlines():
        yield f"    {line}"


@data.command("path")
def path(name: Name) -> None:
    """Print where a fetched data set lies."""
    from hogwild.data.public.catalogue import is_fetched, look_up, place

    card, role = look_up(name)
    where = place(card, role or card.roles[0])
    if not is_fetched(where):
        raise InputError(f"{name}: has not been fetched into {where.parent.parent}: hogwild data fetch {name}")
    typer.echo(where)


@data.command("fetch")
def fetch(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME", help="Data sets, or parts: rcv1, rcv1:test.", show_default=False),
    ],
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="PATH",
            show_default=False,
            help="A file downloaded by hand, or a directory with it; may be given several times.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Fetch again what is here.")] = False,
    quiet: Quiet = False,
) -> None:
    """Download data sets, check them and make stores of them.

    A download that was interrupted goes on where it was. Data lie in the user's data directory, or in HOGWILD_DATA.
    """
    from hogwild.data.public.catalogue import look_up

    wanted = [look_up(name) for name in names]
    if source and len(wanted) > 1:
        raise UsageError("--from is for one data set at a time")
    display, failed = Display(Screen(sys.stdout), quiet), False
    for card, role in wanted:
        try:
            fetch_one(card, role, source or [], force, display)
        except KeyboardInterrupt:
            display.say("interrupted: what has come is kept, and the same command goes on from there")
            raise
        except HogwildError as error:
            if len(wanted) == 1:
                raise
            failed = True
            typer.echo(f"hogwild: error: {printable(str(error))}", err=True)
    if failed:
        raise typer.Exit(1)
    display.finish()


def fetch_one(card: Card, role: str | None, source: list[str], force: bool, display: Display) -> None:
    from hogwild.data.public.catalogue import is_fetched, place
    from hogwild.data.public.fetch import fetch as parts

    reading = Reading(verb="fetching")
    display.say(f"{card.name}: {card.title}; terms: {card.licence}")
    with display.live(reading.line):
        for done in parts(card, [role] if role else None, sources=source, force=force, progress=reading.step):
            title = card.title_of(done.role)
            if not done.counts:
                display.say(f"{title}: is here, in {done.path} (--force fetches it again)")
                continue
            counts = ", ".join(f"{count:,} {name}" for name, count in done.counts.items())
            display.say(f"{title}: {counts}, in {done.path}")
    test = f" --test {card.name}:test" if "test" in card.roles and is_fetched(place(card, "test")) else ""
    display.say(f"cite it (hogwild data info {card.name}); train on it: hogwild train {card.name}{test}")
