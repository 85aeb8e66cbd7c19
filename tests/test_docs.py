"""The manual builds without warnings and holds every public name, command and option; its links lead somewhere."""

from __future__ import annotations

import doctest
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import typer

import hogwild
from hogwild.cli import app

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = ("hogwild", "scripts", "tests", "docs", "datasets")


def headings(page: Path) -> set[str]:
    """What a link to a part of a page may name: its headings, as they stand in addresses, and targets set by hand."""
    text = page.read_text()
    told = [re.sub(r"[^\w -]", "", line).strip().lower() for line in re.findall(r"^#+ (.*)", text, flags=re.MULTILINE)]
    return {line.replace(" ", "-") for line in told} | set(re.findall(r"^\((.*)\)=$", text, flags=re.MULTILINE))


def build(folder: Path) -> Path:
    """Build the site in ``folder`` and return where its pages lie.

    The sources are copied, so that the checkout gains no generated ones.
    """
    for name in ("README.md", "CHANGELOG.md", "datasets", "scripts"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree(
        ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("examples", "reference", "__pycache__")
    )
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q"]
    command += ["-D", "plot_gallery=0", "docs", "site"]
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}  # nothing is run, so nothing has to be compiled
    built = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder / "site"


def text_of(page: Path) -> str:
    """What a page says, without its markup and with single blanks."""
    body = page.read_text().partition("<article")[2].partition("</article>")[0]
    return " ".join(unescape(re.sub(r"<[^>]*>", "", body)).split())


def commands(command: Any, name: str = "hogwild") -> Iterator[tuple[str, Any]]:
    """Every command and what it holds, by its full name."""
    yield name, command
    for each, below in getattr(command, "commands", {}).items():
        yield from commands(below, f"{name} {each}")


def check_every_public_name_has_a_page(site: Path) -> None:
    for name in set(hogwild.__all__) - {"__version__"}:
        page = site / "reference" / "generated" / f"hogwild.{name}.html"
        summary = " ".join((getattr(hogwild, name).__doc__ or "").split("\n\n")[0].split()).replace("``", "")
        assert f'id="hogwild.{name}"' in page.read_text(), name
        assert summary.partition(":")[0] in text_of(page), name
    assert "hogwild.__version__" in text_of(site / "reference" / "api.html")


def check_every_command_and_option_is_in_the_reference(site: Path) -> None:
    found = dict(commands(typer.main.get_command(app)))
    assert {"hogwild", "hogwild train", "hogwild data fetch"} < set(found)
    for name, command in found.items():
        page = name.replace(" ", "-")  # and for train one of each other problem
        pages = [*(site / "reference" / "commands").glob(f"{page}---problem-*.html")]
        said = " ".join(text_of(one) for one in (site / "reference" / "commands" / f"{page}.html", *pages))
        for parameter in command.params:
            if parameter.param_type_name == "option" and not parameter.hidden:
                for option in [*parameter.opts, *parameter.secondary_opts]:
                    assert re.search(rf"(?<![\w-]){option}(?![\w-])", said), (name, option)
                assert " ".join(parameter.help.split()) in said, (name, parameter.opts)


def check_every_example_is_shown(site: Path) -> None:
    folder = ROOT / "scripts" / "examples"
    for script in set(folder.rglob("*.py")) - {folder / "distributed" / "slowed.py", folder / "benchopt" / "solver.py"}:
        page = (site / "examples" / script.relative_to(folder)).with_suffix(".html")
        assert "def main(" in text_of(page), script


def check_nothing_comes_from_the_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"https?:[^>]*>", page.read_text()) == [], page


@pytest.mark.slow
def test_the_manual(tmp_path: Path) -> None:
    """One test, since workers that share out the suite would each build the site."""
    pytest.importorskip("sphinx", reason="the manual needs the extra docs: pip install -e '.[docs]'")
    site = build(tmp_path)
    check_every_public_name_has_a_page(site)
    check_every_command_and_option_is_in_the_reference(site)
    check_every_example_is_shown(site)
    check_nothing_comes_from_the_network(site)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_paths_lead_to_files(page: Path) -> None:
    """Links to files, and names in code type that begin with a folder of the repository."""
    assert not re.search(r"^[<>]{7} ", page.read_text(), flags=re.MULTILINE), "marks of a merge"
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    made = (ROOT / "docs" / "reference", ROOT / "docs" / "examples")  # by the build
    for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        target = (page.parent / link).resolve()
        known = "://" in link or target.exists() or any(target.is_relative_to(folder) for folder in made)
        assert known, f"{page.name} links to {link}, which is not there"
    for link, heading in re.findall(r"\]\(([^)#\s:]*)#([^)]+)\)", text):
        target = page.parent / link if link else page
        assert target.suffix != ".md" or heading in headings(target), f"{page.name} links to {link}#{heading}"
    for path in re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w./-]+)[`: ]", text):
        known = (ROOT / path).exists() or any((ROOT / path).is_relative_to(folder) for folder in made)
        assert known, f"{page.name} names {path}, which is not there"


#: Public functions that are reached by the name of their module.
BEYOND = (
    "hogwild.training.engine.start_pool",
    "hogwild.interchange.export_model",
    "hogwild.data.text.hashing.hash_rows",
)


@pytest.mark.parametrize("name", ["text", "tables", "completion", "compare", "modules", "large", "cuts"])
def test_a_page_of_the_guide_begins_with_a_command_and_a_picture_and_ends_with_what_can_go_wrong(name: str) -> None:
    page = (ROOT / "docs" / "guide" / f"{name}.md").read_text()
    assert re.match(r"# .*\n\n(.{1,200}\n\n)?```(sh|text|python)\n", page, flags=re.DOTALL)
    before = page.partition("\n## ")[0]
    assert re.search(r"^```{figure}|^\.\. minigallery::|^!\[", before, flags=re.MULTILINE)
    assert re.findall(r"^## (.*)", page, flags=re.MULTILINE)[-1] == "What can go wrong"


@pytest.mark.parametrize("name", [*sorted({*hogwild.__all__} - {"__version__"}), *BEYOND])
def test_a_public_name_has_an_example_that_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    public = pkgutil.resolve_name(name) if "." in name else getattr(hogwild, name)
    assert "See Also" in public.__doc__, name
    tests = [test for test in doctest.DocTestFinder(recurse=False).find(public, name) if test.examples]
    assert tests, name
    for test in tests:
        assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test).failed == 0


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 250
