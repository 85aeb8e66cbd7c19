"""Options of the commands: each field of a config has its place, its text and its default from one source."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import typer

from hogwild.cli import app
from hogwild.cli.compare import compare
from hogwild.cli.options import config_options
from hogwild.cli.train import simulate, train
from hogwild.config import TrainConfig, config_class, options_of
from hogwild.methods import PROBLEMS

PYTHON_ONLY = {"l2_path"}  # the command line has a list in --l2


def parameters(command: Callable[..., None]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(command).parameters)


def test_every_field_is_an_option_of_a_command() -> None:
    modules = options_of("module").keys() - options_of("linear").keys()  # which are trained from Python
    offered = {name.removeprefix("no_") for command in (train, simulate) for name in parameters(command)}
    assert {name for problem in PROBLEMS for name in options_of(problem)} - offered == PYTHON_ONLY | modules
    assert {"delay", "link"} <= set(parameters(simulate))
    assert not {"host", "negatives", "device", "terminals"} & set(parameters(simulate))


@pytest.mark.parametrize("command", [train, compare], ids=lambda command: command.__name__)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_what_is_not_given_is_the_default(command: Callable[..., None], problem: str) -> None:
    """Without options a command trains as ``TrainConfig()`` does."""
    own = ("workers", "epochs", "seed", "problem", "loss", "host")
    given = {name: one.default for name, one in parameters(command).items() if name not in own}
    assert TrainConfig(problem=problem, **config_options(given)) == TrainConfig(problem=problem)


def shown(problem: str) -> dict[str, Any]:
    """Options in the help of ``hogwild train`` for a problem, by name."""
    command: Any = typer.main.get_command(app).commands["train"]  # type: ignore[attr-defined]
    with pytest.raises(typer.Exit):
        command.make_context("train", ["--problem", problem, "--help"])
    return {one.name: one for one in command.params if one.param_type_name == "option"}


@pytest.mark.parametrize("problem", ["linear", "fm", "ffm", "completion", "cuts"])
def test_help_shows_the_options_of_one_problem(problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    options, fields = shown(problem), options_of(problem)
    text = capsys.readouterr().out
    assert sum(not one.hidden for one in options.values()) < 45  # and --help
    for other in PROBLEMS:
        assert not {"rank", "l1", "terminals", "label"} & (options.keys() - fields.keys()) - {"terminals", "label"}
        assert not (options_of(other).keys() - fields.keys() - {"problem"}) & options.keys()
    for name in options.keys() & fields.keys() - {"problem"}:
        about = fields[name].metadata["option"]
        assert options[name].help == about.text
        assert options[name].hidden == about.rare
        assert options[name].opts[0] in text or not about.rare
    assert ("terminals" in options) == (problem == "cuts")


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_reference_has_the_text_of_the_fields(problem: str) -> None:
    reference = " ".join(f"{TrainConfig.__doc__} {config_class(problem).__doc__}".split())
    for field in options_of(problem).values():
        about = field.metadata["option"]
        assert about.text in reference
