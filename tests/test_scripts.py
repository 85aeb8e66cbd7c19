"""The scripts a person runs: they work from any directory, and again."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = [
    "scripts/quickstart",
    "scripts/test",
    "scripts/docs",
    "scripts/environment.sh",
    ".ci/run",
]


@pytest.mark.parametrize("name", SCRIPTS)
def test_syntax_and_mode(name: str) -> None:
    subprocess.run(["bash", "-n", ROOT / name], check=True)
    text = (ROOT / name).read_text()
    if not name.endswith(".sh"):
        assert os.access(ROOT / name, os.X_OK)
        assert "set -euo pipefail" in text


def shell(code: str, tmp_path: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` after sourcing environment.sh of a make-believe checkout with a make-believe Python."""
    (tmp_path / "scripts").mkdir(exist_ok=True)
    (tmp_path / "scripts" / "environment.sh").write_text((ROOT / "scripts" / "environment.sh").read_text())
    for name in ("setup.cfg", "pyproject.toml", "constraints.txt"):
        if not (tmp_path / name).exists():
            (tmp_path / name).touch()
            os.utime(tmp_path / name, (1e9, 1e9))  # older than any installation
    code = f"set -euo pipefail; source {tmp_path}/scripts/environment.sh; {code}"
    settings = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", **environ}
    return subprocess.run(["bash", "-c", code], cwd="/", env=settings, capture_output=True, text=True)


def fake_python(path: Path, log: Path, recent: bool = True) -> None:
    """A program that notes how it is called; as ``python -m venv`` it copies itself into the environment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"""#!/bin/bash
[ "$1" = -c ] && exit {0 if recent else 1}
echo "$*" >> {log}
if [ "$1 $2" = "-m venv" ]; then mkdir -p "${{@: -1}}/bin"; cp "$0" "${{@: -1}}/bin/python"; fi
"""
    )
    path.chmod(0o755)


def test_installs_once_and_again_when_the_requirements_change(tmp_path: Path) -> None:
    log = tmp_path / "log"
    fake_python(tmp_path / "bin" / "python3", log)
    for _ in range(3):
        assert shell('prepare ""', tmp_path).returncode == 0
    calls = [line for line in log.read_text().splitlines() if line.startswith("-m")]
    assert calls[0] == f"-m venv --clear {tmp_path}/.venv"
    assert calls[1].endswith(f"-c {tmp_path}/constraints.txt -e {tmp_path}")
    assert len(calls) == 2
    assert shell("prepare test", tmp_path).returncode == 0
    assert log.read_text().splitlines()[-1].endswith(f"-e {tmp_path}[test]")
    before = log.read_text()
    (tmp_path / ".venv" / ".installed").unlink()
    assert shell('prepare ""', tmp_path).returncode == 0
    assert log.read_text() == before  # it came with the extra
    later = (tmp_path / ".venv" / ".installed-test").stat().st_mtime + 5
    os.utime(tmp_path / "setup.cfg", (later, later))
    assert shell('prepare ""', tmp_path).returncode == 0
    assert log.read_text() != before


def test_which_python(tmp_path: Path) -> None:
    for name in ("python3", "python3.13"):  # which the machine may have
        fake_python(tmp_path / "bin" / name, tmp_path / "log", recent=False)
    fake_python(tmp_path / "bin" / "python3.12", tmp_path / "log")
    fake_python(tmp_path / "bin" / "mine", tmp_path / "log")
    assert shell("find_python", tmp_path).stdout.strip() == f"{tmp_path}/bin/python3.12"
    assert shell("find_python", tmp_path, PYTHON="mine").stdout.strip() == f"{tmp_path}/bin/mine"
    refused = shell("prepare test", tmp_path, PYTHON="python3")
    assert refused.returncode != 0
    assert "PYTHON=python3 is not a Python 3.11 or newer" in refused.stderr
    for name in ("python3.13", "python3.12", "python3.11"):
        fake_python(tmp_path / "bin" / name, tmp_path / "log", recent=False)
    assert "install one or set PYTHON" in shell("prepare test", tmp_path).stderr


@pytest.mark.slow
def test_quickstart_trains(tmp_path: Path) -> None:
    if not (ROOT / ".venv" / "bin" / "python").exists():
        pytest.skip("no .venv in the checkout")
    command = [ROOT / "scripts" / "quickstart", "synthetic:rcv1?rows=2000&features=500&nnz=10", "--epochs", "2"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "done after epoch 2" in result.stdout
    assert list(tmp_path.iterdir()) == []
