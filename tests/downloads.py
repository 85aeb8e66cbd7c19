"""A web server of this machine that misbehaves on request, and made-up cards: what tests of the catalogue use."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hogwild.data.public import catalogue
from hogwild.data.public import fetch as fetching

SVM = "".join(f"{1 - 2 * (row % 2)} {1 + row % 7}:0.5 {8 + row % 3}:{row % 4}.25\n" for row in range(500))
ROWS, NONZEROS, FEATURES = 500, 1000, 10


@dataclass
class Page:
    """One file. Each of the lists holds what the next answers do, and is used up from its front."""

    body: bytes = b""
    etag: str | None = '"one"'
    ranges: bool = True  # else Range is not heeded
    length: bool = True  # else Content-Length is left out
    redirect: str | None = None
    statuses: list[int] = field(default_factory=list)  # answered in place of the file
    cuts: list[int] = field(default_factory=list)  # bytes of the body after which the connection is closed
    stalls: list[int] = field(default_factory=list)  # bytes after which nothing more comes until the site is closed


class Site:
    """``pages`` by their paths, ``asked`` with the path and the range of each request so far."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.pages: dict[str, Page] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.sent = threading.Event()  # something, before a stall
        self.over = threading.Event()

    def put(self, path: str, body: bytes | str = b"", **how: Any) -> Page:
        page = Page(body.encode() if isinstance(body, str) else body, **how)
        self.pages[f"/{path}"] = page
        return page

    def __truediv__(self, path: str) -> str:
        return f"{self.url}/{path}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def do_GET(self) -> None:
        site: Site = self.server.site  # type: ignore[attr-defined]
        site.asked.append((self.path, self.headers.get("Range")))
        page = site.pages.get(self.path)
        self.close_connection = True
        if page is None:
            self.send_error(404)
        elif page.redirect is not None:
            self.send_response(302)
            self.send_header("Location", page.redirect)
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif page.statuses:
            self.answer(page.statuses.pop(0), b"no", page)
        else:
            self.file(site, page)

    def file(self, site: Site, page: Page) -> None:
        found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        first, size = int(found[1]) if found else 0, len(page.body)
        if not page.ranges or self.headers.get("If-Range", page.etag) != page.etag:
            found = None
        if found and first >= size:
            self.answer(416, b"", page, **{"Content-Range": f"bytes */{size}"})
        elif found:
            part = {"Content-Range": f"bytes {first}-{size - 1}/{size}"}
            self.answer(206, page.body[first:], page, site, **part)
        else:
            self.answer(200, page.body, page, site)

    def answer(self, status: int, body: bytes, page: Page, site: Site | None = None, **headers: str) -> None:
        self.send_response(status)
        if page.length:
            self.send_header("Content-Length", str(len(body)))
        if page.etag is not None and site is not None:
            self.send_header("ETag", page.etag)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        cut = page.cuts.pop(0) if site and page.cuts else len(body)
        stall = page.stalls.pop(0) if site and page.stalls else None
        try:
            self.wfile.write(body[:cut] if stall is None else body[:stall])
            if site is not None and stall is not None:
                self.wfile.flush()
                site.sent.set()
                site.over.wait(30)
        except OSError:
            pass  # the other side has gone


def catalogue_of(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Let there be the cards and the data of this folder only, and nothing in the directory of work."""
    patch.setattr(catalogue, "CARDS", folder / "cards")
    patch.setenv("HOGWILD_DATA", str(folder / "data"))
    (folder / "work").mkdir()
    patch.chdir(folder / "work")


@contextmanager
def site(patch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site, and a client that does not wait for long."""
    patch.setattr(fetching, "LONGEST_WAIT", 0.01)
    patch.setattr(fetching, "TIMEOUT", 5.0)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        patch.delenv(name, raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.daemon_threads = False
        made = server.site = Site(f"http://127.0.0.1:{server.server_port}")  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield made
        finally:
            made.over.set()
            server.shutdown()
            thread.join()


def write_card(folder: Path, stem: str, parts: dict[str, Any], **changes: Any) -> None:
    """A card with what all need; ``parts`` by role."""
    about = {
        "name": stem,
        "title": f"The set {stem}",
        "task": "binary",
        "format": "svmlight",
        "homepage": "http://nowhere",
        "licence": "none",
        "citation": "nobody",
        "source": "made up",
    } | changes
    lines = [f"{key} = {_toml(value)}" for key, value in about.items()]
    for role, part in parts.items():
        lines += [f"[{role}]", *(f"{key} = {_toml(value)}" for key, value in part.items())]
    folder.mkdir(exist_ok=True)
    (folder / f"{stem}.toml").write_text("\n".join(lines) + "\n")


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(entry)}" for key, entry in value.items()) + "}"
    return json.dumps(value)
