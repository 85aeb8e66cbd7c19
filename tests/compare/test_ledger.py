"""What a killed comparison leaves, and what the next one takes over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hogwild.compare.run.ledger import ROWS, Ledger
from hogwild.errors import InputError, OutputError, UsageError
from tests.compare.rows import about, run

HEAD = about(comparison="mine")


def cell(name: str, count: int) -> list[dict]:
    return run("serial", [1.0] * count, cell=name, cell_rows=count)


def written(directory: Path) -> Path:
    ledger = Ledger(directory, "mine")
    ledger.begin(HEAD)
    ledger.add(cell("a", 3))
    ledger.add(cell("b", 2))
    ledger.close()
    return directory / ROWS


def test_finished_cells_are_taken_over(tmp_path: Path) -> None:
    before = written(tmp_path / "out").read_bytes()
    again = Ledger(tmp_path / "out", "mine")
    assert (again.head, again.cells) == (HEAD, {"a": cell("a", 3), "b": cell("b", 2)})
    again.add(cell("c", 1))
    again.close()
    after = (tmp_path / "out" / ROWS).read_bytes()
    assert after.startswith(before)
    assert json.loads(after.splitlines()[-1])["cell"] == "c"
    assert [path.name for path in (tmp_path / "out").iterdir()] == [ROWS]


@pytest.mark.parametrize("cut", [1, 40, 90])
def test_half_written_cells_are_cut_off(tmp_path: Path, cut: int) -> None:
    path = written(tmp_path)
    path.write_bytes(path.read_bytes()[:-cut])
    again = Ledger(tmp_path, "mine")
    again.close()
    assert set(again.cells) == {"a"}
    assert [json.loads(line).get("cell") for line in path.read_text().splitlines()] == [None, *"aaa"]


def test_a_line_that_is_no_row_is_named(tmp_path: Path) -> None:
    path = written(tmp_path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], "nonsense\n", *lines[2:]]))
    with pytest.raises(InputError, match="line 3: is no JSON"):
        Ledger(tmp_path, "mine")


def test_another_comparison_is_not_touched(tmp_path: Path) -> None:
    path = written(tmp_path)
    for identity, text in (("yours", path.read_text()), ("mine", "something else\n")):
        path.write_text(text)
        with pytest.raises(UsageError, match="holds another comparison"):
            Ledger(tmp_path, identity)
        assert path.read_text() == text


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="--out"):
        Ledger(tmp_path / "file", "mine")


def test_a_torn_first_row_is_begun_again(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_bytes(path.read_bytes()[:30])
    again = Ledger(tmp_path, "mine")
    again.close()
    assert (again.head, again.cells, path.read_bytes()) == ({}, {}, b"")


def test_two_at_once_do_not_mix(tmp_path: Path) -> None:
    first = Ledger(tmp_path, "mine")
    with pytest.raises(UsageError, match="is being written there"):
        Ledger(tmp_path, "mine")
    first.close()
    Ledger(tmp_path, "mine").close()
