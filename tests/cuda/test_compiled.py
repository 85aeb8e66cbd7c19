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
# discipline, rank, options
COMPLETION = {
    "smoothed 40": (90, "completion", "atomic", 40, {"penalty": "smoothed"}),
    "hogwild 64, sm_80": (80, "completion", "hogwild", 64, {}),
    "added 128": (90, "completion", "atomic", 128, {}),
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
    for case, facts in json.loads(made.stdout).items():
        (arch, kind, *_), ops = (LINEAR | COMPLETION)[case], facts["ops"]
        stores, one_margin = case.startswith(("store", "hogwild")), case in ("l2", "adagrad, sm_80")
        # with 64 registers as many programs of one warp run at once as a multiprocessor takes, which is 32
        assert facts["local"] == 0, case
        assert 32 < facts["reg"] <= (64 if case == "l2" else facts["maxnreg"] or 255), case
        # nothing orders memory, and one margin waits for no other thread
        assert not starting(ops, "membar.", "fence."), case
        assert all(".relaxed." in op for op in starting(ops, "red.", "atom.")), case
        assert not (one_margin and starting(ops, "bar.", "ld.shared", "st.shared")), case
        # weights are read past the first cache, and changes are added but where they are stored
        assert len(starting(ops, "ld.global.cg")) >= 5, case
        assert bool(starting(ops, "st.global")) == stores, case
        assert len(starting(ops, "red.", "atom.")) <= 3 or not stores, case  # to the intercept, of 10 classes
        if not one_margin:  # factors, and classes, are read and written sixteen bytes at a time
            assert starting(ops, "ld.global.cg.v4"), case
            assert bool(starting(ops, "st.global.v4")) == stores, case
            assert stores or arch < 90 or any(".add.v4.f32" in op for op in ops), case
        assert kind == "linear" or not stores or not starting(ops, "red.", "atom."), case
