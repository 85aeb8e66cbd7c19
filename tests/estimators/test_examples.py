"""The examples run as they stand, on small data, and say what they promise.

One is started as its user does; the others within this process, which has all imported that takes seconds.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "scripts" / "examples"


def run(name: str, *arguments: str, **constants: Any) -> str:
    """What the example prints; it shows one picture. ``constants`` make it smaller."""
    shown: list[int] = []

    def show() -> None:
        shown.extend(plt.get_fignums())
        plt.close("all")

    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as said:
        patch.setattr(plt, "show", show)
        patch.syspath_prepend(EXAMPLES)
        example = importlib.import_module(name.removesuffix(".py"))
        for constant, value in constants.items():
            patch.setattr(example, constant, value)
        example.main(*arguments)
    assert len(shown) == 1
    return said.getvalue()


@pytest.mark.slow
def test_as_a_script() -> None:
    found = subprocess.run([sys.executable, str(EXAMPLES / "stereo.py")], capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr
    assert float(re.search(r"([\d.]+)% of the pixels right", found.stdout)[1]) > 90


@pytest.mark.slow
def test_text_classification() -> None:
    accuracy = [float(number) for number in re.findall(r"test accuracy ([\d.]+)", run("text_classification.py"))]
    assert len(accuracy) == 2
    assert accuracy[0] > accuracy[1] - 0.005


@pytest.mark.slow
def test_out_of_core(tmp_path: Path) -> None:
    assert float(run("out_of_core.py").rsplit(maxsplit=1)[1]) > 0.9
    texts = tmp_path / "texts.tsv"
    texts.write_text("".join(f"{k % 2}\t{'high' if k % 2 else 'low'} water {k}\n" for k in range(2500)))
    assert float(run("out_of_core.py", str(texts)).rsplit(maxsplit=1)[1]) > 0.9


@pytest.mark.slow
def test_recommendation() -> None:
    said = run("recommendation.py")
    held_out, mean = (float(number) for number in re.findall(r"(\d\.\d+) (?:held|for)", said))
    assert held_out < 0.8 * mean
    genre, similar = re.search(r"like (\w+) \d+: (.*)", said).groups()
    assert similar.count(genre) >= 3  # of five


@pytest.mark.slow
def test_click_through() -> None:
    model, mean = (float(number) for number in re.findall(r"log loss ([\d.]+)", run("click_through.py")))
    assert model < 0.98 * mean


@pytest.mark.slow
def test_comparing(tmp_path: Path) -> None:
    data = "synthetic:rcv1?rows=1500&features=1000&nnz=10"
    said = run("comparing.py", data, str(tmp_path / "results"))
    assert "2 workers" in said
    assert (tmp_path / "results" / "report.html").exists()
    assert run("comparing.py", data, str(tmp_path / "results")) == said  # nothing is run again


@pytest.mark.slow
def test_simulations_and_penalties() -> None:
    """What more workers, links and penalties do, as the captions say."""
    sparse = "synthetic:rcv1?rows=1000&features=20000&nnz=20", {"l2": 1e-4}
    dense = "synthetic:uniform?rows=1000&features=40&nnz=20", {"l2": 1e-4}
    said = run("staleness.py", PROBLEMS={"sparse": sparse, "dense": dense}, EPOCHS=1)
    assert re.findall(r"(?:nan|inf) times", said) == []  # a curve that ends is said in words
    stale, lost = np.array(re.findall(r"staleness +([\d.]+), +([\d.]+) numbers", said), float).T
    assert (np.diff(stale.reshape(-1, 4)) > 0.0).all()
    assert lost[7] > lost[3] > lost[0] == 0.0  # 64 workers on dense rows, and on sparse ones
    small = "synthetic:rcv1?rows=2000&features=2000&nnz=20"
    sent = [float(megabytes) for megabytes in re.findall(r"([\d.]+) MB", run("replicas.py", DATA=small))]
    assert sent[1] == max(sent)  # rounds within the epoch
    assert "of 16 candidates" in run("penalty.py", small)


@pytest.mark.slow
def test_modules() -> None:
    *epochs, last = run("sparse_embedding.py").splitlines()
    assert "a second" in last
    assert float(epochs[-1].split()[-1]) > 0.85
