"""``python -m hogwild.bench.gpu``: measures this machine's NVIDIA GPU; ``scripts/bench-gpu`` finds a Python for it.

Each part runs in a process of its own, which gives away a row for every timing. Rows are written to a file when they
come, and figures printed when a part has ended. When a process meets a fault of the device, or dies, another goes on
without the side that was at work. It needs nothing but numpy, numba and a CUDA build of torch, which brings Triton.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from time import monotonic

from hogwild.bench.gpu.sides import BEGAN, Faulty, Row
from hogwild.bench.gpu.suite import PARTS, measure
from hogwild.bench.gpu.summary import summary, table
from hogwild.errors import HogwildError
from hogwild.json_rows import RowsFile, to_json

SHARES = {"correctness": 1.0, "streams": 2.0, "linear": 2.5, "completion": 2.5}  # of the time
GRACE = 20.0  # seconds beyond its time after which a process is ended
AGAIN = 30.0  # seconds that must be left to start another
FAULT, NOTHING = 3, 4  # exit statuses: after a fault of the device; there is none
SECONDS = 600.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the parts that are asked for and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m hogwild.bench.gpu", description="Measure an NVIDIA GPU.")
    parser.add_argument("--part", choices=PARTS, action="append", help="a part to measure, may be repeated")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for all that is measured (default: 600)")
    parser.add_argument("--quick", action="store_true", help="smaller data")
    parser.add_argument("--json", default="gpu-rows.jsonl", metavar="ROWS", help="rows are appended to this file")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--skip", action="append", default=[], help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    parts = [name for name in PARTS if not given.part or name in given.part]
    if given.here:
        return here(parts[0], given.seconds, given.quick, tuple(given.skip))
    options, left, status = ["--quick"] * given.quick, given.seconds, 0
    with closing(RowsFile(given.json, append=True)) as file:
        for number, part in enumerate(parts):
            share = SHARES[part] / sum(SHARES[name] for name in parts[number:])
            begin, rows = monotonic(), []
            for row in follow(part, share * left, [sys.executable, "-m", "hogwild.bench.gpu", *options]):
                file.write(row)
                rows.append(row)
            if not rows:
                return 1  # the child has said why
            figures = summary(rows)
            for row in figures:
                file.write(row)
            status |= any(row["status"] != "ok" for row in figures if row["part"] == "correctness")
            print(f"{part}\n{table(figures)}\n", flush=True)
            left -= monotonic() - begin
    return int(status)


def here(part: str, seconds: float, quick: bool, skipped: tuple[str, ...]) -> int:
    """Measure a part in this process and write its rows to the standard output."""
    try:
        for row in measure(part, seconds, quick, skipped):
            print(to_json(row), flush=True)
    except Faulty:
        return FAULT
    except HogwildError as error:
        print(f"error: {error}", file=sys.stderr)
        return NOTHING
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
        last: Row | None = None
        try:
            assert child.stdout is not None
            for line in child.stdout:
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
        if last is None or status in (0, NOTHING):
            return
        if last["status"] == BEGAN:
            reason = f"took more than {left + GRACE:.0f} s" if late else f"the process ended with status {status}"
            yield last | {"status": f"failed: {reason}"}
        skipped.append(last["what"])
        if late or end - monotonic() < AGAIN:
            return


if __name__ == "__main__":
    sys.exit(main())
