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


def test_no_public_name_is_a_submodule() -> None:
    from importlib.util import find_spec

    public = [name for name in hogwild.__all__ if not name.startswith("_")]
    assert [name for name in public if find_spec(f"hogwild.{name}")] == []


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = hogwild.trian
