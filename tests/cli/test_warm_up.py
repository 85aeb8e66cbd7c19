"""``hogwild warm-up``: what it compiles is what a run needs, and what goes wrong in a part is one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hogwild.cli import warm_up
from hogwild.errors import TrainingError

ASKED = """
import os, sys
from hogwild.__main__ import main
from hogwild.kernels.cache import KernelCache

asked, name = set(), KernelCache._file
KernelCache._file = lambda self, *key: (asked.add(os.path.basename(name(self, *key)[0])), name(self, *key))[1]
assert not any([main([*words.split(), "--no-cache", "--quiet"]) for words in sys.argv[1:]])
print(*asked, file=sys.stderr)
"""


def test_what_a_run_needs_is_compiled_by_its_parts(tmp_path: Path) -> None:
    """By the names of the compiled forms in the kernel cache, which differ with all that a form depends on."""
    rows = tmp_path / "rows.svm"
    rows.write_text(warm_up.sample_text())

    def asked(*commands: str) -> set[str]:
        done = subprocess.run([sys.executable, "-c", ASKED, *commands], check=True, capture_output=True, text=True)
        return set(done.stderr.splitlines()[-1].split())

    parts = warm_up.trainings(str(rows))
    compiled = asked(*parts["text"], *parts["lanes"])  # first: what compiles asks for more than what loads
    needed = asked(f"train {rows} -w 1 --holdout 0.2")
    assert len(needed) > 10
    assert needed <= compiled


def test_a_part_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_up, "ESTIMATORS", "raise SystemExit('no room')")
    monkeypatch.setattr(warm_up, "trainings", lambda text: {})
    with pytest.raises(TrainingError, match="warm-up of estimators failed: no room"):
        warm_up.warm_up(quiet=True)
