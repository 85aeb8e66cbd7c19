"""Names of a table's features: gathered while rows are made, kept in stores and models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import hogwild
from hogwild.data.cache import Cache
from hogwild.data.names import KEPT, SHARED
from hogwild.data.rows.source import convert
from hogwild.data.rows.store import open_store, save_store
from hogwild.data.tables import names as table_names
from hogwild.data.tables.plan import AskedColumns
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
    """All names of a table by their buckets of 12 bits, as the twin tells."""
    found: dict[int, set[str]] = {}
    for row in table.to_pylist():
        row["shop"] = str(int(row["shop"]) if row["shop"].is_integer() else row["shop"])
        for name in features(row | {"price": 1.0}, ROLES, {"price": 1.0}):
            found.setdefault(next(iter(hashed({name: 1.0}, 12))), set()).add(name)
    found.setdefault(next(iter(hashed({"price=": 1.0}, 12))), set()).add("price=")
    return found


def opened(table: Any, **more: Any) -> hogwild.Rows:
    return hogwild.open_table(table, "y", categorical=["site", "shop"], text="title", hash_bits=12, **more)


def test_rows_stores_and_models_have_the_names_of_the_twin(table: pa.Table, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("hogwild.data.tables.files.ROWS", 60)
    path = tmp_path / "t.csv"
    pyarrow.csv.write_csv(table, path)
    kept = opened(path, cache=Cache(tmp_path / "cache"))
    save_store(opened(table), tmp_path / "saved")
    convert(tmp_path / "saved", tmp_path / "store")
    asked = AskedColumns.of(label="y", categorical="site,shop", text="title")
    convert(path, tmp_path / "own", columns=asked, hash_bits=12)
    stores = [open_store(tmp_path / name) for name in ("saved", "store", "own")]
    for rows in [opened(table), kept, *stores, kept.split(0.2)[0], kept.compact()]:
        assert rows.names is not None
        found = rows.names.of(range(2**12))
        assert {bucket: set(names) for bucket, names in found.items()} == every(table)
    path.unlink()
    model = hogwild.train(kept, epochs=2, workers=1, host="threads").finish()
    model.save(tmp_path / "m")
    names = hogwild.load(tmp_path / "m").names
    assert names == model.names == {bucket: found[bucket] for bucket in np.flatnonzero(model.coef_[0]).tolist()}


def test_names_that_share_a_bucket_come_in_the_order_of_the_table() -> None:
    values = [f"v{k}" for k in range(40)]
    with pytest.warns(HogwildWarning, match="share one of"):
        rows = hogwild.open_table(pa.table({"y": [0, 1] * 20, "x": values}), "y", hash_bits=2)
    assert rows.names is not None
    for bucket, names in rows.names.of(range(4)).items():
        there = [f"x={value}" for value in values if next(iter(hashed({f"x={value}": 1.0}, 2))) == bucket]
        fine = dict.fromkeys(there)  # of those that share even a finer bucket the first is told
        assert names[0] == there[0]
        assert len(names) <= SHARED
        assert [name for name in fine if name in names] == names


def test_how_much_is_kept_is_bounded(monkeypatch: Any) -> None:
    n = 3 * KEPT
    frame = pa.table({"y": [0, 1] * (n // 2), "x": [f"{'long' * 99}{k}" if k < 2 else f"v{k}" for k in range(n)]})
    rows = hogwild.open_table(frame, "y", hash_bits=18)
    model = hogwild.train(rows, epochs=1, workers=1, host="threads").finish()
    assert KEPT < len(model.names) <= 2 * KEPT
    assert max(len(name) for names in model.names.values() for name in names) <= table_names.LONGEST + len("x=")
    monkeypatch.setattr(table_names, "MOST", 100)
    monkeypatch.setattr("hogwild.data.tables.files.ROWS", 50)
    rows = hogwild.open_table(frame, "y", hash_bits=18)
    assert rows.names is not None
    assert 100 <= len(rows.names.buckets) <= 150


def test_a_file_of_before_there_were_names_is_read(table: pa.Table, tmp_path: Path) -> None:
    model = hogwild.train(opened(table), epochs=1, workers=1, host="threads").finish()
    assert model.names
    arrays, header = model.to_file()
    del header["names"]
    assert type(model).from_file(arrays, header, "m").names == {}
