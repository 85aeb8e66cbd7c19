"""Machines leave and join for minutes while they train one model, which must end as if nothing had happened.

Three machines of one worker, processes here, train by averaging or by gossip. Every few seconds one of the others than
machine 0 is killed, and started again a little later, or stopped for less time than counts as a death. Rows of
measurements must go on coming; at the end machine 0 is interrupted, all that live must end in good order, and nothing
may be left. The objective is held against undisturbed runs of three replicas over seeds, in the simulator, of as many
epochs but at most ``EPOCHS``, after which it hardly falls.
"""

from __future__ import annotations

import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from common import Campaign, descendants, living, segments_of, wait_until
from machines import DATA, ENDED, Machines

import hogwild
from hogwild.data.rows.store import save_store
from hogwild.machines.cluster import SILENCE

MINUTES, SEEDS, EPOCHS, COUNT, SLACK = 10.0, 3, 60, 3, 1e-3
EXCHANGES = ("averaging", "gossip:period=500")


def undisturbed(store: Path, exchange: str, epochs: int) -> list[float]:
    """Objectives at the end, over seeds."""
    options = {"workers": COUNT, "host": "simulator", "step": 0.2, "epochs": epochs, "evaluate_every": epochs}
    rows = hogwild.open_data(str(store))
    return [[*hogwild.train(rows, exchange=exchange, seed=seed, **options)][-1]["objective"] for seed in range(SEEDS)]


def disturb(machines: Machines, victim: int, chance: random.Random) -> str:
    """Do something to a machine, and wait until it is over; what it was."""
    process = machines.processes[victim]
    if chance.random() < 0.25:
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.5 * SILENCE * chance.random())
        process.send_signal(signal.SIGCONT)
        return "paused"
    process.kill()
    process.communicate()
    time.sleep(4 * chance.random())
    machines.processes[victim] = machines.started(victim)
    time.sleep(8 * chance.random())
    return "killed and came back"


def soak(campaign: Campaign, store: Path, folder: Path, exchange: str, minutes: float) -> None:
    machines, until = Machines(store, folder, COUNT, exchange), time.monotonic() + 60 * minutes
    try:
        machines.beyond(2)
        while time.monotonic() < until:
            campaign.tried[disturb(machines, campaign.random.randrange(1, COUNT), campaign.random)] += 1
            if not machines.beyond(2):
                campaign.problem(f"{exchange}: no rows any more: {[each.poll() for each in machines.processes]}")
                return
        machines.processes[0].send_signal(signal.SIGINT)
        for number in range(COUNT):
            status, said = machines.ends(number, ENDED + 60.0)  # one that is coming back waits for its place
            if status != 130 if number == 0 else status not in (0, 1):
                campaign.problem(f"{exchange}: machine {number} ended with {status}: {said.strip()[-300:]!r}")
        last = [row for row in machines.rows() if row["epoch"] == int(row["epoch"])][-1]
        seeds = undisturbed(store, exchange, min(int(last["epoch"]), EPOCHS))
        campaign.ended[
            f"{exchange} after {last['epoch']} epochs and {last['workers_lost']} losses at {last['objective']:.6f} "
            f"(undisturbed {min(seeds):.6f} to {max(seeds):.6f})"
        ] += 1
        if not last["objective"] <= (1 + SLACK) * max(seeds):
            campaign.problem(f"{exchange}: {last['objective']} is above {max(seeds)} of the undisturbed")
    finally:
        family = {process.pid for process in machines.processes} | descendants()
        machines.clear()
        if living(family) and not wait_until(lambda: not living(family)):
            campaign.problem(f"{exchange}: processes {living(family)}")
        if segments_of(family):
            campaign.problem(f"{exchange}: segments")


def main(arguments: list[str]) -> int:
    campaign = Campaign("soak", arguments, len(EXCHANGES))
    minutes = (campaign.asked.minutes or MINUTES) / len(EXCHANGES)
    with tempfile.TemporaryDirectory() as kept:
        store = Path(save_store(hogwild.open_data(DATA["rows"]), Path(kept) / "rows"))
        for exchange in EXCHANGES:
            with tempfile.TemporaryDirectory() as folder:
                soak(campaign, store, Path(folder), exchange, minutes)
    return campaign.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
