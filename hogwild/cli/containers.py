"""What the commands do with the data of each problem: read them, describe them, hold some out, read what to test on."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from hogwild.cli.sources import Sources, check_memory
from hogwild.config import TrainConfig
from hogwild.errors import HogwildWarning, InputError, UsageError, nearest

if TYPE_CHECKING:
    from hogwild.data.examples import Rows
    from hogwild.data.graphs import Graph
    from hogwild.data.ratings import Ratings

Progress = Callable[[int, int | None], None]
TRAINING_BYTES = 48  # a feature takes in training, at the least
COPIES = 4  # of the factors there are in training: shared, exported, those of the last two rows
VERTEX_BYTES = 16  # of a vertex and label in training, at the least
HOLDOUTS = ("row", "user", "time")
ONE_PROBLEM = dict.fromkeys(("ratings", "netflix"), "completion") | dict.fromkeys(("dimacs", "edges", "mrf"), "cuts")


class Container(Protocol):
    """One problem's data, to the command line."""

    noun: str  # what its examples are called
    default: str  # data to train on where none are named ...
    what: str  # ... and what they are

    @staticmethod
    def check(name: str) -> None:
        """Raise InputError for a ``synthetic:`` name that there is not."""

    def open(self, sources: Sources, name: str, progress: Progress | None = None) -> Any:
        """Training data."""

    def open_test(self, sources: Sources, name: str, train: Any, progress: Progress | None = None) -> Any:
        """Data to test on, numbered like the training data."""

    def facts(self, examples: Any) -> str:
        """How many of what, in one line."""

    def notes(self, name: str, examples: Any, config: TrainConfig) -> Iterator[str]:
        """What else is to be said of training data; raises InputError if they are too large for the memory."""

    def hold_out(self, examples: Any, fraction: float, seed: int, by: str) -> tuple[Any, Any]:
        """Data to train on, and to test on."""


class RowsOfFeatures:
    """Of the linear problem."""

    noun, default, what = "rows", "synthetic:rcv1", "a generated stand-in shaped like RCV1"

    @staticmethod
    def check(name: str) -> None:
        from hogwild.data.synthetic import parse_spec

        parse_spec(name)

    def open(self, sources: Sources, name: str, progress: Progress | None = None) -> Rows:
        return sources.open(name, progress)

    def open_test(self, sources: Sources, name: str, train: Rows, progress: Progress | None = None) -> Rows:
        from hogwild.data.catalogue import located

        by_name = name.startswith("synthetic:") or os.path.isdir(located(name))
        options = {"width": train.width, "beyond": "ignore", "targets": None, "hash_bits": train.hash_bits}
        options |= {"columns": None, "plan": train.table}
        return sources.open(name, progress, format=None if by_name else sources.format, **options)

    def facts(self, examples: Rows) -> str:
        return f"{len(examples):,} rows x {examples.width:,} features, {examples.nnz:,} nonzeros"

    def notes(self, name: str, examples: Rows, config: TrainConfig) -> Iterator[str]:
        if examples.table is not None:
            from hogwild.data.table_plan import TablePlan

            yield from TablePlan.from_json(examples.table).lines()
        if examples.hash_bits is not None:
            from hogwild.data.hashing import collision_line, occupancy

            yield collision_line(occupancy(examples))
        check_memory(name, examples.width, TRAINING_BYTES)

    def hold_out(self, examples: Rows, fraction: float, seed: int, by: str) -> tuple[Rows, Rows]:
        if by != "row":
            raise UsageError(f"--holdout-by {by} is for ratings (--problem completion): rows are held out at random")
        return examples.split(fraction, seed)


class RatingsOfItems:
    """Of matrix completion."""

    noun, default, what = "ratings", "synthetic:ratings", "generated ratings of a planted low-rank model"

    @staticmethod
    def check(name: str) -> None:
        from hogwild.data.rating_synthetic import parse_rating_spec

        parse_rating_spec(name)

    def open(self, sources: Sources, name: str, progress: Progress | None = None) -> Ratings:
        return sources.ratings(name, progress)

    def open_test(self, sources: Sources, name: str, train: Ratings, progress: Progress | None = None) -> Ratings:
        from hogwild.data.catalogue import located

        by_name = name.startswith("synthetic:") or os.path.isdir(located(name))
        known = {"users": train.user_ids, "items": train.item_ids, "unknown": "drop"}
        return sources.ratings(name, progress, format=None if by_name else sources.format, **known)

    def facts(self, examples: Ratings) -> str:
        from hogwild.data.ratings import describe

        return describe(examples)

    def notes(self, name: str, examples: Ratings, config: TrainConfig) -> Iterator[str]:
        from hogwild import machine

        stride = -(-(config.rank or 0) // 16) * 16
        needed, available = 4 * COPIES * stride * sum(examples.shape), machine.memory()[1]
        if available is not None and needed > available:
            raise InputError(
                f"{name}: {sum(examples.shape):,} users and items at rank {config.rank} need {needed / 2**30:.1f} GiB "
                f"of memory, and {available / 2**30:.1f} GiB are available: give a smaller --rank"
            )
        yield from ()

    def hold_out(self, examples: Ratings, fraction: float, seed: int, by: str) -> tuple[Ratings, Ratings]:
        return examples.split(fraction, seed, by)


class GraphsToCut:
    """Of graph cuts."""

    noun, default, what = "edges", "synthetic:grid", "a generated picture to be cut in two"

    @staticmethod
    def check(name: str) -> None:
        from hogwild.data.graph_synthetic import parse_graph_spec

        parse_graph_spec(name)

    def open(self, sources: Sources, name: str, progress: Progress | None = None) -> Graph:
        from hogwild import machine

        graph = sources.graph(name, progress)
        needed, available = VERTEX_BYTES * graph.n_vertices * graph.n_labels, machine.memory()[1]
        if available is not None and needed > available:  # the first line of a file is enough for that
            raise InputError(
                f"{name}: {graph.n_vertices:,} vertices of {graph.n_labels:,} labels need {needed / 2**30:.1f} GiB of "
                f"memory or more, and {available / 2**30:.1f} GiB are available"
            )
        return graph

    def open_test(self, sources: Sources, name: str, train: Graph, progress: Progress | None = None) -> Graph:
        raise UsageError(f"--test {name}: a cut is of one graph, and there is nothing to test on")

    def facts(self, examples: Graph) -> str:
        grid = "" if examples.shape is None else f", a grid of {' x '.join(map(str, examples.shape))}"
        found = f"{len(examples.terminals):,} of them terminals of {examples.n_labels:,} labels"
        return f"{examples.n_vertices:,} vertices, {found}, {len(examples):,} edges{grid}"

    def notes(self, name: str, examples: Graph, config: TrainConfig) -> Iterator[str]:
        if examples.n_labels > 2 and examples.n_vertices * examples.n_labels > 1 << 32:
            warnings.warn(f"{name}: {examples.n_labels:,} labels for each vertex", HogwildWarning, stacklevel=2)
        yield from ()

    def hold_out(self, examples: Graph, fraction: float, seed: int, by: str) -> tuple[Graph, Graph]:
        raise UsageError(f"--holdout {fraction:g}: a cut is of one graph, and there is nothing to test on")


def problem_of(name: str, format: str | None = None) -> str:
    """The problem that data of this format or name are for, as far as these tell; "linear" where they do not."""
    from hogwild.data.catalogue import find
    from hogwild.data.graph_synthetic import FAMILIES as GRAPHS
    from hogwild.data.graphs import DIMACS, PACKED
    from hogwild.data.rating_store import is_rating_store
    from hogwild.data.rating_synthetic import FAMILIES as RATINGS

    if format in ONE_PROBLEM:
        return ONE_PROBLEM[format]
    if name.startswith("synthetic:"):
        family = name.removeprefix("synthetic:").partition("?")[0]
        return "completion" if family in RATINGS else "cuts" if family in GRAPHS else "linear"
    if (found := find(name)) is not None:
        return found[0].problem
    plain = next((name.removesuffix(suffix) for suffix in PACKED if name.endswith(suffix)), name)
    if plain.endswith(DIMACS):
        return "cuts"
    return "completion" if is_rating_store(name) else "linear"


def chosen(problem: str | None, name: str, format: str | None = None) -> str:
    """The problem asked for, or the one that the data's format or name tell of."""
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
