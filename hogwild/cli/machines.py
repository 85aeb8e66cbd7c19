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
LOCAL_SECONDS = 3600.0  # longest wait for local machines, whose deaths are noticed
LOCAL = """
import sys
from hogwild.__main__ import main
from hogwild.cli.machines import end_with_parent
end_with_parent()
sys.exit(main())
"""


def meeting_of(given: dict[str, Any]) -> Meeting | None:
    """Take the options about machines from ``given``, and return where to meet; None for a single machine.

    Raises
    ------
    UsageError
        If they do not go together.
    """
    meet, number, local = (given.pop(name, None) for name in ("meet", "machine", "local"))
    machines = given.get("machines", 1)
    if machines == 1:
        if os.environ.get("WORLD_SIZE", "") not in ("", "1"):  # else each of these processes would train alone
            raise UsageError("torchrun needs --machines P --meet HOST:PORT, at a port of their own")
        for option, value in (("--meet", meet), ("--machine", number), ("--local", local or None)):
            if value is not None:
                raise UsageError(f"{option} is for several machines: give --machines P too")
        return None
    if local and meet is not None:
        raise UsageError("--local starts all machines here, at an address of their own: leave --meet out")
    if local:
        return Meeting(f"127.0.0.1:{_free_port()}", machines, 0, local=True)
    if meet is None:
        raise UsageError(f"--machines {machines}: say where they meet, --meet HOST:PORT of machine 0, or --local")
    return Meeting(meet, machines, number)


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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
