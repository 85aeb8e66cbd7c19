"""The options that commands share, each once: those of training, from the fields of ``TrainConfig``, data and results.

A command declares its own options as parameters and lists the shared ones: ``@takes("loss l2 quiet")`` puts them where
the function has ``**given``, in which it receives them by name. typer reads the signature that is made here.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeVar

import typer

from hogwild.cli.data.sources import CONTAINERS, FORMATS, HOLDOUTS
from hogwild.config import GOAL, MACHINES, Option, options_of
from hogwild.errors import UsageError
from hogwild.methods import DELAYS, EXCHANGES, PROBLEMS

Command = TypeVar("Command", bound=Callable[..., None])
REQUIRED = inspect.Parameter.empty
KINDS: dict[str, type] = {"bool": bool, "int": int, "float": float, "str": str}
WITH_NUMBERS: dict[str, Iterable[str]] = {"exchange": EXCHANGES, "delay": DELAYS}  # names that numbers may follow
DEFAULT_HOLDOUT = 0.2
DATA, TABLE, RESULTS, CUTS = "Data", "Columns of a table", "Results", "Graph cuts"

# Lists of options that several commands take
DELIMITED = "columns separator header"
LAYOUT = f"features zero_based format targets hash_bits {DELIMITED}"
COLUMNS = "label categorical numeric text ignore weight"
CACHE = "cache no_cache"
READING = f"problem test holdout holdout_by terminals {LAYOUT} {CACHE} {COLUMNS}"
MINIMISED = (
    "loss loss_param l1 l2 normalize class_weight no_intercept no_scale_columns rank penalty nonnegative no_biases "
    "negatives"
)
STOPS = "evaluate_every epochs patience tol target keep"
KEPT = "out json checkpoint resume quiet verbose"

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings and errors.")]


def row(
    help: str, panel: str | None = None, *names: str, kind: Any = str, default: Any = None, **more: Any
) -> dict[str, Any]:
    """Describe an option; ``more`` goes to typer, but for ``choices``, which the help lists and a shell completes."""
    if choices := tuple(more.pop("choices", ())):
        help, more = f"{help}: {', '.join(choices)}.", {"autocompletion": lambda: choices} | more
    return {"help": help, "panel": panel, "names": names, "kind": kind, "default": default} | more


def flag(help: str, panel: str | None = None, *names: str, **more: Any) -> dict[str, Any]:
    return row(help, panel, *names, kind=bool, default=False, **more)


BY_TYPE = {"metavar": "COLUMNS", "show_default": "sorted by type"}
OTHERS: dict[str, dict[str, Any]] = {  # that are no fields of TrainConfig
    "problem": row("What is trained", GOAL, choices=CONTAINERS, show_default="what the data's name says, else linear"),
    "test": row("Data to test on after each epoch; they choose nothing.", DATA),
    "holdout": row(
        "Fraction of DATA to hold out and test on.",
        DATA,
        kind=float,
        show_default=f"none; {DEFAULT_HOLDOUT} if no DATA is named",
    ),
    "holdout_by": row("Ratings are held out by", DATA, default=HOLDOUTS[0], choices=HOLDOUTS, problems=("completion",)),
    "terminals": row(
        "Vertices of a graph whose label is known, 'vertex label' a line.", DATA, metavar="FILE", problems=("cuts",)
    ),
    "features": row(
        "Number of features.", DATA, kind=int, min=1, show_default="as many as the data show", problems=("linear",)
    ),
    "zero_based": flag("Indices of the text start at 0, not 1.", DATA, problems=("linear",), hidden=True),
    "format": row("Format of DATA", DATA, choices=FORMATS, show_default="by the name"),
    "columns": row(
        "Columns of ratings or edges in their order; '-' is not read.",
        DATA,
        metavar="user,item,rating,time",
        show_default="as many of these, or of u,v,weight, as there are",
        problems=("completion", "cuts"),
    ),
    "separator": row("Separator of columns: a character, '::', tab or blank.", DATA, show_default="by the name"),
    "header": row(
        "The first line names the columns.",
        DATA,
        "--header/--no-header",
        kind=bool,
        show_default="if it holds no number",
        problems=("completion", "cuts"),
    ),
    "targets": row("Targets (.npy) of an .npz matrix.", DATA, metavar="FILE", problems=("linear",), hidden=True),
    "hash_bits": row(
        "Hash features to 2^B weights; indices may then be any below 2^64.",
        DATA,
        kind=int,
        min=1,
        max=30,
        metavar="B",
        problems=("linear",),
    ),
    "cache": row("Where parsed text is kept.", DATA, metavar="DIR", show_default="the user's cache directory"),
    "no_cache": flag("Keep nothing: parse into memory.", DATA, hidden=True),
    "label": row(
        "Column of a table (CSV, TSV, Parquet, Arrow) to be learned.", TABLE, metavar="COLUMN", problems=("linear",)
    ),
    "categorical": row("Columns that are categories, such as site,device.", TABLE, **BY_TYPE, problems=("linear",)),
    "numeric": row("Columns that are numbers.", TABLE, **BY_TYPE, problems=("linear",)),
    "text": row("Columns whose words and pairs of them are features.", TABLE, **BY_TYPE, problems=("linear",)),
    "ignore": row("Columns to leave out.", TABLE, metavar="COLUMNS", problems=("linear",)),
    "weight": row("Column with a weight of each row.", TABLE, metavar="COLUMN", problems=("linear",)),
    "out": row("Write the model here.", RESULTS, "--out", "-o", metavar="MODEL"),
    "json": row("Write measurements here as JSON lines ('-': standard output).", RESULTS, metavar="ROWS"),
    "segmentation": row("Write the labels of the vertices here.", CUTS, metavar="FILE.npy", problems=("cuts",)),
    "plot": row("Draw the labels of a grid here.", CUTS, metavar="FILE.png", problems=("cuts",)),
    "plot_path": row(
        "Draw the held-out loss of each l2 to choose from here.",
        RESULTS,
        metavar="FILE.png",
        problems=("linear",),
        hidden=True,
    ),
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
    "job": row("A name that keeps two runs at one address apart.", MACHINES, metavar="NAME", hidden=True),
    "local": flag("Start all the machines on this one, to try it.", MACHINES),
    "checkpoint": row("Save the state here after each epoch.", RESULTS, metavar="DIR"),
    "resume": flag("Go on from the checkpoint.", RESULTS),
    "quiet": flag("Print only warnings and errors.", RESULTS, "--quiet", "-q"),
    "verbose": flag("Say in the end where the time went.", RESULTS, "--verbose", "-v"),
}


def takes(names: str, problems: Iterable[str] = CONTAINERS, **changes: Any) -> Callable[[Command], Command]:
    """Return a decorator that gives a command the named options in place of its ``**given``.

    ``problems`` are those that the command trains; an option reads as the first of them that has it says. ``changes``
    holds rows, or parts of rows, where an option is the command's own or reads differently there.
    """
    shared = []
    for name in names.split():
        change = changes.get(name, {})
        if "kind" in change:
            shared.append(_parameter(name, **change))
        elif described := _described(name, tuple(problems)):
            shared.append(_parameter(name, **described | change))

    def give(function: Command) -> Command:
        own = inspect.signature(function, eval_str=True).parameters.values()
        mine = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own if one.kind is not one.VAR_KEYWORD]
        function.__signature__ = inspect.Signature([*mine, *shared])  # type: ignore[attr-defined]
        return function

    return give


def _described(name: str, problems: tuple[str, ...]) -> dict[str, Any]:
    """Return the row of an option of the problems, from its field if it has one; empty if they have no such option."""
    if name in OTHERS:
        of = OTHERS[name].get("problems", problems)
        return {key: value for key, value in OTHERS[name].items() if key != "problems"} if {*of} & {*problems} else {}
    field = next(
        (fields[plain] for each in problems if (plain := name.removeprefix("no_")) in (fields := options_of(each))),
        None,
    )
    if field is None:
        return {}
    about: Option = field.metadata["option"]
    if name != field.name:
        return flag(about.without, about.panel) | {"hidden": about.rare}
    kind = str if name in ("step", "l2") else KINDS[str(field.type).partition(" | ")[0]]
    more: dict[str, Any] = {"metavar": about.metavar, "hidden": about.rare}
    if usual := about.usual or ("" if field.default in (None, False, "") else field.default):
        more["show_default"] = f"{usual:g}" if isinstance(usual, float) else str(usual)
    if choices := about.choices or tuple(WITH_NUMBERS.get(name, ())):
        more["autocompletion"] = lambda: choices
    usual_of_all = {options_of(each)[name].default if name in options_of(each) else None for each in PROBLEMS}
    default = usual_of_all.pop() if len(usual_of_all) == 1 else False if kind is bool else None
    return row(about.text, about.panel, *about.names, kind=kind, default=default, **more)


def _parameter(
    name: str, help: str, panel: str | None, names: tuple[str, ...], kind: Any, default: Any, **more: Any
) -> inspect.Parameter:
    """Return the parameter that typer makes an option from."""
    names = names or (f"--{name.replace('_', '-')}",)
    shown = typer.Option(*names, help=help, rich_help_panel=panel, **more)
    annotation: Any = Annotated[kind | None, shown] if default is None else Annotated[kind, shown]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def config_options(given: dict[str, Any]) -> dict[str, Any]:
    """Take the options of any problem from ``given``, as keywords for ``TrainConfig``; those not given are left out."""
    known = {name for problem in PROBLEMS for name in options_of(problem)}
    options = {name: given.pop(name) for name in known if name in given}
    options = {name: value for name, value in options.items() if value is not None and value is not False}
    options |= {name: False for name in known if given.pop(f"no_{name}", False)}
    if "step" in options:
        options["step"] = _number(options["step"])
    if "l2" in options:
        with contextlib.suppress(ValueError):  # other texts are "auto", a list, or refused
            options["l2"] = float(options["l2"])
    return options


def _number(step: str | None) -> float | None:
    """Parse ``--step``: None for "auto", else its number (``TrainConfig`` checks the range)."""
    if step in (None, "auto"):
        return None
    try:
        return float(str(step))
    except ValueError:
        raise UsageError(f"--step {step}: expected a number or 'auto'") from None


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
