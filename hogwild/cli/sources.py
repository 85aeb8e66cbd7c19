"""How the commands open and describe data of each problem, and check paths before anything heavy is imported."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import stat
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hogwild import machine
from hogwild.config import TrainConfig
from hogwild.errors import HogwildWarning, InputError, OutputError, UsageError, expected_one_of, nearest
from hogwild.methods import located

if TYPE_CHECKING:
    from hogwild.data.cache import Cache
    from hogwild.data.text.delimited import TextLayout


class Kind(NamedTuple):
    """The data of a problem."""

    noun: str  # what its examples are called
    default: str  # training data if nobody names some; "" if none are generated
    description: str  # of these
    opener: str  # module:function of the library


ROWS = Kind(
    "rows",
    "synthetic:rcv1",
    "a generated stand-in shaped like RCV1",
    "hogwild.data.rows.source:open_data",
)
KINDS = {
    "linear": ROWS,
    "fm": ROWS._replace(default="synthetic:ctr?features=1048576", description="generated clicks"),
    "ffm": ROWS._replace(default=""),
    "completion": Kind(
        "ratings",
        "synthetic:ratings",
        "generated ratings of a planted low-rank model",
        "hogwild.data.ratings.source:open_ratings",
    ),
    "cuts": Kind(
        "edges",
        "synthetic:grid",
        "a generated picture to be cut in two",
        "hogwild.data.graphs.source:open_graph",
    ),
}
OF_ROWS = ("linear", "fm", "ffm")  # problems whose data are rows of features
#: Formats of rows, of ratings and of graphs.
FORMATS = "svmlight csv tsv parquet arrow ratings dimacs edges".split()
ONE_PROBLEM = {"ratings": "completion"} | dict.fromkeys(("dimacs", "edges"), "cuts")
COLUMNS = "label categorical numeric text date bucket cross ignore weight".split()
HOLDOUTS = ("row", "user", "time")
FEATURE_BYTES = 48  # least memory of a feature in training
COPIES = 4  # of the factors in training: shared, exported, those of the last two rows
VERTEX_BYTES = 16  # least memory of a vertex and label in training


@dataclass(frozen=True)
class Sources:
    """The data options of one command; ``open`` reads a named source with them."""

    features: int | None = None
    zero_based: bool = False
    format: str | None = None
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
    date: str | None = None
    bucket: str | None = None
    cross: str | None = None
    ignore: str | None = None
    weight: str | None = None

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise UsageError(f"--format {self.format}: {expected_one_of(FORMATS, self.format)}")
        if self.features is not None and self.hash_bits is not None:
            raise UsageError(
                f"--features {self.features} and --hash-bits {self.hash_bits} contradict each other: give one of them"
            )
        if self.no_cache and self.cache_directory is not None:
            raise UsageError("--cache and --no-cache contradict each other: give one of them")
        if self.cache_directory == "":  # an unset variable in a script; it would mean the current directory
            raise UsageError("--cache '': expected the name of a directory")

    @classmethod
    def take(cls, options: dict[str, Any]) -> Sources:
        """Create the sources from a command's options by name, and remove them there."""
        names = {field.name for field in dataclasses.fields(cls)} & set(options)
        return cls(cache_directory=options.pop("cache", None), **{name: options.pop(name) for name in names})

    def check(self, problem: str) -> None:
        """Refuse reading options of another problem, which would be ignored silently."""
        options: dict[str, Any] = {"features": self.features, "hash-bits": self.hash_bits}
        options |= {"zero-based": self.zero_based or None, **self._columns()}
        if problem not in OF_ROWS:
            for name in (name for name, value in options.items() if value is not None):
                raise UsageError(f"--{name} is for rows of features, and --problem {problem} has none")
        if problem in OF_ROWS and (self.columns is not None or self.header is not None):
            name = "--header" if self.columns is None else "--columns"
            raise UsageError(f"{name} is for ratings and edges: --problem completion or cuts")
        if self.terminals is not None and problem != "cuts":
            raise UsageError(f"--terminals {self.terminals}: is for --problem cuts, not for {problem}")

    def _columns(self) -> dict[str, str | None]:
        return {name: getattr(self, name) for name in COLUMNS}

    def cache(self) -> Cache | None:
        from hogwild.data.cache import Cache

        return None if self.no_cache else Cache(self.cache_directory)

    def open(self, problem: str, name: str, progress: Any = None, **changes: Any) -> Any:
        """Open the rows, ratings or graph of a file, store or ``synthetic:`` name."""
        options: dict[str, Any] = {"format": self.format, "progress": progress}
        if problem == "cuts":
            options["terminals"] = self.terminals
        else:
            options["cache"] = self.cache()
        if problem in OF_ROWS:
            options |= self.row_options()
        else:
            options["layout"] = self.layout()
        return located(KINDS[problem].opener)(name, **options | changes)

    def layout(self) -> TextLayout:
        """Return the layout of delimited text."""
        from hogwild.data.text.delimited import TextLayout

        return TextLayout(self.columns, self.separator, self.header)

    def row_options(self) -> dict[str, Any]:
        """Return the options that determine how rows are read, as keywords of ``open_data``."""
        columns = None
        if any(self._columns().values()):
            from hogwild.data.tables.plan import AskedColumns

            columns = AskedColumns.of(**self._columns())
        return {
            "format": self.format,
            "zero_based": self.zero_based,
            "width": self.features,
            "hash_bits": self.hash_bits,
            "columns": columns,
            "separator": self.separator,
        }

    def open_test(self, problem: str, name: str, train: Any, progress: Any = None) -> Any:
        """Open test data, numbered like the training data; their format may be another if their name says it."""
        from hogwild.data.public.catalogue import located as located_data

        options: dict[str, Any] = {}
        if problem == "cuts":
            raise UsageError(f"--test {name}: a cut is of one graph, and there is nothing to test on")
        if problem == "completion":
            options = {"users": train.user_ids, "items": train.item_ids}
        else:
            options = {"width": train.width, "beyond": "ignore", "hash_bits": train.hash_bits}
            options |= {"columns": None, "plan": train.table}
        if name.startswith("synthetic:") or os.path.isdir(located_data(name)):
            options |= {"format": None, "layout" if problem == "completion" else "separator": None}
        return self.open(problem, name, progress, **options)


# ---- data of each problem


def described(problem: str, examples: Any) -> str:
    """Return the size of the data in a line."""
    if problem in OF_ROWS:
        return f"{len(examples):,} rows x {examples.width:,} features, {examples.nnz:,} nonzeros"
    if problem == "completion":
        from hogwild.data.ratings.container import describe

        return describe(examples)
    grid = "" if examples.shape is None else f", a grid of {' x '.join(map(str, examples.shape))}"
    terminals = f"{len(examples.terminals):,} of them terminals of {examples.n_labels:,} labels"
    return f"{examples.n_vertices:,} vertices, {terminals}, {len(examples):,} edges{grid}"


def check_vertices(name: str, graph: Any) -> int:
    """Return vertices times labels; raise InputError if there is no memory for them."""
    size: int = graph.n_vertices * graph.n_labels
    label = f"{name}: {graph.n_vertices:,} vertices of {graph.n_labels:,} labels"
    machine.check_memory(label, VERTEX_BYTES * size)
    return size


def remarks(name: str, examples: Any, config: TrainConfig) -> Iterator[str]:
    """Yield remarks on training data; raise InputError if training on them needs more than the memory."""
    if config.problem == "completion":
        stride = -(-config.rank // 16) * 16
        size = sum(examples.shape)
        label = f"{name}: {size:,} users and items at rank {config.rank}"
        machine.check_memory(label, 4 * COPIES * stride * size, ": give a smaller --rank")
    elif config.problem == "cuts":
        size = check_vertices(name, examples)
        if examples.n_labels > 2 and size > 1 << 32:
            warnings.warn(f"{name}: {examples.n_labels:,} labels for each vertex", HogwildWarning, stacklevel=2)
    else:
        if examples.table is not None:
            from hogwild.data.tables.plan import TablePlan

            yield from TablePlan.from_json(examples.table).lines()
        if examples.hash_bits is not None:
            from hogwild.data.text.hashing import collision_line, occupancy

            yield collision_line(occupancy(examples))
        check_width(
            name, examples.width, FEATURE_BYTES if config.problem == "linear" else 4 * COPIES * (config.rank + 1)
        )


def hold_out(problem: str, examples: Any, fraction: float, seed: int, by: str) -> tuple[Any, Any]:
    """Return examples to train on, and those held out."""
    if problem == "cuts":
        raise UsageError(f"--holdout {fraction:g}: a cut is of one graph, and there is nothing to test on")
    if problem == "completion":
        return examples.split(fraction, seed, by)
    if by != "row":
        raise UsageError(f"--holdout-by {by} is for ratings (--problem completion): rows are held out at random")
    return examples.split(fraction, seed)


def chosen_problem(problem: str | None, name: str, format: str | None = None) -> str:
    """Return the problem that a user named, or the one that the data's format or name implies."""
    problem = problem or implied_problem(name, format)
    if problem not in KINDS:
        choices = f"{', '.join(KINDS)} (modules: hogwild.train_module, in Python)"
        raise UsageError(f"--problem {problem}: expected one of {choices}{nearest(problem, KINDS)}")
    return problem


def implied_problem(name: str, format: str | None = None) -> str:
    """Return the problem that data of this format or name are for, as far as these tell; else "linear"."""
    from hogwild.data.graphs.source import graph_format
    from hogwild.data.public.catalogue import find
    from hogwild.data.rows.store import is_store, read_meta
    from hogwild.data.synthetic import FAMILIES

    if format in ONE_PROBLEM:
        return ONE_PROBLEM[format]
    if name.startswith("synthetic:"):
        kind, _ = FAMILIES.get(name.removeprefix("synthetic:").partition("?")[0], ("rows", {}))
        return next(problem for problem, of in KINDS.items() if of.noun == kind)
    if (part := find(name)) is not None:
        return part[0].problem
    if graph_format(name) == "dimacs":
        return "cuts"
    return "completion" if is_store(name) and read_meta(name).get("kind") == "ratings" else "linear"


# ---- paths


@contextlib.contextmanager
def naming(name: str, *others: str | None) -> Iterator[None]:
    """Prefix the data's name to errors that the library finds in them, unless they name it or one of ``others``."""
    try:
        yield
    except InputError as error:
        if str(error).startswith(tuple(each for each in (name, *others) if each)):
            raise
        raise InputError(f"{name}: {error}") from error


def check_readable(name: str, problem: str = "linear", model: bool = False) -> None:
    """Raise InputError, quickly, unless ``name`` is generated or fetched data, or a file or directory to be opened.

    Only a ``model`` may be one.
    """
    if name.startswith("synthetic:"):
        from hogwild.data.synthetic import parse

        parse(name, KINDS[problem].noun)
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
            with open(name, "rb") as file:
                if b'{"hogwild"' in file.read(40) and not model:
                    raise InputError(f"{name}: a model, expected data; hogwild inspect MODEL shows what is in it")
        elif not os.access(name, os.R_OK):  # a pipe is not opened: its writer would take the close for the end
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        hint = catalogue.suggestion(name) if isinstance(error, FileNotFoundError) else ""
        hint = ": standard input is /dev/stdin" if name == "-" else hint
        raise InputError(f"{name}: {error.strerror or error}{hint}") from None


def check_outputs(outputs: dict[str, str | None], inputs: Iterable[str | None] = (), pipes: Iterable[str] = ()) -> None:
    """Refuse outputs, by their options, that cannot be written, or would overwrite an input or another output.

    Those of the options ``pipes`` may be pipes or devices, and "-" is the standard output there.
    """
    read = [name for name in inputs if name]
    for option, name in outputs.items():
        if name is None or (name == "-" and option in pipes):
            continue
        for other in read:
            if name and _same_file(name, other):
                raise UsageError(f"{option} {name} would overwrite {other}: choose another name")
        read.append(name)
        check_writable(option, name, regular=option not in pipes)


def _same_file(name: str, other: str) -> bool:
    if os.path.exists(name) and os.path.exists(other):
        return os.path.isfile(name) and os.path.samefile(name, other)  # a device may be both
    return os.path.realpath(name) == os.path.realpath(other)


def check_width(name: str, width: int, bytes_each: int) -> None:
    """Raise InputError if ``bytes_each`` for every feature exceed the available memory."""
    hint = "; is the largest index a mistake? (--features pins the number, --hash-bits B makes it 2^B)"
    machine.check_memory(f"{name}: {width:,} features", width * bytes_each, hint)


def check_writable(option: str, name: str, directory: bool = False, regular: bool = False) -> None:
    """Raise OutputError, before hours of work, unless the file (or directory) ``name`` can be created.

    Only its folder is checked: an old file stays until the new one is complete, and a directory is created when there
    is something to put there. ``regular`` refuses pipes and devices, which are written in place.
    """
    if not name:
        raise UsageError(f"{option} '': expected a name")
    path = Path(name)
    if not directory and path.exists() and not path.is_file():
        if regular or path.is_dir():
            raise OutputError(f"{option} {name}: expected the name of a file")
        return
    folder = next(each for each in (path, *path.parents) if os.path.lexists(each)) if directory else path.parent
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise OutputError(f"{option} {name}: cannot write there: {error.strerror or error}") from None
