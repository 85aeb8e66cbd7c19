"""Comparisons of replicas that trade: by seconds, virtual or real, and by bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hogwild.compare.report.page import write_report
from hogwild.compare.run.harness import Comparison
from hogwild.compare.run.plan import ComparisonPlan
from hogwild.config import TrainConfig
from hogwild.data.rows.source import open_data

LINK = "latency=0.1ms,bandwidth=1Gbit,row=1us"


def test_by_virtual_seconds_and_by_bytes(tmp_path: Path) -> None:
    rows = open_data("synthetic:rcv1?rows=640&features=100&nnz=8&seed=4")
    names = ("serial", "averaging", "averaging:period=40")
    base = TrainConfig(host="simulator", link=LINK, l2=1e-3)
    plan = ComparisonPlan(seeds=3, workers=(4,), grid=(1.0,), epochs=4, methods=names, eps=(0.3, 0.1))
    Comparison(rows, None, plan, base, data="rows").run(tmp_path)
    kept = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    ends = {row["method"]: row for row in kept if row["epoch"] == 4 and row["seed"] == 0}
    assert ends["serial"]["virtual_seconds"] == pytest.approx(4 * len(rows) * 1e-6, rel=0.01)
    assert ends["averaging:period=40"]["bytes_sent"] > 4 * ends["averaging"]["bytes_sent"] > 0

    report = write_report([tmp_path], tmp_path)
    table = report.tables[2]
    assert {"MB to 10 %", "messages an epoch", "waited"} < {*table.columns}
    megabytes = {row[0]: row[table.columns.index("MB an epoch")] for row in table.rows}
    assert megabytes["serial"] == "–"
    assert float(megabytes["averaging"]) == pytest.approx(ends["averaging"]["bytes_sent"] / 4e6, rel=0.01)
    assert report.verdict[0].startswith("Use ")
    assert report.verdict[-1] == "Seconds are the simulator's: rows and messages take the time that the link says."
