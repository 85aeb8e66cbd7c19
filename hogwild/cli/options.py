"""The options that commands share, each once: those of training, from the fields of ``TrainConfig``, data and results.

A command declares its own options as parameters and lists the shared ones: ``@takes("loss l2 quiet")`` puts them where
the function has ``**options``, in which it receives them by name. typer reads the signature that is made here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeVar

import typer

from hogwild.cli.sources import COLUMNS, DEFAULT_HOLDOUT, HOLDOUTS, KINDS, READING
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
LAYOUT = f"features zero_based hash_bits {DELIMITED}"
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


BY_TYPE: dict[str, Any] = {"metavar": "COLUMNS", "usual": "sorted by type"}
#: Options that are no fields of ``TrainConfig``.
OTHERS: dict[str, Option] = {
    "problem": Option("What is trained", GOAL, choices=tuple(KINDS), usual="what the data's name says, else linear"),
    "test": Option("Data to test on after each epoch; they choose nothing.", DATA),
    "holdout": Option(
        "Fraction of DATA to hold out and test on.",
        DATA,
        kind=float,
        usual=f"none; {DEFAULT_HOLDOUT} if no DATA is named",
    ),
    "holdout_by": Option("Ratings are held out by", DATA, choices=HOLDOUTS, usual=HOLDOUTS[0]),
    "user_features": Option("What users have in common: a table of an id and other columns.", DATA, metavar="FILE"),
    "item_features": Option("The same of items; those without ratings are ranked by it.", DATA, metavar="FILE"),
    "terminals": Option("Vertices of a graph whose label is known, 'vertex label' a line.", DATA, metavar="FILE"),
    "features": Option("Number of features.", DATA, kind=int, least=1, usual="as many as the data show"),
    "zero_based": Option("Indices of the text start at 0, not 1.", DATA, kind=bool, rare=True),
    "columns": Option(
        "Columns of ratings or edges in their order; '-' is not read.",
        DATA,
        metavar="user,item,rating,time",
        usual="as many of these, or of u,v,weight, as there are",
    ),
    "separator": Option("Separator of columns: a character, '::', tab or blank.", DATA, usual="by the name", rare=True),
    "header": Option(
        "The first line names the columns.",
        DATA,
        names=("--header/--no-header",),
        kind=bool,
        usual="if it holds no number",
    ),
    "hash_bits": Option(
        "Hash features to 2^B weights; indices may then be any below 2^64.",
        DATA,
        kind=int,
        least=1,
        most=30,
        metavar="B",
    ),
    "cache": Option("Where parsed text is kept.", DATA, metavar="DIR", usual="the user's cache directory", rare=True),
    "no_cache": Option("Keep nothing: parse into memory.", DATA, kind=bool, rare=True),
    "label": Option("Column of a table (CSV, TSV, Parquet, Arrow) to be learned.", TABLE, metavar="COLUMN"),
    "categorical": Option("Columns that are categories, such as site,device.", TABLE, **BY_TYPE),
    "numeric": Option("Columns that are numbers.", TABLE, **BY_TYPE),
    "text": Option("Columns whose words and pairs of them are features.", TABLE, **BY_TYPE),
    "date": Option("Columns that are dates: hour, weekday, month, age.", TABLE, rare=True, **BY_TYPE),
    "bucket": Option("Numbers taken as COUNT categories, by quantiles.", TABLE, metavar="COLUMN:COUNT"),
    "cross": Option("Categories crossed, such as device*country,site*hour; or all.", TABLE, metavar="COLUMN*COLUMN"),
    "ignore": Option("Columns to leave out.", TABLE, metavar="COLUMNS"),
    "weight": Option("Column with a weight of each row.", TABLE, metavar="COLUMN"),
    "out": Option("Write the model here.", RESULTS, names=("--out", "-o"), metavar="MODEL"),
    "json": Option("Write measurements here as JSON lines ('-': standard output).", RESULTS, metavar="ROWS"),
    "meet": Option("Where machines meet: an address of machine 0.", MACHINES, metavar="HOST:PORT"),
    "machine": Option(
        "This machine's number from 0.",
        MACHINES,
        rare=True,
        kind=int,
        least=0,
        metavar="K",
        usual="as they come; 0 is the one at the address",
    ),
    "checkpoint": Option("Save the state here after each epoch.", RESULTS, metavar="DIR"),
    "resume": Option("Go on from the checkpoint.", RESULTS, kind=bool),
    "quiet": Option("Print only warnings and errors.", RESULTS, names=("--quiet", "-q"), kind=bool),
    "verbose": Option(
        "Say why a discipline was chosen, and where the time went.", RESULTS, names=("--verbose", "-v"), kind=bool
    ),
}


def takes(names: str, problems: Iterable[str] = KINDS, **changes: Any) -> Callable[[Command], Command]:
    """Return a decorator that gives a command the named options in place of its ``**options``.

    ``problems`` are those that the command trains; an option reads as the first of them that has it says. ``changes``
    holds options, or parts of options, where an option is the command's own or reads differently there.
    """
    options = {name: _described(name, tuple(problems)) for name in names.split()}
    for name, change in changes.items():
        if isinstance(change, Option):
            options[name] = change
        elif (option := options[name]) is not None:
            options[name] = dataclasses.replace(option, **change)
    shared = [_parameter(name, option) for name, option in options.items() if option is not None]

    def give(function: Command) -> Command:
        parameters = inspect.signature(function, eval_str=True).parameters.values()
        declared = [each.replace(kind=each.KEYWORD_ONLY) for each in parameters if each.kind is not each.VAR_KEYWORD]
        function.__signature__ = inspect.Signature([*declared, *shared])  # type: ignore[attr-defined]
        return function

    return give


def _described(name: str, problems: tuple[str, ...]) -> Option | None:
    """Return an option as the problems have it, from its field if it has one; None if they have no such option."""
    if name in OTHERS:
        return OTHERS[name] if {*READING.get(name, problems)} & {*problems} else None
    plain = name.removeprefix("no_")
    field = next((options_of(each)[plain] for each in problems if plain in options_of(each)), None)
    if field is None:
        return None
    option: Option = field.metadata["option"]
    if name != plain:
        return Option(option.without, option.panel, kind=bool, rare=option.rare)
    usual = option.usual or ("" if isinstance(field.default, bool | None) else field.default)
    kind = str if name in ("step", "l2") else TYPES[str(field.type).partition(" | ")[0]]
    usual = f"{usual:g}" if isinstance(usual, float) else str(usual)
    return dataclasses.replace(option, kind=kind, usual=usual, least=None, most=math.inf)  # the config checks the range


def _parameter(name: str, option: Option) -> inspect.Parameter:
    """Return the parameter that typer makes an option from."""
    choices = option.choices or tuple(WITH_NUMBERS.get(name, ()))
    shown = typer.Option(
        *(option.names or (f"--{name.replace('_', '-')}",)),
        help=option.text,
        rich_help_panel=option.panel or None,
        hidden=option.rare,
        metavar=option.metavar,
        show_default=option.usual or True,
        min=option.least,
        max=None if option.most == math.inf else option.most,
        autocompletion=(lambda: choices) if choices else None,
    )
    annotation: Any = Annotated[option.kind | None, shown]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=annotation)


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
    option: str, text: str, kind: Any = float, high: float = math.inf, example: str = "0.1,0.01"
) -> tuple[Any, ...]:
    """Parse a list such as ``1e-1,1e-2`` into ascending numbers above 0, up to ``high``."""
    try:
        numbers = sorted({kind(part) for part in text.split(",")})
    except ValueError:
        numbers = []
    if not numbers or not all(0 < number <= high and number < math.inf for number in numbers):
        bound = f" up to {high:g}" if high < math.inf else ""
        raise UsageError(f"{option} {text}: expected numbers above 0{bound}, such as {example}")
    return tuple(numbers)
