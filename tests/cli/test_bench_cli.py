"""`hogwild bench`: tables, rows, and what an interrupt leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import rows_of

DATA = "synthetic:rcv1?rows=400&features=100&nnz=5"
CELL = {
    "method": "serial",
    "workers": 1,
    "seconds": 0.5,
    "spread": 0.4,
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
        def measure(*_: Any, **options: Any) -> Iterator[dict[str, Any]]:
            for row in rows:
                if isinstance(row, BaseException):
                    raise row
                yield dict(row)

        monkeypatch.setattr("hogwild.bench.measure", measure)

    return put


def test_a_real_run(hogwild: Callable, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    result = hogwild(f"bench {DATA} --repeats 1 --workers 1 --json {path}")
    assert result.status == 0
    assert "error" not in result.err  # that the machine is busy may be said
    rows = rows_of(path)
    assert {(row["data"], row["rows"]) for row in rows} == {(DATA, 400)}
    assert rows[0]["command"].split()[0] == "hogwild"
    assert ("cpu" in rows[0], "cpu" in rows[1]) == (True, False)
    for text in (f"{DATA}: an epoch of every discipline", "Mnnz/s", "speed-up"):
        assert text in result.out


def test_rows_on_standard_output(hogwild: Callable, measured: Callable) -> None:
    measured(CELL)
    result = hogwild(f"bench {DATA} --json -")
    assert [row["method"] for row in rows_of(result.out)] == ["serial"]
    assert "method" in result.err
    quiet = hogwild(f"bench {DATA} --quiet --workers 1024")
    assert quiet.out == ""
    assert "hogwild: warning: 1024 workers share" in quiet.err


def test_whether_a_second_worker_pays(hogwild: Callable, measured: Callable) -> None:
    failed = {"method": "locked", "seconds": None, "speedup": None, "objective_ratio": None, "status": "failed: 9"}
    measured(CELL, TWO, TWO | {"speedup": 3.0, "objective_ratio": 1.2, "method": "hogwild"}, TWO | failed)
    result = hogwild(f"bench {DATA} --workers 1,2")
    assert "2 workers: tiered is 1.50 times as fast as one serial worker" in result.out  # hogwild has learned less
    assert "failed: 9" in result.out
    assert "40.0%" in result.out


def test_an_interrupt_keeps_what_was_measured(hogwild: Callable, measured: Callable, tmp_path: Path) -> None:
    measured(CELL, KeyboardInterrupt())
    result = hogwild(f"bench {DATA} --json {tmp_path / 'rows'}")
    assert result.status == 130
    assert "0.25000" in result.out
    assert [row["method"] for row in rows_of(tmp_path / "rows")] == ["serial"]
