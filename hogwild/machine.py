"""Facts about this machine: cores this process may use, caches, memory, versions.

The default number of workers is that of *physical* cores, since two hyper-threads share one core's caches and load
ports; a container's CPU quota counts as well. Everything comes from /proc and /sys in a few milliseconds. A fact that
cannot be read is None or left out, so reading facts never raises.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import platform
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hogwild.errors import InputError

CPUS = Path("/sys/devices/system/cpu")
GROUPS = Path("/sys/fs/cgroup")
USUAL_L2 = 1 << 20  # bytes
USUAL_PERIOD = 100_000  # microseconds of a quota of version 1, whose period is in a file of its own
_calls = itertools.count()  # of cpus_of, in this process
PACKAGES = ("numpy", "numba", "torch", "scipy", "scikit-learn", "safetensors")


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def cpu_model() -> str:
    """The processor's name as the kernel reports it."""
    for line in _text("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def cpu_quota() -> float | None:
    """CPU time that control groups grant, in cores, or None without a limit."""
    quotas = []
    for text in _limits("cpu", "cpu.max", "cpu.cfs_quota_us"):
        quota, _, period = text.partition(" ")  # in microseconds; "max" or -1 without a limit
        if quota.isdigit():
            quotas.append(int(quota) / int(period or USUAL_PERIOD))
    return min(quotas, default=None)


def physical_cores() -> int:
    """Physical cores that this process may use, by its affinity and the control group's quota."""
    cores = len(one_cpu_a_core())
    return min(cores, math.ceil(cpu_quota() or cores))


def worker_counts(cores: int) -> tuple[int, ...]:
    """Return 1, 2, 4 ... and, last, all cores."""
    return tuple(sorted({*(1 << k for k in range(cores.bit_length())), cores}))


def one_cpu_a_core() -> list[int]:
    """One usable CPU of each physical core, for pinning."""
    cores: dict[str, int] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        cores.setdefault(_text(CPUS / f"cpu{cpu}/topology/thread_siblings_list") or f"cpu{cpu}", cpu)
    return list(cores.values())


def cpus_of(workers: int) -> list[int | None]:
    """Assign each worker a CPU of its own physical core; None, no pinning, with too few cores or for one worker.

    The process number chooses among disjoint groups of cores, and each call takes the next group, so that runs of
    several processes, and of several threads of one, rarely meet on the same cores while others are idle. Two runs of
    one worker would share a core, and it has nobody to be apart from.
    """
    cpus = one_cpu_a_core()
    if not 1 < workers <= len(cpus):
        return [None] * workers
    first = (os.getpid() + next(_calls)) % (len(cpus) // workers) * workers
    return [*cpus[first : first + workers]]


def pin(cpu: int | None) -> None:
    """Pin the calling thread to a CPU that :func:`cpus_of` gave it; not if there is none, or it is no longer usable."""
    if cpu is not None:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {cpu})


def caches() -> dict[str, str]:
    """Size of each cache that the first usable CPU sees, such as ``{"L2": "2048K"}``."""
    sizes = {}
    for index in sorted((CPUS / f"cpu{min(os.sched_getaffinity(0))}/cache").glob("index*")):
        kind, level, size = (_text(index / name) for name in ("type", "level", "size"))
        if kind and level and size:
            sizes[f"L{level}" + {"Data": "d", "Instruction": "i"}.get(kind, "")] = size
    return sizes


def cache_bytes(level: str | None = None) -> int | None:
    """Size of one cache, such as "L2", or of the largest if no name is given. None if it is unknown."""
    sizes = {name: int(text[:-1]) << 10 for name, text in caches().items() if text.endswith("K")}  # as Linux writes all
    return max(sizes.values(), default=None) if level is None else sizes.get(level)


def crowded(workers: int, cores: int) -> str:
    """The warning for more workers than cores."""
    return f"{workers} workers share {cores} core{'s' * (cores > 1)}: expect no speed-up"


def l2_bytes() -> int:
    """Size of the L2 cache; if unknown, a typical size that is rather too small than too large."""
    return cache_bytes("L2") or USUAL_L2


def memory() -> tuple[int | None, int | None]:
    """``(total, available)`` bytes; a lower limit of a control group replaces the total."""
    facts = {}
    for line in _text("/proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if rest.split():
            facts[name] = int(rest.split()[0]) * 1024
    total, available = facts.get("MemTotal"), facts.get("MemAvailable")
    for limit in _limits("memory", "memory.max", "memory.limit_in_bytes"):
        if total and limit.isdigit() and int(limit) < total:
            total = int(limit)
            available = min(available or total, total)
    return total, available


def _limits(resource: str, file: str, old: str) -> Iterator[str]:
    """Limits of this process's control group and of those around it, as files of version 2 or 1 (``old``) have them.

    In a container the path that the kernel tells may be one outside of it; the root is its own group then.
    """
    for line in _text("/proc/self/cgroup").splitlines():
        _, _, named = line.partition(":")
        controllers, _, path = named.partition(":")
        if resource in (controllers or resource).split(","):
            for group in (Path(path), *Path(path).parents):
                place = GROUPS / (resource if controllers else "") / str(group).lstrip("/")
                yield _text(place / (old if controllers else file))


def memory_of(process: int | str, file: str, field: str) -> float:
    """MB of a process by a field of its file in /proc, such as "status" and "VmHWM", its peak; 0 if it ended."""
    found = re.search(rf"^{field}:\s+(\d+) kB", _text(f"/proc/{process}/{file}"), re.MULTILINE)
    return 1024e-6 * int(found[1]) if found else 0.0


def check_memory(label: str, needed: int, hint: str = "") -> None:
    """Raise InputError, ``label need ... GiB of memory or more``, if that many bytes are not available.

    One wrong number in a file is enough for that, and the system would kill the process without a message.
    """
    available = memory()[1]
    if available is not None and needed > available:
        there = f"{available / 2**30:.1f} GiB are available"
        raise InputError(f"{label} need {needed / 2**30:.1f} GiB of memory or more, and {there}{hint}")


@lru_cache(None)
def versions() -> Mapping[str, str]:
    """Versions of Python and of the packages that affect speed and results, read without importing them."""
    numbers = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            numbers[name] = metadata.version(name)
    return MappingProxyType(numbers)  # shared by all callers


def machine_fields() -> dict[str, Any]:
    """Short, flat fields about the machine for a run's first row."""
    return {
        "cpu": cpu_model(),
        "cores": physical_cores(),
        "load": round(os.getloadavg()[0], 2),
        **{f"version_{name}": version for name, version in versions().items()},
    }
