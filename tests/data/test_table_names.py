"""Names of a table's features: those its columns tell, and those looked up in the table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import hogwild
from hogwild.data.tables.columns import known_names
from hogwild.data.tables.plan import TablePlan
from hogwild.data.tables.rows import SHARED
from hogwild.data.tables.source import feature_names
from hogwild.errors import HogwildWarning
from tests.data.table_twin import features, hashed

N = 400
ROLES = {"site": "categorical", "shop": "categorical", "title": "text", "price": "numeric"}


@pytest.fixture(scope="module")
def table() -> pa.Table:
    titles = ["Red shoes, grün", "42 – old\nred", None, "red red"]
    return pa.table(
        {
            "y": pa.array(["no", "yes"] * (N // 2)),
            "site": pa.array([f"s{k % 7}" if k % 9 else None for k in range(N)]),
            "shop": pa.array([k % 5 * 0.5 for k in range(N)]),
            "title": pa.array([titles[k % 4] for k in range(N)]),
            "price": pa.array([None if k % 11 == 0 else float(k % 13) for k in range(N)]),
        }
    )


def every(table: pa.Table) -> dict[int, set[str]]:
    """All names of a table by their buckets of 16 bits, as the twin tells."""
    found: dict[int, set[str]] = {}
    for row in table.to_pylist():
        row["shop"] = str(int(row["shop"]) if row["shop"].is_integer() else row["shop"])
        for name in [*features(row | {"price": 1.0}, ROLES, {"price": 1.0}), "price=", "shop="]:
            found.setdefault(next(iter(hashed({name: 1.0}, 16))), set()).add(name)
    return found


def test_names_are_those_of_the_twin(table: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hogwild.data.tables.files.ROWS", 60)
    rows = hogwild.open_table(table, "y", categorical=["site", "shop"], text="title", hash_bits=16)
    assert rows.table is not None
    found = feature_names(table, rows.table, range(2**16))
    assert {bucket: set(names) for bucket, names in found.items()} == every(table)
    told = {name for names in known_names(TablePlan.from_json(rows.table)).values() for name in names}
    assert told == {"price", "price=", "site=", "shop="}


def test_names_that_share_a_bucket_come_in_the_order_of_the_table() -> None:
    values = [f"v{k}" for k in range(40)]
    frame = pa.table({"y": [0, 1] * 20, "x": values})
    with pytest.warns(HogwildWarning, match="share one of"):
        rows = hogwild.open_table(frame, "y", categorical="x", hash_bits=2)
    assert rows.table is not None
    told = known_names(TablePlan.from_json(rows.table))
    for bucket, names in feature_names(frame, rows.table, np.arange(4).tolist()).items():
        there = [f"x={value}" for value in values if next(iter(hashed({f"x={value}": 1.0}, 2))) == bucket]
        assert names == [*told.get(bucket, []), *there][:SHARED]
