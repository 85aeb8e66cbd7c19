"""Several machines on the command line: ``--machines``, ``--meet``, ``--local``, and ``hogwild cluster check``."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hogwild import machine
from hogwild.cli.options import Json, Quiet
from hogwild.errors import UsageError
from hogwild.machines.meeting import Meeting
from hogwild.rows_file import to_json

if TYPE_CHECKING:
    from hogwild.config import TrainConfig
    from hogwild.machines.cluster import Cluster

END_SECONDS = 15.0  # for local machines to end by themselves
LOCAL_SECONDS = 3600.0  # longest wait for local machines, whose deaths are noticed
LOCAL = """
import sys
from hogwild.__main__ import main
from hogwild.cli.machines import end_with_parent
end_with_parent()
sys.exit(main())
"""
# of cluster check; bytes of a load
PINGS = 50
LOADS = 3
LOAD = 16 << 20

cluster_app = typer.Typer(help="Look at the machines that are to train together.", no_args_is_help=True)


def meeting_of(given: dict[str, Any]) -> Meeting | None:
    """Take the options about machines from ``given``, and return where to meet; None for a single machine.

    Under torchrun its variables say where, and ``given`` is told how many machines there are.

    Raises
    ------
    UsageError
        If they do not go together.
    """
    meet, number, job, local = (given.pop(name, None) for name in ("meet", "machine", "job", "local"))
    machines = given.get("machines", 1)
    if found := Meeting.from_torchrun():
        if meet is not None or local:
            raise UsageError("torchrun says where machines meet: leave --meet and --local out")
        given["machines"] = found.machines
        return found
    if machines == 1:
        for option, value in (("--meet", meet), ("--machine", number), ("--job", job), ("--local", local or None)):
            if value is not None:
                raise UsageError(f"{option} is for several machines: give --machines P too")
        return None
    if local and meet is not None:
        raise UsageError("--local starts all machines here, at an address of their own: leave --meet out")
    if local:
        return Meeting(f"127.0.0.1:{_free_port()}", machines, 0, job or "", local=True)
    if meet is None:
        raise UsageError(f"--machines {machines}: say where they meet, --meet HOST:PORT of machine 0, or --local")
    return Meeting(meet, machines, number, job or "")


@contextlib.contextmanager
def gathered(
    meeting: Meeting, config: TrainConfig, say: Callable[[str], None]
) -> Iterator[tuple[Cluster, TrainConfig]]:
    """Meet the other machines, started here if the meeting is local, and leave them at the end.

    Yields them and the config, with this machine's share of the cores if they are all here.
    """
    from hogwild.machines.cluster import Cluster

    with contextlib.ExitStack() as stack:
        options: dict[str, Any] = {"seconds": LOCAL_SECONDS} if _started_here else {}
        if meeting.local:
            config = dataclasses.replace(config, workers=_local_workers(config))
            options = {
                "seconds": LOCAL_SECONDS,
                "failure": stack.enter_context(_local_machines(meeting, config.workers or 1)),
            }
        yield stack.enter_context(Cluster.of(meeting, config.common(), say, **options)), config


@contextlib.contextmanager
def _local_machines(meeting: Meeting, workers: int) -> Iterator[Callable[[], str]]:
    """Start the other machines as processes on this one, with the same command, and end them.

    Yields a function that says which of them has ended early, and why; else it returns an empty string.
    """
    words = [word for word in sys.argv[1:] if word != "--local"]
    common = [sys.executable, "-c", LOCAL, *words, "--meet", meeting.address, "--workers", str(workers), "--quiet"]
    with contextlib.ExitStack() as stack:
        started: list[tuple[subprocess.Popen[bytes], Any]] = []

        def failure() -> str:
            for number, (process, errors) in enumerate(started, 1):
                if process.poll():
                    errors.seek(0)
                    lines = errors.read().decode(errors="replace").strip().splitlines()
                    reason = lines[-1] if lines else f"exit status {process.returncode}"
                    return f"machine {number} ended early: {reason}"
            return ""

        try:
            for number in range(1, meeting.machines):
                errors = stack.enter_context(tempfile.TemporaryFile())
                command = [*common, "--machine", str(number)]
                process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors)
                started.append((process, errors))
            yield failure
        finally:
            failed = sys.exc_info()[0] is not None
            until = time.monotonic() + END_SECONDS
            for process, _ in started:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(until - time.monotonic(), 0.1))
                process.kill()
                process.communicate()
            if not failed and (line := failure()):
                print(f"hogwild: {line}", file=sys.stderr)


def end_with_parent() -> None:
    """Make this a machine that ``--local`` has started: it waits for the others as long as its parent lives, no longer.

    Standard input is a pipe to which nobody writes, and which the system closes when the parent ends.
    """
    global _started_here
    _started_here = True

    def wait() -> None:
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


_started_here = False


def _local_workers(config: TrainConfig) -> int:
    """Return how many workers each of several machines on this one has."""
    return config.workers or max(machine.physical_cores() // config.machines, 1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@cluster_app.command("check")
def check(
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            show_default=False,
            help="Rows that are to be trained on: machine 0 says whether these machines would pay.",
        ),
    ] = None,
    *,
    machines: Annotated[int, typer.Option("--machines", min=2, help="How many machines there are.")],
    meet: Annotated[str, typer.Option("--meet", metavar="HOST:PORT", help="Address of machine 0.")],
    number: Annotated[int | None, typer.Option("--machine", help="This machine's number, from 0.")] = None,
    job: Annotated[str, typer.Option("--job", help="A name that keeps clusters apart.")] = "",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure latency and bandwidth between machine 0 and the others, and compare their clocks; run it on all."""
    from hogwild.cli.data import data_facts, machines_lines
    from hogwild.cli.sources import Sources
    from hogwild.machines.cluster import Cluster

    def say(line: str) -> None:
        if not quiet and not as_json:
            print(line, flush=True)

    with Cluster.of(Meeting(meet, machines, number, job), {}, say) as cluster:
        if not cluster.leads:
            _answer(cluster)
            say(f"machine {cluster.number} of {machines}: done; the figures are machine 0's")
            return
        found = [_measure(cluster, other) for other in range(1, machines)]
        cluster.tell({"kind": "end"})
    latency, bits = max(row["latency_seconds"] for row in found), min(row["bits_per_second"] for row in found)
    link = f"latency={latency * 1e3:.3g}ms,bandwidth={bits / 1e9:.3g}Gbit"
    facts: dict[str, Any] = {"machines": machines, "links": found, "link": link}
    if data is not None:
        facts["prediction"] = data_facts(data, Sources(), 0, quiet or as_json, machines, link)["machines"]
    if as_json:
        print(to_json(facts))
        return
    for row in found:
        print(
            f"machine 0 to {row['machine']} ({row['host']}): latency {row['latency_seconds'] * 1e3:.3f} ms, "
            f"{row['bits_per_second'] / 1e9:.2f} Gbit/s; its clock is {row['clock_seconds']:+.3f} s off"
        )
    if data is None:
        print(f"whether it can pay: hogwild info DATA --machines {machines} --link {link}")
    else:
        print(*machines_lines(facts["prediction"]), sep="\n")


def _answer(cluster: Cluster) -> None:
    """Send back what machine 0 sends, until it says that it has done."""
    import numpy as np

    while (note := cluster.next_note(0, ("ping", "load", "end")))["kind"] != "end":
        if note["kind"] == "ping":
            cluster.tell({"kind": "pong", "time": time.time()}, 0)
        else:
            cluster.send_array(0, note["number"], np.zeros(LOAD, np.uint8))


def _measure(cluster: Cluster, other: int) -> dict[str, Any]:
    """Return the link to another machine: half of a round trip's median, and the median rate of loads."""
    trips = []
    offsets = []
    rates = []
    for _ in range(PINGS):
        before, clock = time.perf_counter(), time.time()
        cluster.tell({"kind": "ping"}, other)
        there = cluster.next_note(other, ("pong",))["time"]
        trips.append(time.perf_counter() - before)
        offsets.append(there - clock - trips[-1] / 2)
    for number in range(LOADS):
        before = time.perf_counter()
        cluster.tell({"kind": "load", "number": number}, other)
        cluster.next_array(other, number, "u1", LOAD)
        rates.append(8 * LOAD / (time.perf_counter() - before))
    return {
        "machine": other,
        "host": cluster.seats[other].hello["host"],
        "latency_seconds": statistics.median(trips) / 2,
        "bits_per_second": statistics.median(rates),
        "clock_seconds": statistics.median(offsets),
    }
