"""The GPU's benchmark on a stand-in for one: all is measured, figures go together, what fails keeps its place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hogwild.bench.gpu import __main__ as door
from hogwild.bench.gpu import suite, timings
from hogwild.bench.gpu.sides import BEGAN, LATE, Pace, Side, Timings, race
from hogwild.bench.gpu.summary import summary, table
from hogwild.bench.gpu.timings import FULL, QUICK, REPLICAS, update_bytes
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
    one = found["16: one graph"]
    assert one["ratio"] == 1
    assert [row["kind"] for row in found.values()] == ["one", *["replicas"] * 3, "synchronous", "locked"]
    assert [row["workers"] for row in found.values()] == [1, 4, 8, 16, 1, 8]  # more than torch has streams
    for row in found.values():
        assert (row["status"], row["epochs"], row["rounds"]) == ("ok", 2, 2)
        assert row["measured"] == pytest.approx(TINY.samples / row["seconds"])
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
    """A side whose timings fail at the ``last``; ``closed`` says whether it has been."""

    def __init__(self, last: int = 99, error: Exception | None = None) -> None:
        self.left, self.error, self.closed = last, error, False

    def timings(self) -> Timings:
        try:
            while self.left > 0:
                self.left -= 1
                yield {"seconds": 0.5, "loss": 0.25}
            raise self.error or TrainingError("diverged")
        finally:
            self.closed = True


def refused() -> Timings:
    """A side that does not begin."""
    raise InputError("not this one")
    yield {}


def test_what_fails_keeps_its_place_and_the_rest_goes_on() -> None:
    full, good, about = Steady(1, torch.OutOfMemoryError("out of\nmemory")), Steady(), {"rival": "good"}
    three = {name: Side(one.timings(), 3, about) for name, one in (("full", full), ("good", good))}
    three = {"refused": Side(refused(), 3, {})} | three
    rows = []
    for row in race("p", three, Pace(100.0)):
        if row["status"] != BEGAN:
            rows.append(row)
        assert full.closed == (len(rows) > 3)  # at once
    assert [row["what"] for row in rows] == ["refused", "full", "good", "full", *["good"] * 3]
    assert rows[0]["status"] == "failed: InputError: not this one"
    assert rows[3]["status"] == "failed: OutOfMemoryError: out of memory"
    assert good.closed
    figures = {row["what"]: row for row in summary(rows)}
    assert figures["full"]["measured"] is figures["refused"]["measured"] is None
    assert (figures["good"]["measured"], figures["good"]["ratio"], figures["good"]["worse"]) == (6.0, 1.0, 0.0)
    assert "out of memory" in table(figures.values())


def test_what_there_is_no_time_for_says_so() -> None:
    [row] = race("p", {"a": Side(Steady().timings(), 1, {})}, Pace(-1.0))
    assert row["status"] == LATE
    pace = Pace(100.0)
    rows = race("p", {"a": Side(Steady().timings(), 1, {})}, pace)
    next(rows), next(rows)
    pace.end -= 100.0
    assert not list(rows)  # no timing is begun that would not end
    left = race("p", {"bad": Side(refused(), 1, {}), "other": Side(Steady().timings(), 1, {})}, Pace(9.0, ("bad",)))
    assert {row["what"] for row in left} == {"other"}


def test_steps_that_are_not_captured_are_no_graphs(device: StandIn) -> None:
    device.captures = False
    found = measured("streams")
    for name in ("one graph", "4 replicas"):
        assert "captured" in found[f"16: {name}"]["status"]
        assert found[f"16: {name}"]["measured"] is None


def test_a_loss_that_is_not_reached(device: StandIn) -> None:
    rows = open_data(TINY.rows)
    with pytest.raises(TrainingError, match="after 2 epochs, 0.00000 was asked"):
        next(timings.to_loss(rows, 1e-9, 2, {"device": "cuda"}))
    found = next(timings.to_loss(rows, 10.0, 2, {"device": "cuda"}))
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
print("a library's greeting", flush=True)
if part == "slow":
    print('{"what": "go', end="", flush=True)
    time.sleep(60)
say("good", "ok", seconds=0.5, work=1)
"""


def test_another_process_goes_on_after_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-c", CHILD]
    found = [(row["what"], row["status"]) for row in door.follow("streams", 100.0, command) if row["what"] != "device"]
    assert found == [
        ("faulty", "failed: a fault"),
        ("gone", "failed: the process ended with status -9"),
        ("good", "ok"),
    ]
    monkeypatch.setattr(door, "GRACE", 2.0)  # in which a busy machine starts Python
    *_, last = door.follow("slow", 0.0, [*command, "--skip=faulty", "--skip=gone"])
    assert last["status"] == "failed: took more than 2 s"


@pytest.mark.parametrize("first", ["", "print(json.dumps({'what': 'device', 'status': 'ok'}), flush=True);"])
def test_a_process_that_fails_at_no_sides_work_is_not_started_again(first: str) -> None:
    command = [sys.executable, "-c", f"import json; {first} raise ImportError('no such module')"]
    *_, last = door.follow("streams", 100.0, command)
    assert (last["what"], last["status"]) == ("streams", "failed: the process ended with status 1")


def test_a_fault_ends_the_process_at_once(
    device: StandIn, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing is closed: what is freed after a fault fails too, and that must not hide it."""
    bad, other = Steady(0, RuntimeError("CUDA error: an illegal memory access was encountered")), Steady()
    both = {"other": Side(other.timings(), 1, {}), "bad": Side(bad.timings(), 1, {})}
    monkeypatch.setitem(suite.PARTS, "streams", lambda size, pace: race("streams", both, pace))
    monkeypatch.setattr(door, "works", lambda: False)
    monkeypatch.setattr(door.signal, "signal", lambda *_: None)
    ended: list[Any] = []

    def leave(code: int) -> None:
        ended.append((code, other.closed))
        raise SystemExit(code)

    monkeypatch.setattr(door.os, "_exit", leave)
    with pytest.raises(SystemExit):
        door.main(["--here", "--part", "streams", "--quick"])
    assert ended == [(door.FAULT, False)]
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert "illegal memory access" in rows[-1]["status"]


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
        assert all(seconds <= door.SECONDS for _, seconds, _ in asked)
        assert asked[0][1:] == (door.SECONDS * 0.3, ["--quick"])
    kept = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["measured"] for row in kept if row.get("summary")] == [4] * 4 + [None] * 4
    assert len(kept) == 16
    assert door.main(["--part", "linear", "--seconds", "7", "--json", str(path)]) == 0
    assert asked[-1] == ("linear", 7.0, [])
    capfd.readouterr()
    assert door.main(["--json", str(tmp_path)]) == 1
    assert capfd.readouterr().err.startswith(f"error: --json {tmp_path}: cannot write there")


def test_what_was_taken_before_an_interrupt_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def follow(part: str, seconds: float, command: list[str]) -> Iterator[Row]:
        yield {"section": "gpu", "part": part, "what": "it", "round": 1, "status": "ok", "seconds": 0.5, "work": 2}
        raise KeyboardInterrupt

    monkeypatch.setattr(door, "follow", follow)
    path = tmp_path / "rows.jsonl"
    assert door.main(["--json", str(path)]) == door.INTERRUPTED
    assert [json.loads(line)["part"] for line in path.read_text().splitlines()] == ["correctness"] * 2
    assert "it" in capfd.readouterr().out


STAND_IN = """
import sys
if "hogwild.bench.gpu" in sys.orig_argv:
    from tests.bench.tiny_gpu import take_place
    from tests.cuda.standin import StandIn
    take_place(setattr, StandIn(3))
"""


def test_a_part_from_the_command_to_the_table(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(STAND_IN)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    command = [sys.executable, "-W", "ignore", "-m", "hogwild.bench.gpu", "--part", "streams", "--quick"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout[:8]) == (0, "streams\n"), done.stderr
    kept = [json.loads(line) for line in (tmp_path / "gpu-rows.jsonl").read_text().splitlines()]
    assert [row["status"] for row in kept] == ["ok"] * (1 + 2 * 6 + 6)  # the device, two rounds, the figures
    assert "16: 16 replicas" in done.stdout
    assert "streams: 16: 16 replicas, round 1" in done.stderr


def test_sizes_are_whole_minibatches() -> None:
    for size in (FULL, QUICK):
        assert size.samples % (REPLICAS[-1] * 128) == 0


def test_driver(tmp_path: Path, device: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "version"
    monkeypatch.setattr(suite, "DRIVER", path)
    assert suite.about(device)["gpu_driver"] is None
    path.write_text("NVRM version: NVIDIA UNIX Open Kernel Module  565.57.01  Release Build\nGCC version: 12\n")
    assert suite.about(device)["gpu_driver"].endswith("565.57.01  Release Build")


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
