"""The files of a report: complete in themselves, the same bytes every time, and safe whatever names the data have."""

from __future__ import annotations

import json
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path

import matplotlib
import pandas
import pytest

from hogwild.compare.report.page import write_report
from hogwild.errors import HogwildWarning, InputError, OutputError
from tests.compare.rows import about, halving, lifelike, run, write

FILES = ["summary.json", "evaluations.csv", "tables.tex", "report.html"]
FILES += [
    f"{name}.{kind}"
    for name in ("gap-seconds", "gap-epochs", "target", "speedup", "staleness", "delay")
    for kind in ("svg", "png")
]


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lifelike(tmp_path_factory.mktemp("comparison") / "one")


@pytest.fixture(scope="module")
def made(comparison: Path) -> Path:
    write_report([comparison], comparison)
    return comparison


class Page(HTMLParser):
    """Tags, the attributes that may point elsewhere, and ids."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "srcset", "data")]
        self.ids += [value or "" for name, value in attrs if name == "id"]


def test_files(made: Path) -> None:
    assert {path.name for path in made.iterdir()} == {"rows.jsonl", *FILES}


def test_the_same_bytes_twice(made: Path, tmp_path: Path) -> None:
    again = tmp_path / "elsewhere" / "one"
    again.mkdir(parents=True)
    shutil.copy(made / "rows.jsonl", again)
    with matplotlib.rc_context({"font.size": 30, "svg.hashsalt": None, "lines.linewidth": 9}):  # the user's own
        report = write_report([again], again)
    assert len(report.files) == len(FILES)
    for path in report.files:
        assert path.read_bytes() == (made / path.name).read_bytes(), path.name


def test_the_page_needs_nothing_else(made: Path) -> None:
    text = (made / "report.html").read_text()
    page = Page(text)
    assert "http:" not in text
    assert "https:" not in text
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert all(link.startswith("#") for link in page.links)
    assert {link[1:] for link in page.links} <= set(page.ids)
    assert set(re.findall(r"url\(#(.*?)\)", text)) <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))  # the figures' names do not meet
    assert "url(" not in re.sub(r"url\(#", "", text)
    assert page.tags.count("svg") == 6
    assert "prefers-color-scheme: dark" in text
    assert "Time to target" in text
    assert text.count("Each point of liblinear's curve is a run of its own".replace("'", "&#39;")) >= 2


def test_numbers_for_other_programs(made: Path) -> None:
    summary = json.loads((made / "summary.json").read_text())
    [comparison] = summary["comparisons"]
    assert summary["verdict"] == comparison["verdict"]
    assert comparison["about"]["cpu"] == "AMD EPYC 7B13"
    assert [table["title"] for table in summary["tables"]][-1] == "What was compared, and where"
    evaluations = pandas.read_csv(made / "evaluations.csv", low_memory=False)
    tiered = evaluations[(evaluations.rule == "tuned") & (evaluations.method == "tiered") & (evaluations.workers == 2)]
    assert tiered.groupby("seed").size().tolist() == [11] * 5
    assert (tiered.gap[tiered.epoch == 0] == 1).all()
    assert (made / "tables.tex").read_text().count(r"\begin{tabular}") == len(summary["tables"])


def test_without_pandas_there_are_verdict_and_tables(comparison: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.warns(HogwildWarning, match=r"pip install 'hogwild\[report\]'"):
        report = write_report([comparison], comparison / "nowhere")
    assert report.verdict
    assert report.tables
    assert report.files == []
    assert not (comparison / "nowhere").exists()


@pytest.mark.usefixtures("sketched")
def test_tables(made: Path, tmp_path: Path) -> None:
    report = write_report([made], tmp_path)
    titles = [table.title for table in report.tables]
    assert titles == [
        "Time to target, each method at its own best step",
        "Epochs, their time, and the speed-up over serial",
        "Everyone at the step tuned for serial",
        "Tuning of the step",
        "Staleness and lost updates",
        "Speed-up where gradients cost more",
        "Runs that did not end ok",
        "What was compared, and where",
    ]
    for table in report.tables:
        assert all(len(row) == len(table.columns) for row in table.rows), table.title
    failed = report.tables[-2]
    assert {row[-1] for row in failed.rows} == {
        "diverged",
        "timed out after 3 s",
        "refused: 2 workers on 1 free core would spin",
    }


def test_names_are_text(tmp_path: Path) -> None:
    name = '"><script>alert(1)</script>--><b>$x_1$ [red]\x1b[0m ]]> 数据'
    parts = [
        run(method, halving(), 1.0, count, seed)
        for seed in range(3)
        for method, count in (("serial", 1), ("tiered", 2), ("locked", 2))
    ]
    refusal = run("aig", [None], workers=2, status=f"refused: {name}")
    source = write(tmp_path / "a<b>&", about(data=name, command=name, cpu=name, left_out=[name]), *parts, refusal)
    report = write_report([source, source], tmp_path / "out")
    text = (tmp_path / "out" / "report.html").read_text()
    page = Page(text)
    assert "script" not in page.tags
    assert "b" not in page.tags
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert any("$x_1$" in cell for table in report.tables for row in table.rows for cell in row)


@pytest.mark.usefixtures("sketched")
def test_several_comparisons(made: Path, tmp_path: Path) -> None:
    other = lifelike(tmp_path / "two", pace=2.0, noise=7, epochs=12)
    report = write_report([made, other], tmp_path / "joint")
    assert {text.partition(":")[0] for text in report.verdict} == {"one", "two"}
    joint = report.tables[0]
    assert joint.columns[0] == "comparison"
    assert {row[0] for row in joint.rows} == {"one", "two"}
    assert report.tables[-1].columns == ("what", "one", "two")
    text = (tmp_path / "joint" / "report.html").read_text()
    assert "one: rcv1, AMD EPYC 7B13, 2 cores; two: rcv1" in text


@pytest.mark.usefixtures("sketched")
def test_the_simulator_has_no_seconds(tmp_path: Path) -> None:
    parts = [
        run(method, halving(), 1.0, count, seed, staleness_mean=3.0, staleness_max=9, lost_updates=5, updates=50)
        for seed in range(3)
        for method, count in (("serial", 1), ("hogwild", 64), ("locked", 64))
    ]
    report = write_report([write(tmp_path, about(host="simulator"), *parts)], tmp_path)
    names = {path.name for path in report.files}
    assert "gap-seconds.svg" not in names
    assert {"gap-epochs.svg", "target.svg", "staleness.svg"} <= names
    assert "epochs to 10 %" in report.tables[0].columns
    assert "s to 10 %" not in report.tables[0].columns


@pytest.mark.usefixtures("sketched")
def test_figures_of_an_earlier_report_go(tmp_path: Path) -> None:
    source = write(tmp_path, about(), *(run("serial", halving(), seed=seed) for seed in range(3)))
    (tmp_path / "delay.svg").write_text("old")
    (tmp_path / "mine.svg").write_text("the user's")
    write_report([source], tmp_path)
    assert not (tmp_path / "delay.svg").exists()
    assert (tmp_path / "mine.svg").exists()


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (run("serial", [1.0]),),
        (run("serial", [None], status="refused: why not"),),
        (run("hogwild", [1.0, None], workers=2, status="diverged"),),
        (run("serial", [1.0, 0.0]), run("hogwild", [1.0, 0.0], 0.0, workers=2)),  # at the optimum, in no time
        (run("tiered", [1.0, 1.0], workers=3),),
    ],
)
def test_whatever_there_is_can_be_reported(tmp_path: Path, parts: tuple) -> None:
    report = write_report([write(tmp_path, about(), *parts)], tmp_path)
    assert report.verdict
    assert (tmp_path / "report.html") in report.files


@pytest.mark.usefixtures("sketched")
def test_a_start_at_the_optimum(tmp_path: Path) -> None:
    report = write_report([write(tmp_path, about(start_objective=0.0), run("serial", [0.0, 0.0]))], tmp_path)
    assert "no target has a meaning" in " ".join(report.tables[0].notes)


@pytest.mark.usefixtures("sketched")
def test_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such directory"):
        write_report([tmp_path / "none"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    source = write(tmp_path / "a", about(), run("serial", halving()))
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file: cannot write the report there"):
        write_report([source], tmp_path / "file")
