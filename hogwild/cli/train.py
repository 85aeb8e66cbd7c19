"""``hogwild train``: its options, which are the fields of ``TrainConfig`` and the sources and outputs."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from hogwild.cli.data.sources import CONTAINERS, Sources, chosen
from hogwild.cli.machines import meeting_of
from hogwild.cli.options import DEFAULT_HOLDOUT, KEPT, MINIMISED, READING, STOPS, config_options, takes
from hogwild.config import TrainConfig
from hogwild.problems.linear.options import LinearConfig

DEFAULT_DATA = CONTAINERS["linear"].default


NAMES = (
    f"{READING} {MINIMISED} step schedule decay power adagrad order seed discipline exchange workers "
    f"renumber oversubscribe host device in_flight machines meet machine job local own_rows {STOPS} {KEPT} "
    "segmentation plot plot_path"
)
READS = {
    "holdout": {"help": "Fraction of DATA to hold out: the epoch is chosen by it, and l2 unless that is given."},
    "l2": {"show_default": f"auto where it takes seconds, else {LinearConfig.l2:g}"},
}


class TrainCommand(TyperCommand):
    """``hogwild train``, whose help shows the options of one problem: ``hogwild train --problem cuts --help``."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        if {"-h", "--help"} & {*args}:
            words = [part for word in args for part in word.split("=", 1)]
            named = words[words.index("--problem") + 1 :][:1] if "--problem" in words else []
            self.show(named[0] if named and named[0] in CONTAINERS else "linear")
        return super().make_context(info_name, args, parent, **extra)

    def show(self, problem: str) -> None:
        """Take the options of a problem in place of those of all."""
        reads = READS if problem == "linear" else {"holdout": READS["holdout"]}
        one = typer.Typer(add_completion=False)
        one.command(context_settings=dict(self.context_settings))(
            takes(NAMES, (problem,), **reads)(lambda **given: None)
        )
        shown: list[Any] = typer.main.get_command(one).params
        self.params = [param for param in self.params if param.param_type_name == "argument"] + shown
        rare = " ".join(param.opts[0] for param in shown if param.hidden)
        others = " ".join(f"--problem {each}" for each in CONTAINERS if each != problem)
        self.epilog = f"These are the options of problem {problem}; see also {others}. Rarely needed: {rare}."


@takes(NAMES, **READS)
def train(
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            show_default=DEFAULT_DATA,
            help="svmlight text (.gz .bz2 .xz), a store, .npz, a public data set's name (hogwild data list) or "
            "synthetic:...; ratings or a graph for other problems.",
        ),
    ] = None,
    **given: Any,
) -> None:
    """Train a sparse model on DATA with all cores: linear, or of ratings, or a cut of a graph."""
    raise typer.Exit(begin(given | {"data": data}, chooses=True))


def begin(
    given: dict[str, Any], default_data: str | None = None, histogram: str | None = None, chooses: bool = False
) -> int:
    """Run ``train`` or ``simulate`` with its parameters by name, and return the exit status.

    ``chooses``: l2 is chosen where nobody gives it.
    """
    from hogwild.cli.choosing import chosen_unasked
    from hogwild.cli.session import TrainRequest, run_training

    given["problem"] = chosen(given.get("problem"), given["data"] or "", given.get("format"))
    meeting = meeting_of(given)
    unasked = chooses and given["l2"] is None and meeting is None
    config = TrainConfig(**config_options(given))
    config, fixed = chosen_unasked(config) if unasked else (config, "")
    sources = Sources.take(given)
    named = given["data"] is not None
    if not named:
        given["data"] = default_data or CONTAINERS[config.problem].default  # an empty name is an error: see check()
        if given["holdout"] is None and given["test"] is None and config.problem != "cuts":
            given["holdout"] = DEFAULT_HOLDOUT
    request = TrainRequest(data_named=named, histogram=histogram, l2_given=not unasked, l2_fixed=fixed, **given)
    return run_training(request, sources, config, meeting)
