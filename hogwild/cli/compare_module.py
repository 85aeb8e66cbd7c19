"""What ``hogwild compare --model`` reads: a module, its loss and its data, from functions in files of the user's.

A part of the examples is held out to test on, as of other problems' data, unless there are others to test on.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from hogwild.cli.display import Display
from hogwild.cli.sources import Sources, check_readable
from hogwild.cli.train_module import NAMED_LOSSES
from hogwild.cli.user_file import FUNCTION, blamed, check_function, found, is_function, made
from hogwild.errors import UsageError

if TYPE_CHECKING:
    from hogwild.cases.module import Posed
    from hogwild.problems.module_data import Examples


def check_module(given: dict[str, Any], sources: Sources, holdout: float | None) -> None:
    """Raise for names and options that cannot be, before anything is read."""
    check_function("--model", given["model"])
    if given["loss"] not in NAMED_LOSSES:
        check_function("--loss", given["loss"], NAMED_LOSSES)
    if given["data"] is None:
        raise UsageError(f"a module is compared on data of its own: hogwild compare {FUNCTION} --model {FUNCTION}")
    sources.check("module")
    if sources.format is not None or given["holdout_by"] != "row":
        option = "--format" if sources.format is not None else "--holdout-by"
        raise UsageError(f"{option} does not go with --model")
    if given["test"] is not None and holdout is not None:
        raise UsageError("--test and --holdout both name what to test on: give one of them")
    if holdout and not 0 < holdout < 1:
        raise UsageError(f"--holdout {holdout:g}: expected a fraction between 0 and 1")
    for spec in (given["model"], given["data"], given["test"], given["loss"]):
        if spec is not None and spec not in NAMED_LOSSES:
            check_readable(spec.rpartition(":")[0] if is_function(spec) else spec)


def read_module(
    given: dict[str, Any], holdout: float | None, seed: int, display: Display
) -> tuple[Posed, Examples | None]:
    """The module on its examples, and those to test on."""
    from hogwild.compare.subjects import hold_out
    from hogwild.module_training import pose

    data, test = made(given["data"]), made(given["test"])
    loss = given["loss"] if given["loss"] in NAMED_LOSSES else found(given["loss"])
    model = found(given["model"])
    with blamed(given["model"]):
        posed, tested = pose(model, loss, data, test, seed)
    count = sum(parameter.numel() for parameter in posed.model.parameters())
    display.say(f"{given['data']}: {len(posed):,} examples; {given['model']}: {count:,} parameters")
    if holdout and len(posed):
        rest, tested = hold_out(posed.examples, holdout, seed)
        posed = dataclasses.replace(posed, examples=rest)
        display.say(f"held out {len(tested):,} examples to test on, training on {len(rest):,}")
    return posed, tested
