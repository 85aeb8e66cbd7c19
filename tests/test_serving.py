"""One row as a dict is answered as its table is, by NumPy alone, by several threads at once; bad values in one line."""

from __future__ import annotations

import csv
import json
import pickle
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
import scipy.sparse

import hogwild
from hogwild import CompletionModel, FMModel, LinearModel
from hogwild.data.ids import Ids
from hogwild.data.tables.column import MISSING
from hogwild.errors import InputError
from hogwild.interchange import export_model
from hogwild.serving import encoder
from hogwild.serving.scorer import load

#: Type and values of each column; the training table has one device, so the others are unknown to the model.
COLUMNS: dict[str, tuple[Any, list[Any]]] = {
    "device": (pa.string(), ["phone", "desk", "", None, "ünseen", "x" * 80]),
    "code": (pa.int64(), [7, -3, None, 999]),
    "flag": (pa.bool_(), [True, False, None]),
    "rate": (pa.float64(), [0.1, 7.0, -0.0, None, 1e300]),
    "price": (pa.float64(), [0.0, 3.5, -7.25, None]),
    "width": (pa.float64(), [*map(float, range(40)), None, -5.0, 1e9]),
    "title": (pa.string(), ["Red shoes – red SHOES", "one", "", None, "ÉTÉ ΣΑΣ İstanbul, new_word"]),
    "time": (pa.timestamp("us", "Europe/Berlin"), [datetime(2026, 1, 2, 23, 30, tzinfo=UTC), None]),
    "day": (pa.date32(), [date(2026, 1, 2), date(2024, 2, 29), None, date(1960, 1, 1)]),
    "when": (pa.string(), ["2026-01-02 10:00", "2025-11-03", None, " 2026-01-02T10:00:05.25+02:00 ", "NA"]),
    "unix": (pa.float64(), [1.7e9, 1.75e9 + 0.5, None, 1.76e12, -1e8]),
    "y": (pa.string(), ["yes", "no", "maybe"]),
}
SCHEMA = pa.schema({name: type for name, (type, _) in COLUMNS.items()})


def drawn(n: int) -> list[dict[str, Any]]:
    random = np.random.default_rng(n)
    return [{name: pool[random.integers(len(pool))] for name, (_, pool) in COLUMNS.items()} for _ in range(n)]


def model(loss: str, normalize: str = "none", fields: int | None = None) -> LinearModel:
    """A model of random parameters; features of a row share its 2^8 buckets."""
    table = pa.Table.from_pylist([row | {"device": "phone"} for row in drawn(300)], SCHEMA)
    roles = {"categorical": "code,rate", "date": "unix,when", "text": "title", "bucket": "width:5"}
    plan = hogwild.open_table(table, "y", cross="device*code,flag*time.hour,width*code", hash_bits=8, **roles).table
    random, classes = np.random.default_rng(0), 1 if loss in ("log", "poisson") else 3
    labels = list(range(max(classes, 2))) if loss != "poisson" else []
    coef, intercept = random.normal(0, 0.3, (classes, 256)), random.normal(0, 1, classes)
    facts: dict[str, Any] = {"loss": loss, "labels": labels, "normalize": normalize, "hash_bits": 8, "table": plan}
    if fields is None:
        return LinearModel(coef, intercept, **facts)
    more = {
        "factors_": random.normal(0, 0.3, (256, 10)),
        "fields_": random.integers(0, fields, 256) if fields else None,
    }
    return FMModel(coef, intercept, **facts, **more)


def check(served: LinearModel, rows: list[Any], X: Any) -> None:
    answers = served.predict_many(rows)
    if isinstance(answers[0], dict):
        assert list(answers[0]) == served.classes_.tolist()
        np.testing.assert_allclose([[*answer.values()] for answer in answers], served.predict_proba(X), 1e-5, 1e-9)
    else:
        assert answers == pytest.approx(served.predict(X).tolist())


KINDS = [("log",), ("softmax", "l2"), ("hinge",), ("poisson", "l2"), ("log", "l2", 0), ("log", "l2", 5)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_row_is_answered_as_its_table_is(kind: Any, tmp_path: Path) -> None:
    served, rows = model(*kind), drawn(200)
    table = pa.Table.from_pylist(rows, SCHEMA)
    check(served, rows, table)
    pa.csv.write_csv(table, tmp_path / "new.csv")
    with (tmp_path / "new.csv").open(newline="") as file:
        check(served, list(csv.DictReader(file)), str(tmp_path / "new.csv"))


@pytest.mark.parametrize("bits", [None, 4])
def test_plain_features_go_by_their_number(bits: int | None) -> None:
    width = 16 if bits else 5
    served = LinearModel(np.arange(width) / 9, [0.5], "log", labels=[-1, 1], normalize="l2", hash_bits=bits)
    row = {1: 2, "3": 0.5, 5: -1.0, **({} if bits else {1000: 3.0})}
    table = scipy.sparse.csr_array([[2, 0, 0.5, 0, -1], [0] * 5])
    check(served, [row, {}], table)
    more: dict[str, Any] = {"normalize": "l2", "hash_bits": bits, "fields_": np.arange(width) % 3}
    more["factors_"] = np.arange(6 * width).reshape(width, 6) / 90
    check(FMModel(served.coef_, [0.5], "log", labels=[-1, 1], **more), [row, {}], table)
    large = FMModel(served.coef_, [0.5], "squared-error", **more | {"normalize": "none"})
    check(large, [{1: 1e20, 2: -3e20}], scipy.sparse.csr_array([[1e20, -3e20, 0, 0, 0]]))
    for bad, message in [({0: 1}, "feature 0: expected its number"), ({2: None}, "feature 2: expected a finite")]:
        with pytest.raises(InputError, match=message):
            served.predict_one(bad)


def test_pairs_of_a_completion() -> None:
    random = np.random.default_rng(0)
    parts = (random.normal(size=shape) for shape in [(3, 4), (2, 4), 3, 2])
    served = CompletionModel(*parts, mean=3.5, user_ids=Ids(["ann", "bob", "cy"]), item_ids=Ids([7, 9]))
    assert served.predict_one({"user": "bob", "item": 9}) == pytest.approx(served.predict("bob", 9))
    half = [{"user": "dan", "item": "7"}, {"user": "ann", "item": None}]
    assert served.predict_many(half) == pytest.approx([3.5 + served.item_bias[0], 3.5 + served.user_bias[0]])
    assert served.predict_many([]) == []
    with pytest.raises(InputError, match='row 1: expected {"user": name, "item": name}, got {}'):
        served.predict_many([{}])


GOOD = drawn(1)[0]


def test_a_bad_value_is_one_line() -> None:
    served = model("log")
    for wrong, message in [
        ({"price": "cheap"}, "column price: 'cheap' is no number"),
        ({"width": float("inf")}, "column width: expected a finite number"),
        ({"device": ["a"]}, "column device: expected text or a number, got .'a'."),
        ({"rate": [1]}, "column rate: expected text or a number, got .1."),
        ({"title": 5}, "column title: expected text, got 5"),
        ({"when": "tomorrow"}, "column when: 'tomorrow' is no date such as"),
        ({"when": "9999-12-31T23:00-05:00"}, "column when: '9999-12-31T23:00-05:00' is no date"),
        ({"price": 1e300}, "column price: 1e.300 is beyond float32"),
    ]:
        with pytest.raises(InputError, match=f"^row 2: {message}"):
            served.predict_many([GOOD, GOOD | wrong])
    for rows in (5, GOOD):
        with pytest.raises(InputError, match="expected a list of dicts, got .*: a table goes to model.predict"):
            served.predict_many(rows)
    assert served.predict_many([]) == []
    for row, message in [({}, "no column device, which the model was trained with"), ([], "expected .* dict .* list")]:
        with pytest.raises(InputError, match=message):
            served.predict_one(row)


def test_threads_share_a_model_whose_texts_outgrow_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "KEPT", 2)
    served, rows = model("log", "l2", 5), drawn(400)
    wanted = served.predict_many(rows)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(served.predict_one, rows)) == wanted
    assert pickle.loads(pickle.dumps(served)).predict_many(rows) == wanted


def test_text_is_read_as_in_csv() -> None:
    assert set(pyarrow.csv.ConvertOptions().null_values) == MISSING
    served, texts = model("log"), {"code": "7.0", "flag": "True", "price": " 3.5 ", "rate": "NA"}
    answers = served.predict_many([GOOD | texts, GOOD | {"code": 7, "flag": True, "price": 3.5, "rate": None}])
    assert answers[0] == answers[1]
    one, true, again = served.predict_many([GOOD | {"rate": value} for value in (1, True, 1.0)])  # equal keys of a dict
    assert one == again != true
    assert served.predict_one(GOOD | {"flag": "NA"}) == served.predict_one(GOOD | {"flag": None})
    assert served.predict_one(GOOD | {"device": np.str_("new")}) == served.predict_one(GOOD | {"device": "new"})


def test_the_first_answer_needs_numpy_alone(tmp_path: Path) -> None:
    model("log", "l2", 5).save(tmp_path / "ffm")
    CompletionModel([[1.0]], [[1.0]], [0.0], [0.0]).save(tmp_path / "completion")
    code = f"""
import sys, hogwild
hogwild.load("ffm").predict_one({GOOD | {"time": "2026-01-02 10:00", "day": "2026-01-02"}!r})
hogwild.load("completion").predict_one({{"user": 0, "item": 0}})
heavy = {{"numba", "scipy", "torch", "pyarrow", "sklearn", "pandas"}} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


ALONE = """
import pickle, sys
sys.path[:0] = sys.argv[1:3]  # NumPy alone, and the exported files
from wanted import wanted
for name, rows, answers in wanted:
    model = __import__(name).load(f"{sys.argv[2]}/{name}.npz")
    assert model.predict_many(rows) == answers, name
    assert [model.predict_one(row) for row in rows] == answers, name
assert not {"hogwild", "numba", "scipy", "pyarrow"} & {*sys.modules}
"""


def test_an_exported_file_answers_to_the_bit_where_nothing_but_numpy_is(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    parts = [random.normal(size=shape) for shape in [(3, 4), (2, 4), 3, 2]]
    plain = LinearModel(random.normal(size=16), [0.5], "gamma", hash_bits=4)
    pairs = [{"user": user, "item": item} for user in ("ann", "dan", "cy") for item in (7, "9", None)]
    models = {
        "classes": (model("softmax", "l2"), drawn(40)),
        "plain_fm": (model("log", "l2", 0), drawn(40)),
        "field_aware": (model("log", "l2", 5), drawn(40)),
        "features": (plain, [{1: 2.0, "30": -1}, {}]),
        "ratings": (CompletionModel(*parts, 3.5, user_ids=Ids(["ann", "bob", "cy"]), item_ids=Ids([7, 9])), pairs),
        "unnamed": (CompletionModel(*parts), [{"user": 2, "item": 1}, {"user": 0, "item": 5}]),
    }
    wanted = []
    for name, (served, rows) in models.items():
        export_model(served, tmp_path / f"{name}.py", "python")
        wanted.append((name, rows, served.predict_many(rows)))
    (tmp_path / "wanted.py").write_text(f"import datetime, math\nnan = math.nan\nwanted = {wanted!r}")
    for folder in Path(np.__file__).parent.parent.glob("numpy*"):
        (tmp_path / "only").mkdir(exist_ok=True)
        (tmp_path / "only" / folder.name).symlink_to(folder)
    command = [sys.executable, "-I", "-S", "-c", ALONE, str(tmp_path / "only"), str(tmp_path)]
    subprocess.run(command, check=True, cwd="/")
    defined = re.findall(r"^(?:class |def )?(\w+)(?:\(| = |:)", (tmp_path / "classes.py").read_text(), re.M)
    assert len({*defined}) == len(defined) > 40  # definitions of several files, none of the name of another


def test_a_damaged_archive_is_one_line(tmp_path: Path) -> None:
    export_model(model("log"), path := tmp_path / "m.npz", "npz")
    assert load(path).predict_many(drawn(9)) == model("log").predict_many(drawn(9))
    whole = path.read_bytes()
    at = whole.index(b"NUMPY") + 400  # in the first array
    with np.load(path) as file:
        arrays = dict(file)
    facts = json.loads(str(arrays["hogwild"]))
    for name, said, content in [
        ("short", "not a model that hogwild export wrote, or damaged: ", whole[:-99]),
        ("turned", "not a model that hogwild export wrote, or damaged: Bad", whole[:at] + b"?" + whole[at + 1 :]),
        ("empty", "not a model that hogwild export wrote", b""),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=f"^{tmp_path / name}: {said}[^\n]*$"):
            load(tmp_path / name)
    for change, said in [({"schema": 9}, "a model of format 9; this reader knows 1"), ({"width": 5}, "256 features")]:
        np.savez(path, **arrays | {"hogwild": json.dumps(facts | change)})
        with pytest.raises(InputError, match=f"^{path}: not a model .*: .*{said}[^\n]*$"):
            load(path)
    with pytest.raises(InputError, match="there.npz: cannot be read: No such file or directory"):
        load("there.npz")
