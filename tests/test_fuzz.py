"""The fuzz campaign in its short form: some damaged files of each kind, read in processes of their own."""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import ROOT


def test_damaged_files_are_read_right_or_refused_in_one_line() -> None:
    command = [sys.executable, "scripts/campaigns/fuzz.py", "--count", "121", "--seed", "14"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "121 in" in done.stdout
    kinds = "svmlight ratings graph model checkpoint archive csv parquet arrow store download"
    for kind in kinds.split():
        assert f"{kind} refused" in done.stdout
