"""Compiles kernels as their launchers launch them, for a GPU that need not be there, and writes what is in the code.

A process of its own (``python -m``), where the interpreter is off: cases come by the standard input as JSON.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import triton
from triton.backends import compiler, nvidia
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from hogwild.cuda import completion, linear
from hogwild.cuda.streams import Visits
from hogwild.data.ratings.container import Ratings
from hogwild.data.rows.container import Rows
from hogwild.problems.completion.problem import CompletionProblem
from hogwild.problems.linear.problem import LinearProblem
from tests.cuda.standin import StandIn

TYPES = {torch.float32: "*fp32", torch.int32: "*i32", torch.int64: "*i64"}
OPTIONS = ("num_warps", "enable_fp_fusion", "maxnreg")
VISITS = Visits(0, 4, 4, 5, 1.0)


class Compiled:
    """In a kernel's place: keeps what it is to be compiled for."""

    def __init__(self, kernel):
        self.kernel, self.launched = kernel, None

    def __getitem__(self, grid):
        return self.launch

    def launch(self, *args, **options):
        self.launched = self.described(args, **options)

    def described(self, args, **given):
        options = {name: given.pop(name) for name in OPTIONS if given.get(name) is not None}
        given.pop("maxnreg", None)
        signature, attributes = {}, {}
        for place, (param, value) in enumerate(zip(self.kernel.params, [*args, *given.values()])):
            name = param.name
            if name in given:
                signature[name] = "constexpr"
            elif isinstance(value, torch.Tensor):
                signature[name] = TYPES[value.dtype]
                if not param.do_not_specialize_on_alignment:
                    assert value.data_ptr() % 16 == 0
                    attributes[place,] = [["tt.divisibility", 16]]
            else:
                assert param.do_not_specialize or isinstance(value, float), name
                signature[name] = param.annotation_type or "fp32"
        return signature, given, attributes, options

    def facts(self, arch):
        *about, options = self.launched
        made = triton.compile(source(self.kernel, *about), target=GPUTarget("cuda", arch, 32), options=options)
        with tempfile.TemporaryDirectory() as folder:
            cubin = Path(folder, "kernel.cubin")
            cubin.write_bytes(made.asm["cubin"])
            tool = Path(nvidia.__file__).parent / "bin" / "cuobjdump"
            done = subprocess.run([tool, "-res-usage", cubin], capture_output=True, text=True, check=True)
        usage = re.findall(r"\b(REG|LOCAL):(\d+)", done.stdout + done.stderr)
        return {name.lower(): int(number) for name, number in usage} | {
            "ops": re.findall(r"\b(?:ld|st|red|atom|bar|membar|fence)\.[\w.:]+", made.asm["ptx"]),
            "maxnreg": options.get("maxnreg"),
        }


def source(kernel, signature, constants, attributes):
    """What the compiler takes; Triton 3.2 wants the attributes as an object, and constants in no signature."""
    if hasattr(compiler, "AttrsDescriptor"):
        signature = {name: kind for name, kind in signature.items() if kind != "constexpr"}
        attributes = compiler.AttrsDescriptor.from_hints({place: 16 for (place,) in attributes})
    return ASTSource(kernel, signature, constants, attributes)


def of_linear(given, classes=2, offsets="int32", per_row=False):
    """The kernel of a problem on rows of 73 nonzeros in the mean."""
    usual = {
        "loss": "log",
        "loss_param": 0.0,
        "l1": 0.0,
        "l2": 1e-5,
        "adagrad": False,
        "discipline": "atomic",
        "intercept": 0.05,
        "normalize": "none",
        "labels": tuple(map(float, range(classes))),
        "width": 47236,
        "longest": 1000,
        "falling": False,
        "far": False,
        "unit": False,
    }
    problem = LinearProblem(**usual | given)
    kernel = linear.visit_rows = Compiled(linear.visit_rows)
    types = {"begin": offsets, "end": offsets, "indices": "int32", "targets": "float32"}
    types |= {} if problem.unit else {"values": "float32"}
    types |= {"weights": "float32", "scales": "float32"} if per_row else {}
    launcher = linear.LinearLauncher.__new__(linear.LinearLauncher)
    launcher.problem = problem
    launcher.data = {name: torch.empty(4, dtype=getattr(torch, kind), device="meta") for name, kind in types.items()}
    launcher.rates = launcher.flat = torch.empty(problem.size, device="meta")
    launcher.parameters = problem.parameters(launcher.flat)
    launcher.rows = Rows(np.arange(5) * 73, np.zeros(292), np.zeros(292), np.zeros(4), 73, check=False)
    launcher.visit(VISITS, 1000)
    linear.visit_rows = kernel.kernel
    return kernel


def of_completion(discipline, rank, options):
    """The kernel of a problem on four ratings."""
    ratings = Ratings([0] * 4, [0] * 4, range(4), (2, 2))
    problem = CompletionProblem.of(ratings, discipline, rank=rank, order="file", **options)
    arrays = problem.lay_out(ratings, 1, 1, 0)[1]
    kernel = completion.visit_ratings = Compiled(completion.visit_ratings)
    launcher = completion.CompletionLauncher(problem, arrays, StandIn(triton=True))
    launcher.visit(VISITS._replace(together=32), 1 << 20)
    completion.visit_ratings = kernel.kernel
    return kernel


if __name__ == "__main__":
    makers = {"linear": of_linear, "completion": of_completion}
    cases = json.load(sys.stdin)
    json.dump({name: makers[kind](*about).facts(arch) for name, (arch, kind, *about) in cases.items()}, sys.stdout)
