"""Fetches a data set of the catalogue: downloads it or takes the user's files, unpacks, converts and compares it.

Each step leaves its result for the next call. A partial download is resumed, a complete one is not repeated if the disk
was full during its conversion, and a part of a set exists completely or not at all. Only results that turn out to be
wrong are discarded.

The cost is disk space for the download and the store at the same time; the download is removed once the store exists.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hogwild.data.public.catalogue import Card, CardPart, File, data_folder, is_fetched, place
from hogwild.data.public.convert import convert_part
from hogwild.data.public.download import Failed, check, digest, download
from hogwild.data.public.unpack import fits, is_archive, kind, unpack, verify
from hogwild.errors import InputError, OutputError, UsageError

FileProgress = Callable[[str, int, int | None], None]

DOWNLOADS = ".downloads"  # in the data directory
UNPACKED = "unpacked-"  # prefix of directories with unpacked members
PACKED = {
    ".zip": "zip",
    ".tar": "tar",
    ".gz": "gzip",
    ".tgz": "gzip",
    ".bz2": "bzip2",
    ".tbz2": "bzip2",
    ".xz": "xz",
    ".txz": "xz",
}


@dataclass(frozen=True)
class Fetched:
    """One part of a set: where it is, and the counts found in it (nothing if it existed before)."""

    role: str
    path: Path
    found: dict[str, Any]
    unchecked: tuple[str, ...] = ()  # files whose checksum is known only as the publisher packs them


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
        Files, or directories of files, downloaded by hand. They are checked like a download and are not removed.
    force : bool
        Get parts again that exist already.
    progress : function, optional
        Called now and then with the current step, the bytes done and their total.

    Yields
    ------
    Fetched

    Raises
    ------
    InputError
        One line: no network, no such file, a wrong checksum, a damaged archive, counts that differ from the card's ...
    OutputError
        If the data directory cannot be written, or is full.
    UsageError
        If ``sources`` do not belong to the set.
    """
    given = match(card, roles, sources) if sources else {}
    if given and roles is None:
        roles = [role for role in card.roles if all(file.name in given for file in card.files([role]))]
    wanted = [(role, place(card, role)) for role in roles or card.roles]
    with contextlib.ExitStack() as stack:
        work = None
        for n, (role, path) in enumerate(wanted):
            if work is None and (force or not is_fetched(path)):
                work = stack.enter_context(_workplace(card, path.parent))
            if work is None or (is_fetched(path) and not force):  # perhaps by another process, just before
                yield Fetched(role, path, {})
                continue
            later = {file.name for role, _ in wanted[n + 1 :] for file in card.files([role])}
            yield _Getting(card, card.part(role), work, given, progress).run(path, later)


def match(card: Card, roles: Sequence[str] | None, sources: Sequence[str | Path]) -> dict[str, list[Path]]:
    """Match the user's files with those of the set, by the set's names for them.

    A file may have the publisher's name, packed or not, or any name if only one file is wanted. In a directory, and
    among several files, the members of an archive are found too.

    Raises
    ------
    UsageError
        If a source matches none of them, or a part lacks some.
    """
    files = card.files(roles)
    found: dict[str, dict[str, Path]] = {}  # for each file of the set, by resolved path
    for source in map(Path, sources):
        if not source.exists():
            raise InputError(f"{source}: no such file")
        inside = sorted(path for path in source.iterdir() if path.is_file()) if source.is_dir() else [source]
        named = {file: [path for path in inside if _bare(path.name) == _bare(file.name)] for file in files}
        hits = [(file, min(paths, key=lambda path: path.name != file.name)) for file, paths in named.items() if paths]
        if not hits:
            hits = [(file, path) for file in files for path in inside if file.member and fits(path.name, file.member)]
        others = {_bare(file.name) for file in card.files()}
        if not hits and len(files) == 1 and not source.is_dir() and _bare(source.name) not in others:
            hits = [(files[0], source)]
        if not hits:
            names = ", ".join(file.member if not file.url else file.name for file in files)
            raise UsageError(f"--from {source}: expected {names}, or a directory that holds them")
        for file, path in hits:
            found.setdefault(file.name, {}).setdefault(os.path.realpath(path), path)
    for file in files:
        several = list(found.get(file.name, {}).values())
        if len(several) > 1 and not file.member:
            raise UsageError(f"--from {several[0]} and {several[1]}: both are {file.name}: give one of them")
    whole = [role for role in roles or card.roles if all(file.name in found for file in card.files([role]))]
    if not whole or (roles is not None and len(whole) < len(roles)):
        lacking = ", ".join(file.name for file in files if file.name not in found)
        raise UsageError(f"{card.name}: --from lacks {lacking}")
    return {name: list(paths.values()) for name, paths in found.items()}


def _bare(name: str) -> str:
    """Return a file's name without its packing suffixes."""
    while (stem := os.path.splitext(name))[1].lower() in PACKED:
        name = stem[0]
    return name


@contextlib.contextmanager
def _workplace(card: Card, parent: Path) -> Iterator[Path]:
    """Yield this set's download directory, locked by this process; complete and partial downloads stay in it."""
    work = data_folder() / DOWNLOADS / card.name
    try:
        parent.mkdir(parents=True, exist_ok=True)
        work.mkdir(parents=True, exist_ok=True)
        lock = open(work / "lock", "ab")
    except OSError as error:
        what = f"{error.filename}: cannot be made: {error.strerror or error}"
        raise OutputError(f"{what} (HOGWILD_DATA names another data directory)") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{card.name}: another process is fetching it just now") from None
        for left in work.glob(f"{UNPACKED}*"):  # left by a killed process
            shutil.rmtree(left, ignore_errors=True)
        try:
            yield work
        finally:
            (work / "lock").unlink(missing_ok=True)
            for folder in (work, work.parent, parent):
                with contextlib.suppress(OSError):  # not empty
                    folder.rmdir()


class _Getting:
    """One part being fetched."""

    def __init__(
        self, card: Card, part: CardPart, work: Path, given: dict[str, list[Path]], progress: FileProgress | None
    ) -> None:
        self.card, self.part, self.work, self.given, self.progress = card, part, work, given, progress
        self.files: list[dict[str, Any]] = []  # for the store's meta data
        self.downloads: list[Path] = []
        self.unchecked: list[str] = []

    def run(self, path: Path, later: set[str]) -> Fetched:
        """Make ``path``; downloads named in ``later`` are kept for later parts."""
        title = self.card.title_of(self.part.role)
        try:
            with tempfile.TemporaryDirectory(prefix=UNPACKED, dir=self.work) as scratch:
                whole = [self.had(file) for file in self.part.files]
                labels = [self.had(file) for file in self.card.labels]
                origin = self.origin()
                try:
                    texts = [text for file, paths in whole for text in self.texts(file, paths, scratch)]
                    tables = [text for file, paths in labels for text in self.texts(file, paths, scratch)]
                    if self.card.problem != "linear" and len(texts) != 1:
                        raise InputError(f"{len(texts)} files where there should be one")
                    found = convert_part(
                        self.card, self.part, texts, tables, path, origin, self.step(f"reading {title}")
                    )
                except InputError as error:  # the data are wrong, and would be again with the same download
                    self.clear()
                    raise InputError(f"{title}: {error}; nothing was kept") from None
        except OSError as error:
            if isinstance(error, OutputError):
                raise
            raise OutputError(f"{error.filename or self.work}: {error.strerror or error}") from None
        self.clear(later)
        return Fetched(self.part.role, path, found, tuple(self.unchecked))

    def step(self, what: str) -> Callable[[int, int | None], None] | None:
        progress = self.progress
        return None if progress is None else lambda done, total: progress(what, done, total)

    def had(self, file: File) -> tuple[File, list[Path]]:
        """Return a file of the set on this machine: the user's own, or downloaded now."""
        if file.name in self.given:
            paths = self.given[file.name]
            if len(paths) == 1 and kind(paths[0]) == PACKED.get(os.path.splitext(file.name)[1], "plain"):
                check(paths[0], file, str(paths[0]))
            elif file.sha256 or file.md5:
                self.unchecked.append(file.name)
            for one in paths:
                verify(one, str(one))
            self.note(file, os.path.abspath(paths[0].parent if len(paths) > 1 else paths[0]), paths)
            return file, paths
        by_hand = f"hogwild data fetch {self.card.title_of(self.part.role)} --from FILE"
        if not file.url:
            raise InputError(
                f"{self.card.name}: nobody gives it out to programs; if you have {file.name} ({self.card.homepage}): "
                f"{by_hand}"
            )
        path = self.work / file.name
        try:
            download(file, path, self.step(f"fetching {file.name}"))
        except Failed as error:
            raise InputError(f"{error}; or get it by hand ({self.card.homepage}) and: {by_hand}") from None
        self.downloads.append(path)
        self.note(file, file.url, [path])
        return file, [path]

    def note(self, file: File, source: str, paths: list[Path]) -> None:
        known = {"sha256": digest(paths[0], "sha256"), "bytes": paths[0].stat().st_size} if len(paths) == 1 else {}
        self.files.append({"name": file.name, "source": source, **known})

    def texts(self, file: File, paths: list[Path], scratch: str) -> list[Path]:
        """Return what is to be read of a file: itself, or members of it."""
        if not file.member:
            return paths
        texts: list[Path] = []
        for path in paths:
            if is_archive(path):
                folder = Path(tempfile.mkdtemp(dir=scratch))
                texts += unpack(path, file.member, folder)
            else:
                texts.append(path)
        return texts

    def origin(self) -> dict[str, Any]:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        source = self.files[0]["source"]
        return {"name": self.card.name, "part": self.part.role, "source": source, "files": self.files, "fetched": now}

    def clear(self, keep: Collection[str] = ()) -> None:
        for path in self.downloads:
            if path.name not in keep:
                path.unlink(missing_ok=True)
