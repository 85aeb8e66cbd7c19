"""Data of each problem for the commands: read them, describe them, hold some out, read test data."""

from __future__ import annotations

import errno
import os
import stat
import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from hogwild.cli.data.sources import Sources, check_memory
from hogwild.config import TrainConfig
from hogwild.data.parallel import BytesRead
from hogwild.errors import HogwildWarning, InputError, UsageError, nearest

if TYPE_CHECKING:
    from hogwild.data.graphs.container import Graph
    from hogwild.data.ratings.container import Ratings
    from hogwild.data.rows.container import Rows

TRAINING_BYTES = 48  # least memory of a feature in training
COPIES = 4  # of the factors in training: shared, exported, those of the last two rows
VERTEX_BYTES = 16  # least memory of a vertex and label in training
HOLDOUTS = ("row", "user", "time")
ONE_PROBLEM = dict.fromkeys(("ratings", "netflix"), "completion") | dict.fromkeys(("dimacs", "edges", "mrf"), "cuts")


class Container(Protocol):
    """The command line's view of one problem's data."""

    noun: str  # what its examples are called
    default: str  # training data if none are named ...
    what: str  # ... and their description

    @staticmethod
    def check(name: str) -> None:
        """Raise InputError for an unknown ``synthetic:`` name."""

    def open(self, sources: Sources, name: str, progress: BytesRead | None = None) -> Any:
        """Open training data."""

    def open_test(self, sources: Sources, name: str, train: Any, progress: BytesRead | None = None) -> Any:
        """Open test data, numbered like the training data."""

    def facts(self, examples: Any) -> str:
        """Return the size of the data in one line."""

    def notes(self, name: str, examples: Any, config: TrainConfig) -> Iterable[str]:
        """Return further remarks on training data; raise InputError if they are too large for the memory."""

    def hold_out(self, examples: Any, fraction: float, seed: int, by: str) -> tuple[Any, Any]:
        """Split the data into training and test data."""


def _by_name(sources: Sources, name: str) -> dict[str, Any]:
    """Return the format of test data: that of the options, unless their name says it."""
    from hogwild.data.public.catalogue import located

    return {"format": None if name.startswith("synthetic:") or os.path.isdir(located(name)) else sources.format}


class RowsOfFeatures:
    """Data of the linear problem."""

    noun, default, what = "rows", "synthetic:rcv1", "a generated stand-in shaped like RCV1"

    @staticmethod
    def check(name: str) -> None:
        from hogwild.data.rows.synthetic import SyntheticSpec

        SyntheticSpec.parse(name)

    def open(self, sources: Sources, name: str, progress: BytesRead | None = None) -> Rows:
        return sources.open(name, progress)

    def open_test(self, sources: Sources, name: str, train: Rows, progress: BytesRead | None = None) -> Rows:
        options = {"width": train.width, "beyond": "ignore", "targets": None, "hash_bits": train.hash_bits}
        return sources.open(name, progress, columns=None, plan=train.table, **options, **_by_name(sources, name))

    def facts(self, examples: Rows) -> str:
        return f"{len(examples):,} rows x {examples.width:,} features, {examples.nnz:,} nonzeros"

    def notes(self, name: str, examples: Rows, config: TrainConfig) -> Iterator[str]:
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

    @staticmethod
    def check(name: str) -> None:
        from hogwild.data.ratings.synthetic import RatingSpec

        RatingSpec.parse(name)

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

    @staticmethod
    def check(name: str) -> None:
        from hogwild.data.graphs.synthetic import GraphSpec

        GraphSpec.parse(name)

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


CONTAINERS: dict[str, Container] = {
    "linear": RowsOfFeatures(),
    "completion": RatingsOfItems(),
    "cuts": GraphsToCut(),
}


def check_readable(name: str, problem: str = "linear") -> None:
    """Raise InputError, quickly, unless ``name`` is generated or fetched data, or a file or directory to be opened."""
    if name.startswith("synthetic:"):
        CONTAINERS[problem].check(name)
        return
    if not name:
        raise UsageError("'': expected the name of a file or directory")
    from hogwild.data.public.catalogue import located

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
        from hogwild.data.hints import missing

        hint = missing(name) if isinstance(error, FileNotFoundError) else ""
        raise InputError(f"{name}: {error.strerror or error}{hint}") from None
