"""Fetches a data set of the catalogue: downloads it, unpacks, converts and compares it.

Each step leaves its result for the next call. A partial download is resumed, a complete one is not repeated if the disk
was full during its conversion, and a part of a set exists completely or not at all. Counts are compared with the card
while the store is still temporary, so data that do not match it are never in the data directory; only downloads that
turn out to be wrong are discarded. All parts of a set get the card's width, so that a model of the training rows fits
the test rows. A graph is kept as its DIMACS file, since graphs have no stores.

No name from an archive becomes a path. A member is chosen by a pattern, must be a regular file, and is written under a
name made here, so ``../`` and links have no effect. Text that is only compressed (.gz, .bz2, .xz) is not unpacked: the
parsers read it as it is.

The cost is disk space for the download and the store at the same time; the download is removed once the store exists.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import lzma
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from hogwild.data.cache import Recipe
from hogwild.data.parallel import BytesRead
from hogwild.data.public.catalogue import Card, CardPart, is_fetched, place
from hogwild.data.public.download import Failed, download
from hogwild.data.rows.store import StoreWriter
from hogwild.errors import HogwildError, InputError, OutputError, reason_of

FileProgress = Callable[[str, int, int | None], None]

DOWNLOADS = ".downloads"  # in the directory of a set
DAMAGE = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, ValueError)
BLOCK = 1 << 20  # bytes


@dataclass(frozen=True)
class Fetched:
    """One part of a set: where it is, and the counts of what was fetched (nothing if it existed before)."""

    role: str
    path: Path
    counts: dict[str, int]


def fetch(
    card: Card, roles: Sequence[str] | None = None, *, force: bool = False, progress: FileProgress | None = None
) -> Iterator[Fetched]:
    """Get parts of a data set, one after another.

    Parameters
    ----------
    card : Card
        From :func:`hogwild.data.public.catalogue.look_up`.
    roles : sequence of str, optional
        Which parts; by default all.
    force : bool
        Get parts again that exist already.
    progress : function, optional
        Called now and then with the current step, the bytes done and their total.

    Yields
    ------
    Fetched
        As soon as a part exists.

    Raises
    ------
    InputError
        If a file is not available, or not the one of the card.
    OutputError
        If the disk cannot be written, or is full.
    """
    for role in roles or card.roles:
        path, counts = place(card, role), {}
        if force or not is_fetched(path):
            with _work_folder(card, path.parent) as work:
                counts = _fetch_part(card, card.part(role), path, work, progress)
        yield Fetched(role, path, counts)


@contextlib.contextmanager
def _work_folder(card: Card, parent: Path) -> Iterator[Path]:
    """Yield this set's download directory, locked by this process; complete and partial downloads stay in it."""
    work = parent / DOWNLOADS
    try:
        parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(parent, os.O_RDONLY)
    except OSError as error:
        reason = f"{error.filename}: cannot be made: {error.strerror or error}"
        raise OutputError(f"{reason} (HOGWILD_DATA names another data directory)") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        work.mkdir(exist_ok=True)
        try:
            yield work
        finally:
            with contextlib.suppress(OSError):  # not empty
                work.rmdir()
    except BlockingIOError:
        raise InputError(f"{card.name}: another process is fetching it just now") from None
    except OSError as error:
        if isinstance(error, HogwildError):
            raise
        raise OutputError(f"{error.filename or work}: {error.strerror or error}") from None
    finally:
        os.close(lock)


def _fetch_part(card: Card, part: CardPart, path: Path, work: Path, progress: FileProgress | None) -> dict[str, int]:
    """Make ``path`` of the file of a part; return the counts."""
    title = card.title_of(part.role)
    source = text = work / part.file.name

    def step(action: str) -> BytesRead | None:
        return None if progress is None else lambda done, total: progress(action, done, total)

    try:
        download(part.file, source, step(f"fetching {part.file.name}"))
    except Failed as error:
        raise InputError(f"{error}; its page is {card.homepage}") from None
    try:
        if part.file.member:
            text = work / "unpacked"
            unpack(source, part.file.member, text)
        counts = _convert(card, part, text, path, step(f"reading {title}"))
    except InputError as error:  # the data are wrong, and would be again with the same download
        source.unlink(missing_ok=True)
        raise InputError(f"{title}: {error}; nothing was kept") from None
    finally:
        if text != source:
            text.unlink(missing_ok=True)
    source.unlink(missing_ok=True)
    return counts


# -- archives ---------------------------------------------------------------------------------------------------------


def unpack(archive: Path, pattern: str, path: Path) -> None:
    """Write the member of a zip or tar archive whose name, or its last parts, fit ``pattern`` to ``path``.

    Raises
    ------
    InputError
        If none or several fit, or the archive is damaged or encrypted.
    OutputError
        If it cannot be written.
    """
    fitting = others = 0
    try:
        for name, open_member in _members(archive):
            if not PurePosixPath(name).match(pattern):
                others += 1
                continue
            fitting += 1
            with open_member() as member, open(path, "wb") as file:
                shutil.copyfileobj(member, file)
    except DAMAGE as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # the disk is at fault
            raise OutputError(f"{path}: cannot unpack there: {error.strerror}") from None
        raise InputError(f"{archive}: the archive is damaged: {reason_of(error)}") from None
    if fitting != 1:
        raise InputError(f"{archive}: {fitting} members called {pattern}, and {others} others: expected one")


def _members(archive: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the name of each regular file in an archive, and the function that opens it."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for info in packed.infolist():
                if not info.is_dir():
                    yield info.filename, partial(packed.open, info)
    else:
        with tarfile.open(archive, "r:*") as tape:
            for entry in tape:
                if entry.isreg():
                    yield entry.name, partial(tape.extractfile, entry)
            while tape.fileobj and tape.fileobj.read(BLOCK):  # to the checksum of the compressed stream
                pass


# -- from text to a store, compared with the card ---------------------------------------------------------------------


def compare(card: Card, part: CardPart, counts: dict[str, int]) -> dict[str, int]:
    """Return the counts of the data; raise InputError if they differ from those that the card states."""
    exact = {"rows": part.rows, "ratings": part.rows, "nonzeros": part.nonzeros, "vertices": card.vertices}
    most = {"users": card.users, "items": card.items}
    wrong = []
    for name, count in counts.items():
        if exact.get(name) not in (None, count):
            wrong.append(f"{count:,} {name} and not {exact[name]:,}")
        elif count > (most.get(name) or count):
            wrong.append(f"{count:,} {name}, more than {most[name]:,}")
    if wrong:
        raise InputError(f"not the data of the card: {', '.join(wrong)}")
    return counts


def _convert(card: Card, part: CardPart, text: Path, path: Path, progress: BytesRead | None) -> dict[str, int]:
    """Make ``path`` of a text, once its counts are those of the card; return these."""
    if card.problem == "cuts":
        from hogwild.data.graphs.text import read_dimacs

        graph = read_dimacs(str(text), progress)  # it compares the arcs with its problem line
        counts = compare(card, part, {"vertices": graph.n_vertices})
        with open(text, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(text, path)
        return counts
    recipe = _recipe(card, str(text), progress)
    meta = {"source": part.file.url, "parser": f"catalogue, {card.format}"}
    with StoreWriter(path, meta, overwrite=True, kind=recipe.kind) as writer:
        facts = recipe.fill(writer)
        counts = {"rows": writer.rows, "nonzeros": writer.nnz, "features": facts["width"]}
        if card.problem == "completion":
            counts = {"ratings": facts["nnz"], "users": facts["users"], "items": facts["items"]}
        compare(card, part, counts)
        writer.close(**facts)
    return counts


def _recipe(card: Card, text: str, progress: BytesRead | None) -> Recipe:
    if card.problem == "linear":
        from hogwild.data.rows.source import recipe_of

        return recipe_of(text, "svmlight", {"width": card.features, "hash_bits": None, "progress": progress})
    from hogwild.data.ratings.source import recipe_of as recipe_of_ratings

    return recipe_of_ratings(text, card.layout, progress=progress)
