"""Cached stores: text is parsed and synthetic data are drawn once, and the second run starts at once.

An entry's name is a hash of everything its content depends on (the source's path, size and times, every parse option,
the parser's and the store's version), so a stale entry is never opened and nothing needs invalidating. Nothing here may
stop a run: a damaged entry is made again, and a cache that cannot be written costs one warning and a parse into memory.

The cost is writing the data once, and disk space up to a limit: before an entry is made, the oldest are removed until
the others are within it. A process that has a removed entry mapped keeps its data. Who reads an entry writes nothing
and holds no lock, so nobody waits while another process flushes its own to disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import warnings
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hogwild.data.rows.store import (
    ROWS,
    TEMPORARY,
    VERSION,
    Kind,
    MemoryWriter,
    StoreExists,
    StoreWriter,
    is_store,
    open_store,
    read_meta,
)
from hogwild.errors import HogwildWarning, InputError

#: Pieces of data one after another, and at the end facts about all of them.
Pieces = Generator[Any, None, dict[str, Any]]
LIMIT = 20 << 30  # bytes
ENTRY = re.compile(r".*-[0-9a-f]{24}")


@dataclass(frozen=True)
class Recipe:
    """How some data are made, and under which name they are kept.

    Attributes
    ----------
    label : str
        Readable beginning of the entry's name.
    key : dict
        Everything the content depends on, in JSON types; empty for what is not kept.
    meta : dict
        Facts for ``meta.json``, ``source`` among them.
    pieces : function
        Reads or makes the data from their beginning: yields containers of ``kind``, and returns facts that are known
        at the end, such as ``warnings``.
    kind : Kind
        What the data are.
    stored : optional
        The data, if they lie in a store already, which the recipe copies.
    """

    label: str
    key: dict[str, Any]
    meta: dict[str, Any]
    pieces: Callable[[], Pieces]
    kind: Kind = ROWS
    stored: Any = None

    @property
    def name(self) -> str:
        """``label-<hash>``, where the hash covers the key and the store's version."""
        readable = re.sub(r"[^A-Za-z0-9._]+", "-", self.label).strip("-.")[:60] or "data"
        text = json.dumps({"store": VERSION, **self.key}, sort_keys=True)
        return f"{readable}-{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}"


class Cache:
    """A directory of stores.

    Parameters
    ----------
    directory : str or Path, optional
        Default: ``stores`` in the platform's user cache directory for ``hogwild``. It is created when first needed.

    Attributes
    ----------
    limit_bytes : int
        Most bytes that entries may have before another one is made.
    """

    def __init__(self, directory: str | Path | None = None) -> None:
        if directory is None:
            import platformdirs

            directory = Path(platformdirs.user_cache_dir("hogwild")) / "stores"
        self.directory = Path(os.path.abspath(Path(directory).expanduser()))
        self.limit_bytes = LIMIT

    def lookup(self, name: str, kind: Kind = ROWS) -> Any:
        """Open the entry ``name``; a damaged entry is removed and counts as absent, which is None."""
        path = self.directory / name
        if not path.is_dir():
            return None
        try:
            return open_store(path, kind)
        except InputError:
            _remove(path)
            return None

    def keep(self, recipe: Recipe) -> Any:
        """Return the data of the recipe's entry, written now if missing; None, with a warning, if that fails.

        This is safe for several processes at once: each writes its own copy, and the first to finish gives it the name.
        """
        path = self.directory / recipe.name
        reason = f"{path} cannot be opened after it was made"
        for _ in range(3):  # again if another process was faster, or removed it at that moment
            if (opened := self.lookup(recipe.name, recipe.kind)) is not None:
                return opened
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
                self.trim()
                with suppress(StoreExists), StoreWriter(path, recipe.meta, kind=recipe.kind) as writer:
                    writer.close(**writer.take(recipe.pieces()))
            except OSError as error:  # as an OutputError is
                reason = str(error)
                break
        warnings.warn(f"no cache ({reason}): the data are kept in memory", HogwildWarning, stacklevel=3)
        return None

    def entries(self) -> list[Path]:
        """Return the entries, the newest first."""
        made: dict[Path, float] = {}
        with suppress(OSError):
            for path in self.directory.iterdir():
                with suppress(OSError):  # removed by another process in the meantime
                    if ENTRY.fullmatch(path.name) and is_store(path):
                        made[path] = -(path / "meta.json").stat().st_mtime
        return sorted(made, key=made.__getitem__)

    def trim(self) -> None:
        """Remove the oldest entries beyond the limit."""
        total = 0
        for path in self.entries():
            with suppress(OSError):
                total += sum(file.stat().st_size for file in path.iterdir())
            if total > self.limit_bytes:
                _remove(path)


def build(cache: Cache | None, recipe: Recipe) -> tuple[Any, dict[str, Any]]:
    """Return the data and their meta data from their store or the cache, or made in memory if there is no cache."""
    kept = cache.keep(recipe) if cache is not None and recipe.key else recipe.stored
    if kept is not None:
        return kept, read_meta(kept.store)
    writer = MemoryWriter(recipe.kind)
    facts = writer.take(recipe.pieces())
    return writer.close(**facts), recipe.meta | facts


def identity(path: str | Path) -> dict[str, Any]:
    """Return what distinguishes one version of a file from another without reading all of it.

    That is the absolute path, the size, and both change times in nanoseconds (copying tools set ``mtime`` back, nobody
    sets ``ctime``).
    """
    try:
        status = os.stat(path)
    except OSError as error:
        raise InputError(f"{os.fspath(path)}: cannot be read: {error.strerror or error}") from None
    times = {"mtime_ns": status.st_mtime_ns, "ctime_ns": status.st_ctime_ns}
    return {"path": os.path.abspath(path), "bytes": status.st_size, **times}


def text_recipe(
    text: Any,
    read: Callable[[], Pieces],
    key: dict[str, Any],
    parser: str,
    kind: Kind = ROWS,
) -> Recipe:
    """Return the recipe for the data in a text, which ``read`` yields; ``key`` are the options of reading.

    A stream or a pipe, which can be read only once, has no key, and is not kept.
    """
    if not isinstance(text, str) or not os.path.isfile(text):
        return Recipe(str(text), {}, {"source": str(text)}, read, kind)
    before = identity(text)

    def pieces() -> Pieces:
        facts = yield from read()
        if identity(text) != before:
            raise InputError(f"{text}: changed while it was being read: try again")
        return facts

    meta = {"source": before["path"], "options": key, "parser": parser}
    return Recipe(os.path.basename(text), {**key, "file": before, "parser": parser}, meta, pieces, kind)


def _remove(path: Path) -> None:
    """Remove an entry; it is renamed first, so that nobody opens a partly removed store."""
    with suppress(OSError):
        aside = path.with_name(f".{path.name}{TEMPORARY}{secrets.token_hex(6)}")
        os.rename(path, aside)
        shutil.rmtree(aside)
