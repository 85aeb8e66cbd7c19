"""Downloads one file of any size over an unreliable connection: resumed, retried and checked.

The part received is in ``NAME.part``, the only state; ``NAME.part.json`` says which version of the file it is the
beginning of (the server's ETag or date, and the size). A later call, in this process or after a kill, asks for the rest
with ``Range`` and ``If-Range``, and restarts only if the server has another version. The file gets its name when it is
complete: its checksum is right or, if the publisher gives none, it can be unpacked.

Plain urllib suffices for ranges, redirects and the user's proxies. The cost is one pass over the finished file for the
checksum, at about a gigabyte a second, or to unpack it, at a third of that.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.client
import json
import os
import re
import shutil
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hogwild.data.parallel import BytesRead
from hogwild.data.public.catalogue import File
from hogwild.data.public.unpack import verify
from hogwild.errors import InputError, OutputError, reason_of

BLOCK = 1 << 18  # bytes read at a time
TIMEOUT = 30.0  # seconds without a byte
TRIES = 5  # attempts in a row without new data
LONGEST_WAIT = 30.0  # seconds between two attempts
CHANGED = "the file on the server is another one than before"
TEMPORARY = (408, 429, 500, 502, 503, 504)  # HTTP statuses that may pass
KEPT = "what has come is kept, and the same command goes on from there"


class Failed(InputError):
    """A download that an immediate retry would not help. ``elsewhere`` says whether another server might."""

    elsewhere = True


class Passing(Exception):
    """A temporary fault of the network or the server; ``wait`` is in seconds, if the server says."""

    wait: float | None = None


def download(file: File, path: Path, progress: BytesRead | None = None) -> Path:
    """Download the whole of ``file`` to ``path``; return at once if it exists.

    Parameters
    ----------
    file : File
        Its URL and mirrors are tried in order; its size and checksums, if known, must match.
    path : Path
        Path in an existing directory.
    progress : function, optional
        Called now and then with the bytes received and their total (None if the server does not say).

    Raises
    ------
    InputError
        If the file is not available, or differs from the expected one; the message names the URL.
    OutputError
        If it cannot be written.
    """
    if path.exists():
        return path
    with contextlib.closing(Partial(path)) as partial:
        failures: list[Failed] = []
        for url in (file.url, *file.mirrors):
            try:
                _insist(url, file.bytes, partial, progress)
                break
            except Failed as error:
                failures.append(error)
                if not error.elsewhere:
                    raise
        else:
            raise failures[0]
        partial.finish(file)
    return path


def check(path: Path, file: File, called: str) -> None:
    """Raise InputError unless ``path`` has the size and the checksums that ``file`` states, if any."""
    if file.bytes is not None and (size := path.stat().st_size) != file.bytes:
        raise InputError(f"{called}: {size:,} bytes, expected {file.bytes:,}")
    for algorithm in ("sha256", "md5"):
        expected = getattr(file, algorithm)
        if expected is not None and (found := digest(path, algorithm)) != expected:
            raise InputError(f"{called}: its {algorithm} is {found}, expected {expected}")


def digest(path: Path, algorithm: str) -> str:
    """Return the checksum of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


# -- what was received ------------------------------------------------------------------------------------------------


class Partial:
    """The beginning of a file on disk, and the version it belongs to."""

    def __init__(self, path: Path) -> None:
        self.path, self.part = path, path.with_name(path.name + ".part")
        self.note = path.with_name(path.name + ".part.json")
        self.version: dict[str, Any] = {}
        with self._written():
            self.file: Any = open(self.part, "ab", buffering=0)
        self.size = os.fstat(self.file.fileno()).st_size
        with contextlib.suppress(OSError, ValueError, TypeError):
            self.version = dict(json.loads(self.note.read_bytes()))

    def close(self) -> None:
        self.file.close()

    @contextlib.contextmanager
    def _written(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            hint = f" ({KEPT})" if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else ""
            raise OutputError(f"{self.part}: cannot be written: {error.strerror or error}{hint}") from None

    def begin(self, version: dict[str, Any]) -> None:
        """Discard what was received: another version follows, or the same from its start."""
        with self._written():
            self.file.truncate(0)
            self.size, self.version = 0, version
            self.note.write_text(json.dumps(version))

    def write(self, block: bytes) -> None:
        view = memoryview(block)
        with self._written():
            while view:  # unbuffered, so that a full disk shows here; a write may be short
                done = self.file.write(view)
                self.size += done
                view = view[done:]

    def reserve(self, total: int | None) -> None:
        """Raise OutputError if the disk has no room for the rest."""
        if total is None:
            return
        free, needed = shutil.disk_usage(self.part.parent).free, total - self.size
        if needed > free:
            raise OutputError(
                f"{self.part.parent}: {needed / 1e9:,.2f} GB are still to come and {free / 1e9:,.2f} GB are free: make "
                "room, or set HOGWILD_DATA to a directory with more"
            )

    def finish(self, file: File) -> None:
        """Check the complete file and give it its name; a wrong one is removed, since resuming would not repair it."""
        try:
            check(self.part, file, file.url)
            if file.sha256 is None and file.md5 is None:
                verify(self.part, file.url)
        except InputError as error:
            self.part.unlink(missing_ok=True)
            self.note.unlink(missing_ok=True)
            raise InputError(
                f"{error}: it was removed; fetch it again, and if that is no better the publisher has changed the file"
            ) from None
        with self._written():
            os.fsync(self.file.fileno())
            os.replace(self.part, self.path)
        self.note.unlink(missing_ok=True)


# -- requests ---------------------------------------------------------------------------------------------------------


def _insist(url: str, expected: int | None, partial: Partial, progress: BytesRead | None) -> None:
    """Receive all of ``url`` in as many requests as needed, as long as some bring new data."""
    failures, best = 0, partial.size
    while not partial.size or partial.size != partial.version.get("total"):  # killed just before it got its name
        try:
            _receive(url, expected, partial, progress)
            return
        except Passing as error:
            failures = 0 if partial.size > best else failures + 1
            best = max(best, partial.size)
            if failures == TRIES:
                raise Failed(f"{url}: {error}, {TRIES} times in a row ({KEPT})") from None
            wait = 2.0 ** max(0, failures - 1) if error.wait is None else error.wait
            time.sleep(min(wait, LONGEST_WAIT))


def _receive(url: str, expected: int | None, partial: Partial, progress: BytesRead | None) -> None:
    """Request what is missing and read the answer to its end."""
    with _answer(url, partial) as answer:
        total = _place(url, answer, partial)
        if total is not None and expected not in (None, total):
            raise Failed(f"{url}: the server has {total:,} bytes, expected {expected:,}: it is another file")
        limit = expected if total is None else total
        partial.reserve(limit)
        while True:
            if progress:
                progress(partial.size, total)
            try:
                block = answer.read1(BLOCK)  # returns what is available, so that it is kept if no more comes
            except Exception as error:
                raise _fault(url, error) from None
            if not block:
                break
            if partial.size == 0 and re.match(rb"\s*<(!doctype html|html)", block[:512], re.IGNORECASE):
                raise Failed(f"{url}: the server sent a web page, not the file")
            if limit is not None and partial.size + len(block) > limit:
                partial.begin({})
                raise Failed(f"{url}: the server sends more than {limit:,} bytes: it is another file")
            partial.write(block)
    if total is not None and partial.size < total:
        raise Passing(f"the connection ended after {partial.size:,} of {total:,} bytes")


def _answer(url: str, partial: Partial) -> Any:
    headers = {"User-Agent": "hogwild", "Accept-Encoding": "identity"}
    known = partial.version
    if partial.size and known.get("url") == url and known.get("total") is not None:
        headers["Range"] = f"bytes={partial.size}-"
        if "validator" in known:
            headers["If-Range"] = known["validator"]
    try:
        return _opener().open(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416:  # the server's file is shorter than what was received
                partial.begin({})
            raise _refusal(url, error) from None
    except Exception as error:
        raise _fault(url, error) from None


def _place(url: str, answer: Any, partial: Partial) -> int | None:
    """Make ``partial`` end where the answer's body begins; return the size of the whole file."""
    if answer.status == 206:
        found = re.fullmatch(r"bytes ([0-9]{1,18})-[0-9]+/([0-9]{1,18})", answer.headers.get("Content-Range", ""))
        if found and int(found[1]) == partial.size and int(found[2]) == partial.version.get("total"):
            return int(found[2])
        partial.begin({})
        raise Passing(CHANGED)
    total = _whole(answer.headers.get("Content-Length"))
    validator = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
    strong = validator is not None and not validator.startswith("W/")
    partial.begin({"url": url, "total": total} | ({"validator": validator} if strong else {}))
    return total


def _whole(header: str | None) -> int | None:
    """Return the whole number in a header; None if it is missing or not a number."""
    return int(header) if header and re.fullmatch("[0-9]{1,18}", header) else None


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but not from an encrypted connection to a plain one."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise Failed(f"{req.full_url}: the server sends one on to {newurl}, which is not encrypted")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> urllib.request.OpenerDirector:
    """Return an opener for http and https only: a redirect must not open a local file."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        _Redirects(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener


def _refusal(url: str, error: urllib.error.HTTPError) -> Exception:
    """Return the exception for an unsuccessful HTTP status."""
    said = " ".join(f"{error.code} {error.reason}".split())
    if error.code == 416:
        return Passing(CHANGED)
    if error.code in TEMPORARY:
        passing = Passing(f"the server answers {said}")
        passing.wait = _whole(error.headers.get("Retry-After"))
        return passing
    if error.code in (404, 410):
        return Failed(f"{url}: {said}: it is not there any more")
    if error.code in (401, 403):
        return Failed(f"{url}: {said}: the server does not give it to programs")
    return Failed(f"{url}: the server answers {said}")


def _fault(url: str, error: Exception) -> Exception:
    """Return one of this module's exceptions for any failure of a connection."""
    reason: Any = error.reason if isinstance(error, urllib.error.URLError) else None
    reason = reason if isinstance(reason, Exception) else error
    if isinstance(reason, InputError):
        return reason
    if isinstance(reason, socket.gaierror):
        return Failed(f"{url}: its server's name cannot be looked up ({reason.strerror}): there may be no network")
    if isinstance(reason, ssl.SSLCertVerificationError):
        return Failed(f"{url}: its server's certificate is not valid: {reason.verify_message}")
    if isinstance(reason, OSError) and reason.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH):
        return Failed(f"{url}: its server cannot be reached ({reason.strerror}): there may be no network")
    if isinstance(reason, TimeoutError):
        return Passing(f"nothing came for {TIMEOUT:g} seconds")
    if isinstance(reason, urllib.error.URLError):
        return Failed(f"{url}: {reason.reason}")
    if isinstance(reason, OSError | http.client.HTTPException):
        return Passing(f"the connection failed ({reason_of(reason)})")
    return Failed(f"{url}: {' '.join(str(reason).split())}")  # such as an invalid URL
