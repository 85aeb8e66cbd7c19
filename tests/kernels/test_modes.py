"""The same tests in numba's other modes: without the JIT, and with every index checked."""

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
        "atomics locks fma cycles losses order linear multiclass disciplines simulated tiers parse hashing "
        "cuts lanes candidates scaled vectors deltas completion completion_disciplines".split()
    )
]

pytestmark = pytest.mark.skipif(
    bool(numba.config.DISABLE_JIT or numba.config.BOUNDSCHECK), reason="already in another mode"
)


def run_tests(flag, *arguments):
    """pytest in a process with this NUMBA flag; returns how many tests passed."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {flag: "1"}, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    return int(re.search(r"(\d+) passed", done.stdout)[1])


def test_without_the_jit():
    """The kernels as plain Python: every line of them can be stepped through."""
    assert run_tests("NUMBA_DISABLE_JIT", *FILES) > 300


@pytest.mark.slow
def test_with_bounds_checked():
    some = "bounds_are_checked or log-elastic or number_of_rows or every_kind or one_worker or with_a_delay or few_rows"
    files = [name for name in FILES if re.search("linear|multiclass|disciplines", name)]
    # atomic cells and locks are addressed without an index to check, and all else is indexed as hogwild does it
    others = "softmax or adagrad or plain or atomic or aig or locked"
    found = run_tests("NUMBA_BOUNDSCHECK", "-k", f"({some}) and not ({others})", *files)
    assert found > 30
    assert run_tests("NUMBA_BOUNDSCHECK", "tests/kernels/test_linear.py::test_bounds_are_checked") == 1
