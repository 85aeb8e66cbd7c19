"""The GPU's benchmark on a stand-in for one: all is measured, figures go together, what fails keeps its place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hogwild.bench.gpu import __main__ as door
from hogwild.bench.gpu import linear as gpu_linear
from hogwild.bench.gpu import suite
from hogwild.bench.gpu.sides import BEGAN, Faulty, Pace, Side, race
from hogwild.bench.gpu.sizes import FULL, QUICK, REPLICAS, update_bytes
from hogwild.bench.gpu.summary import summary, table
from hogwild.cuda.completion.launcher import SIDES
from hogwild.data.rows.source import open_data
from hogwild.errors import HogwildError, InputError, TrainingError
from hogwild.json_rows import to_json
from hogwild.problems.completion.problem import CompletionProblem
from tests.bench.tiny_gpu import TINY, take_place
from tests.cuda.standin import StandIn

ROOT = Path(__file__).resolve().parents[2]
without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
Row = dict[str, Any]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """What is found instead of a GPU."""
    return take_place(monkeypatch.setattr, StandIn(3))


def measured(part: str) -> dict[str, Row]:
    """The figures of a part by what they measure; every row is one of a JSON file."""
    rows = list(suite.measure(part, 1000.0, quick=True))
    for row in rows:
        assert row["section"] == "gpu"
        assert json.loads(to_json(row)).keys() == row.keys()
    assert {"gpu", "gpu_driver", "version_cuda", "version_torch"} <= rows[0].keys()
    began = [row["what"] for row in rows if row["status"] == BEGAN]
    assert began == [row["what"] for row in rows[1:] if row["status"] != BEGAN]  # each is given when it is taken
    figures = summary(row for row in rows if row["status"] != BEGAN)
    return {row["what"] if row["part"] == part else f"{row['part']}: {row['what']}": row for row in figures}


def test_streams(device: StandIn) -> None:
    found = measured("streams")
    one, eager = found["16: one graph"], found["16: eager"]
    assert one["ratio"] == eager["over_eager"] == 1
    assert [row["kind"] for row in found.values()] == [
        "one", "replicas", "replicas", "eager", "synchronous", "locked"
    ]  # fmt: skip
    for row in found.values():
        assert (row["status"], row["epochs"], row["rounds"]) == ("ok", 2, 2)
        assert row["measured"] == pytest.approx(TINY.samples / row["seconds"])
        assert row["over_eager"] == pytest.approx(eager["seconds"] / row["seconds"])
        assert row["worse"] == pytest.approx(row["loss"] / one["loss"] - 1)
        assert abs(row["worse"]) < 0.2


def test_linear(device: StandIn) -> None:
    found = measured("linear")
    cpu = found["CPU"]
    assert found["4224 in flight"]["in_flight"] == found["300 in flight"]["in_flight"] == device.programs()
    for name in ("default", "stored, default", "300 in flight, no intercept"):
        row = found[name]
        assert row["status"] == "ok"
        assert row["nonzeros_per_second"] == pytest.approx(row["work"] / row["seconds"])
        assert row["ratio"] == pytest.approx(cpu["seconds"] / row["seconds"])
        assert row["device"] == "cuda"
        assert abs(row["worse"]) < 0.1
    for name in ("default", "CPU"):
        assert found[f"to loss: {name}"]["loss"] <= found[f"to loss: {name}"]["goal"]


def test_completion(device: StandIn) -> None:
    found = measured("completion")
    copy = found["8: copy"]
    assert copy["measured"] == pytest.approx(2 * copy["bytes"] / copy["seconds"])
    assert list(found) == [
        f"8: {name}" for name in ("copy", "added", "items added", "stored", "added, file order", "CPU")
    ]
    for row in list(found.values())[1:]:
        assert row["status"] == "ok"
        assert row["work"] == row["updates"] * update_bytes(8)
        assert row["ratio"] == pytest.approx(row["measured"] / copy["measured"])
        assert abs(row["worse"]) < 0.5
    assert SIDES["atomic"] == (True, True)


def test_bytes_of_an_update_are_those_of_the_arrays() -> None:
    items, values = np.array([0, 1], np.int32), np.array([1, 2], np.float32)
    problem = CompletionProblem.of((3, 2), items, values, "atomic", rank=64, l2=0.05)
    one_of_each = problem.solution(np.zeros(problem.size, np.float32))  # user and item factors, user and item biases
    touched = sum(part[:1].nbytes for part in one_of_each)
    rating = items[:1].nbytes * 2 + values[:1].nbytes
    assert update_bytes(64) == 2 * touched + rating


# ---- what fails


class Steady:
    """A side that fails at its ``last`` timing."""

    def __init__(self, last: int = 99, error: Exception | None = None, ending: Exception | None = None) -> None:
        self.left, self.error, self.ending, self.closed = last, error, ending, False

    def start(self, stack: ExitStack) -> Callable[[], Row]:
        stack.callback(self.close)
        return self.work

    def work(self) -> Row:
        self.left -= 1
        if self.left < 0:
            raise self.error or TrainingError("diverged")
        return {"seconds": 0.5, "loss": 0.25}

    def close(self) -> None:
        self.closed = True
        if self.ending is not None:
            raise self.ending


def test_what_fails_keeps_its_place_and_the_rest_goes_on() -> None:
    full, good = Steady(1, torch.OutOfMemoryError("out of\nmemory")), Steady()

    def refused(stack: ExitStack) -> Callable[[], Row]:
        raise InputError("not this one")

    about = {"rival": "good"}
    three = {"refused": Side(refused, 3), "full": Side(full.start, 3, about), "good": Side(good.start, 3, about)}
    rows = []
    for row in race("p", three, Pace(100.0)):
        if row["status"] != BEGAN:
            rows.append(row)
        assert full.closed == (len(rows) > 3 and row["what"] == "good")  # at once
    assert [row["what"] for row in rows] == ["refused", "full", "good", "full", *["good"] * 3]
    assert rows[0]["status"] == "failed: InputError: not this one"
    assert rows[3]["status"] == "failed: OutOfMemoryError: out of memory"
    assert good.closed
    figures = {row["what"]: row for row in summary(rows)}
    assert figures["full"]["measured"] is figures["refused"]["measured"] is None
    assert (figures["good"]["measured"], figures["good"]["ratio"], figures["good"]["worse"]) == (6.0, 1.0, 0.0)
    assert "out of memory" in table(figures.values())


def test_a_fault_ends_the_process_after_its_row() -> None:
    fault = RuntimeError("CUDA error: an illegal memory access was encountered")
    good, bad = Steady(ending=fault), Steady(0, fault, fault)  # nothing can be freed after it
    sides = {"good": Side(good.start), "bad": Side(bad.start), "other": Side(Steady().start)}
    rows = race("p", sides, Pace(100.0, works=lambda: False))
    assert [next(rows)["status"] for _ in range(3)] == [BEGAN, "ok", BEGAN]
    assert "illegal memory access" in next(rows)["status"]
    with pytest.raises(Faulty):
        next(rows)
    left = race("p", {"bad": sides["bad"], "other": sides["other"]}, Pace(100.0, skipped=("bad",)))
    assert {row["what"] for row in left} == {"other"}


def test_no_timing_is_begun_that_would_not_end() -> None:
    assert not list(race("p", {"a": Side(Steady().start)}, Pace(-1.0)))
    pace = Pace(100.0)
    rows = race("p", {"a": Side(Steady().start)}, pace)
    next(rows), next(rows)
    pace._end -= 100.0
    assert not list(rows)


def test_steps_that_are_not_captured_are_no_graphs(device: StandIn) -> None:
    device.captures = False
    found = measured("streams")
    assert found["16: eager"]["status"] == "ok"
    for name in ("one graph", "2 replicas"):
        assert "captured" in found[f"16: {name}"]["status"]
        assert found[f"16: {name}"]["measured"] is None
    assert found["16: eager"]["ratio"] is None


def test_a_loss_that_is_not_reached(device: StandIn) -> None:
    rows = open_data(TINY.rows)
    with pytest.raises(TrainingError, match="after 2 epochs, 0.00000 was asked"):
        gpu_linear.to_loss(rows, 1e-9, 2, {"device": "cuda"})
    found = gpu_linear.to_loss(rows, 10.0, 2, {"device": "cuda"})
    assert found["seconds"] > 0
    assert found["epochs"] == 1


# ---- the processes

CHILD = """
import json, os, signal, sys, time
skipped = [word[7:] for word in sys.argv if word.startswith("--skip=")]
part = sys.argv[sys.argv.index("--part") + 1]
def say(what, status, **more):
    print(json.dumps({"section": "gpu", "part": part, "what": what, "status": status, "round": 1} | more), flush=True)
say("device", "ok")
for name, end in {"faulty": lambda: sys.exit(3), "gone": lambda: os.kill(os.getpid(), signal.SIGKILL)}.items():
    if name not in skipped:
        say(name, "began")
        if name == "faulty":
            say(name, "failed: a fault")
        end()
say("good", "began")
if part == "slow":
    time.sleep(60)
say("good", "ok", seconds=0.5, work=1)
"""


def test_another_process_goes_on_after_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-c", CHILD]
    found = [(row["what"], row["status"]) for row in door.follow("streams", 100.0, command) if row["what"] != "device"]
    assert found == [
        ("faulty", "failed: a fault"), ("gone", "failed: the process ended with status -9"), ("good", "ok"),
    ]  # fmt: skip
    monkeypatch.setattr(door, "GRACE", 2.0)  # in which a busy machine starts Python
    *_, last = door.follow("slow", 0.0, [*command, "--skip=faulty", "--skip=gone"])
    assert last["status"] == "failed: took more than 2 s"


def test_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def follow(part: str, seconds: float, command: list[str]) -> Iterator[Row]:
        asked.append((part, seconds, command[3:]))
        yield {"section": "gpu", "part": part, "what": "it", "round": 1, "status": status, "seconds": 0.5, "work": 2}

    monkeypatch.setattr(door, "follow", follow)
    path = tmp_path / "rows.jsonl"
    for code in (0, 1):
        asked: list[Any] = []
        status = "failed: it differs" if code else "ok"
        assert door.main(["--quick", "--json", str(path)]) == code
        assert [part for part, *_ in asked] == ["correctness", "streams", "linear", "completion"]
        assert sum(seconds for _, seconds, _ in asked) < 600 * 2
        assert asked[0][1:] == (600 / 8, ["--quick"])
    kept = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["measured"] for row in kept if row.get("summary")] == [None, 4, 4, 4, *[None] * 4]
    assert len(kept) == 16
    assert door.main(["--part", "linear", "--seconds", "7", "--json", str(path)]) == 0
    assert asked[-1] == ("linear", 7.0, [])


def test_sizes_are_whole_minibatches() -> None:
    for size in (FULL, QUICK):
        assert size.samples % (REPLICAS[-1] * 128) == 0


def test_driver(tmp_path: Path) -> None:
    path = tmp_path / "version"
    assert suite.driver(path) is None
    path.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  565.57.01  Release Build\nGCC version: 12\n"
    )
    assert suite.driver(path) == "565.57.01"


# ---- a bare machine

BARE = """
import importlib, importlib.abc, importlib.machinery, sys
from pathlib import Path

OURS = {"numpy", "torch", "triton", "numba", "llvmlite", "hogwild", "tests"}
TORCHS = {"filelock", "typing_extensions", "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "fsspec",
          "setuptools", "_distutils_hack", "pkg_resources", "torchgen", "functorch", "isympy", "nvidia", "cuda"}

class Bare(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        found = super().find_spec(name, path, target)
        if found is not None and path is None and name not in OURS | TORCHS:
            if "site-packages" in str(found.origin or found.submodule_search_locations):
                return None
        return found

sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = Bare
root = Path(sys.argv[1])
for part in ("cuda", "bench/gpu"):
    for path in sorted((root / "hogwild" / part).rglob("*.py")):
        if path.name not in ("triton.py", "losses.py", "order.py") or importlib.util.find_spec("triton"):
            importlib.import_module(".".join(path.relative_to(root).with_suffix("").parts))

from hogwild.bench.gpu import suite
from tests.bench.tiny_gpu import take_place
from tests.cuda.standin import StandIn

take_place(setattr, StandIn(3))
for part in ("streams", "linear", "completion"):
    failed = [row for row in suite.measure(part, 1000.0, True) if row["status"] not in ("ok", "began")]
    assert not failed, failed
for name in ("platformdirs", "typer", "rich", "scipy", "sklearn"):
    assert name not in sys.modules, name
"""


def test_numpy_torch_triton_and_numba_are_enough(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    command = [sys.executable, "-W", "ignore", "-c", BARE, str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


# ---- without a GPU


@without_gpu
def test_no_gpu_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(HogwildError, match="^device cuda: "):
        list(suite.measure("streams", 1.0))
    assert door.main(["--json", str(tmp_path / "rows.jsonl")]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "error: device cuda: " in err


@without_gpu
@pytest.mark.parametrize("python", [None, "/no/such/python"])
def test_the_script_without_a_gpu(python: str | None, tmp_path: Path) -> None:
    settings = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)} | ({"PYTHON": python} if python else {})
    command = [ROOT / "scripts" / "bench-gpu", "--quick"]
    done = subprocess.run(command, cwd="/", env=settings, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "no GPU" in done.stderr


@pytest.mark.parametrize("complete", [True, False])
def test_the_script_takes_a_torch_that_finds_a_gpu_as_it_is(complete: bool, tmp_path: Path) -> None:
    fake = tmp_path / "python"
    lacks = "" if complete else """[[ "$2" == *hogwild* ]] && { echo "ModuleNotFoundError: no numba" >&2; exit 1; };"""
    fake.write_text(f'#!/bin/bash\nif [ "$1" = -c ]; then {lacks} exit 0; fi\necho "$PYTHONPATH $*"\n')
    fake.chmod(0o755)
    settings = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHON": str(fake)}
    command = [ROOT / "scripts" / "bench-gpu", "--quick"]
    done = subprocess.run(command, cwd="/", env=settings, capture_output=True, text=True, timeout=300)
    if complete:
        assert (done.returncode, done.stdout) == (0, f"{ROOT} -m hogwild.bench.gpu --quick\n")
    else:
        assert (done.returncode, done.stdout) == (1, "")
        assert "cannot run the benchmark: ModuleNotFoundError: no numba: run" in done.stderr
