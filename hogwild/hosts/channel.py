"""Messages between two processes over a pair of sockets, including the memory that they share.

A message arrives whole or not at all, however either side dies, and sending never waits for a reader: a long message
travels as a memory file. Memory blocks travel as descriptors within their message (``SCM_RIGHTS``), so the kernel
closes those that nobody fetched. ``torch.multiprocessing`` instead serves them from a thread, which keeps them for ever
if a worker dies before it asks, and prints a traceback if one dies while it does.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import socket
from typing import Any

from hogwild.hosts.memory import Block
from hogwild.hosts.messages import WHOLE

INLINE = 1 << 15  # bytes of a message that is sent inline
FILES = 16  # most descriptors in one message


class Channel:
    """One end of a channel."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def send(self, message: Any) -> None:
        """Pickle and send a message; raise OSError if nobody can receive it any more."""
        file = io.BytesIO()
        pickler = _Pickler(file, pickle.HIGHEST_PROTOCOL)
        pickler.dump(message)
        data, files = file.getbuffer(), pickler.files
        with contextlib.ExitStack() as stack:
            if len(data) > INLINE:
                long = stack.enter_context(open(os.memfd_create("hogwild-message"), "wb", buffering=0))
                long.write(data)
                data, files = data[:0], [*files, long.fileno()]
            socket.send_fds(self._socket, [WHOLE, data], files, socket.MSG_NOSIGNAL)

    def receive(self) -> Any:
        """Return the next message; raise EOFError when there will be none."""
        while True:
            try:
                data, files, flags, _ = socket.recv_fds(self._socket, INLINE + 1, FILES)
                break
            except ConnectionResetError:  # the other end left messages unread; what it sent still arrives
                continue
        try:
            if not data:
                raise EOFError("the other process has closed its end")
            if flags & socket.MSG_CTRUNC:
                raise OSError("no descriptor left for the memory that was sent")
            if len(data) > 1:
                return _Unpickler(io.BytesIO(data[1:]), files).load()
            with open(files[-1], "rb", closefd=False) as long:
                long.seek(0)
                return _Unpickler(long, files).load()
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
