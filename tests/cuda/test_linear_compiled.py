"""The linear problem's kernels as they are compiled for an H200, which needs no GPU: what is in the code, and what not.

All are compiled in one process without the interpreter's variable, which must not be set when kernels are imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

SCRIPT = r"""
import json, re, subprocess, sys
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from hogwild.cuda.linear import triton as linear_kernels
from hogwild.problems.linear.problem import LinearProblem

FLOATS = {"l1": "fp32", "l2": "fp32", "param": "fp32", "share": "fp32", "count": "i32"}
WHOLE = ("begin", "end", "indices", "rows")
ALIGNED = ("coef", "intercept", "coef_squares", "intercept_squares", "rates")
USUAL = dict(
    loss="log", loss_param=0.0, l1=0.0, l2=1e-5, adagrad=False, discipline="atomic", intercept=0.05, normalize="none",
    labels=(-1.0, 1.0), width=47236, longest=1000, falling=False, far=False, unit=False,
)


def facts(where, given, classes=2, mean=73.0, offsets="*i32", per_row=False):
    problem = LinearProblem(**USUAL | {"labels": tuple(map(float, range(classes)))} | given)
    kernel = linear_kernels.one_margin if problem.classes == 1 else linear_kernels.many_margins
    block = linear_kernels.block_of(problem, mean)
    constants = linear_kernels.constants(problem, block, per_row, per_row)
    types = FLOATS | dict.fromkeys(WHOLE, "*i32") | {"begin": offsets, "end": offsets}
    signature = {n: "constexpr" if n in constants else types.get(n, "*fp32") for n in kernel.arg_names}
    attributes = {(kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in ALIGNED}
    source = ASTSource(kernel, signature, constants, attributes)
    made = triton.compile(source, GPUTarget("cuda", 90, 32), {"num_warps": 1, "enable_fp_fusion": True})
    cubin = Path(where, "kernel.cubin")
    cubin.write_bytes(made.asm["cubin"])
    command = [triton.knobs.nvidia.cuobjdump.path, "-res-usage", str(cubin)]
    usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {name.lower(): int(number) for name, number in re.findall(r"\b(REG|STACK|LOCAL|SHARED):(\d+)", usage)}
    command = [triton.knobs.nvidia.nvdisasm.path, str(cubin)]
    sass = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return found | {
        "block": block,
        "ops": re.findall(r"\b(?:ld|st|red|atom|bar|membar|fence)\.[\w.:]+", made.asm["ptx"]),
        # the assembler makes a reduction of an atomic whose result nobody asks for
        "sass": re.findall(r"\b(?:REDG?|ATOMG?|STG|LDS|STS|BAR|MEMBAR|CCTL)(?:\.\w+)*(?= )", sass),
    }


json.dump({name: facts(sys.argv[1], *case) for name, case in json.load(sys.stdin).items()}, sys.stdout)
"""
# what is not as usual, classes, nonzeros a row, type of offsets, whether rows have weights and scales
CASES = {
    "l2": ({},),
    "unit": ({"unit": True, "l2": 0.0},),
    "store": ({"discipline": "hogwild", "loss": "hinge"},),
    "adagrad": ({"l1": 1e-5, "adagrad": True}, 2, 73.0, "*i64", True),
    "few": ({}, 3),
    "ten": ({"loss": "softmax", "adagrad": True}, 10),
    "store ten": ({"discipline": "hogwild", "loss": "hinge"}, 10),
    "thousands": ({"loss": "softmax", "l1": 1e-5, "width": 1 << 20}, 3000),
}
ONE, SEVERAL = ("l2", "unit", "store", "adagrad"), ("few", "ten", "store ten", "thousands")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    where = tmp_path_factory.mktemp("compiled")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(where / "cache"), "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-W", "error", "-c", SCRIPT, str(where)]
    made = subprocess.run(command, input=json.dumps(CASES), capture_output=True, text=True, env=environment)
    assert made.returncode == 0, made.stderr
    found = json.loads(made.stdout)
    for case, facts in found.items():
        print(case, {name: number for name, number in facts.items() if name != "ops"})
    return found


def starting(ops, *starts):
    return [op for op in ops if op.startswith(starts)]


@pytest.mark.parametrize("case", CASES)
def test_registers_suffice(compiled, case):
    assert compiled[case]["stack"] == compiled[case]["local"] == 0
    # with 64 of them as many programs of one warp run at once as a multiprocessor takes, which is 32
    assert compiled[case]["reg"] <= (64 if case in ("l2", "unit", "store") else 255)


@pytest.mark.parametrize("case", CASES)
def test_nothing_orders_memory(compiled, case):
    ops = compiled[case]["ops"]
    assert not starting(ops, "membar", "fence")
    assert not starting(compiled[case]["sass"], "MEMBAR", "CCTL")
    atomics = starting(ops, "red.", "atom.")
    assert atomics
    assert all(".relaxed." in op for op in atomics)


@pytest.mark.parametrize("case", ONE)
def test_one_margin_waits_for_no_other_thread(compiled, case):
    shared = 4 if case == "adagrad" else 0  # older Triton hands what comes back from the intercept around in memory
    assert len(starting(compiled[case]["sass"], "BAR", "LDS", "STS")) <= shared
    if not shared:
        assert compiled[case]["shared"] == 0


def test_weights_are_read_past_the_first_cache(compiled):
    for case in ONE:
        ops, a_thread = compiled[case]["ops"], compiled[case]["block"] // 32
        assert len(starting(ops, "ld.global.cg")) >= 2 * a_thread + 1  # a row's beginning, what follows, the intercept


def test_changes_are_added_and_nothing_is_waited_for(compiled):
    for case in ("l2", "unit", "few", "thousands"):
        assert not starting(compiled[case]["sass"], "ATOM", "STG")
        assert starting(compiled[case]["sass"], "RED")


def test_stored_weights_leave_the_intercept_to_be_added_to(compiled):
    for case in ("store", "store ten"):
        assert len(starting(compiled[case]["sass"], "RED", "ATOM")) == 1
        assert starting(compiled[case]["sass"], "STG")


def test_sums_of_squares_come_back(compiled):
    for case in ("adagrad", "ten"):
        assert starting(compiled[case]["sass"], "ATOM")


def test_values_that_are_all_one_are_not_read(compiled):
    streams = [len([op for op in compiled[case]["ops"] if "evict_first" in op]) for case in ("l2", "unit")]
    assert streams[0] == 2 * streams[1] > 0


@pytest.mark.parametrize("case", SEVERAL)
def test_classes_are_read_and_written_sixteen_bytes_at_a_time(compiled, case):
    assert starting(compiled[case]["ops"], "ld.global.cg.v4")
    sass = compiled[case]["sass"]
    wide = ".128" if case.startswith("store") else ".F32x4"
    assert any(wide in op for op in starting(sass, "STG" if case.startswith("store") else "RED"))
