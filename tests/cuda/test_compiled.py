"""Kernels as they are compiled for an A100 (sm_80) and an H200 (sm_90), which needs neither: what is in the code."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

pytest.importorskip("triton")

# architecture, then for linear: what is not as usual, classes, type of offsets, whether rows have weights and scales
LINEAR = {
    "l2": (90, "linear", {}),
    "adagrad, sm_80": (80, "linear", {"l1": 1e-5, "adagrad": True}, 2, "int64", True),
    "store ten": (90, "linear", {"discipline": "hogwild", "loss": "hinge"}, 10),
}
# discipline, rank, loss, options
COMPLETION = {
    "everything 40": (90, "completion", "atomic", 40, "squared-error", {"penalty": "per-row", "nonnegative": True}),
    "hogwild 64, sm_80": (80, "completion", "hogwild", 64, "squared-error", {}),
    "bpr 128": (90, "completion", "atomic", 128, "bpr", {}),
}


def starting(ops, *starts):
    return [op for op in ops if op.startswith(starts)]


def test_what_is_in_the_code(tmp_path):
    """One test, since all cases are compiled in one process that takes seconds to start."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    command = [sys.executable, "-W", "error", "-m", "tests.cuda.compile_kernels"]
    cases = json.dumps(LINEAR | COMPLETION)
    made = subprocess.run(command, input=cases, capture_output=True, text=True, env=environment, cwd=ROOT)
    assert made.returncode == 0, made.stderr
    compiled = json.loads(made.stdout)
    for case, facts in compiled.items():
        registers_suffice(case, facts)
        # nothing orders memory
        assert not starting(facts["ops"], "membar", "fence"), case
        assert not starting(facts["sass"], "MEMBAR", "CCTL"), case
        assert all(".relaxed." in op for op in starting(facts["ops"], "red.", "atom.")), case
    for case in LINEAR:
        changes_are_added_and_nothing_is_waited_for(case, compiled[case]["sass"])
    for case in ("l2", "adagrad, sm_80"):  # one margin waits for no other thread
        assert not starting(compiled[case]["sass"], "BAR", "LDS", "STS"), case
        reads = starting(compiled[case]["ops"], "ld.global.cg")  # past the first cache
        assert len(reads) >= 2 * 2 + 1, case  # a row's first weights, two a thread, what follows, and the intercept
    # classes are read and written sixteen bytes at a time
    assert starting(compiled["store ten"]["ops"], "ld.global.cg.v4")
    assert any(".128" in op for op in starting(compiled["store ten"]["sass"], "STG"))
    for case, (arch, _, discipline, *_) in COMPLETION.items():
        rows_are_read_past_the_first_cache_and_written_whole(compiled[case], discipline == "atomic", arch)


def registers_suffice(case, facts):
    # one address may be kept in memory
    assert len(starting(facts["sass"], "STL", "LDL")) <= (2 if case.startswith("bpr") else 0), case
    assert facts["local"] == 0, case
    # with 64 of them as many programs of one warp run at once as a multiprocessor takes, which is 32
    most = 64 if case == "l2" else facts["maxnreg"] or 255
    assert 32 < facts["reg"] <= most, case
    assert facts["instructions"] > 100, case  # they were looked at


def changes_are_added_and_nothing_is_waited_for(case, sass):
    if case.startswith("store"):  # but the intercept, of 10 classes in 3 vectors at most, is added to
        assert starting(sass, "STG")
        assert 1 <= len(starting(sass, "RED")) <= 3
    else:
        assert starting(sass, "RED"), case
        assert not starting(sass, "STG"), case
    assert bool(starting(sass, "ATOM")) == case.startswith("adagrad"), case  # sums of squares come back


def rows_are_read_past_the_first_cache_and_written_whole(facts, atomic, arch):
    memory = set(facts["ops"])
    assert "ld.global.cg.v4.b32" in memory
    assert {name for name in memory if ".cg" in name} <= {"ld.global.cg.b32", "ld.global.cg.v4.b32"}  # of biases
    assert ("st.global.v4.b32" in memory) == (not atomic)
    assert bool(starting(facts["ops"], "red", "atom")) == atomic
    assert any("F32x4" in op for op in starting(facts["sass"], "RED")) == (atomic and arch >= 90)
    assert not starting(facts["sass"], "ATOM")  # nobody wants to know what was there
