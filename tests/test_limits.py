"""Limits that a run meets: few descriptors, full disks, data beyond memory."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hogwild.data.rows.store import FORMAT, HEADER, VERSION, header, open_store, save_store
from hogwild.model_file import load_model
from tests.conftest import ROOT
from tests.runs import toy


@pytest.mark.parametrize(
    ("command", "host", "most"),
    [
        ("train", "processes", 8),
        ("train", "processes", 24),
        ("train", "threads", 8),
        ("compare", "processes", 14),
    ],
)
def test_few_descriptors(tmp_path: Path, command: str, host: str, most: int) -> None:
    """Whatever ``ulimit -n`` says, a run works or ends in one line that names a way out."""
    options = f"--host {host} --workers 2 --epochs 2".split()
    options += (
        ["--l2", "1e-5", "--step", "0.1", "--quiet"]
        if command == "train"
        else ["--steps", "0.1", "--seeds", "1", "--methods", "serial,hogwild"]
    )
    options += ["--out", str(tmp_path / "out")]
    code = "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv.pop(1)),) * 2); "
    code += "from hogwild.__main__ import main; sys.exit(main())"
    words = [sys.executable, "-c", code, str(most), command, "synthetic:uniform?rows=2000", *options]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    said = r"(hogwild: warning: .*\n)*hogwild: error: .*--host threads.*\n"  # a warning of the kernel cache
    assert done.returncode == 0 or re.fullmatch(said, done.stderr), done.stderr


# ---- disks

FILL = """
import sys
import hogwild
from hogwild.model_file import load_checkpoint
from tests.runs import QUIET, toy
rows = toy(width=80_000)
run = hogwild.train(rows, checkpoint=sys.argv[1], epochs=5, keep="last", **QUIET)
print([next(run)["epoch"], next(run)["epoch"], next(run)["epoch"]])
try:
    next(run)
except hogwild.OutputError as error:
    print(error)
print(load_checkpoint(sys.argv[1])[1]["epoch"], run.model.history[-1]["epoch"])
"""


def test_a_really_full_disk(tmp_path: Path) -> None:
    """Room for one checkpoint and a half: the first is kept when the second does not fit beside it."""
    mount = 'mount -t tmpfs -o size=1m tmpfs "$0"'
    if subprocess.run(["unshare", "-m", "sh", "-c", mount, tmp_path], capture_output=True).returncode:
        pytest.skip("may not mount a file system in a namespace of its own")
    command = ["unshare", "-m", "sh", "-c", f'{mount} && exec "$1" -c "$2" "$0"', tmp_path, sys.executable, FILL]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    rows, error, epochs = result.stdout.splitlines()
    assert rows == "[0, 1, 2]"
    assert error.endswith("checkpoint.safetensors: cannot be written: No space left on device")
    assert epochs == "1 2"


def test_a_full_disk_and_the_command(tmp_path: Path) -> None:
    """The model is kept where it was asked for, though the checkpoint's disk is full."""
    (state := tmp_path / "state").mkdir()
    store, model = save_store(toy(width=80_000), tmp_path / "data.store"), tmp_path / "model"
    mount = 'mount -t tmpfs -o size=1m tmpfs "$0"'
    if subprocess.run(["unshare", "-m", "sh", "-c", mount, state], capture_output=True).returncode:
        pytest.skip("may not mount a file system in a namespace of its own")
    options = "--host threads --workers 1 --l2 1e-5 --step 0.5 --epochs 5 --keep last --quiet".split()
    train = [sys.executable, "-m", "hogwild", "train", store, "--checkpoint", state, "--out", model, *options]
    command = ["unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', state, *train]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 1
    assert re.fullmatch(r"hogwild: error: .*cannot be written: No space left .*; model saved to .*\n", result.stderr)
    assert load_model(model).history[-1]["epoch"] == 2


# ---- memory

WATCH = """
import sys, threading, time
from pathlib import Path
import hogwild
from hogwild.data.rows.source import open_data
from hogwild.problems.linear.objective import Evaluator
from tests.conftest import descendants
from tests.runs import memory

peaks = {}
def watch():
    while True:
        for pid in ["self", *descendants()]:
            try:
                peaks[pid] = max(peaks.get(pid, 0), memory(pid))
            except (OSError, KeyError):
                pass
        time.sleep(0.01)
threading.Thread(target=watch, daemon=True).start()
_, path, host, l2, held_out, evaluated, part = sys.argv
rows = open_data(path)
rows = rows.block(0, int(float(part) * len(rows))) if float(part) < 1 else rows
if float(held_out):
    rows, _ = rows.split(float(held_out))
run = hogwild.train(rows, host=host, workers=2, epochs=2, l2=float(l2), step=1e-3)
if evaluated == "False":  # reading all of them takes minutes where memory is large
    run._case._evaluator = Evaluator(rows.block(0, 100), None, "log", None, labels=run.problem.labels, width=rows.width)
next(run)
threading.Timer(5, run.stop).start()
row = next(run)
print(max(peaks.values()) >> 20, row["updates"], row["status"])
"""


def watched(*arguments: Any) -> tuple[int, int, str]:
    """Peak MiB of any process of a run, data pages aside, rows done, and how it ended."""
    command = [sys.executable, "-c", WATCH, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    peak, updates, status = result.stdout.split()
    return int(peak), int(updates), status


def hollow_store(path: Path, n: int, nnz: int, width: int = 1000) -> Path:
    """A store whose indices and values are holes in sparse files: all zero, as large as you like."""
    path.mkdir()
    lengths = {"indptr": n + 1, "indices": n * nnz, "values": n * nnz, "targets": n}
    content = {"indptr": np.arange(n + 1) * nnz, "targets": np.where(np.arange(n) % 2, 1, -1).astype("<f4")}
    types = {"indptr": "<i8", "indices": "<i4", "values": "<f4", "targets": "<f4"}
    for name, length in lengths.items():
        with open(path / f"{name}.npy", "wb") as file:
            file.write(header(types[name], length))
            file.write(content.get(name, np.empty(0, np.int8)).tobytes())
            file.truncate(HEADER + length * np.dtype(types[name]).itemsize)
    meta = {"format": FORMAT, "version": VERSION, "rows": n, "nnz": n * nnz, "width": width}
    meta["arrays"] = {name: {"dtype": types[name], "length": lengths[name]} for name in lengths}
    (path / "meta.json").write_text(json.dumps(meta))
    return path


@pytest.mark.slow
@pytest.mark.parametrize(("host", "held_out"), [("threads", 0.0), ("processes", 0.1)])
def test_peak_memory_of_a_mapped_store(tmp_path: Path, host: str, held_out: float) -> None:
    """480 MB of data, none of which is copied; also when a part is held out."""
    store = hollow_store(tmp_path / "a.store", 600_000, 100)
    assert len(open_store(store)) == 600_000
    peak, updates, _ = watched(store, host, 1e-5, held_out, True, 1)
    assert updates > 0
    assert peak < 400


@pytest.mark.slow
def test_data_larger_than_memory(tmp_path: Path) -> None:
    """They open, and a part of them trains; that a pass over all rows keeps none of them is tested above."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    nnz = 4000
    n = int(1.2 * total) // (8 * nnz)
    try:
        store = hollow_store(tmp_path / "huge.store", n, nnz)
        if sum(path.stat().st_blocks * 512 for path in store.iterdir()) > 1 << 30:
            pytest.skip("no sparse files here")
        peak, updates, status = watched(store, "processes", 0.0, 0.0, False, 0.005)
    except OSError as error:
        pytest.skip(f"no file of {1.2 * total / 2**30:.0f} GiB here: {error}")
    finally:
        shutil.rmtree(tmp_path / "huge.store", ignore_errors=True)
    assert updates > 1000
    assert status in ("ok", "interrupted")
    assert peak < 400
