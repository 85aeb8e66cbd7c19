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
import fnmatch
import lzma
import os
import re
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hogwild.data.parallel import BytesRead
from hogwild.data.public.catalogue import Card, CardPart, is_fetched, place
from hogwild.data.public.download import Failed, download
from hogwild.data.rows.store import StoreWriter
from hogwild.errors import HogwildError, InputError, OutputError, reason_of

FileProgress = Callable[[str, int, int | None], None]

DOWNLOADS = ".downloads"  # in the directory of a set
UNPACKED = "unpacked-"  # prefix of directories with unpacked members
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
        for folder in work.glob(f"{UNPACKED}*"):  # of a killed process
            shutil.rmtree(folder, ignore_errors=True)
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
    """Make ``path`` of the files of a part; return the counts."""
    title = card.title_of(part.role)
    paths = [work / file.name for file in part.files]

    def step(action: str) -> BytesRead | None:
        return None if progress is None else lambda done, total: progress(action, done, total)

    for file, source in zip(part.files, paths):
        try:
            download(file, source, step(f"fetching {file.name}"))
        except Failed as error:
            raise InputError(f"{error}; its page is {card.homepage}") from None
    dataset = {"name": card.name, "part": part.role}
    meta = {"source": part.files[0].url, "parser": f"catalogue, {card.format}", "dataset": dataset}
    try:
        with tempfile.TemporaryDirectory(prefix=UNPACKED, dir=work) as scratch:
            texts: list[Path] = []
            for file, source in zip(part.files, paths):
                texts += unpack(source, file.member, Path(scratch)) if file.member and is_archive(source) else [source]
            counts = _convert(card, part, texts, path, meta, step(f"reading {title}"))
    except InputError as error:  # the data are wrong, and would be again with the same download
        for source in paths:
            source.unlink(missing_ok=True)
        raise InputError(f"{title}: {error}; nothing was kept") from None
    for source in paths:
        source.unlink()
    return counts


# -- archives ---------------------------------------------------------------------------------------------------------


def is_archive(path: Path) -> bool:
    """Return whether the file is an archive of files, rather than one text.

    Raises
    ------
    InputError
        If it is compressed and damaged.
    """
    try:
        return zipfile.is_zipfile(path) or tarfile.is_tarfile(path)
    except DAMAGE as error:
        raise InputError(f"{path}: the archive is damaged: {reason_of(error)}") from None


def fits(name: str, pattern: str) -> bool:
    """Return whether ``name``, or its part after the last ``/``, fits a shell pattern."""
    return any(fnmatch.fnmatchcase(each, pattern) for each in (name, name.rpartition("/")[2]))


def unpack(archive: Path, pattern: str, folder: Path) -> list[Path]:
    """Write the members of a zip or tar archive whose names fit ``pattern`` to ``folder``, in order of their names.

    Raises
    ------
    InputError
        If none fits, or the archive is damaged or encrypted.
    OutputError
        If they cannot be written.
    """
    members: list[tuple[str, Path]] = []
    others: list[str] = []
    try:
        for name, open_member in _members(archive):
            if not fits(name, pattern):
                others.append(name)
                continue
            short = re.sub("[^A-Za-z0-9._-]", "_", name)[-80:]  # with the suffix, which may tell a layout
            path = folder / f"{len(members)}-{short}"
            with open_member() as member, open(path, "xb") as file:
                shutil.copyfileobj(member, file)
            members.append((name, path))
    except DAMAGE as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # the disk is at fault
            raise OutputError(f"{folder}: cannot unpack there: {error.strerror}") from None
        raise InputError(f"{archive}: the archive is damaged: {reason_of(error)}") from None
    if not members:
        raise InputError(f"{archive}: no {pattern} among its {len(others)} other members {others[:1]}")
    return [path for _, path in sorted(members)]


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


def compare(card: Card, part: CardPart, counts: dict[str, int]) -> None:
    """Raise InputError if the counts of the data differ from those that the card states."""
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


def _convert(
    card: Card, part: CardPart, texts: list[Path], path: Path, meta: dict[str, Any], progress: BytesRead | None
) -> dict[str, int]:
    """Make ``path`` of texts, once their counts are those of the card; return these."""
    if card.problem == "linear":
        from hogwild.data.text.svmlight import parse_svmlight

        repairs = {"unsorted_rows": 0, "duplicate_rows": 0, "query_rows": 0}
        with StoreWriter(path, meta, overwrite=True) as writer:
            width = 0
            for text in texts:
                summary = parse_svmlight(text, writer, width=card.features, progress=progress)
                width = max(width, summary.width)
                for name in repairs:
                    repairs[name] += int(getattr(summary, name))
            counts = {"rows": writer.rows, "nonzeros": writer.nnz, "features": width}
            compare(card, part, counts)
            writer.close(width, warnings=repairs)
        return counts
    if len(texts) != 1:
        raise InputError(f"{len(texts)} files where there should be one")
    if card.problem == "completion":
        from hogwild.data.ratings.container import last_of_repeats
        from hogwild.data.ratings.store import save_ratings
        from hogwild.data.ratings.text import parse_ratings

        ratings, repeats = last_of_repeats(parse_ratings(texts[0], card.layout, progress=progress))
        counts = dict(zip(("ratings", "users", "items"), (len(ratings), *ratings.shape)))
        compare(card, part, counts)
        save_ratings(ratings, path, meta | ({"warnings": {"repeats": repeats}} if repeats else {}), overwrite=True)
        return counts
    from hogwild.data.graphs.text import read_dimacs

    counts = {"vertices": read_dimacs(str(texts[0]), progress).n_vertices}  # it compares the arcs with its problem line
    compare(card, part, counts)
    temporary = path.with_name(f".{path.name}.part")
    try:
        shutil.copyfile(texts[0], temporary)
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return counts
