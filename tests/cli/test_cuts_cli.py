"""``hogwild train`` on graphs and ``hogwild labels``: what they write, and one line for every mistake."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import rows_of

GRID = "synthetic:grid?side=24"
QUICK = "--host threads --workers 1 --epochs 30"
MAX = "c a source, a sink and two ways between\np max 4 5\nn 1 s\nn 4 t\na 1 2 3\na 1 3 2\na 2 3 1\na 2 4 2\na 3 4 4\n"


def test_a_cut_and_everything_it_writes(hogwild: Callable, tmp_path: Path) -> None:
    model, npy, jsonl = (tmp_path / f"cut.{name}" for name in ("model", "npy", "jsonl"))
    shown = hogwild(f"train {GRID} {QUICK} --out {model} --json {jsonl}").shown()
    assert "578 vertices, 1,651 edges, 2 labels, grid 24 x 24" in shown
    assert "cut value" in shown
    rows = rows_of(jsonl)
    assert {row["problem"] for row in rows} == {"cuts"}
    assert rows[-1]["cut_value"] < rows[0]["cut_value"]
    hogwild(f"labels {model} --out {npy}").shown()
    labels = np.load(npy)
    assert labels.shape == (24, 24)
    assert set(np.unique(labels)) == {0, 1}
    printed = hogwild(f"labels {model}").out.splitlines()
    assert len(printed) == 578
    assert [line.split("\t") for line in printed[:576]] == [[str(v), str(x)] for v, x in enumerate(labels.ravel())]
    about = hogwild(f"inspect {model}")
    assert "cuts" in about.out
    assert "option rank" not in about.out


def test_a_file_of_capacities_is_known_by_its_name(hogwild: Callable, tmp_path: Path) -> None:
    path = tmp_path / "net.max.gz"
    path.write_bytes(gzip.compress(MAX.encode()))
    hogwild(f"train {path} {QUICK} --json {tmp_path / 'rows'}").shown()
    last = rows_of(tmp_path / "rows")[-1]
    assert last["cut_value"] == pytest.approx(5.0)  # the arcs out of the source
    assert last["objective"] == pytest.approx(5.0, rel=0.05)
    assert "cuts" in hogwild(f"info {path}").out


def test_edges_with_terminals(hogwild: Callable, tmp_path: Path) -> None:
    edges, ends = tmp_path / "edges.tsv", tmp_path / "ends.tsv"
    edges.write_text("a\tb\t3\nb\tc\t1\nc\td\t3\n")
    ends.write_text("a\tnorth\nd\tsouth\n")
    hogwild(f"train {edges} --problem cuts --terminals {ends} {QUICK} --out {tmp_path / 'm'}").shown()
    printed = hogwild(f"labels {tmp_path / 'm'}").out
    assert dict(line.split("\t") for line in printed.splitlines()) == {
        "a": "north",
        "b": "north",
        "c": "south",
        "d": "south",
    }
