"""The input of ``hogwild compare --model``: a module, its loss and its data, from functions in the user's files.

Some of the examples are held out for testing, as for other problems, unless test data are given.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from hogwild.cli.data.sources import Sources
from hogwild.cli.display import Display
from hogwild.cli.train_module import NAMED_LOSSES, request_of
from hogwild.cli.user_file import FUNCTION, blamed, found, made
from hogwild.errors import UsageError

if TYPE_CHECKING:
    from hogwild.problems.module.case import Posed
    from hogwild.problems.module.feed import Examples


def check_module(given: dict[str, Any], sources: Sources, holdout: float | None) -> None:
    """Raise for invalid names and options before anything is read."""
    files = {name: given[name] for name in ("model", "data", "test", "loss")}
    request = request_of(files, "--model", holdout=holdout or None)
    if given["data"] is None:
        raise UsageError(f"a module is compared on data of its own: hogwild compare {FUNCTION} --model {FUNCTION}")
    sources.check("module")
    if sources.format is not None or given["holdout_by"] != "row":
        option = "--format" if sources.format is not None else "--holdout-by"
        raise UsageError(f"{option} does not go with --model")
    request.check()


def read_module(
    given: dict[str, Any], holdout: float | None, seed: int, display: Display
) -> tuple[Posed, Examples | None]:
    """Return the module with its training examples, and the test examples."""
    from hogwild.compare.run.problems import hold_out
    from hogwild.problems.module.training import pose

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
