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
        "atomics locks cycles losses order linear multiclass disciplines simulated tiers parse hashing "
        "cuts candidates scaled vectors deltas completion completion_disciplines".split()
    )
]

pytestmark = pytest.mark.skipif(
    bool(numba.config.DISABLE_JIT or numba.config.BOUNDSCHECK), reason="already in another mode"
)


def run_tests(flag, *arguments):
    """pytest in a process with this NUMBA flag; returns how many tests passed, and how many were skipped."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {flag: "1"}, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    passed, skipped = (re.search(rf"(\d+) {how}", done.stdout) for how in ("passed", "skipped"))
    return int(passed[1]), int(skipped[1]) if skipped else 0


def test_without_the_jit():
    """The kernels as plain Python: every line of them can be stepped through."""
    # an intercept has no index; scalar functions, statistics of many draws and clocks have no memory to read beyond
    others = "(one_worker_is_serial and False) or equal_to_scikit_learn or unbiased or as_long_as_asked or any_decimal"
    assert run_tests("NUMBA_DISABLE_JIT", "-k", f"not ({others})", *FILES)[0] > 300


@pytest.mark.slow
def test_with_bounds_checked():
    """Python itself checks indices that are too large; here are those of several workers, and one of each shape."""
    some = "bounds_are_checked or number_of_rows or with_a_delay or log-elastic-False-5"
    some += " or hinge-none-False-3 or (one_worker_is_serial and tiered-elastic-True)"
    files = [name for name in FILES if re.search("linear|multiclass|/test_disciplines", name)]
    passed, skipped = run_tests("NUMBA_BOUNDSCHECK", "-k", f"({some}) and not (softmax or adagrad or plain)", *files)
    assert passed > 15
    assert not skipped  # least of all the test that an index is checked
