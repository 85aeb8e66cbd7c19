"""Options of the commands: each field of ``TrainConfig`` has its place, its text and its default from one source."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
import typer

from hogwild.cli import app
from hogwild.cli.compare.command import compare
from hogwild.cli.options import config_options
from hogwild.cli.simulate import simulate
from hogwild.cli.train import train
from hogwild.cli.train_module import train_module
from hogwild.config import FIELDS, OPTIONS, TrainConfig, help_of, usual_of
from hogwild.methods import PROBLEMS

COMMANDS = (train, simulate, train_module, compare)
PYTHON_ONLY = {"gradient_delay", "betas", "l2_path", "state"}  # the command line has lists in --gradient-delay and --l2


def parameters(command: Callable[..., None]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(command).parameters)


def test_every_field_is_an_option_of_a_command() -> None:
    offered = {name.removeprefix("no_") for command in COMMANDS[:3] for name in parameters(command)}
    assert set(FIELDS) - offered == PYTHON_ONLY
    assert {"delay", "link", "histogram"} <= set(parameters(simulate))
    assert not {"host", "rank", "device", "segmentation"} & set(parameters(simulate))


@pytest.mark.parametrize("command", [train, train_module], ids=lambda command: command.__name__)
def test_what_is_not_given_is_the_default(command: Callable[..., None]) -> None:
    """Without options a command trains as ``TrainConfig()`` does."""
    given = {name: one.default for name, one in parameters(command).items()}
    problem = "linear" if command is train else "module"
    options = config_options(given) | {"problem": problem}
    if command is train_module:
        options["loss"] = "custom"
    assert TrainConfig(**options) == TrainConfig(problem=problem)


def test_defaults_of_another_problem_are_shown_beside_the_first_ones() -> None:
    trained = ("linear", "completion", "cuts")
    usual = {problem: PROBLEMS[problem]["defaults"] for problem in trained}
    assert usual_of("epochs", trained) == f"{usual['linear']['epochs']}; for cuts {usual['cuts']['epochs']}"
    assert usual_of("schedule", trained) == "auto; for others epoch"
    assert usual_of("step", trained) == "auto; for completion 0.05; for cuts 1"
    assert usual_of("rank", trained) == str(usual["completion"]["rank"])
    assert usual_of("batch", trained) == usual_of("batch", ("module",)) == "64"
    assert help_of("order", trained).endswith(": shuffled, file; of completion also blocks.")
    assert help_of("loss", trained).endswith("poisson; of completion squared-error, log, bpr.")
    assert help_of("loss", ("linear",)).endswith("poisson.")


def test_help_and_reference_have_the_text_of_the_fields() -> None:
    group = typer.main.get_command(app)
    shown = {one.name: one.help for one in group.commands["train"].params}  # type: ignore[attr-defined]
    reference = " ".join((TrainConfig.__doc__ or "").split())
    for name, about in OPTIONS.items():
        assert about.help in reference
        assert about.more in reference
        if name in shown and name != "problem":
            assert shown[name] == help_of(name, ("linear", "completion", "cuts"))
    for name in ("loss", "discipline", "order"):
        assert all(each in shown[name] for each in PROBLEMS["linear"][name])
