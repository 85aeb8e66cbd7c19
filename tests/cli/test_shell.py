"""What a shell completes: typer's script asks the program, and the program answers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hogwild.methods import LOSSES

PROGRAM = [sys.executable, "-m", "hogwild"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tr"], ["train", "train-module"]),
        (["train", "--dis"], ["--discipline"]),
        (["train", "--loss", ""], [*LOSSES]),
        (["export", "model", "--to", "s"], ["sklearn"]),
    ],
)
def test_bash_is_told_commands_options_and_choices(words: list[str], expected: list[str]) -> None:
    words = ["hogwild", *words]
    asked = {"_HOGWILD_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    result = subprocess.run(PROGRAM, env=os.environ | asked, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.split() == expected


def test_the_shell_gets_a_script() -> None:
    environment = os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # the shell is then an argument
    result = subprocess.run(
        [*PROGRAM, "--show-completion", "bash"], env=environment, capture_output=True, text=True, check=True
    )
    assert "_HOGWILD_COMPLETE=complete_bash" in result.stdout
