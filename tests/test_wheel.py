"""The wheel holds what it should, installs into a clean environment away from the checkout, and trains there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> str:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    result = subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True)
    assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that the checkout gains no build folders."""
    source = tmp_path_factory.mktemp("source")
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "hogwild", source / "hogwild", ignore=shutil.ignore_patterns("__pycache__"))
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", cwd=source)  # isolation would download setuptools
    [built] = (source / "dist").glob("*.whl")
    return built


def test_contents(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        [metadata] = [name for name in names if name.endswith("/METADATA")]
        text = archive.read(metadata).decode()
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "hogwild").rglob("*.py")}
    others = {"hogwild/py.typed", "hogwild/compare/report/page.html.jinja"}
    others |= {f"hogwild/datasets/{card.name}" for card in (ROOT / "datasets").glob("*.toml")}
    assert modules | others == {name for name in names if ".dist-info/" not in name}
    assert any(name.endswith("LICENSE") for name in names)
    assert "License-Expression: BSD-3-Clause" in text
    assert "Requires-Python: >=3.11" in text


def test_trains_away_from_the_checkout(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "env", cwd=tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=tmp_path)
    # The dependencies (torch is 700 MB) are borrowed from this environment: a path in a .pth file is searched last, and
    # .pth files found there are not run, so that an editable hogwild does not come along.
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")

    where = run(python, "-c", "import hogwild; print(hogwild.__file__)", cwd=tmp_path)
    assert str(site) in where
    program = tmp_path / "env" / "bin" / "hogwild"
    cards = len(list((ROOT / "datasets").glob("*.toml")))
    assert f"{cards} data sets; those fetched are in " in run(program, "data", "list", cwd=tmp_path)
    data = "synthetic:rcv1?rows=400&features=300"
    work = tmp_path / "elsewhere"
    work.mkdir()
    options = "--epochs 2 --l2 1e-5 --workers 2 --out model --json rows.jsonl --no-cache"
    run(python, "-m", "hogwild", "train", data, *options.split(), cwd=work)
    rows = [json.loads(line) for line in (work / "rows.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [0, 1, 2]
    assert rows[-1]["objective"] < rows[0]["objective"]
    assert "accuracy" in run(program, "evaluate", "model", data, "--no-cache", cwd=work)
    assert sorted(path.name for path in work.iterdir()) == ["model", "rows.jsonl"]
