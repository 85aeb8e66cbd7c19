"""Several machines on the command line: ``--machines``, ``--meet`` and ``--local``."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from hogwild import machine
from hogwild.errors import UsageError
from hogwild.machines.meeting import Meeting

if TYPE_CHECKING:
    from hogwild.config import TrainConfig
    from hogwild.machines.cluster import Cluster

END_SECONDS = 15.0  # for local machines to end by themselves
LOCAL_BYTES = 200 << 20  # of a local machine, at least
LOCAL_SECONDS = 3600.0  # longest wait for local machines, whose deaths are noticed
CHILD = "HOGWILD_LOCAL_MACHINE"  # set in the environment of a machine that --local has started


def meeting_of(options: dict[str, Any]) -> Meeting | None:
    """Take the options about where machines meet, and return that; None for a single machine.

    Raises
    ------
    UsageError
        If they do not go together.
    """
    meet, number, local = (options.pop(name, None) for name in ("meet", "machine", "local"))
    machines = options.get("machines") or 1
    if machines == 1:
        if os.environ.get("WORLD_SIZE", "") not in ("", "1"):  # else each of these processes would train alone
            raise UsageError("torchrun needs --machines P --meet HOST:PORT, at a port of their own")
        for option, value in (("--meet", meet), ("--machine", number), ("--local", local or None)):
            if value is not None:
                raise UsageError(f"{option} is for several machines: give --machines P too")
        return None
    if (meet is None) is not bool(local):
        raise UsageError(f"--machines {machines}: say where they meet, --meet HOST:PORT of machine 0, or --local")
    if meet is not None:
        return Meeting(meet, machines, number)
    machine.check_memory(f"--local: {machines:,} machines on this one", machines * LOCAL_BYTES)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return Meeting(f"127.0.0.1:{probe.getsockname()[1]}", machines, 0, local=True)


@contextlib.contextmanager
def gathered(
    meeting: Meeting, config: TrainConfig, say: Callable[[str], None]
) -> Iterator[tuple[Cluster, TrainConfig]]:
    """Meet the other machines, started here if the meeting is local, and leave them at the end.

    Yields them and the config, with this machine's share of the cores if they are all here.
    """
    from hogwild.machines.cluster import Cluster

    with contextlib.ExitStack() as stack:
        options: dict[str, Any] = {}
        if os.environ.pop(CHILD, ""):
            threading.Thread(target=_end_with_parent, daemon=True).start()
            options = {"seconds": LOCAL_SECONDS}
        if meeting.local:
            workers = config.workers or max(machine.physical_cores() // config.machines, 1)
            config = dataclasses.replace(config, workers=workers)
            options = {"seconds": LOCAL_SECONDS, "failure": stack.enter_context(_local_machines(meeting, workers))}
        say(f"{meeting.machines} machines meet at {meeting.address}")
        yield stack.enter_context(Cluster.of(meeting, config.common(), say, **options)), config


@contextlib.contextmanager
def _local_machines(meeting: Meeting, workers: int) -> Iterator[Callable[[], str]]:
    """Start the other machines as processes on this one, with the same command, and end them.

    Yields a function that says which of them has ended early, and why; else it returns an empty string.
    """
    words = [word for word in sys.argv[1:] if word != "--local"]
    more = ["--meet", meeting.address, "--workers", str(workers), "--quiet", "--machine"]
    started: list[tuple[subprocess.Popen[bytes], Any]] = []

    def failure() -> str:
        for number, (process, errors) in enumerate(started, 1):
            if process.poll():
                errors.seek(0)
                lines = errors.read().decode(errors="replace").strip().splitlines()
                return f"machine {number} ended early: {[f'exit status {process.returncode}', *lines][-1]}"
        return ""

    with contextlib.ExitStack() as stack:
        try:
            for number in range(1, meeting.machines):
                errors = stack.enter_context(tempfile.TemporaryFile())
                process = subprocess.Popen(
                    [sys.executable, "-m", "hogwild", *words, *more, str(number)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    env=os.environ | {CHILD: "1"},
                )
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


def _end_with_parent() -> None:
    """End this process with the one that has started it, which holds the other end of standard input."""
    os.read(0, 1)
    os._exit(1)
