"""``hogwild train`` without ``--l2``: where the penalty is chosen, where it is the default, and what is said of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hogwild.__main__ import main
from hogwild.cli import train as command
from hogwild.config import TrainConfig
from hogwild.problems.linear.options import L2_PATH
from tests.cli.conftest import Result, rows_of

DATA = "synthetic:rcv1?rows=600&features=500&nnz=10"
QUICK = "--host", "threads", "--workers", "1", "--step", "0.25", "--epochs", "2"
Train = Callable[..., Result]


@pytest.fixture
def train(hogwild: Callable, capfd: pytest.CaptureFixture[str]) -> Train:
    """``hogwild train`` to which no penalty is added."""

    def call(*words: object) -> Result:
        capfd.readouterr()
        status = main(["train", *QUICK, *map(str, words)])
        found = capfd.readouterr()
        return Result(status, found.out, found.err)

    return call


def test_it_is_chosen_of_a_path(train: Train, tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    out = train(DATA, "--json", rows).out
    first = rows_of(rows)[0]
    losses = {each["l2"]: each["held_out_loss"] for each in first["l2_path"]}
    assert tuple(losses) == L2_PATH
    assert min(losses, key=losses.__getitem__) <= first["l2"] < max(losses)
    worth = f"loss {losses[first['l2']]:.5g} on 5 parts of 600 rows, each held out once"
    assert f"\nl2 {first['l2']:g}, chosen of 16 from 1e-08 to 0.32: {worth} (" in out
    assert "chosen" not in train(DATA, "--l2", first["l2"]).out


@pytest.mark.parametrize(
    ("loss", "count", "why"),
    [
        ("squared-error", 10_000_000, ""),
        ("squared-error", 10_000_001, "it takes long for 10,000,001 ratings, above 10,000,000"),
        ("log", 2_000_000, ""),
        ("log", 2_000_001, "10,000,005 ratings and items drawn against them, above 10,000,000"),
    ],
)
def test_of_many_ratings_it_is_not_chosen(loss: str, count: int, why: str) -> None:
    config: Any = TrainConfig(problem="completion", loss=loss)
    said = command.why_fixed(config, range(count), None, False)
    assert said.endswith(why) if why else said == ""


@pytest.mark.parametrize(
    ("data", "more", "why"),
    [
        (DATA.replace("600", "40"), (), "40 rows are too few to hold some out, below 50"),
        (DATA, ("--target", "0.1"), "--target is a value of one objective"),
    ],
)
def test_where_it_is_the_default(train: Train, data: str, more: tuple[str, ...], why: str) -> None:
    out = train(data, *more).out
    assert re.search(rf"^l2 1e-05, not chosen by held-out rows: .*{why}$", out, re.MULTILINE)
    assert "\nloss log, l2 1e-05, l1 0, step 0.25, " in out


def test_large_data_and_rare_classes(train: Train, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(command, "MOST_WEIGHTS", 499)
    assert "it takes long for 500 weights, above 499\n" in train(DATA).out
    monkeypatch.setattr(command, "MOST_ENTRIES", 1000)
    assert re.search(r"it takes long for [\d,]+ nonzeros, above 1,000\n", train(DATA).out)
    rare = tmp_path / "rare.svm"
    rare.write_text("".join(f"{int(k == 7)} {1 + k % 9}:1\n" for k in range(300)))
    monkeypatch.undo()
    assert "a class has fewer than 5 rows\n" in train(rare, "--no-cache").out


def test_what_can_not_be_chosen_is_trained_with_the_default(train: Train) -> None:
    result = train(DATA + "&task=regress", "--loss", "squared-error", "--step", "1e30")
    assert "l2 1e-05, not chosen by held-out rows: every candidate for l2 diverged" in result.out
    assert result.status == 1
    assert re.fullmatch(r"hogwild: error: diverged in epoch 1 .*\n", result.err)


def test_a_run_that_is_resumed_keeps_its_penalty(train: Train, tmp_path: Path) -> None:
    rows, state = tmp_path / "rows", tmp_path / "state"
    assert train(DATA, "--l2", "1e-5", "--checkpoint", state, "--json", rows).status == 0
    again = train(DATA, "--checkpoint", state, "--json", rows, "--resume", "--epochs", 3)
    assert (again.status, again.err) == (0, "")
    assert [len({row["l2"] for row in rows_of(rows)}), rows_of(rows)[-1]["epoch"]] == [1, 3]


def test_others_have_a_number(hogwild: Callable) -> None:
    out = hogwild(f"simulate {DATA} --workers 2 --epochs 1 --step 0.25").out
    assert "\nloss log, l2 1e-05" in out
    assert "not chosen" not in out
