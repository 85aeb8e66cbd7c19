"""How the commands open and describe data of each problem, and check paths before anything heavy is imported."""

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
from typing import TYPE_CHECKING, Any

from hogwild.config import TrainConfig
from hogwild.data.parallel import BytesRead
from hogwild.errors import HogwildWarning, InputError, OutputError, UsageError, expected_one_of, nearest
from hogwild.methods import located

if TYPE_CHECKING:
    from hogwild.data.cache import Cache
    from hogwild.data.graphs.container import Graph
    from hogwild.data.ratings.container import Ratings
    from hogwild.data.rows.container import Rows
    from hogwild.data.text.delimited import TextLayout

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
    "dimacs",
    "edges",
    "mrf",
)
COLUMNS = ("label", "categorical", "numeric", "text", "ignore", "weight")
TRAINING_BYTES = 48  # least memory of a feature in training
COPIES = 4  # of the factors in training: shared, exported, those of the last two rows
VERTEX_BYTES = 16  # least memory of a vertex and label in training
HOLDOUTS = ("row", "user", "time")
ONE_PROBLEM = {"ratings": "completion"} | dict.fromkeys(("dimacs", "edges", "mrf"), "cuts")
SPECS = {
    "linear": "hogwild.data.rows.synthetic:SyntheticSpec",
    "completion": "hogwild.data.ratings.synthetic:RatingSpec",
    "cuts": "hogwild.data.graphs.synthetic:GraphSpec",
}
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
    columns: str | None = None
    separator: str | None = None
    header: bool | None = None
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

        reading = {"format": self.format, "layout": self.layout(), "progress": progress, "cache": self.cache()}
        return open_ratings(name, **reading | changes)

    def graph(self, name: str, progress: Any = None) -> Graph:
        """The graph of a file or ``synthetic:`` name."""
        from hogwild.data.graphs.source import open_graph

        reading: dict[str, Any] = {"layout": self.layout(), "progress": progress}
        return open_graph(name, format=self.format, terminals=self.terminals, **reading)

    def layout(self) -> TextLayout:
        """Return the layout of delimited text."""
        from hogwild.data.text.delimited import TextLayout

        return TextLayout(self.columns, self.separator, self.header)

    def check(self, problem: str) -> None:
        """Refuse reading options of another problem, which would be ignored silently."""
        given = {"features": self.features, "hash-bits": self.hash_bits, "targets": self.targets}
        given["zero-based"] = self.zero_based or None
        given |= {option: getattr(self, option) for option in COLUMNS}
        if problem != "linear" and (wrong := [f"--{name}" for name, value in given.items() if value is not None]):
            raise UsageError(f"{wrong[0]} is for rows of features, and --problem {problem} has none")
        if problem == "linear" and (self.columns is not None or self.header is not None):
            name = "--columns" if self.columns is not None else "--header"
            raise UsageError(f"{name} is for ratings and edges: --problem completion or cuts")
        if self.terminals is not None and problem != "cuts":
            raise UsageError(f"--terminals {self.terminals}: is for --problem cuts, not for {problem}")

    def options(self) -> dict[str, Any]:
        """The options that determine how a source is read, as keywords of ``open_data``."""
        columns, given = None, {option: getattr(self, option) for option in COLUMNS}
        if any(given.values()):
            from hogwild.data.tables.plan import AskedColumns

            columns = AskedColumns.of(**given)
        return {
            "format": self.format,
            "zero_based": self.zero_based,
            "width": self.features,
            "targets": self.targets,
            "hash_bits": self.hash_bits,
            "columns": columns,
            "separator": self.separator,
        }

    def stream(self, name: str, labels: str = "required") -> Iterator[Rows]:
        """Yield the rows in order, in blocks of bounded size. Text, or standard input for "-", is not kept."""
        from hogwild.data.public.catalogue import located
        from hogwild.data.rows.container import chunks
        from hogwild.data.rows.source import is_text

        if self._is_table(name) and (self.plan is not None or name != "-"):
            from hogwild.data.tables.source import stream_table

            if self.plan is None:
                raise InputError(f"{name}: a table, but the model's features are none of its columns")
            table: Any = sys.stdin.buffer if name == "-" else located(name)
            yield from stream_table(table, self.plan, labels == "required", self.format, self.separator)
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


# ---- data of each problem


def _by_name(sources: Sources, name: str) -> dict[str, Any]:
    """Return the format of test data: that of the options, unless their name says it."""
    from hogwild.data.public.catalogue import located

    return {"format": None if name.startswith("synthetic:") or os.path.isdir(located(name)) else sources.format}


class RowsOfFeatures:
    """Data of the linear problem.

    Attributes
    ----------
    noun : str
        What its examples are called.
    default, what : str
        Training data if none are named, and their description.
    """

    noun, default, what = "rows", "synthetic:rcv1", "a generated stand-in shaped like RCV1"

    def open(self, sources: Sources, name: str, progress: BytesRead | None = None) -> Rows:
        return sources.open(name, progress)

    def open_test(self, sources: Sources, name: str, train: Rows, progress: BytesRead | None = None) -> Rows:
        """Open test data, numbered like the training data."""
        options = {"width": train.width, "beyond": "ignore", "targets": None, "hash_bits": train.hash_bits}
        return sources.open(name, progress, columns=None, plan=train.table, **options, **_by_name(sources, name))

    def facts(self, examples: Rows) -> str:
        """Return the size of the data in a line."""
        return f"{len(examples):,} rows x {examples.width:,} features, {examples.nnz:,} nonzeros"

    def notes(self, name: str, examples: Rows, config: TrainConfig) -> Iterator[str]:
        """Yield further remarks on training data; raise InputError if they are too large for the memory."""
        if examples.table is not None:
            from hogwild.data.tables.plan import TablePlan

            yield from TablePlan.from_json(examples.table).lines()
        if examples.hash_bits is not None:
            from hogwild.data.text.hashing import collision_line, occupancy

            yield collision_line(occupancy(examples))
        check_memory(name, examples.width, TRAINING_BYTES)

    def hold_out(self, examples: Rows, fraction: float, seed: int, by: str) -> tuple[Rows, Rows]:
        if by != "row":
            raise UsageError(f"--holdout-by {by} is for ratings (--problem completion): rows are held out at random")
        return examples.split(fraction, seed)


class RatingsOfItems:
    """Data of matrix completion."""

    noun, default, what = "ratings", "synthetic:ratings", "generated ratings of a planted low-rank model"

    def open(self, sources: Sources, name: str, progress: BytesRead | None = None) -> Ratings:
        return sources.ratings(name, progress)

    def open_test(self, sources: Sources, name: str, train: Ratings, progress: BytesRead | None = None) -> Ratings:
        known = {"users": train.user_ids, "items": train.item_ids, "unknown": "drop"}
        return sources.ratings(name, progress, **known, **_by_name(sources, name))

    def facts(self, examples: Ratings) -> str:
        from hogwild.data.ratings.container import describe

        return describe(examples)

    def notes(self, name: str, examples: Ratings, config: TrainConfig) -> Iterable[str]:
        from hogwild import machine

        stride = -(-(config.rank or 0) // 16) * 16
        what = f"{name}: {sum(examples.shape):,} users and items at rank {config.rank}"
        machine.check_memory(what, 4 * COPIES * stride * sum(examples.shape), ": give a smaller --rank")
        return ()

    def hold_out(self, examples: Ratings, fraction: float, seed: int, by: str) -> tuple[Ratings, Ratings]:
        return examples.split(fraction, seed, by)


class GraphsToCut:
    """Data of graph cuts."""

    noun, default, what = "edges", "synthetic:grid", "a generated picture to be cut in two"

    def open(self, sources: Sources, name: str, progress: BytesRead | None = None) -> Graph:
        from hogwild import machine

        graph = sources.graph(name, progress)
        what = f"{name}: {graph.n_vertices:,} vertices of {graph.n_labels:,} labels"
        machine.check_memory(what, VERTEX_BYTES * graph.n_vertices * graph.n_labels)
        return graph

    def open_test(self, sources: Sources, name: str, train: Graph, progress: BytesRead | None = None) -> Graph:
        raise UsageError(f"--test {name}: a cut is of one graph, and there is nothing to test on")

    def facts(self, examples: Graph) -> str:
        grid = "" if examples.shape is None else f", a grid of {' x '.join(map(str, examples.shape))}"
        found = f"{len(examples.terminals):,} of them terminals of {examples.n_labels:,} labels"
        return f"{examples.n_vertices:,} vertices, {found}, {len(examples):,} edges{grid}"

    def notes(self, name: str, examples: Graph, config: TrainConfig) -> Iterable[str]:
        if examples.n_labels > 2 and examples.n_vertices * examples.n_labels > 1 << 32:
            warnings.warn(f"{name}: {examples.n_labels:,} labels for each vertex", HogwildWarning, stacklevel=2)
        return ()

    def hold_out(self, examples: Graph, fraction: float, seed: int, by: str) -> tuple[Graph, Graph]:
        raise UsageError(f"--holdout {fraction:g}: a cut is of one graph, and there is nothing to test on")


def problem_of(name: str, format: str | None = None) -> str:
    """The problem that data of this format or name are for, as far as these tell; "linear" where they do not."""
    from hogwild.data.graphs.source import graph_format
    from hogwild.data.graphs.synthetic import FAMILIES as GRAPHS
    from hogwild.data.public.catalogue import find
    from hogwild.data.ratings.store import is_rating_store
    from hogwild.data.ratings.synthetic import FAMILIES as RATINGS

    if format in ONE_PROBLEM:
        return ONE_PROBLEM[format]
    if name.startswith("synthetic:"):
        family = name.removeprefix("synthetic:").partition("?")[0]
        return "completion" if family in RATINGS else "cuts" if family in GRAPHS else "linear"
    if (found := find(name)) is not None:
        return found[0].problem
    if graph_format(name) == "dimacs":
        return "cuts"
    return "completion" if is_rating_store(name) else "linear"


def chosen(problem: str | None, name: str, format: str | None = None) -> str:
    """Return the problem asked for, or the one that the data's format or name implies."""
    problem = problem or problem_of(name, format)
    if problem not in CONTAINERS:
        choices, close = ", ".join(CONTAINERS), nearest(problem, CONTAINERS)
        raise UsageError(f"--problem {problem}: expected one of {choices} (modules: hogwild train-module){close}")
    return problem


CONTAINERS: dict[str, Any] = {
    "linear": RowsOfFeatures(),
    "completion": RatingsOfItems(),
    "cuts": GraphsToCut(),
}


# ---- paths


def check_readable(name: str, problem: str = "linear") -> None:
    """Raise InputError, quickly, unless ``name`` is generated or fetched data, or a file or directory to be opened."""
    if name.startswith("synthetic:"):
        located(SPECS[problem]).parse(name)
        return
    if not name:
        raise UsageError("'': expected the name of a file or directory")
    from hogwild.data.public import catalogue

    name = catalogue.located(name)
    try:
        mode = os.stat(name).st_mode
        if stat.S_ISDIR(mode):
            os.listdir(name)
        elif stat.S_ISREG(mode):
            open(name, "rb").close()
        elif not os.access(name, os.R_OK):  # a pipe is not opened: its writer would take the close for the end
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        from hogwild.data.hints import missing

        hint = missing(name) if isinstance(error, FileNotFoundError) else ""
        raise InputError(f"{name}: {error.strerror or error}{hint}") from None


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
