"""The fork server: what it cannot do is one line, and copies that the user's code forks keep nobody alive."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from hogwild.errors import TrainingError
from hogwild.hosts import fork_server
from hogwild.hosts.processes import Processes
from tests.conftest import descendants
from tests.runs import until


def test_a_server_that_cannot_import_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the next one is asked anew: a lack of memory or descriptors passes."""
    monkeypatch.setattr(fork_server, "_modules", ["hogwild.no_such_module"])
    fork_server.stop()
    with pytest.raises(TrainingError, match=r"cannot start .*ModuleNotFoundError: No module .*no_such_module"):
        Processes(2)
    monkeypatch.undo()
    Processes(1).close()
    fork_server.preload("hogwild.training.keep")  # workers find it imported, and so does a server that is started anew
    Processes(1).close()


def test_deaths_are_noticed_where_the_user_blocks_signals() -> None:
    fork_server.stop()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    try:
        pool = Processes(1)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.kill(pool.pids[0], signal.SIGKILL)
    assert until(lambda: pool._listen(0.1) or pool.lost == 1)
    pool.close()


def test_inside_a_daemonic_process() -> None:
    code = (
        "import multiprocessing, sys\n"
        "def train():\n"
        "    import numpy as np, hogwild\n"
        "    print(hogwild.train((np.eye(4), [0, 1, 0, 1]), host='processes', workers=1, step=0.1).finish().width)\n"
        "process = multiprocessing.get_context('fork').Process(target=train, daemon=True)\n"
        "process.start(); process.join()\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (result.stdout, result.stderr) == ("4\n", "")


FORKING = """
import os, sys, time
from hogwild.hosts import fork_server
from hogwild.hosts.processes import Processes
pool = Processes(2)
fork_server._lock.acquire()  # as another thread may have at this moment
copy = os.fork()
if not copy:
    assert pool.closed and fork_server.pid() is None
    with open(os.devnull, "w") as nowhere:  # the pipe is the parent's
        os.dup2(nowhere.fileno(), 1)
    Processes(1).close()
    fork_server.stop()
    open(sys.argv[1], "w").close()
    time.sleep(60)
fork_server._lock.release()
print(copy, fork_server.pid(), *pool.pids, flush=True)
time.sleep(60)
"""


def test_a_copy_that_the_user_forks(tmp_path: object) -> None:
    """It has no part in the pool and can have its own; when the parent is killed, workers and server still end."""
    ready = f"{tmp_path}/ready"
    with subprocess.Popen(
        [sys.executable, "-X", "dev", "-c", FORKING, ready], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        copy, *theirs = map(int, parent.stdout.readline().split())
        try:
            assert until(lambda: os.path.exists(ready))
            assert {copy, *theirs} <= descendants()
            parent.kill()
            parent.wait()
            assert until(lambda: not {*theirs} & descendants())
            assert copy in descendants()
        finally:
            os.kill(copy, signal.SIGKILL)
            parent.kill()
