"""Fetches a data set of the catalogue: downloads it, unpacks, converts and compares it.

Each step leaves its result for the next call. A download of any size is resumed after a broken connection or a kill: in
``NAME.part`` is what has come, in ``NAME.part.version`` the server's ETag or date of it, and the rest is asked for with
``Range`` and ``If-Range``, so a server that has another version, or knows no ranges, sends the whole. A complete
download is not repeated if the disk was full during its conversion. Counts are compared with the card while the store
is still temporary, so data that do not match it are never in the data directory; only downloads that turn out to be
wrong are discarded. All parts of a set get the card's width, so that a model of the training rows fits the test rows. A
graph is kept as its DIMACS file, since graphs have no stores.

No name from an archive becomes a path: a member is chosen by a pattern and written under a name made here. Text that is
only compressed (.gz, .bz2, .xz) is not unpacked: the parsers read it as it is.

The cost is disk space for the download and the store at the same time; the download is removed once the store exists.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import http.client
import os
import shutil
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from hogwild.data.graphs.text import read_dimacs
from hogwild.data.parallel import BytesRead
from hogwild.data.public.catalogue import Card, Part, is_fetched, place
from hogwild.data.ratings import source as ratings_source
from hogwild.data.rows import source as rows_source
from hogwild.data.rows.store import StoreWriter
from hogwild.errors import HogwildError, InputError, OutputError, reason_of

FileProgress = Callable[[str, int, "int | None"], None]
BLOCK = 1 << 18  # bytes read at a time
TIMEOUT = 30.0  # seconds without a byte
TRIES = 5  # attempts in a row without new data
LONGEST_WAIT = 30.0  # seconds between two attempts
TEMPORARY = (408, 416, 429, 500, 502, 503, 504)  # HTTP statuses that may pass
KEPT = "what has come is kept, and the same command goes on from there"


def fetch(
    card: Card, role: str | None = None, *, force: bool = False, progress: FileProgress | None = None
) -> Iterator[tuple[str, Path, dict[str, int]]]:
    """Get one part of a data set, or all, one after another.

    Parameters
    ----------
    card : Card
        From :func:`hogwild.data.public.catalogue.look_up`.
    role : str, optional
        Which part; by default all.
    force : bool
        Get parts again that exist already.
    progress : function, optional
        Called now and then with the current step, the bytes done and their total.

    Yields
    ------
    role, path, counts
        As soon as the part exists; counts are of what was fetched, and empty if it existed before.

    Raises
    ------
    InputError
        If a file is not available, or not the one of the card.
    OutputError
        If the disk cannot be written, or is full.
    """
    for part in card.parts:
        if role in (None, part.role):
            path, counts = place(card, part.role), dict[str, int]()
            try:
                with _locked(path.parent):
                    if force or not is_fetched(path):
                        counts = _fetch(card, part, path, progress)
            except OSError as error:
                if isinstance(error, HogwildError):
                    raise
                raise OutputError(f"{path.parent}: cannot be written: {reason_of(error)} ({KEPT})") from None
            yield part.role, path, counts


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Make the directory of a set and wait until no other process fetches into it."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _fetch(card: Card, part: Part, path: Path, progress: FileProgress | None) -> dict[str, int]:
    """Make ``path`` of the file of a part; return the counts."""
    title, name = card.title_of(part.role), part.url.rpartition("/")[2]
    source, text = path.with_name(name), path.with_name(f"{name}.unpacked")

    def step(action: str) -> BytesRead | None:
        return None if progress is None else lambda done, total: progress(action, done, total)

    download(part, source, step(f"fetching {name}"))
    try:
        if part.member:
            unpack(source, part.member, text)
        counts = _convert(card, part, text if part.member else source, path, step(f"reading {title}"))
    except InputError as error:  # the data are wrong, and would be again with the same download
        source.unlink()
        raise InputError(f"{title}: {error}; nothing was kept") from None
    finally:
        text.unlink(missing_ok=True)
    source.unlink(missing_ok=True)
    return counts


# -- the download -----------------------------------------------------------------------------------------------------


def download(part: Part, path: Path, progress: BytesRead | None = None) -> None:
    """Download the file of ``part`` to ``path``, in an existing directory; return at once if it exists.

    ``progress`` is called now and then with the bytes received and their total (None if the server does not say).

    Raises
    ------
    InputError
        If the file is not available at its address or a mirror, or differs from the expected one.
    OSError
        If it cannot be written; what has come is kept.
    """
    if path.exists():
        return
    partial, version = (path.with_name(f"{path.name}.part{end}") for end in ("", ".version"))
    failures = list[InputError]()
    for url in (part.url, *part.mirrors):
        try:
            _receive(url, partial, version, progress)
            break
        except InputError as error:
            failures.append(error)
    else:
        raise failures[0]
    version.unlink(missing_ok=True)
    try:
        with open(partial, "rb") as file:
            size, digest = os.fstat(file.fileno()).st_size, part.md5 and hashlib.file_digest(file, "md5").hexdigest()
        for name, actual, expected in (("bytes", size, part.bytes), ("md5", digest, part.md5)):
            if expected not in (None, actual):
                raise InputError(f"{part.url}: {name} {actual}, expected {expected}: removed; it may have changed")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _receive(url: str, partial: Path, version: Path, progress: BytesRead | None) -> None:
    """Receive the rest of ``url``, which another mirror or an earlier call may have begun."""
    with open(partial, "ab", buffering=0) as file:
        known = version.read_text() if version.exists() else ""
        for size, total, validator, block in _blocks(url, file.tell() if known else 0, known):
            if not block and not size:
                file.truncate(0)
                version.write_text(validator)
            rest = memoryview(block)
            while rest:  # a write may be short
                rest = rest[file.write(rest) :]
            if progress:
                progress(size + len(block), total)


def _blocks(url: str, size: int, validator: str) -> Iterator[tuple[int, int | None, str, bytes]]:
    """Yield the offset, the total, the version and the bytes of each block, after an empty one for each request.

    There are as many requests as needed, as long as some bring new data.
    """
    failures, longest = 0, size
    while True:
        headers = {"User-Agent": "hogwild", "Accept-Encoding": "identity"}
        if size:
            headers |= {"Range": f"bytes={size}-", "If-Range": validator}
        try:
            with urlopen(Request(url, headers=headers), timeout=TIMEOUT) as answer:
                if answer.status != 206:
                    size, validator = 0, answer.headers["ETag"] or answer.headers["Last-Modified"] or ""
                length = answer.headers["Content-Length"]
                total = size + int(length) if length else None
                yield size, total, validator, b""
                while block := answer.read1(BLOCK):
                    yield size, total, validator, block
                    size += len(block)
            if total is None or size >= total:
                return
            raise ConnectionError(f"the connection ended after {size:,} of {total:,} bytes")
        except (OSError, http.client.HTTPException) as error:
            failures = 0 if size > longest else failures + 1
            longest = max(longest, size)
            code = 503
            if isinstance(error, HTTPError):
                code = error.code
                error.close()
            if failures == TRIES or code not in TEMPORARY:
                raise InputError(f"{url}: {reason_of(error)} ({KEPT})") from None
            if code == 416 or not validator:  # the server has a shorter file, or may have another version
                size = 0
            time.sleep(min(2.0 ** max(failures - 1, 0), LONGEST_WAIT))


# -- archives and stores ----------------------------------------------------------------------------------------------


def unpack(archive: Path, pattern: str, path: Path) -> None:
    """Write the member of a zip or tar archive whose name, or its last parts, fit ``pattern`` to ``path``.

    Raises
    ------
    InputError
        If none or several fit, or the archive is damaged or encrypted.
    """
    try:
        packed: Any = zipfile.ZipFile(archive) if zipfile.is_zipfile(archive) else tarfile.open(archive)
        with packed:
            zipped = isinstance(packed, zipfile.ZipFile)
            names = packed.namelist() if zipped else packed.getnames()
            fitting = [name for name in names if PurePosixPath(name).match(pattern)]
            if len(fitting) != 1:
                raise InputError(f"{archive}: {len(fitting)} members called {pattern}, expected one")
            with (packed.open if zipped else packed.extractfile)(*fitting) as member, open(path, "wb") as file:
                shutil.copyfileobj(member, file)
    except Exception as error:  # archives and their compressions have each their own
        if isinstance(error, HogwildError) or getattr(error, "errno", None):  # the disk is at fault
            raise
        raise InputError(f"{archive}: the archive is damaged: {reason_of(error)}") from None


def _convert(card: Card, part: Part, text: Path, path: Path, progress: BytesRead | None) -> dict[str, int]:
    """Make ``path`` of a text, once its counts are those of the card; return these."""
    if card.problem == "cuts":
        counts = {"vertices": read_dimacs(str(text), progress).n_vertices}  # it compares the arcs itself
        _compare(card, part, counts)
        os.replace(text, path)
        return counts
    if card.problem == "completion":
        _, recipe = ratings_source.recipe_of(str(text), layout=card.layout, progress=progress)
    else:
        recipe = rows_source.recipe_of(str(text), "svmlight", width=card.features, progress=progress)
    with StoreWriter(path, {"source": part.url}, overwrite=True, kind=recipe.kind) as writer:
        facts = writer.take(recipe.pieces())
        counts = {"rows": writer.rows, "nonzeros": writer.nnz, "features": facts["width"]}
        if card.problem == "completion":
            counts = {"ratings": facts["nnz"], "users": facts["users"], "items": facts["items"]}
        _compare(card, part, counts)
        writer.close(**facts)
    return counts


def _compare(card: Card, part: Part, counts: dict[str, int]) -> None:
    """Refuse data whose counts differ from those that the card states."""
    stated = {"rows": part.rows, "ratings": part.rows, "nonzeros": part.nonzeros, "vertices": card.vertices}
    for name, count in counts.items():
        if stated.get(name) not in (None, count):
            raise InputError(f"not the data of the card: {count:,} {name} and not {stated[name]:,}")
