"""The options that commands share, each once: those of training, from the fields of ``TrainConfig``, data and results.

A command declares its own options as parameters and lists the shared ones: ``@takes("loss l2 quiet")`` puts them where
the function has ``**options``, in which it receives them by name. typer reads the signature that is made here.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeVar

import typer

from hogwild.cli.sources import COLUMNS, DEFAULT_HOLDOUT, FORMATS, HOLDOUTS, KINDS, READING
from hogwild.config import GOAL, MACHINES, Option, options_of
from hogwild.errors import UsageError
from hogwild.methods import DELAYS, EXCHANGES, PROBLEMS

Command = TypeVar("Command", bound=Callable[..., None])
TYPES: dict[str, type] = {"bool": bool, "int": int, "float": float, "str": str}
WITH_NUMBERS: dict[str, Iterable[str]] = {"exchange": EXCHANGES, "delay": DELAYS}  # names that numbers may follow
DATA = "Data"
TABLE = "Columns of a table"
RESULTS = "Results"

# Lists of options that several commands take
DELIMITED = "columns separator header"
LAYOUT = f"features zero_based format hash_bits {DELIMITED}"
CACHE = "cache no_cache"
SOURCES = f"problem test holdout holdout_by user_features item_features terminals {LAYOUT} {CACHE} {COLUMNS}"
MINIMISED = (
    "loss loss_param l1 l2 l2_factors normalize class_weight no_intercept no_scale_columns rank penalty "
    "no_biases negatives"
)
STOPS = "evaluate_every epochs patience tol target keep"
KEPT = "out json checkpoint resume quiet verbose"

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings and errors.")]


def row(help: str, panel: str | None = None, *names: str, kind: Any = str, **more: Any) -> dict[str, Any]:
    """Describe an option; ``more`` goes to typer, but for ``choices``, which the help lists and a shell completes."""
    if choices := tuple(more.pop("choices", ())):
        help, more = f"{help}: {', '.join(choices)}.", {"autocompletion": lambda: choices} | more
    usual = False if kind is bool else None
    return {"help": help, "panel": panel, "names": names, "kind": kind, "default": usual} | more


BY_TYPE = {"metavar": "COLUMNS", "show_default": "sorted by type"}
#: Options that are no fields of ``TrainConfig``.
OTHERS: dict[str, dict[str, Any]] = {
    "problem": row("What is trained", GOAL, choices=KINDS, show_default="what the data's name says, else linear"),
    "test": row("Data to test on after each epoch; they choose nothing.", DATA),
    "holdout": row(
        "Fraction of DATA to hold out and test on.",
        DATA,
        kind=float,
        show_default=f"none; {DEFAULT_HOLDOUT} if no DATA is named",
    ),
    "holdout_by": row("Ratings are held out by", DATA, choices=HOLDOUTS, show_default=HOLDOUTS[0]),
    "user_features": row("What users have in common: a table of an id and other columns.", DATA, metavar="FILE"),
    "item_features": row("The same of items; those without ratings are ranked by it.", DATA, metavar="FILE"),
    "terminals": row("Vertices of a graph whose label is known, 'vertex label' a line.", DATA, metavar="FILE"),
    "features": row("Number of features.", DATA, kind=int, min=1, show_default="as many as the data show"),
    "zero_based": row("Indices of the text start at 0, not 1.", DATA, kind=bool, hidden=True),
    "format": row("Format of DATA", DATA, choices=FORMATS, show_default="by the name"),
    "columns": row(
        "Columns of ratings or edges in their order; '-' is not read.",
        DATA,
        metavar="user,item,rating,time",
        show_default="as many of these, or of u,v,weight, as there are",
    ),
    "separator": row(
        "Separator of columns: a character, '::', tab or blank.", DATA, show_default="by the name", hidden=True
    ),
    "header": row(
        "The first line names the columns.",
        DATA,
        "--header/--no-header",
        kind=bool,
        default=None,
        show_default="if it holds no number",
    ),
    "hash_bits": row(
        "Hash features to 2^B weights; indices may then be any below 2^64.",
        DATA,
        kind=int,
        min=1,
        max=30,
        metavar="B",
    ),
    "cache": row(
        "Where parsed text is kept.", DATA, metavar="DIR", show_default="the user's cache directory", hidden=True
    ),
    "no_cache": row("Keep nothing: parse into memory.", DATA, kind=bool, hidden=True),
    "label": row("Column of a table (CSV, TSV, Parquet, Arrow) to be learned.", TABLE, metavar="COLUMN"),
    "categorical": row("Columns that are categories, such as site,device.", TABLE, **BY_TYPE),
    "numeric": row("Columns that are numbers.", TABLE, **BY_TYPE),
    "text": row("Columns whose words and pairs of them are features.", TABLE, **BY_TYPE),
    "date": row("Columns that are dates: hour, weekday, month, age.", TABLE, hidden=True, **BY_TYPE),
    "bucket": row("Numbers taken as COUNT categories, by quantiles.", TABLE, metavar="COLUMN:COUNT"),
    "cross": row("Categories crossed, such as device*country,site*hour; or all.", TABLE, metavar="COLUMN*COLUMN"),
    "ignore": row("Columns to leave out.", TABLE, metavar="COLUMNS"),
    "weight": row("Column with a weight of each row.", TABLE, metavar="COLUMN"),
    "out": row("Write the model here.", RESULTS, "--out", "-o", metavar="MODEL"),
    "json": row("Write measurements here as JSON lines ('-': standard output).", RESULTS, metavar="ROWS"),
    "meet": row("Where machines meet: an address of machine 0.", MACHINES, metavar="HOST:PORT"),
    "machine": row(
        "This machine's number from 0.",
        MACHINES,
        hidden=True,
        kind=int,
        min=0,
        metavar="K",
        show_default="as they come; 0 is the one at the address",
    ),
    "local": row("Start all the machines on this one, to try it.", MACHINES, kind=bool),
    "checkpoint": row("Save the state here after each epoch.", RESULTS, metavar="DIR"),
    "resume": row("Go on from the checkpoint.", RESULTS, kind=bool),
    "quiet": row("Print only warnings and errors.", RESULTS, "--quiet", "-q", kind=bool),
    "verbose": row("Say why a discipline was chosen, and where the time went.", RESULTS, "--verbose", "-v", kind=bool),
}


def takes(names: str, problems: Iterable[str] = KINDS, **changes: Any) -> Callable[[Command], Command]:
    """Return a decorator that gives a command the named options in place of its ``**options``.

    ``problems`` are those that the command trains; an option reads as the first of them that has it says. ``changes``
    holds rows, or parts of rows, where an option is the command's own or reads differently there.
    """
    shared = []
    for name in names.split():
        change = changes.get(name, {})
        if described := {} if "kind" in change else _described(name, tuple(problems)):
            shared.append(_parameter(name, **described | change))
        elif "kind" in change:
            shared.append(_parameter(name, **change))

    def give(function: Command) -> Command:
        parameters = inspect.signature(function, eval_str=True).parameters.values()
        declared = [each.replace(kind=each.KEYWORD_ONLY) for each in parameters if each.kind is not each.VAR_KEYWORD]
        function.__signature__ = inspect.Signature([*declared, *shared])  # type: ignore[attr-defined]
        return function

    return give


def _described(name: str, problems: tuple[str, ...]) -> dict[str, Any]:
    """Return the row of an option of the problems, from its field if it has one; empty if they have no such option."""
    if name in OTHERS:
        return OTHERS[name] if {*READING.get(name, problems)} & {*problems} else {}
    plain = name.removeprefix("no_")
    fields = [options_of(each)[plain] for each in problems if plain in options_of(each)]
    if not fields:
        return {}
    field = fields[0]
    option: Option = field.metadata["option"]
    if name != field.name:
        return row(option.without, option.panel, kind=bool, hidden=option.rare)
    kind = str if name in ("step", "l2") else TYPES[str(field.type).partition(" | ")[0]]
    more: dict[str, Any] = {"metavar": option.metavar, "hidden": option.rare}
    if usual := option.usual or ("" if field.default in (None, False, "") else field.default):
        more["show_default"] = f"{usual:g}" if isinstance(usual, float) else str(usual)
    if choices := option.choices or tuple(WITH_NUMBERS.get(name, ())):
        more["autocompletion"] = lambda: choices
    usual_of_all = {options_of(each)[name].default if name in options_of(each) else None for each in PROBLEMS}
    if len(usual_of_all) == 1:
        more["default"] = usual_of_all.pop()
    return row(option.text, option.panel, *option.names, kind=kind, **more)


def _parameter(
    name: str, help: str, panel: str | None, names: tuple[str, ...], kind: Any, default: Any, **more: Any
) -> inspect.Parameter:
    """Return the parameter that typer makes an option from."""
    names = names or (f"--{name.replace('_', '-')}",)
    shown = typer.Option(*names, help=help, rich_help_panel=panel, **more)
    annotation: Any = Annotated[kind | None, shown] if default is None else Annotated[kind, shown]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def config_options(options: dict[str, Any]) -> dict[str, Any]:
    """Take the options of any problem from a command's, as keywords for ``TrainConfig``, without those nobody gave."""
    names = {name for problem in PROBLEMS for name in options_of(problem)}
    chosen = {name: options.pop(name) for name in names if name in options}
    chosen = {name: value for name, value in chosen.items() if value is not None and value is not False}
    chosen |= {name: False for name in names if options.pop(f"no_{name}", False)}
    if chosen.get("step", "auto") != "auto":
        try:
            chosen["step"] = float(chosen["step"])
        except ValueError:
            raise UsageError(f"--step {chosen['step']}: expected a number or 'auto'") from None
    if "l2" in chosen:
        with contextlib.suppress(ValueError):  # other texts are "auto", a list, or refused
            chosen["l2"] = float(chosen["l2"])
    return chosen


def parse_numbers(
    option: str, text: str, low: float, high: float = math.inf, kind: Any = float, example: str = "0.1,0.01"
) -> tuple[Any, ...]:
    """Parse a list such as ``1e-1,1e-2`` into ascending numbers."""
    try:
        numbers = sorted({kind(part) for part in text.split(",")})
    except ValueError:
        numbers = []
    if not numbers or not low <= numbers[0] <= numbers[-1] <= high or numbers[-1] == math.inf:
        bounds = f"from {low:g} to {high:g}" if high < math.inf else f"above {low:g}"
        raise UsageError(f"{option} {text}: expected numbers {bounds}, such as {example}")
    return tuple(numbers)
