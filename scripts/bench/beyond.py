"""Data larger than memory: a click log trained from a store by two workers in 4 GB, beside Vowpal Wabbit's single pass.

    python scripts/bench/beyond.py [--rows 72000000] [--folder beyond] [--keep]

The log, 25 GB of text by default, has 13 numbers and 26 ids a row, as many and as popular as Criteo's. It is piped in
parts into ``hogwild convert``, and nothing of it is kept but the store. The clicks are drawn from planted effects, so
the floor, the log loss of the probabilities themselves, is known on the rows that are held out. When the store has been
trained on and deleted, the same rows are piped into VW, which makes its cache of them (off the clock, by --noop) and
then learns from the cache alone. Neither finds its file in the page cache.

Every program runs in a memory control group with the limit, where this user may make one (version 1 or 2); elsewhere it
is only measured. Anonymous memory includes shared parameters; the cache is what the group holds of files. ``--keep``
leaves store and cache in the folder, and the same command then only measures.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from hogwild.machine import memory_of

IDS = [1460, 583, 1 << 20, 1 << 20, 305, 24, 12517, 633, 3, 93145, 5683, 1 << 20, 3194, 27, 14992, 1 << 20, 10, 5652]
IDS += [2173, 4, 1 << 20, 18, 15, 286181, 105, 142572]  # Criteo's, at most a million each
NUMBERS = 13
WIDTH = NUMBERS + sum(IDS)
OFFSETS = np.cumsum([NUMBERS + 1, *IDS[:-1]]).astype(np.uint64)  # svmlight counts from 1
EFFECT, BIAS = 0.3, -1.2  # deviation of a feature's effect on the margin; a third of the rows are clicks
PART = 1 << 15  # rows in a part of the text
ROW_BYTES = 400  # of text at most
STORED = 330  # bytes of a row in a store, and at most in VW's cache
SPARE = 15 << 30  # bytes of the disk that are left free
BITS = 23  # of VW: more weights than features
LOOK = 0.05  # seconds between two looks at the memory
VW = """
import sys
from vowpalwabbit import Workspace
vw = Workspace(sys.argv[1])
print(vw.get_sum_loss() / max(vw.get_weighted_examples(), 1))
vw.finish()
"""


# ---- the log


@njit(nogil=True, error_model="numpy")
def mix(x):
    """splitmix64: the random bits of a number."""
    x += np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(nogil=True, error_model="numpy")
def effect(feature):
    """About normal: four uniform numbers."""
    z = mix(feature + np.uint64(1 << 40))
    low = np.uint64(0xFFFF)
    total = (z & low) + ((z >> np.uint64(16)) & low) + ((z >> np.uint64(32)) & low) + (z >> np.uint64(48))
    return EFFECT * (np.float64(total) - 131070.0) / 37837.0


@njit(nogil=True, error_model="numpy")
def put(out, at, number):
    """Write a decimal number; return where it ends."""
    number = np.uint32(number)
    end, top = at + 1, 10
    while number >= top:
        end, top = end + 1, 10 * top
    for k in range(end - 1, at - 1, -1):
        tenth = number // np.uint32(10)
        out[k] = 48 + number - np.uint32(10) * tenth
        number = tenth
    return end


@njit(nogil=True, error_model="numpy")
def write_rows(first, count, sizes, octaves, offsets, vw, out, sums):
    """Write rows as svmlight or VW's text; add their planted loss and their clicks to ``sums``; return the bytes."""
    at = 0
    for row in range(first, first + count):
        sign, margin = at, BIAS
        out[at + 1], out[at + 2] = 49, 32  # "1 "
        at += 3
        if vw:
            out[at], out[at + 1] = 124, 32  # "| "
            at += 2
        for k in range(NUMBERS + len(sizes)):
            z = mix(np.uint64(row) * np.uint64(64) + np.uint64(k))
            if k < NUMBERS:  # small ones are the most frequent: 0.01 to 0.99
                u = np.uint32(z >> np.uint64(40)) / 16777216.0
                hundredths = np.uint32(1 + 99 * u * u)
                margin += (hundredths / 100.0 - 0.34) * effect(np.uint64(k + 1))
                at = put(out, at, k + 1)
                out[at], out[at + 1], out[at + 2] = 58, 48, 46  # ":0."
                out[at + 3], out[at + 4] = 48 + hundredths // 10, 48 + hundredths % 10
                at += 5
            else:  # Zipf's law: one of the powers of two, and evenly between it and the next
                power = ((z >> np.uint64(32)) * octaves[k - NUMBERS]) >> np.uint64(32)
                below = (np.uint64(1) << power) - np.uint64(1)
                feature = offsets[k - NUMBERS] + (below + (z & below)) % sizes[k - NUMBERS]
                margin += effect(feature)
                at = put(out, at, feature)
                out[at], out[at + 1] = 58, 49  # ":1"
                at += 2
            out[at] = 32
            at += 1
        out[at - 1] = 10
        p = 1.0 / (1.0 + math.exp(-margin))
        click = (mix(np.uint64(row) * np.uint64(64) + np.uint64(63)) >> np.uint64(11)) * 2.0**-53 < p
        out[sign] = 43 if click else 45
        sums[0] -= math.log(p if click else 1.0 - p)
        sums[1] += click
    return at


def text(first: int, last: int, vw: bool, sums: np.ndarray) -> Iterator[memoryview]:
    """The rows ``first <= i < last`` in parts; the next part is made while one is written."""
    buffers = [np.empty(ROW_BYTES * PART, np.uint8) for _ in range(2)]
    fields = np.array(IDS, np.uint64), np.array([size.bit_length() for size in IDS], np.uint64), OFFSETS

    def make(k: int, begin: int) -> memoryview:
        size = write_rows(begin, min(PART, last - begin), *fields, vw, buffers[k % 2], sums)
        return memoryview(buffers[k % 2])[:size]

    with ThreadPoolExecutor(1) as pool:
        coming = None
        for k, begin in enumerate(range(first, last, PART)):
            part, coming = coming, pool.submit(make, k, begin)
            if part is not None:
                yield part.result()
        if coming is not None:
            yield coming.result()


# ---- memory


class Group:
    """A memory control group of its own with a limit; without the right to make one, only its members are known."""

    def __init__(self, limit: int) -> None:
        self.folder: Path | None = None
        for line in reversed(Path("/proc/self/cgroup").read_text().splitlines()):
            _, names, path = line.split(":", 2)
            if names in ("", "memory"):
                root = Path("/sys/fs/cgroup", names)
                above = root / path[1:] if (root / path[1:]).exists() else root
                self.v2 = not names
                folder = above / f"hogwild-beyond-{os.getpid()}"
                if not (above / "memory.stat").exists():
                    continue
                with contextlib.suppress(OSError):
                    folder.mkdir()
                    self.folder = folder
                    (folder / ("memory.max" if self.v2 else "memory.limit_in_bytes")).write_text(str(limit))
                    return
                self.close()

    def enter(self) -> None:
        if self.folder is not None:
            (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def memory(self, pid: int) -> tuple[int, int]:
        """Bytes of anonymous and shared memory, and of the page cache (0 without a group)."""
        if self.folder is None:
            return sum(map(own_bytes, family(pid))), 0
        lines = (line.split() for line in (self.folder / "memory.stat").read_text().splitlines())
        stat = {name: int(value) for name, value in lines}
        names = ("anon", "file") if self.v2 else ("total_rss", "total_cache")
        anonymous, files = (stat[name] for name in names)
        shared = stat.get("shmem", 0)
        return anonymous + shared, files - shared

    def close(self) -> None:
        if self.folder is not None:
            for _ in range(50):  # until the last member is gone
                with contextlib.suppress(OSError):
                    self.folder.rmdir()
                    break
                time.sleep(0.1)
        self.folder = None


def family(pid: int) -> Iterator[int]:
    """A process and its descendants."""
    yield pid
    for each in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in each.read_text().split():
                yield from family(int(child))


def own_bytes(pid: int) -> int:
    """A process's anonymous memory and its share of what it shares."""
    return round(1e6 * sum(memory_of(pid, "smaps_rollup", field) for field in ("Pss_Anon", "Pss_Shmem")))


def forget(folder: Path) -> None:
    """Have the page cache forget the files of a folder."""
    for path in folder.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


# ---- programs


@dataclass
class Done:
    """What a program printed, and how long and how much memory it took."""

    output: str
    seconds: float
    anonymous: int
    cache: int
    floor: float  # planted log loss of the rows that it was given
    bytes: int  # of their text

    def line(self, what: str, rows: int, more: str = "") -> None:
        speed = f"{rows / self.seconds:>9,.0f} rows/s"
        memory = f"{self.anonymous / 2**20:>6,.0f} MB own, {self.cache / 2**20:>6,.0f} MB of files"
        print(f"{what:<34} {self.seconds:>7.1f} s  {speed}  {memory}{more}", flush=True)


def run(group: Group, command: list[str], first: int = 0, last: int = 0, vw: bool = False) -> Done:
    """Run a program in the group, and pipe rows into it."""
    began, sums, written = time.perf_counter(), np.zeros(2), 0
    peaks = [0, 0]
    program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=group.enter)
    assert program.stdin is not None

    def watch() -> None:
        while program.poll() is None:
            for k, size in enumerate(group.memory(program.pid)):
                peaks[k] = max(peaks[k], size)
            time.sleep(LOOK)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        with contextlib.suppress(BrokenPipeError):  # its exit status says why
            for part in text(first, last, vw, sums):
                program.stdin.write(part)
                written += len(part)
        output = program.communicate()[0].decode()
    finally:
        program.kill()
        program.wait()
    seconds = time.perf_counter() - began
    watcher.join()
    if program.returncode:
        raise SystemExit(f"{' '.join(command[:4])} ...: exit status {program.returncode} (-9: out of memory)")
    return Done(output, seconds, *peaks, float(sums[0]) / max(last - first, 1), written)


def hogwild(*words: Any) -> list[str]:
    return [sys.executable, "-m", "hogwild", *map(str, words)]


def measure(given: argparse.Namespace, group: Group) -> None:
    folder, rows, last = given.folder, given.rows, given.rows + given.held_out
    store, held = folder / "clicks.store", folder / "held.store"
    convert = [hogwild("convert", "/dev/stdin", path, "--features", WIDTH, "--quiet") for path in (store, held)]
    done = run(group, [*convert[1], "--overwrite"], rows, last)
    floor = done.floor
    print(
        f"{rows:,} rows of {NUMBERS + len(IDS)} features of {WIDTH:,}; planted floor {floor:.4f} on {given.held_out:,}"
    )
    if not store.exists():
        done = run(group, convert[0], 0, rows)
        done.line("text piped into hogwild convert", rows, f", {done.bytes / 1e9:.1f} GB of text")
    forget(store)
    measured = folder / "rows.jsonl"
    words = hogwild("train", store, "--test", held, "--json", measured, "--quiet", "--out", folder / "model.hogwild")
    done = run(group, [*words, *given.train.split()])
    row = json.loads(measured.read_text().splitlines()[-1])
    done.line("hogwild train, all of it", rows, f", held-out loss {row['test_loss']:.4f}")
    print(
        f"{'':<34} {row['train_seconds']:>7.1f} s  {rows * row['epoch'] / row['train_seconds']:>9,.0f} rows/s trained"
    )
    if not given.keep:
        shutil.rmtree(store)
    if not given.vw:
        return
    cache = folder / "vw"
    cache.mkdir(exist_ok=True)
    name, model, common = cache / "clicks.cache", folder / "model.vw", f"--quiet --holdout_off -b {BITS}"
    python = [sys.executable, "-c", VW]
    if not name.exists():
        done = run(group, [*python, f"{common} --noop -d /dev/stdin --cache_file {name}"], 0, rows, vw=True)
        done.line("text piped into VW, its cache made", rows)
    forget(cache)
    loss = f"{common} --loss_function logistic"
    passed = run(group, [*python, f"{loss} --cache_file {name} --passes 1 -f {model} {given.vw_options}"])
    tested = run(group, [*python, f"{loss} -t -i {model} -d /dev/stdin"], rows, last, vw=True)
    passed.line("VW, one pass over its cache", rows, f", held-out loss {float(tested.output):.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=72_000_000)
    parser.add_argument("--held-out", type=int, default=500_000, help="rows after them, on which both are judged")
    parser.add_argument("--limit", type=float, default=4.0, help="of memory, in GB")
    parser.add_argument("--folder", type=Path, default=Path("beyond"), help="made, and removed again (default: beyond)")
    parser.add_argument("--keep", action="store_true", help="leave store and cache there for another measurement")
    parser.add_argument(
        "--train", default="--workers 2 --epochs 1 --adagrad --step 0.1 --l2 1e-7", help="options of hogwild train"
    )
    parser.add_argument("--vw-options", default="", help="more options of VW's pass")
    parser.add_argument("--no-vw", dest="vw", action="store_false")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    kept = given.folder.exists()
    given.folder.mkdir(parents=True, exist_ok=True)
    group = Group(int(given.limit * 1e9))
    try:
        needed = 0 if kept else STORED * given.rows * (1 + (given.keep and given.vw)) + SPARE
        if (free := shutil.disk_usage(given.folder).free) < needed:
            raise SystemExit(f"{given.folder}: {free >> 30} GiB are free, {needed >> 30} needed: give fewer --rows")
        if group.folder is None:
            print("no control group may be made here: memory is measured, not limited")
        measure(given, group)
    finally:
        group.close()
        if not given.keep:
            shutil.rmtree(given.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
