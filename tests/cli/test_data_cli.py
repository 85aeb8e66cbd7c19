"""`convert` and `info`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hogwild.data.rows.source import open_data


def test_convert(hogwild: Callable, refused: Callable, svm: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shown = hogwild(f"convert {svm} {store}").shown()
    assert shown == f"{store}: 200 rows x 20 features, 400 nonzeros\n"
    assert "exists" in refused(f"convert {svm} {store}")
    assert hogwild(f"convert {svm} {store} --overwrite --features 30 --quiet").out == ""
    assert open_data(store).width == 30
    hogwild(f"convert {svm} {tmp_path / 'zero'} --zero-based").shown()
    assert open_data(tmp_path / "zero").width == 21


def test_info_on_data(hogwild: Callable, svm: Path, tmp_path: Path) -> None:
    hogwild(f"convert {svm} {tmp_path / 'store'} -q")
    for path in (svm, tmp_path / "store"):
        facts = hogwild(f"info {path} --json").facts()
        assert (facts["rows"], facts["width"], facts["nnz"]) == (200, 20, 400)
        assert facts["targets"] == {"labels": {"1": 100, "2": 100}}
        shown = hogwild(f"info {path}").out
        for text in ("1: 100 (50.0%), 2: 100 (50.0%)", "Omega", "Delta", "rho"):
            assert text in shown
    assert "targets              min" in hogwild("info 'synthetic:rcv1?rows=200&features=200&nnz=5&task=regress'").out


def test_info_on_a_damaged_store(hogwild: Callable, refused: Callable, svm: Path, tmp_path: Path) -> None:
    hogwild(f"convert {svm} {tmp_path / 'store'} -q")
    values = np.load(tmp_path / "store" / "values.npy", mmap_mode="r+")
    values[-1] = 7
    values.flush()
    assert "damaged store: values.npy does not match its checksum" in refused(f"info {tmp_path / 'store'}")


def test_info_on_the_machine(hogwild: Callable) -> None:
    shown = hogwild("info").out
    for name in ("cpu", "cores", "memory", "version numba"):
        assert f"\n{name} " in "\n" + shown
    assert hogwild("info --json").facts()["cores"] >= 1


def test_info_on_a_pipe_takes_nothing_from_it(svm: Path) -> None:
    command = f"{sys.executable} -m hogwild info --json <(cat {svm})"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["rows"] == 200


FLOW = "p max 2147483647 1\nn 1 s\nn 2 t\na 1 3 1\n"


@pytest.mark.parametrize(
    ("command", "name", "text", "said"),
    [
        ("info", "huge.svm", "1 1:1\n-1 2147483647:1\n", "2,147,483,647 features need "),
        ("train --host threads", "huge.svm", "1 1:1\n-1 2147483647:1\n", "2,147,483,647 features need "),
        ("info --problem cuts", "huge.max", FLOW, "4,294,967,294 labels of vertices need "),
    ],
)
def test_one_huge_index_is_told_before_memory_runs_out(
    refused: Callable, tmp_path: Path, command: str, name: str, text: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hogwild.machine.memory", lambda: (8 << 30, 4 << 30))
    (tmp_path / name).write_text(text)
    shown = refused(f"{command} {tmp_path / name}")
    assert f"{tmp_path / name}: {said}" in shown
    assert "4.0 GiB are available" in shown
