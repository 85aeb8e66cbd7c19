"""The campaigns that a person can run for an hour, in their short form."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import ROOT

SHORT = {"kills": 2, "faults": 2, "machines": 1, "optimum": 20}


@pytest.mark.parametrize("name", SHORT)
def test_nothing_is_found(name: str) -> None:
    command = [sys.executable, ROOT / "scripts" / "campaigns" / f"{name}.py", "--count", str(SHORT[name])]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{name}: {SHORT[name]} in " in result.stdout
    assert result.stdout.endswith("with seed 0, 0 found\n")


def test_campaigns_are_named() -> None:
    result = subprocess.run([ROOT / "scripts" / "campaign"], capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stderr.startswith("usage: scripts/campaign kills|faults|fuzz|machines|optimum")
