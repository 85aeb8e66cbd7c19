"""A process that has already imported the kernels and forks worker processes in milliseconds.

It follows multiprocessing's fork server but is reached through a single socket pair: there is no temporary folder, no
resource-tracker process and no thread, and the user's main script is not imported again, so a script needs no
``if __name__ == "__main__"``. A failure to start is one line in the parent, not a traceback beside it.

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
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from typing import NamedTuple

from hogwild.errors import TrainingError

PROGRAM = "import sys; sys.path[:] = %r; from hogwild.hosts.fork_server import serve; serve(%r, %r, %r)"
SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}  # they are for the parent to act upon
WORKER = "hogwild.hosts.processes"  # whose ``serve`` is the program of a worker
GRACE = 2.0  # seconds for a killed server to go
WHOLE = b"+"  # before a message that has no part in a file of its own


class Began(NamedTuple):
    """The first word about a worker: its process."""

    pid: int


class Ended(NamedTuple):
    """The last word about a worker: its exit status, negative for a signal; or why there is no process."""

    status: int | None
    reason: str = ""


def describe(error: BaseException) -> str:
    """One line: what went wrong and where."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""
    return " ".join(f"{type(error).__name__}: {error}".split())[:400] + where


# ---- in the parent


class _Server:
    """The server's process, and the parent's end of the socket pair."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.end, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stderr = _copy_of_stderr()
        passed = [other.fileno(), *([] if stderr is None else [stderr])]
        program = PROGRAM % ([*map(str, sys.path)], other.fileno(), stderr, _modules)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # the server starts with them blocked
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", program], pass_fds=passed, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        except BaseException:
            self.end.close()
            raise
        finally:
            other.close()
            if stderr is not None:
                os.close(stderr)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def running(self) -> bool:
        return self.owner == os.getpid() and self.process.poll() is None

    def stop(self) -> None:
        self.end.close()
        if self.owner != os.getpid():  # in a forked copy of the parent
            self.process.returncode = 0
            return
        self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE)


_lock = threading.Lock()
_server: _Server | None = None
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


def _running() -> _Server:
    global _server
    if _server is None or not _server.running():
        if _server is not None:
            _server.stop()
        _server = None
        _server = _Server()
    return _server


def stop() -> None:
    """Kill the server. Workers already forked continue."""
    global _server
    if _server is not None:
        _server.stop()
        _server = None


def pid() -> int | None:
    """Return the server's process id, if it runs."""
    return None if _server is None else _server.process.pid


def fork(end: socket.socket) -> None:
    """Fork a worker that serves this end of a channel; the other end is told that it began.

    Raises
    ------
    OSError
        If the server cannot be started.
    """
    with _lock:
        try:
            socket.send_fds(_running().end, [WHOLE], [end.fileno()], socket.MSG_NOSIGNAL)
        except (BrokenPipeError, ConnectionResetError):  # the server has just died
            stop()
            socket.send_fds(_running().end, [WHOLE], [end.fileno()], socket.MSG_NOSIGNAL)


def _copy_of_stderr() -> int | None:
    try:
        return os.dup(2)
    except OSError:
        return None  # closed, or no descriptor left


def _let_go() -> None:
    """Drop the server in a forked copy of the user's process: its end would hide the parent's death from the server."""
    global _lock
    _lock = threading.Lock()  # another thread may have held it
    stop()


atexit.register(stop)
os.register_at_fork(after_in_child=_let_go)


# ---- in the server


def serve(end: int, stderr: int | None, modules: list[str]) -> None:
    """Fork workers on request until the parent is gone; ``end`` and ``stderr`` are descriptors."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {*SIGNALS, signal.SIGCHLD})  # the user's thread may block SIGCHLD
    parent = socket.socket(fileno=end)
    problem = _import(modules)
    if stderr is not None:
        os.dup2(stderr, 2)
        os.close(stderr)
    _Forking(parent, problem).run()


def _import(modules: list[str]) -> str:
    """Import what workers need and return any error as text."""
    try:
        for module in modules:
            importlib.import_module(module)
    except Exception as error:  # any exception, when memory or descriptors run out
        return describe(error)
    return ""


class _Forking:
    """The server's loop."""

    def __init__(self, parent: socket.socket, problem: str) -> None:
        self._parent, self._problem = parent, problem
        self._ends: dict[int, socket.socket] = {}  # by process id
        self._waking, self._wake = os.pipe()  # a byte for each child that ends
        for number in (self._waking, self._wake):
            os.set_blocking(number, False)

    def run(self) -> None:
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake)
        looking = select.poll()
        for number in (self._parent.fileno(), self._waking):
            looking.register(number, select.POLLIN)
        while True:
            ready = [number for number, _ in looking.poll()]
            if self._waking in ready:
                os.read(self._waking, 4096)
                self._reap()
            if self._parent.fileno() in ready:
                self._serve(*socket.recv_fds(self._parent, 4096, 1)[:2])

    def _serve(self, data: bytes, files: list[int]) -> None:
        """Handle a request, which is a descriptor."""
        if not data:
            os._exit(0)
        for number in files:  # none if no descriptor was left: the parent sees its end close
            self._fork(socket.socket(fileno=number))

    def _fork(self, end: socket.socket) -> None:
        if self._problem:
            _say(end, Ended(None, self._problem))
            return
        try:
            pid = os.fork()
        except OSError as error:
            _say(end, Ended(None, str(error)))
            return
        if pid:
            self._ends[pid] = end
            _say(end, Began(pid), last=False)
            return
        try:
            self._become_worker(end)
        except Exception as error:
            _say(end, Ended(None, describe(error)))
        finally:
            os._exit(1)

    def _become_worker(self, end: socket.socket) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for other in (self._parent, *self._ends.values()):
            other.close()
        os.close(self._waking)
        os.close(self._wake)
        sys.modules[WORKER].serve(end)

    def _reap(self) -> None:
        while True:
            try:
                child = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if child is None:
                return
            if (end := self._ends.pop(child.si_pid, None)) is not None:
                code = child.si_status
                _say(end, Ended(code if child.si_code == os.CLD_EXITED else -code))
            os.waitpid(child.si_pid, 0)  # only after the report, so whoever sees the process gone finds it


def _say(end: socket.socket, word: Began | Ended, last: bool = True) -> None:
    with contextlib.suppress(OSError):  # the parent no longer listens
        end.send(WHOLE + pickle.dumps(word), socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
    if last:
        end.close()
