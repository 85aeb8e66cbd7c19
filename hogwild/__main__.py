"""The program: ``python -m hogwild``, and the console script.

Every exception becomes one line on stderr and an exit status: 1 for bad input and failed work, 2 for wrong usage, 130
and 143 for Ctrl-C and SIGTERM. Only this module and ``cli/`` read environment variables. Worker processes import this
module again, so its own imports stay light.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import re
import signal
import sys
import warnings
from typing import Any, TextIO

from hogwild.errors import HogwildError, UsageError
from hogwild.rows_file import Output, Screen, printable


def main(arguments: list[str] | None = None) -> int:
    """Run one command line (``sys.argv`` by default) and return its exit status."""
    _open_missing_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):  # an undecodable name, or an ASCII terminal, must not end a run
        sys.stdout.reconfigure(errors="replace")
    plain = sys.stdout, sys.stderr
    messages = Screen(sys.stderr, "standard error")
    sys.stdout, sys.stderr = Output(sys.stdout), messages
    try:
        return _guarded(sys.argv[1:] if arguments is None else arguments, messages)
    finally:
        sys.stdout, sys.stderr = plain
        if messages.failure is not None:
            _discard(sys.stderr)
        if arguments is None:  # the program ends: skip the search for garbage cycles
            gc.freeze()


def _guarded(arguments: list[str], messages: Screen) -> int:
    """Run a command and return its exit status, whatever it raises and even if nobody reads its messages."""
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    for number in (signal.SIGTERM, signal.SIGHUP):  # the default action would skip every clean-up
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _terminate)
    status = 0
    try:
        status = _run(arguments)
        sys.stdout.flush()  # a full disk or a closed pipe shows here, not at the interpreter's shutdown
        messages.settle()
        return status
    except KeyboardInterrupt:
        print(file=sys.stderr)  # the terminal shows ^C
        return 128 + signal.SIGINT
    except BrokenPipeError:  # the reader of our output (head, less) has closed it
        _drop_output()
        return status or 128 + signal.SIGPIPE
    except Exception as error:
        status = status or _report(error)
        _drop_output()
        return status


def _run(arguments: list[str]) -> int:
    os.environ.pop("NUMBA_NUM_THREADS", None)  # of threads that no kernel uses: Numba raises ValueError for 0
    if any(not word or re.fullmatch("--[a-z-]+=", word) for word in arguments):  # an unset variable in a script
        raise UsageError("'': an argument is empty: expected a value for it")
    import typer

    from hogwild.cli import app

    command = typer.main.get_command(app)
    if os.environ.get("_HOGWILD_COMPLETE"):  # a shell asks, by the script of --install-completion
        command.main([], "hogwild")
    try:
        with command.make_context("hogwild", list(arguments)) as context:
            command.invoke(context)
    except typer.Exit as stop:
        return stop.exit_code
    return 0


def _report(error: Exception) -> int:
    """Print one line on stderr for any exception and return its exit status."""
    if os.environ.get("HOGWILD_DEBUG"):
        import traceback

        traceback.print_exception(error)
    if isinstance(error, HogwildError):
        message, status = str(error), error.exit_status
    elif hasattr(error, "format_message") and hasattr(error, "exit_code"):  # typer's own errors, for wrong usage
        context = getattr(error, "ctx", None)
        where = context.command_path if context is not None else "hogwild"
        said, _, _ = error.format_message().rstrip(".").partition(", unable to parse")
        message, status = f"{said} (see {where} --help)", error.exit_code
    elif isinstance(error, OSError) and error.strerror:
        message, status = f"{error.filename}: {error.strerror}" if error.filename else error.strerror, 1
        if error.errno == errno.EMFILE:
            message += ": raise ulimit -n (of the hosts, --host threads needs the fewest)"
    elif isinstance(error, MemoryError):
        message, status = f"out of memory: {error}" if str(error) else "out of memory", 1
    else:
        message = f"unexpected {type(error).__name__}: {error} (set HOGWILD_DEBUG=1 for the traceback)"
        status = 1
    print("hogwild: error:", printable(" ".join(message.split())), file=sys.stderr)
    return status


def _open_missing_streams() -> None:
    """Replace standard streams that the parent process had closed, which Python sets to None.

    The order matters: each takes its own missing descriptor, which otherwise the next opened file would get.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))


def _show_warning(message: Warning | str, category: type[Warning], *_: Any) -> None:
    print("hogwild: warning:", printable(" ".join(str(message).split())), file=sys.stderr)


def _terminate(number: int, _: Any) -> None:
    sys.exit(128 + number)


def _drop_output() -> None:
    """Discard what is still buffered for standard output if it cannot be written."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        _discard(sys.stdout)


def _discard(stream: TextIO) -> None:
    """Keep output still buffered for a closed pipe or full disk from raising again when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    sys.exit(main())
