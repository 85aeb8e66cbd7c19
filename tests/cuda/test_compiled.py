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
    "l2, sm_80": (80, "linear", {}),
    "unit": (90, "linear", {"unit": True, "l2": 0.0}),
    "adagrad": (90, "linear", {"l1": 1e-5, "adagrad": True}, 2, "int64", True),
    "few": (90, "linear", {}, 3),
    "store ten": (90, "linear", {"discipline": "hogwild", "loss": "hinge"}, 10),
}
ONE, SEVERAL = ("l2", "l2, sm_80", "unit", "adagrad"), ("few", "store ten")
# discipline, rank, loss, options
COMPLETION = {
    "atomic 64": (90, "completion", "atomic", 64, "squared-error", {}),
    "hogwild 64, sm_80": (80, "completion", "hogwild", 64, "squared-error", {}),
    "everything 40": (90, "completion", "atomic", 40, "squared-error", {"penalty": "per-row", "nonnegative": True}),
    "hogwild 1024": (90, "completion", "hogwild", 1024, "squared-error", {}),
    "log 512": (90, "completion", "atomic", 512, "log", {"penalty": "per-row", "nonnegative": True}),
    "bpr 128": (90, "completion", "hogwild", 128, "bpr", {}),
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
    found = json.loads(made.stdout)
    for case, facts in found.items():
        print(case, {name: number for name, number in facts.items() if name not in ("ops", "sass")})
    return found


def starting(ops, *starts):
    return [op for op in ops if op.startswith(starts)]


@pytest.mark.parametrize("case", CASES)
def test_registers_suffice(compiled, case):
    facts = compiled[case]
    implicit = case.startswith(("log", "bpr"))
    assert len(starting(facts["sass"], "STL", "LDL")) <= (2 if implicit else 0)  # one address may be kept in memory
    assert facts["local"] == 0
    # with 64 of them as many programs of one warp run at once as a multiprocessor takes, which is 32
    most = 64 if case in ("l2", "l2, sm_80", "unit") else facts["maxnreg"] or 255
    assert 32 < facts["reg"] <= most
    assert facts["instructions"] > 100  # they were looked at


@pytest.mark.parametrize("case", CASES)
def test_nothing_orders_memory(compiled, case):
    assert not starting(compiled[case]["ops"], "membar", "fence")
    assert not starting(compiled[case]["sass"], "MEMBAR", "CCTL")
    assert all(".relaxed." in op for op in starting(compiled[case]["ops"], "red.", "atom."))


@pytest.mark.parametrize("case", ONE)
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
    assert bool(starting(sass, "ATOM")) == (case == "adagrad")  # sums of squares come back


def test_values_that_are_all_one_are_not_read(compiled):
    streams = [len([op for op in compiled[case]["ops"] if "evict_first" in op]) for case in ("l2", "unit")]
    assert streams[0] == 2 * streams[1] > 0


@pytest.mark.parametrize("case", SEVERAL)
def test_classes_are_read_and_written_sixteen_bytes_at_a_time(compiled, case):
    assert starting(compiled[case]["ops"], "ld.global.cg.v4")
    sass = compiled[case]["sass"]
    wide = ".128" if case.startswith("store") else ".F32x4"
    assert any(wide in op for op in starting(sass, "STG" if case.startswith("store") else "RED"))


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
