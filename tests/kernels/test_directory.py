"""The kernel cache's name follows the kernels' source and numba's flags, and a bad place for it is not used."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import platformdirs
import pytest

from hogwild.kernels import cache as place
from hogwild.kernels.cache import kernel_directory


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda name: str(tmp_path / "user"))
    monkeypatch.setattr(place.tempfile, "gettempdir", lambda: str(tmp_path / "temp"))
    kernel_directory.cache_clear()
    yield tmp_path
    kernel_directory.cache_clear()


def test_flags_and_edits_change_it(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = kernel_directory(str(places / "mine"), "checked")
    assert found is not None
    assert found.parent == places / "mine"  # where the user wants it
    assert kernel_directory("", "checked") != kernel_directory("", "plain")

    kernels = places / "package" / "kernels"
    kernels.mkdir(parents=True)
    monkeypatch.setattr(place, "__file__", str(places / "package" / "kernels" / "cache.py"))
    moved = places / "package" / "problems" / "linear" / "simulated_kernel.py"
    moved.parent.mkdir(parents=True)
    found = [kernel_directory("", "")]
    for file in (kernels / "losses.py", moved):
        for text in ("x = 1\n", "x = 2\n"):
            file.write_text(text)
            kernel_directory.cache_clear()
            found.append(kernel_directory("", ""))
    assert len(set(found)) == 5


def test_every_file_with_a_compiled_function_is_covered() -> None:
    package = Path(place.__file__).parents[1]
    holding = {path for path in package.rglob("*.py") if re.search(r"^\s*@njit", path.read_text(), re.M)}
    others = {path for path in holding if path.parent.name != "kernels" and not path.name.endswith("kernel.py")}
    assert not others, f"kernels lie in kernels/ or in files named *kernel.py: {others}"
    assert {len(path.relative_to(package).parts) for path in holding} == {2, 3, 4}


def test_places_that_cannot_be_trusted_or_written_are_passed_over(places: Path) -> None:
    (places / "user").write_text("a file where the directory should be")
    fallback = kernel_directory("", "")
    assert fallback is not None
    assert fallback.parent == places / "temp" / f"hogwild-{os.getuid()}"
    for open_to_others in (fallback, fallback.parent, places):  # they could put pickles in it, or another in its place
        open_to_others.chmod(0o777)
        kernel_directory.cache_clear()
        assert kernel_directory("", "") is None
        open_to_others.chmod(0o700)
    (places / "temp").chmod(0o1777)  # as /tmp is
    kernel_directory.cache_clear()
    assert kernel_directory("", "") == fallback


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory to another user")
def test_a_directory_of_another_user_is_passed_over(places: Path) -> None:
    """Who made it may replace what lies in it, even if the last directory is our own."""
    (places / "user").write_text("a file where the directory should be")
    between = places / "temp" / f"hogwild-{os.getuid()}"
    between.mkdir(parents=True)
    os.chown(between, 65534, 65534)
    assert kernel_directory("", "") is None


def test_old_caches_are_removed(places: Path) -> None:
    for number in range(20):
        old = places / "user" / f"kernels-{number:016x}"
        old.mkdir(parents=True)
        os.utime(old, (number, number))
    (places / "user" / "other").mkdir()
    directory = kernel_directory("", "")
    left = sorted(path.name for path in (places / "user").glob("kernels-*") if path != directory)
    assert left == [f"kernels-{number:016x}" for number in range(20 - place.KEPT, 20)]
    assert (places / "user" / "other").is_dir()


def test_no_place_at_all(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under ``ulimit -f 0`` Python finds no directory for temporary files; then there is no cache, and no error."""
    (places / "user").write_text("a file where the directory should be")

    def none_usable() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(place.tempfile, "gettempdir", none_usable)
    assert kernel_directory("", "") is None
