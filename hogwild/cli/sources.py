"""How the commands open data: the options they share, checked before anything heavy is imported."""

from __future__ import annotations

import dataclasses
import errno
import os
import stat
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hogwild.cli.shell import among
from hogwild.errors import HogwildWarning, InputError, OutputError, UsageError, expected_one_of

if TYPE_CHECKING:
    from hogwild.data.cache import Cache
    from hogwild.data.examples import Rows
    from hogwild.data.graphs import Graph
    from hogwild.data.ratings import Ratings
    from hogwild.data.table_plan import Asked

#: Those of rows, of ratings and of graphs.
FORMATS = ("svmlight", "npz", "mtx", "store", "synthetic", "csv", "tsv", "parquet", "arrow", "ratings", "netflix",
           "dimacs", "edges", "mrf")  # fmt: skip
PANEL, TABLE = "Data", "Columns of a table"
BY_TYPE = "sorted by type"
COLUMNS = ("label", "categorical", "numeric", "text", "ignore", "weight")
STREAM_BYTES = 4 << 20  # of text at a time: metrics of a block cost milliseconds, whatever its size

Features = Annotated[int | None, typer.Option(min=1, help="Number of features.", rich_help_panel=PANEL,
                                              show_default="as many as the data show")]  # fmt: skip
ZeroBased = Annotated[bool, typer.Option("--zero-based", help="Indices of the text start at 0, not 1.",
                                         rich_help_panel=PANEL)]  # fmt: skip
Format = Annotated[str | None, typer.Option(help=f"One of {', '.join(FORMATS)}.", show_default="by the name",
                                            autocompletion=among(FORMATS), rich_help_panel=PANEL)]  # fmt: skip
HashBits = Annotated[int | None, typer.Option(min=1, max=30, metavar="B", help="Hash features to 2^B weights; indices "
                                              "may then be any below 2^64.", rich_help_panel=PANEL)]  # fmt: skip
Targets = Annotated[str | None, typer.Option(metavar="FILE", help="Targets (.npy) of an .npz or .mtx matrix.",
                                             rich_help_panel=PANEL)]  # fmt: skip
CacheDir = Annotated[str | None, typer.Option("--cache", metavar="DIR", help="Where parsed text is kept.",
                                              rich_help_panel=PANEL,
                                              show_default="the user's cache directory")]  # fmt: skip
Label = Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of a table (CSV, TSV, Parquet, Arrow) to be "
                                            "learned.", rich_help_panel=TABLE)]  # fmt: skip
Categorical = Annotated[str | None, typer.Option(metavar="COLUMNS", help="Columns that are categories, such as "
                                                  "site,device.", show_default=BY_TYPE,
                                                  rich_help_panel=TABLE)]  # fmt: skip
Numeric = Annotated[str | None, typer.Option(metavar="COLUMNS", help="Columns that are numbers.", show_default=BY_TYPE,
                                              rich_help_panel=TABLE)]  # fmt: skip
Text = Annotated[str | None, typer.Option(metavar="COLUMNS", help="Columns whose words and pairs of them are features.",
                                           show_default=BY_TYPE, rich_help_panel=TABLE)]  # fmt: skip
Ignore = Annotated[str | None, typer.Option(metavar="COLUMNS", help="Columns to leave out.",
                                             rich_help_panel=TABLE)]  # fmt: skip
Weight = Annotated[str | None, typer.Option(metavar="COLUMN", help="Column with a weight of each row.",
                                             rich_help_panel=TABLE)]  # fmt: skip
NoCache = Annotated[bool, typer.Option("--no-cache", help="Keep nothing: parse into memory.",
                                       rich_help_panel=PANEL)]  # fmt: skip


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
        """Of a command's options by their parameters' names, which are taken out of ``given``."""
        names = {field.name for field in dataclasses.fields(cls)} & set(given)
        return cls(cache_directory=given.pop("cache"), **{name: given.pop(name) for name in names})

    def cache(self) -> Cache | None:
        from hogwild.data.cache import Cache

        return None if self.no_cache else Cache(self.cache_directory)

    def open(self, name: str, progress: Any = None, **changes: Any) -> Rows:
        """Rows of a file, store or ``synthetic:`` name."""
        from hogwild.data.source import open_data

        return open_data(name, progress=progress, cache=self.cache(), **self.options() | changes)

    def ratings(self, name: str, progress: Any = None, **changes: Any) -> Ratings:
        """Ratings of a file, store or ``synthetic:`` name."""
        from hogwild.data.rating_source import open_ratings

        return open_ratings(name, **{"format": self.format, "progress": progress, "cache": self.cache()} | changes)

    def graph(self, name: str, progress: Any = None) -> Graph:
        """The graph of a file or ``synthetic:`` name."""
        from hogwild.data.graphs import open_graph

        return open_graph(name, format=self.format, terminals=self.terminals, progress=progress)

    def check(self, problem: str) -> None:
        """Refuse how to read data of another problem, which would be passed over without a word."""
        given = {"features": self.features, "hash-bits": self.hash_bits, "targets": self.targets}
        given["zero-based"] = self.zero_based or None
        given |= {option: getattr(self, option) for option in COLUMNS}
        if problem != "linear" and (wrong := [f"--{name}" for name, value in given.items() if value is not None]):
            raise UsageError(f"{wrong[0]} is for rows of features, and --problem {problem} has none")
        if self.terminals is not None and problem != "cuts":
            raise UsageError(f"--terminals {self.terminals}: is for --problem cuts, not for {problem}")

    def options(self) -> dict[str, Any]:
        """What decides how a source is read, as keywords of ``open_data``."""
        return {
            "format": self.format, "zero_based": self.zero_based, "width": self.features, "targets": self.targets,
            "hash_bits": self.hash_bits, "columns": self.columns(),
        }  # fmt: skip

    def columns(self) -> Asked | None:
        """What is asked of a table's columns, if anything is."""
        given = {option: getattr(self, option) for option in COLUMNS}
        if not any(given.values()):
            return None
        from hogwild.data.table_plan import Asked

        return Asked.of(**given)

    def stream(self, name: str, labels: str = "required") -> Iterator[Rows]:
        """The same rows in blocks of bounded size, in order. Text, or standard input for "-", is not kept."""
        from hogwild.data.catalogue import located
        from hogwild.data.chunks import chunks
        from hogwild.data.source import is_text

        if self._is_table(name) and (self.plan is not None or name != "-"):
            from hogwild.data.tables import stream_table

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
        from hogwild.data.table_files import SUFFIXES, table_format

        if self.format is not None:
            return self.format in SUFFIXES
        return name == "-" or (table_format(name) is not None and not os.path.isdir(name))

    def _stream_text(self, name: str, labels: str) -> Iterator[Rows]:
        from hogwild.data.svmlight import ParseSummary, iter_svmlight

        summary = ParseSummary()
        source: Any = sys.stdin.buffer if name == "-" else name
        options: dict[str, Any] = {"zero_based": self.zero_based, "labels": labels, "chunk_bytes": STREAM_BYTES}
        yield from iter_svmlight(source, summary=summary, hash_bits=self.hash_bits, **options)
        from hogwild.data.source import REPAIRS

        repairs = list(REPAIRS) if self.hash_bits is None else ["query_rows"]  # hashing sorts rows and joins features
        if parts := [f"{count:,} rows {REPAIRS[name]}" for name in repairs if (count := getattr(summary, name))]:
            warnings.warn(f"{name}: {', '.join(parts)}", HogwildWarning, stacklevel=2)


def check_readable(name: str, problem: str = "linear") -> None:
    """Raise InputError, quickly, unless ``name`` is generated or fetched data, or a file or directory to be opened."""
    if name.startswith("synthetic:"):
        from hogwild.cli.containers import CONTAINERS

        CONTAINERS[problem].check(name)
        return
    if not name:
        raise UsageError("'': expected the name of a file or directory")
    from hogwild.data.catalogue import located

    name = located(name)
    try:
        mode = os.stat(name).st_mode
        if stat.S_ISDIR(mode):
            os.listdir(name)
        elif stat.S_ISREG(mode):
            open(name, "rb").close()
        elif not os.access(name, os.R_OK):  # a pipe is not opened: its writer would take the close for the end
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        from hogwild.data.looks import missing

        hint = missing(name) if isinstance(error, FileNotFoundError) else ""
        raise InputError(f"{name}: {error.strerror or error}{hint}") from None


def check_apart(outputs: dict[str, str | None], inputs: Iterable[str | None]) -> None:
    """Raise UsageError if an output would overwrite an input, or another output."""
    taken = [name for name in inputs if name]
    for option, name in outputs.items():
        if not name or name == "-":
            continue
        for other in taken:
            if _same_file(name, other):
                raise UsageError(f"{option} {name} would overwrite {other}: choose another name")
        taken.append(name)


def _same_file(name: str, other: str) -> bool:
    if os.path.exists(name) and os.path.exists(other):
        return os.path.isfile(name) and os.path.samefile(name, other)  # a device may be both
    return os.path.realpath(name) == os.path.realpath(other)


def check_memory(name: str, width: int, bytes_each: int) -> None:
    """Raise InputError if ``bytes_each`` for every feature exceed the memory there is.

    One wrong index is enough for that, and the system would end the process without a word.
    """
    from hogwild import machine

    available = machine.memory()[1]
    if available is not None and width * bytes_each > available:
        raise InputError(
            f"{name}: {width:,} features need {width * bytes_each / 2**30:.1f} GiB of memory or more, and "
            f"{available / 2**30:.1f} GiB are available; is the largest index a mistake? (--features pins the number, "
            "--hash-bits B makes it 2^B)"
        )


def check_writable(option: str, name: str, directory: bool = False, regular: bool = False) -> None:
    """Raise OutputError, before hours of work, unless a file (or directory) ``name`` can be made where it is asked for.

    Only the place is tried: an old file stays until the new one is complete, and a directory is made when there is
    something to put there. ``regular`` refuses pipes and devices.
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
    """``path``, or what is there of the way to it."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return _nearest_folder(path.parent)
    return path
