"""Fetching from a server of this machine: resuming, retrying, refusing, unpacking, comparing, keeping nothing half."""

from __future__ import annotations

import bz2
import errno
import hashlib
import io
import os
import random
import re
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hogwild.data.public import fetch as fetching
from hogwild.data.public.catalogue import Part, cards
from hogwild.data.public.fetch import download, fetch, unpack
from hogwild.data.rows.source import open_data
from hogwild.data.rows.store import Column, read_meta
from hogwild.errors import InputError, OutputError
from tests.downloads import NONZEROS, ROWS, SVM, Site, catalogue_of, site, write_card
from tests.runs import line_of

BODY = np.random.default_rng(0).bytes(900_000)
BROKEN = [200_000, 0, 0, 0, 0, 0]  # bytes of each answer until the client gives up


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with site(monkeypatch) as made:
        yield made


def md5(body: bytes) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest()


def get(web: Site, path: Path, name: str = "file", **facts: Any) -> bytes:
    download(Part("train", web / name, **facts), path / name)
    return (path / name).read_bytes()


# -- downloading ------------------------------------------------------------------------------------------------------


def test_download(web: Site, tmp_path: Path) -> None:
    web.put("file", BODY)
    seen: list[tuple[int, int | None]] = []
    part = Part("train", web / "file", (), len(BODY), md5(BODY))
    for _ in range(2):  # the second time it is there
        download(part, tmp_path / "file", lambda *now: seen.append(now))
    assert (tmp_path / "file").read_bytes() == BODY
    assert os.listdir(tmp_path) == ["file"]
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == ((0, len(BODY)), (len(BODY), len(BODY)))
    assert web.asked == [("/file", None)]


def test_broken_connections_go_on_where_they_broke(web: Site, tmp_path: Path) -> None:
    cuts = [100_000, 0, 300_000, 1, 1, 1, 1, 1, 1]  # more than TRIES, which counts those that bring nothing
    web.put("file", BODY, cuts=list(cuts))
    assert get(web, tmp_path) == BODY
    starts = [sum(cuts[:n]) for n in range(1, len(cuts) + 1)]
    assert [asked for _, asked in web.asked] == [None, *(f"bytes={start}-" for start in starts)]


@pytest.mark.parametrize(
    ("change", "resumed"),
    [
        ({}, True),
        ({"etag": '"two"'}, False),
        ({"body": BODY[:100_000]}, False),
        ({"ranges": False}, False),
        ({"etag": None}, False),
    ],
    ids=["same", "version", "shorter than what came", "no ranges", "no version"],
)
def test_a_later_call_goes_on_with_the_same_version(
    web: Site, tmp_path: Path, change: dict[str, Any], resumed: bool
) -> None:
    etag = change.get("etag", '"one"') and '"one"'
    page = web.put("file", BODY if resumed else bytes(900_000), etag=etag, cuts=list(BROKEN))
    with pytest.raises(InputError, match=r"the connection ended after .* of 900,000 bytes .*kept"):
        get(web, tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["file.part", "file.part.version"]
    page.cuts.clear()
    web.asked.clear()
    page.body = BODY
    for name, value in change.items():
        setattr(page, name, value)
    assert get(web, tmp_path) == page.body
    assert web.asked[0] == ("/file", "bytes=200000-" if etag else None)
    assert os.listdir(tmp_path) == ["file"]


def test_what_was_whole_before_a_kill_is_fetched_again(web: Site, tmp_path: Path) -> None:
    web.put("file", BODY)
    (tmp_path / "file.part").write_bytes(BODY)
    (tmp_path / "file.part.version").write_text('"one"')
    assert get(web, tmp_path) == BODY


def test_busy_servers_are_asked_again(web: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(fetching, "LONGEST_WAIT", 3.0)
    monkeypatch.setattr(fetching.time, "sleep", waits.append)
    web.put("file", BODY, statuses=[503, 429, 500])
    assert get(web, tmp_path) == BODY
    assert waits == [1, 2, 3]
    web.put("never", BODY, statuses=[502] * 5)
    with pytest.raises(InputError, match="never: HTTP Error 502: Bad Gateway"):
        get(web, tmp_path, "never")


def test_silence_is_not_waited_for(web: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "TIMEOUT", 0.2)
    web.put("dead", BODY, stalls=[0] * 5)
    with pytest.raises(InputError, match=r"dead: timed out"):
        get(web, tmp_path, "dead")


def test_mirrors(web: Site, tmp_path: Path) -> None:
    web.put("second", BODY, etag='"other"')
    assert get(web, tmp_path, mirrors=(web / "second",)) == BODY
    assert [path for path, _ in web.asked] == ["/file", "/second"]
    web.put("broken", bytes(900_000), cuts=list(BROKEN))  # whose bytes the mirror does not go on with
    assert get(web, tmp_path, "broken", mirrors=(web / "second",)) == BODY
    with pytest.raises(InputError, match="first: HTTP Error 404"):
        get(web, tmp_path, "first", mirrors=(web / "third",))


def test_redirects(web: Site, tmp_path: Path) -> None:
    web.put("file", redirect=web / "there")
    web.put("there", BODY, cuts=[10])
    assert get(web, tmp_path) == BODY
    assert web.asked[-1] == ("/there", "bytes=10-")
    web.put("away", redirect="file:///etc/passwd")
    assert "away: HTTP Error 302" in line_of(InputError, get, web, tmp_path, "away")


@pytest.mark.parametrize("facts", [{"md5": "0" * 32}, {"bytes": 9}])
def test_another_file_than_the_publisher_s_is_not_kept(web: Site, tmp_path: Path, facts: dict[str, Any]) -> None:
    web.put("file", BODY)
    [(name, expected)] = facts.items()
    with pytest.raises(InputError, match=rf"file: {name} .*, expected {expected}: removed"):
        get(web, tmp_path, **facts)
    assert os.listdir(tmp_path) == []


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
    noise = random.Random(0).randbytes(20_000).hex()  # more than a block
    whole = body(**{"set/b.txt": "two", "../a.txt": noise, "set/README": "no", "a.txt.bak": "no"})
    path.write_bytes(whole)
    unpack(path, "a.txt", tmp_path / "out")
    assert (tmp_path / "out").read_text() == noise
    for pattern, said in (("c.txt", "0 members called c.txt"), ("*.txt", "2 members called")):
        with pytest.raises(InputError, match=said):
            unpack(path, pattern, tmp_path / "out")
    for damaged in (whole[:60], whole[:5000] + b"\x55" * 9 + whole[5009:]):
        path.write_bytes(damaged)
        assert "archive: the archive is damaged: " in line_of(InputError, unpack, path, "a.txt", tmp_path / "out")
    assert sorted(os.listdir(tmp_path)) == ["archive", "out"]


# -- whole sets -------------------------------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path, web: Site, monkeypatch: pytest.MonkeyPatch) -> Path:
    catalogue_of(tmp_path, monkeypatch)
    return tmp_path


def rows_card(own: Path, web: Site, name: str = "tiny.bz2", features: int = 12, **facts: Any) -> Any:
    part = {"rows": ROWS, "nonzeros": NONZEROS, "url": web / name}
    write_card(own / "cards", "tiny", {"train": part | facts}, features=features, classes=2)
    return cards()["tiny"]


@pytest.mark.parametrize("name", ["t.bz2", "t.zip"])
def test_fetch_rows(own: Path, web: Site, name: str) -> None:
    packed = name.endswith("zip")
    body = zipped(**{"a/t.svm": SVM, "README": "no"}) if packed else bz2.compress(SVM.encode())
    web.put(name, body)
    card = rows_card(own, web, name, md5=md5(body), **({"member": "*.svm"} if packed else {}))
    counts = {"rows": ROWS, "nonzeros": NONZEROS, "features": 12}
    assert list(fetch(card)) == [("train", own / "data" / "tiny" / "train", counts)]
    assert os.listdir(own / "data" / "tiny") == ["train"]  # nothing of the download
    rows = open_data("tiny")
    assert (len(rows), rows.nnz, rows.width) == (ROWS, NONZEROS, 12)  # the card's width, of which 10 occur
    assert read_meta(own / "data" / "tiny" / "train")["source"] == web / name
    web.asked.clear()
    assert [again for _, _, again in fetch(card)] == [{}]
    assert web.asked == []
    assert [again for _, _, again in fetch(card, force=True)] == [counts]
    assert len(web.asked) == 1


@pytest.mark.parametrize(
    ("body", "facts", "said"),
    [
        (SVM, {"rows": ROWS + 1}, "500 rows and not 501"),
        (SVM, {"features": 9}, "beyond the given width of 9 features"),
        ("1 1:1\nmore 2\n", {}, ":2: "),
        ("no archive", {"member": "*.svm"}, "the archive is damaged"),
    ],
)
def test_wrong_data_keep_nothing(own: Path, web: Site, body: str, facts: dict[str, Any], said: str) -> None:
    web.put("tiny.bz2", body, length=False)
    card = rows_card(own, web, **facts)
    for _ in range(2):
        assert re.fullmatch(f"tiny: .*{said}.*; nothing was kept", line_of(InputError, list, fetch(card)))
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
    assert os.listdir(own / "data" / "tiny") == ["tiny.bz2"]
    [(_, _, counts)] = fetch(card)
    assert counts["rows"] == ROWS
    assert len(web.asked) == 1


def test_two_at_once_fetch_once(own: Path, web: Site) -> None:
    web.put("tiny.bz2", bz2.compress(SVM.encode()))
    card, second = rows_card(own, web), list[Any]()
    other = threading.Thread(target=lambda: second.extend(fetch(card)))
    [(_, path, counts)] = fetch(card, progress=lambda *_: other.is_alive() or second or other.start())
    other.join()
    assert counts["rows"] == ROWS
    assert second == [("train", path, {})]
    assert len(web.asked) == 1


def test_a_data_folder_that_cannot_be_made(own: Path, web: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    (own / "plain").write_text("")
    monkeypatch.setenv("HOGWILD_DATA", str(own / "plain" / "below"))
    with pytest.raises(OutputError, match=r"plain/below/tiny: cannot be written: Not a directory"):
        list(fetch(rows_card(own, web)))


NETWORK = "c a network\np max 4 5\nn 1 s\nn 2 t\na 1 3 5\na 3 4 2\na 4 3 1\na 4 2 7\na 3 2 1\n"


def test_graphs(own: Path, web: Site) -> None:
    web.put("net.tbz2", taped("w:bz2", **{"net0.max": NETWORK, "net0.sol": "no", "net1.max": "no"}))
    part = {"url": web / "net.tbz2", "member": "net0.max"}
    about = {"task": "graph", "format": "dimacs", "vertices": 4}
    write_card(own / "cards", "net", {"graph": part}, **about)
    [(_, path, counts)] = fetch(cards()["net"])
    assert counts == {"vertices": 4}
    assert path.read_text() == NETWORK
    write_card(own / "cards", "net", {"graph": part}, **about | {"vertices": 5})
    with pytest.raises(InputError, match="net: .*4 vertices and not 5; nothing was kept"):
        list(fetch(cards()["net"], force=True))
    assert os.listdir(path.parent) == ["graph.max"]
