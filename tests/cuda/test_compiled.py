"""Kernels as they are compiled for an A100 (sm_80) and an H200 (sm_90), which needs neither: what is in the code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
CASES = LINEAR | COMPLETION


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))
    command = [sys.executable, "-W", "error", "-m", "tests.cuda.compile_kernels"]
    root = Path(__file__).resolve().parents[2]
    made = subprocess.run(command, input=json.dumps(CASES), capture_output=True, text=True, env=environment, cwd=root)
    assert made.returncode == 0, made.stderr
    return json.loads(made.stdout)


def starting(ops, *starts):
    return [op for op in ops if op.startswith(starts)]


@pytest.mark.parametrize("case", CASES)
def test_registers_suffice(compiled, case):
    facts = compiled[case]
    # one address may be kept in memory
    assert len(starting(facts["sass"], "STL", "LDL")) <= (2 if case.startswith("bpr") else 0)
    assert facts["local"] == 0
    # with 64 of them as many programs of one warp run at once as a multiprocessor takes, which is 32
    most = 64 if case == "l2" else facts["maxnreg"] or 255
    assert 32 < facts["reg"] <= most
    assert facts["instructions"] > 100  # they were looked at


@pytest.mark.parametrize("case", CASES)
def test_nothing_orders_memory(compiled, case):
    assert not starting(compiled[case]["ops"], "membar", "fence")
    assert not starting(compiled[case]["sass"], "MEMBAR", "CCTL")
    assert all(".relaxed." in op for op in starting(compiled[case]["ops"], "red.", "atom."))


@pytest.mark.parametrize("case", ["l2", "adagrad, sm_80"])
def test_one_margin_waits_for_no_other_thread(compiled, case):
    assert not starting(compiled[case]["sass"], "BAR", "LDS", "STS")
    reads = starting(compiled[case]["ops"], "ld.global.cg")  # past the first cache
    assert len(reads) >= 2 * 2 + 1  # a row's first weights, two a thread, what follows, and the intercept


@pytest.mark.parametrize("case", LINEAR)
def test_changes_are_added_and_nothing_is_waited_for(compiled, case):
    sass = compiled[case]["sass"]
    if case.startswith("store"):  # but the intercept, of 10 classes in 3 vectors at most, is added to
        assert starting(sass, "STG")
        assert 1 <= len(starting(sass, "RED")) <= 3
    else:
        assert starting(sass, "RED")
        assert not starting(sass, "STG")
    assert bool(starting(sass, "ATOM")) == case.startswith("adagrad")  # sums of squares come back


def test_classes_are_read_and_written_sixteen_bytes_at_a_time(compiled):
    assert starting(compiled["store ten"]["ops"], "ld.global.cg.v4")
    assert any(".128" in op for op in starting(compiled["store ten"]["sass"], "STG"))


@pytest.mark.parametrize("case", COMPLETION)
def test_rows_are_read_past_the_first_cache_and_written_whole(compiled, case):
    facts, (arch, _, discipline, *_) = compiled[case], CASES[case]
    memory = set(facts["ops"])
    assert "ld.global.cg.v4.b32" in memory
    assert {name for name in memory if ".cg" in name} <= {"ld.global.cg.b32", "ld.global.cg.v4.b32"}  # of biases
    atomic = discipline == "atomic"
    assert ("st.global.v4.b32" in memory) == (not atomic)
    assert bool(starting(facts["ops"], "red", "atom")) == atomic
    assert any("F32x4" in op for op in starting(facts["sass"], "RED")) == (atomic and arch >= 90)
    assert not starting(facts["sass"], "ATOM")  # nobody wants to know what was there
