"""Fetching from a server of this machine: resuming, retrying, refusing, unpacking, comparing, keeping nothing half."""

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import hashlib
import io
import lzma
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
from hogwild.data.public import fetch as fetch_module
from hogwild.data.public.catalogue import File, cards, place
from hogwild.data.public.convert import read_qrels
from hogwild.data.public.download import Partial, download
from hogwild.data.public.fetch import fetch
from hogwild.data.public.unpack import fits, is_archive, unpack
from hogwild.data.ratings.source import open_ratings
from hogwild.data.rows.source import open_data
from hogwild.data.rows.store import read_meta
from hogwild.errors import InputError, OutputError, UsageError
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
    file = File(url=web / "file", bytes=len(BODY), md5=md5(BODY), sha256=hashlib.sha256(BODY).hexdigest())
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
        {"etag": '"two"', "body": BODY[:150_000]},
        {"etag": None, "body": BODY[:100_000]},
        {"etag": None, "body": BODY + b"more"},
        {"ranges": False},
    ],
    ids=["version", "shorter", "shorter than what came", "longer", "no ranges"],
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
    with contextlib.closing(Partial(tmp_path / "file")) as partial:
        partial.begin({"url": web / "file", "total": len(BODY)})
        partial.write(BODY)
    assert get(web, tmp_path, md5=md5(BODY)) == BODY
    assert web.asked == []


def test_a_damaged_note_costs_a_download_only(web: Site, tmp_path: Path) -> None:
    web.put("file", BODY)
    (tmp_path / "file.part").write_bytes(b"rest of something")
    for note in ("{", "[]", "{}", '{"url": 3, "total": null}', f'{{"url": "{web / "file"}"}}'):
        (tmp_path / "file.part.json").write_text(note)
        assert get(web, tmp_path) == BODY
        os.rename(tmp_path / "file", tmp_path / "file.part")


def test_a_server_that_does_not_say_how_long_a_file_is(web: Site, tmp_path: Path) -> None:
    web.put("file", BODY, length=False)
    assert get(web, tmp_path) == BODY


def test_numbers_that_are_none(web: Site, tmp_path: Path) -> None:
    page = web.put("file", BODY, length=False, statuses=[503])
    for number in ("\xb2", "9" * 5000, "-1", "1e3"):  # the first is a digit to Python
        page.headers = {"Content-Length": number, "Retry-After": number}
        assert get(web, tmp_path) == BODY
        os.remove(tmp_path / "file")


def test_a_server_that_sends_too_much(web: Site, tmp_path: Path) -> None:
    page = web.put("file", BODY, cuts=[200_000, 0, 0, 0, 0, 0])
    with pytest.raises(InputError):
        get(web, tmp_path)
    page.body += bytes(1000)
    page.headers = {"Content-Range": "bytes 200000-899999/900000"}
    page.cuts.clear()
    with pytest.raises(InputError, match="sends more than 900,000 bytes: it is another file"):
        get(web, tmp_path)
    page.length, page.headers = False, {}
    with pytest.raises(InputError, match="sends more than 900,000 bytes: it is another file"):
        get(web, tmp_path, bytes=900_000)
    assert get(web, tmp_path) == page.body  # nothing of it was gone on from


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
    with pytest.raises(InputError, match="dead: nothing came for 0.2 seconds, 5 times in a row"):
        get(web, tmp_path, "dead")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (404, "404 Not Found: it is not there any more"),
        (410, "410 Gone: it is not there"),
        (403, "403 Forbidden: the server does not give it to programs"),
        (401, "401 Unauthorized"),
        (451, "the server answers 451"),
    ],
)
def test_refusals_are_final(web: Site, tmp_path: Path, status: int, said: str) -> None:
    web.put("file", BODY, statuses=[status] * 9)
    with pytest.raises(InputError) as caught:
        get(web, tmp_path)
    assert str(caught.value).startswith(f"{web / 'file'}: {said}")
    assert len(web.asked) == 1


def test_mirrors(web: Site, tmp_path: Path) -> None:
    web.put("second", BODY)
    assert get(web, tmp_path, mirrors=(web / "second",)) == BODY
    assert [path for path, _ in web.asked] == ["/file", "/second"]
    with pytest.raises(InputError, match="first: 404"):  # the publisher's own fault is the one to tell
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


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/file", "data:,text"])
def test_redirects_do_not_leave_the_web(web: Site, tmp_path: Path, target: str) -> None:
    web.put("file", redirect=target)
    with pytest.raises(InputError):
        get(web, tmp_path)
    assert not (tmp_path / "file").exists()
    assert len(web.asked) == 1


def test_redirects_stay_encrypted() -> None:
    import urllib.request

    request = urllib.request.Request("https://127.0.0.1/file")
    with pytest.raises(InputError, match="https://127.0.0.1/file: .* http://127.0.0.1/file, which is not encrypted"):
        fetch_download._Redirects().redirect_request(request, None, 302, "", {}, "http://127.0.0.1/file")


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


def test_a_web_page_is_not_the_file(web: Site, tmp_path: Path) -> None:
    web.put("file", "\n <!DOCTYPE html>\n<html>Please log in</html>")
    with pytest.raises(InputError, match="file: the server sent a web page, not the file"):
        get(web, tmp_path)


def test_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_download, "LONGEST_WAIT", 0.0)

    def no_name(*arguments: object, **options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_name)
    with pytest.raises(InputError, match=r"http://set\.invalid/file: .*name cannot be looked up \(Name or service"):
        download(File(url="http://set.invalid/file"), tmp_path / "file")
    monkeypatch.undo()

    def unreachable(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr(socket, "create_connection", unreachable)
    with pytest.raises(InputError, match=r"cannot be reached \(Network is unreachable\)"):
        download(File(url="http://127.0.0.1/file"), tmp_path / "file")


def test_nobody_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_download, "LONGEST_WAIT", 0.0)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))  # so that nobody else gets the port
        url = f"http://127.0.0.1:{server.getsockname()[1]}/file"
        with pytest.raises(InputError, match=r"the connection failed \(Connection refused\), 5 times in a row"):
            download(File(url=url), tmp_path / "file")


def test_not_http_at_all(tmp_path: Path) -> None:
    for url in ("file:///etc/passwd", "nonsense", "ftp://127.0.0.1/x"):
        with pytest.raises(InputError, match=url):
            download(File(url=url), tmp_path / "file")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk(web: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    web.put("file", BODY)
    os.symlink("/dev/full", tmp_path / "file.part")
    monkeypatch.setattr(Partial, "begin", lambda self, version: setattr(self, "version", version))
    with pytest.raises(OutputError, match=r"file\.part: cannot be written: No space left on device \(what has come"):
        get(web, tmp_path)


def test_too_little_room_is_told_before(web: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    web.put("file", BODY)
    monkeypatch.setattr(fetch_download.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 899_999})())
    with pytest.raises(
        OutputError, match=r"0\.00 GB are still to come and 0\.00 GB are free: make room, or set HOGWILD"
    ):
        get(web, tmp_path)
    monkeypatch.setattr(fetch_download.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 900_000})())
    assert get(web, tmp_path) == BODY


def test_an_interrupt_keeps_what_has_come(web: Site, tmp_path: Path) -> None:
    web.put("file", BODY)

    def stop(done: int, total: int | None) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(File(url=web / "file"), tmp_path / "file", stop)
    kept = (tmp_path / "file.part").stat().st_size
    assert 0 < kept < len(BODY)
    assert get(web, tmp_path) == BODY
    assert web.asked[-1] == ("/file", f"bytes={kept}-")


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


@pytest.mark.parametrize(
    "body",
    [zipped, *(lambda mode=mode, **members: taped(mode, **members) for mode in ("w", "w:gz", "w:bz2", "w:xz"))],
    ids=["zip", "tar", "tar.gz", "tar.bz2", "tar.xz"],
)
def test_members(tmp_path: Path, body: Any) -> None:
    path = tmp_path / "archive"
    path.write_bytes(body(**{"set/b.txt": "two", "set/a.txt": "one", "set/README": "no", "a.txt.bak": "no"}))
    assert is_archive(path)
    (tmp_path / "out").mkdir()
    found = unpack(path, "*.txt", tmp_path / "out")
    assert [one.read_text() for one in found] == ["one", "two"]  # by their names
    with pytest.raises(InputError, match=r"no c\.txt in the archive, which holds set/b\.txt, .*"):
        unpack(path, "c.txt", tmp_path / "out")


def test_single_compressed_texts_are_no_archives(tmp_path: Path) -> None:
    path = tmp_path / "text"
    for body in (b"1 1:1\n", b"", gzip.compress(b"1 1:1\n"), bz2.compress(b"1 1:1\n"), lzma.compress(b"1 1:1\n")):
        path.write_bytes(body)
        assert not is_archive(path)


def test_names_in_archives_lead_nowhere(tmp_path: Path) -> None:
    evil = {"../../evil.txt": "a", "/evil.txt": "b", "x/..\\..\\evil.txt": "c", "..": "d", "a\nb.txt": "e"}
    out = tmp_path / "out"
    out.mkdir()
    for body in (zipped, taped):
        (tmp_path / "archive").write_bytes(body(**evil))
        found = unpack(tmp_path / "archive", "*", out)
        assert {path.read_text() for path in found} == set("abcde")
        assert {path.parent for path in found} == {out}
        assert sorted(os.listdir(tmp_path)) == ["archive", "out"]
        for path in found:
            path.unlink()
    (tmp_path / "archive").write_bytes(zipped(**{"a\nb.txt": "e"}))
    with pytest.raises(InputError, match=r"no c\.txt in the archive, which holds 'a\\nb\.txt'$"):
        unpack(tmp_path / "archive", "c.txt", out)


def test_links_in_archives_are_not_followed(tmp_path: Path) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, kind in (
            ("link.txt", tarfile.SYMTYPE),
            ("hard.txt", tarfile.LNKTYPE),
            ("pipe.txt", tarfile.FIFOTYPE),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    (tmp_path / "archive").write_bytes(made.getvalue())
    with pytest.raises(InputError, match="no \\*.txt in the archive"):
        unpack(tmp_path / "archive", "*.txt", tmp_path)


@pytest.mark.parametrize("body", [zipped, taped, lambda **members: taped("w:xz", **members)], ids=["zip", "gz", "xz"])
def test_damaged_archives(tmp_path: Path, body: Any) -> None:
    whole = body(**{"a.txt": "some text that is long enough " * 3000})
    (tmp_path / "out").mkdir()
    for damaged in (whole[:-40], whole[:60], whole[: len(whole) // 2] + b"\x55" * 9 + whole[len(whole) // 2 + 9 :]):
        (tmp_path / "archive").write_bytes(damaged)
        with pytest.raises(InputError, match="archive: the archive is damaged: .") as caught:
            unpack(tmp_path / "archive", "*.txt", tmp_path / "out")
        assert "\n" not in str(caught.value)
        for left in (tmp_path / "out").iterdir():
            left.unlink()


def test_patterns() -> None:
    assert fits("ml-1m/ratings.dat", "ratings.dat")
    assert fits("ml-1m/ratings.dat", "*/ratings.dat")
    assert fits("x/combined_data_1.txt", "mv_*.txt|combined_data_*.txt")
    assert not fits("__MACOSX/ml-1m/._ratings.dat", "ratings.dat")


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
    write_card(own / "cards", "tiny", {"train": part | {"files": [{"url": web / name, **facts}]}}, **changes)
    return cards()["tiny"]


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("t", bytes),
        ("t.gz", gzip.compress),
        ("t.bz2", bz2.compress),
        ("t.xz", lzma.compress),
        ("t.zip", lambda body: zipped(**{"a/t.svm": body.decode(), "a/README": "no"})),
        ("t.tar.gz", lambda body: taped(**{"a/t.svm": body.decode(), "a/README": "no"})),
        ("t.tar.xz", lambda body: taped("w:xz", **{"a/t.svm": body.decode(), "a/README": "no"})),
    ],
)
def test_fetch_rows(own: Path, web: Site, name: str, pack: Any) -> None:
    body = pack(SVM.encode())
    web.put(name, body)
    card = rows_card(
        own, web, name, md5=md5(body), **({"member": "*.svm"} if name.startswith("t.t") or "zip" in name else {})
    )
    [done] = fetch(card)
    assert done.found == {"rows": ROWS, "nonzeros": NONZEROS, "features": 12, "classes": 2}
    assert done.path == own / "data" / "tiny" / "train"
    assert sorted(os.listdir(own / "data")) == ["tiny"]  # nothing of the download
    assert os.listdir(own / "data" / "tiny") == ["train"]
    rows = open_data("tiny")
    assert (len(rows), rows.nnz, rows.width) == (ROWS, NONZEROS, 12)  # the card's width, of which 10 occur
    origin = read_meta(done.path)["dataset"]
    assert (origin["name"], origin["part"], origin["source"]) == ("tiny", "train", web / name)
    assert origin["files"][0]["sha256"] == hashlib.sha256(body).hexdigest()
    web.asked.clear()
    assert [again.found for again in fetch(card)] == [{}]
    assert web.asked == []
    [forced] = fetch(card, force=True)
    assert forced.found == done.found
    assert len(web.asked) == 1


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"rows": ROWS + 1}, "500 rows and not 501"),
        ({"nonzeros": 7}, "1,000 nonzeros and not 7"),
        ({"classes": 1}, "2 classes, more than 1"),
        ({"features": 9}, "beyond the given width of 9 features"),
    ],
)
def test_counts_that_differ_keep_nothing(own: Path, web: Site, facts: dict[str, int], said: str) -> None:
    web.put("tiny.bz2", bz2.compress(SVM.encode()))
    with pytest.raises(InputError, match=f"^tiny: .*{said}.*; nothing was kept$"):
        list(fetch(rows_card(own, web, **facts)))
    assert not (own / "data" / "tiny").exists()
    assert not (own / "data" / ".downloads").exists()


@pytest.mark.parametrize("body", [b"1 1:1\nmore 2\n", bz2.compress(SVM.encode())[:-9], b"", b"<xml>"])
def test_damaged_data_keep_nothing(own: Path, web: Site, body: bytes) -> None:
    web.put("tiny.bz2", body)
    with pytest.raises(
        InputError, match="^tiny: .*nothing was kept$|tiny.bz2: the archive is damaged.*removed"
    ) as caught:
        list(fetch(rows_card(own, web)))
    assert "\n" not in str(caught.value)
    assert not (own / "data" / "tiny").exists()
    assert not (own / "data" / ".downloads").exists()


def packed() -> dict[str, bytes]:
    noise = random.Random(0).randbytes(20_000).hex()  # so that the members are more than a block
    members = {"a/t.svm": SVM, "a/README": noise}
    found = {f"t.{name}": taped(f"w:{name}", **members) for name in ("gz", "bz2", "xz")}
    return found | {"t.zip": zipped(**members), "t.tar": taped(**members), "u.gz": gzip.compress(SVM.encode())}


@pytest.mark.parametrize("name", packed())
def test_a_download_that_was_cut_short_does_not_stay(own: Path, web: Site, name: str) -> None:
    """Where the server does not say how long it is: fetched, by hand, or left by a version that did not look."""
    whole, downloads = packed()[name], own / "data" / ".downloads"
    card = rows_card(own, web, name, **({} if name == "u.gz" else {"member": "*.svm"}))
    for size in (15, len(whole) // 3, len(whole) - 9):
        if name == "t.tar" and size > len(whole) - 10:
            continue  # the zeros behind the last member
        page = web.put(name, whole[:size], length=False)
        for force in (False, True):
            with pytest.raises(
                InputError, match="the archive is damaged: .*: it was removed|nothing was kept"
            ) as caught:
                list(fetch(card, force=force))
            assert "\n" not in str(caught.value)
            assert not downloads.exists()
        by_hand = own / name
        by_hand.write_bytes(whole[:size])
        with pytest.raises(InputError, match=f"^{by_hand}: the archive is damaged"):
            list(fetch(card, sources=[by_hand]))
        assert by_hand.exists()
        (downloads / card.name).mkdir(parents=True)
        (downloads / card.name / name).write_bytes(whole[: min(size, len(whole) // 3)])
        with pytest.raises(InputError, match="nothing was kept"):
            list(fetch(card))
        assert not downloads.exists()
    page.body = whole
    assert [done.role for done in fetch(card)] == ["train"]


def test_a_failed_fetch_leaves_the_old_data(own: Path, web: Site) -> None:
    web.put("tiny.bz2", bz2.compress(SVM.encode()))
    list(fetch(rows_card(own, web)))
    with pytest.raises(InputError):
        list(fetch(rows_card(own, web, rows=3), force=True))
    assert len(open_data("tiny")) == ROWS


def test_a_full_disk_while_converting_keeps_the_download(own: Path, web: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from hogwild.data.columns import Column

    web.put("tiny.bz2", bz2.compress(SVM.encode()))
    card = rows_card(own, web)

    def full(self: Column, array: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Column, "write", full)
        with pytest.raises(OutputError, match="train: cannot write the store: No space left on device"):
            list(fetch(card))
    assert os.listdir(own / "data" / ".downloads" / "tiny") == ["tiny.bz2"]
    [done] = fetch(card)
    assert done.found["rows"] == ROWS
    assert len(web.asked) == 1
    assert os.listdir(own / "data") == ["tiny"]


def test_the_hint_to_get_it_by_hand(own: Path, web: Site) -> None:
    with pytest.raises(InputError) as caught:
        list(fetch(rows_card(own, web)))
    hint = "or get it by hand (http://nowhere) and: hogwild data fetch tiny --from FILE"
    assert str(caught.value) == f"{web / 'tiny.bz2'}: 404 Not Found: it is not there any more; {hint}"


def test_two_at_once(own: Path, web: Site) -> None:
    web.put("tiny.bz2", bz2.compress(SVM.encode()))
    card = rows_card(own, web)

    def second(what: str, done: int, total: int | None) -> None:
        with pytest.raises(InputError, match="tiny: another process is fetching it just now"):
            list(fetch(card))

    [done] = fetch(card, progress=second)
    assert done.found["rows"] == ROWS


def test_what_another_process_has_just_fetched_is_taken(own: Path, web: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    web.put("tiny.bz2", bz2.compress(SVM.encode()))
    card, real = rows_card(own, web), fetch_module._workplace

    def later(*given: Any) -> Any:
        monkeypatch.setattr(fetch_module, "_workplace", real)
        assert [bool(done.found) for done in fetch(card)] == [True]
        return real(*given)

    monkeypatch.setattr(fetch_module, "_workplace", later)
    assert [bool(done.found) for done in fetch(card)] == [False]
    assert len(web.asked) == 1


def test_a_data_folder_that_cannot_be_made(own: Path, web: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    (own / "plain").write_text("")
    monkeypatch.setenv("HOGWILD_DATA", str(own / "plain" / "below"))
    with pytest.raises(OutputError, match=r"plain.*: cannot be made: Not a directory \(HOGWILD_DATA names another"):
        list(fetch(rows_card(own, web)))


@pytest.fixture
def two(own: Path, web: Site) -> Any:
    parts = {
        role: {"rows": ROWS, "files": [{"url": web / f"two{end}.bz2", "md5": md5(bz2.compress(SVM.encode()))}]}
        for role, end in (("train", ""), ("test", ".t"))
    }
    write_card(own / "cards", "two", parts, features=FEATURES)
    return cards()["two"]


def test_parts_come_one_by_one(own: Path, web: Site, two: Any) -> None:
    page = web.put("two.bz2", bz2.compress(SVM.encode()))
    steps = fetch(two)
    assert next(steps).role == "train"
    with pytest.raises(InputError, match="two.t.bz2: 404"):
        next(steps)
    assert len(open_data("two")) == ROWS
    web.pages["/two.t.bz2"] = page
    assert [(done.role, bool(done.found)) for done in fetch(two)] == [("train", False), ("test", True)]
    assert len(open_data("two:test")) == ROWS
    [test] = fetch(two, ["test"], force=True)
    assert test.role == "test"


def test_by_hand(own: Path, web: Site, two: Any) -> None:
    hand = own / "hand"
    hand.mkdir()
    (hand / "two.t.bz2").write_bytes(bz2.compress(SVM.encode()))
    (hand / "other").write_text("not of it")
    [test] = fetch(two, sources=[hand])  # what there is
    assert (test.role, test.unchecked) == ("test", ())
    (hand / "two").write_text(SVM)  # unpacked by hand
    [train] = fetch(two, sources=[hand / "two"])
    assert (train.role, train.unchecked) == ("train", ("two.bz2",))
    assert len(list(fetch(two, sources=[hand / "two", hand / "two.t.bz2"], force=True))) == 2
    assert sorted(os.listdir(hand)) == ["other", "two", "two.t.bz2"]
    assert web.asked == []
    (hand / "two.t.bz2").write_bytes(bz2.compress(SVM.encode() + b"1 1:1\n"))
    with pytest.raises(InputError, match=r"hand/two\.t\.bz2: its md5 is"):
        list(fetch(two, ["test"], sources=[hand], force=True))
    assert (hand / "two.t.bz2").exists()
    assert len(open_data("two:test")) == ROWS


def test_by_hand_the_wrong_thing(own: Path, two: Any) -> None:
    (own / "other").write_text("")
    with pytest.raises(UsageError, match="--from other: expected two.bz2, two.t.bz2, or a directory that holds them"):
        list(fetch(two, sources=["other"]))
    with pytest.raises(InputError, match="nowhere: no such file"):
        list(fetch(two, sources=["nowhere"]))
    (own / "two").write_text(SVM)
    with pytest.raises(UsageError, match="--from two: expected two.t.bz2"):
        list(fetch(two, ["test"], sources=["two"]))
    (own / "two.bz2").write_bytes(bz2.compress(SVM.encode()))
    with pytest.raises(UsageError, match="--from two and two.bz2: both are two.bz2: give one of them"):
        list(fetch(two, ["train"], sources=["two", "two.bz2"]))
    assert len(list(fetch(two, ["train"], sources=["two", own / "two"]))) == 1  # the same file
    assert len(open_data("two")) == ROWS


def test_several_files_in_one_part(own: Path, web: Site) -> None:
    lines = SVM.splitlines(True)
    web.put("a.gz", gzip.compress("".join(lines[:200]).encode()))
    web.put("b.gz", gzip.compress("".join(lines[200:]).encode()))
    write_card(
        own / "cards", "parted", {"train": {"rows": ROWS, "files": [{"url": web / "a.gz"}, {"url": web / "b.gz"}]}}
    )
    [done] = fetch(cards()["parted"])
    assert (done.found["rows"], done.found["features"]) == (ROWS, FEATURES)
    (own / "whole").write_text(SVM)
    np.testing.assert_array_equal(open_data("parted").targets, open_data("whole").targets)


QRELS = "E11 2286 1\nCCAT 2286 1\nMCAT 2287 1\nCCAT 2289 1\nGCAT 2288 1\n"
VECTORS = "2286  1:0.5 3:0.25\n2287  2:1\n2288  4:0.125\n2289  1:1 4:1\n"


def test_lyrl2004(own: Path, web: Site) -> None:
    web.put("vectors.dat.gz", gzip.compress(VECTORS.encode()))
    web.put("more.dat.gz", gzip.compress(b"2287  3:1\n"))
    web.put("qrels.gz", gzip.compress(QRELS.encode()))
    parts = {
        "train": {"rows": 4, "nonzeros": 6, "files": [{"url": web / "vectors.dat.gz"}]},
        "test": {"rows": 1, "files": [{"url": web / "more.dat.gz"}]},
    }
    labels = [{"url": web / "qrels.gz"}]
    write_card(own / "cards", "news", parts, format="lyrl2004", topic="CCAT", features=5, labels=labels)
    assert [done.found["rows"] for done in fetch(cards()["news"])] == [4, 1]
    rows = open_data("news")
    assert rows.targets.tolist() == [1, -1, -1, 1]
    assert rows.indices.tolist() == [0, 2, 1, 3, 0, 3]
    assert [path for path, _ in web.asked].count("/qrels.gz") == 1  # for both parts
    assert not (own / "data" / ".downloads").exists()
    web.put("vectors.dat.gz", gzip.compress(b"2286 1:1\n9999 2:1\n"))
    with pytest.raises(InputError, match="vectors.dat.gz:2: document '9999' is not in the file of labels"):
        list(fetch(cards()["news"], ["train"], force=True))
    assert len(open_data("news")) == 4


def test_qrels_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "qrels"
    path.write_text("CCAT 1 1\nCCAT 2\n")
    with pytest.raises(InputError, match="qrels:2: expected a topic, a document and 1"):
        read_qrels([path], "CCAT")
    path.write_text("CCAT 1 1\nMCAT 2 1\n")
    assert read_qrels([path], "CCAT") == {b"1": True, b"2": False}
    with pytest.raises(InputError, match="no document of topic GCAT in 2 lines"):
        read_qrels([path], "GCAT")


RATINGS = "".join(
    f"{user}::{item}::{1 + (user * item) % 5}::97830{user}\n" for user in range(1, 9) for item in (3, 5, 7)
)


def test_ratings(own: Path, web: Site) -> None:
    web.put("films.zip", zipped(**{"films/ratings.dat": RATINGS, "films/movies.dat": "no"}))
    part = {"rows": 24, "files": [{"url": web / "films.zip", "member": "ratings.dat"}]}
    about = {"task": "ratings", "format": "ratings", "users": 8, "items": 30}
    write_card(own / "cards", "films", {"ratings": part}, **about)
    [done] = fetch(cards()["films"])
    assert done.found == {"ratings": 24, "users": 8, "items": 3}
    ratings = open_ratings("films")
    assert (len(ratings), ratings.shape, ratings.store) == (24, (8, 3), done.path)
    assert ratings.times is not None
    write_card(own / "cards", "films", {"ratings": part | {"rows": 23}}, **about | {"users": 7})
    with pytest.raises(InputError, match="24 ratings and not 23, 8 users, more than 7; nothing was kept"):
        list(fetch(cards()["films"], force=True))
    with pytest.raises(InputError, match="a store of ratings, expected"):
        open_data("films")


def test_ratings_by_hand_only(own: Path) -> None:
    file = {"name": "prize", "member": "*.data"}
    about = {"task": "ratings", "format": "ratings", "layout": {"columns": "item,user,-,time", "separator": ";"}}
    write_card(own / "cards", "prize", {"ratings": {"rows": 3, "files": [file]}}, **about, users=9, items=2)
    card = cards()["prize"]
    with pytest.raises(InputError, match="prize: nobody gives it out .* hogwild data fetch prize --from FILE"):
        list(fetch(card))
    (own / "set").mkdir()
    (own / "set" / "x.data").write_text("1;5;3;2005-09-06\n1;7;4;2005-01-02\n2;5;1;2004-01-01\n")
    (own / "set" / "titles.txt").write_text("1,2003,Dinosaur\n")
    [done] = fetch(card, sources=["set"])
    assert done.found == {"ratings": 3, "users": 2, "items": 2}


NETWORK = "c a network\np max 4 5\nn 1 s\nn 2 t\na 1 3 5\na 3 4 2\na 4 3 1\na 4 2 7\na 3 2 1\n"


def test_graphs(own: Path, web: Site) -> None:
    web.put("net.tbz2", taped("w:bz2", **{"net0.max": NETWORK, "net0.sol": "no", "net1.max": "no"}))
    part = {"files": [{"url": web / "net.tbz2", "member": "net0.max"}]}
    about = {"task": "graph", "format": "dimacs", "vertices": 4}
    write_card(own / "cards", "net", {"graph": part}, **about, arcs=5)
    [done] = fetch(cards()["net"])
    assert done.found == {"vertices": 4, "arcs": 5}
    assert done.path == place(cards()["net"], "graph") == own / "data" / "net" / "graph.max"
    assert done.path.read_text() == NETWORK
    assert len(open_graph("net")) == 4  # both ways between 3 and 4 are one edge
    write_card(own / "cards", "net", {"graph": part}, **about, arcs=6)
    with pytest.raises(InputError, match="net: .*5 arcs and not 6; nothing was kept"):
        list(fetch(cards()["net"], force=True))
    assert os.listdir(done.path.parent) == ["graph.max"]
    write_card(own / "cards", "net", {"graph": {"files": [{"url": web / "net.tbz2", "member": "*.max"}]}}, **about)
    with pytest.raises(InputError, match="net: 2 files where there should be one"):
        list(fetch(cards()["net"], force=True))
