"""What a shell completes: asked as bash, zsh and fish ask, and by bash itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hogwild.compare.run.methods import METHODS
from hogwild.data.public.catalogue import cards
from hogwild.methods import LOSSES, PROBLEMS

PROGRAMS = ([sys.executable, "-m", "hogwild"], [str(Path(sys.executable).with_name("hogwild"))])
CHOSEN = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # the shell is then an argument


def asked_as(shell: str, words: list[str]) -> dict[str, str]:
    """The environment in which the shell's script runs the program."""
    about = {"_HOGWILD_COMPLETE": f"complete_{shell}"}
    if shell == "bash":
        return about | {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    return about | {"_TYPER_COMPLETE_ARGS": " ".join(words), "_TYPER_COMPLETE_FISH_ACTION": "get-args"}


@pytest.fixture
def completed(hogwild: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[str]]:
    """``completed("train", "--lo")``: what bash is told, in this process and a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def complete(*words: str) -> list[str]:
        for name, value in asked_as("bash", ["hogwild", *words]).items():
            monkeypatch.setenv(name, value)
        result = hogwild()
        assert (result.status, result.err) == (0, "")
        return result.out.split("\n")[:-1] if result.out.strip() else []

    return complete


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tr"], ["train", "train-module"]),
        (["data", ""], ["list", "info", "path", "fetch"]),
        (["ins"], ["inspect"]),
        (["train", "--dis"], ["--discipline"]),
        (["inspect", "model", "--pl"], ["--plot"]),
        (["train", "--loss", ""], [*LOSSES]),
        (["train", "--loss", "h"], ["hinge", "huber"]),
        (["train", "--loss", "=", "h"], ["hinge", "huber"]),
        (["train", "--problem", "completion", "--loss", ""], [*PROBLEMS["completion"]["loss"]]),
        (["train", "movielens-100k", "--loss", ""], [*PROBLEMS["completion"]["loss"]]),
        (["train", "--problem", "none", "--loss", ""], []),
        (["compare", "--model", "f.py:f", "--loss", ""], [*PROBLEMS["module"]["loss"][1:]]),
        (["compare", "--methods", "hogwild,"], [f"hogwild,{name}" for name in METHODS]),
        (["train", "--holdout-by", ""], ["row", "user", "time"]),
        (["train", "--seed", ""], []),
        (["train-module", "f.py:f", "--loss", ""], ["cross-entropy", "mse", "bce"]),
        (["simulate", "--delay", "s"], ["straggler"]),
        (["export", "model", "--to", "s"], ["sklearn"]),
        (["data", "info", ""], [*cards()]),
        (["data", "fetch", "a9a", "covt"], ["covtype"]),
        (["train", "covt"], ["covtype"]),
        (["train", "rcv1", ":"], ["train", "test"]),
        (["predict", "model", "rcv1", ":", "te"], ["test"]),
        (["train", "rcv1:te"], ["rcv1:test"]),  # where bash was told that words do not end at a colon
        (["compare", "a9a", "--test", "=", "rcv1", ":", "te"], ["test"]),
        (["train", "synthetic", ":", "u"], ["uniform"]),
        (["predict", "rcv"], []),  # a model: files
        (["train", "nothing"], []),
    ],
)
def test_what_bash_is_told(completed: Callable, words: list[str], expected: list[str]) -> None:
    assert completed(*words) == expected


def test_files_stand_beside_data_sets(completed: Callable, tmp_path: Path) -> None:
    (tmp_path / "covered.svm").touch()
    (tmp_path / "cover").mkdir()
    (tmp_path / "cover ed").touch()  # the shell would not quote it
    assert completed("train", "cov") == ["covtype", "cover/", "covered.svm"]
    assert completed("train", "cove") == []  # no data set: the shell's own files


@pytest.mark.parametrize("program", PROGRAMS, ids=["python -m", "script"])
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_is_answered(program: list[str], shell: str) -> None:
    if not os.path.exists(program[0]):
        pytest.skip("the console script is not installed")
    for words, expected in (
        (["hogwild", "trai"], ["train", "train-module"]),
        (["hogwild", "data", "info", "covt"], ["covtype"]),
    ):
        result = subprocess.run(program, env=os.environ | asked_as(shell, words), capture_output=True, text=True)
        assert (result.returncode, result.stderr) == (0, "")
        found = result.stdout.splitlines()
        if shell == "zsh":
            assert all(f'"{name}"' in result.stdout for name in expected)
        else:
            assert [line.partition("\t")[0] for line in found] == expected


@pytest.mark.parametrize(
    ("shell", "file"),
    [
        ("bash", ".bash_completions/hogwild.sh"),
        ("zsh", ".zfunc/_hogwild"),
        ("fish", ".config/fish/completions/hogwild.fish"),
    ],
)
def test_the_shell_gets_a_script(shell: str, file: str, tmp_path: Path) -> None:
    environment = os.environ | CHOSEN | {"HOME": str(tmp_path)}
    shown, installed = (
        subprocess.run([*PROGRAMS[0], option, shell], env=environment, capture_output=True, text=True, check=True)
        for option in ("--show-completion", "--install-completion")
    )
    assert f"_HOGWILD_COMPLETE=complete_{shell}" in shown.stdout
    assert (tmp_path / file).read_text().strip() == shown.stdout.strip()
    assert file in installed.stdout.replace("\n", "")


def test_bash_runs_its_script(tmp_path: Path) -> None:
    program = tmp_path / "hogwild"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hogwild "$@"\n')
    program.chmod(0o755)
    environment = os.environ | CHOSEN | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    script = """
    source <(hogwild --show-completion bash)
    COMP_WORDS=(hogwild train rcv1 : te) COMP_CWORD=4
    _hogwild_completion hogwild te :
    echo "${COMPREPLY[@]}"
    complete -p hogwild
    """
    result = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True)
    assert result.stderr == ""
    assert result.stdout.splitlines() == ["test", "complete -o default -F _hogwild_completion hogwild"]
