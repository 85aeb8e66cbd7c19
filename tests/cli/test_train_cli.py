"""`hogwild train` from end to end: what it prints and writes, resuming, and mistakes that show early."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from hogwild.data.rows.source import open_data
from hogwild.kernels.cache import directory
from hogwild.model_file import load_model
from tests.cli.conftest import Result, rows_of

SMALL = "synthetic:rcv1?rows=600&features=500&nnz=10"
QUICK = "--host threads --workers 1"


def test_one_worker_works_in_the_program_itself(hogwild: Callable) -> None:
    command = f"train {SMALL} --l2 1e-5 --workers 1 --epochs 1"
    assert "serial on 1 worker" in hogwild(command).out
    for more, host in (("", "threads"), ("--host processes", "processes")):
        assert {row["host"] for row in rows_of(hogwild(f"{command} {more} --json -").out)} == {host}


def test_what_a_person_waits_for_is_said(hogwild: Callable, spawn: Callable, tmp_path: Path) -> None:
    """That kernels are compiled, in a pipe too and once."""
    command = f"train {SMALL} --workers 1 --epochs 1 --step 0.1"
    hogwild(command)
    kept = directory()  # all but one small kernel, for a test should not wait for all of them
    shutil.copytree(
        kept, tmp_path / "kernels" / kept.name, ignore=shutil.ignore_patterns("kernel.shrink_table*", "*.nbc.*")
    )
    environ = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    shown = [spawn(command, env=environ).communicate(timeout=240)[0] for _ in range(2)]
    assert [text.count("compiling, once on this machine") for text in shown] == [1, 0]


def test_a_run_and_everything_it_writes(hogwild: Callable, tmp_path: Path) -> None:
    model, rows = tmp_path / "a model", tmp_path / "rows"
    shown = hogwild(
        f"train {SMALL} --holdout 0.25 --epochs 3 --workers 2 --discipline tiered --out '{model}' --json {rows}",
    ).shown()
    found = rows_of(rows)
    last = found[-1]
    assert {"cpu", "cores", "load", "version_numba", "command"} <= set(found[0])
    assert (last["host"], last["workers"], last["discipline"], last["data"]) == ("threads", 2, "tiered", SMALL)

    lines = shown.splitlines()
    assert lines[0].startswith(f"{SMALL}: 600 rows x 500 features, ")
    assert lines[1] == "held out 150 rows to test on, training on 450"
    assert "tiered on 2 workers (threads: a short run)" in shown
    header = next(k for k, line in enumerate(lines) if line.startswith(" epoch"))
    table = [line.split() for line in lines[header + 1 : header + 5]]
    assert [int(line[0]) for line in table] == [row["epoch"] for row in found] == [0, 1, 2, 3]
    assert float(table[-1][1]) == pytest.approx(last["objective"], rel=1e-5)
    assert lines[-1] == f"model saved to {model}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a model", "rows"]
    predicted = hogwild(f"predict '{model}' {SMALL}").out.split()
    np.testing.assert_array_equal(np.array(predicted, dtype=float), load_model(model).predict(open_data(SMALL)))


def test_default_data_are_named_and_tested_on(hogwild: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    import hogwild.cli.train as command

    monkeypatch.setitem(command.KINDS, "linear", command.KINDS["linear"]._replace(default=SMALL))
    result = hogwild(f"train --epochs 1 {QUICK}")
    opening = f"no --out: this model will not be kept\nno data named: training on {SMALL}, a generated stand-in"
    assert result.out.startswith(opening)
    assert "held out 120 rows" in result.out
    assert "test accuracy" in result.out
    assert "\nserial on 1 worker: reproducible" in result.out


def test_rows_on_standard_output(hogwild: Callable) -> None:
    result = hogwild(f"train {SMALL} --epochs 2 {QUICK} --json - -v")
    assert [row["epoch"] for row in rows_of(result.out)] == [0, 1, 2]
    assert "done after epoch 2" in result.err
    parts = dict(re.findall(r"^([a-z-]+) +([0-9.]+) s +[0-9]+%$", result.err, re.MULTILINE))
    assert [*parts] == ["start", "reading", "set-up", "compiling", "step", "training", "evaluation", "saving"]
    assert float(parts["start"]) > 0.5  # of this process, which has imported the tests


def test_l2_is_chosen_by_rows_held_out_and_judged_by_others(hogwild: Callable, tmp_path: Path) -> None:
    more = f"--holdout 0.25 --test {SMALL} --epochs 2 --step 0.1 --json {tmp_path / 'rows'} {QUICK}"
    out = hogwild(f"train {SMALL} --l2 1e-5,1e-3 {more}").out
    first, *_, last = rows_of(tmp_path / "rows")
    losses = {each["l2"]: each["held_out_loss"] for each in first["l2_path"]}
    best = min(losses, key=lambda l2: losses[l2])
    assert re.search(rf"^ +0.001 +0.1 +{losses[1e-3]:.5g}", out, re.MULTILINE)
    assert f"\nl2 {best:g}, chosen of 2 from 1e-05 to 0.001: loss {losses[best]:.5g} on 150 rows held out of 600" in out
    assert last["l2"] == best
    assert last["test_loss"] not in (last["train_loss"], last["held_out_loss"])  # of 600, 450 and 150 rows
    both = hogwild(f"train {SMALL} {more}")
    assert "held out 150 rows to choose by, training on 450\n" in both.out
    assert re.search(r"^ epoch   objective    held out   test loss", both.out, re.MULTILINE)
    assert rows_of(tmp_path / "rows")[-1]["l2"] == 1e-5


def test_every_option_reaches_the_config(hogwild: Callable, tmp_path: Path) -> None:
    command = (
        f"train {SMALL}&task=regress --loss huber --loss-param 0.5 --l1 0.001 --l2 0.01 --step 0.125 --schedule round "
        "--decay 0.5 --discipline atomic --workers 1 --host threads --order file --epochs 2 --normalize l2 "
        "--patience 3 --tol 0.5 --target 1e-9 --seed 5"
    )
    hogwild(f"{command} --adagrad --no-intercept -o {tmp_path / 'm'} -q").shown()
    config = {name.replace("_", "-"): value for name, value in load_model(tmp_path / "m").config.items()}
    words = command.split()[2:]
    for name, value in zip(words[::2], words[1::2]):
        assert config[name.removeprefix("--")] == type(config[name.removeprefix("--")])(value), name
    assert (config["adagrad"], config["intercept"]) == (True, False)


def test_features_of_test_rows_that_training_lacks_are_a_warning(hogwild: Callable, svm: Path, tmp_path: Path) -> None:
    wide = tmp_path / "wide"
    wide.write_text("1 1:1 99:1\n2 11:1 20:0.5\n")
    result = hogwild(f"train {svm} --test {wide} --epochs 1 {QUICK}")
    assert (result.status, result.err.startswith("hogwild: warning: 1 ")) == (0, True)
    assert hogwild(f"train {svm} --features 99 --test {wide} --epochs 1 {QUICK} --quiet") == Result(0, "", "")


def test_a_run_is_resumed_and_its_rows_go_on(hogwild: Callable, tmp_path: Path) -> None:
    command = f"train {SMALL} {QUICK} --step 1 -q --checkpoint {tmp_path / 'state'} --json {tmp_path / 'rows'} --resume"
    for epochs in (2, 4, 4):  # of which the first has nothing to resume yet, and for the last nothing is left to do
        hogwild(f"{command} --epochs {epochs}").shown()
    assert [row["epoch"] for row in rows_of(tmp_path / "rows")] == [0, 1, 2, 3, 4]
    changed = hogwild(f"{command} --epochs 5 --l2 0.5")
    assert changed.status == 1
    assert re.fullmatch(r"hogwild: error: .*l2 .*\n", changed.err)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("command", ["train", "train synthetic:ratings", "compare synthetic:rcv1"])
def test_no_gpu_is_one_line(refused: Callable, tmp_path: Path, command: str) -> None:
    assert refused(f"{command} --device cuda --out {tmp_path / 'm'}").startswith("hogwild: error: device cuda: ")
    assert not list(tmp_path.iterdir())


def test_divergence_keeps_the_last_good_model(hogwild: Callable, tmp_path: Path) -> None:
    out, rows = tmp_path / "m", tmp_path / "rows"
    options = "--loss squared-error --step 1e6 --l2 0 --schedule constant"
    result = hogwild(f"train '{SMALL}&task=regress' {options} {QUICK} --out {out} --json {rows}")
    assert result.status == 1
    assert re.search(r"hogwild: error: diverged .*step.*model saved to .*\n", result.err)
    found = rows_of(rows)
    assert found[-1]["status"] == "diverged"
    assert np.isfinite(load_model(out).coef_).all()
