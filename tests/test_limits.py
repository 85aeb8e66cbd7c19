"""Data larger than the memory that a run has; what few descriptors and full disks do is in the campaign of faults."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import hogwild
from hogwild.data.rows.store import FORMAT, VERSION
from hogwild.errors import InputError
from tests.conftest import ROOT

# ---- memory


def test_data_wider_than_memory_are_refused_in_python_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hogwild.machine.memory", lambda: (None, 1 << 20))
    with pytest.raises(InputError, match="^100,000 features need 0.0 GiB of memory or more.*: hash the features$"):
        hogwild.train((scipy.sparse.csr_array(([1.0, 1.0], ([0, 1], [0, 99_999]))), [0, 1]), workers=1)
    with pytest.raises(InputError, match="^9,001 users and 2 items need 0.0 GiB of memory or more"):
        hogwild.train(([0, 9000], [0, 1], [1.0, 2.0]), problem="completion", workers=1)


def hollow_store(path: Path, n: int, nnz: int, width: int = 1000) -> Path:
    """A store whose indices and values are holes in sparse files: all zero, as large as you like."""
    path.mkdir()
    arrays = {"indptr": ("<i8", n + 1), "indices": ("<i4", n * nnz), "values": ("<f4", n * nnz), "targets": ("<f4", n)}
    made = {}
    for name, (kind, length) in arrays.items():
        made[name] = np.lib.format.open_memmap(path / f"{name}.npy", "w+", kind, (length,))
    made["indptr"][:] = np.arange(n + 1) * nnz
    made["targets"][:] = np.where(np.arange(n) % 2, 1, -1)
    meta = {"format": FORMAT, "version": VERSION, "rows": n, "nnz": n * nnz, "width": width}
    meta["arrays"] = {name: {"dtype": kind, "length": length} for name, (kind, length) in arrays.items()}
    (path / "meta.json").write_text(json.dumps(meta))
    return path


WATCH = """
import sys, threading, time
import hogwild
from hogwild import machine
from tests.conftest import descendants
from tests.runs import memory

machine.memory = lambda: (300 << 20, 300 << 20)
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
rows, _ = hogwild.open_data(sys.argv[1]).split(0.1)
run = hogwild.train(rows, host="processes", workers=2, epochs=1, l2=1e-5, step=1e-3, keep="last")
print(list(run)[-1]["updates"], run.engine.job.order.block > 1, max(peaks.values()) >> 20)
"""


@pytest.mark.slow
def test_data_larger_than_memory(tmp_path: Path) -> None:
    """480 MB on a machine that says it has 300: no process copies them, nor what is held out, and blocks are read."""
    store = hollow_store(tmp_path / "a.store", 600_000, 100)
    result = subprocess.run([sys.executable, "-c", WATCH, store], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    updates, blocks, peak = result.stdout.split()
    assert (updates, blocks) == ("540000", "True")
    assert int(peak) < 400
