"""``hogwild warm-up``: what it compiles is what a run needs, and what goes wrong in a part is one line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hogwild.cli import warm_up
from hogwild.errors import TrainingError


@pytest.mark.slow
def test_a_run_after_it_compiles_nothing(tmp_path: Path) -> None:
    cache, rows = tmp_path / "kernels", tmp_path / "rows.svm"
    rows.write_bytes(warm_up.sample_text())

    def compiled(*arguments: str) -> set[str]:
        environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
        subprocess.run([sys.executable, "-m", "hogwild", *arguments], env=environment, check=True, capture_output=True)
        return {path.name for path in cache.rglob("*") if path.is_file()}

    before = compiled("warm-up", "text", "l2")
    assert before
    assert compiled("train", str(rows), "-w", "1", "--holdout", "0.2", "--no-cache") == before


def test_a_part_that_there_is_not(hogwild: Callable) -> None:
    result = hogwild("warm-up", "tieredd")
    assert result.status == 2
    assert result.err.count("\n") == 1
    assert "did you mean tiered?" in result.err


def test_a_part_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_up, "CODE", "raise SystemExit('no room')")
    with pytest.raises(TrainingError, match="warm-up of text failed: no room"):
        warm_up.warm_up(["text"], quiet=True)
