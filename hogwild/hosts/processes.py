"""Workers as processes that share one parameter array, which lies in shared memory of ``torch.multiprocessing``.

A fork server that has imported the kernels starts them once, for any number of runs. A worker's death is noticed at
once, because its channel closes. Disciplines without locks then go on: a replacement is started, and what the worker
had claimed, at most a chunk, is lost. If it may have held a lock or a turn, the run ends.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import socket
import sys
import threading
import time
import weakref
from multiprocessing.connection import wait
from typing import Any

from hogwild.errors import TrainingError
from hogwild.hosts import fork_server
from hogwild.hosts.fork_server import Began, Ended, cannot_start
from hogwild.hosts.job import Job, Task, work_for
from hogwild.hosts.memory import Block
from hogwild.hosts.pool import Crew
from hogwild.kernels.cache import leave_warnings
from hogwild.kernels.control import ABORT, LINE, ROWS, WORKERS
from hogwild.machine import cpus_of, pin
from hogwild.problems.protocol import HOLDS

DEATHS_IN_A_ROW = 3  # deaths of one worker without progress in between, after which the run ends
GRACE = 1.0  # seconds that workers have to end when told to
WORD = 1 << 12  # bytes of the longest word of the fork server
FILES = 16  # most descriptors in one message


class Channel:
    """One end of a channel between two processes: messages, and the memory that they share.

    A message arrives whole or not at all, however either side dies, and sending never waits for a reader: a message
    travels as a memory file. Memory blocks travel as descriptors within their message (``SCM_RIGHTS``), so the
    system closes those that nobody fetched. ``torch.multiprocessing`` instead serves them from a thread, which keeps
    them for ever if a worker dies before it asks, and prints a traceback if one dies while it does.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def send(self, message: Any) -> None:
        """Pickle and send a message; raise OSError if nobody can receive it any more."""
        with open(os.memfd_create("hogwild-message"), "wb") as file:
            pickler = _Pickler(file, pickle.HIGHEST_PROTOCOL)
            pickler.dump(message)
            file.flush()
            socket.send_fds(self._socket, [b"+"], [*pickler.files, file.fileno()], socket.MSG_NOSIGNAL)

    def receive(self) -> Any:
        """Return the next message; raise EOFError when there will be none."""
        while True:
            try:
                data, files, flags, _ = socket.recv_fds(self._socket, WORD, FILES)
                break
            except ConnectionResetError:  # the other end left messages unread; what it sent still arrives
                continue
        try:
            if not data:
                raise EOFError("the other process has closed its end")
            if flags & socket.MSG_CTRUNC:
                raise OSError("no descriptor left for the memory that was sent")
            if not files:  # a word of the fork server
                return pickle.loads(data)
            with open(files[-1], "rb", closefd=False) as file:
                file.seek(0)
                return _Unpickler(file, files).load()
        finally:
            for number in files:
                os.close(number)


class _Pickler(pickle.Pickler):
    def __init__(self, file: Any, protocol: int) -> None:
        super().__init__(file, protocol)
        self.files: list[int] = []

    def persistent_id(self, thing: Any) -> Any:
        if not isinstance(thing, Block):
            return None
        self.files.append(thing.descriptor())
        return len(self.files) - 1, thing.spec


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, files: list[int]) -> None:
        super().__init__(file)
        self._files = files

    def persistent_load(self, name: Any) -> Block:
        number, spec = name
        return Block.at(self._files[number], spec)


# ---- in a worker


def serve(end: socket.socket) -> None:
    """Run a worker process: do jobs and tasks until the channel closes. The first message is about the worker itself.

    It ignores SIGINT and SIGTERM, as the fork server does, and ends as soon as the parent's end of its channel closes,
    even in the middle of an epoch. Every message has a number, and so does its answer: None, or an error in one line.
    """
    threading.Thread(target=_end_with_parent, args=(end,), daemon=True).start()
    leave_warnings()
    channel = Channel(end)
    try:
        worker, cpu, sys.path[:] = channel.receive()
        pin(cpu)
        work_for(worker, channel.receive, channel.send)
    except (EOFError, BrokenPipeError):
        pass  # the parent closed its end, or died
    os._exit(0)  # nothing needs cleaning up, and the teardown of torch and numba takes a tenth of a second


def _end_with_parent(end: socket.socket) -> None:
    looking = select.poll()
    looking.register(end, 0)
    looking.poll()
    os._exit(1)


# ---- in the parent


class _Worker:
    """A process, which the fork server is asked for, and the parent's end of its channel."""

    def __init__(self, number: int, cpu: int | None) -> None:
        self.number = number
        self.cpu = cpu
        self.pid = 0
        self.ended: Ended | None = None  # the report of its death
        with contextlib.ExitStack() as undo:
            try:
                end, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                self.channel = undo.enter_context(contextlib.closing(Channel(end)))
                with other:
                    self.channel.send((self.number, self.cpu, sys.path))
                    fork_server.fork(other)
            except OSError as error:  # no process or descriptor left
                raise cannot_start(str(error)) from error
            undo.pop_all()

    def wait_for_process(self) -> None:
        """Return once the process has begun, which takes a while if the server has just been started."""
        self.receive()
        if self.ended is not None:
            fork_server.stop()  # the import error may be temporary: the next server tries again
            raise cannot_start(self.ended.reason or "its fork server died")

    def cause(self) -> str:
        """Cause of the worker's death."""
        if self.ended is None or self.ended.status is None:  # the fork server, which knows, is gone too
            return (self.ended and self.ended.reason) or "cause unknown"
        code = self.ended.status
        return f"killed by signal {-code}, {signal.strsignal(-code)}" if code < 0 else f"exit status {code}"

    def send(self, message: Any) -> None:
        """Send a message, if the worker lives."""
        try:
            self.channel.send(message)
        except (BrokenPipeError, ConnectionResetError):  # it is dead: its channel will report it shortly
            pass
        except OSError as error:  # no descriptor or file left for a long message
            if self.channel.fileno() >= 0:  # else closed by another thread
                raise TrainingError(
                    f"cannot send worker process {self.number} its work ({error}): try host='threads' (--host threads)"
                ) from error

    def receive(self) -> Any:
        """Return the worker's next message; the first is a ``Began``, the last an ``Ended``."""
        try:
            word = self.channel.receive()
        except EOFError:
            word = Ended(None)
        if isinstance(word, Ended):
            self.ended = word
        if isinstance(word, Began):
            self.pid = word.pid
        return word

    def kill(self) -> None:
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


_pools: weakref.WeakSet[Processes] = weakref.WeakSet()


def _let_go() -> None:
    """Close the ends in a forked copy of the user's process: they would hide the parent's death from the workers."""
    for pool in [*_pools]:
        pool.close()


os.register_at_fork(after_in_child=_let_go)


class Processes(Crew):
    """A pool of worker processes (see :class:`hogwild.hosts.pool.Pool`)."""

    host, shared = "processes", True

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self._deaths = [0] * workers
        self._done = [0] * workers  # rows of the epoch that each had done at its last death
        self._crew: list[_Worker] = []  # its contents alone are known to the finalizer
        self._end = weakref.finalize(self, _end, self._crew, self._held, os.getpid())
        _pools.add(self)
        try:
            for number, cpu in enumerate(cpus_of(workers)):
                self._crew.append(_Worker(number, cpu))
            for worker in self._crew:
                worker.wait_for_process()
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple(worker.pid for worker in self._crew)

    def begin(self, task: Task) -> None:
        with self._unless_closed():
            self._listen(0.0)  # workers that died while idle held nothing
        self._deaths = [0] * self.workers
        self._done = [0] * self.workers
        super().begin(task)

    def _post(self, worker: int, message: tuple[int, Job | Task | None]) -> None:
        self._crew[worker].send(message)

    def _listen(self, timeout: float) -> None:
        workers = {worker.channel.fileno(): worker for worker in self._crew}
        for number in wait([*workers], timeout):
            worker = workers[int(number)]  # type: ignore[arg-type]
            word = worker.receive()
            if isinstance(word, Ended):
                if worker in self._crew and not self.closed:  # otherwise another thread is closing the pool
                    self._replace(worker)
            elif not isinstance(word, Began):
                self._hear(worker.number, *word)

    def _replace(self, dead: _Worker) -> None:
        """Replace a worker that died, or end the run."""
        job = self.job
        number = dead.number
        cause = dead.cause()
        self.lost += 1
        if job is not None:
            done = int(job.control[WORKERS + LINE * number + ROWS])
            self._deaths[number] = 1 if done > self._done[number] else self._deaths[number] + 1
            self._done[number] = done
            job.bury(number)
            if self._task is not None and number in self._awaited and job.problem.holds:
                job.control[ABORT] = 1
                locking = job.problem.discipline in HOLDS
                name = f"discipline {job.problem.discipline}" if locking else "order blocks"
                raise TrainingError(
                    f"worker {number} died ({cause}), perhaps holding a lock that {name} waits for: resume from the "
                    f"last checkpoint, or choose {'a lock-free one' if locking else 'order shuffled'}"
                )
        if self._deaths[number] >= DEATHS_IN_A_ROW:
            raise TrainingError(f"worker {number} died {DEATHS_IN_A_ROW} times in a row ({cause}): out of memory?")
        fresh = _Worker(number, dead.cpu)
        try:
            fresh.wait_for_process()
        except BaseException:
            fresh.channel.close()
            raise
        if dead not in self._crew:  # the pool was closed meanwhile
            fresh.channel.close()
            return
        self._crew[self._crew.index(dead)] = fresh
        dead.channel.close()
        if job is not None:
            self._send(number, self._first, job)
        if self._task is not None:  # it joins the current epoch
            self._send(number, self._latest, self._task)


def _end(crew: list[_Worker], held: list[Job], owner: int) -> None:
    """Close the pool."""
    workers, crew[:] = [*crew], []
    if os.getpid() != owner:  # a copy of the pool in a process forked from this one
        for worker in workers:
            worker.channel.close()
        held.clear()
        return
    for job in held:
        job.abort()
    for worker in workers:
        with contextlib.suppress(TrainingError):
            worker.send(None)
    living = _wait_for_end(workers)
    for worker in living:
        worker.kill()
    _wait_for_end(living)
    for worker in workers:
        worker.channel.close()
    held.clear()


def _wait_for_end(workers: list[_Worker]) -> list[_Worker]:
    """Return the workers that have not ended after ``GRACE``."""
    deadline = time.monotonic() + GRACE
    for worker in workers:
        while worker.ended is None and wait([worker.channel.fileno()], max(deadline - time.monotonic(), 0.0)):
            worker.receive()
    return [worker for worker in workers if worker.ended is None]
