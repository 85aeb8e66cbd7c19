"""`hogwild bench`: tables, rows, the plot, wrong usage, and what an interrupt leaves."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hogwild.bench import suite
from hogwild.bench.plan import BenchPlan
from tests.cli.conftest import hogwild  # noqa: F401  (a fixture)

CELL = {
    "family": "rcv1",
    "data": "synthetic:rcv1?rows=9",
    "discipline": "serial",
    "workers": 1,
    "seconds": 0.5,
    "seconds_q25": 0.4,
    "seconds_q75": 0.6,
    "nonzeros_per_second": 2e6,
    "speedup": 1.0,
    "objective": 0.25,
    "objective_ratio": 1.0,
    "status": "ok",
}


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let a section yield given rows, or raise given exceptions."""

    def put(**sections: list[dict[str, Any] | BaseException]) -> None:
        def section(name: str, plan: BenchPlan) -> Iterator[dict[str, Any]]:
            for row in sections.get(name, []):
                if isinstance(row, BaseException):
                    raise row
                yield {"section": name, **row}

        monkeypatch.setattr("hogwild.cli.bench.section", section)

    return put


def test_a_real_run(hogwild: Callable, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "rows.jsonl"
    options = ("--quick", "--repeats", 1, "--rows", 200, "--workers", "1", "--json", path)
    result = hogwild("bench", "streaming", "parsing", *options)
    assert result.status == 0
    assert "error" not in result.err  # that the machine is busy may be said
    rows = read(path)
    assert [row["section"] for row in rows] == ["streaming", "parsing"]
    assert rows[0]["cpu"]
    assert rows[0]["command"].split()[0] == "hogwild"
    assert "cpu" not in rows[1]
    for text in ("streaming: CSR streaming rate", "GB/s", "parsing: ", "MB/s"):
        assert text in result.out


def test_rows_on_standard_output(hogwild: Callable, measured: Callable) -> None:  # noqa: F811
    measured(scaling=[CELL])
    result = hogwild("bench", "scaling", "--json", "-")
    assert result.status == 0
    assert json.loads(result.out.splitlines()[0])["section"] == "scaling"
    assert "discipline" in result.err
    quiet = hogwild("bench", "scaling", "--quiet", "--workers", 1024)
    assert quiet.out == ""
    assert "hogwild: warning: 1024 workers share" in quiet.err


def test_plot(hogwild: Callable, measured: Callable, tmp_path: Path) -> None:  # noqa: F811
    two = {"workers": 2, "speedup": 1.5, "discipline": "hogwild"}
    refused = {"discipline": "locked", "seconds": None, "speedup": None, "status": "refused: 9 workers"}
    measured(scaling=[CELL, CELL | two, CELL | refused])
    result = hogwild("bench", "scaling", "--plot", tmp_path / "speed.png")
    assert result.status == 0
    assert (tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")
    assert os.listdir(tmp_path) == ["speed.png"]
    assert "refused: 9 workers" in result.out


@pytest.mark.parametrize(("stop", "status"), [(KeyboardInterrupt(), 130), (SystemExit(143), 143)])
def test_an_interrupt_keeps_what_was_measured(
    hogwild: Callable,  # noqa: F811
    measured: Callable,
    tmp_path: Path,
    stop: BaseException,
    status: int,
) -> None:
    measured(scaling=[CELL, stop], adds=[{"add": "plain"}])
    paths = tmp_path / "rows.jsonl", tmp_path / "speed.png"
    command = ("bench", "scaling", "adds", "--json", paths[0], "--plot", paths[1])
    if status == 130:
        result = hogwild(*command)
        assert result.status == 130
        assert "0.25000" in result.out
    else:
        with pytest.raises(SystemExit, match="143"):
            hogwild(*command)
    assert [row["section"] for row in read(paths[0])] == ["scaling"]
    assert paths[1].exists()


def test_a_section_that_fails_does_not_end_the_others(hogwild: Callable, measured: Callable) -> None:  # noqa: F811
    from hogwild.errors import TrainingError

    measured(startup=[TrainingError("no")], adds=[{"add": "plain", "status": "ok"}])
    result = hogwild("bench", "startup", "adds")
    assert result.status == 0
    assert "failed: no" in result.out
    assert "plain" in result.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("speed",), "speed: no such section; there are streaming, kernel, "),
        (("--workers", "0"), "--workers 0: expected numbers from 1 to 1024, such as 1,2,4"),
        (("--workers", "two"), "--workers two: expected numbers"),
        (("--host", "machines"), "--host machines: expected one of processes, threads"),
        (("adds", "--plot", "x.png"), "--plot draws the section scaling"),
        (("--plot", "x.pdf"), "--plot x.pdf: expected a name that ends in .png"),
        (("--json", "x.png", "--plot", "x.png"), "--plot x.png would overwrite x.png"),
        (("--repeats", "0"), "--repeats"),
    ],
)
def test_wrong_usage(
    hogwild: Callable,  # noqa: F811
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = hogwild("bench", *arguments)
    assert result.status == 2
    assert message in result.err
    assert result.err.count("\n") == 1
    assert os.listdir(tmp_path) == []


def test_outputs_that_cannot_be_written(hogwild: Callable, tmp_path: Path) -> None:  # noqa: F811
    for option, name in (("--json", "rows"), ("--plot", "speed.png")):
        result = hogwild("bench", "scaling", option, tmp_path / "none" / name)
        assert result.status == 1
        assert "cannot write there" in result.err


def test_a_name_in_help_for_every_section(hogwild: Callable) -> None:  # noqa: F811
    text = hogwild("bench", "--help").out
    assert all(name in text for name in suite.SECTIONS)
