"""The kernel cache's name follows the kernels' source and numba's flags, and a bad place for it is not used."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from hogwild.kernels import cache as place


def directory(root: Path, flags: str = "") -> Path | None:
    place.kernel_directory.cache_clear()
    return place.kernel_directory(str(root), flags)


def test_flags_and_edits_change_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [directory(tmp_path / "mine", flags) for flags in ("checked", "plain")]
    assert found[0].parent == tmp_path / "mine"
    kernels = tmp_path / "package" / "kernels"
    moved = tmp_path / "package" / "problems" / "linear" / "simulated_kernel.py"
    for folder in (kernels, moved.parent):
        folder.mkdir(parents=True)
    monkeypatch.setattr(place, "__file__", str(kernels / "cache.py"))
    for file in (kernels / "losses.py", moved):
        for text in ("x = 1\n", "x = 2\n"):
            file.write_text(text)
            found.append(directory(tmp_path))
    assert len(set(found)) == 6


def test_every_file_with_a_compiled_function_is_covered() -> None:
    package = Path(place.__file__).parents[1]
    holding = {path for path in package.rglob("*.py") if re.search(r"^\s*@njit", path.read_text(), re.M)}
    others = {path for path in holding if path.parent.name != "kernels" and not path.name.endswith("kernel.py")}
    assert not others, f"kernels lie in kernels/ or in files named *kernel.py: {others}"
    assert {len(path.relative_to(package).parts) for path in holding} == {2, 3, 4}


def test_places_that_cannot_be_trusted_or_written_are_not_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert directory(tmp_path / "file") is None
    made = directory(tmp_path)
    assert made is not None
    made.chmod(0o777)  # others could put pickles in it
    assert directory(tmp_path) is None
    made.chmod(0o700)
    assert directory(tmp_path) == made
    if os.getuid() == 0:  # only root can give a directory to another user
        os.chown(made, 65534, 65534)
        assert directory(tmp_path) is None


def test_old_caches_are_removed(tmp_path: Path) -> None:
    for number in range(20):
        old = tmp_path / f"kernels-{number:016x}"
        old.mkdir()
        os.utime(old, (number, number))
    (tmp_path / "other").mkdir()
    made = directory(tmp_path)
    kept = sorted(path.name for path in tmp_path.glob("kernels-*") if path != made)
    assert kept == [f"kernels-{number:016x}" for number in range(20 - place.KEPT, 20)]
    assert (tmp_path / "other").is_dir()
