"""The section gpu on a stand-in for a GPU: all is measured, figures go together, what fails keeps its place."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hogwild.bench import suite
from hogwild.bench.gpu import completion as gpu_completion
from hogwild.bench.gpu import linear as gpu_linear
from hogwild.bench.gpu import sides as gpu_sides
from hogwild.bench.gpu import streams as gpu_streams
from hogwild.bench.gpu import suite as gpu
from hogwild.bench.gpu.sizes import Size, update_bytes
from hogwild.bench.plan import BenchPlan
from hogwild.cuda import backend, streams
from hogwild.data.cache import Cache
from hogwild.data.rows.source import open_data
from hogwild.errors import InputError, TrainingError
from hogwild.json_rows import to_json
from hogwild.problems.completion.problem import CompletionProblem
from tests.cli.conftest import hogwild  # noqa: F401  (a fixture)
from tests.cuda.standin import StandIn

ROOT = Path(__file__).resolve().parents[2]
without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
TINY = Size(
    1 << 16, "synthetic:ratings?users=60&items=40&ratings=500", "synthetic:rcv1?rows=200&features=200&nnz=8", 192,
    {"completion": 2, "linear": 3, "streams": 1}, goal=2, most=40, rounds=1,
)  # fmt: skip


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """What is found instead of a GPU."""
    found = StandIn(3)
    for module in (backend, streams):
        monkeypatch.setattr(module, "connect", lambda: found)
    monkeypatch.setattr(gpu, "QUICK", TINY)
    monkeypatch.setattr(gpu_completion, "RANKS", (8,))
    for name, value in {"BATCHES": (16,), "INPUTS": 12, "HIDDEN": 8, "REPLICAS": (2, 3), "LOCKED": 2}.items():
        monkeypatch.setattr(gpu_streams, name, value)
    return found


@pytest.fixture
def plan(tmp_path: Path) -> BenchPlan:
    return BenchPlan((1, 2), repeats=2, quick=True, cache=Cache(tmp_path / "cache"))


def of(rows: list[dict[str, Any]], part: str) -> dict[str, dict[str, Any]]:
    """The rows of a part by what they measure."""
    return {row["what"].partition(": ")[2]: row for row in rows if row.get("part") == part}


@pytest.fixture
def rows(device: StandIn, plan: BenchPlan) -> list[dict[str, Any]]:
    found = list(suite.section("gpu", plan))
    for row in found:
        assert row["section"] == "gpu"
        assert not any(isinstance(value, (dict, list, tuple)) for value in row.values())
        assert json.loads(to_json(row)).keys() == row.keys()
    return found


def test_all_parts(rows: list[dict[str, Any]], device: StandIn) -> None:
    assert rows[0]["part"] == "copy"
    assert rows[0]["gpu"] == device.name
    assert {"gpu_driver", "version_cuda", "version_triton"} <= rows[0].keys()
    assert rows[0]["bytes_per_second"] == pytest.approx(2 * TINY.copied / rows[0]["seconds"])
    for row in rows:
        assert row["status"] == "ok", row
        assert math.isfinite(row["measured"])
        assert row["measured"] > 0
        assert row["rounds"] in (1, 2)
    _check_completion(of(rows, "completion"))
    _check_linear(of(rows, "linear"), of(rows, "to loss"), device)
    _check_streams(of(rows, "streams"))


def _check_completion(found: dict[str, dict[str, Any]]) -> None:
    cpu = found[gpu_sides.CPU]
    assert (cpu["device"], cpu["worse"], cpu["in_flight"]) == ("cpu", 0.0, None)
    assert {row["kind"] for row in found.values()} == {"atomic", "hogwild"}
    for name, row in found.items():
        assert row["epochs"] == 2 * TINY.epochs["completion"]
        assert row["bytes_per_update"] == update_bytes(8)
        moved = row["updates_per_second"] * update_bytes(8)
        assert row["ratio"] == pytest.approx(moved / row["copy_bytes_per_second"])
        assert row["measured"] * 1e9 == pytest.approx(row["updates_per_second"])
        assert abs(row["worse"]) < 0.5
        assert name == gpu_sides.CPU or row["in_flight"] >= 1
    assert found["hogwild, full"]["in_flight"] > found["hogwild, usual"]["in_flight"]


def _check_linear(rates: dict[str, dict[str, Any]], times: dict[str, dict[str, Any]], device: StandIn) -> None:
    assert rates.keys() == times.keys()
    assert {"atomic, usual", "hogwild, usual", gpu_sides.CPU} <= rates.keys()
    for name, row in rates.items():
        assert row["epochs"] == 2 * TINY.epochs["linear"]
        assert row["ratio"] == pytest.approx(rates[gpu_sides.CPU]["seconds"] / row["seconds"])
        assert row["nonzeros_per_second"] == pytest.approx(row["nonzeros"] / row["seconds"])
        assert not name.endswith("full") or row["in_flight"] == device.programs()
    for row in times.values():
        assert row["loss"] <= row["goal"]
        assert row["worse"] <= 0
        assert 1 <= row["epochs"] <= TINY.most
        assert row["ratio"] == pytest.approx(times[gpu_sides.CPU]["seconds"] / row["seconds"])


def _check_streams(found: dict[str, dict[str, Any]]) -> None:
    one, eager = found["one graph"], found["eager"]
    assert one["ratio"] == eager["over_eager"] == 1
    assert one["worse"] == 0
    assert [row["kind"] for row in found.values()] == [
        "one", "eager", "replicas", "replicas", "locked", "synchronous", "vmap"
    ]  # fmt: skip
    for row in found.values():
        assert row["epochs"] == 2
        assert row["samples_per_second"] == pytest.approx(TINY.samples / row["seconds"])
        assert row["ratio"] == pytest.approx(one["seconds"] / row["seconds"])
        assert row["over_eager"] == pytest.approx(eager["seconds"] / row["seconds"])
        assert row["worse"] == pytest.approx(row["loss"] / one["loss"] - 1)
        assert abs(row["worse"]) < 0.2


def test_bytes_of_an_update_are_those_of_the_arrays() -> None:
    items, values = np.array([0, 1], np.int32), np.array([1, 2], np.float32)
    problem = CompletionProblem.of((3, 2), items, values, "atomic", rank=64, l2=0.05)
    one_of_each = problem.solution(np.zeros(problem.size, np.float32))  # user and item factors, user and item biases
    touched = sum(part[:1].nbytes for part in one_of_each)
    rating = items[:1].nbytes * 2 + values[:1].nbytes
    assert update_bytes(64) == 2 * touched + rating


def test_what_fails_keeps_its_place(device: StandIn, plan: BenchPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = gpu_streams.ways

    def ways(batch: int) -> Any:
        return usual(batch) | {"vmap of 3": ("vmap", {"workers": 99})}

    def fails(*_: Any) -> Any:
        raise TrainingError("no memory")
        yield

    monkeypatch.setattr(gpu_streams, "ways", ways)
    monkeypatch.setattr(gpu, "PARTS", {"completion": fails, "streams": gpu_streams.measure})
    found = list(gpu.measure(plan))
    assert [row["status"] for row in found if row["part"] == "completion"] == ["failed: no memory"]
    last = [row for row in found if row["part"] == "streams"][-1]
    assert last["what"] == "streams 16: vmap of 3"
    assert last["status"].startswith("failed: ")
    assert "99" in last["status"]
    assert last["measured"] is None
    assert found[-1] is last


def test_steps_that_are_not_captured_are_no_graphs(
    device: StandIn, plan: BenchPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.captures = False
    found = {row["what"].partition(": ")[2]: row for row in gpu_streams.measure(plan, TINY, None)}
    assert found["eager"]["status"] == "ok"
    for name in ("one graph", "2 replicas", "vmap of 3"):
        assert "not captured as CUDA graphs" in found[name]["status"]
        assert found[name]["seconds"] is None
    assert found["eager"]["ratio"] is None


def test_a_loss_that_is_not_reached(device: StandIn) -> None:
    rows = open_data(TINY.rows)
    side = gpu_linear.ToLoss(rows, 1e-9, 2, {"device": "cuda"})
    with pytest.raises(TrainingError, match="after 2 epochs, 0.00000 was asked"):
        side()
    side = gpu_linear.ToLoss(rows, 10.0, 2, {"device": "cuda"})
    assert side() > 0
    assert side.last["epoch"] == 1


def test_numbers_in_hand(device: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = {0.5: 10, gpu_sides.NOTHING: 1000}
    monkeypatch.setattr(gpu_sides, "_taken", lambda data, step, **options: taken[step])
    assert gpu_sides.in_hand(None, 0.5) == {"usual": None, "between": 100, "full": 1000}
    taken[0.5] = 600
    assert gpu_sides.in_hand(None, 0.5) == {"usual": None, "full": 1000}
    taken[0.5] = 1000
    assert gpu_sides.in_hand(None, 0.5) == {"usual": None}


def test_size_is_for_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu.machine, "physical_cores", lambda: 16)
    for total, ratings in ((None, gpu.FULL.ratings), (1 << 37, gpu.FULL.ratings), (1 << 33, gpu.FEWER)):
        monkeypatch.setattr(gpu.machine, "memory", lambda total=total: (total, total))
        assert gpu.size_for(BenchPlan((1,))).ratings == ratings
    assert gpu.size_for(BenchPlan((1,), quick=True)) is gpu.QUICK
    for size in (gpu.FULL, gpu.QUICK):
        assert size.samples % (gpu_streams.REPLICAS[-1] * max(gpu_streams.BATCHES)) == 0


def test_driver(tmp_path: Path) -> None:
    path = tmp_path / "version"
    assert gpu.driver(path) is None
    path.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  565.57.01  Release Build\nGCC version: 12\n"
    )
    assert gpu.driver(path) == "565.57.01"


# ---- without a GPU


@without_gpu
def test_no_gpu_is_one_line(hogwild: Callable, plan: BenchPlan) -> None:  # noqa: F811
    with pytest.raises(InputError, match="^device cuda: "):
        list(gpu.measure(plan))
    result = hogwild("bench", "gpu")
    assert result.status == 1
    assert result.out == ""
    assert result.err.count("\n") == 1
    assert "device cuda: " in result.err


@without_gpu
@pytest.mark.parametrize("python", [None, "/no/such/python"])
def test_the_script_without_a_gpu(python: str | None, tmp_path: Path) -> None:
    settings = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)} | ({"PYTHON": python} if python else {})
    command = [ROOT / "scripts" / "bench-gpu", "--quick"]
    done = subprocess.run(command, cwd="/", env=settings, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "no GPU" in done.stderr


@pytest.mark.parametrize("complete", [True, False])
def test_the_script_takes_a_torch_that_finds_a_gpu_as_it_is(complete: bool, tmp_path: Path) -> None:
    fake = tmp_path / "python"
    lacks = "" if complete else '[[ "$2" == *hogwild* ]] && exit 1;'
    fake.write_text(f'#!/bin/bash\nif [ "$1" = -c ]; then {lacks} exit 0; fi\necho "$PYTHONPATH $*"\n')
    fake.chmod(0o755)
    settings = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHON": str(fake)}
    command = [ROOT / "scripts" / "bench-gpu", "--quick"]
    done = subprocess.run(command, cwd="/", env=settings, capture_output=True, text=True, timeout=60)
    if complete:
        assert (done.returncode, done.stdout) == (0, f"{ROOT} -m hogwild bench gpu --quick\n")
    else:
        assert (done.returncode, done.stdout) == (1, "")
        assert f"run {fake} -m pip install -e {ROOT}" in done.stderr


def test_the_table(
    hogwild: Callable, device: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path  # noqa: F811
) -> None:  # fmt: skip
    good = {"part": "p", "kind": "a", "what": "some work", "ratio": 2.5, "worse": 0.01, "status": "ok", "unit": "G/s"}
    good |= {"rival": "the other", "measured": 3.25}
    rows = [good, good | {"what": "worse work", "measured": None, "status": "failed: no memory"}]
    monkeypatch.setattr("hogwild.cli.bench.section", lambda name, plan: iter([{"section": name} | row for row in rows]))
    result = hogwild("bench", "gpu", "--json", tmp_path / "rows.jsonl")
    assert result.status == 0
    lines = {line.split("  ")[0].strip(): line.split() for line in result.out.splitlines()}
    assert lines["some work"][2:] == ["-", "3.25", "G/s", "the", "other", "2.5", "-", "-", "1.0%"]
    assert "no memory" in result.out
    kept = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [row["section"] for row in kept] == ["gpu"] * 2


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu(plan: BenchPlan) -> None:
    found = list(suite.section("gpu", plan))
    assert found[0]["gpu_driver"]
    for row in found:
        told = row["part"] in ("copy", "streams") or row["what"].endswith(("CPU", "atomic, usual"))
        assert row["status"] == "ok" or not told, row  # others may diverge
