"""``python -m hogwild.bench.gpu``: measures this machine's NVIDIA GPU; ``scripts/bench-gpu`` finds a Python for it.

Each part runs in a process of its own, which gives away a row for every timing. Rows are written to a file when they
come, and figures printed when a part has ended, or is interrupted. When a process meets a fault of the device, or dies,
another goes on without the side that was at work. It needs nothing but numpy, numba and a CUDA build of torch, which
brings Triton.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from time import monotonic

from hogwild.bench.gpu.sides import BEGAN, FAILED, Row
from hogwild.bench.gpu.suite import PARTS, measure, works
from hogwild.bench.gpu.summary import summary, table
from hogwild.errors import HogwildError
from hogwild.json_rows import RowsFile, to_json

#: Of the time; what a part leaves is the next ones'. The first compiles kernels of Numba's, for the CPU, and Triton's.
SHARES = {"correctness": 3.0, "streams": 2.0, "linear": 2.5, "completion": 2.5}
GRACE = 20.0  # seconds beyond its time after which a process is ended
AGAIN = 30.0  # seconds that must be left to start another
FAULT, REFUSED, INTERRUPTED = 3, 4, 130  # exit statuses: after a fault of the device; a line says why; by Ctrl-C
SECONDS = 560.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the parts that are asked for and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m hogwild.bench.gpu", description="Measure an NVIDIA GPU.")
    parser.add_argument("--part", choices=PARTS, action="append", help="a part to measure, may be repeated")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for all that is measured (default: 560)")
    parser.add_argument("--quick", action="store_true", help="smaller data")
    parser.add_argument("--json", default="gpu-rows.jsonl", metavar="ROWS", help="rows are appended to this file")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--skip", action="append", default=[], help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    parts = [name for name in PARTS if not given.part or name in given.part]
    try:
        if given.here:
            return here(parts[0], given.seconds, given.quick, tuple(given.skip))
        with closing(RowsFile(given.json, append=True)) as file:
            return in_turn(parts, given.seconds, given.quick, file)
    except HogwildError as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED if given.here else 1


def in_turn(parts: Sequence[str], left: float, quick: bool, file: RowsFile) -> int:
    """Measure the parts, each in processes of its own, and return the exit status."""
    status, command = 0, [sys.executable, "-m", "hogwild.bench.gpu", *["--quick"] * quick]
    for number, part in enumerate(parts):
        share = SHARES[part] / sum(SHARES[name] for name in parts[number:])
        begin, rows = monotonic(), list[Row]()
        try:
            for row in follow(part, share * left, command):
                file.write(row)
                rows.append(row)
        except KeyboardInterrupt:
            status = INTERRUPTED
        figures = summary(rows)
        file.write_all(figures)
        if figures:
            print(f"{part}\n{table(figures)}\n", flush=True)
        if not rows or status == INTERRUPTED:
            return status or 1  # the child has said why there is no row
        status |= part == "correctness" and any(row["status"] != "ok" for row in figures)
        left -= monotonic() - begin
    return status


def here(part: str, seconds: float, quick: bool, skipped: tuple[str, ...]) -> int:
    """Measure a part in this process and write its rows to the standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    for row in measure(part, seconds, quick, skipped):
        print(to_json(row), flush=True)
        if row["status"].startswith(FAILED) and not works():
            os._exit(FAULT)  # nothing can be freed any more, and trying to may never end
    return 0


def follow(part: str, seconds: float, command: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of a part, measured in processes that end within ``seconds`` and a little more."""
    end, skipped = monotonic() + seconds, list[str]()
    while True:
        left = end - monotonic()
        options = ["--here", "--part", part, "--seconds", f"{left:.0f}", *(f"--skip={name}" for name in skipped)]
        child = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
        out_of_time = threading.Event()
        timer = threading.Timer(left + GRACE, lambda child=child, event=out_of_time: (event.set(), child.kill()))
        timer.start()
        last: Row = {"section": "gpu", "part": part, "what": part, "round": 0, "status": BEGAN}
        try:
            assert child.stdout is not None
            for line in child.stdout:
                if not (line.startswith("{") and line.endswith("\n")):  # a library's words, or a row that was cut off
                    sys.stderr.write(line)
                    continue
                last = json.loads(line)
                if last["status"] == BEGAN:
                    print(f"{part}: {last['what']}, round {last['round']}", file=sys.stderr, flush=True)
                else:
                    yield last
        finally:
            timer.cancel()
            late = out_of_time.is_set()
            child.kill()
            child.communicate()
        status = child.returncode
        if status in (0, REFUSED):
            return
        if not last["status"].startswith(FAILED):
            reason = f"took more than {left + GRACE:.0f} s" if late else f"the process ended with status {status}"
            yield last | {"what": last["what"] if last["status"] == BEGAN else part, "status": FAILED + reason}
        if last["what"] == part or last["status"] == "ok" or late or end - monotonic() < AGAIN:
            return  # it was at no side's work
        skipped.append(last["what"])


if __name__ == "__main__":
    sys.exit(main())
