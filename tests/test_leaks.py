"""The fixture that looks for leaks must see them, or it proves nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CONFTEST = """
import tests.conftest
from tests.conftest import *  # the fixtures under test

tests.conftest.GRACE = 0.3
"""
LEAKY = """
import multiprocessing, os, subprocess

def test_child():
    leaky = subprocess.Popen(["sleep", "60"])
    leaky.returncode = 0  # keeps Popen's own ResourceWarning out of the picture

def test_orphan():
    subprocess.run(["sh", "-c", "sleep 60 >/dev/null 2>&1 &"], check=True)

def test_segment():
    open("/dev/shm/hogwild_test_leak_%d", "w").close()

def test_clean():
    process = multiprocessing.get_context("forkserver").Process(target=os.getpid)
    process.start()  # the fork server and the resource tracker may stay
    process.join()
    subprocess.run(["true"], check=True)
"""


def test_leaks_fail_the_test_that_leaked(tmp_path: Path) -> None:
    name = f"/dev/shm/hogwild_test_leak_{os.getpid()}"
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_leaky.py").write_text(LEAKY % os.getpid())
    root = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", "test_leaky.py"]
    try:
        result = subprocess.run(
            command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True
        )
    finally:
        Path(name).unlink(missing_ok=True)
    assert result.returncode == 1, result.stdout
    assert "4 passed, 3 errors" in result.stdout
    assert result.stdout.count("sleep 60") >= 2
    assert "test_clean" not in result.stdout.partition("short test summary")[2]
