"""Public data sets by name: a card for each, and the locations of fetched ones.

A card is a small TOML file that states only what its publisher states (``source`` says where), so an unknown number is
left out, and a checksum computed here is never presented as the publisher's. What a card does state is compared with
the data after conversion (``fetch.py``).

A set has one or more parts, named by the set and a colon, ``rcv1:test``; the set's name alone means the first. A part
is fetched if its store (for a graph: its file) is in the user's data directory, which the environment variable
``HOGWILD_DATA`` moves. It is the only variable the library reads, since a name must mean the same in a script as in the
shell it was fetched in.
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from hogwild.data.rows.store import is_store
from hogwild.data.text.delimited import TextLayout
from hogwild.errors import InputError, UsageError, expected_one_of, nearest

CARDS = Path(__file__).resolve().parents[2] / "datasets"  # in a checkout a link to its datasets/
PROBLEMS = {"svmlight": "linear", "ratings": "completion", "dimacs": "cuts"}  # the problem that each format is for
ROLES = ("train", "test", "validation", "ratings", "graph")


@dataclass(frozen=True)
class Part:
    """One part of a set: the file that its publisher offers, and what is known of it.

    Attributes
    ----------
    mirrors : tuple of str
        Other addresses of the same file, tried in order.
    bytes : int, optional
    md5 : str, optional
        As stated by the publisher.
    member : str
        Pattern of the file meant inside an archive (``*/u.data``); empty if the file is not an archive.
    rows, nonzeros : int, optional
        Number of rows, or of ratings.
    """

    role: str
    url: str
    mirrors: tuple[str, ...] = ()
    bytes: int | None = None
    md5: str | None = None
    member: str = ""
    rows: int | None = None
    nonzeros: int | None = None


@dataclass(frozen=True)
class Card:
    """Facts about one data set.

    Attributes
    ----------
    task : str
        ``binary``, ``multiclass``, ``regression``, ``ratings`` or ``graph``.
    format : str
        One of ``PROBLEMS``.
    parts : tuple of Part
        The first is meant if only the set is named.
    source : str
        Where the numbers on the card come from.
    features, classes : int, optional
        For rows.
    users, items : int, optional
        For ratings: the publisher's counts, which may include some without a rating.
    layout : TextLayout, optional
        For ratings, where the file's name does not tell it.
    vertices, arcs : int, optional
        For a graph, as in the problem line of its file.
    """

    name: str
    title: str
    task: str
    format: str
    parts: tuple[Part, ...]
    homepage: str
    licence: str
    citation: str
    source: str
    aliases: tuple[str, ...] = ()
    note: str = ""
    features: int | None = None
    classes: int | None = None
    users: int | None = None
    items: int | None = None
    layout: TextLayout | None = None
    vertices: int | None = None
    arcs: int | None = None

    @property
    def problem(self) -> str:
        """The problem that the data are for: linear, completion or cuts."""
        return PROBLEMS[self.format]

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(part.role for part in self.parts)

    def title_of(self, role: str) -> str:
        """Return the user's name for the part."""
        return self.name if len(self.parts) == 1 else f"{self.name}:{role}"


def cards() -> dict[str, Card]:
    """Return all cards by name, in alphabetical order."""
    return {path.stem: _card(path) for path in sorted(CARDS.glob("*.toml"), key=lambda path: path.stem)}


def _card(path: Path) -> Card:
    facts = tomllib.loads(path.read_text(encoding="utf-8"))
    parts = tuple(Part(role, **facts.pop(role)) for role in ROLES if role in facts)
    layout = TextLayout(**facts.pop("layout", {}))
    return Card(**facts, parts=parts, layout=layout)


# -- names ------------------------------------------------------------------------------------------------------------


def look_up(name: str) -> tuple[Card, str | None]:
    """Return the card of ``name`` or ``name:part`` (any case, aliases too), and the part if one is named.

    Raises
    ------
    UsageError
        If there is no such set or part; the message suggests the nearest.
    """
    stem, colon, role = name.lower().partition(":")
    known = cards()
    card = next((card for card in known.values() if stem in (card.name, *card.aliases)), None)
    if card is None:
        raise UsageError(f"{name}: no such data set{near(stem, 0.5)} (hogwild data list has all {len(known)})")
    if colon and role not in card.roles:
        raise UsageError(f"{name}: {card.name} has no such part: {expected_one_of(card.roles, role)}")
    return card, role or None


def near(name: str, cutoff: float = 0.65) -> str:
    """Return ``: did you mean rcv1?``, or nothing if no set or part is similar (``cutoff`` of 1: the same name)."""
    known = cards().values()
    return nearest(name, [word for card in known for word in (card.name, *card.aliases)], cutoff)


def suggestion(name: str) -> str:
    """Return ``: did you mean data.gz?`` for a missing file if its directory or the catalogue has such a name."""
    folder, base = os.path.split(name)
    names = {path.name.lower(): os.path.join(folder, path.name) for path in Path(folder).glob("*")}
    return nearest(base, (), 0.75, names) or ("" if folder else near(base))


def find(name: str) -> tuple[Card, str] | None:
    """Return the card and the part for a name given where a path is expected; None for anything else.

    A file of that name takes precedence, as does anything that is not a plain name.
    """
    if not re.fullmatch(r"[\w.+-]+(:\w+)?", name) or os.path.lexists(name):
        return None
    try:
        card, role = look_up(name)
    except UsageError:
        return None
    return card, role or card.roles[0]


def located(name: str) -> str:
    """Return the path of the data set called ``name``; any other name is returned unchanged.

    Raises
    ------
    InputError
        If it has not been fetched.
    """
    if (found := find(name)) is None:
        return name
    path = place(*found)
    if not is_fetched(path):
        where = path.parent.parent
        raise InputError(
            f"{name}: no such file, and that data set is not fetched into {where}: hogwild data fetch {name}"
        )
    return str(path)


def data_folder() -> Path:
    """Return the user's data directory: ``$HOGWILD_DATA``, by default the platform's for ``hogwild``."""
    if folder := os.environ.get("HOGWILD_DATA"):
        return Path(os.path.abspath(os.path.expanduser(folder)))
    import platformdirs

    return Path(platformdirs.user_data_dir("hogwild"))


def place(card: Card, role: str) -> Path:
    """Return the path of a part, fetched or not: a store's directory or, for a graph, a file."""
    return data_folder() / card.name / (f"{role}.max" if card.problem == "cuts" else role)


def is_fetched(path: Path) -> bool:
    """Return whether the part exists; it appears complete or not at all."""
    return path.is_file() or is_store(path)
