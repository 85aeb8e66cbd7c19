"""Kill workers, and whole programs, at random moments; over every discipline, host and problem, in one interpreter.

Half the kills are of one worker or all of them, while a run is set up, works, evaluates and writes checkpoints. Without
locks the run must go on and still descend; with locks it must stop in one line. The other kills are of a program of its
own, most of them while a checkpoint is written: the checkpoint must be whole, and a run that is resumed must go on from
it. Never may a process, a descriptor, a thread or a segment of shared memory be left.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

from common import Campaign, descendants, living, segments_of, wait_until

import hogwild
from hogwild.config import options_of
from hogwild.methods import PROBLEMS, REAL_HOSTS
from hogwild.model_file import has_checkpoint, load_checkpoint
from hogwild.problems.fm.options import PLAIN
from hogwild.training.engine import start_pool

COUNT = 200
ROWS = "synthetic:uniform?rows=20000&features=500&nnz=20"
OPTIONS = {
    "linear": {"step": 0.05},
    "fm": {"step": 0.05, "l2_factors": 1e-4, "keep": "last"},
    "completion": {"rank": 8},
    "cuts": {"step": 0.5},
}
HOLDING = ("aig", "locked", "round-robin")
STOPPED = r"worker \d died \(.*\), perhaps holding a lock that discipline [a-z-]+ waits for: resume from .*"
ROWS_AFTER = 2  # complete epochs to see after a kill
LATEST = 0.25  # seconds into a run for the first kill
ENDLESS = 10**6
PARENT = "import sys\nsys.path.insert(0, {folder!r})\nimport kills\nkills.be_killed(*sys.argv[1:])"
CELLS = [
    (problem, discipline)
    for problem in PROBLEMS
    for discipline in options_of(problem)["discipline"].metadata["option"].choices
    if problem != "ffm"  # whose workers do as those of fm
    if problem != "fm" or discipline in PLAIN
]
EXCHANGE = "exchange "  # then the discipline's place has an exchange
CELLS += [
    (problem, EXCHANGE + exchange)
    for problem, exchanges in {
        "linear": (
            "averaging:period=200",
            "averaging:period=200,momentum=0.5",
            "averaging:period=200,by=ring",
            "averaging:period=200,by=tree,mean=rows",
            "averaging:period=200,share=0.5",
            "averaging:period=200,threshold=1e-4",
            "gossip:period=200",
            "consensus:period=200",
            "server:push=100,shards=3",
            "server:push=100,bound=1",
        ),
        "completion": ("averaging:period=200", "server:push=200", "consensus:period=200"),
    }.items()
    for exchange in exchanges
]


def begin(problem: str, **options: Any) -> Any:
    """A run on small data, made once, that goes on until it is stopped."""
    options = {"workers": 2, "epochs": ENDLESS, "seed": 1} | options
    if options["discipline"].startswith(EXCHANGE):
        options |= {"discipline": "auto", "exchange": options["discipline"].removeprefix(EXCHANGE), "workers": 3}
    if options["discipline"] == "serial":
        options["workers"] = 1
    if problem == "module":
        import torch

        model = torch.nn.Linear(20, 1)
        return hogwild.train_module(model, "mse", module_data(), step=0.01, batch=16, **options)
    options |= OPTIONS[problem]
    return hogwild.train(data_of(problem), problem=problem, **options)


_data: dict[str, Any] = {}


def data_of(problem: str) -> Any:
    if problem not in _data:
        _data[problem] = {
            "linear": lambda: hogwild.open_data(ROWS),
            "fm": lambda: hogwild.open_data(ROWS),
            "completion": lambda: hogwild.open_ratings("synthetic:ratings?users=500&items=200&ratings=20000"),
            "cuts": lambda: hogwild.open_graph("synthetic:grid?side=100"),
        }[problem]()
    return _data[problem]


def module_data() -> Any:
    import torch

    if "module" not in _data:
        X = torch.randn(4000, 20, generator=torch.Generator().manual_seed(0))
        _data["module"] = X, X[:, :1] * 2 + 1
    return _data["module"]


def kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_workers(problem: str, discipline: str, chance: random.Random, folder: str) -> str:
    """One run on processes, disturbed; how it ended, or what was wrong after "FOUND"."""
    workers = 1 if discipline == "serial" else 3 if discipline.startswith(EXCHANGE) else 2
    pool = start_pool("processes", workers)
    delay, everybody = chance.choice([0.002, 0.02, LATEST]) * chance.random(), chance.random() < 0.3
    victim, checkpoint = chance.randrange(workers), folder if chance.random() < 0.5 else None
    killed, busy = threading.Event(), chance.random() < 0.5

    def strike() -> None:
        time.sleep(delay)
        deadline = time.monotonic() + LATEST
        while busy and not pool._awaited and time.monotonic() < deadline:  # type: ignore[attr-defined]
            time.sleep(0.0002)
        crew = list(pool._crew)  # type: ignore[attr-defined]
        kill([worker.pid for worker in (crew if everybody else crew[victim : victim + 1])])
        killed.set()

    thread = threading.Thread(target=strike)
    thread.start()
    try:
        run, after = None, 0
        run = begin(problem, discipline=discipline, pool=pool, checkpoint=checkpoint)
        for row in run:
            if row["status"] == "diverged":
                return "FOUND a run that diverged"
            after += killed.is_set() and row["epoch"] > 0
            if after > ROWS_AFTER and pool.lost >= 1:
                break
        if not row["objective"] < run.history[0]["objective"]:
            return f"FOUND no descent: {run.history[0]['objective']:g} to {row['objective']:g}"
        if everybody and pool.lost != workers:
            return f"FOUND {pool.lost} lost of {workers} killed"
        return "went on"
    except hogwild.TrainingError as error:
        if discipline not in HOLDING or not re.fullmatch(STOPPED, str(error)):
            return f"FOUND {error}"
        return "stopped in one line"
    finally:
        thread.join()
        if run is not None:
            run.close()
        pool.close()
        if checkpoint is not None and has_checkpoint(checkpoint):
            load_checkpoint(checkpoint)


def be_killed(problem: str, discipline: str, host: str, folder: str) -> None:
    """The program that is killed from outside: it says when a row is there, after which the checkpoint is written."""
    warnings.simplefilter("ignore")
    for row in begin(problem, discipline=discipline, host=host, checkpoint=folder, resume=True):
        print(row["epoch"], flush=True)


def kill_program(problem: str, discipline: str, host: str, chance: random.Random, folder: str) -> str:
    """A program with a run of its own, killed while it writes checkpoints, and resumed."""
    code = PARENT.format(folder=str(Path(__file__).parent))
    command = [sys.executable, "-c", code, problem, discipline, host, folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        shown = [program.stdout.readline() for _ in range(chance.randrange(2, 6))]
        if not all(shown):
            return f"FOUND the program ended: {program.stderr.read().strip()[-300:]}"
        time.sleep(0.02 * chance.random())
        family = {program.pid} | descendants(program.pid)
        program.kill()
        rest = program.stdout.read().split()
        said = program.stderr.read()
    if not wait_until(lambda: not living(family)):
        return f"FOUND processes {living(family)} of a killed program"
    if segments_of(family):
        return f"FOUND segments {segments_of(family)} of a killed program"
    if said:
        return f"FOUND stderr {said.strip()[-300:]}"
    epoch = int([*shown, *rest][-1].split(".")[0])
    saved = load_checkpoint(folder)[1]["epoch"] if has_checkpoint(folder) else 0
    if saved < epoch - 1:
        return f"FOUND a checkpoint of epoch {saved} after the row of epoch {epoch}"
    run = begin(problem, discipline=discipline, host=host, checkpoint=folder, resume=True, epochs=saved + 2)
    found = [row["epoch"] for row in run][-2:]
    return "resumed" if found == [saved + 1, saved + 2] else f"FOUND epochs {found} after a checkpoint of {saved}"


def held() -> tuple[int, int]:
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threading.active_count()


def main(arguments: list[str]) -> int:
    campaign = Campaign("kills", arguments, COUNT)
    warnings.simplefilter("ignore", hogwild.HogwildWarning)  # more workers than cores
    start_pool("processes", 1).close()  # the fork server stays
    cells, before = [*CELLS], (0, 0)
    for number in campaign.rounds():
        if number % len(cells) == 0:
            campaign.random.shuffle(cells)
        problem, discipline = cells[number % len(cells)]
        chance = random.Random(f"{campaign.asked.seed} {number}")
        whole = number % 4 == 3  # a program costs seconds, for it imports torch
        host = chance.choice(REAL_HOSTS) if whole else "processes"
        with tempfile.TemporaryDirectory() as folder:
            if whole:
                how = kill_program(problem, discipline, host, chance, folder)
            else:
                how = kill_workers(problem, discipline, chance, folder)
        name = f"{problem}, {discipline}, {'program on ' if whole else ''}{host}"
        campaign.tried[name] += 1
        campaign.ended[how.split(":")[0]] += 1
        if how.startswith("FOUND"):
            campaign.problem(f"{how[6:]} ({name}, round {number})")
        if not wait_until(lambda: not descendants()):
            campaign.problem(f"processes {descendants()} ({name}, round {number})")
        if segments_of({os.getpid()}):
            campaign.problem(f"segments {segments_of({os.getpid()})} ({name}, round {number})")
        if number < len(cells):  # libraries that are imported on the way keep some
            before = tuple(max(pair) for pair in zip(before, held()))
        elif any(now > then for now, then in zip(held(), before)):
            campaign.problem(f"descriptors and threads {before} -> {held()} ({name}, round {number})")
            before = held()
    print(f"descriptors and threads at the end: {held()}")
    return campaign.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
