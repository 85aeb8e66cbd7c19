"""Run ``hogwild train`` where something is missing, full or forbidden, or where a signal comes at a random moment.

Each run has to work, or to end within seconds in one line that begins with "hogwild: error:". No traceback may be
shown, and no process, segment of shared memory or temporary file may be left.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import Campaign, descendants, living, segments, segments_of, wait_until

COUNT = 100
LIMIT = 120.0  # seconds until a run counts as one that does not end; most take four
ROOT = os.getuid() == 0
DATA = "synthetic:uniform?rows=2000&features=300"
SAID = ("hogwild: warning: ", "hogwild: error: ", "stopping and saving; once more to quit at once")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class Fault:
    """What is wrong with the world of one run."""

    name: str
    prepare: Callable[[], None] | None = None  # in the new process, before the program
    wrap: list[str] = field(default_factory=list)  # a command that runs the command
    environment: dict[str, str] = field(default_factory=dict)
    options: list[str] = field(default_factory=list)
    signals: tuple[tuple[float, int], ...] = ()  # seconds after the one before, and which
    group: bool = False  # whether they are for all its processes


def limited(name: str, most: int) -> Fault:
    def prepare() -> None:
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))

    return Fault(f"ulimit {name} {most}", prepare)


def closed(numbers: tuple[int, ...]) -> Fault:
    def prepare() -> None:
        for number in numbers:
            os.close(number)

    return Fault(f"closed {','.join(map(str, numbers))}", prepare)


def full(size: str, folder: str) -> Fault:
    mount = f'mount -t tmpfs -o size={size} tmpfs "$0" && exec "$@"'
    where = f"{folder}/results"
    os.makedirs(where, exist_ok=True)
    options = ["--out", f"{where}/model", "--checkpoint", f"{where}/state"]
    return Fault(f"disk of {size}", wrap=["unshare", "-m", "sh", "-c", mount, where], options=options)


def temporary(kind: str, folder: str) -> Fault:
    name = {"missing": "missing", "long": "x" * 120, "forbidden": "forbidden"}[kind]
    path = Path(folder, name)
    if kind != "missing":
        path.mkdir(mode=0o700 if kind == "long" else 0o000)
    return Fault(f"TMPDIR {kind}", environment={"TMPDIR": str(path)})


def signalled(chance: random.Random) -> Fault:
    number, again = chance.choice(SIGNALS), chance.random() < 0.2
    delay = chance.choice([0.3, 1.0, 3.0, 6.0]) * chance.random()
    times = ((delay, number), (chance.random() * 0.3, number)) if again else ((delay, number),)
    workers = ["--workers", str(chance.choice([2, 2, 8]))]
    name = f"{signal.Signals(number).name}{' twice' * again} after {delay:.2f} s"
    group = chance.random() < 0.5
    return Fault(name, options=["--epochs", "100000", *workers], signals=times, group=group)


def draw(chance: random.Random, number: int, folder: str) -> Fault:
    """What to try: each kind in turn."""
    kinds: list[Callable[[], Fault]] = [
        lambda: signalled(chance),
        lambda: limited("NOFILE", chance.randrange(8, 65)),
        lambda: limited("FSIZE", chance.choice([0, 1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22])),
        lambda: signalled(chance),
        lambda: limited("AS", chance.randrange(200, 4000) << 20),
        lambda: closed(chance.choice([(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)])),
        lambda: temporary(chance.choice(["missing", "long", "forbidden"]), folder),
    ]
    if ROOT:
        kinds.append(lambda: full(chance.choice(["4k", "64k", "256k"]), folder))
    else:  # the former are root's to mount, and this does not bind root
        kinds.append(lambda: limited("NPROC", chance.randrange(1, 30)))
    return kinds[number % len(kinds)]()


def judge(status: int, fault: Fault, err: str) -> str:
    """What is wrong with how it ended; empty if nothing."""
    lines = [line for line in err.splitlines() if line.strip()]
    strange = [line for line in lines if not line.startswith(SAID)]
    numbers = [number for _, number in fault.signals]
    allowed = {0, 1} | {128 + number for number in numbers} | {-number for number in numbers}
    early = "init_import_site" in err or ("KeyboardInterrupt" in err and ", in main" not in err)
    if fault.signals and early:
        return ""  # it came before the program's first line
    if strange:
        return f"said {' | '.join(strange)[:300]}"
    if status not in allowed:
        return f"ended with {status}: {err.strip()[:200]}"
    errors = sum(line.startswith(SAID[1]) for line in lines)
    if status == 1 and errors != 1 and not fault.name.startswith("closed"):
        return f"ended with 1 and {errors} lines"
    return ""


def send(program: subprocess.Popen[str], fault: Fault) -> None:
    for delay, number in fault.signals:
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(delay)
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if fault.group else os.kill)(program.pid, number)


def run(fault: Fault, host: str, folder: str) -> tuple[str, str]:
    """How it ended, and what was wrong."""
    options = {
        "--epochs": "3",
        "--workers": "2",
        "--l2": "1e-5",
        "--step": "0.1",
        "--host": host,
        "--out": f"{folder}/model",
    }
    options |= {"--checkpoint": f"{folder}/state"} | dict(zip(fault.options[::2], fault.options[1::2]))
    words = [word for pair in options.items() for word in pair]
    command = [*fault.wrap, sys.executable, "-m", "hogwild", "train", DATA, "--quiet", *words]

    def prepare() -> None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)  # a shell's background job, or nohup, has some of them ignored
        if fault.prepare:
            fault.prepare()

    settings: dict[str, Any] = {"preexec_fn": prepare, "env": os.environ | fault.environment}
    before, seen = segments(), set()
    program = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **settings,
    )
    began = time.monotonic()
    try:
        if fault.signals:
            send(program, fault)
            seen = descendants(program.pid)
            began = time.monotonic()
        _, err = program.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(program.pid, signal.SIGKILL)
        program.communicate()
        return "hung", f"did not end within {LIMIT:.0f} s"
    except BaseException:  # the campaign itself is stopped
        os.killpg(program.pid, signal.SIGKILL)
        raise
    seconds = time.monotonic() - began
    problem = judge(program.returncode, fault, err)
    if not wait_until(lambda: not living(seen) and not descendants()):
        problem = f"left processes {living(seen) | descendants()}"
    if left := (segments() - before) & segments_of(seen | {program.pid}):
        problem = f"left segments {left}"
    if left_files := [path.name for path in Path(folder).rglob("*") if "tmp" in path.name]:
        problem = f"left files {left_files}"
    return f"{program.returncode}", f"{problem} ({seconds:.1f} s)" if problem else ""


def main(arguments: list[str]) -> int:
    campaign = Campaign("faults", arguments, COUNT)
    for number in campaign.rounds():
        chance = random.Random(f"{campaign.asked.seed} {number}")
        folder = tempfile.mkdtemp(prefix="campaign-")
        os.chmod(folder, 0o777)
        try:
            fault = draw(chance, number, folder)
            host = "processes" if chance.random() < 0.7 else "threads"
            how, problem = run(fault, host, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        campaign.tried[fault.name.split()[0] + (f" {fault.name.split()[1]}" if " of " not in fault.name else "")] += 1
        campaign.ended[f"status {how}"] += 1
        if problem:
            campaign.problem(f"{problem}: {fault.name}, {host}, round {number}")
    return campaign.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
