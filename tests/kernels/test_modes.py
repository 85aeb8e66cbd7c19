"""The same tests without the JIT: every line of a kernel is plain Python, which checks indices too."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numba
import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = [
    f"tests/kernels/test_{name}.py"
    for name in (
        "atomics losses order linear disciplines simulated tiers parse hashing "
        "cuts candidates scaled vectors deltas completion completion_disciplines".split()
    )
]

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="already in this mode")


def test_without_the_jit():
    # scalar functions, statistics and many draws of what others call too
    others = "unbiased or any_decimal or nearest_point or which_features"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow",
        "-k",
        f"not ({others})",
    ]
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([*command, *FILES], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 300
