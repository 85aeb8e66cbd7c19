"""``hogwild data list``, ``info``, ``fetch`` and ``path``: public data sets, by name."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hogwild.cli.data.commands import size
from hogwild.cli.display import Display, Reading
from hogwild.cli.options import Quiet
from hogwild.errors import HogwildError, InputError, UsageError
from hogwild.json_rows import to_json
from hogwild.screen import Screen, printable

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
    if json:
        typer.echo(to_json({card.name: facts(card) for card in known}))
        return
    for line in table(list(known)):
        typer.echo(printable(line))
    typer.echo(f"{len(known)} data sets; those fetched are in {data_folder()}")


def table(known: list[Card]) -> list[str]:
    """Return a line for each card, at most ``WIDTH`` columns wide."""
    import io

    from rich.console import Console
    from rich.table import Table

    shown = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for header, left in (
        ("name", True),
        ("task", True),
        ("rows", False),
        ("width", False),
        ("size", False),
        ("fetched", True),
    ):
        shown.add_column(header, justify="left" if left else "right", no_wrap=True)
    for card in known:
        shown.add_row(card.name, card.task, rows_of(card), width_of(card), size_of(card), fetched_of(card))
    console = Console(file=io.StringIO(), width=WIDTH, highlight=False, color_system=None)
    console.print(shown)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def rows_of(card: Card) -> str:
    known = [part.rows for part in card.parts if part.rows is not None]
    return f"{sum(known):,}" if len(known) == len(card.parts) else f"{card.arcs:,}" if card.arcs else "-"


def width_of(card: Card) -> str:
    if card.users is not None and card.items is not None:
        return f"{card.users:,} x {card.items:,}"
    width = card.features or card.vertices
    return f"{width:,}" if width else "-"


def size_of(card: Card) -> str:
    known = [file.bytes for file in card.files()]
    return size(sum(known)) if None not in known else "-"  # type: ignore[arg-type]


def fetched_of(card: Card) -> str:
    from hogwild.data.public.catalogue import is_fetched, place

    here = [role for role in card.roles if is_fetched(place(card, role))]
    return "yes" if len(here) == len(card.roles) else ", ".join(here) or "no"


@data.command("info")
def info(name: Name, json: Json = False) -> None:
    """Print all that is known of a data set: files, counts, licence, citation."""
    from hogwild.data.public.catalogue import look_up

    card, _ = look_up(name)
    if json:
        typer.echo(to_json(facts(card)))
        return
    for line in lines(card):
        typer.echo(printable(line))


def facts(card: Card) -> dict[str, Any]:
    """Return a card as JSON types, with the path of each part that has been fetched."""
    import dataclasses

    from hogwild.data.public.catalogue import is_fetched, place

    given = {name: value for name, value in dataclasses.asdict(card).items() if value not in (None, "", ())}
    here = {role: str(place(card, role)) for role in card.roles if is_fetched(place(card, role))}
    return given | {"problem": card.problem, "fetched": here}


def lines(card: Card) -> Iterator[str]:
    """Yield all facts of a card, each after its name."""
    from hogwild.data.public.catalogue import is_fetched, place

    others = f" (also {', '.join(card.aliases)})" if card.aliases else ""
    yield from fact("name", card.name + others)
    yield from fact("title", card.title)
    yield from fact("task", f"{card.task}: hogwild train {card.name} (--problem {card.problem})")
    counts = ("features", card.features), ("classes", card.classes), ("users", card.users), ("items", card.items)
    for name, count in (*counts, ("vertices", card.vertices), ("arcs", card.arcs)):
        if count is not None:
            yield from fact(name, f"{count:,}")
    for part in card.parts:
        noun = "ratings" if card.problem == "completion" else "rows"
        known = [f"{count:,} {what}" for what, count in ((noun, part.rows), ("nonzeros", part.nonzeros)) if count]
        path = place(card, part.role)
        state = f"in {path}" if is_fetched(path) else f"not here (hogwild data fetch {card.title_of(part.role)})"
        yield from fact(part.role, ", ".join([*known, state]))
        for file in part.files:
            yield from file_lines(file)
    for file in card.labels:
        yield from fact("labels", f"1 for documents of {card.topic}, -1 for others, from")
        yield from file_lines(file)
    for name in ("format", "licence", "note", "homepage", "source"):
        if value := getattr(card, name):
            yield from fact(name, value)
    yield "citation"
    for line in card.citation.strip().splitlines():
        yield f"    {line}"


def file_lines(file: Any) -> Iterator[str]:
    known = [f"{file.bytes:,} bytes"] if file.bytes is not None else []
    known += [f"{name} {value}" for name in ("sha256", "md5") if (value := getattr(file, name))]
    known += [f"of it {file.member}"] if file.member else []
    for text in (file.url or f"{file.name}, by hand", *file.mirrors, *known):
        yield f"    {text}"


def fact(name: str, value: str) -> list[str]:
    return textwrap.wrap(
        " ".join(value.split()),
        WIDTH,
        initial_indent=f"{name:<11} ",
        subsequent_indent=" " * 12,
        break_long_words=False,
        break_on_hyphens=False,
    )


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

    reading = Fetching()
    display.say(f"{card.name}: {card.title}; terms: {card.licence}")
    steps = parts(card, [role] if role else None, sources=source, force=force, progress=reading.step)
    while True:
        with display.live(reading.line):
            done = next(steps, None)
        if done is None:
            break
        title = card.title_of(done.role)
        if not done.found:
            display.say(f"{title}: is here, in {done.path} (--force fetches it again)")
            continue
        counts = ", ".join(f"{count:,} {name}" for name, count in done.found.items())
        display.say(f"{title}: {counts}, in {done.path}")
        for name in done.unchecked:
            display.say(
                f"{title}: the known checksum is of {name} as it comes, packed; here counts alone were compared"
            )
    test = f" --test {card.name}:test" if "test" in card.roles and is_fetched(place(card, "test")) else ""
    display.say(f"cite it (hogwild data info {card.name}); train on it: hogwild train {card.name}{test}")


class Fetching(Reading):
    """The live line while a data set is fetched and read."""

    def __init__(self) -> None:
        super().__init__("")

    def step(self, what: str, done: int, total: int | None) -> None:
        if what != self.name:
            super().__init__(what)
            self.first = done  # of a resumed download
        self.update(done, total)

    def line(self) -> str:
        import time

        from hogwild.cli.display import bar, clock

        if not self.name:
            return ""
        seconds = max(time.monotonic() - self.start, 1e-3)
        speed = f"{(self.done - self.first) / seconds / 1e6:.1f} MB/s  {clock(seconds)}"
        if not self.total:
            return f"{self.name}  {size(self.done)}  {speed}"
        return f"{self.name} {bar(self.done / self.total)} {self.done / self.total:.0%}  {speed}"
