"""The files of a report: complete in themselves, the same bytes every time, and safe whatever names the data have."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import statistics
import sys
from html.parser import HTMLParser
from pathlib import Path

import pandas
import pytest

from hogwild.compare.report.figures import costs_figure, curves_of
from hogwild.compare.report.page import write_report
from hogwild.errors import HogwildWarning, InputError, OutputError
from tests.compare.rows import about, halving, lifelike, loaded, run, write

FILES = {"summary.json", "evaluations.csv", "tables.tex", "report.html"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a comparison and its report."""
    comparison = lifelike(tmp_path_factory.mktemp("comparison") / "one")
    write_report([comparison], comparison)
    return comparison


class Page(HTMLParser):
    """Tags, the attributes that may point elsewhere, and the text of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "srcset", "data")]

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] == ["script"]:
            self.scripts.append(data)


def test_the_same_bytes_twice(made: Path, tmp_path: Path) -> None:
    again = tmp_path / "one"
    again.mkdir()
    shutil.copy(made / "rows.jsonl", again)
    report = write_report([again], again)
    assert {path.name for path in report.files} == FILES
    for path in report.files:
        assert path.read_bytes() == (made / path.name).read_bytes(), path.name


def test_the_page_needs_nothing_else(made: Path) -> None:
    text = (made / "report.html").read_text()
    page = Page(text)
    assert len(text) < 6_000_000
    assert not {"link", "img", "iframe", "object"} & set(page.tags)
    assert "default-src 'none'" in text
    [here], (kind, rows), (also, plan), [paper] = [link.split(",") for link in page.links]
    assert f'id="{here[1:]}"' in text
    assert paper == "https://arxiv.org/abs/1106.5730"  # to be cited
    assert (kind, also) == 2 * ("data:application/octet-stream;base64",)
    assert gzip.decompress(base64.b64decode(rows)) == (made / "rows.jsonl").read_bytes()
    assert json.loads(base64.b64decode(plan))["command"] == "hogwild compare made-up"
    for said in (
        "prefers-color-scheme: dark",
        "Time to target",
        "Each point of liblinear is a run of its own",
        "Noise: to 0.1 % serial takes ",
        "set-up: laying the data out",
        "<pre>hogwild compare made-up</pre>",
    ):
        assert said in text


def figures(page: Page) -> list[list[dict]]:
    """The traces of every figure."""
    return [
        json.JSONDecoder().raw_decode(script, script.index("[{", script.index("Plotly.newPlot(")))[0]
        for script in page.scripts
        if "Plotly.newPlot(" in script[:2000]
    ]


def test_curves(made: Path) -> None:
    page = Page((made / "report.html").read_text())
    curves, costs = figures(page)
    assert [trace["y"] for trace in costs if trace.get("name") == "liblinear"] == [[900.0]]
    assert costs[-1]["y"] == [422.0, 400.0]  # of tiered and serial, which nobody beats
    lines = {trace["name"]: trace for trace in curves if "name" in trace}
    shown = [name for name, line in lines.items() if line["visible"] != "legendonly"]
    assert shown[:3] == ["serial", "hogwild, 2 workers", "tiered, 2 workers"]
    assert lines["hogwild, 1 worker"]["visible"] == "legendonly"
    rows = [json.loads(line) for line in (made / "rows.jsonl").read_text().splitlines()[1:]]
    fifth = [row for row in rows if (row["phase"], row["method"], row["epoch"]) == ("reported", "serial", 5)]
    for axis, field in (("y", "objective"), ("x", "train_seconds")):
        assert lines["serial"][axis][5] == pytest.approx(statistics.median(row[field] for row in fifth), rel=1e-4)


def test_curves_of_the_metric(tmp_path: Path) -> None:
    parts = [run("serial", halving(), seed=seed, test_accuracy=0.5 + 0.1 * seed) for seed in range(3)]
    [curve] = curves_of([loaded(tmp_path, *parts)])
    points = curve.points[["metric low", "metric median", "metric high"]]
    assert points.iloc[2].tolist() == pytest.approx([0.55, 0.6, 0.65])
    assert curve.points["call_seconds"].tolist() == pytest.approx([0.5, 1.5, 2.5, 3.5, 4.5])


def test_costs(tmp_path: Path) -> None:
    """Three views of the same methods; one of another objective has no place among them."""
    parts = [run("serial", halving(), 1.0, once_seconds=2.0, peak_memory_mb=50.0)]
    parts += [run("tiered", halving(), 0.5, 2, once_seconds=4.0, peak_memory_mb=60.0)]
    parts += [run("sklearn-sgd", halving(), 0.1, own_objective="it has its own", peak_memory_mb=10.0)]
    figure = costs_figure([loaded(tmp_path, *parts)])
    views = {each["label"]: each["args"][0] for each in figure["layout"]["updatemenus"][0]["buttons"]}
    assert {label: (view["x"], view["y"]) for label, view in views.items()} == {
        "memory": ([[3.0], [1.5], [1.5, 3.0]], [[50.0], [60.0], [60.0, 50.0]]),
        "memory, from call": ([[5.5], [6.0], [5.5]], [[50.0], [60.0], [50.0]]),
        "distance": ([[4.0], [2.0], [2.0]], [[1e-4], [1e-4], [1e-4]]),
    }


def test_numbers_for_other_programs(made: Path) -> None:
    summary = json.loads((made / "summary.json").read_text())
    [comparison] = summary["comparisons"]
    assert len(summary["verdict"]) == 4
    assert comparison["about"]["cpu"] == "A Processor"
    assert [table["title"] for table in summary["tables"]] == [
        "Time to target, each method at its own best step",
        "Time from the call",
        "Epochs, their time, and the speed-up over serial",
        "Speed and conflicts",
        "Runs that did not end ok",
        "What was compared, and where",
    ]
    assert "MB to 10 %" not in summary["tables"][3]["columns"]  # of links that are simulated
    reasons = {row[-1] for row in summary["tables"][-2]["rows"]}
    assert reasons == {"diverged", "timed out after 3 s", "refused: 2 workers on 1 free core would spin"}
    evaluations = pandas.read_csv(made / "evaluations.csv", low_memory=False)
    tiered = evaluations[(evaluations.method == "tiered") & (evaluations.workers == 2)]
    assert tiered.groupby("seed").size().tolist() == [11] * 5
    assert (tiered.gap[tiered.epoch == 0] == 1).all()


def test_without_pandas_there_are_verdict_and_tables(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.warns(HogwildWarning, match=r"pip install 'hogwild\[report\]'"):
        report = write_report([made], made / "nowhere")
    assert report.verdict
    assert report.tables
    assert report.files == []
    assert not (made / "nowhere").exists()


def test_names_are_text(tmp_path: Path) -> None:
    name = '"><script>alert(1)</script>--><b>$x_1$ [red]\x1b[0m ]]> 数据'
    parts = [run(method, halving(), 1.0, count) for method, count in (("serial", 1), ("tiered", 2), ("locked", 2))]
    refusal = run("aig", [None], workers=2, status=f"refused: {name}")
    source = write(tmp_path / "a<b>&", about(data=name, command=name, cpu=name), *parts, refusal)
    report = write_report([source, source], tmp_path / "out")
    text = (tmp_path / "out" / "report.html").read_text()
    assert "b" not in Page(text).tags
    assert "<script>alert" not in text
    assert "\x1b" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert any("$x_1$" in cell for table in report.tables for row in table.rows for cell in row)


def test_several_comparisons(made: Path, tmp_path: Path) -> None:
    other = lifelike(tmp_path / "two", pace=2.0, epochs=12, began="2026-01-02")
    report = write_report([made, other], tmp_path / "joint")
    assert {text.partition(":")[0] for text in report.verdict} == {"one", "two"}
    index, joint = report.tables[:2]
    assert [row[0] for row in index.rows] == ["two", "one"]  # the newest first
    assert "Use tiered on 2 workers: first within 0.1 % of the optimum" in index.rows[0][1]
    assert joint.columns[0] == "comparison"
    assert {row[0] for row in joint.rows} == {"one", "two"}
    assert report.tables[-1].columns == ("what", "two", "one")
    text = (tmp_path / "joint" / "report.html").read_text()
    assert '"two: serial"' in text
    assert "two.jsonl.gz" in text


def test_the_simulator_has_no_seconds(tmp_path: Path) -> None:
    parts = [run(method, halving(), 1.0, count) for method, count in (("serial", 1), ("hogwild", 64))]
    report = write_report([write(tmp_path, about(host="simulator"), *parts)], tmp_path)
    [curves] = figures(Page((tmp_path / "report.html").read_text()))
    assert curves[1]["x"] == [0, 1, 2, 3, 4]
    assert dict(zip(report.tables[0].columns, report.tables[0].rows[0]))["to 10 %"] == "1.00"


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (run("serial", [None], status="refused: why not"),),
        (run("hogwild", [1.0, None], workers=2, status="diverged"),),
        (run("serial", [1.0, 0.0]), run("hogwild", [1.0, 0.0], 0.0, workers=2)),  # at the optimum, in no time
    ],
)
def test_whatever_there_is_can_be_reported(tmp_path: Path, parts: tuple) -> None:
    report = write_report([write(tmp_path, about(), *parts)], tmp_path)
    assert report.verdict
    assert (tmp_path / "report.html") in report.files


def test_a_start_at_the_optimum_and_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    source = write(tmp_path / "a", about(start_objective=0.0), run("serial", [0.0, 0.0]))
    assert "no target has a meaning" in " ".join(write_report([source], source).tables[0].notes)
    with pytest.raises(InputError, match="none/rows.jsonl: no comparison to read: No such file"):
        write_report([tmp_path / "none"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file: cannot write the report there"):
        write_report([source], tmp_path / "file")
