"""How the commands open data: their shared options, checked before anything heavy is imported."""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hogwild.errors import HogwildWarning, InputError, OutputError, UsageError, expected_one_of

if TYPE_CHECKING:
    from hogwild.data.cache import Cache
    from hogwild.data.graphs.container import Graph
    from hogwild.data.ratings.container import Ratings
    from hogwild.data.rows.container import Rows
    from hogwild.data.tables.plan import AskedColumns

#: Formats of rows, of ratings and of graphs.
FORMATS = (
    "svmlight",
    "npz",
    "store",
    "synthetic",
    "csv",
    "tsv",
    "parquet",
    "arrow",
    "ratings",
    "netflix",
    "dimacs",
    "edges",
    "mrf",
)
COLUMNS = ("label", "categorical", "numeric", "text", "ignore", "weight")
STREAM_BYTES = 4 << 20  # of text at a time: metrics of a block take milliseconds, whatever its size


@dataclass(frozen=True)
class Sources:
    """The data options of one command; ``open`` reads a named source with them."""

    features: int | None = None
    zero_based: bool = False
    format: str | None = None
    targets: str | None = None
    cache_directory: str | None = None
    no_cache: bool = False
    hash_bits: int | None = None
    terminals: str | None = None
    label: str | None = None
    categorical: str | None = None
    numeric: str | None = None
    text: str | None = None
    ignore: str | None = None
    weight: str | None = None
    plan: dict[str, Any] | None = None  # of a model, by which tables are read

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise UsageError(f"--format {self.format}: {expected_one_of(FORMATS, self.format)}")
        if self.features is not None and self.hash_bits is not None:
            raise UsageError(
                f"--features {self.features} and --hash-bits {self.hash_bits} contradict each other: give one of them "
                f"(hashed rows have 2^{self.hash_bits} features)"
            )
        if self.no_cache and self.cache_directory is not None:
            raise UsageError("--cache and --no-cache contradict each other: give one of them")
        if self.cache_directory == "":  # an unset variable in a script; it would mean the current directory
            raise UsageError("--cache '': expected the name of a directory")

    @classmethod
    def take(cls, given: dict[str, Any]) -> Sources:
        """Create the sources from a command's parameters by name, removing them from ``given``."""
        names = {field.name for field in dataclasses.fields(cls)} & set(given)
        return cls(cache_directory=given.pop("cache", None), **{name: given.pop(name) for name in names})

    def cache(self) -> Cache | None:
        from hogwild.data.cache import Cache

        return None if self.no_cache else Cache(self.cache_directory)

    def open(self, name: str, progress: Any = None, **changes: Any) -> Rows:
        """Open the rows of a file, store or ``synthetic:`` name."""
        from hogwild.data.rows.source import open_data

        return open_data(name, progress=progress, cache=self.cache(), **self.options() | changes)

    def ratings(self, name: str, progress: Any = None, **changes: Any) -> Ratings:
        """Open the ratings of a file, store or ``synthetic:`` name."""
        from hogwild.data.ratings.source import open_ratings

        return open_ratings(name, **{"format": self.format, "progress": progress, "cache": self.cache()} | changes)

    def graph(self, name: str, progress: Any = None) -> Graph:
        """The graph of a file or ``synthetic:`` name."""
        from hogwild.data.graphs.source import open_graph

        return open_graph(name, format=self.format, terminals=self.terminals, progress=progress)

    def check(self, problem: str) -> None:
        """Refuse reading options of another problem, which would be ignored silently."""
        given = {"features": self.features, "hash-bits": self.hash_bits, "targets": self.targets}
        given["zero-based"] = self.zero_based or None
        given |= {option: getattr(self, option) for option in COLUMNS}
        if problem != "linear" and (wrong := [f"--{name}" for name, value in given.items() if value is not None]):
            raise UsageError(f"{wrong[0]} is for rows of features, and --problem {problem} has none")
        if self.terminals is not None and problem != "cuts":
            raise UsageError(f"--terminals {self.terminals}: is for --problem cuts, not for {problem}")

    def options(self) -> dict[str, Any]:
        """The options that determine how a source is read, as keywords of ``open_data``."""
        return {
            "format": self.format,
            "zero_based": self.zero_based,
            "width": self.features,
            "targets": self.targets,
            "hash_bits": self.hash_bits,
            "columns": self.columns(),
        }

    def columns(self) -> AskedColumns | None:
        """The options for a table's columns, if any are given."""
        given = {option: getattr(self, option) for option in COLUMNS}
        if not any(given.values()):
            return None
        from hogwild.data.tables.plan import AskedColumns

        return AskedColumns.of(**given)

    def stream(self, name: str, labels: str = "required") -> Iterator[Rows]:
        """Yield the rows in order, in blocks of bounded size. Text, or standard input for "-", is not kept."""
        from hogwild.data.public.catalogue import located
        from hogwild.data.rows.chunks import chunks
        from hogwild.data.rows.source import is_text

        if self._is_table(name) and (self.plan is not None or name != "-"):
            from hogwild.data.tables.source import stream_table

            if self.plan is None:
                raise InputError(f"{name}: a table, but the model's features are none of its columns")
            table: Any = sys.stdin.buffer if name == "-" else located(name)
            yield from stream_table(table, self.plan, labels == "required", self.format)
            return
        if name == "-" or is_text(name, self.format):
            yield from self._stream_text(name, labels)
            return
        rows = self.open(name, labels=labels)
        for first, last in chunks(rows):
            yield rows.block(first, last)

    def _is_table(self, name: str) -> bool:
        from hogwild.data.tables.files import SUFFIXES, table_format

        if self.format is not None:
            return self.format in SUFFIXES
        return name == "-" or (table_format(name) is not None and not os.path.isdir(name))

    def _stream_text(self, name: str, labels: str) -> Iterator[Rows]:
        from hogwild.data.text.svmlight import ParseSummary, iter_svmlight

        summary = ParseSummary()
        source: Any = sys.stdin.buffer if name == "-" else name
        options: dict[str, Any] = {"zero_based": self.zero_based, "labels": labels, "chunk_bytes": STREAM_BYTES}
        yield from iter_svmlight(source, summary=summary, hash_bits=self.hash_bits, **options)
        from hogwild.data.rows.source import REPAIRS

        repairs = list(REPAIRS) if self.hash_bits is None else ["query_rows"]  # hashing sorts rows and joins features
        if parts := [f"{count:,} rows {REPAIRS[name]}" for name in repairs if (count := getattr(summary, name))]:
            warnings.warn(f"{name}: {', '.join(parts)}", HogwildWarning, stacklevel=2)


def check_outputs(outputs: dict[str, str | None], inputs: Iterable[str | None] = (), pipes: Iterable[str] = ()) -> None:
    """Refuse outputs, by their options, that cannot be written, or would overwrite an input or another output.

    Those of the options ``pipes`` may be pipes or devices, and "-" is the standard output there.
    """
    for option, name in outputs.items():
        if option.startswith("--plot") and name is not None and not name.endswith(".png"):
            raise UsageError(f"{option} {name}: expected a name that ends in .png")
    taken = [name for name in inputs if name]
    written = {option: name for option, name in outputs.items() if name is not None}
    written = {option: name for option, name in written.items() if name != "-" or option not in pipes}
    for option, name in written.items():
        for other in taken:
            if name and _same_file(name, other):
                raise UsageError(f"{option} {name} would overwrite {other}: choose another name")
        taken.append(name)
    for option, name in written.items():
        check_writable(option, name, regular=option not in pipes)


def _same_file(name: str, other: str) -> bool:
    if os.path.exists(name) and os.path.exists(other):
        return os.path.isfile(name) and os.path.samefile(name, other)  # a device may be both
    return os.path.realpath(name) == os.path.realpath(other)


def check_memory(name: str, width: int, bytes_each: int) -> None:
    """Raise InputError if ``bytes_each`` for every feature exceed the available memory."""
    from hogwild import machine

    hint = "; is the largest index a mistake? (--features pins the number, --hash-bits B makes it 2^B)"
    machine.check_memory(f"{name}: {width:,} features", width * bytes_each, hint)


def check_writable(option: str, name: str, directory: bool = False, regular: bool = False) -> None:
    """Raise OutputError, before hours of work, unless the file (or directory) ``name`` can be created.

    Only its folder is checked: an old file stays until the new one is complete, and a directory is created when there
    is something to put there. ``regular`` refuses pipes and devices.
    """
    if not name:
        raise UsageError(f"{option} '': expected a name")
    path = Path(name)
    try:
        folder = _nearest_folder(path) if directory else path.parent
        if not directory and path.is_dir():
            raise OutputError(f"{option} {name}: is a directory, expected a file name")
        if not directory and path.exists() and not path.is_file():  # a pipe or device
            if regular:
                raise OutputError(f"{option} {name}: not a regular file")
            if os.access(path, os.W_OK):
                return  # it is written in place
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OutputError:
        raise
    except FileNotFoundError:
        raise OutputError(f"{option} {name}: cannot write there: there is no directory {path.parent}") from None
    except OSError as error:
        raise OutputError(f"{option} {name}: cannot write there: {error.strerror or error}") from None


def _nearest_folder(path: Path) -> Path:
    """Return ``path``, or its nearest existing parent."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return _nearest_folder(path.parent)
    return path
