"""The data that a command names: their problem, how they are opened and held out; and early checks of paths."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hogwild import machine
from hogwild.cli.display import Display, Reading
from hogwild.errors import InputError, OutputError, UsageError, expected_one_of, naming, nearest
from hogwild.methods import located

if TYPE_CHECKING:
    from hogwild.data.cache import Cache


class Kind(NamedTuple):
    """The data of a problem."""

    noun: str  # what its examples are called
    default: str  # training data if nobody names some
    description: str  # of these
    opener: str  # module:function of the library


ROWS = Kind("rows", "synthetic:rcv1", "a generated stand-in shaped like RCV1", "hogwild.data.rows.source:open_data")
CLICKS = "synthetic:ctr?features=1048576&fields=39&rank=4"
KINDS = {
    "linear": ROWS,
    **dict.fromkeys(("fm", "ffm"), ROWS._replace(default=CLICKS, description="generated clicks")),
    "completion": Kind(
        "ratings",
        "synthetic:ratings",
        "generated ratings of a planted low-rank model",
        "hogwild.data.ratings.source:open_ratings",
    ),
    "cuts": Kind(
        "edges", "synthetic:grid", "a generated picture to be cut in two", "hogwild.data.graphs.source:open_graph"
    ),
}
OF_ROWS = ("linear", "fm", "ffm")  # problems whose data are rows of features
COLUMNS = "label categorical numeric text date bucket cross ignore weight"
HOLDOUTS = ("row", "user", "time")
DEFAULT_HOLDOUT = 0.2
#: Options of reading, and the problems that have them.
READING: dict[str, tuple[str, ...]] = {
    **dict.fromkeys("cache no_cache separator".split(), tuple(KINDS)),
    **dict.fromkeys(f"zero_based features hash_bits {COLUMNS}".split(), OF_ROWS),
    **dict.fromkeys(("test", "holdout"), (*OF_ROWS, "completion")),
    **dict.fromkeys(("columns", "header"), ("completion", "cuts")),
    **dict.fromkeys(("holdout_by", "user_features", "item_features"), ("completion",)),
    "terminals": ("cuts",),
}


class Sources:
    """The data of one command. The options about them are taken out of the command's, and refused if they are wrong.

    Attributes
    ----------
    problem : str
        The one that was named, or that the name of the data implies.
    name : str
        The training data; if nobody named them, the generated ones of the problem.
    test, holdout : str or float, optional
        What is tested on.
    inputs : list of str
        Names of the data.
    """

    def __init__(
        self, options: dict[str, Any], name: str | None, problem: str | None = None, default: str = ""
    ) -> None:
        self._options = {key: options.pop(key, None) for key in READING}
        self.problem = problem or options.pop("problem", None) or implied_problem(name or "")
        if self.problem not in KINDS:
            choices = f"{', '.join(KINDS)} (modules: hogwild.train_module, in Python)"
            raise UsageError(f"--problem {self.problem}: expected one of {choices}{nearest(self.problem, KINDS)}")
        for key, value in self._options.items():
            if value not in (None, False) and self.problem not in READING[key]:
                needed = " or ".join(READING[key])
                raise UsageError(f"--{key.replace('_', '-')} needs --problem {needed}; got {self.problem}")
        self.named = name is not None
        self.name = name or default or KINDS[self.problem].default
        self.test, self.holdout, self._by = (self._options.pop(key) for key in ("test", "holdout", "holdout_by"))
        check_holdout(self.holdout)
        if self._by not in (None, *HOLDOUTS):
            raise UsageError(f"--holdout-by {self._by}: {expected_one_of(HOLDOUTS, self._by)}")
        if self._by is not None and self.holdout is None:
            raise UsageError(f"--holdout-by {self._by}: nothing is held out: give --holdout FRACTION too")
        self._features = self._options.pop("user_features"), self._options.pop("item_features")
        self.inputs = [self.name, *filter(None, [self.test, *self._features, self._options["terminals"]])]
        for each in self.inputs:
            if each != "-" or problem is None:  # standard input, for models
                check_readable(each)
        if self._options["columns"]:
            from hogwild.data.public.catalogue import located as find_data

            if self.name.startswith("synthetic:") or os.path.isdir(find_data(self.name)):
                raise UsageError(f"--columns needs text; got {self.name}, whose columns are known: remove --columns")

    def hold_out(self) -> None:
        """Hold some of the data out if there are no others to test on."""
        if self.holdout is None and self.test is None and self.problem != "cuts":
            self.holdout = DEFAULT_HOLDOUT

    def cache(self) -> Cache | None:
        from hogwild.data.cache import Cache

        return None if self._options["no_cache"] else Cache(self._options["cache"])

    def reading(self) -> dict[str, Any]:
        """Return how the data are read, as keywords of the library."""
        of = self._options
        if self.problem not in OF_ROWS:
            from hogwild.data.text.delimited import TextLayout

            keywords = {"layout": TextLayout(of["columns"], of["separator"], of["header"])}
            return keywords | ({"terminals": of["terminals"]} if self.problem == "cuts" else {})
        from hogwild.data.tables.plan import AskedColumns

        columns = AskedColumns.of(**{name: of[name] for name in COLUMNS.split()}) or None
        keywords = {"hash_bits": of["hash_bits"], "separator": of["separator"], "width": of["features"]}
        return keywords | {"zero_based": bool(of["zero_based"]), "columns": columns}

    def open(self, source: Any = None, display: Display | None = None, **changes: Any) -> Any:
        """Open the rows, ratings or graph of ``source``, by default of the data."""
        source = source or self.name
        reading = Reading(str(source))
        with (display or Display(quiet=True)).live(reading.line):
            options = {"cache": self.cache(), "progress": reading.update} | self.reading() | changes
            return located(KINDS[self.problem].opener)(source, **options)

    def read(self, display: Display, seed: int) -> tuple[Any, Any, Any]:
        """Return the training data, the test data if there are some, and those that are held out to choose by."""
        noun = KINDS[self.problem].noun
        if not self.named:
            display.say(f"no data named: training on {self.name}, {KINDS[self.problem].description}")
        examples, test, held = self.open(display=display), None, None
        display.say(f"{self.name}: {described(examples)}")
        if any(self._features):
            rated = examples.shape
            examples = examples.with_features(*self._features)
            for table, features, before, side in zip(self._features, examples.features, rated, ("users", "items")):
                if table:
                    size, width = features.shape
                    display.say(f"{table}: {width:,} features of {side}; {size - before:,} {side} have no ratings")
        if self.holdout:
            with naming(self.name):
                by = (self._by,) if self._by else ()
                examples, held = examples.split(self.holdout, seed, *by)
            purpose = "test on" if self.test is None else "choose by"
            display.say(f"held out {len(held):,} {noun} to {purpose}, training on {len(examples):,}")
        if self.test is not None:
            test = self._open_test(examples, display)
            display.say(f"{self.test}: {described(test)}")
        return examples, test, held

    def _open_test(self, train: Any, display: Display) -> Any:
        """Open test data, numbered like the training data; their format may be another if their name says it."""
        if self.problem == "completion":
            changes = {"users": train.user_ids, "items": train.item_ids}
        else:
            changes = {"width": train.width, "beyond": "ignore", "hash_bits": train.hash_bits}
            changes |= {"columns": None, "plan": train.table}
            if train.labels is not None:
                changes["labels"] = "several"
        return self.open(self.test, display, **changes)


def implied_problem(name: str) -> str:
    """Return the problem that data of this name are for, as far as it tells; else "linear"."""
    from hogwild.data.graphs.source import graph_format
    from hogwild.data.public.catalogue import find
    from hogwild.data.rows.store import is_store, read_meta
    from hogwild.data.synthetic import FAMILIES

    if name.startswith("synthetic:"):
        kind, _ = FAMILIES.get(name.removeprefix("synthetic:").partition("?")[0], ("rows", {}))
        return next(problem for problem, of in KINDS.items() if of.noun == kind)
    if (part := find(name)) is not None:
        return part[0].problem
    if graph_format(name) == "dimacs":
        return "cuts"
    return "completion" if is_store(name) and read_meta(name).get("kind") == "ratings" else "linear"


def described(examples: Any) -> str:
    """Return the size of data in a line, as they say it themselves."""
    return repr(examples).partition("(")[2].partition(", store=")[0].removesuffix(")")


def check_size(name: str, examples: Any, numbers: int) -> None:
    """Raise InputError if there is no memory for ``numbers`` of 16 bytes for every feature, user, item or label."""
    hint = ""
    if hasattr(examples, "width"):
        count, noun = examples.width, "features"
        hint = "; is the largest index a mistake? (--features pins the number, --hash-bits B makes it 2^B)"
    elif hasattr(examples, "n_vertices"):
        count, noun = examples.n_vertices * examples.n_labels, "labels of vertices"
    else:
        count, noun = sum(examples.shape), "users and items"
    machine.check_memory(f"{name}: {count:,} {noun}", 16 * numbers * count, hint)


def check_holdout(fraction: float | None) -> None:
    """Raise UsageError unless it is a fraction, or 0 for none."""
    if fraction is not None and not 0 <= fraction < 1:
        raise UsageError(f"--holdout {fraction:g}: expected a fraction between 0 and 1")


# ---- paths


def check_readable(name: str) -> None:
    """Raise InputError, quickly, unless ``name`` is generated or fetched data, or a file or directory to be opened."""
    from hogwild.data.public import catalogue

    if name.startswith("synthetic:"):
        return
    path = catalogue.located(name)
    if not os.access(path, os.R_OK):
        hint = ": standard input is /dev/stdin" if name == "-" else catalogue.suggestion(name)
        there = os.path.exists(path)
        raise InputError(f"{name}: Permission denied" if there else f"{name}: No such file or directory{hint}")


def check_outputs(outputs: dict[str, str | None], inputs: Iterable[str] = (), pipes: Iterable[str] = ()) -> None:
    """Refuse outputs, by their options, that cannot be written, or would overwrite an input or another output.

    Those of the options ``pipes`` may be pipes or devices, and "-" is the standard output there.
    """
    taken = {os.path.realpath(name): name for name in inputs}
    for option, name in outputs.items():
        if name is None or (name == "-" and option in pipes):
            continue
        path = os.path.realpath(name)
        if path in taken and (os.path.isfile(path) or not os.path.exists(path)):  # a device may be both
            raise UsageError(f"{option} {name} would overwrite {taken[path]}: choose another name")
        taken[path] = name
        check_writable(option, name, regular=option not in pipes)


def check_writable(option: str, name: str, directory: bool = False, regular: bool = False) -> None:
    """Raise OutputError, before hours of work, unless the file (or directory) ``name`` can be created.

    Only its folder is checked: an old file stays until the new one is complete, and a directory is created when there
    is something to put there. ``regular`` refuses pipes and devices, which are written in place.
    """
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
