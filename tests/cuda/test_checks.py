"""What the GPU's benchmark checks before it times anything: the same checks, on the stand-in, and on a GPU."""

from __future__ import annotations

import os

import pytest
import torch

from hogwild.bench.gpu import correctness
from hogwild.bench.gpu.sides import Pace, Side, race
from tests.bench.tiny_gpu import take_place
from tests.cuda import standin
from tests.cuda.standin import StandIn

KERNELS = [
    "linear, every change is added, 16 classes",
    "linear, the same, shuffled",
    "completion, one rating in flight",
    "completion, the same, rank 64, shuffled",
]


@pytest.mark.parametrize("name", [*KERNELS, "module, captured"])
def test_checks_pass(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    take_place(monkeypatch.setattr, StandIn(3, triton=name in KERNELS))
    assert correctness.CHECKS[name](24) <= correctness.ALLOWED


def test_a_lost_change_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    take_place(monkeypatch.setattr, StandIn(3))
    visit = standin.visit_rows

    def lossy(launcher, visits, in_flight):
        visit(launcher, visits._replace(first=visits.first + 1, size=visits.size - 1), in_flight)

    monkeypatch.setattr(standin, "visit_rows", lossy)
    check = correctness.checked(correctness.CHECKS[KERNELS[0]], 64)
    [_, row] = race("correctness", {"it": Side(check, 1, {})}, Pace(100.0, rounds=0))
    assert "differs by" in row["status"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.skipif("TRITON_INTERPRET" in os.environ, reason="kernels are interpreted: run them with -m gpu")
@pytest.mark.parametrize("name", correctness.CHECKS)
def test_checks_pass_on_a_gpu(name: str) -> None:
    assert correctness.CHECKS[name](4096) <= correctness.ALLOWED
