"""`data list`, `info`, `fetch`, and names of data sets where the other commands take paths."""

from __future__ import annotations

import bz2
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hogwild.cli.data import size
from hogwild.data.public import catalogue
from hogwild.data.public import fetch as fetching
from tests.downloads import FEATURES, NONZEROS, ROWS, SVM, Site, site, write_card

RATINGS = "".join(f"{user}\t{item}\t{1 + (user * item) % 5}\n" for user in range(20) for item in range(9))
NETWORK = "p max 4 5\nn 1 s\nn 2 t\na 1 3 5\na 3 4 2\na 4 3 1\na 4 2 7\na 3 2 1\n"
PROGRAM = """
import sys
from pathlib import Path
from hogwild.__main__ import main
from hogwild.data.public import catalogue
catalogue.CARDS = Path(sys.argv[1])
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site with three sets, their cards, and an empty data directory; the working directory is empty, too."""
    monkeypatch.setattr(catalogue, "CARDS", tmp_path / "cards")
    monkeypatch.setenv("HOGWILD_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(fetching, "LONGEST_WAIT", 0.0)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    with site() as made:
        for name, text in {"tiny.bz2": SVM, "tiny.t.bz2": SVM, "films": RATINGS, "net.max": NETWORK}.items():
            made.put(name, bz2.compress(text.encode()) if name.endswith("bz2") else text)
        parts = {
            role: {"rows": ROWS, "nonzeros": NONZEROS, "url": made / f"tiny{end}.bz2"}
            for role, end in (("train", ""), ("test", ".t"))
        }
        citation = "@article{one}"
        write_card(tmp_path / "cards", "tiny", parts, features=FEATURES, aliases=["tiny.svm"], citation=citation)
        films = {"rows": 180, "url": made / "films", "bytes": len(RATINGS)}
        about = {"task": "ratings", "format": "ratings", "layout": {"separator": "tab"}, "users": 20, "items": 9}
        write_card(tmp_path / "cards", "films", {"ratings": films}, **about)
        about = {"task": "graph", "format": "dimacs", "vertices": 4, "arcs": 5}
        write_card(tmp_path / "cards", "net", {"graph": {"url": made / "net.max"}}, **about)
        yield made


def test_fetch_and_train(hogwild: Callable, web: Site, tmp_path: Path) -> None:
    said = hogwild("data fetch tiny").shown()
    found = f"{ROWS:,} rows, {NONZEROS:,} nonzeros, {FEATURES} features"
    data = tmp_path / "data" / "tiny"
    assert said.splitlines() == [
        "tiny: The set tiny; terms: none",
        f"tiny:train: {found}, in {data / 'train'}",
        f"tiny:test: {found}, in {data / 'test'}",
        "cite it (hogwild data info tiny); train on it: hogwild train tiny --test tiny:test",
    ]
    assert f"in {data / 'train'}" in " ".join(hogwild("data info TINY.svm").out.split())
    options = "--test tiny:test --epochs 1 --workers 1 --host threads --step 1 --out model"
    shown = hogwild(f"train tiny {options}")
    assert shown.status == 0, shown.err
    assert shown.out.startswith(f"tiny: {ROWS:,} rows x {FEATURES} features, {NONZEROS:,} nonzeros\n")
    assert len(hogwild("predict model tiny:test").out.splitlines()) == ROWS
    hogwild("evaluate model tiny:test").shown()
    assert hogwild("info tiny --json").facts()["rows"] == ROWS
    hogwild("convert tiny copy").shown()
    again = hogwild("data fetch tiny")
    assert again.out.count("is here (--force") == 2
    assert hogwild("data fetch tiny --force --quiet").out == ""


def test_the_problem_is_told_from_the_card(hogwild: Callable, web: Site) -> None:
    hogwild("data fetch films net -q").shown()
    for name, said in (("films", "films: 180 ratings of 20 users x 9 items"), ("net", "net: 4 vertices")):
        shown = hogwild(f"train {name} --epochs 1 --workers 1 --host threads --step 0.1")
        assert shown.status == 0, shown.err
        assert f"\n{said}" in shown.out
    assert hogwild("info net --json").facts()["edges"] == 4


@pytest.mark.parametrize("command", ["train", "info", "convert", "compare", "simulate"])
def test_what_is_not_fetched_is_one_line(hogwild: Callable, web: Site, tmp_path: Path, command: str) -> None:
    result = hogwild(command, "tiny", *(["out"] if command == "convert" else []))
    assert result.status == 1
    said = f"that data set is not fetched into {tmp_path / 'data'}: hogwild data fetch tiny"
    assert result.err == f"hogwild: error: tiny: no such file, and {said}\n"
    assert hogwild(command, "tinyy", *(["out"] if command == "convert" else [])).err == (
        "hogwild: error: tinyy: No such file or directory: did you mean tiny?\n"
    )
    assert not Path("out").exists()


def test_a_file_of_that_name_wins(hogwild: Callable, web: Site) -> None:
    Path("films").write_text("1 1:1\n-1 2:1\n")
    assert hogwild("info films --json").facts()["rows"] == 2


def test_list(hogwild: Callable, web: Site, tmp_path: Path) -> None:
    hogwild("data fetch tiny:train -q")
    lines = hogwild("data list").out.splitlines()
    assert lines[0] == f"3 data sets; those fetched are in {tmp_path / 'data'}"
    assert [line.split() for line in lines[1:-1]] == [
        ["name", "task", "rows", "width", "size", "fetched"],
        ["films", "ratings", "180", "20", "x", "9", *size(len(RATINGS)).split(), "no"],
        ["net", "graph", "5", "4", "-", "no"],
        ["tiny", "binary", "1,000", "10", "-", "train"],
    ]
    found = hogwild("data list --json").facts()
    assert found["tiny"]["fetched"] == {"train": str(tmp_path / "data" / "tiny" / "train")}


def test_the_real_list_and_cards_fit_a_terminal(hogwild: Callable) -> None:
    lines = hogwild("data list").out.splitlines()
    assert len(lines) == len(catalogue.cards()) + 3
    assert max(map(len, lines[1:])) <= 80
    for name, card in catalogue.cards().items():
        result = hogwild(f"data info {name}")
        assert result.status == 0
        for text in (card.title.split()[0], card.homepage, *(part.url for part in card.parts)):
            assert text in result.out
        assert all("://" in line for line in result.out.splitlines() if len(line) > 100)  # addresses stay whole


def test_info(hogwild: Callable, web: Site, tmp_path: Path) -> None:
    shown = hogwild("data info tiny").out
    facts = {line[:20].strip(): line[21:] for line in shown.splitlines()}
    about = {"aliases": "tiny.svm", "licence": "none", "features": str(FEATURES), "citation": "@article{one}"}
    assert facts.items() >= (about | {"fetched": "no: hogwild data fetch tiny"}).items()
    found = hogwild("data info tiny:test --json").facts()
    assert (found["name"], found["problem"]) == ("tiny", "linear")
    assert found["test"] == {"url": web / "tiny.t.bz2", "rows": ROWS, "nonzeros": NONZEROS}


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("info", "tny"), 2, "tny: no such data set: did you mean tiny? (hogwild data list has all 3)"),
        (
            ("fetch", "tiny:tets"),
            2,
            "tiny:tets: tiny has no such part: expected one of train, test: did you mean test?",
        ),
        (("fetch", "films", "tny"), 2, "tny: no such data set: did you mean tiny? (hogwild data list has all 3)"),
    ],
)
def test_wrong_usage(hogwild: Callable, web: Site, arguments: tuple[str, ...], status: int, said: str) -> None:
    result = hogwild("data", *arguments)
    assert (result.status, result.err) == (status, f"hogwild: error: {said}\n")
    assert web.asked == []


def test_ctrl_c_keeps_what_has_come(hogwild: Callable, web: Site, tmp_path: Path) -> None:
    page = web.pages["/tiny.bz2"]
    page.stalls = [100]
    command = [sys.executable, "-c", PROGRAM, tmp_path / "cards", "data", "fetch", "tiny:train"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
    part = tmp_path / "data" / "tiny" / "tiny.bz2.part"
    try:
        assert web.sent.wait(30)
        while not part.exists() or part.stat().st_size < 100:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert err.strip() == ""
    assert out.splitlines()[-1] == "interrupted: what has come is kept, and the same command goes on from there"
    assert part.stat().st_size == 100
    web.asked.clear()
    result = hogwild("data fetch tiny:train")
    assert result.status == 0, result.err
    assert web.asked == [("/tiny.bz2", "bytes=100-")]
    assert os.listdir(tmp_path / "data") == ["tiny"]
