"""Downloads one file of any size over an unreliable connection: resumed, retried and checked.

The part received is in ``NAME.part``; ``NAME.part.json`` says which version of the file it is the beginning of (the
server's ETag or date, and the size). A later call, in this process or after a kill, asks for the rest with ``Range``
and ``If-Range``, and restarts only if the server has another version. The file gets its name when it is complete and
its size and checksum are those that the publisher states.

Plain urllib suffices for ranges, redirects and the user's proxies. The cost is one pass over the finished file for the
checksum, at about a gigabyte a second.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from hogwild.data.parallel import BytesRead
from hogwild.data.public.catalogue import File
from hogwild.errors import HogwildError, InputError, OutputError, reason_of

BLOCK = 1 << 18  # bytes read at a time
TIMEOUT = 30.0  # seconds without a byte
TRIES = 5  # attempts in a row without new data
LONGEST_WAIT = 30.0  # seconds between two attempts
TEMPORARY = (408, 416, 429, 500, 502, 503, 504)  # HTTP statuses that may pass
KEPT = "what has come is kept, and the same command goes on from there"


class Failed(InputError):
    """A download that an immediate retry would not help."""


class Passing(Exception):
    """A temporary fault of the network or the server; the second argument is a wait in seconds, if the server says."""


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
    try:
        with Partial(path) as partial:
            failure: Failed | None = None
            for url in (file.url, *file.mirrors):
                try:
                    _insist(url, file.bytes, partial, progress)
                    break
                except Failed as error:
                    failure = failure or error
            else:
                raise failure or AssertionError
            try:
                check(partial.path, file, file.url)
            except InputError as error:
                partial.begin({})
                raise InputError(f"{error}: it was removed, since the publisher may have changed the file") from None
            os.fsync(partial.file.fileno())
            os.replace(partial.path, path)
            partial.note.unlink(missing_ok=True)
    except OSError as error:
        if isinstance(error, HogwildError):
            raise
        raise OutputError(f"{path}.part: cannot be written: {error.strerror or error} ({KEPT})") from None
    return path


def check(path: Path, file: File, title: str) -> None:
    """Raise InputError unless ``path`` has the size and the checksums that ``file`` states, if any."""
    if file.bytes is not None and (size := path.stat().st_size) != file.bytes:
        raise InputError(f"{title}: {size:,} bytes, expected {file.bytes:,}")
    for algorithm in ("sha256", "md5"):
        if (expected := getattr(file, algorithm)) is not None:
            with open(path, "rb") as stream:
                digest = hashlib.file_digest(stream, lambda name=algorithm: hashlib.new(name, usedforsecurity=False))  # type: ignore[misc]
            if digest.hexdigest() != expected:
                raise InputError(f"{title}: its {algorithm} is {digest.hexdigest()}, expected {expected}")


class Partial:
    """The beginning of a file on disk, its size, and the version it belongs to."""

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(path.name + ".part")
        self.note = path.with_name(path.name + ".part.json")
        self.version: dict[str, Any] = {}
        self.file = open(self.path, "ab", buffering=0)  # so that a full disk shows where it is written
        self.size = os.fstat(self.file.fileno()).st_size
        with contextlib.suppress(OSError, ValueError, TypeError):
            self.version = dict(json.loads(self.note.read_bytes()))

    def begin(self, version: dict[str, Any]) -> None:
        """Discard what was received: another version follows, or the same from its start."""
        self.file.truncate(0)
        self.size = 0
        self.version = version
        self.note.write_text(json.dumps(version))

    def write(self, block: bytes) -> None:
        while block:  # a write may be short
            written = self.file.write(block) or 0
            self.size += written
            block = block[written:]

    def __enter__(self) -> Partial:
        return self

    def __exit__(self, *exception: object) -> None:
        self.file.close()
        if self.size == 0:
            self.path.unlink(missing_ok=True)
            self.note.unlink(missing_ok=True)


def _insist(url: str, expected: int | None, partial: Partial, progress: BytesRead | None) -> None:
    """Receive all of ``url`` in as many requests as needed, as long as some bring new data."""
    failures = 0
    longest = partial.size
    while not partial.size or partial.size != partial.version.get("total"):  # equal: killed before it got its name
        try:
            _receive(url, expected, partial, progress)
            return
        except Passing as error:
            failures = 0 if partial.size > longest else failures + 1
            longest = max(longest, partial.size)
            if failures == TRIES:
                raise Failed(f"{url}: {error.args[0]}, {TRIES} times in a row ({KEPT})") from None
            wait = error.args[1] if len(error.args) > 1 else 2.0 ** max(0, failures - 1)
            time.sleep(min(wait, LONGEST_WAIT))


def _receive(url: str, expected: int | None, partial: Partial, progress: BytesRead | None) -> None:
    """Request what is missing and read the answer to its end."""
    headers = {"User-Agent": "hogwild", "Accept-Encoding": "identity"}
    version = partial.version
    total = version.get("total")
    if partial.size and version.get("url") == url and isinstance(total, int):
        headers["Range"] = f"bytes={partial.size}-"
        if "validator" in version:
            headers["If-Range"] = version["validator"]
    try:
        request = urllib.request.Request(url, headers=headers)
        if request.type not in ("http", "https"):
            raise Failed(f"{url}: expected an address that begins with http:// or https://")
        answer = urllib.request.build_opener(_Redirects()).open(request, timeout=TIMEOUT)
    except Exception as error:
        if isinstance(error, urllib.error.HTTPError) and error.code == 416:  # the server's file is shorter than ours
            partial.begin({})
        raise _fault(url, error) from None
    with answer:
        rest = f"bytes {partial.size}-{(total or 0) - 1}/{total}"
        if answer.status != 206:
            total = _whole_number(answer.headers.get("Content-Length"))
            validator = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
            strong = validator is not None and not validator.startswith("W/")
            partial.begin({"url": url, "total": total} | ({"validator": validator} if strong else {}))
        elif answer.headers.get("Content-Range") != rest:
            partial.begin({})
            raise Passing("the file on the server is another one than before")
        if total is not None and expected not in (None, total):
            raise Failed(f"{url}: the server has {total:,} bytes, expected {expected:,}: it is another file")
        while True:
            if progress:
                progress(partial.size, total)
            try:
                block = answer.read1(BLOCK)  # returns what is available, so that it is kept if no more comes
            except Exception as error:
                raise _fault(url, error) from None
            if not block:
                break
            partial.write(block)
    if total is not None and partial.size < total:
        raise Passing(f"the connection ended after {partial.size:,} of {total:,} bytes")


def _whole_number(header: str | None) -> int | None:
    """Return the whole number in a header; None if it is missing or not a number."""
    return int(header) if header and re.fullmatch("[0-9]{1,18}", header) else None


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but not from an encrypted connection to a plain one, and not out of the web."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if newurl.partition(":")[0] not in ("https", req.type):
            fp.close()
            raise Failed(f"{req.full_url}: the server sends one on to {newurl}, which is not encrypted")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _fault(url: str, error: Exception) -> Exception:
    """Return one of this module's exceptions for any failure of a connection."""
    if isinstance(error, Failed):
        return error
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        reason = " ".join(f"the server answers {error.code} {error.reason}".split())
        if error.code not in TEMPORARY:
            return Failed(f"{url}: {reason}")
        wait = _whole_number(error.headers.get("Retry-After"))
        return Passing(reason) if wait is None else Passing(reason, wait)
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, socket.gaierror):
        return Failed(f"{url}: its server cannot be reached ({reason_of(cause)}): there may be no network")
    if isinstance(cause, OSError | http.client.HTTPException) and not isinstance(cause, ssl.SSLCertVerificationError):
        return Passing(f"the connection failed ({reason_of(cause)})")
    return Failed(f"{url}: {' '.join(str(cause).split())}")  # such as an invalid URL
