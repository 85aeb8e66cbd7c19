"""`data list`, `info`, `fetch`, and names of data sets where the other commands take paths."""

from __future__ import annotations

import bz2
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hogwild.cli.data import size
from hogwild.cli.display import Reading
from hogwild.data.public import catalogue
from tests.downloads import FEATURES, NONZEROS, ROWS, SVM, Site, catalogue_of, site, write_card

RATINGS = "".join(f"{user}\t{item}\t{1 + (user * item) % 5}\n" for user in range(20) for item in range(9))
NETWORK = "p max 4 5\nn 1 s\nn 2 t\na 1 3 5\na 3 4 2\na 4 3 1\na 4 2 7\na 3 2 1\n"


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site with three sets, their cards, and an empty data directory; the working directory is empty, too."""
    catalogue_of(tmp_path, monkeypatch)
    with site(monkeypatch) as made:
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
    shown = hogwild("train tiny --test tiny:test --epochs 1 --workers 1 --host threads --step 1 --out model").shown()
    assert shown.startswith(f"tiny: {ROWS:,} rows x {FEATURES} features, {NONZEROS:,} nonzeros\n")
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
        shown = hogwild(f"train {name} --epochs 1 --workers 1 --host threads --step 0.1").shown()
        assert f"\n{said}" in shown
    assert hogwild("info net --json").facts()["edges"] == 4


@pytest.mark.parametrize("command", ["train", "compare"])
def test_what_is_not_fetched_is_one_line(hogwild: Callable, web: Site, tmp_path: Path, command: str) -> None:
    said = f"that data set is not fetched into {tmp_path / 'data'}: hogwild data fetch tiny"
    assert hogwild(command, "tiny").err == f"hogwild: error: tiny: no such file, and {said}\n"
    said = "hogwild: error: tinyy: No such file or directory: did you mean tiny?\n"
    assert hogwild(command, "tinyy").err == said


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
    for name in catalogue.cards():
        shown = hogwild(f"data info {name}").shown()
        assert all("://" in line for line in shown.splitlines() if len(line) > 100)  # addresses stay whole


def test_info(hogwild: Callable, web: Site, tmp_path: Path) -> None:
    shown = hogwild("data info tiny").out
    facts = {line[:20].strip(): line[21:] for line in shown.splitlines()}
    about = {"aliases": "tiny.svm", "licence": "none", "features": str(FEATURES), "citation": "@article{one}"}
    assert facts.items() >= (about | {"fetched": "no: hogwild data fetch tiny"}).items()
    found = hogwild("data info tiny:test --json").facts()
    assert (found["name"], found["problem"]) == ("tiny", "linear")
    assert found["test"] == {"url": web / "tiny.t.bz2", "rows": ROWS, "nonzeros": NONZEROS}


def test_wrong_usage_asks_no_server(hogwild: Callable, web: Site) -> None:
    for words, said in (
        ("fetch films tny", "tny: no such data set: did you mean tiny? (hogwild data list has all 3)"),
        ("info tiny:tets", "tiny:tets: tiny has no such part: expected one of train, test: did you mean test?"),
    ):
        result = hogwild(f"data {words}")
        assert (result.status, result.err) == (2, f"hogwild: error: {said}\n")
    assert web.asked == []


def test_ctrl_c_keeps_what_has_come(hogwild: Callable, web: Site, tmp_path: Path) -> None:
    def interrupted(reading: Reading, *_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reading, "step", interrupted)
        result = hogwild("data fetch tiny:train")
    assert (result.status, result.err.strip()) == (130, "")
    last = "interrupted: what has come is kept, and the same command goes on from there"
    assert result.out.splitlines()[-1] == last
    assert (tmp_path / "data" / "tiny" / "tiny.bz2.part").exists()
    hogwild("data fetch tiny:train").shown()
