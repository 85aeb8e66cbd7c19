"""`hogwild train` from end to end: what it prints and writes, resuming, and mistakes that show early."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from hogwild.data.rows.source import open_data
from hogwild.kernels.cache import directory
from hogwild.model_file import load_model
from tests.cli.conftest import rows_of

SMALL = "synthetic:rcv1?rows=600&features=500&nnz=10"
QUICK = "--host threads --workers 1"


NEEDLESS = {"torch", "sklearn", "scipy.linalg", "scipy.sparse", "matplotlib", "rich.live", "numba.np.arraymath"}
LOOK = "import sys; from hogwild.__main__ import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"


def test_one_worker_works_in_the_program_itself(hogwild: Callable, tmp_path: Path) -> None:
    """It needs no torch, nothing that looks at a matrix, and of the compiler only what loads its work."""
    command = f"train {SMALL} --l2 1e-5 --workers 1 --epochs 1 --cache {tmp_path / 'cache'}"
    assert "serial on 1 worker" in hogwild(command).out
    words = [*command.split(), "--json", tmp_path / "rows"]
    done = subprocess.run([sys.executable, "-c", LOOK, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not NEEDLESS & set(done.stderr.split())
    assert {row["host"] for row in rows_of(tmp_path / "rows")} == {"threads"}
    assert hogwild(f"{command} --host processes --json -").out.count('"host": "processes"') == 2


def test_what_a_person_waits_for_is_said(hogwild: Callable, spawn: Callable, tmp_path: Path) -> None:
    """That kernels are compiled, in a pipe too and once; and "in all" is the whole life of the process."""
    command = f"train {SMALL} --workers 1 --epochs 1 --step 0.1"
    hogwild(command)
    kept = directory()  # all but one small kernel, for a test should not wait for all of them
    assert kept is not None
    shutil.copytree(
        kept, tmp_path / "kernels" / kept.name, ignore=shutil.ignore_patterns("kernel.shrink_table*", "*.nbc.*")
    )
    environ = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    said = []
    for _ in range(2):
        began = time.monotonic()
        process = spawn(command, env=environ)
        text, took = process.communicate(timeout=240)[0], time.monotonic() - began
        assert process.returncode == 0
        said.append(text.count("compiling, once on this machine"))
        in_all = float(re.search(r"([\d.]+) s in all", text)[1])
        assert 0.6 * took - 0.1 < in_all < took + 0.1
    assert said == [1, 0]


def test_a_run_and_everything_it_writes(hogwild: Callable, tmp_path: Path) -> None:
    model, rows = tmp_path / "a model", tmp_path / "rows"
    shown = hogwild(
        f"train {SMALL} --holdout 0.25 --epochs 3 --workers 2 --discipline tiered --out '{model}' --json {rows}",
    ).shown()
    found = rows_of(rows)
    assert [row["epoch"] for row in found] == [0, 1, 2, 3]
    first, last = found[0], found[-1]
    assert last["objective"] < first["objective"]
    assert {"cpu", "cores", "load", "version_numba", "command"} <= set(first)
    assert (last["host"], last["workers"], last["discipline"], last["data"]) == ("threads", 2, "tiered", SMALL)
    assert last["status"] == "ok"

    lines = shown.splitlines()
    assert lines[0].endswith("600 rows x 500 features, " + lines[0].split(", ")[-1])
    assert lines[1] == "held out 150 rows to test on, training on 450"
    assert "tiered on 2 workers (threads: a short run)" in shown
    header = next(k for k, line in enumerate(lines) if line.startswith(" epoch"))
    table = [line.split() for line in lines[header + 1 : header + 5]]
    assert [int(line[0]) for line in table] == [0, 1, 2, 3]
    assert float(table[-1][1]) == pytest.approx(last["objective"], rel=1e-5)
    assert lines[-1] == f"model saved to {model}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a model", "rows"]

    loaded = load_model(model)
    assert loaded.loss == "log"
    assert loaded.width == 500
    predicted = hogwild(f"predict '{model}' {SMALL}").out.split()
    np.testing.assert_array_equal(np.array(predicted, dtype=float), loaded.predict(open_data(SMALL)))


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
    parts = re.findall(r"^([a-z-]+) +[0-9.]+ s +[0-9]+%$", result.err, re.MULTILINE)
    assert parts == ["start", "reading", "set-up", "compiling", "step", "training", "evaluation", "saving"]


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


def test_quiet(hogwild: Callable, tmp_path: Path) -> None:
    result = hogwild(f"train {SMALL} --epochs 1 {QUICK} --quiet --out {tmp_path / 'm'}")
    assert (result.status, result.out, result.err) == (0, "", "")
    assert load_model(tmp_path / "m").width == 500


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


def test_test_file_of_another_width(hogwild: Callable, svm: Path, tmp_path: Path) -> None:
    wide, narrow = tmp_path / "wide", tmp_path / "narrow"
    wide.write_text("1 1:1 99:1\n2 11:1 20:0.5\n")
    narrow.write_text("1 1:1\n2 11:1\n")
    result = hogwild(f"train {svm} --test {wide} --epochs 1 {QUICK}")
    assert result.status == 0
    assert result.err.startswith("hogwild: warning: 1 ")
    assert hogwild(f"train {svm} --test {narrow} --epochs 1 {QUICK}").err == ""
    assert hogwild(f"train {svm} --features 99 --test {wide} --epochs 1 {QUICK}").err == ""
    assert str(svm) in hogwild(f"train {svm} --features 15 --epochs 1 {QUICK}").err


def test_resume_is_bitwise_and_rows_go_on(hogwild: Callable, tmp_path: Path) -> None:
    common = f"train {SMALL} {QUICK} --step 1 --quiet"
    parts = f"{common} --checkpoint {tmp_path / 'state'} --json {tmp_path / 'rows'} --out {tmp_path / 'parts'} --resume"
    for command in (f"{common} --epochs 4 --out {tmp_path / 'whole'}", f"{parts} --epochs 2", f"{parts} --epochs 4"):
        result = hogwild(command)  # of which the second has nothing to resume yet
        assert (result.status, result.err) == (0, "")
    assert [row["epoch"] for row in rows_of(tmp_path / "rows")] == [0, 1, 2, 3, 4]
    whole = load_model(tmp_path / "whole")
    for _ in range(2):
        resumed = load_model(tmp_path / "parts")
        np.testing.assert_array_equal(whole.coef_, resumed.coef_)
        np.testing.assert_array_equal(whole.intercept_, resumed.intercept_)
        assert hogwild(f"{parts} --epochs 4").status == 0  # nothing is left to do
    changed = hogwild(f"{parts} --epochs 5 --l2 0.5")
    assert changed.status == 1
    assert re.fullmatch(r"hogwild: error: .*l2 .*\n", changed.err)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("data", ["", "synthetic:ratings"])
def test_no_gpu_is_one_line(hogwild: Callable, tmp_path: Path, data: str) -> None:
    result = hogwild(f"train {data} --device cuda --out {tmp_path / 'm'}")
    assert result.status == 1
    assert re.fullmatch(r"hogwild: error: device cuda: [^\n]+\n", result.err)
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
