"""Kill, stop and interrupt machines at random moments of a run of several, all of them processes here.

Each round starts two to four machines of one worker. One of them is killed, and may come back, or is stopped, for good
or for a while, or machine 0 is killed, or nobody is; the moment is anywhere from the meeting to the checkpoints. The
others must go on and descend, or, without machine 0, end within ``ALONE`` seconds with one line, the checkpoint whole
and a run that can be resumed on one machine. Then machine 0 is interrupted, and all that live must end. Never may a
process, a port or a segment of shared memory be left, and nothing may wait for ever. With rotation, which needs every
machine, any that is killed or stopped ends the run as machine 0 does.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import Campaign, descendants, living, segments_of, wait_until

import hogwild
from hogwild.data.ratings.container import RATINGS
from hogwild.data.rows.store import save_store
from hogwild.machines.cluster import SILENCE
from hogwild.model_file import has_checkpoint, load_checkpoint

COUNT = 100
EXCHANGES = (
    "averaging",
    "averaging:period=2000",
    "averaging:period=0.5,mean=rows",
    "gossip:period=500",
    "server:push=500",
    "rotation",
    "rotation",
)
EVENTS = (
    "nobody",
    "killed",
    "killed",
    "killed early",
    "stopped",
    "paused",
    "machine 0 killed",
    "machine 0 killed",
    "comes back",
    "comes back",
)
ROWS = 20_000
DATA = {"rows": f"synthetic:uniform?rows={ROWS}&features=500&nnz=20", "ratings": "synthetic:ratings?ratings=200000"}
ON_RATINGS = {"problem": "completion", "rank": 8}
ENDLESS = 10**6
BACK = 10.0  # seconds until a machine should have come back
STARTED, ENDED, ALONE = 120.0, 60.0, 15.0 + SILENCE  # seconds


def free_port() -> int:
    """Below those that the system gives to connections, one of which might take it before machine 0 listens there."""
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", 10_000 + secrets.randbelow(20_000)))
            return int(probe.getsockname()[1])


class Machines:
    """The machines of one round."""

    def __init__(self, store: Path, folder: Path, count: int, exchange: str) -> None:
        self.port, self.rows_file, self.checkpoint = free_port(), folder / "rows", folder / "checkpoint"
        self.processes: list[subprocess.Popen[str]] = []
        self.dead: set[int] = set()
        self.victim = 0
        self.commands: list[list[str]] = []
        for number in range(count):
            options = f"""--workers 1 --host threads --step 0.2 --epochs {ENDLESS} --patience 0 --quiet
                --exchange {exchange} --machines {count} --meet 127.0.0.1:{self.port} --machine {number}"""
            command = [sys.executable, "-m", "hogwild", "train", str(store), *options.split()]
            if exchange == "rotation":
                command += [word for name, value in ON_RATINGS.items() for word in (f"--{name}", f"{value}")]
            if number == 0:
                command += ["--json", str(self.rows_file), "--checkpoint", str(self.checkpoint)]
            self.commands.append(command)
            self.processes.append(self.started(number))

    def started(self, number: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.commands[number],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONFAULTHANDLER": "1"},
        )

    def rows(self) -> list[dict[str, Any]]:
        try:
            lines = self.rows_file.read_text().splitlines(keepends=True)
        except OSError:
            return []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def beyond(self, more: int) -> bool:
        """Whether ``more`` rows come in time, or somebody ends who was not killed."""
        wanted = len(self.rows()) + more
        return wait_until(lambda: len(self.rows()) >= wanted, STARTED)

    def ends(self, number: int, seconds: float) -> tuple[int | None, str]:
        """Exit status of a machine, None if it does not end in time, and what it said."""
        try:
            _, said = self.processes[number].communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            for each in self.processes:  # where do they wait?
                each.send_signal(signal.SIGABRT)
                print(each.communicate()[1], file=sys.stderr)
            return None, ""
        return self.processes[number].returncode, said

    def clear(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


def disturb(machines: Machines, event: str, chance: random.Random) -> str:
    """Do what the event says; what was wrong after "FOUND", or nothing."""
    victim = chance.randrange(1, len(machines.processes))
    process = machines.processes[victim]
    machines.victim = victim
    if event == "killed early":  # while machines start, meet or find the step
        time.sleep(4 * chance.random())
        process.kill()
        machines.dead.add(victim)
        return ""
    if not machines.beyond(1 + chance.randrange(3)):
        return f"FOUND no rows: {[each.poll() for each in machines.processes]}"
    time.sleep(0.2 * chance.random())
    if event == "killed":
        process.kill()
        machines.dead.add(victim)
    elif event == "comes back":
        process.kill()
        process.communicate()
        time.sleep(2 * chance.random())
        machines.processes[victim] = machines.started(victim)
        time.sleep(BACK)
    elif event == "stopped":
        process.send_signal(signal.SIGSTOP)
        machines.dead.add(victim)
    elif event == "paused":  # for less than counts as a death
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.4 * SILENCE)
        process.send_signal(signal.SIGCONT)
    return ""


def without(machines: Machines, victim: int, store: Path, exchange: str) -> str:
    """When a machine is gone that is needed, the others end with one line, and the run can be resumed."""
    machines.dead.add(victim)
    began = time.monotonic()
    for number in range(len(machines.processes)):
        if number == victim:
            continue
        status, said = machines.ends(number, ALONE)
        if status != 1 or len(said.splitlines()) != 1 or f"machine {victim}" not in said:
            took = time.monotonic() - began
            return f"FOUND machine {number} ended with {status} after {took:.0f} s: {said.strip()[-300:]!r}"
    if not has_checkpoint(machines.checkpoint):
        return "ended in one line each"
    epoch = load_checkpoint(machines.checkpoint)[1]["epoch"]
    about = ON_RATINGS if exchange == "rotation" else {}
    opened = (hogwild.open_ratings if about else hogwild.open_data)(str(store))
    run = hogwild.train(
        opened,
        workers=1,
        host="threads",
        step=0.2,
        epochs=epoch + 2,
        checkpoint=str(machines.checkpoint),
        resume=True,
        **about,
    )
    return "resumed" if [row["epoch"] for row in run][-1] == epoch + 2 else "FOUND a run that does not go on"


def play(stores: dict[str, Path], folder: Path, event: str, chance: random.Random) -> str:
    """One round; how it ended, or what was wrong after "FOUND"."""
    count, exchange = chance.randrange(2, 5), chance.choice(EXCHANGES)
    store = stores["ratings" if exchange == "rotation" else "rows"]
    if exchange == "rotation" and event == "comes back":  # nobody does
        event = "killed"
    machines = Machines(store, folder, count, exchange)
    family: set[int] = set()
    try:
        if found := disturb(machines, event, chance):
            return found
        family = {process.pid for process in machines.processes} | descendants()
        if event == "machine 0 killed":
            machines.processes[0].kill()
            return without(machines, 0, store, exchange)
        if exchange == "rotation" and event in ("killed", "stopped"):
            return without(machines, machines.victim, store, exchange)
        early = event == "killed early"
        if not wait_until(lambda: len(machines.rows()) > 1 or machines.processes[0].poll() is not None, STARTED):
            return "FOUND neither rows nor an end"
        needed = early and exchange == "rotation"
        if needed or machines.processes[0].poll() is not None:  # somebody was missing when they met, or is needed
            ends = [machines.ends(number, ENDED) for number in range(count) if number not in machines.dead]
            if early and all(status == 1 and len(said.splitlines()) == 1 for status, said in ends):
                return "did not begin, or ended, in one line each"
            return f"FOUND an early end: {ends}"
        if not machines.beyond(3):
            return "FOUND no rows after it"
        history = machines.rows()
        if not history[-1]["objective"] < history[0]["objective"]:
            return f"FOUND no descent: {history[0]['objective']:g} to {history[-1]['objective']:g}"
        machines.processes[0].send_signal(signal.SIGINT)
        for number in range(count):
            if number not in machines.dead:
                status, said = machines.ends(number, ENDED)
                if (status, said) != ((130, said) if number == 0 else (0, "")):
                    return f"FOUND machine {number} ended with {status}: {said.strip()[-300:]!r}"
        return "went on"
    finally:
        machines.clear()
        if living(family):
            wait_until(lambda: not living(family))
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", machines.port))  # raises if somebody still listens


def main(arguments: list[str]) -> int:
    campaign = Campaign("machines", arguments, COUNT)
    with tempfile.TemporaryDirectory() as kept:
        stores = {
            "rows": save_store(hogwild.open_data(DATA["rows"]), Path(kept) / "rows"),
            "ratings": save_store(hogwild.open_ratings(DATA["ratings"]), Path(kept) / "ratings", kind=RATINGS),
        }
        for number in campaign.rounds():
            chance = random.Random(f"{campaign.asked.seed} {number}")
            event = chance.choice(EVENTS)
            with tempfile.TemporaryDirectory() as folder:
                before = descendants()
                how = play(stores, Path(folder), event, chance)
            campaign.tried[event] += 1
            campaign.ended[how.split(":")[0]] += 1
            if how.startswith("FOUND"):
                campaign.problem(f"{how[6:]} ({event}, round {number})")
            if not wait_until(lambda before=before: descendants() <= before):  # type: ignore[misc]
                campaign.problem(f"processes {descendants()} ({event}, round {number})")
            if segments_of(descendants()):
                campaign.problem(f"segments ({event}, round {number})")
    return campaign.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
