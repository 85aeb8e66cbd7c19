"""``hogwild train-module``: what it writes, and one line that names file and line for every mistake in the user's."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hogwild.model_file import load_model
from tests.cli.conftest import rows_of
from tests.estimators.test_examples import run

MINE = """
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

import neighbour


@dataclass
class Sizes:
    width: int = 6
    classes: int = 2


class Network(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes, self.out = sizes, nn.Linear(sizes.width, sizes.classes)

    def forward(self, x):
        return neighbour.scaled(self.out(x))


def make_model():
    return Network(Sizes())


def make_data():
    X = np.random.default_rng(0).standard_normal((400, 6)).astype(np.float32)
    return X, (X[:, 0] > 0).astype(int)


def my_loss(output, target):
    return nn.functional.cross_entropy(output, target, label_smoothing=0.01)


class Bags(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag, self.out = nn.EmbeddingBag(20, 16, mode="sum", sparse=True), nn.Linear(16, 1)

    def forward(self, *entries):
        return self.out(self.bag(*entries))
"""
QUICK = "--host threads --workers 1 --epochs 3"


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "neighbour.py").write_text("def scaled(x):\n    return 2 * x\n")
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.setattr(sys, "path", [*sys.path])
    modules = set(sys.modules)
    yield tmp_path / "mine.py"
    for name in {*sys.modules} - modules:
        if name == "neighbour" or name.startswith("hogwild_file_"):
            del sys.modules[name]


@pytest.mark.parametrize("host", ["threads", "processes"])
def test_a_module_and_everything_it_writes(hogwild: Callable, mine: Path, tmp_path: Path, host: str) -> None:
    """With a class, a data class and a loss of the file's own, which workers get without running it."""
    workers = 2 if host == "processes" else 1
    shown = hogwild(
        f"train-module {mine}:make_model --data {mine}:make_data --test {mine}:make_data --loss "
        f"{mine}:my_loss --host {host} --workers {workers} --optimizer adam --step 0.05 --out "
        f"{tmp_path / 'model'} --json {tmp_path / 'rows'} --epochs 3 -v",
    ).shown()
    assert "14 parameters" in shown
    parts = re.findall(r"^([a-z-]+) +[0-9.]+ s +[0-9]+%$", shown, re.MULTILINE)
    assert parts == ["start", "reading", "set-up", "compiling", "training", "evaluation", "saving"]
    assert "adam" in shown
    rows = rows_of(tmp_path / "rows")
    assert [row["epoch"] for row in rows] == [0, 1, 2, 3]
    assert {row["problem"] for row in rows} == {"module"}
    assert rows[-1]["test_accuracy"] > 0.9
    assert list(load_model(tmp_path / "model").state_dict()) == ["out.weight", "out.bias"]


def test_first_parameters_are_those_of_the_seed(hogwild: Callable, mine: Path) -> None:
    def start(seed: int) -> float:
        model, data = f"{mine}:make_model", f"{mine}:make_data"
        result = hogwild(f"train-module {model} --data {data} {QUICK} --seed {seed} --json -")
        return json.loads(result.out.splitlines()[0])["objective"]

    assert start(1) == start(1) != start(2)


def test_rows_that_hogwild_reads(hogwild: Callable, mine: Path, svm: Path) -> None:
    """As bags of features."""
    result = hogwild(f"train-module {mine}:Bags --data {svm} --loss bce {QUICK} --json -")
    assert result.status == 0
    rows = rows_of(result.out)
    assert rows[-1]["objective"] < rows[0]["objective"]
    assert rows[0]["data"] == str(svm)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits.py", "sparse_embedding.py"])
def test_examples(name: str) -> None:
    *epochs, last = run(name).splitlines()
    assert "a second" in last
    assert float(epochs[-1].split()[-1]) > 0.85
