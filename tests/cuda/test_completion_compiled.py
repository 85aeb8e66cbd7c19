"""What Triton makes of the completion kernels for a Hopper GPU, looked at without one.

Everything is compiled in one process of its own, where the interpreter is off, and with the very arguments that the
launcher gives.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

SCRIPT = """
import json, re, subprocess, sys, tempfile
import numpy as np, torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from hogwild.cuda.completion import triton as kernels
from hogwild.cuda.completion.launcher import CompletionLauncher
from hogwild.cuda.work import Segment
from hogwild.problems.completion.problem import CompletionProblem
from tests.cuda.standin import StandIn

TYPES = {torch.float32: "*fp32", torch.int32: "*i32", torch.int64: "*i64"}


class Compiled:
    # in a kernel's place: compiles what it is to be launched with
    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid):
        return self.launch

    def warmup(self, *args, grid, **constants):
        full.append(self.described(args, **constants))

    def launch(self, *args, **options):
        signature, constants, attributes, options = described = self.described(args, **options)
        assert full.pop() == described  # compiled beforehand as it is launched
        self.compile(ASTSource(self.kernel, signature, constants, attributes), options)

    def described(self, args, num_warps, enable_fp_fusion, maxnreg, **constants):
        params = {param.name: param for param in self.kernel.params}
        given, signature, attributes = dict(zip(self.kernel.arg_names, args)), {}, {}
        for place, name in enumerate(self.kernel.arg_names):
            if name in constants:
                signature[name] = "constexpr"
            elif isinstance(given[name], torch.Tensor):
                signature[name] = TYPES[given[name].dtype]
                if not params[name].do_not_specialize_on_alignment:
                    assert given[name].data_ptr() % 16 == 0
                    attributes[(place,)] = [["tt.divisibility", 16]]
            elif params[name].annotation_type:
                assert params[name].do_not_specialize
                signature[name] = params[name].annotation_type
            else:
                signature[name] = "fp32"
        options = {"num_warps": num_warps, "enable_fp_fusion": enable_fp_fusion}
        return signature, constants, attributes, options | ({} if maxnreg is None else {"maxnreg": maxnreg})

    def compile(self, source, options):
        made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(made.asm["cubin"])
            file.flush()
            tools = triton.knobs.nvidia
            usage = subprocess.run([tools.cuobjdump.path, "-res-usage", file.name], capture_output=True, text=True)
            sass = subprocess.run([tools.nvdisasm.path, "-c", file.name], capture_output=True, text=True).stdout
        said = usage.stdout + usage.stderr
        global facts
        facts = {
            "memory": sorted(set(re.findall(r"\\b(?:ld|st|red|atom)\\.[\\w.:]+", made.asm["ptx"]))),
            "fences": re.findall(r"\\b(?:membar|fence)[\\w.:]*", made.asm["ptx"]),
            "spills": re.findall(r"\\b(?:STL|LDL)\\b", sass),
            "registers": int(re.search(r"REG:(\\d+)", said)[1]),
            "local": int(re.search(r"LOCAL:(\\d+)", said)[1]),
            "instructions": len(re.findall(r"^ +/\\*[0-9a-f]{4,}\\*/", sass, re.M)),
            "fetching": re.findall(r"\\bATOM\\w*", sass),
            "wide_adds": len(re.findall(r"\\bREDG?\\.E\\.ADD\\.F32x4", sass)),
            "maxnreg": options.get("maxnreg"),
        }


kernels.squared_error, kernels.implicit = Compiled(kernels.squared_error), Compiled(kernels.implicit)
found, full = {}, []
for name, (discipline, rank, loss, options, sides) in json.loads(sys.argv[1]).items():
    users = items = np.zeros(4, np.int32)
    values = np.arange(4, dtype=np.float32)
    problem = CompletionProblem.of((2, 2), items, values, discipline, rank, loss, **options)
    arrays = {"users": users, "items": items, "values": values} | problem._per_row(users, items)
    launcher = CompletionLauncher(problem, arrays, StandIn(triton=True), 1, sides=sides)
    data = {name: torch.from_numpy(part) for name, part in arrays.items()}
    segment = Segment(data, torch.zeros(4, dtype=torch.int32), torch.ones(4))
    launcher.replica(0, None, 1 << 20)(segment)
    found[name] = facts
print(json.dumps(found))
"""

CASES = {
    "atomic 64": ("atomic", 64, "squared-error", {}, None),
    "hogwild 64": ("hogwild", 64, "squared-error", {}, None),
    "items 64": ("hogwild", 64, "squared-error", {}, (False, True)),
    "atomic 128": ("atomic", 128, "squared-error", {}, None),
    "hogwild 128": ("hogwild", 128, "squared-error", {}, None),
    "everything 40": ("atomic", 40, "squared-error", {"penalty": "per-row", "nonnegative": True}, None),
    "hogwild 1024": ("hogwild", 1024, "squared-error", {}, None),
    "log 64": ("atomic", 64, "log", {}, None),
    "bpr 64": ("atomic", 64, "bpr", {"penalty": "per-row", "nonnegative": True}, None),
    "log 512": ("atomic", 512, "log", {"penalty": "per-row", "nonnegative": True}, None),
    "bpr 128": ("hogwild", 128, "bpr", {}, None),
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))
    command = [sys.executable, "-c", SCRIPT, json.dumps(CASES)]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", CASES)
def test_no_fences_and_no_spills(compiled, case):
    facts, explicit = compiled[case], CASES[case][2] == "squared-error"
    assert facts["fences"] == []
    assert len(facts["spills"]) <= (0 if explicit else 2)  # one address may be kept in memory, read once a turn
    assert facts["local"] == 0
    assert 32 < facts["registers"] <= (facts["maxnreg"] or 255)
    assert facts["instructions"] > 100  # they were looked at


@pytest.mark.parametrize("case", CASES)
def test_rows_are_read_16_bytes_at_a_time_past_the_nearer_cache(compiled, case):
    memory = compiled[case]["memory"]
    assert "ld.global.cg.v4.b32" in memory
    biased = {"ld.global.cg.b32"}
    assert {name for name in memory if ".cg" in name} <= biased | {"ld.global.cg.v4.b32"}


@pytest.mark.parametrize("case", CASES)
def test_changes_are_added_without_order_and_rows_stored_whole(compiled, case):
    facts, (discipline, _, _, _, sides) = compiled[case], CASES[case]
    users, items = sides or (discipline == "atomic",) * 2
    assert ("st.global.v4.b32" in facts["memory"]) == (not users or not items)
    assert (facts["wide_adds"] > 0) == (users or items)
    assert facts["fetching"] == []  # nobody wants to know what was there
    atomics = [name for name in facts["memory"] if name.startswith(("red", "atom"))]
    assert bool(atomics) == (users or items)
    assert all(".relaxed." in name for name in atomics)
