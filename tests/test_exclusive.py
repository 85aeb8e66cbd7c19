"""Two runs never write to one checkpoint or one file of rows: the second is refused, and a kill lets go."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

import hogwild
from hogwild.errors import UsageError
from hogwild.rows_file import RowsFile
from tests.conftest import ROOT
from tests.runs import QUIET, toy

HOLD = """
import sys
import hogwild
from hogwild.rows_file import RowsFile
from tests.runs import QUIET, toy
rows = RowsFile(sys.argv[2])
rows.write({"epoch": 0})
run = hogwild.train(toy(), checkpoint=sys.argv[1], epochs=9, **QUIET)
print(next(run)["epoch"], flush=True)
sys.stdin.read()
"""


def test_another_process_has_them(tmp_path: Path) -> None:
    state, rows = tmp_path / "state", tmp_path / "rows"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, state, rows], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    assert process.stdout.readline() == b"0\n"
    with pytest.raises(UsageError, match=f"^{state}: the checkpoint of another run is being written there: wait"):
        hogwild.train(toy(), checkpoint=state, epochs=9, **QUIET)
    for append in (False, True):
        with pytest.raises(UsageError, match=f"^--json {rows}: another run is being written there: wait for it"):
            RowsFile(str(rows), append)
    assert rows.read_text() == '{"epoch": 0}\n'
    process.kill()
    process.communicate()
    hogwild.train(toy(), checkpoint=state, epochs=1, **QUIET).finish()
    RowsFile(str(rows)).close()


def test_a_run_lets_go_at_its_end_and_when_it_cannot_begin(tmp_path: Path) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    run = hogwild.train(toy(), checkpoint=tmp_path, epochs=1, **QUIET)
    with pytest.raises(UsageError, match="is being written there") as refused:
        hogwild.train(toy(), checkpoint=tmp_path, epochs=1, **QUIET)
    run.finish()
    with pytest.raises(hogwild.InputError, match="other options") as failed:
        hogwild.train(toy(), checkpoint=tmp_path, resume=True, epochs=1, l2=0.5, **QUIET)
    hogwild.train(toy(), checkpoint=tmp_path, epochs=1, **QUIET).close()
    assert refused.tb is not failed.tb  # both still hold their frames
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_device_is_for_all() -> None:
    first, second = RowsFile("/dev/null"), RowsFile("/dev/null")
    first.close()
    second.close()
