"""The package's face: what `import hogwild` gives, and what it must not cost."""

from __future__ import annotations

import subprocess
import sys

import pytest

import hogwild

HEAVY = {"torch", "numba", "sklearn", "scipy", "numpy", "typer", "rich"}


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_import_is_light() -> None:
    loaded = run_python("import sys, hogwild; hogwild.TrainConfig(); print(*sys.modules)").split()
    assert not HEAVY & set(loaded)


@pytest.mark.parametrize("name", hogwild.__all__)
def test_public_names_exist(name: str) -> None:
    assert getattr(hogwild, name) is not None
    assert name in dir(hogwild)


def test_no_public_name_is_a_submodule() -> None:
    from importlib.util import find_spec

    public = [name for name in hogwild.__all__ if not name.startswith("_")]
    assert [name for name in public if find_spec(f"hogwild.{name}")] == []


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = hogwild.trian


def test_module_runs_and_help_is_quick() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "hogwild", "--help"]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "train" in result.stdout
    loaded = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert "typer" in loaded
    assert not {"torch", "numba", "scipy", "sklearn"} & loaded
