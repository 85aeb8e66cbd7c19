"""Facts about the machine: consistent with each other, and never an exception where /sys says nothing."""

from __future__ import annotations

import itertools
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from hogwild import machine


@pytest.mark.parametrize(
    ("text", "cores"), [("150000 100000", 1.5), ("max 100000", None), ("", None), ("junk junk", None)]
)
def test_quota(text: str, cores: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_text", lambda path: text)
    assert machine.cpu_quota() == cores


def test_hyperthreads_count_once_and_quota_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3, 4, 5, 6, 7})
    quota = ""

    def topology(path: str | Path) -> str:
        cpu = int(Path(path).parts[-3].removeprefix("cpu")) if "topology" in str(path) else 0
        return f"{cpu % 4},{cpu % 4 + 4}" if "topology" in str(path) else quota

    monkeypatch.setattr(machine, "_text", topology)
    assert machine.physical_cores() == 4
    quota = "250000 100000"
    assert machine.physical_cores() == 3
    monkeypatch.setattr(machine, "_text", lambda path: "")  # no topology: every CPU counts
    assert machine.physical_cores() == 8


def test_nothing_raises_without_proc_and_sys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "_text", lambda path: "")
    monkeypatch.setattr(machine, "CPUS", tmp_path)
    assert machine.memory() == (None, None)
    assert machine.caches() == {}
    assert machine.cpu_model()
    assert machine.machine_fields()["cores"] >= 1


@pytest.mark.parametrize(
    ("groups", "files", "total", "quota"),
    [
        ("0::/\n", {"memory.max": "3000\n", "cpu.max": "150000 100000"}, 3000, 1.5),
        ("0::/a/b\n", {"a/memory.max": "2000", "a/b/memory.max": "max", "memory.max": "4000"}, 2000, None),
        ("0::/a/b\n", {"a/cpu.max": "50000 20000", "a/b/cpu.max": "max 20000", "cpu.max": "8 2"}, 1 << 20, 2.5),
        ("4:memory:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": "1000"}, 1000, None),
        ("2:cpu:/a\n0::/elsewhere\n", {"memory.max": "max", "memory/a/memory.limit_in_bytes": "7"}, 1 << 20, None),
        ("2:cpu,cpuacct:/a\n", {"cpu/a/cpu.cfs_quota_us": "250000", "cpu/cpu.cfs_quota_us": "-1"}, 1 << 20, 2.5),
    ],
)
def test_control_groups_limit_memory_and_cores(
    groups: str, files: dict[str, str], total: int, quota: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(machine, "GROUPS", tmp_path)
    texts = {"/proc/self/cgroup": groups, "/proc/meminfo": "MemTotal: 1024 kB\nMemAvailable: 512 kB\n"}
    texts |= {str(tmp_path / name): text for name, text in files.items()}
    monkeypatch.setattr(machine, "_text", lambda path: texts.get(str(path), "").strip())
    assert machine.memory() == (total, min(512 << 10, total))
    assert machine.cpu_quota() == quota


def test_sizes_of_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "caches", lambda: {"L1d": "48K", "L2": "1024K", "L3": "32768K", "L4": "odd"})
    assert machine.cache_bytes("L2") == 1 << 20
    assert machine.cache_bytes() == 32 << 20
    assert machine.cache_bytes("L4") is machine.cache_bytes("L9") is None
    assert machine.l2_bytes() == 1 << 20
    monkeypatch.setattr(machine, "caches", dict)
    assert machine.cache_bytes() is None
    assert machine.l2_bytes() > 0


def test_each_worker_has_a_core_and_processes_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(10)))
    monkeypatch.setattr(machine, "_text", lambda path: "")
    groups, found = {(0, 1, 2), (3, 4, 5), (6, 7, 8)}, set()
    for number in range(7, 10):
        monkeypatch.setattr(os, "getpid", lambda number=number: number)
        monkeypatch.setattr(machine, "_calls", itertools.count())
        found.add(tuple(machine.cpus_of(3)))
    assert found == groups
    assert {tuple(machine.cpus_of(3)) for _ in range(3)} == groups  # runs in threads of one process
    assert machine.cpus_of(10) == [*range(10)]
    assert (machine.cpus_of(1), machine.cpus_of(11)) == ([None], [None] * 11)


def test_memory_of_a_process() -> None:
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024e-6
    assert (
        20 < machine.memory_of("self", "smaps_rollup", "Pss_Anon") < machine.memory_of(os.getpid(), "status", "VmHWM")
    )
    assert machine.memory_of("self", "status", "VmHWM") <= 1.01 * resident + 1
    assert machine.memory_of(2**30, "status", "VmHWM") == 0.0
