"""Fetches a data set of the catalogue: downloads it or takes the user's files, unpacks, converts and compares it.

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
import datetime
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

import numpy as np

from hogwild.data.parallel import BytesRead
from hogwild.data.public.catalogue import Card, CardPart, is_fetched, place
from hogwild.data.public.download import Failed, check, digest, download
from hogwild.data.rows.store import Sink, StoreWriter
from hogwild.errors import HogwildError, InputError, OutputError, UsageError, reason_of

FileProgress = Callable[[str, int, int | None], None]

DOWNLOADS = ".downloads"  # in the directory of a set
UNPACKED = "unpacked-"  # prefix of directories with unpacked members
PACKED = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".tbz2", ".xz", ".txz")
DAMAGE = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, ValueError)
BLOCK = 1 << 20  # bytes
MANY = 10_000  # distinct labels beyond which counting stops


@dataclass(frozen=True)
class Fetched:
    """One part of a set: where it is, and the counts of what was fetched (nothing if it existed before)."""

    role: str
    path: Path
    counts: dict[str, int]


def fetch(
    card: Card,
    roles: Sequence[str] | None = None,
    *,
    sources: Sequence[str | Path] = (),
    force: bool = False,
    progress: FileProgress | None = None,
) -> Iterator[Fetched]:
    """Get parts of a data set, one after another.

    Parameters
    ----------
    card : Card
        From :func:`hogwild.data.public.catalogue.look_up`.
    roles : sequence of str, optional
        Which parts; by default all, or with ``sources`` those that they contain.
    sources : sequence of path
        Files, or directories of files, downloaded by hand. They are checked like a download, unless they
        have been unpacked, and are not removed.
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
    UsageError
        If ``sources`` do not belong to the set.
    """
    by_hand = match(card, roles, sources) if sources else {}
    if by_hand and roles is None:
        roles = [role for role in card.roles if all(file.name in by_hand for file in card.files([role]))]
    wanted = [(role, place(card, role)) for role in roles or card.roles]
    for n, (role, path) in enumerate(wanted):
        if is_fetched(path) and not force:
            yield Fetched(role, path, {})
            continue
        with _work_folder(card, path.parent) as work:
            if is_fetched(path) and not force:  # by another process, just before
                counts = {}
            else:
                counts = _fetch_part(card, card.part(role), path, work, by_hand, progress)
                later = {file.name for role, _ in wanted[n + 1 :] for file in card.files([role])}
                for file in card.files([role]):
                    if file.name not in later:
                        (work / file.name).unlink(missing_ok=True)
        yield Fetched(role, path, counts)


def match(card: Card, roles: Sequence[str] | None, sources: Sequence[str | Path]) -> dict[str, Path]:
    """Return the user's file for each file of a set, by the set's name for it.

    A file may have the publisher's name, packed or not, that of the member of an archive, or any name if only one file
    is wanted.

    Raises
    ------
    UsageError
        If there is none for a part that is wanted.
    """
    files = card.files(roles)
    paths: list[Path] = []
    for source in map(Path, sources):
        if not source.exists():
            raise InputError(f"{source}: no such file")
        paths += sorted(path for path in source.iterdir() if path.is_file()) if source.is_dir() else [source]
    matched: dict[str, Path] = {}
    for file in files:
        named = [path for path in paths if _bare(path.name) == _bare(file.name)]
        named.sort(key=lambda path: path.name != file.name)
        inside = [path for path in paths if file.member and fits(path.name, file.member)]
        others = {_bare(other.name) for other in card.files()}
        only = [path for path in paths if len(files) == len(paths) == 1 and _bare(path.name) not in others]
        if hits := named or inside or only:
            matched[file.name] = hits[0]
    complete = [role for role in roles or card.roles if all(file.name in matched for file in card.files([role]))]
    if not complete or (roles is not None and len(complete) < len(roles)):
        lacking = ", ".join(file.name for file in files if file.name not in matched)
        raise UsageError(f"--from {', '.join(map(str, sources))}: expected {lacking}, or a directory that holds it")
    return matched


def _bare(name: str) -> str:
    """Return a file's name without its packing suffixes."""
    while (stem := os.path.splitext(name))[1].lower() in PACKED:
        name = stem[0]
    return name


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


def _fetch_part(
    card: Card, part: CardPart, path: Path, work: Path, by_hand: dict[str, Path], progress: FileProgress | None
) -> dict[str, int]:
    """Make ``path`` of the files of a part; return the counts."""
    title = card.title_of(part.role)

    def step(action: str) -> BytesRead | None:
        return None if progress is None else lambda done, total: progress(action, done, total)

    paths: list[Path] = []
    for file in part.files:
        if source := by_hand.get(file.name):
            if (source.suffix in PACKED) == (os.path.splitext(file.name)[1] in PACKED):  # else only counts are compared
                check(source, file, str(source))
        else:
            source = work / file.name
            try:
                download(file, source, step(f"fetching {file.name}"))
            except Failed as error:
                command = f"hogwild data fetch {title} --from FILE"
                raise InputError(f"{error}; or get it by hand ({card.homepage}) and: {command}") from None
        paths.append(source)
    origin = {
        "name": card.name,
        "part": part.role,
        "source": str(by_hand.get(part.files[0].name, part.files[0].url)),
        "files": [
            {"name": each.name, "sha256": digest(each, "sha256"), "bytes": each.stat().st_size} for each in paths
        ],
        "fetched": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    try:
        with tempfile.TemporaryDirectory(prefix=UNPACKED, dir=work) as scratch:
            texts: list[Path] = []
            for file, source in zip(part.files, paths):
                texts += unpack(source, file.member, Path(scratch)) if file.member and is_archive(source) else [source]
            return READERS[card.problem](card, part, texts, path, origin, step(f"reading {title}"))
    except InputError as error:  # the data are wrong, and would be again with the same download
        for file in part.files:
            (work / file.name).unlink(missing_ok=True)
        raise InputError(f"{title}: {error}; nothing was kept") from None


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
        raise damaged(path, error) from None


def damaged(archive: Path, error: BaseException) -> InputError:
    """Return the error for an archive that cannot be read."""
    return InputError(f"{archive}: the archive is damaged: {reason_of(error)}")


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
        raise damaged(archive, error) from None
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
    exact = {"rows": part.rows, "ratings": part.rows, "nonzeros": part.nonzeros}
    exact |= {"vertices": card.vertices, "arcs": card.arcs}
    most = {"classes": card.classes, "users": card.users, "items": card.items}
    wrong = []
    for name, count in counts.items():
        if exact.get(name) not in (None, count):
            wrong.append(f"{count:,} {name} and not {exact[name]:,}")
        elif count > (most.get(name) or count):
            wrong.append(f"{count:,} {name}, more than {most[name]:,}")
    if wrong:
        raise InputError(f"not the data of the card: {', '.join(wrong)}")


class _LabelCounter:
    """A sink that also collects the labels that pass through."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.labels: set[float] = set()

    def append(self, lengths: Any, indices: Any, values: Any, targets: Any, weights: Any = None) -> None:
        self.sink.append(lengths, indices, values, targets, weights)
        if len(self.labels) < MANY:
            self.labels.update(np.unique(targets).tolist())


def _rows(
    card: Card, part: CardPart, texts: list[Path], path: Path, origin: dict[str, Any], progress: BytesRead | None
) -> dict[str, int]:
    from hogwild.data.text.svmlight import parse_svmlight

    repairs = {"unsorted_rows": 0, "duplicate_rows": 0, "query_rows": 0}
    meta = {"source": origin["source"], "parser": f"catalogue, {card.format}", "dataset": origin}
    with StoreWriter(path, meta, overwrite=True) as writer:
        counter = _LabelCounter(writer)
        width = 0
        for text in texts:
            summary = parse_svmlight(text, counter, width=card.features, progress=progress)
            width = max(width, summary.width)
            for name in repairs:
                repairs[name] += int(getattr(summary, name))
        counts = {"rows": writer.rows, "nonzeros": writer.nnz, "features": width}
        if card.task != "regression":
            counts["classes"] = len(counter.labels)
        compare(card, part, counts)
        writer.close(width, warnings=repairs)
    return counts


def _ratings(
    card: Card, part: CardPart, texts: list[Path], path: Path, origin: dict[str, Any], progress: BytesRead | None
) -> dict[str, int]:
    from hogwild.data.ratings.container import last_of_repeats
    from hogwild.data.ratings.store import save_ratings
    from hogwild.data.ratings.text import parse_ratings

    ratings, repeats = last_of_repeats(parse_ratings(_only(texts), card.layout, progress=progress))
    users, items = ratings.shape
    counts = {"ratings": len(ratings), "users": users, "items": items}
    compare(card, part, counts)
    meta = {"source": origin["source"], "parser": f"catalogue, {card.format}", "dataset": origin}
    save_ratings(ratings, path, meta | ({"warnings": {"repeats": repeats}} if repeats else {}), overwrite=True)
    return counts


def _graph(
    card: Card, part: CardPart, texts: list[Path], path: Path, origin: dict[str, Any], progress: BytesRead | None
) -> dict[str, int]:
    from hogwild.data.graphs.text import read_dimacs
    from hogwild.data.text.lines import numbered_lines

    text = _only(texts)
    graph = read_dimacs(str(text), progress)
    problem = next((line.split() for _, line in numbered_lines(str(text)) if line.startswith(b"p")), [])
    counts = {"vertices": graph.n_vertices, "arcs": int(problem[3])}
    compare(card, part, counts)
    temporary = path.with_name(f".{path.name}.part")
    try:
        shutil.copyfile(text, temporary)
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return counts


def _only(texts: list[Path]) -> Path:
    if len(texts) != 1:
        raise InputError(f"{len(texts)} files where there should be one")
    return texts[0]


READERS = {"linear": _rows, "completion": _ratings, "cuts": _graph}
