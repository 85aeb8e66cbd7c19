"""Tables of every kind become the same rows, which are those of the twin in plain Python."""

from __future__ import annotations

import datetime
import gzip
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import hogwild
from hogwild.data.rows.store import open_store
from hogwild.data.tables.plan import TablePlan
from hogwild.data.tables.source import SHARED, feature_names, stream_table
from hogwild.errors import InputError
from tests.data.table_twin import features, hashed
from tests.runs import entries

ROLES = {"site": "categorical", "price": "numeric", "id": "categorical", "title": "text", "old": "categorical"}
ROLES |= {"time": "date", "amount": "bucket"}
BITS = 20
CROSSES = ["site*time.hour", "amount*old*id"]
AS: dict[str, Any] = {"text": "title", "categorical": ["id"], "bucket": "amount:4", "cross": ",".join(CROSSES)}
AS |= {"label": "click", "hash_bits": BITS}


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """300 rows with gaps, long numbers, words in quotes and over lines, letters beyond ASCII, times."""
    random = np.random.default_rng(1)
    n = 300
    titles = ['red "shoes", new', "Größe 42\nzwei Zeilen", "red shoes red shoes", "", None, "a_b – c"]
    times = random.integers(1_700_000_000, 1_710_000_000, n).tolist()
    return pa.table(
        {
            "click": pa.array(np.where(random.random(n) < 0.4, "yes", "no")),
            "site": pa.array([None if k == 0 else f"site{k}" for k in random.integers(0, 9, n)]),
            "price": pa.array([None if k % 17 == 0 else round(k / 7, 3) for k in random.integers(0, 99, n)]),
            "id": pa.array([None if k % 5 == 0 else int(k) * 10**13 - 7 for k in random.integers(-50, 999, n)]),
            "title": pa.array([titles[k % len(titles)] for k in range(n)]),
            "old": pa.array([None if k == 2 else bool(k) for k in random.integers(0, 3, n)]),
            "time": pa.array([None if k % 11 == 0 else k for k in times], pa.timestamp("s")),
            "amount": pa.array([None if k == 7 else int(k) for k in random.integers(0, 30, n)]),
        }
    )


def expected(table: pa.Table, bits: int = BITS) -> list[dict[int, float]]:
    there = {name: [x for x in table[name].to_pylist() if x is not None] for name in ("price", "time", "amount")}
    ages = [time.timestamp() / 86_400 for time in there["time"]]
    amounts = sorted(there["amount"])
    edges = sorted({amounts[math.ceil(share * (len(amounts) - 1))] for share in (0.25, 0.5, 0.75)})
    facts = {"price": np.std(there["price"]), "time": (max(there["time"]), np.std(ages)), "amount": edges}
    rows = []
    for row in table.to_pylist():
        texts = {"id": None if row["id"] is None else str(row["id"])}
        texts["old"] = None if row["old"] is None else str(row["old"]).lower()
        rows.append(hashed(features(row | texts, ROLES, facts, CROSSES), bits))
    return rows


def check(rows: hogwild.Rows, table: pa.Table) -> None:
    assert entries(rows) == [pytest.approx(row, rel=1e-6) for row in expected(table)]
    assert rows.table["label_names"] == ["no", "yes"]
    assert rows.targets.tolist() == [float(label == "yes") for label in table["click"].to_pylist()]


def nullable(table: pa.Table) -> pd.DataFrame:
    return table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}.get)


def write(table: pa.Table, path: Path) -> Path:
    name = path.name
    if "csv" in name or "tsv" in name:
        text = nullable(table).to_csv(index=False, sep="\t" if "tsv" in name else ",")
        content = text.encode("utf-8-sig" if "bom" in name else "utf-8")
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    elif name.endswith("parquet"):
        encoded = ["site", "title"] if "dictionary" in name else []
        for column in encoded:
            at = table.column_names.index(column)
            table = table.set_column(at, column, table[column].dictionary_encode())
        pq.write_table(table, path, row_group_size=70)
    else:
        pyarrow.feather.write_feather(table, str(path), chunksize=64)
    return path


FILES = ["bom.csv", "b.tsv", "c.csv.gz", "dictionary.parquet", "e.feather"]


@pytest.mark.parametrize("name", FILES)
def test_files_become_the_rows_of_the_twin(name: str, table: pa.Table, tmp_path: Path) -> None:
    path = write(table, tmp_path / name)
    rows = hogwild.open_table(path, **AS)
    check(rows, table)
    assert {column["name"]: column["role"] for column in rows.table["columns"]} == ROLES
    streamed = list(stream_table(path, rows.table))
    assert [row for block in streamed for row in entries(block)] == entries(rows)


def coded(table: pa.Table) -> pd.DataFrame:
    return nullable(table).astype({"site": "category", "id": "category", "old": "category"})


FRAMES: dict[str, Callable[[pa.Table], Any]] = {
    "pyarrow": lambda table: table,
    "pandas, categorical": coded,
    "pandas, odd index": lambda table: nullable(table).set_index(np.arange(len(table))[::-1]),
    "polars, categorical": lambda table: pl.from_arrow(table).with_columns(pl.col("site").cast(pl.Categorical)),
    "polars, lazy": lambda table: pl.from_arrow(table).lazy(),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_become_the_rows_of_the_twin(kind: str, table: pa.Table) -> None:
    check(hogwild.open_table(FRAMES[kind](table), **AS), table)


def test_a_large_file_is_cut_into_pieces_at_rows(table: pa.Table, tmp_path: Path, monkeypatch: Any) -> None:
    path = write(table, tmp_path / "a.csv")
    monkeypatch.setattr("hogwild.data.text.delimited.BLOCK", 200)
    monkeypatch.setattr("hogwild.data.tables.files.ROWS", 7)
    check(hogwild.open_table(path, **AS), table)
    check(hogwild.open_table(table, **AS), table)


def test_progress_counts_the_rows_of_all_batches(table: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hogwild.data.tables.files.CELLS", 100 * len(table.column_names))  # of rows as wide as these
    seen: list[tuple[int, int | None]] = []
    hogwild.open_table(table, **AS, progress=lambda done, total: seen.append((done, total)))
    assert seen[-3:] == [(100, 300), (200, 300), (300, 300)]


def test_a_model_predicts_tables(table: pa.Table, tmp_path: Path) -> None:
    rows = hogwild.open_table(table, "click", text="title", hash_bits=12)
    hogwild.train(rows, epochs=2, workers=1).finish().save(tmp_path / "m")
    model = hogwild.load(tmp_path / "m")
    assert model.table == rows.table
    first = model.predict(rows)
    assert set(first) <= {"no", "yes"}
    assert list(model.classes_) == ["no", "yes"]
    assert (model.predict(write(table, tmp_path / "b.tsv")) == first).all()
    assert (model.predict_proba(pl.from_arrow(table.drop(["click"]))) == model.predict_proba(rows)).all()
    with pytest.raises(InputError, match="the table: no column site, which the model was trained with; its columns"):
        model.predict(table.drop(["site"]))
    with pytest.raises(InputError, match="expected a table with the model's columns: site"):
        model.predict(hogwild.Rows([0, 1], [0], [1.0], [0.0], 2**12, hash_bits=12))


def test_the_plan_goes_with_parts_stores_and_caches(table: pa.Table, tmp_path: Path) -> None:
    from hogwild.data.cache import Cache
    from hogwild.data.rows.source import convert
    from hogwild.data.tables.plan import AskedColumns

    path, cache = write(table, tmp_path / "d.parquet"), Cache(tmp_path / "cache")
    rows = hogwild.open_table(path, "click", cache=cache)
    again = hogwild.open_table(path, "click", cache=cache)
    assert rows.store == again.store is not None
    assert rows.table == again.table == rows.split(0.3)[1].table == rows.block(3, 9).compact().table
    convert(path, tmp_path / "store", columns=AskedColumns.of(label="click"))
    assert open_store(tmp_path / "store").table == rows.table
    other = hogwild.open_table(path, "click", ignore="price", cache=cache)
    assert other.table != rows.table
    assert entries(hogwild.open_table(path, like=other)) == entries(other)
    with pytest.raises(InputError, match="the test rows: its columns were prepared for another model"):
        hogwild.train(rows, other, epochs=1)


@pytest.mark.parametrize("kind", [pa.float32(), pa.dictionary(pa.int8(), pa.float32())])
def test_a_number_in_few_bits_is_the_category_it_is_in_text(kind: pa.DataType, tmp_path: Path) -> None:
    numbers = ["0.1", "16777216", "1e-07", "-2.7", "", "3.4e+38"]
    (tmp_path / "t.csv").write_text("y,x\n" + "".join(f"{k % 2},{number}\n" for k, number in enumerate(numbers)))
    typed = pa.array([float(number) if number else None for number in numbers], kind)
    frame = pa.table({"y": [k % 2 for k in range(6)], "x": typed})
    text = hogwild.open_table(tmp_path / "t.csv", "y", categorical="x", hash_bits=BITS)
    rows = hogwild.open_table(frame, "y", categorical="x", hash_bits=BITS)
    assert entries(rows) == entries(text)
    assert ["x=0.1"] in feature_names(frame, rows.table, rows.indices.tolist()).values()


def test_categories_as_many_as_their_codes_can_count() -> None:
    codes = pa.array([*range(128), None] * 2, pa.int8())
    sites = pa.DictionaryArray.from_arrays(codes, [f"s{k}" for k in range(128)])
    plain = pa.table({"y": [0, 1] * 129, "x": sites.cast(pa.string())})
    coded = pa.table({"y": [0, 1] * 129, "x": sites})
    assert entries(hogwild.open_table(coded, "y", hash_bits=BITS)) == entries(
        hogwild.open_table(plain, "y", hash_bits=BITS)
    )


def test_bits_are_chosen_by_how_many_features_there_are() -> None:
    frame = pa.table({"y": [0, 1] * 50_000, "a": [f"{k}" for k in range(100_000)]})
    assert hogwild.open_table(frame.slice(0, 1000), "y").hash_bits == 18
    assert hogwild.open_table(frame, "y").hash_bits == 19


@pytest.mark.parametrize("kind", ["pyarrow", "csv"])
def test_features_get_their_names_back(kind: str, table: pa.Table, tmp_path: Path) -> None:
    rows = hogwild.open_table(table, **AS)
    names = ["site=site3", "site=", "price", "price=", "id=-140000000000007", "title=red shoes", "old=true"]
    names += ["title=größe", "title=zwei zeilen"]
    buckets = [next(iter(hashed({name: 1.0}, BITS))) for name in names]
    read = table if kind == "pyarrow" else write(table, tmp_path / "a.csv")
    found = feature_names(read, rows.table, [*buckets, 5])
    assert {bucket: sorted(names) for bucket, names in found.items()} == {
        bucket: [name] for bucket, name in zip(buckets, names)
    }


def test_names_that_share_a_bucket_come_in_the_order_of_the_table() -> None:
    values = [f"v{k}" for k in range(40)]
    frame = pa.table({"y": [0, 1] * 20, "x": values})
    rows = hogwild.open_table(frame, "y", categorical="x", hash_bits=2)
    told = TablePlan.from_json(rows.table).known_names()
    for bucket, names in feature_names(frame, rows.table, np.arange(4).tolist()).items():
        there = [f"x={value}" for value in values if next(iter(hashed({f"x={value}": 1.0}, 2))) == bucket]
        assert names == [*told.get(bucket, []), *there][:SHARED]


def names(table: Any, **options: Any) -> list[set[str]]:
    """Return the names of each row's features."""
    rows = hogwild.open_table(table, "y", hash_bits=BITS, **options)
    found = feature_names(table, rows.table or {}, rows.indices.tolist())
    return [{name for bucket in row for name in found[bucket]} for row in entries(rows)]


def test_hours_are_of_the_zone_that_training_had() -> None:
    """Times are instants, and those without a zone are UTC."""
    there = pa.array([1_704_063_600_000_000] * 2, pa.timestamp("us", "Europe/Berlin"))  # 2023-12-31 23:00 UTC
    frame = pa.table({"y": [0, 1], "t": there})
    midnight = {"t.hour=0", "t.weekday=Mon", "t.month=1"}
    assert names(frame) == [midnight] * 2
    rows = hogwild.open_table(frame, "y", hash_bits=BITS)
    utc, zoned = "2023-12-31 23:00", "2024-01-01T00:00:00+01:00"
    for same in (there.cast(pa.timestamp("ns")), [utc] * 2, [zoned] * 2, [utc, zoned]):
        assert entries(hogwild.open_table(pa.table({"y": [0, 1], "t": same}), like=rows)) == entries(rows)


def test_dates_as_text_numbers_and_days() -> None:
    late = {"t.hour=23", "t.weekday=Sun", "t.month=12"}
    said = ["2023-12-31T23:00Z", "2023-12-31 23:00:00.000000000", " 2024-01-01T00:00+0100", None]
    gap = {"t.hour=", "t.weekday=", "t.month=", "t.age="}
    assert names(pa.table({"y": [0, 1, 1, 1], "t": said})) == [late, late, late, gap]
    assert names(pa.table({"y": [0, 1], "t": [1_704_063_600, 1_704_063_600_000]}), date="t") == [late] * 2
    assert names(pa.table({"y": [0, 1], "t": ["20231231T23"] * 2}), date="t") == [late] * 2
    days = pd.DataFrame({"y": [0, 1], "t": [datetime.date(2023, 12, 31), datetime.date(2023, 12, 30)]})
    assert names(days) == [{"t.weekday=Sun", "t.month=12"}, {"t.weekday=Sat", "t.month=12", "t.age"}]


def test_booleans_learned_as_words_may_be_digits_later() -> None:
    train = hogwild.open_table(pa.table({"y": [True, False, True], "a": [1.0, 2.0, 3.0]}), "y", hash_bits=8)
    later = hogwild.open_table(pa.table({"y": ["0", "1", "TRUE"], "a": [1.0, 2.0, 3.0]}), like=train)
    assert (train.targets.tolist(), later.targets.tolist()) == ([1, 0, 1], [0, 1, 1])


def test_crosses_and_their_fields() -> None:
    frame = pa.table({"y": [0, 1], "a": ["x", None], "n": [1.0, 3.0], "b": ["u", "v"]})
    assert names(frame, cross="all", bucket="n:2") == [
        {"a=x", "n=..3", "b=u", "a*n=x,..3", "a*b=x,u", "n*b=..3,u"},
        {"a=", "n=3..", "b=v", "a*n=,3..", "a*b=,v", "n*b=3..,v"},
    ]
    rows = hogwild.open_table(frame, "y", cross=["a*b"], hash_bits=BITS)
    assert sorted(rows.fields[rows.fields >= 0]) == [0, 0, 1, 2, 2, 3, 3]
    assert rows.fields[next(iter(hashed({"a*b=x,u": 1.0}, BITS)))] == 3


def test_buckets_of_many_rows_are_made_from_every_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hogwild.data.tables.rows.SAMPLED", 100)
    monkeypatch.setattr("hogwild.data.tables.files.ROWS", 70)
    rows = hogwild.open_table(pa.table({"y": [0, 1] * 500, "n": range(1000)}), "y", bucket="n:4")
    assert rows.table["columns"][0]["edges"] == [256, 496, 752]  # of rows 0, 16, 32 ...
