"""A process that has already imported the kernels and forks worker processes in milliseconds.

It follows multiprocessing's fork server but is reached through a single socket pair: there is no temporary folder that
a killed parent would leave behind, no resource-tracker process and no thread. The user's main script is not imported
again, so a script needs no ``if __name__ == "__main__"``. A process that the user's code forks closes its copy of the
pair, which would otherwise hide the parent's death. A failure to import is one line in the parent.

For each worker the server holds the worker's own end of its channel. It reports there how the worker began and ended,
and the end closes once server and worker have both closed it, so a parent learns of every death, even if the server
was killed.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from multiprocessing.connection import wait
from typing import NamedTuple

from hogwild.errors import TrainingError, describe

PROGRAM = "import sys; sys.path[:] = %r; from hogwild.hosts.fork_server import serve; serve(%r, %r)"
SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}  # they are for the parent to act upon
WORKER = "hogwild.hosts.processes"  # whose ``serve`` is the program of a worker
GRACE = 2.0  # seconds for a killed server to go


class Began(NamedTuple):
    """The first word about a worker: its process."""

    pid: int


class Ended(NamedTuple):
    """The last word about a worker: its exit status, negative for a signal; or why there is no process."""

    status: int | None
    reason: str = ""


# ---- in the parent

_lock = threading.Lock()
_server: tuple[subprocess.Popen[bytes], socket.socket] | None = None  # its process, and the parent's end of the pair
_modules = [WORKER]  # modules that the server imports


def ensure_running() -> None:
    """Start the server if it does not run; it imports while this process goes on.

    Raises
    ------
    TrainingError
        If no process or descriptor can be created for it.
    """
    with _lock:
        try:
            _running()
        except OSError as error:
            raise cannot_start(str(error)) from error


def preload(module: str) -> None:
    """Have servers that start from now on import a module that workers will need."""
    with _lock:
        if module not in _modules:
            _modules.append(module)
            stop()


def cannot_start(reason: str) -> TrainingError:
    return TrainingError(f"cannot start a worker process ({reason}): try host='threads' (--host threads)")


def _running() -> socket.socket:
    """Return the parent's end of the socket pair to a server that runs."""
    global _server
    if _server is None or _server[0].poll() is not None:
        stop()
        end, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-c", PROGRAM % ([*map(str, sys.path)], other.fileno(), _modules)]
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # the server starts with them blocked
        try:
            _server = subprocess.Popen(command, pass_fds=[other.fileno()], stdin=subprocess.DEVNULL), end
        except BaseException:
            end.close()
            raise
        finally:
            other.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return _server[1]


def stop() -> None:
    """Kill the server. Workers already forked continue."""
    global _server
    server, _server = _server, None
    if server is not None:
        server[1].close()
        server[0].kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server[0].wait(GRACE)


def pid() -> int | None:
    """Return the server's process id, if it runs."""
    return None if _server is None else _server[0].pid


def fork(end: socket.socket) -> None:
    """Fork a worker that serves this end of a channel; the other end is told that it began.

    Raises
    ------
    OSError
        If the server cannot be started.
    """
    with _lock:
        try:
            socket.send_fds(_running(), [b"+"], [end.fileno()], socket.MSG_NOSIGNAL)
        except (BrokenPipeError, ConnectionResetError):  # the server has just died
            stop()
            socket.send_fds(_running(), [b"+"], [end.fileno()], socket.MSG_NOSIGNAL)


def _let_go() -> None:
    """Drop the server in a forked copy of the user's process: its end would hide the parent's death from the server."""
    global _lock, _server
    _lock = threading.Lock()  # another thread may have held it
    server, _server = _server, None
    if server is not None:
        server[1].close()
        server[0].returncode = 0  # it is no child of the copy


atexit.register(stop)
os.register_at_fork(after_in_child=_let_go)


# ---- in the server


def serve(end: int, modules: list[str]) -> None:
    """Fork workers on request until the parent is gone; ``end`` is a descriptor."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if the user ignores it, children would leave no exit status
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    problem = ""
    try:
        for module in modules:
            importlib.import_module(module)
    except Exception as error:  # any exception, when memory or descriptors run out
        problem = describe(error)
    parent = socket.socket(fileno=end)
    workers = dict[int, tuple[int, socket.socket]]()  # process id and channel, by the descriptor of the process
    while True:
        for ready in wait([end, *workers]):
            if ready in workers:
                _report(int(ready), *workers.pop(int(ready)))
                continue
            data, files, *_ = socket.recv_fds(parent, 1, 1)
            if not data:
                os._exit(0)
            for file in files:  # none if no descriptor was left: the parent sees its end close
                one = socket.socket(fileno=file)
                try:
                    child = -1 if problem else os.fork()
                    process = os.pidfd_open(child) if child > 0 else 0
                except OSError as error:
                    _say(one, Ended(None, str(error)))
                    continue
                if child > 0:
                    workers[process] = child, one
                    _say(one, Began(child), last=False)
                elif problem:
                    _say(one, Ended(None, problem))
                else:
                    parent.close()
                    for watched, (_, other) in workers.items():
                        os.close(watched)
                        other.close()
                    _work(one)


def _work(end: socket.socket) -> None:
    """Be a worker."""
    try:
        sys.modules[WORKER].serve(end)
    except Exception as error:
        _say(end, Ended(None, describe(error)))
    finally:
        os._exit(1)


def _report(process: int, child: int, end: socket.socket) -> None:
    """Say how a worker has ended."""
    status = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert status is not None
    code = status.si_status
    _say(end, Ended(code if status.si_code == os.CLD_EXITED else -code))
    os.waitpid(child, 0)  # only after the report, so whoever sees the process gone finds it
    os.close(process)


def _say(end: socket.socket, word: Began | Ended, last: bool = True) -> None:
    with contextlib.suppress(OSError):  # the parent no longer listens
        end.send(pickle.dumps(word), socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
    if last:
        end.close()
