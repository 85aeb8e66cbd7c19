"""What is wrong with a table ends in one line that names it, the column, and the line or row."""

from __future__ import annotations

import dataclasses
import datetime
import gzip
import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pytest

import hogwild
from hogwild.data.rows.source import convert, open_data
from hogwild.data.tables import files
from hogwild.data.tables.plan import AskedColumns, TablePlan
from hogwild.data.tables.source import check_columns, feature_names
from hogwild.data.text import delimited
from hogwild.errors import HogwildWarning, InputError, UsageError
from tests.runs import line_of

LABEL = AskedColumns.of(label="y")
LONG = "y,a\n" + "0,1\n1,2\n" * 300_000
TEXTS = {
    "y,a,a\n0,1,2\n": ":1: several columns are named 'a'",
    "y,a,b\n0,1,2\n1,3\n": ":3: 2 fields in '1,3', expected y,a,b separated by commas",
    'y,a,b\n0,"x\ny\nz",2\n1,3\n': ":5: 2 fields in '1,3', expected y,a,b separated by commas",
    LONG + "1,abc\n": ":600002: bad a 'abc': expected a number",
    LONG + "x,3\n": ":600002: bad y 'x': expected a number",
    'y,a\n0,"abc\n1,b\n': ":2: a quote in this row is never closed",
    'y,a,b\n0,5",x\n1,3\n': ":3: 2 fields in '1,3', expected y,a,b separated by commas",
    "y,a\n": ": no rows in it",
    "": ": no rows in it",
    "y,a\n0,1\n,2\n": ":3: column y: the label is missing",
    "y,a\nno,1\nno,2\n": ": column y: every label is 'no', expected two or more",
    "y,a\n0,1\n1,inf\n": ":3: column a: expected a finite number",
    "y,a,w\n0,1,1\n1,2,-1\n": ":3: column w: the weight is negative",
    "y,a,w\n0,1,1\n1,2,\n": ":3: column w: the weight is missing",
    "y,a,w\n0,1,k\n1,2,k\n": ": column w holds text, which cannot be weight",
    "y,d\n0,10:30:00\n1,11:30:00\n": ": column d holds times of day or durations, which are not taken: make each of "
    "them a category with --categorical d, or leave it out with --ignore d",
    "y,d\n0,2024-01-01 10:30\n1,\n1,yesterday\n": ":4: column d: 'yesterday' is no date such as 2005-09-06 17:30 "
    "(train with --categorical d to keep text)",
    "y,d\n0,2024-13-01\n1,2024-01-01\n": ":2: column d: '2024-13-01' is no date such as 2005-09-06 17:30 "
    "(train with --categorical d to keep text)",
    "y\n0\n1\n": ": no column is left to learn from beside y",
    "y,a\r\n": ": no rows in it",
    "y;a;b\n0;1;2\n": ":1: one column, 'y;a;b': give --separator ';'",
    "y\ta\n0\t1\n": ":1: one column, 'y\\ta': give --separator tab",
    ",y,\n1,0,2\n": ":1: several columns have no name",
    "y,d,d.hour\n0,2024-01-01 10:00,x\n1,2024-01-01 11:00,y\n": ": several columns are named 'd.hour'",
}


@pytest.mark.parametrize("text", TEXTS, ids=list(TEXTS.values()))
def test_text(text: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode())
    weight = "w" if "w" in text.partition("\n")[0] else None
    assert line_of(InputError, hogwild.open_table, path, "y", weight=weight) == f"{path}{TEXTS[text]}"


def test_quotes_within_values_are_read_as_pyarrow_does(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('y,a\n0,"x" z\n1,5" pipe\n')
    rows = hogwild.open_table(tmp_path / "t.csv", "y", hash_bits=8)
    names = feature_names(tmp_path / "t.csv", rows.table, rows.indices.tolist())
    assert sorted(names.values()) == [['a=5" pipe'], ["a=x z"]]


def test_a_pipe_is_no_table_to_learn_from() -> None:
    for open_it in (lambda stream: hogwild.open_table(stream, "y"), lambda stream: open_data(stream, columns=LABEL)):
        said = line_of(InputError, open_it, io.BytesIO(b"y,a\n0,x\n1,z\n"))
        assert said.endswith(": a table is read several times, a pipe only once: give a file")


REFUSED: dict[str, dict[str, Any]] = {
    "{table}: cross site*y: y is no categorical column: the categories are site, device, t.hour, t.weekday, t.month": {
        "cross": "site*y"
    },
    "{table}: cross divice*site: divice is no categorical column: did you mean device?": {"cross": "divice*site"},
    "cross site: expected columns joined by *, such as device*country": {"cross": "site"},
    "cross site*site: expected columns joined by *, such as device*country": {"cross": "site*site"},
    "cross site**price: expected columns joined by *, such as device*country": {"cross": "site**price"},
    "bucket price: expected COLUMN:COUNT of 2 to 10,000, such as price:20": {"bucket": "price"},
    "bucket price:1: expected COLUMN:COUNT of 2 to 10,000, such as price:20": {"bucket": ["price:1"]},
    "{table}: column site holds text, which cannot be bucket": {"bucket": "site:9"},
    "{table}: cross all takes up to 10 categories; got 11: name pairs": {
        "cross": "all",
        "bucket": "price:9,a:9,b:9,c:9,d:9,e:9",
    },
    "columns 5: expected a list of names, or text with commas between them": {"cross": 5},
    "column price is named in numeric and in bucket: expected one place": {"bucket": "price:9", "numeric": "price"},
}


@pytest.mark.parametrize("said", REFUSED)
def test_options(said: str) -> None:
    plain = {name: [1.0, 2.0] for name in ("y", "price", *"abcde")}
    times = [datetime.datetime(2020, 1, 1)] * 2
    table = pa.table({**plain, "site": ["a", "b"], "device": ["c", "d"], "t": times})
    line = line_of((InputError, UsageError), hogwild.open_table, table, "y", **REFUSED[said])
    assert line == said.format(table="the table")


@pytest.mark.parametrize("time", [1e300, -1e14, 4e14])
def test_unix_times_beyond_the_calendar(time: float) -> None:
    table = pa.table({"y": [0, 1], "t": [1714957200.0, time]})
    with pytest.raises(InputError, match="row 2: column t: .* is no Unix time of the years 1 to 9999"):
        hogwild.open_table(table, "y", date="t")


def test_bytes(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    cases = {
        "y,a\n0,b\n1,Größe\n".encode("latin-1"): ":3: bad a 'Gr.*xf6.*xdfe': it is not UTF-8: convert the file first",
        "y,größe\n0,b\n".encode("latin-1"): ":1: the column's name 'gr.*xf6.*xdfe' is not UTF-8",
        gzip.compress(b"y,a\n0,1\n1,2\n" * 9999)[:-20]: ":[0-9]+: the archive is truncated",
    }
    for content, said in cases.items():
        path.write_bytes(content)
        with pytest.raises(InputError, match=f"^{path}{said}$"):
            hogwild.open_table(path, "y")


COLUMNS = {
    "lists": (pa.array([[1], [2]]), "column x holds lists or values of another odd type, which are not taken"),
    "bytes": (pa.array([b"a", b"b"]), "column x holds bytes, which are not taken"),
    "infinities": (pa.array([1.0, -np.inf]), "row 2: column x: expected a finite number"),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_columns(kind: str) -> None:
    values, said = COLUMNS[kind]
    table = pa.table({"y": [0, 1], "x": values, "z": ["a", "b"]})
    with pytest.raises(InputError, match=f"^the table: {said}"):
        hogwild.open_table(table, "y")
    assert hogwild.open_table(table, "y", ignore="x").nnz == 2


def test_what_pyarrow_cannot_write() -> None:
    for odd in (pa.array([1, 2], pa.timestamp("us", tz="No/City")), pa.array([pa.MonthDayNano([1, 2, 3])] * 2)):
        with pytest.raises(InputError, match="^the table: row 1: column x: cannot be categorical: [^\n]*$"):
            hogwild.open_table(pa.table({"y": [0, 1], "x": odd}), "y", categorical="x")
    with pytest.raises(InputError, match="^the table: row 1: column x: cannot be a date: [^\n]*$"):
        hogwild.open_table(pa.table({"y": [0, 1], "x": pa.array([1, 2], pa.timestamp("us", tz="No/City"))}), "y")
    with pytest.raises(InputError, match=r"^the table: no column y \(--label\); it has no columns$"):
        hogwild.open_table(pa.table({}), "y")


def test_names_are_not_trained_on_as_numbers() -> None:
    rows = hogwild.open_table(pd.DataFrame({"y": ["no", "yes"] * 5, "x": range(10)}), "y", hash_bits=8)
    said = "loss squared-error needs numbers; column y holds text .'no'.: choose a loss for labels"
    with pytest.raises(InputError, match=f"^{said} such as log$"):
        hogwild.train(rows, loss="squared-error", epochs=1, workers=1)
    rows = hogwild.open_table(pd.DataFrame({"y": [False, True] * 5, "x": range(10)}), "y", hash_bits=8)
    assert hogwild.train(rows, loss="squared-error", epochs=1, workers=1).finish().labels == []


def test_frames() -> None:
    mixed = pd.DataFrame({"y": [0, 1], "x": ["a", 1]})
    with pytest.raises(InputError, match="cannot be made a table: column x mixes types: .astype.{'x': str}."):
        hogwild.open_table(mixed, "y")
    with pytest.raises(InputError, match="Duplicate column names found"):
        hogwild.open_table(pd.DataFrame([[0, 1, 2]], columns=["y", "a", "a"]), "y")
    with pytest.raises(InputError, match=r"no column z \(--label\)"):
        hogwild.open_table(mixed[["y"]], "z")


def test_what_is_new_at_prediction(tmp_path: Path) -> None:
    frame = pd.DataFrame({"y": [True, False] * 20, "site": ["a", "b"] * 20, "n": range(40)})
    model = hogwild.train(hogwild.open_table(frame, "y", hash_bits=8), epochs=2, workers=1).finish()
    assert model.predict(frame).dtype == bool
    assert list(model.classes_) == [False, True]
    model.predict(frame.assign(site="never seen"))
    with pytest.warns(HogwildWarning, match="the model does not know color: passed over"):
        model.predict(frame.assign(color="red"))
    with pytest.raises(InputError, match="the table: column n holds text, expected numbers"):
        model.predict(frame.assign(n="many"))
    (tmp_path / "t.csv").write_text("site,n\na,1\nb,many\n")
    with pytest.raises(InputError, match=r"t\.csv:3: bad n 'many': expected a number"):
        model.predict(tmp_path / "t.csv")


def test_a_table_of_many_columns_is_looked_through_once_and_told_in_part() -> None:
    """Each of these took the square of the number of columns: minutes for tens of thousands."""
    names = [f"c{k}" for k in range(30_000)]
    files.check_names(names, "t.csv")
    table = pa.table({"y": [0, 1] * 5, "z": range(10)})
    plan = TablePlan.from_json(hogwild.open_table(table, "y", hash_bits=4).table)
    wide = dataclasses.replace(plan, columns=tuple(dataclasses.replace(plan.columns[0], name=name) for name in names))
    assert [*wide.lines()] == [f"numeric: {', '.join(names[:20])} and 29980 more"]
    source = files.open_source(pa.table({name: [1.0] for name in names}))
    check_columns(source, wide, labels=False)


@pytest.mark.parametrize("date", ["9/6/2005", "06.09.2005 17:30", "2005/09/06"])
def test_dates_of_another_form_are_said_to_be_categories(date: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"y,d,ip\n0,NA,10.1.2000.1\n1,{date},1.2.3\n")
    with pytest.warns(HogwildWarning, match=f"t.csv:3: column d: '{date}' is no date .*: the column is cat") as told:
        hogwild.open_table(tmp_path / "t.csv", "y")
    assert len(told) == 1


def test_a_column_without_values_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("y,a,b\n1,2,\n0,3,\n")
    with pytest.warns(
        HogwildWarning, match=r"t.csv: column b is empty in its first 2 rows: taken as categorical"
    ) as told:
        rows = hogwild.open_table(path, "y")
    assert len(told) == 1
    assert [column["role"] for column in rows.table["columns"]] == ["numeric", "categorical"]
    assert rows.nnz == 4


def test_labels_and_roles_that_are_found(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "\n,y,id,words\n\n0,red,99999999999999999999,one two three four\n1,green,5,four five six seven\n"
        "2,blue,6,a b c d e\n"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = hogwild.open_table(path, "y")
    assert rows.table["label_names"] == ["blue", "green", "red"]
    assert rows.targets.tolist() == [2.0, 1.0, 0.0]
    assert [column["role"] for column in rows.table["columns"]] == ["categorical", "text"]
    assert rows.table["ignored"] == ["(without a name)"]


def roles(rows: hogwild.Rows) -> dict[str, str]:
    return {column["name"]: column["role"] for column in rows.table["columns"]}


def test_whole_numbers_that_are_ids_are_categories(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    n = 60_000
    codes = np.sort(random.integers(0, 10**9, 500))
    columns = {
        "y": random.integers(0, 2, n),
        "ad_id": random.integers(0, 20_000, n),
        "pageId": random.integers(0, 100, n),
        "zone": codes[random.integers(0, 500, n)],  # scattered: by its spread
        "price": np.floor(np.exp(random.normal(7, 2, n))),
        "age": random.integers(0, 90, n),
        "row_id": np.arange(n),  # none repeats
        "paid": random.integers(0, 9, n),
    }
    path = tmp_path / "t.csv"
    pyarrow.csv.write_csv(pa.table({name: pa.array(values) for name, values in columns.items()}), path)
    rows = hogwild.open_table(path, "y")
    names = dict.fromkeys(("ad_id", "pageId", "zone"), "categorical")
    assert roles(rows) == dict.fromkeys([*columns][1:], "numeric") | names
    assert next(iter(TablePlan.from_json(rows.table).lines())) == (
        "categorical: ad_id (numbers), pageId (numbers), zone (numbers)"
    )
    assert roles(hogwild.open_table(path, "y", numeric="ad_id"))["ad_id"] == "numeric"


def test_a_cell_that_makes_a_column_categorical_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("y,a,b,c\n" + "0,1,x1,NA\n1,-2.5e3,2,\n" * 5 + "1,oops,x,3\n")
    with pytest.warns(HogwildWarning, match=r"t.csv:12: column a: 'oops' is no number, though most are") as told:
        rows = hogwild.open_table(path, "y")
    assert len(told) == 1
    assert roles(rows) == {"a": "categorical", "b": "categorical", "c": "numeric"}
    hogwild.open_table(path, "y", categorical="a")  # as asked
    path.write_text("y,a\n0,1\n1,2\n0,3\n1,x\n0,z\n")  # two of five, and then two of four
    with pytest.warns(HogwildWarning, match=r"t.csv:5: column a: 'x' is no number, though most are"):
        hogwild.open_table(path, "y")
    path.write_text("y,a\n0,1\n1,2\n0,x\n1,z\n")
    hogwild.open_table(path, "y")


def test_a_model_reads_text_with_the_separator_of_its_table(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("y;a;site\n" + "3;1;b\n7;2;c\n" * 40)
    rows = hogwild.open_table(path, "y", separator=";")
    model = hogwild.train(rows, loss="log", workers=1, epochs=2).finish()
    model.save(tmp_path / "m")
    model = hogwild.load(tmp_path / "m")
    labels = model.predict(path)
    assert labels.dtype == np.int64  # as the table has them
    assert set(labels.tolist()) <= {3, 7}
    assert len(hogwild.open_table(path, like=model)) == 80
    names = feature_names(path, model.table, rows.indices.tolist())
    assert sorted(name for each in names.values() for name in each) == ["a", "site=b", "site=c"]


def test_options_of_tables_are_refused_for_a_store(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("y,a\n" + "0,1\n1,2\n" * 9)
    convert(path, tmp_path / "store", columns=LABEL)
    with pytest.raises(UsageError, match="options of columns are for tables .*; got store"):
        open_data(tmp_path / "store", columns=LABEL)
    assert len(open_data(tmp_path / "store", separator=";")) == 18


def test_a_value_longer_than_a_block_is_read_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "BLOCK", 16)
    path = tmp_path / "t.csv"
    path.write_text(f"y,a\n1,{'z' * 50}\n0,x\n")
    assert len(hogwild.open_table(path, "y", cache=None)) == 2
    path.write_text(f"y,a\n1,{'z' * 300}\n0,x\n")
    with pytest.raises(InputError, match="t.csv:2: a value longer than 256 bytes"):
        hogwild.open_table(path, "y", cache=None)
