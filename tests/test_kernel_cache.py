"""The kernel cache's name follows the kernels' source and numba's flags, and a bad place for it is not used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hogwild import kernel_cache
from hogwild.kernel_cache import use_kernel_cache


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(kernel_cache.platformdirs, "user_cache_dir", lambda name: str(tmp_path / "user"))
    monkeypatch.setattr(kernel_cache.tempfile, "gettempdir", lambda: str(tmp_path / "temp"))
    return tmp_path


def test_one_directory_for_one_source(places: Path) -> None:
    environ: dict[str, str] = {}
    directory = use_kernel_cache(environ)
    assert environ["NUMBA_CACHE_DIR"] == str(directory)
    assert directory.parent == places / "user"
    assert directory.stat().st_mode & 0o777 == 0o700
    assert use_kernel_cache({}) == directory
    assert use_kernel_cache(dict(environ)) == directory


def test_flags_and_edits_change_it(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = use_kernel_cache({})
    checked = {"NUMBA_BOUNDSCHECK": "1"}
    assert use_kernel_cache(checked) != plain
    inherited = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(plain)}  # a child process with another flag
    assert use_kernel_cache(inherited) == use_kernel_cache({"NUMBA_BOUNDSCHECK": "1"})

    kernels = places / "package" / "kernels"
    kernels.mkdir(parents=True)
    monkeypatch.setattr(kernel_cache, "__file__", str(places / "package" / "kernel_cache.py"))
    (kernels / "losses.py").write_text("x = 1\n")
    before = use_kernel_cache({})
    (kernels / "losses.py").write_text("x = 2\n")
    assert use_kernel_cache({}) != before


def test_the_users_own_choice_stays(places: Path) -> None:
    environ = {"NUMBA_CACHE_DIR": str(places / "mine")}
    assert use_kernel_cache(environ) == places / "mine"
    assert not (places / "mine").exists()


def test_places_that_cannot_be_trusted_or_written_are_passed_over(places: Path) -> None:
    (places / "user").write_text("a file where the directory should be")
    fallback = use_kernel_cache({})
    assert fallback.parent == places / "temp" / f"hogwild-{os.getuid()}" or fallback.parent.parent == places / "temp"
    fallback.chmod(0o777)  # others could put pickles in it
    assert use_kernel_cache({}) != fallback


def test_old_caches_are_removed(places: Path) -> None:
    for number in range(20):
        old = places / "user" / f"kernels-{number:016x}"
        old.mkdir(parents=True)
        os.utime(old, (number, number))
    (places / "user" / "other").mkdir()
    directory = use_kernel_cache({})
    left = sorted(path.name for path in (places / "user").glob("kernels-*") if path != directory)
    assert left == [f"kernels-{number:016x}" for number in range(20 - kernel_cache.KEPT, 20)]
    assert (places / "user" / "other").is_dir()


def test_no_place_at_all(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under ``ulimit -f 0`` Python finds no directory for temporary files; then there is no cache, and no error."""
    (places / "user").write_text("a file where the directory should be")

    def none_usable() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(kernel_cache.tempfile, "gettempdir", none_usable)
    environ: dict[str, str] = {}
    assert use_kernel_cache(environ) is None
    assert environ == {}
