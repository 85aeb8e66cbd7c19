"""`scripts/reproduce`: its tables, and that README and the manual have a place for each and none that is empty."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import re
import shutil
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hogwild.__main__ import main
from hogwild.compare.report.results import ComparisonResult
from tests.compare.rows import loaded, race

ROOT = Path(__file__).resolve().parents[1]
TINY = "synthetic:rcv1?rows=800&features=80&nnz=8"


@pytest.fixture
def reproduce(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    module = importlib.import_module("reproduce")

    def here(work: Any, *arguments: str) -> None:
        """A command in this process, which has all imported that takes seconds."""
        with contextlib.chdir(work.out):
            assert main([*arguments, "--quiet"]) == 0

    monkeypatch.setattr(module.Work, "run", here)
    return module


def blocks(text: str) -> dict[str, str]:
    return {name: body.strip() for name, body in re.findall(r"<!-- (\w+) -->\n(.*?)<!-- /\1 -->", text, re.DOTALL)}


def written(reproduce: ModuleType, root: Path) -> dict[str, str]:
    """The tables of all pages by name; each has one place."""
    parts = [blocks((root / name).read_text()) for name in reproduce.PAGES]
    found = {name: body for part in parts for name, body in part.items()}
    assert len(found) == sum(map(len, parts))
    return found


@pytest.mark.slow
def test_comparisons_become_tables(reproduce: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = ["--epochs", "4", "--seeds", "3", "--steps", "1,2"]
    monkeypatch.setattr(reproduce, "REAL", {"absent": ("none.svm", None, [])})
    monkeypatch.setattr(reproduce, "MADE", {reproduce.BEYOND: (TINY, None, quick)})
    monkeypatch.setattr(reproduce, "SIMULATED", {"tiny": (TINY, [])})
    monkeypatch.setattr(reproduce, "METHODS", "serial,locked,sklearn-sgd")
    work = reproduce.Work(tmp_path / "out", None)
    tables = reproduce.compare(work) | reproduce.simulate(work)
    assert set(tables) == {"compare", "verdicts", "verdict", "simulated"}
    assert "| `locked`, 2 workers |" in tables["compare"] or "| `locked`, 1 worker |" in tables["compare"]
    assert tables["verdicts"].startswith("* beyond the cache: ")
    line = tables["simulated"].splitlines()[2]
    assert re.fullmatch(r"\| tiny \([\d.]+–[\d.]+\) \| [\d.]+ \| [\d.]+ \| [\d.]+ \|", line), line
    before = written(reproduce, ROOT)
    for folder in ("scripts", "docs"):
        (tmp_path / folder).mkdir()
    for name in reproduce.PAGES:
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.setattr(reproduce, "ROOT", tmp_path)
    reproduce.write(tables, tmp_path / "out")
    after = written(reproduce, tmp_path)
    assert {name: after[name] for name in tables} == tables
    assert set(after) == set(before)


@pytest.mark.slow
def test_the_paper_s_table(reproduce: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = {
        "RCV1": (TINY, ("--loss", "hinge", "--l2", "1e-5"), TINY + "&skip=800"),
        "DBLife": (lambda path: reproduce.paper_graphs.dblife(path, 8, 40), (), None),
    }
    stand_ins = {
        name: dataclasses.replace(reproduce.PAPER[name], data=data, options=options, test=test)
        for name, (data, options, test) in tiny.items()
    }
    monkeypatch.setattr(reproduce, "PAPER", stand_ins)
    monkeypatch.setattr(reproduce, "PROTOCOL", (*reproduce.PROTOCOL, "--epochs", "3", "--host", "threads"))
    lines = reproduce.paper(reproduce.Work(tmp_path, None))["paper"].splitlines()[2:6]
    assert [line.split(" | ")[:2] for line in lines] == [
        ["| RCV1", "paper"],
        ["| RCV1", "here"],
        ["| DBLife", "paper"],
        ["| DBLife", "here"],
    ]
    assert lines[0] == "| RCV1 | paper | 9.5 | 0.297 | 0.339 | 61.8 | 0.297 | 0.339 | 6.5 |"
    assert "–" not in lines[1]
    assert lines[3].count("–") == 2  # cuts have no test data


def test_the_step_of_the_paper_is_the_largest_that_converges(reproduce: ModuleType) -> None:
    ends = {0.1: 0.3, 0.2: 0.2, 0.4: 0.23, 0.8: 0.5, 1.6: None}
    runs = [{"step": step} | ({"last objective": end} if end else {}) for step, end in ends.items()]
    source = SimpleNamespace(of_phase=lambda phase: runs, start=1.0, head={"step_grid": [0.1, 0.2]})
    assert reproduce.largest_that_converges(source) == 0.4
    del runs[:4]
    assert reproduce.largest_that_converges(source) == 0.1


def compared(reproduce: ModuleType, monkeypatch: pytest.MonkeyPatch, source: ComparisonResult) -> Any:
    """Work whose comparisons all have this result, on two cores."""
    monkeypatch.setattr(reproduce, "CORES", "2")
    monkeypatch.setattr(reproduce, "physical_cores", lambda: 2)
    return SimpleNamespace(compare=lambda *arguments: source)


def test_other_programs_and_disciplines_become_tables(
    reproduce: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = ["serial 1 2", "tiered 1 2", "tiered 2 1", "hogwild 2 1.25", "sklearn-sgd 1 4", "liblinear 1 8"]
    work = compared(reproduce, monkeypatch, loaded(tmp_path, race(*cells, noise=(1.0,) * 3)))
    tables = reproduce.beside(work) | reproduce.disciplines(work)
    shown = "\n".join(tables.values())
    for line in (
        "scikit-learn `SGDClassifier`, an epoch of 1,000 rows x 10 nonzeros | 2.00 s | 4.00 s | **2.00x**",
        "2 cores against one, an epoch (`tiered`, objective / serial 1.0000) | 1.00 s | 2.00 s | **2.00x**",
        "2 cores against one, an epoch (`hogwild`, objective / serial 1.0000) | 1.25 s | 2.00 s | **1.60x**",
        "one core against LIBLINEAR, SVM: time to 0.1 % of the optimum | 6.00 s | 24.0 s | **4.00x**",
        "`tiered` | 1.00x | 2.00x | 1.00x | 2.00x | 1.00x | 2.00x | 1.0000",
        "`aig` | – | – | – | – | – | – | nan",
    ):
        assert f"{line} |" in shown


def test_ratings_become_a_table(reproduce: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = race("serial 1 2", "hogwild 2 1", test_rmse=0.9, noise=(1.0,))
    work = compared(reproduce, monkeypatch, loaded(tmp_path, rows, ratings=6_000_000))
    for place, plain in ((None, False), ("/bin/mf-train", True)):  # LIBMF has no biases, and reads all text often
        monkeypatch.setattr(reproduce.shutil, "which", lambda name, place=place: place)
        table = reproduce.completion(work)["completion"]
        assert "| `hogwild`, 2 workers | 6 (0.9000) | 6 (0.9000) | 6" in table
        assert ("| `hogwild`, 2 workers, no biases | – | – | 6 (0.9000) | 6" in table) == plain


PAGE = """
<!-- others -->
| one machine | hogwild | the other |  |
| --- | --: | --: | --: |
| against one (`tiered`, objective / serial 0.9997) | 1.00 s | 3.00 s | **3.00x** |
| against VW, to 10 % | 1.00 s | 2.00 s | **2.00x** |
<!-- /others -->
<!-- compare -->
|  | a9a: 1 M nonzeros, in the cache; to 1 % | w8a: 2 M nonzeros, beyond it; to 1 % | b: 3 M, beyond it; to 1 % |
| --- | --: | --: | --: |
| `serial`, 1 worker | 10.0 ms | 1.00 s | – |
| `tiered`, 2 workers | 5.00 ms | 800 ms (60%) | 2.00 s |
| `aig`, 2 workers | never | 4.00 s | never |
<!-- /compare -->
<!-- paper -->
| data | whose | Hogwild s | RR/HW |
| --- | --- | --: | --: |
| KDD | paper | 877 | 8.1 |
| KDD | here | 0.4 | 15.3 |
<!-- /paper -->
"""


def test_on_another_machine_ratios_stand_beside_those_of_the_pages(
    reproduce: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduce, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("")
    (tmp_path / "docs" / "measured.md").write_text(PAGE)
    here = PAGE.replace("0.9997", "1.0001").replace("3.00x", "2.50x").replace("to 10 %", "to 1 %")
    here = here.replace("5.00 ms", "9.00 ms").replace("beyond it", "in the cache").replace("0.4 | 15.3", "0.3 | 17.4")
    assert list(reproduce.beside_the_pages(blocks(here) | {"simulated": "| new | a |\n|---|--:|\n| b | 1.00x |"})) == [
        "against one: 2.50x (3.00x)",
        "`tiered`, 2 workers: a9a 0.90x (0.50x); w8a 0.80x (0.80x)",
        "`aig`, 2 workers: w8a 4.00x (4.00x)",
        "KDD: RR/HW 17.4 (15.3)",
    ]


def test_the_pages_have_no_empty_table(reproduce: ModuleType) -> None:
    found = written(reproduce, ROOT)
    assert set(found) == {
        "completion",
        "paper",
        "headline",
        "others",
        "verdict",
        "compare",
        "verdicts",
        "disciplines",
        "simulated",
    }
    assert [name for name, body in found.items() if not body] == []
    assert (ROOT / "scripts" / "comparison.svg").stat().st_size > 1000
