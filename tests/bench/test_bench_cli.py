"""`hogwild bench`: tables, rows, wrong usage, and what an interrupt leaves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import hogwild, rows_of  # noqa: F401  (a fixture)

CELL = {
    "section": "scaling",
    "data": "synthetic:rcv1?rows=9",
    "method": "serial",
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
TWO = CELL | {"workers": 2, "speedup": 1.5, "method": "tiered"}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let a benchmark yield given rows, or raise given exceptions."""

    def put(*rows: dict[str, Any] | BaseException) -> None:
        def measure(*_: Any) -> Iterator[dict[str, Any]]:
            for row in rows:
                if isinstance(row, BaseException):
                    raise row
                yield row

        monkeypatch.setattr("hogwild.bench.suite.measure", measure)

    return put


def test_a_real_run(hogwild: Callable, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "rows.jsonl"
    data = "synthetic:rcv1?rows=400&features=100&nnz=5"
    result = hogwild(f"bench {data} --repeats 1 --workers 1 --json {path}")
    assert result.status == 0
    assert "error" not in result.err  # that the machine is busy may be said
    rows = rows_of(path)
    assert {row["section"] for row in rows} == {"scaling"}
    assert rows[0]["cpu"]
    assert rows[0]["command"].split()[0] == "hogwild"
    assert "cpu" not in rows[1]
    for text in (f"{data}: an epoch of every discipline", "Mnnz/s", "speed-up"):
        assert text in result.out


def test_rows_on_standard_output(hogwild: Callable, measured: Callable) -> None:  # noqa: F811
    measured(CELL)
    result = hogwild("bench --json -")
    assert result.status == 0
    assert json.loads(result.out.splitlines()[0])["section"] == "scaling"
    assert "method" in result.err
    quiet = hogwild("bench --quiet --workers 1024")
    assert quiet.out == ""
    assert "hogwild: warning: 1024 workers share" in quiet.err


def test_whether_a_second_worker_pays(hogwild: Callable, measured: Callable) -> None:  # noqa: F811
    refused = {"method": "locked", "seconds": None, "speedup": None, "status": "refused: 9 workers"}
    measured(CELL, TWO, TWO | {"speedup": 3.0, "objective_ratio": 1.2, "method": "hogwild"}, TWO | refused)
    result = hogwild("bench --workers 1,2")
    assert "2 workers: tiered is 1.50 times as fast as one serial worker" in result.out  # hogwild has learned less
    assert "refused: 9 workers" in result.out
    assert "4 of these rows" not in result.out
    assert "3 of these rows have a spread above 25%" in result.out


@pytest.mark.parametrize(("stop", "status"), [(KeyboardInterrupt(), 130), (SystemExit(143), 143)])
def test_an_interrupt_keeps_what_was_measured(
    hogwild: Callable,  # noqa: F811
    measured: Callable,
    tmp_path: Path,
    stop: BaseException,
    status: int,
) -> None:
    measured(CELL, stop)
    path = tmp_path / "rows.jsonl"
    if status == 130:
        result = hogwild(f"bench --json {path}")
        assert result.status == 130
        assert "0.25000" in result.out
    else:
        with pytest.raises(SystemExit, match="143"):
            hogwild(f"bench --json {path}")
    assert [row["section"] for row in rows_of(path)] == ["scaling"]
