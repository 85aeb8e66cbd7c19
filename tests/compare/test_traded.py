"""Comparisons of replicas that trade: by seconds, virtual or real, and by bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hogwild.compare.report.page import write_report
from hogwild.compare.run import methods, suites
from hogwild.compare.run.harness import Comparison
from hogwild.compare.run.plan import ComparisonPlan
from hogwild.config import TrainConfig
from hogwild.data.rows.source import open_data
from hogwild.errors import UsageError

LINK = "latency=0.1ms,bandwidth=1Gbit,row=1us"


def test_names_with_parameters() -> None:
    text = "serial, averaging:period=100,mean=rows,hogwild ,one-shot-averaging"
    assert methods.listed(text) == ["serial", "averaging:period=100,mean=rows", "hogwild", "one-shot-averaging"]
    found = methods.chosen(["averaging:period=7", "hogwild"])
    assert [method.name for method in found] == ["serial", "hogwild", "averaging:period=7"]
    assert (found[-1].exchange, found[-1].kind) == ("averaging:period=7", "exchange")
    for wrong in ("averaging:periode=7", "hogwild:period=7", "averging", "averaging:period=0"):
        with pytest.raises(UsageError):
            methods.find(wrong)


@pytest.mark.usefixtures("sketched")
def test_by_virtual_seconds_and_by_bytes(tmp_path: Path) -> None:
    rows = open_data("synthetic:rcv1?rows=640&features=100&nnz=8&seed=4")
    names = ("serial", "averaging", "averaging:period=40", "averaging:group=2")
    base = TrainConfig(host="simulator", link=LINK, l2=1e-3)
    plan = ComparisonPlan(seeds=3, workers=(4,), grid=(1.0,), epochs=4, methods=names, eps=(0.3, 0.1))
    Comparison(rows, None, plan, base, data="rows").run(tmp_path)
    kept = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    ends = {row["method"]: row for row in kept if row["epoch"] == 4 and row["seed"] == 0}
    assert ends["serial"]["virtual_seconds"] == pytest.approx(4 * len(rows) * 1e-6, rel=0.01)
    assert ends["averaging:period=40"]["bytes_sent"] > 4 * ends["averaging"]["bytes_sent"] > 0

    report = write_report([tmp_path], tmp_path)
    assert {"gap-virtual.svg", "gap-bytes.svg"} <= {path.name for path in report.files}
    table = report.tables[0]
    assert (table.title, table.columns[-4:]) == (
        "Replicas that trade",
        ("messages an epoch", "MB an epoch", "waited", "staleness"),
    )
    assert [row[0] for row in table.rows] == [*names]
    replicas = [row[table.columns.index("replicas")] for row in table.rows]
    assert replicas == ["1", "4", "4", "2"]
    megabytes = {row[0]: row[table.columns.index("MB an epoch")] for row in table.rows}
    assert megabytes["serial"] == "–"
    assert float(megabytes["averaging"]) == pytest.approx(ends["averaging"]["bytes_sent"] / 4e6, rel=0.01)
    assert report.verdict[0].startswith("By the simulator's clock serial reaches ")
    assert "4 replicas with averaging get there in" in " ".join(report.verdict)
    assert "than serial" in report.verdict[1]


@pytest.mark.usefixtures("sketched")
def test_the_suite_of_exchanges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suites, "FEWEST", 300)
    names = ("averaging:mean=rows", f"gossip:period={suites.OFTEN},home=0")
    options = {"scale": 1e-3, "methods": names, "workers": (4,), "steps": (1.0,), "epochs": 2, "seeds": 1}
    suite = suites.Suite("exchanges", options)
    assert [(part.name, part.plan.methods[-1]) for part in suite.parts] == [
        ("rcv1", "gossip:period=250,home=0"),
        ("rcv1 x10", "gossip:period=100,home=0"),
        ("categories x10", "gossip:period=100,home=0"),
        ("clicks", "gossip:period=1000,home=0"),
    ]
    suite.parts = suite.parts[2:]
    suite.run(tmp_path)
    assert suite.progress.label.startswith("clicks: ")
    kept = [tmp_path / name / "rows.jsonl" for name in ("categories-x10", "clicks")]
    before = [path.read_bytes() for path in kept]
    suite.run(tmp_path)  # nothing is left to do
    assert [path.read_bytes() for path in kept] == before

    table = write_report([tmp_path], tmp_path).tables[0]
    assert table.title == "Replicas that trade"
    assert [row[:3] for row in table.rows] == [
        (name, method, count)
        for name, often in (("categories-x10", 100), ("clicks", 1000))
        for method, count in (("serial", "1"), (names[0], "4"), (f"gossip:period={often},home=0", "4"))
    ]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"scale": 2.0}, "scale=2"),
        ({"link": "row=1us"}, "leave it out"),
        ({"link": "speed=1"}, "speed"),
        ({"methods": ("gosip",)}, "gosip"),
    ],
)
def test_mistakes_in_the_suite_of_exchanges(options: dict, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        suites.Suite("exchanges", options)
