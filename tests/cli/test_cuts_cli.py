"""``hogwild train`` on graphs and ``hogwild labels``: what they write, and one line for every mistake."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

GRID = "synthetic:grid?side=24"
QUICK = ("--host", "threads", "--workers", 1, "--epochs", 30)
MAX = "c a source, a sink and two ways between\np max 4 5\nn 1 s\nn 4 t\na 1 2 3\na 1 3 2\na 2 3 1\na 2 4 2\na 3 4 4\n"


def test_a_cut_and_everything_it_writes(hogwild: Callable, tmp_path: Path) -> None:
    names = {name: tmp_path / f"cut.{name}" for name in ("model", "npy", "png", "jsonl")}
    result = hogwild(
        "train",
        GRID,
        *QUICK,
        "--out",
        names["model"],
        "--segmentation",
        names["npy"],
        "--plot",
        names["png"],
        "--json",
        names["jsonl"],
    )
    assert result.status == 0
    assert "578 vertices, 2 of them terminals of 2 labels" in result.out
    assert "a grid of 24 x 24" in result.out
    assert "cut value" in result.out
    rows = [json.loads(line) for line in names["jsonl"].read_text().splitlines()]
    assert {row["problem"] for row in rows} == {"cuts"}
    assert rows[-1]["cut_value"] < rows[0]["cut_value"]
    labels = np.load(names["npy"])
    assert labels.shape == (24, 24)
    assert set(np.unique(labels)) == {0, 1}
    assert names["png"].read_bytes().startswith(b"\x89PNG")
    again = hogwild("labels", names["model"], "--out", tmp_path / "again.npy", "--plot", tmp_path / "again.png")
    assert again.status == 0
    assert (tmp_path / "again.npy").read_bytes() == names["npy"].read_bytes()
    printed = hogwild("labels", names["model"]).out.splitlines()
    assert len(printed) == 578
    assert [line.split("\t") for line in printed[:576]] == [[str(v), str(x)] for v, x in enumerate(labels.ravel())]
    about = hogwild("info", names["model"])
    assert "cuts" in about.out
    assert "option rank" not in about.out


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_of_capacities_is_known_by_its_name(hogwild: Callable, tmp_path: Path, packed: bool) -> None:
    path = tmp_path / ("net.max.gz" if packed else "net.max")
    path.write_bytes(gzip.compress(MAX.encode()) if packed else MAX.encode())
    result = hogwild("train", path, *QUICK, "--json", tmp_path / "rows")
    assert result.status == 0, result.err
    last = json.loads((tmp_path / "rows").read_text().splitlines()[-1])
    assert last["cut_value"] == pytest.approx(5.0)  # the arcs out of the source
    assert last["objective"] == pytest.approx(5.0, rel=0.05)
    assert "cuts" in hogwild("info", path).out


def test_edges_with_terminals(hogwild: Callable, tmp_path: Path) -> None:
    edges, ends = tmp_path / "edges.tsv", tmp_path / "ends.tsv"
    edges.write_text("a b 3\nb c 1\nc d 3\n")
    ends.write_text("a north\nd south\n")
    result = hogwild("train", edges, "--problem", "cuts", "--terminals", ends, *QUICK, "--out", tmp_path / "m")
    assert result.status == 0, result.err
    printed = hogwild("labels", tmp_path / "m").out
    assert dict(line.split("\t") for line in printed.splitlines()) == {
        "a": "north",
        "b": "north",
        "c": "south",
        "d": "south",
    }


def mistakes(folder: Path) -> list[tuple[tuple[object, ...], int, str]]:
    (folder / "bad.max").write_text(MAX.replace("a 2 3 1", "a 2 9 1"))
    (folder / "edges.tsv").write_text("a b 3\nb c x\n")
    (folder / "model").write_text("nothing")
    cut = ("train", GRID, *QUICK)
    return [
        (("train", folder / "bad.max"), 1, "bad.max:7: "),
        (("train", folder / "edges.tsv", "--problem", "cuts"), 1, "edges.tsv"),
        ((*cut, "--holdout", 0.1), 2, "--holdout 0.1: a cut is of one graph"),
        ((*cut, "--test", GRID), 2, "nothing to test on"),
        ((*cut, "--segmentation", folder / "x.csv"), 2, "expected a name that ends in .npy"),
        ((*cut, "--plot", folder / "x.gif"), 2, ".png"),
        ((*cut, "--l2", 0.1), 2, "unknown option l2"),
        ((*cut, "--rank", 3), 2, "unknown option rank"),
        ((*cut, "--features", 3), 2, "--features is for rows"),
        ((*cut, "--loss", "hinge"), 2, "loss='hinge': expected one of cut"),
        ((*cut, "--discipline", "tiered"), 2, "tiered"),
        ((*cut, "--out", folder / "same.npy", "--segmentation", folder / "same.npy"), 2, "would overwrite"),
        (("train", "synthetic:clusters", "--plot", folder / "x.png", *QUICK), 2, "is no grid"),
        (("train", "synthetic:grid?sides=3"), 1, "sides"),
        (("train", "synthetic:rcv1", "--segmentation", folder / "x.npy"), 2, "is for --problem cuts"),
        (("convert", folder / "bad.max", folder / "store"), 2, "graphs are not kept in stores"),
        (("labels", folder / "model"), 1, "not a hogwild model"),
        (("train", GRID, "--problem", "cut"), 2, "expected one of linear, completion, cuts"),
    ]


def test_mistakes_are_one_line(hogwild: Callable, tmp_path: Path) -> None:
    for arguments, status, said in mistakes(tmp_path):
        result = hogwild(*arguments)
        assert result.status == status, (arguments, result)
        assert said in result.err, (arguments, result.err)
        assert result.err.count("\n") == 1, result.err
        assert "Traceback" not in result.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.max", "edges.tsv", "model"]


def test_a_linear_model_has_no_labels(hogwild: Callable, svm: Path, tmp_path: Path) -> None:
    assert hogwild("train", svm, "--workers", 1, "--host", "threads", "--out", tmp_path / "m").status == 0
    for command in ("labels", "recommend", "similar"):
        result = hogwild(command, tmp_path / "m")
        assert result.status == 1
        assert "got a linear model" in result.err
    assert hogwild("train", GRID, *QUICK, "--out", tmp_path / "c").status == 0
    for command in ("predict", "evaluate"):
        result = hogwild(command, tmp_path / "c", svm)
        assert result.status == 1
        assert "see hogwild labels" in result.err
