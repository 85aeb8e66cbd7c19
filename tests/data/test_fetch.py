"""Fetching from a server of this machine: resuming, retrying, refusing, unpacking, comparing, keeping nothing half."""

from __future__ import annotations

import bz2
import errno
import hashlib
import io
import os
import random
import socket
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hogwild.data.graphs.source import open_graph
from hogwild.data.public import catalogue
from hogwild.data.public import download as fetch_download
from hogwild.data.public.catalogue import File, cards, place
from hogwild.data.public.download import Partial, download
from hogwild.data.public.fetch import fetch, unpack
from hogwild.data.ratings.source import open_ratings
from hogwild.data.rows.source import open_data
from hogwild.data.rows.store import Column, read_meta
from hogwild.errors import InputError, OutputError
from tests.downloads import FEATURES, NONZEROS, ROWS, SVM, Site, site, write_card

BODY = np.random.default_rng(0).bytes(900_000)


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site, and a client that does not wait for long."""
    monkeypatch.setattr(fetch_download, "LONGEST_WAIT", 0.01)
    monkeypatch.setattr(fetch_download, "TIMEOUT", 5.0)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with site() as made:
        yield made


def md5(body: bytes) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest()


def get(web: Site, path: Path, name: str = "file", **facts: Any) -> bytes:
    return download(File(url=web / name, name=name, **facts), path / name).read_bytes()


# -- downloading ------------------------------------------------------------------------------------------------------


def test_download(web: Site, tmp_path: Path) -> None:
    web.put("file", BODY)
    seen: list[tuple[int, int | None]] = []
    file = File(url=web / "file", name="file", bytes=len(BODY), md5=md5(BODY), sha256=hashlib.sha256(BODY).hexdigest())
    assert download(file, tmp_path / "file", lambda *now: seen.append(now)).read_bytes() == BODY
    assert os.listdir(tmp_path) == ["file"]
    assert seen == sorted(seen)
    assert seen[0] == (0, len(BODY))
    assert seen[-1] == (len(BODY), len(BODY))
    assert get(web, tmp_path) == BODY  # is there
    assert web.asked == [("/file", None)]


def test_broken_connections_go_on_where_they_broke(web: Site, tmp_path: Path) -> None:
    cuts = [100_000, 0, 300_000, 1, 1, 1, 1, 1, 1]  # more than TRIES, which counts those that bring nothing
    web.put("file", BODY, cuts=list(cuts))
    assert get(web, tmp_path) == BODY
    starts = [sum(cuts[:n]) for n in range(1, len(cuts) + 1)]
    assert [asked for _, asked in web.asked] == [None, *(f"bytes={start}-" for start in starts)]


def test_a_later_call_goes_on(web: Site, tmp_path: Path) -> None:
    page = web.put("file", BODY, cuts=[200_000, 0, 0, 0, 0, 0])
    with pytest.raises(
        InputError, match=r"the connection ended after 200,000 of 900,000 bytes, 5 times in a row .*kept"
    ):
        get(web, tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["file.part", "file.part.json"]
    page.cuts.clear()
    web.asked.clear()
    assert get(web, tmp_path, md5=md5(BODY)) == BODY
    assert web.asked == [("/file", "bytes=200000-")]
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize(
    "change",
    [
        {"etag": '"two"'},
        {"etag": None, "body": BODY[:100_000]},
        {"etag": None, "body": BODY + b"more"},
        {"ranges": False},
    ],
    ids=["version", "shorter than what came", "longer", "no ranges"],
)
def test_another_version_begins_anew(web: Site, tmp_path: Path, change: dict[str, Any]) -> None:
    page = web.put("file", bytes(900_000), etag=change.get("etag", '"one"') and '"one"', cuts=[200_000, 0, 0, 0, 0, 0])
    with pytest.raises(InputError):
        get(web, tmp_path)
    page.cuts.clear()
    page.body = BODY
    for name, value in change.items():
        setattr(page, name, value)
    assert get(web, tmp_path) == page.body


def test_what_was_whole_before_a_kill_is_not_asked_for_again(web: Site, tmp_path: Path) -> None:
    with Partial(tmp_path / "file") as partial:
        partial.begin({"url": web / "file", "total": len(BODY)})
        partial.write(BODY)
    assert get(web, tmp_path, md5=md5(BODY)) == BODY
    assert web.asked == []


def test_a_damaged_note_costs_a_download_only(web: Site, tmp_path: Path) -> None:
    web.put("file", BODY)
    (tmp_path / "file.part").write_bytes(b"rest of something")
    for note in ("{", "[]", f'{{"url": "{web / "file"}"}}'):
        (tmp_path / "file.part.json").write_text(note)
        assert get(web, tmp_path) == BODY
        os.rename(tmp_path / "file", tmp_path / "file.part")


def test_busy_servers_are_asked_again(web: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(fetch_download, "LONGEST_WAIT", 30.0)
    monkeypatch.setattr(fetch_download.time, "sleep", waits.append)
    web.put("file", BODY, statuses=[503, 429, 500])
    assert get(web, tmp_path) == BODY
    assert waits == [1, 2, 4]
    web.put("later", BODY, statuses=[503], headers={"Retry-After": "7"})
    assert get(web, tmp_path, "later") == BODY
    assert waits[3:] == [7]
    web.put("never", BODY, statuses=[502] * 5)
    with pytest.raises(InputError, match="never: the server answers 502 Bad Gateway, 5 times in a row"):
        get(web, tmp_path, "never")


def test_silence_is_not_waited_for(web: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_download, "TIMEOUT", 0.2)
    web.put("file", BODY, stalls=[300_000])
    assert get(web, tmp_path) == BODY
    begun = [int((asked or "bytes=0-")[6:-1]) for _, asked in web.asked]  # more than twice where the server was slow
    assert begun == sorted(begun)
    assert begun[-1] >= 300_000  # all that came was kept
    web.put("dead", BODY, stalls=[0] * 5)
    with pytest.raises(InputError, match=r"dead: the connection failed \(.*timed out\), 5 times in a row"):
        get(web, tmp_path, "dead")


def test_mirrors(web: Site, tmp_path: Path) -> None:
    web.put("second", BODY)
    assert get(web, tmp_path, mirrors=(web / "second",)) == BODY
    assert [path for path, _ in web.asked] == ["/file", "/second"]
    with pytest.raises(InputError, match="first: the server answers 404"):
        get(web, tmp_path, "first", mirrors=(web / "third",))


def test_a_mirror_does_not_go_on_with_another_server_s_bytes(web: Site, tmp_path: Path) -> None:
    web.put("file", bytes(900_000), etag=None, cuts=[200_000, 0, 0, 0, 0, 0])
    web.put("second", BODY, etag=None)
    assert get(web, tmp_path, mirrors=(web / "second",)) == BODY
    assert web.asked[-1] == ("/second", None)


def test_redirects(web: Site, tmp_path: Path) -> None:
    web.put("file", redirect=web / "over")
    web.put("over", redirect="there")
    web.put("there", BODY, cuts=[10])
    assert get(web, tmp_path) == BODY
    assert web.asked[-1] == ("/there", "bytes=10-")
    web.put("round", redirect="round")
    with pytest.raises(InputError, match="round: the server answers 302") as caught:
        get(web, tmp_path, "round")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("target", ["file:///etc/passwd", "data:,text"])
def test_what_is_not_of_the_web_is_not_opened(web: Site, tmp_path: Path, target: str) -> None:
    web.put("file", redirect=target)
    for url in (web / "file", target):
        with pytest.raises(InputError, match=url):
            download(File(name="file", url=url), tmp_path / "file")
    assert os.listdir(tmp_path) == []
    assert len(web.asked) == 1


def test_redirects_stay_encrypted() -> None:
    import urllib.request

    request = urllib.request.Request("https://127.0.0.1/file")
    with pytest.raises(InputError, match="https://127.0.0.1/file: .* http://127.0.0.1/file, which is not encrypted"):
        fetch_download._Redirects().redirect_request(request, io.BytesIO(), 302, "", {}, "http://127.0.0.1/file")


def test_a_wrong_checksum_keeps_nothing(web: Site, tmp_path: Path) -> None:
    web.put("file", BODY)
    for facts in ({"md5": "0" * 32}, {"sha256": "0" * 64}):
        with pytest.raises(InputError, match=rf"{next(iter(facts))} is .*, expected 000.*: it was removed"):
            get(web, tmp_path, **facts)
        assert os.listdir(tmp_path) == []


def test_a_file_of_another_size_is_not_even_begun(web: Site, tmp_path: Path) -> None:
    page = web.put("file", BODY)
    with pytest.raises(InputError, match="the server has 900,000 bytes, expected 900,001: it is another file"):
        get(web, tmp_path, bytes=len(BODY) + 1)
    page.length = False
    with pytest.raises(InputError, match="900,000 bytes, expected 900,001: it was removed"):
        get(web, tmp_path, bytes=len(BODY) + 1)
    assert os.listdir(tmp_path) == []


def test_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_name(*arguments: object, **options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_name)
    with pytest.raises(InputError, match=r"http://set\.invalid/file: .*cannot be reached \(Name or service"):
        download(File(name="file", url="http://set.invalid/file"), tmp_path / "file")


def test_a_full_disk(web: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Partial, block: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    web.put("file", BODY)
    monkeypatch.setattr(Partial, "write", full)
    with pytest.raises(OutputError, match=r"file\.part: cannot be written: No space left on device \(what has come"):
        get(web, tmp_path)


# -- unpacking --------------------------------------------------------------------------------------------------------


def zipped(**members: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return made.getvalue()


def taped(mode: str = "w:gz", **members: str) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as archive:  # type: ignore[call-overload]
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return made.getvalue()


@pytest.mark.parametrize("body", [zipped, taped], ids=["zip", "tar.gz"])
def test_members(tmp_path: Path, body: Any) -> None:
    path = tmp_path / "archive"
    path.write_bytes(body(**{"set/b.txt": "two", "set/a.txt": "one", "set/README": "no", "a.txt.bak": "no"}))
    unpack(path, "a.txt", tmp_path / "out")
    assert (tmp_path / "out").read_text() == "one"
    for pattern, said in (("c.txt", "0 members called c.txt, and 4 others"), ("*.txt", "2 members called")):
        with pytest.raises(InputError, match=said):
            unpack(path, pattern, tmp_path / "out")


def test_names_and_links_in_archives_lead_nowhere(tmp_path: Path) -> None:
    evil = {"../../evil.txt": "a", "/tmp/evil": "b", "..": "d"}
    linked = io.BytesIO(taped("w", **evil))
    with tarfile.open(fileobj=linked, mode="a") as archive:
        for name, kind in {"link": tarfile.SYMTYPE, "hard": tarfile.LNKTYPE, "pipe": tarfile.FIFOTYPE}.items():
            info = tarfile.TarInfo(name)
            info.type = kind
            info.linkname = "/etc/passwd"
            archive.addfile(info)
    for n, body in enumerate((zipped(**evil), linked.getvalue())):
        (tmp_path / "archive").write_bytes(body)
        unpack(tmp_path / "archive", "*.txt", tmp_path / str(n))
        assert (tmp_path / str(n)).read_text() == "a"
        with pytest.raises(InputError, match="0 members called passwd|0 members called link"):
            unpack(tmp_path / "archive", "link", tmp_path / "link")
    assert sorted(os.listdir(tmp_path)) == ["0", "1", "archive"]


@pytest.mark.parametrize("body", [zipped, taped], ids=["zip", "gz"])
def test_damaged_archives(tmp_path: Path, body: Any) -> None:
    noise = random.Random(0).randbytes(20_000).hex()  # so that the member is more than a block
    whole = body(**{"a.txt": noise})
    for damaged in (whole[:-40], whole[:60], whole[:5000] + b"\x55" * 9 + whole[5009:]):
        (tmp_path / "archive").write_bytes(damaged)
        with pytest.raises(InputError, match="archive: the archive is damaged: .") as caught:
            unpack(tmp_path / "archive", "*.txt", tmp_path / "out")
        assert "\n" not in str(caught.value)


# -- whole sets -------------------------------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path, web: Site, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(catalogue, "CARDS", tmp_path / "cards")
    monkeypatch.setenv("HOGWILD_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows_card(own: Path, web: Site, name: str = "tiny.bz2", **facts: Any) -> Any:
    part = {"rows": facts.pop("rows", ROWS), "nonzeros": facts.pop("nonzeros", NONZEROS)}
    changes = {"features": 12, "classes": 2} | {key: facts.pop(key) for key in ("features", "classes") if key in facts}
    write_card(own / "cards", "tiny", {"train": part | {"file": {"url": web / name, **facts}}}, **changes)
    return cards()["tiny"]


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("t.bz2", bz2.compress),
        (
            "t.zip",
            lambda body: zipped(**{"a/t.svm": body.decode(), "README": "no"}),
        ),
    ],
)
def test_fetch_rows(own: Path, web: Site, name: str, pack: Any) -> None:
    body = pack(SVM.encode())
    web.put(name, body)
    card = rows_card(own, web, name, md5=md5(body), **({"member": "*.svm"} if "zip" in name else {}))
    [done] = fetch(card)
    assert done.counts == {"rows": ROWS, "nonzeros": NONZEROS, "features": 12}
    assert done.path == own / "data" / "tiny" / "train"
    assert sorted(os.listdir(own / "data")) == ["tiny"]  # nothing of the download
    assert os.listdir(own / "data" / "tiny") == ["train"]
    rows = open_data("tiny")
    assert (len(rows), rows.nnz, rows.width) == (ROWS, NONZEROS, 12)  # the card's width, of which 10 occur
    meta = read_meta(done.path)
    assert meta["source"] == web / name
    web.asked.clear()
    assert [again.counts for again in fetch(card)] == [{}]
    assert web.asked == []
    [forced] = fetch(card, force=True)
    assert forced.counts == done.counts
    assert len(web.asked) == 1


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"rows": ROWS + 1}, "500 rows and not 501"),
        ({"features": 9}, "beyond the given width of 9 features"),
    ],
)
def test_counts_that_differ_keep_nothing(own: Path, web: Site, facts: dict[str, int], said: str) -> None:
    web.put("tiny.bz2", bz2.compress(SVM.encode()))
    with pytest.raises(InputError, match=f"^tiny: .*{said}.*; nothing was kept$"):
        list(fetch(rows_card(own, web, **facts)))
    assert os.listdir(own / "data" / "tiny") == []


CUT_ARCHIVES = [taped("w:gz", **{"a/t.svm": SVM * 40})[:-60]]


@pytest.mark.parametrize("body", [b"1 1:1\nmore 2\n", *CUT_ARCHIVES])
def test_damaged_data_keep_nothing(own: Path, web: Site, body: bytes) -> None:
    """Where the server does not say how long the file is, or sends another one."""
    web.put("tiny.bz2", body, length=False)
    card = rows_card(own, web, **({"member": "*.svm"} if body in CUT_ARCHIVES else {}))
    for _ in range(2):
        with pytest.raises(InputError, match="^tiny: .*nothing was kept$") as caught:
            list(fetch(card))
        assert "\n" not in str(caught.value)
    assert os.listdir(own / "data" / "tiny") == []


def test_a_full_disk_while_converting_keeps_the_download(own: Path, web: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    web.put("tiny.bz2", bz2.compress(SVM.encode()))
    card = rows_card(own, web)

    def full(self: Column, array: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Column, "write", full)
        with pytest.raises(OutputError, match="train: cannot write the store: No space left on device"):
            list(fetch(card))
    assert sorted(os.listdir(own / "data" / "tiny" / ".downloads")) == ["tiny.bz2"]
    [done] = fetch(card)
    assert done.counts["rows"] == ROWS
    assert len(web.asked) == 1
    assert os.listdir(own / "data") == ["tiny"]


def test_two_at_once(own: Path, web: Site) -> None:
    web.put("tiny.bz2", bz2.compress(SVM.encode()))
    card = rows_card(own, web)

    def second(what: str, done: int, total: int | None) -> None:
        with pytest.raises(InputError, match="tiny: another process is fetching it just now"):
            list(fetch(card))

    [done] = fetch(card, progress=second)
    assert done.counts["rows"] == ROWS


def test_a_data_folder_that_cannot_be_made(own: Path, web: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    (own / "plain").write_text("")
    monkeypatch.setenv("HOGWILD_DATA", str(own / "plain" / "below"))
    with pytest.raises(OutputError, match=r"plain.*: cannot be made: Not a directory \(HOGWILD_DATA names another"):
        list(fetch(rows_card(own, web)))


@pytest.fixture
def two(own: Path, web: Site) -> Any:
    parts = {
        role: {"rows": ROWS, "file": {"url": web / f"two{end}.bz2", "md5": md5(bz2.compress(SVM.encode()))}}
        for role, end in (("train", ""), ("test", ".t"))
    }
    write_card(own / "cards", "two", parts, features=FEATURES)
    return cards()["two"]


def test_parts_come_one_by_one(own: Path, web: Site, two: Any) -> None:
    page = web.put("two.bz2", bz2.compress(SVM.encode()))
    steps = fetch(two)
    assert next(steps).role == "train"
    with pytest.raises(InputError, match="two.t.bz2: the server answers 404"):
        next(steps)
    assert len(open_data("two")) == ROWS
    web.pages["/two.t.bz2"] = page
    assert [(done.role, bool(done.counts)) for done in fetch(two)] == [("train", False), ("test", True)]
    assert len(open_data("two:test")) == ROWS
    [test] = fetch(two, ["test"], force=True)
    assert test.role == "test"


RATINGS = "".join(
    f"{user}::{item}::{1 + (user * item) % 5}::97830{user}\n" for user in range(1, 9) for item in (3, 5, 7)
)


def test_ratings(own: Path, web: Site) -> None:
    web.put("films.zip", zipped(**{"films/ratings.data": RATINGS, "films/movies.dat": "no"}))
    part = {"rows": 24, "file": {"url": web / "films.zip", "member": "ratings.data"}}
    about = {"task": "ratings", "format": "ratings", "users": 8, "items": 30, "layout": {"separator": "::"}}
    write_card(own / "cards", "films", {"ratings": part}, **about)
    [done] = fetch(cards()["films"])
    assert done.counts == {"ratings": 24, "users": 8, "items": 3}
    ratings = open_ratings("films")
    assert (len(ratings), ratings.shape, ratings.store) == (24, (8, 3), done.path)
    assert ratings.times is not None
    write_card(own / "cards", "films", {"ratings": part | {"rows": 23}}, **about | {"users": 7})
    with pytest.raises(InputError, match="24 ratings and not 23, 8 users, more than 7; nothing was kept"):
        list(fetch(cards()["films"], force=True))
    with pytest.raises(InputError, match="a store of ratings, expected"):
        open_data("films")


NETWORK = "c a network\np max 4 5\nn 1 s\nn 2 t\na 1 3 5\na 3 4 2\na 4 3 1\na 4 2 7\na 3 2 1\n"


def test_graphs(own: Path, web: Site) -> None:
    web.put("net.tbz2", taped("w:bz2", **{"net0.max": NETWORK, "net0.sol": "no", "net1.max": "no"}))
    part = {"file": {"url": web / "net.tbz2", "member": "net0.max"}}
    about = {"task": "graph", "format": "dimacs", "vertices": 4}
    write_card(own / "cards", "net", {"graph": part}, **about, arcs=5)
    [done] = fetch(cards()["net"])
    assert done.counts == {"vertices": 4}
    assert done.path == place(cards()["net"], "graph") == own / "data" / "net" / "graph.max"
    assert done.path.read_text() == NETWORK
    assert len(open_graph("net")) == 4  # both ways between 3 and 4 are one edge
    write_card(own / "cards", "net", {"graph": part}, **about | {"vertices": 5})
    with pytest.raises(InputError, match="net: .*4 vertices and not 5; nothing was kept"):
        list(fetch(cards()["net"], force=True))
    assert os.listdir(done.path.parent) == ["graph.max"]
